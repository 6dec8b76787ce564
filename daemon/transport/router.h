/*
 * What comes in: the plane's bound ROUTER, and a table of the connections that said something. The table is of fixed
 * size; whoever is silent longest makes room, and is ended, so that its peer (if it is one) makes a new connection
 * instead of talking to nobody. Used by zmq.c only, in the plane's thread.
 */
#ifndef FSDPD_TRANSPORT_ROUTER_H
#define FSDPD_TRANSPORT_ROUTER_H

#include "daemon/transport/intake.h"
#include "daemon/transport/monitor.h"
#include "daemon/transport/transport.h"
#include "daemon/transport/watch.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROUTER_ENDPOINT_MAX 255
#define ROUTER_FDS_MAX 65536 /* descriptors above are not known to be gone */

struct router_connection;

struct router {
	void *socket;
	struct monitor monitor;
	struct intake intake;
	struct watch *watch;
	bool pending;  /* there may be something to read */
	uint16_t port; /* ours */
	char endpoint[ROUTER_ENDPOINT_MAX + 1];
	struct router_connection *connections;
	uint32_t capacity, bucket_count;
	uint32_t *buckets; /* by routing id: index of the first connection, plus one */
	uint64_t serial, clock;
	unsigned char gone[ROUTER_FDS_MAX / 8]; /* descriptors whose last connection broke */
};

struct router_config {
	void *zmq_context;
	struct watch *watch;
	const char *endpoint;
	int fd; /* listening, taken on success; -1: none */
	uint32_t world_size;
	size_t high_water_mark;
};

int router_init(struct router *router, const struct router_config *config); /* 0, -errno */
void router_fini(struct router *router);                                    /* takes zeroes */

int router_answer(struct router *router, transport_connection number, const void *header, size_t header_size);
void router_drop(struct router *router, transport_connection number);

bool router_is_pending(const struct router *router);
void router_process(struct router *router, const struct transport_events *events, void *context, size_t *budget);

/* Ends who sends what never ends. Gives when it wants to be called again; 0: not before something happens. */
uint64_t router_supervise(struct router *router, uint64_t now_ms);

size_t router_connection_count(const struct router *router); /* in the table; for tests */

#endif
