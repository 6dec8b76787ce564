/*
 * The main thread: signals, the control plane, the group, the local sockets, reports of the engine, finished jobs, and
 * the service manager, in one sd-event loop. Nothing in it blocks.
 */
#ifndef FSDPD_LOOP_H
#define FSDPD_LOOP_H

#include <stdbool.h>

#include "daemon/bulk.h"
#include "daemon/config.h"
#include "daemon/runtime/exec.h"
#include "daemon/sockets.h"

struct loop;

struct loop_config {
	const struct config *config;
	uint64_t incarnation;
	uint64_t first_model;
	struct sockets *sockets;
	struct exec *exec;
	struct bulk *bulk;       /* started */
	struct mailbox *reports; /* the bulk thread's */
};

/* Makes everything and listens; SIGTERM and SIGINT are blocked already. All of config is borrowed. 0 or a negative
 * code. */
int loop_new(const struct loop_config *config, struct loop **ret_loop);
/* false: a job of ours is still in exec, and nothing was freed. Takes NULL. */
bool loop_free(struct loop *loop);

/* Until a signal, or the deadline to join: drains, then returns the process's exit code. */
int loop_run(struct loop *loop);

#endif
