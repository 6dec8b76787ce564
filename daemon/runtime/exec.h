/*
 * A small pool of threads that add, cast, step, allocate and write: everything that takes long and needs no state of
 * its own. Jobs of one pool run in any order and side by side; whoever needs an order submits the next when the last
 * is done.
 *
 * The core never starts a thread. It sees struct executor, of which there are two: this pool, and the simulated
 * cluster's, which runs a job after a virtual delay.
 */
#ifndef FSDPD_RUNTIME_EXEC_H
#define FSDPD_RUNTIME_EXEC_H

#include "daemon/runtime/mailbox.h"
#include "daemon/runtime/pulse.h"

/* One piece of work, embedded in the submitter's own struct, which it lives as long as. run is called once, in a
 * thread of the pool; done is called once after it, in the submitter's thread. */
struct job {
	struct letter letter; /* first: a finished job is a letter to the submitter */
	void (*run)(struct job *job);
	void (*done)(struct job *job);
};

struct executor {
	void (*submit)(struct executor *executor, struct job *job); /* never blocks or fails; takes job until done */
};

struct exec;

/* threads >= 1. 0, -ENOMEM, -EAGAIN. */
int exec_new(unsigned threads, struct exec **ret_exec);
void exec_free(struct exec *exec); /* joins; every job must be done; takes NULL */

/* The pulse of one of the pool's threads, for a watchdog: it beats with every job. */
const struct pulse *exec_pulse(const struct exec *exec, unsigned thread);

/* An executor that posts its finished jobs to home, whose owner calls job->done(). Lives as long as exec; borrows
 * home. */
int exec_executor_new(struct exec *exec, struct mailbox *home, struct executor **ret_executor);
void exec_executor_free(struct executor *executor);

#endif
