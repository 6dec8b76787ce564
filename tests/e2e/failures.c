/* Trainers that die, budgets that do not suffice, ranks that never come. */
#include "tests/e2e/e2e.h"

#include <dirent.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A trainer of our own, in a child process, that does something and is then killed. */
static pid_t doomed(void (*act)(struct e2e *e2e), unsigned rank, unsigned world)
{
	int pipes[2];
	CHECK(pipe(pipes) == 0, "no pipe");
	pid_t pid = fork();
	if (pid == 0) {
		struct e2e e2e = { .rank = rank, .world = world };
		DO(fsdp_client_open(NULL, &e2e.client));
		act(&e2e);
		CHECK(write(pipes[1], "x", 1) == 1, "the pipe is gone");
		for (;;)
			pause();
	}
	char byte;
	close(pipes[1]);
	CHECK(read(pipes[0], &byte, 1) == 1, "the doomed trainer failed");
	close(pipes[0]);
	return pid;
}

static void kill_and_reap(pid_t pid)
{
	int status;
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
}

static const float values[] = { 1, 2, 3, 4 };

static void seal_and_hold(struct e2e *e2e)
{
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, 4);
	void *grad;
	DO(fsdp_unit_unshard(unit));
	DO(fsdp_unit_grad(unit, 0, &grad));
}

/* Rank 1's trainer dies with an unshard and a gradient slot in hand: the other's call ends at its deadline and says for
 * whom it waited; a successor attaches at once and the next step succeeds. */
static void a_dead_trainer_is_named(struct e2e *e2e)
{
	struct fsdp_unit *unit;
	if (e2e->rank == 1) {
		pid_t pid = doomed(seal_and_hold, 1, 2);
		e2e_meet(e2e, "sealed");
		kill_and_reap(pid);
		e2e_meet(e2e, "timed out");
		e2e_wait_for("attempt 1,"); /* this rank's daemon may hear of it a little later */
		e2e_open(e2e, NULL);
		unit = e2e_add(e2e, "u0", 4);
		struct fsdp_model_info info;
		DO(fsdp_model_seal(e2e->model, &info));
		CHECK(info.resumed == 1, "not resumed");
	} else {
		unit = e2e_vector(e2e, NULL, values, 4);
		e2e_full_is(unit, 0, values, 4);
		e2e_meet(e2e, "sealed");
		e2e_reduce(unit, values, 4);
		FAILS(FSDP_E_TIMEOUT, fsdp_model_sync_gradients(e2e->model), "u0", "rank 1");
		e2e_meet(e2e, "timed out");
	}
	e2e_full_is(unit, 0, values, 4);
	e2e_reduce(unit, values, 4);
	DO(fsdp_model_sync_gradients(e2e->model));
	e2e_gradient_is(unit, values + 2 * e2e->rank, 2);
	DO(fsdp_model_update_shards(e2e->model, NULL, 0));
}

/* A successor that attaches in the middle of an attempt aborts it: everybody starts it again. */
static void seal_and_reduce(struct e2e *e2e)
{
	static const float wrong[] = { 100, 100, 100, 100 };
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, 4);
	e2e_full_is(unit, 0, values, 4);
	e2e_reduce(unit, wrong, 4);
}

static void a_successor_begins_the_step_again(struct e2e *e2e)
{
	struct fsdp_unit *unit;
	if (e2e->rank == 1) {
		pid_t pid = doomed(seal_and_reduce, 1, 2);
		kill_and_reap(pid);
		e2e_meet(e2e, "dead");
		e2e_open(e2e, NULL);
		unit = e2e_add(e2e, "u0", 4);
		DO(fsdp_model_seal(e2e->model, NULL));
		e2e_meet(e2e, "attached");
	} else {
		unit = e2e_vector(e2e, NULL, values, 4);
		e2e_full_is(unit, 0, values, 4);
		e2e_reduce(unit, values, 4);
		e2e_meet(e2e, "dead");
		e2e_meet(e2e, "attached");
		FAILS(FSDP_E_ABORTED, fsdp_model_sync_gradients(e2e->model), "abort");
	}
	e2e_reduce(unit, values, 4);
	DO(fsdp_model_sync_gradients(e2e->model));
	e2e_gradient_is(unit, values + 2 * e2e->rank, 2);
}

static unsigned daemon_descriptors(pid_t daemon)
{
	char path[64];
	unsigned count = 0;
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)daemon);
	DIR *folder = opendir(path);
	CHECK(folder, "cannot look at %s", path);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

/* The daemon behind our socket. */
static pid_t daemon_pid(void)
{
	char command[512], text[32] = "";
	snprintf(command, sizeof(command), "pgrep -f -- '--config %.*s/fsdpd.conf'",
		 (int)(strrchr(getenv("FSDP_SOCKET"), '/') - getenv("FSDP_SOCKET")), getenv("FSDP_SOCKET"));
	FILE *pipe = popen(command, "r");
	CHECK(pipe && fgets(text, sizeof(text), pipe), "no daemon: %s", command);
	pclose(pipe);
	return (pid_t)atoi(text);
}

static void attach_and_unshard(struct e2e *e2e)
{
	e2e_open(e2e, NULL);
	struct fsdp_unit *unit = e2e_add(e2e, "u0", 4);
	DO(fsdp_model_seal(e2e->model, NULL));
	DO(fsdp_unit_unshard(unit));
}

