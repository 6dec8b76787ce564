/*
 * What the service manager hears: READY, STATUS, STOPPING, and WATCHDOG while every thread lives. Without one, all of
 * it does nothing. The loop owns it.
 */
#ifndef FSDPD_NOTIFIER_H
#define FSDPD_NOTIFIER_H

#include <systemd/sd-event.h>

#include "daemon/runtime/pulse.h"

#define NOTIFIER_THREADS_MAX 257 /* the engine's, and as many as [threads] exec may be */

struct notifier;

int notifier_new(sd_event *event, struct notifier **ret_notifier); /* 0, -ENOMEM */
void notifier_free(struct notifier *notifier);                     /* takes NULL */

/* One more thread that must live for the watchdog to be fed. Both are borrowed. */
void notifier_watch(struct notifier *notifier, const char *name, const struct pulse *pulse);

void notifier_ready(struct notifier *notifier);
void notifier_status(struct notifier *notifier, const char *text); /* said when it is another one than the last */
void notifier_stopping(struct notifier *notifier);

#endif
