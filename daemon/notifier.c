/*
 * The service manager's ear. Owns a timer at half of what the watchdog allows. The loop feeds it, so the loop lives; it
 * does so only when every other thread did some work since the last time, or waits for some: a thread that hangs
 * starves the watchdog, and the manager restarts the daemon.
 */
#include "daemon/notifier.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <time.h>

#include "daemon/runtime/log.h"

#define NOTIFIER_STATUS_MAX 255

struct watched {
	const char *name;
	const struct pulse *pulse;
	uint64_t seen;
};

struct notifier {
	sd_event_source *timer;
	uint64_t period_us;
	struct watched threads[NOTIFIER_THREADS_MAX];
	size_t thread_count;
	char status[NOTIFIER_STATUS_MAX + 1];
};

static bool lives(struct watched *thread)
{
	uint64_t beats = atomic_load_explicit(&thread->pulse->beats, memory_order_relaxed);
	bool parked = atomic_load_explicit(&thread->pulse->parked, memory_order_relaxed);
	bool moved = beats != thread->seen;

	thread->seen = beats;
	return parked || moved;
}

static int handle_timer(sd_event_source *source, uint64_t usec, void *context)
{
	struct notifier *notifier = context;
	bool all = true;

	(void)usec;
	for (size_t i = 0; i < notifier->thread_count; i++) {
		if (lives(&notifier->threads[i]))
			continue;
		all = false;
		log_event(LOG_LEVEL_ERROR, "a thread makes no progress", "thread=%s index=%zu",
			  notifier->threads[i].name, i);
	}
	if (all)
		sd_notify(0, "WATCHDOG=1");
	return sd_event_source_set_time_relative(source, notifier->period_us);
}

int notifier_new(sd_event *event, struct notifier **ret_notifier)
{
	struct notifier *notifier = calloc(1, sizeof(*notifier));
	uint64_t usec;
	int code = 0;

	if (!notifier)
		return -ENOMEM;
	if (sd_watchdog_enabled(0, &usec) > 0) {
		notifier->period_us = usec / 2;
		code = sd_event_add_time_relative(event, &notifier->timer, CLOCK_MONOTONIC, notifier->period_us,
						  notifier->period_us / 20 + 1, handle_timer, notifier);
		if (code >= 0)
			code = sd_event_source_set_enabled(notifier->timer, SD_EVENT_ON);
	}
	if (code < 0) {
		notifier_free(notifier);
		return code;
	}
	*ret_notifier = notifier;
	return 0;
}

void notifier_free(struct notifier *notifier)
{
	if (!notifier)
		return;
	sd_event_source_disable_unref(notifier->timer);
	free(notifier);
}

void notifier_watch(struct notifier *notifier, const char *name, const struct pulse *pulse)
{
	assert(notifier->thread_count < NOTIFIER_THREADS_MAX);
	notifier->threads[notifier->thread_count++] = (struct watched){ .name = name, .pulse = pulse };
}

void notifier_ready(struct notifier *notifier)
{
	(void)notifier;
	sd_notify(0, "READY=1");
}

void notifier_status(struct notifier *notifier, const char *text)
{
	if (strncmp(notifier->status, text, NOTIFIER_STATUS_MAX) == 0)
		return;
	strncpy(notifier->status, text, NOTIFIER_STATUS_MAX);
	sd_notifyf(0, "STATUS=%s", notifier->status);
}

void notifier_stopping(struct notifier *notifier)
{
	(void)notifier;
	sd_notify(0, "STOPPING=1\nSTATUS=leaving");
}
