/*
 * The thread pool. Owns its threads and a ring of executors that have work; each executor has a queue of its own,
 * made of the letters inside the jobs, so that to submit takes no memory. Threads serve the executors in turn: one
 * that submits a thousand jobs does not hold up another's one.
 *
 * The queues have no limit of their own: a job is part of its submitter's struct, and those are bounded.
 */
#include "daemon/runtime/exec.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

struct exec_queue {
	struct executor executor; /* first */
	struct exec *exec;
	struct mailbox *home;
	struct exec_queue *next; /* in the ring of those with work */
	struct letter *first;
	struct letter *last;
};

struct exec_thread {
	struct exec *exec;
	pthread_t id;
	struct pulse pulse;
};

struct exec {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool stop;
	unsigned executors;
	struct exec_queue *first; /* whose turn it is */
	struct exec_queue *last;
	unsigned thread_count;
	struct exec_thread threads[];
};

static void exec_append(struct exec *exec, struct exec_queue *queue)
{
	queue->next = NULL;
	if (exec->last) {
		exec->last->next = queue;
	} else {
		exec->first = queue;
	}
	exec->last = queue;
}

/* The next job and where it goes when it is done. Called with the lock held and work there. */
static struct job *exec_pop(struct exec *exec, struct mailbox **ret_home)
{
	struct exec_queue *queue = exec->first;
	exec->first = queue->next;
	if (!exec->first) {
		exec->last = NULL;
	}
	struct job *job = (struct job *)queue->first;
	queue->first = queue->first->next;
	if (queue->first) {
		exec_append(exec, queue);
	} else {
		queue->last = NULL;
	}
	*ret_home = queue->home;
	return job;
}

static void *exec_thread(void *argument)
{
	struct exec_thread *thread = argument;
	struct exec *exec = thread->exec;
	pthread_mutex_lock(&exec->lock);
	for (;;) {
		while (!exec->first && !exec->stop) {
			pulse_park(&thread->pulse);
			pthread_cond_wait(&exec->wake, &exec->lock);
		}
		pulse_beat(&thread->pulse);
		if (!exec->first) {
			break;
		}
		struct mailbox *home;
		struct job *job = exec_pop(exec, &home);
		pthread_mutex_unlock(&exec->lock);
		job->run(job);
		mailbox_post(home, &job->letter); /* the job is the submitter's again: not to be touched */
		pthread_mutex_lock(&exec->lock);
	}
	pthread_mutex_unlock(&exec->lock);
	return NULL;
}

static void exec_stop(struct exec *exec)
{
	pthread_mutex_lock(&exec->lock);
	exec->stop = true;
	pthread_cond_broadcast(&exec->wake);
	pthread_mutex_unlock(&exec->lock);
	for (unsigned i = 0; i < exec->thread_count; i++) {
		pthread_join(exec->threads[i].id, NULL);
	}
	pthread_cond_destroy(&exec->wake);
	pthread_mutex_destroy(&exec->lock);
	free(exec);
}

int exec_new(unsigned threads, struct exec **ret_exec)
{
	assert(threads >= 1);
	struct exec *exec = calloc(1, sizeof(*exec) + threads * sizeof(exec->threads[0]));
	if (!exec) {
		return -ENOMEM;
	}
	pthread_mutex_init(&exec->lock, NULL);
	pthread_cond_init(&exec->wake, NULL);
	/* Signals are the loop's: threads start with all of them blocked. */
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = 0;
	while (error == 0 && exec->thread_count < threads) {
		struct exec_thread *thread = &exec->threads[exec->thread_count];
		thread->exec = exec;
		error = pthread_create(&thread->id, NULL, exec_thread, thread);
		if (error == 0) {
			pthread_setname_np(thread->id, "fsdpd-exec");
			exec->thread_count++;
		}
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error != 0) {
		exec_stop(exec);
		return -error;
	}
	*ret_exec = exec;
	return 0;
}

void exec_free(struct exec *exec)
{
	if (!exec) {
		return;
	}
	assert(exec->executors == 0 && !exec->first);
	exec_stop(exec);
}

const struct pulse *exec_pulse(const struct exec *exec, unsigned thread)
{
	assert(thread < exec->thread_count);
	return &exec->threads[thread].pulse;
}

static void exec_submit(struct executor *executor, struct job *job)
{
	struct exec_queue *queue = (struct exec_queue *)executor;
	struct exec *exec = queue->exec;
	job->letter.next = NULL;
	pthread_mutex_lock(&exec->lock);
	if (queue->last) {
		queue->last->next = &job->letter;
	} else {
		queue->first = &job->letter;
		exec_append(exec, queue);
	}
	queue->last = &job->letter;
	pthread_cond_signal(&exec->wake);
	pthread_mutex_unlock(&exec->lock);
}

int exec_executor_new(struct exec *exec, struct mailbox *home, struct executor **ret_executor)
{
	struct exec_queue *queue = calloc(1, sizeof(*queue));
	if (!queue) {
		return -ENOMEM;
	}
	queue->executor.submit = exec_submit;
	queue->exec = exec;
	queue->home = home;
	pthread_mutex_lock(&exec->lock);
	exec->executors++;
	pthread_mutex_unlock(&exec->lock);
	*ret_executor = &queue->executor;
	return 0;
}

void exec_executor_free(struct executor *executor)
{
	if (!executor) {
		return;
	}
	struct exec_queue *queue = (struct exec_queue *)executor;
	pthread_mutex_lock(&queue->exec->lock);
	assert(!queue->first);
	queue->exec->executors--;
	pthread_mutex_unlock(&queue->exec->lock);
	free(queue);
}
