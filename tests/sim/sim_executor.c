/*
 * The simulated executor of one node. A job runs at a random moment after it was submitted and is done at a later one,
 * so that its memory is read and written when nobody expects it. Owns its tasks, borrows the jobs. One thread.
 */
#include "tests/sim/sim.h"

#include "tests/sim/memory.h"
#include "tests/sim/tally.h"
#include "tests/sim/trace.h"

struct sim_task {
	struct sim_task *next;
	struct sim_executor *executor; /* NULL: flushed, only the clock still points here */
	struct job *job;
	bool ran;
};

static void task_on_done(void *context, uint64_t unused)
{
	struct sim_task *task = context;
	(void)unused;
	if (task->executor) {
		struct sim_task **link = &task->executor->tasks;
		while (*link != task) {
			link = &(*link)->next;
		}
		*link = task->next;
		tally_count(TALLY_EVENT, EVENT_JOB);
		task->job->done(task->job);
	}
	free(task);
}

static void task_on_run(void *context, uint64_t unused)
{
	struct sim_task *task = context;
	(void)unused;
	if (task->executor) {
		task->ran = true;
		task->job->run(task->job);
	}
}

static void executor_submit(struct executor *base, struct job *job)
{
	struct sim_executor *executor = (struct sim_executor *)base;
	struct sim *sim = executor->sim;
	struct sim_task *task = memory_zeroed(sizeof(*task));
	task->executor = executor;
	task->job = job;
	task->next = executor->tasks;
	executor->tasks = task;
	uint64_t from = sim_now_us(sim) > executor->stalled_until_us ? sim_now_us(sim) : executor->stalled_until_us;
	uint64_t run_us = from + dice_below(&sim->dice, 3000);
	sim_clock_at(sim->clock, run_us, task_on_run, task, 0);
	sim_clock_at(sim->clock, run_us + dice_below(&sim->dice, 2000), task_on_done, task, 0);
}

void sim_executor_init(struct sim_executor *executor, struct sim *sim)
{
	*executor = (struct sim_executor){ .executor = { .submit = executor_submit }, .sim = sim };
}

void sim_executor_flush(struct sim_executor *executor)
{
	while (executor->tasks) {
		struct sim_task *task = executor->tasks;
		executor->tasks = task->next;
		task->executor = NULL;
		if (!task->ran) {
			task->job->run(task->job);
		}
		task->job->done(task->job);
	}
}