/* Trainers killed in the middle of an unshard, again and again: descriptors as before, and the next one works at
 * once. */
static void killed_trainers_leave_nothing(struct e2e *e2e)
{
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, 4);
	e2e_full_is(unit, 0, values, 4);
	e2e_meet(e2e, "loaded");
	DO(fsdp_model_close(e2e->model, 1));
	pid_t daemon = daemon_pid();
	kill_and_reap(doomed(attach_and_unshard, e2e->rank, e2e->world));
	unsigned before = 0;
	for (int i = 0; i < 20; i++) {
		kill_and_reap(doomed(attach_and_unshard, e2e->rank, e2e->world));
		if (i == 2)
			before = daemon_descriptors(daemon);
	}
	/* The next one may be attached before the last one's descriptors are closed: it counts for one. */
	unsigned after = daemon_descriptors(daemon);
	CHECK(after <= before + 10, "%u descriptors grew to %u", before, after);
	e2e_open(e2e, NULL);
	unit = e2e_add(e2e, "u0", 4);
	DO(fsdp_model_seal(e2e->model, NULL));
	e2e_full_is(unit, 0, values, 4);
}

/* Run with a gather budget of two units of 1 MiB and a gradient budget of one. */
static void a_budget_that_does_not_suffice(struct e2e *e2e)
{
	enum { COUNT = 262144 };
	static float zeros[COUNT];
	e2e_open(e2e, NULL);
	for (unsigned u = 0; u < 3; u++) {
		char name[8];
		snprintf(name, sizeof(name), "u%u", u);
		e2e_add(e2e, name, COUNT);
	}
	DO(fsdp_model_seal(e2e->model, NULL));
	for (unsigned u = 0; u < 3; u++)
		e2e_load(e2e->units[u], zeros);
	DO(fsdp_unit_unshard(e2e->units[0]));
	DO(fsdp_unit_unshard(e2e->units[1]));
	FAILS(FSDP_E_BUDGET, fsdp_unit_unshard(e2e->units[2]), "u2", "budget");
	DO(fsdp_unit_reshard(e2e->units[0]));
	DO(fsdp_unit_unshard(e2e->units[2]));
	DO(fsdp_unit_reshard(e2e->units[1]));
	DO(fsdp_unit_reshard(e2e->units[2]));
	void *grad;
	DO(fsdp_unit_grad(e2e->units[0], 0, &grad));
	FAILS(FSDP_E_BUDGET, fsdp_unit_grad(e2e->units[1], 0, &grad), "u1", "budget");
	DO(fsdp_unit_reduce(e2e->units[0]));
	/* the slot comes back when every owner has added it */
	for (unsigned u = 1; u < 3; u++)
		e2e_reduce(e2e->units[u], zeros, COUNT);
	DO(fsdp_model_sync_gradients(e2e->model));
}

static void a_budget_below_the_largest_unit(struct e2e *e2e)
{
	e2e_open(e2e, NULL);
	e2e_add(e2e, "u0", 1048576);
	FAILS(FSDP_E_BUDGET, fsdp_model_seal(e2e->model, NULL), "budget");
}

static void who_never_seals_is_named(struct e2e *e2e)
{
	if (e2e->rank == 2) {
		e2e_meet(e2e, "timed out");
		return;
	}
	e2e_open(e2e, NULL);
	e2e_add(e2e, "u0", 4);
	FAILS(FSDP_E_TIMEOUT, fsdp_model_seal(e2e->model, NULL), "rank 2");
	e2e_meet(e2e, "timed out");
}

static void a_second_worker_is_refused(struct e2e *e2e)
{
	struct fsdp_client *second;
	struct fsdp_model *model;
	struct fsdp_unit *unit;
	struct fsdp_param param = { .name = "w", .dtype = FSDP_F32, .ndim = 1, .shape = { 4 } };
	unit = e2e_vector(e2e, NULL, values, 4);
	e2e_full_is(unit, 0, values, 4);
	DO(fsdp_client_open(NULL, &second));
	DO(fsdp_model_open(second, "m", NULL, &model));
	DO(fsdp_unit_add(model, "u0", &param, 1, &unit));
	FAILS(FSDP_E_BUSY, fsdp_model_seal(model, NULL), "worker");
	DO(fsdp_client_close(second));
	e2e_full_is(e2e->units[0], 0, values, 4);
}

static void a_fork_is_told(struct e2e *e2e)
{
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, 4);
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		FAILS(FSDP_E_FORKED, fsdp_unit_unshard(unit), "");
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child failed");
	e2e_full_is(unit, 0, values, 4);
}

const struct e2e_case e2e_failures[] = {
	{ "failures_a_dead_trainer_is_named", a_dead_trainer_is_named },
	{ "failures_a_successor_begins_the_step_again", a_successor_begins_the_step_again },
	{ "failures_killed_trainers_leave_nothing", killed_trainers_leave_nothing },
	{ "failures_a_budget_that_does_not_suffice", a_budget_that_does_not_suffice },
	{ "failures_a_budget_below_the_largest_unit", a_budget_below_the_largest_unit },
	{ "failures_who_never_seals_is_named", who_never_seals_is_named },
	{ "failures_a_second_worker_is_refused", a_second_worker_is_refused },
	{ "failures_a_fork_is_told", a_fork_is_told },
	{ 0 },
};
