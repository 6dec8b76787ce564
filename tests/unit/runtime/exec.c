/* What the thread pool promises: each job once, done in the thread that submitted it. */
#include "daemon/runtime/exec.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#define JOBS 1000

struct counted_job {
	struct job job;
	atomic_int runs;
	int dones;
	pthread_t ran_in, done_in;
	bool blocked;
};

static void counted_run(struct job *job)
{
	struct counted_job *counted = (struct counted_job *)job;
	sigset_t mask;
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	counted->blocked = sigismember(&mask, SIGTERM) == 1;
	counted->ran_in = pthread_self();
	atomic_fetch_add(&counted->runs, 1);
}

static void counted_done(struct job *job)
{
	struct counted_job *counted = (struct counted_job *)job;
	counted->done_in = pthread_self();
	counted->dones++;
}

static void finish(struct mailbox *home, int count)
{
	while (count > 0) {
		struct pollfd item = { .fd = mailbox_fd(home), .events = POLLIN };
		poll(&item, 1, -1);
		struct letter *letter;
		while ((letter = mailbox_take(home))) {
			((struct job *)letter)->done((struct job *)letter);
			count--;
		}
	}
}

Test(exec, runs_every_job_once_and_gives_it_back_to_its_submitter, .timeout = 60)
{
	static struct counted_job jobs[JOBS];
	struct exec *exec;
	struct mailbox *home;
	struct executor *executor;
	cr_assert_eq(exec_new(3, &exec), 0);
	cr_assert_eq(mailbox_new(&home), 0);
	cr_assert_eq(exec_executor_new(exec, home, &executor), 0);
	for (int i = 0; i < JOBS; i++) {
		jobs[i].job = (struct job){ .run = counted_run, .done = counted_done };
		executor->submit(executor, &jobs[i].job);
	}
	finish(home, JOBS);
	for (int i = 0; i < JOBS; i++) {
		cr_assert_eq(jobs[i].runs, 1);
		cr_assert_eq(jobs[i].dones, 1);
		cr_assert(pthread_equal(jobs[i].done_in, pthread_self()));
		cr_assert_not(pthread_equal(jobs[i].ran_in, pthread_self()));
		cr_assert(jobs[i].blocked, "signals are the loop's");
	}
	exec_executor_free(executor);
	exec_free(exec);
	mailbox_free(home);
}

Test(exec, serves_two_submitters_in_turn, .timeout = 60)
{
	static struct counted_job jobs[2][JOBS];
	struct exec *exec;
	struct mailbox *homes[2];
	struct executor *executors[2];
	cr_assert_eq(exec_new(1, &exec), 0);
	for (int k = 0; k < 2; k++) {
		cr_assert_eq(mailbox_new(&homes[k]), 0);
		cr_assert_eq(exec_executor_new(exec, homes[k], &executors[k]), 0);
	}
	for (int i = 0; i < JOBS; i++) {
		for (int k = 0; k < 2; k++) {
			jobs[k][i].job = (struct job){ .run = counted_run, .done = counted_done };
			executors[k]->submit(executors[k], &jobs[k][i].job);
		}
	}
	for (int k = 0; k < 2; k++) {
		finish(homes[k], JOBS);
		for (int i = 0; i < JOBS; i++) {
			cr_assert_eq(jobs[k][i].dones, 1);
		}
		exec_executor_free(executors[k]);
	}
	exec_free(exec);
	mailbox_free(homes[0]);
	mailbox_free(homes[1]);
}

/* A job that keeps the only thread until it is let go, so that what is behind it is queued for certain. */
struct gate_job {
	struct job job;
	pthread_mutex_t *gate;
};

static void gate_run(struct job *job)
{
	struct gate_job *gate = (struct gate_job *)job;
	pthread_mutex_lock(gate->gate);
	pthread_mutex_unlock(gate->gate);
}

static void gate_done(struct job *job)
{
	(void)job;
}

static atomic_int order;

struct order_job {
	struct job job;
	int place;
};

static void order_run(struct job *job)
{
	((struct order_job *)job)->place = atomic_fetch_add(&order, 1);
}

Test(exec, lets_one_job_of_another_pass_a_long_queue, .timeout = 60)
{
	static struct order_job many[10], one;
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct gate_job gate = { .job = { .run = gate_run, .done = gate_done }, .gate = &lock };
	struct exec *exec;
	struct mailbox *home;
	struct executor *a, *b;
	cr_assert_eq(exec_new(1, &exec), 0);
	cr_assert_eq(mailbox_new(&home), 0);
	cr_assert_eq(exec_executor_new(exec, home, &a), 0);
	cr_assert_eq(exec_executor_new(exec, home, &b), 0);
	pthread_mutex_lock(&lock);
	a->submit(a, &gate.job);
	for (int i = 0; i < 10; i++) {
		many[i].job = (struct job){ .run = order_run, .done = gate_done };
		a->submit(a, &many[i].job);
	}
	one.job = (struct job){ .run = order_run, .done = gate_done };
	b->submit(b, &one.job);
	pthread_mutex_unlock(&lock);
	finish(home, 12);
	cr_assert_leq(one.place, 1, "it was number %d", one.place);
	for (int i = 1; i < 10; i++) {
		cr_assert_lt(many[i - 1].place, many[i].place);
	}
	exec_executor_free(a);
	exec_executor_free(b);
	exec_free(exec);
	mailbox_free(home);
}

Test(exec, without_jobs_stops_at_once, .timeout = 60)
{
	struct exec *exec;
	cr_assert_eq(exec_new(4, &exec), 0);
	exec_free(exec);
	exec_free(NULL);
	exec_executor_free(NULL);
}
