/*
 * A task: a job of one model. It is embedded in the struct of whoever starts it, keeps its model (and so its plan)
 * alive, and runs at once in the engine's thread where it is small.
 */
#ifndef FSDPD_ENGINE_TASK_H
#define FSDPD_ENGINE_TASK_H

#include "daemon/runtime/exec.h"
#include <stdint.h>

struct model;

struct task {
	struct job job; /* first */
	struct model *model;
	void (*run)(struct task *task);  /* any thread */
	void (*done)(struct task *task); /* the engine's thread; frees the task */
};

/* bytes: how much it touches. done may be called before this returns. */
void task_start(struct task *task, struct model *model, uint64_t bytes);

#endif
