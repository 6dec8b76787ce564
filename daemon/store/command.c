/*
 * Commands and reports as heap blocks. Owns nothing but what the block carries. Any thread; a block belongs to one at
 * a time.
 */
#include "daemon/store/command.h"

#include <stdlib.h>

/* The loop and the engine keep each other in step by these. One that cannot be made would leave them apart, without
 * anybody whom an error could be told: better to be started again. */
static void *command_block(size_t size)
{
	void *block = calloc(1, size);
	if (!block) {
		abort();
	}
	return block;
}

struct command *command_new(enum command_kind kind)
{
	struct command *command = command_block(sizeof(*command));
	command->kind = kind;
	return command;
}

void command_free(struct command *command)
{
	if (!command) {
		return;
	}
	plan_unref(command->plan);
	free(command->incarnations);
	free(command->bits);
	free(command->groups);
	free(command);
}

struct report *report_new(enum report_kind kind)
{
	struct report *report = command_block(sizeof(*report));
	report->kind = kind;
	return report;
}

void report_free(struct report *report)
{
	if (!report) {
		return;
	}
	free(report->bits);
	free(report->sums);
	free(report->ranks);
	free(report);
}
