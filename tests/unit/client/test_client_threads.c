/* Several threads on one connection, and what a child may do with its parent's. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/client/trainer.h"

#define ok(call) cr_assert_eq(call, 0, "%s", fsdp_last_error())

static enum fake_verdict hold_step(struct fake *fake, const struct worker_message *request,
				   struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fake;
	(void)answer;
	(void)fds;
	(void)fd_count;
	return request->op == WORKER_STEP ? FAKE_HOLD : FAKE_SEND;
}

static void *step_in_a_thread(void *context)
{
	struct trainer *trainer = context;
	struct fsdp_step_result result;
	ok(fsdp_model_step(trainer->model, NULL, &result));
	cr_assert_eq(result.step, 1);
	return NULL;
}

static void wait_until_held(struct fake *fake)
{
	while (!fake->holding)
		sched_yield();
}

Test(client_threads, a_step_that_waits_does_not_hold_back_an_unshard)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	trainer.fake->hook = hold_step;
	pthread_t thread;
	cr_assert_eq(pthread_create(&thread, NULL, step_in_a_thread, &trainer), 0);
	wait_until_held(trainer.fake); /* from here on that thread leads, and its answer does not come */
	for (int i = 0; i < 100; i++) {
		ok(fsdp_unit_unshard(trainer.units[i % TRAINER_UNITS]));
		ok(fsdp_unit_reshard(trainer.units[i % TRAINER_UNITS]));
	}
	cr_assert(trainer.fake->holding);
	fake_release(trainer.fake);
	pthread_join(thread, NULL);
	trainer_stop(&trainer);
}

static void *unshard_in_a_thread(void *context)
{
	struct fsdp_unit *unit = context;
	for (int i = 0; i < 200; i++) {
		ok(fsdp_unit_unshard(unit));
		cr_assert_gt(((const float *)fsdp_unit_param(unit, 0))[0], 0.0f);
		ok(fsdp_unit_reshard(unit));
	}
	return NULL;
}

Test(client_threads, many_threads_get_their_own_answers_while_one_waits)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	trainer.fake->hook = hold_step;
	pthread_t step, threads[6];
	cr_assert_eq(pthread_create(&step, NULL, step_in_a_thread, &trainer), 0);
	for (int i = 0; i < 6; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, unshard_in_a_thread, trainer.units[i % TRAINER_UNITS]),
			     0);
	for (int i = 0; i < 6; i++)
		pthread_join(threads[i], NULL);
	cr_assert_eq(trainer.fake->unshards, 0);
	fake_release(trainer.fake);
	pthread_join(step, NULL);
	trainer_stop(&trainer);
}

static void *sync_until_lost(void *context)
{
	struct trainer *trainer = context;
	cr_assert_eq(fsdp_model_step(trainer->model, NULL, NULL), FSDP_E_UNREACHABLE);
	cr_assert(strstr(fsdp_last_error(), "fsdp_model_step"));
	return NULL;
}

static enum fake_verdict hold_step_then_leave(struct fake *fake, const struct worker_message *request,
					      struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fake;
	(void)answer;
	(void)fds;
	(void)fd_count;
	if (request->op == WORKER_SYNC)
		return FAKE_DROP;
	return request->op == WORKER_STEP ? FAKE_HOLD : FAKE_SEND;
}

Test(client_threads, a_lost_connection_ends_every_call_that_waits)
{
	struct trainer trainer = trainer_start();
	trainer.fake->hook = hold_step_then_leave;
	pthread_t thread;
	cr_assert_eq(pthread_create(&thread, NULL, sync_until_lost, &trainer), 0);
	wait_until_held(trainer.fake);
	cr_assert_eq(fsdp_model_sync_gradients(trainer.model), FSDP_E_UNREACHABLE);
	pthread_join(thread, NULL);
	trainer_stop(&trainer);
}

static int child_main(struct trainer *trainer)
{
	struct fsdp_unit *unit = trainer->units[0];
	struct fsdp_model *model;
	void *grad;
	struct fsdp_group group;
	if (fsdp_unit_unshard(unit) != FSDP_E_FORKED)
		return 1;
	if (!strstr(fsdp_last_error(), "open one of its own"))
		return 2;
	if (fsdp_unit_grad(unit, 0, &grad) != FSDP_E_FORKED || fsdp_unit_param(unit, 0))
		return 3;
	if (fsdp_model_step(trainer->model, NULL, NULL) != FSDP_E_FORKED)
		return 4;
	if (fsdp_model_close(trainer->model, 0) != FSDP_E_FORKED)
		return 5;
	if (fsdp_client_group(trainer->client, &group) != FSDP_E_FORKED)
		return 6;
	if (fsdp_model_open(trainer->client, "n", NULL, &model) != FSDP_E_FORKED)
		return 7;
	return fsdp_client_close(trainer->client) == 0 ? 0 : 8;
}

Test(client_threads, a_child_gets_forked_from_every_call_and_the_parent_goes_on)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	ok(fsdp_unit_unshard(trainer.units[0]));
	pid_t child = fork();
	if (child == 0)
		_exit(child_main(&trainer));
	int status;
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
	cr_assert_eq(((const float *)fsdp_unit_param(trainer.units[0], 0))[0], 1.0f);
	ok(fsdp_unit_reshard(trainer.units[0]));
	ok(fsdp_model_close(trainer.model, 1));
	trainer_stop(&trainer);
}

Test(client_threads, shared_memory_is_not_inherited)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	ok(fsdp_unit_unshard(trainer.units[0]));
	const volatile float *a = fsdp_unit_param(trainer.units[0], 0);
	cr_assert_eq(a[0], 1.0f);
	pid_t child = fork();
	if (child == 0)
		_exit(a[0] == 1.0f);
	int status;
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "status %x", (unsigned)status);
	trainer_stop(&trainer);
}
