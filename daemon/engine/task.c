/*
 * Starts tasks: small ones here and now, larger ones on the executor, and counts them for their model. The engine's
 * thread.
 */
#include "daemon/engine/task.h"

#include "daemon/engine/shards.h"

static void task_run(struct job *job)
{
	struct task *task = (struct task *)job;

	task->run(task);
}

static void task_done(struct job *job)
{
	struct task *task = (struct task *)job;
	struct model *model = task->model;
	struct engine *engine = model->engine;

	task->done(task);
	model->refs--;
	engine_settle(engine);
}

void task_start(struct task *task, struct model *model, uint64_t bytes)
{
	struct executor *executor = model->engine->config.executor;

	task->model = model;
	uint64_t most = model->engine->config.inline_bytes;
	if (bytes <= (most ? most : ENGINE_INLINE_BYTES)) {
		task->run(task);
		task->done(task);
		return;
	}
	task->job.run = task_run;
	task->job.done = task_done;
	model->refs++;
	executor->submit(executor, &task->job);
}
