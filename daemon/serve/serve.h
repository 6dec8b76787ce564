/*
 * What this node's daemon says to others on the same machine: sessions with workers on the client socket, an operator's
 * questions and commands on the control socket. Runs in the loop; nothing here blocks or touches bulk data.
 */
#ifndef FSDPD_SERVE_SERVE_H
#define FSDPD_SERVE_SERVE_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "daemon/engine/engine.h"
#include "daemon/group/group.h"
#include "daemon/runtime/exec.h"
#include "daemon/transport/link.h"

struct serve;

struct serve_config {
	sd_event *event; /* borrowed, as everything below */
	struct group *group;
	struct executor *executor; /* its mailbox is the loop's */
	int client_fd, control_fd; /* listening (listener.h) */
	uint32_t rank, world_size;
	const char *cluster;
	uint64_t incarnation;
	uint64_t gather_bytes, gradient_bytes; /* of each model's pools; 0: chosen for each model */
	const char *const *endpoints;          /* [world_size]: control endpoints, for an operator */
	const struct link_counters *control_links, *bulk_links;
	const struct engine_counters *engine;
};

int serve_new(const struct serve_config *config, struct serve **ret_serve);
/* Ends every connection and detaches every worker. No seal may be in exec (serve_is_idle). Before the group is freed.
 * Takes NULL. */
void serve_free(struct serve *serve);

/* The daemon leaves: accepts no more workers, answers what waits and what comes with FSDP_E_STOPPED, detaches every
 * worker. The control socket goes on. */
void serve_stop(struct serve *serve);
bool serve_is_idle(const struct serve *serve); /* no job of ours is in exec */

/* As often as the group's. */
void serve_tick(struct serve *serve);

#endif
