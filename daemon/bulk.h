/*
 * The bulk plane's thread: it owns the engine, the plane's sockets and their waiting. The loop gives it commands and
 * gets reports.
 */
#ifndef FSDPD_BULK_H
#define FSDPD_BULK_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/config.h"
#include "daemon/engine/engine.h"
#include "daemon/runtime/exec.h"
#include "daemon/runtime/mailbox.h"
#include "daemon/runtime/pulse.h"
#include "daemon/transport/link.h"

#define BULK_STOP_MS 5000u /* for jobs and buffers to come back */

struct bulk;

struct bulk_config {
	const struct config *config;
	uint64_t incarnation;
	int fd;                  /* an inherited listening socket, or -1; taken on success */
	struct exec *exec;       /* borrowed, as the mailbox */
	struct mailbox *reports; /* struct report */
};

/* Binds the plane's socket; no thread runs yet. 0, -EADDRINUSE, -ENOMEM, ... */
int bulk_new(const struct bulk_config *config, struct bulk **ret_bulk);
int bulk_start(struct bulk *bulk);                             /* 0, -EAGAIN */
void bulk_command(struct bulk *bulk, struct command *command); /* gives it away; any thread */

/* Asks the thread to let everything go and end; takes BULK_STOP_MS at most. bulk_fd is readable when it has ended. */
void bulk_stop(struct bulk *bulk);
int bulk_fd(const struct bulk *bulk);

/* Stops, joins, frees. false: jobs or buffers did not come back in time, so that memory which other threads may still
 * use was not freed: the process must end without touching it. Takes NULL. */
bool bulk_free(struct bulk *bulk);

const struct pulse *bulk_pulse(const struct bulk *bulk);
const struct link_counters *bulk_links(const struct bulk *bulk);
const struct engine_counters *bulk_engine(const struct bulk *bulk);

#endif
