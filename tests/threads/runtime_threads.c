/*
 * Mailboxes, counted buffers, the thread pool and the log, used by several threads at once as the daemon uses them. A
 * plain program, meant for the thread sanitizer; without it, it still checks that nothing is lost, doubled or out of
 * order.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/runtime/buffer.h"
#include "daemon/runtime/exec.h"
#include "daemon/runtime/log.h"
#include "daemon/runtime/mailbox.h"

#define POSTERS 4
#define LETTERS 5000 /* of each poster */
#define JOBS 2000    /* of each submitter */
#define SUBMITTERS 2
#define BUFFER_BYTES 256

static int failures;

#define CHECK(condition)                                                                        \
	do {                                                                                    \
		if (!(condition)) {                                                             \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			__atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);                     \
		}                                                                               \
	} while (0)

static struct letter *wait_letter(struct mailbox *mailbox)
{
	for (;;) {
		struct letter *letter = mailbox_take(mailbox);
		if (letter) {
			return letter;
		}
		struct pollfd item = { .fd = mailbox_fd(mailbox), .events = POLLIN };
		while (poll(&item, 1, -1) < 0 && errno == EINTR) {
		}
	}
}

struct note {
	struct letter letter;
	int poster, number;
	struct buffer *buffer;
};

struct poster {
	struct mailbox *mailbox;
	struct buffer *buffer;
	int index;
};

static void *post_notes(void *argument)
{
	struct poster *poster = argument;
	for (int i = 0; i < LETTERS; i++) {
		struct note *note = malloc(sizeof(*note));
		*note = (struct note){ .poster = poster->index, .number = i, .buffer = buffer_ref(poster->buffer) };
		mailbox_post(poster->mailbox, &note->letter);
	}
	buffer_unref(poster->buffer);
	return NULL;
}

static void release_count(void *context)
{
	__atomic_add_fetch((int *)context, 1, __ATOMIC_RELAXED);
}

/* Every poster's letters arrive, in its order; the buffer that all of them share is released once, after the last. */
static void check_mailbox(void)
{
	struct mailbox *mailbox;
	struct buffer *buffer;
	static char bytes[BUFFER_BYTES];
	int released = 0;
	CHECK(mailbox_new(&mailbox) == 0);
	CHECK(buffer_new(bytes, sizeof(bytes), release_count, &released, &buffer) == 0);
	memset(buffer_data(buffer), 7, BUFFER_BYTES);
	pthread_t threads[POSTERS];
	struct poster posters[POSTERS];
	for (int p = 0; p < POSTERS; p++) {
		posters[p] = (struct poster){ mailbox, buffer_ref(buffer), p };
		pthread_create(&threads[p], NULL, post_notes, &posters[p]);
	}
	buffer_unref(buffer);
	int next[POSTERS] = { 0 };
	for (int i = 0; i < POSTERS * LETTERS; i++) {
		CHECK(__atomic_load_n(&released, __ATOMIC_RELAXED) == 0);
		struct note *note = (struct note *)wait_letter(mailbox);
		CHECK(note->number == next[note->poster]++);
		CHECK(((char *)buffer_data(note->buffer))[i % BUFFER_BYTES] == 7);
		buffer_unref(note->buffer);
		free(note);
	}
	for (int p = 0; p < POSTERS; p++) {
		pthread_join(threads[p], NULL);
	}
	CHECK(released == 1);
	CHECK(!mailbox_take(mailbox));
	mailbox_free(mailbox);
}

struct sum_job {
	struct job job;
	int input, output; /* plain: run and done must be ordered by the pool itself */
	int runs;
	pthread_t home;
	int *finished;
};

static void sum_run(struct job *job)
{
	struct sum_job *sum = (struct sum_job *)job;
	sum->output = sum->input * 2;
	sum->runs++;
	if (sum->input % 500 == 0) {
		log_event(LOG_LEVEL_INFO, "job", "input=%d", sum->input);
	}
}

static void sum_done(struct job *job)
{
	struct sum_job *sum = (struct sum_job *)job;
	CHECK(pthread_equal(sum->home, pthread_self()));
	CHECK(sum->output == sum->input * 2);
	++*sum->finished;
}

static void *submit_jobs(void *argument)
{
	struct exec *exec = argument;
	struct mailbox *home;
	struct executor *executor;
	struct sum_job *jobs = calloc(JOBS, sizeof(*jobs));
	int finished = 0;
	CHECK(mailbox_new(&home) == 0);
	CHECK(exec_executor_new(exec, home, &executor) == 0);
	/* Half of them at once, each of the others when one is done, as the engine does. */
	int submitted = 0;
	while (finished < JOBS) {
		while (submitted < JOBS && submitted - finished < JOBS / 2) {
			jobs[submitted] = (struct sum_job){ .job = { .run = sum_run, .done = sum_done },
							    .input = submitted,
							    .home = pthread_self(),
							    .finished = &finished };
			executor->submit(executor, &jobs[submitted].job);
			submitted++;
		}
		struct job *job = (struct job *)wait_letter(home);
		job->done(job);
	}
	for (int i = 0; i < JOBS; i++) {
		CHECK(jobs[i].runs == 1);
	}
	exec_executor_free(executor);
	mailbox_free(home);
	free(jobs);
	return NULL;
}

static void check_exec(void)
{
	struct exec *exec;
	CHECK(exec_new(3, &exec) == 0);
	log_set_identity("threads", 0);
	pthread_t threads[SUBMITTERS];
	for (int s = 0; s < SUBMITTERS; s++) {
		pthread_create(&threads[s], NULL, submit_jobs, exec);
	}
	log_set_level(LOG_LEVEL_NOTICE);
	for (int s = 0; s < SUBMITTERS; s++) {
		pthread_join(threads[s], NULL);
	}
	exec_free(exec);
}

int main(void)
{
	check_mailbox();
	check_exec();
	if (failures == 0) {
		printf("runtime_threads: ok\n");
	}
	return failures == 0 ? 0 : 1;
}
