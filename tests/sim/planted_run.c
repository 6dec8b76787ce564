/*
 * Hunts planted bugs: every seed of a bug is run in a child process, because a bug may end in an assertion, a wrong
 * result or a run that hangs. The first line of a failed child says what was seen. Owns the children that it makes.
 */
#include "tests/sim/planted_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/runtime/planted.h"
#include "tests/sim/sim.h"
#include "tests/sim/trace.h"

#define PLANTED_LINE_MAX 400
#define PLANTED_SECONDS_MAX 60 /* real time of one run, for a bug that makes it spin */

static const struct planted_row {
	const char *name, *text;
} rows[] = { { "PLANTED_NOTHING", "" },
#define PLANTED_ROW(name, text) { #name, text },
	     PLANTED_BUGS(PLANTED_ROW)
#undef PLANTED_ROW
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const uint32_t planted_worlds[] = { 3, 2, 5 };

#ifdef FSDP_PLANTED
enum planted_bug planted_bug;

bool planted_is_built(void)
{
	return true;
}

static void planted_choose(size_t row)
{
	planted_bug = (enum planted_bug)row;
}
#else
bool planted_is_built(void)
{
	return false;
}

static void planted_choose(size_t row)
{
	(void)row;
}
#endif

bool planted_set(const char *name)
{
	for (size_t i = 1; i < ROWS && planted_is_built(); i++) {
		if (strcmp(rows[i].name, name) == 0 || strcmp(rows[i].name + strlen("PLANTED_"), name) == 0) {
			planted_choose(i);
			return true;
		}
	}
	return false;
}

static _Noreturn void planted_child(const char *program, size_t row, uint64_t seed, uint32_t world, int output)
{
	dup2(output, STDOUT_FILENO);
	dup2(output, STDERR_FILENO);
	alarm(PLANTED_SECONDS_MAX);
	planted_choose(row);
	struct sim_clock *clock = sim_clock_new();
	trace_begin(program, rows[row].name, seed, world, false, clock);
	sim_run(&(struct sim_config){ .seed = seed, .world_size = world }, clock);
	_exit(0);
}

/* What the child said last about a failure, without the seed. */
static void planted_read(FILE *output, char *what)
{
	char line[PLANTED_LINE_MAX];
	while (fgets(line, sizeof(line), output)) {
		char *text = strncmp(line, "FAILED ", 7) == 0 ? strstr(line, ": ") : strstr(line, "Assertion");
		if (text && (!what[0] || line[0] != 'F')) {
			snprintf(what, PLANTED_LINE_MAX, "%s", line[0] == 'F' ? text + 2 : text);
			what[strcspn(what, "\n")] = '\0';
			if (line[0] != 'F') {
				return;
			}
		}
	}
}

/* Returns whether the run failed. */
static bool planted_try(const char *program, size_t row, uint64_t seed, uint32_t world, char *what)
{
	FILE *output = tmpfile();
	if (!output) {
		perror("tmpfile");
		exit(2);
	}
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		planted_child(program, row, seed, world, fileno(output));
	}
	int status = 0;
	if (child < 0 || waitpid(child, &status, 0) != child) {
		perror("fork");
		exit(2);
	}
	bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
	if (failed) {
		what[0] = '\0';
		rewind(output);
		planted_read(output, what);
		if (!what[0]) {
			snprintf(what, PLANTED_LINE_MAX, "ended with status %d", status);
		}
	}
	fclose(output);
	return failed;
}

int planted_hunt(const char *program, const char *name, uint64_t seeds)
{
	unsigned missed = 0, found = 0;
	char what[PLANTED_LINE_MAX];
	/* Without a bug the same seeds must pass: else nothing is found here. */
	for (uint64_t seed = 1; seed <= 10; seed++) {
		uint32_t world = planted_worlds[seed % 3];
		if (planted_try(program, PLANTED_NOTHING, seed, world, what)) {
			printf("FAILED: without a planted bug seed %" PRIu64 " of world %u fails: %s\n", seed, world,
			       what);
			return 1;
		}
	}
	for (size_t row = 1; row < ROWS; row++) {
		if (name && strcmp(rows[row].name, name) != 0 &&
		    strcmp(rows[row].name + strlen("PLANTED_"), name) != 0) {
			continue;
		}
		uint64_t seed = 1;
		while (seed <= seeds && !planted_try(program, row, seed, planted_worlds[seed % 3], what)) {
			seed++;
		}
		if (seed <= seeds) {
			printf("planted %s: found at seed %" PRIu64 ", world %u (%s)\n", rows[row].name, seed,
			       planted_worlds[seed % 3], what);
			found++;
		} else {
			printf("planted %s: NOT FOUND in %" PRIu64 " seeds (%s)\n", rows[row].name, seeds,
			       rows[row].text);
			missed++;
		}
		fflush(stdout);
	}
	printf("%u planted bugs found, %u not\n", found, missed);
	return missed || !found ? 1 : 0;
}
