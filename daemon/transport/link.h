/*
 * Sessions over one plane of the transport. Every link begins with HELLO (who I am, which of my links this is), which
 * the other side answers with WELCOME or REFUSE on the same connection; only then does anything else travel, and only
 * on a connection that was welcomed is anything else heard. Stamps every outgoing header with protocol, cluster,
 * generation, incarnation, source and link, and checks them on every incoming one; what does not fit is dropped and
 * counted. Repeats HELLO on every tick until it is answered. Pure: no clock, no socket. Both planes use it, each in its
 * own thread.
 */
#ifndef FSDPD_TRANSPORT_LINK_H
#define FSDPD_TRANSPORT_LINK_H

#include "daemon/transport/transport.h"
#include "proto/peer_message.h"
#include <stdatomic.h>
#include <stdbool.h>

struct links;

/* Written by the plane's thread, read by any. */
struct link_counters {
	_Atomic uint64_t malformed;        /* frames that could not be read: their connections were dropped */
	_Atomic uint64_t before_hello;     /* messages on connections that were not welcomed */
	_Atomic uint64_t refused;          /* HELLOs that were refused */
	_Atomic uint64_t stale_link;       /* of an older link */
	_Atomic uint64_t stale_generation; /* of another generation */
	_Atomic uint64_t messages_in, messages_out, bytes_in, bytes_out; /* bytes: headers and payloads */
};

struct links_owner { /* callbacks; context is links_config.context */
	/* A HELLO that is well-formed, of our cluster and world size, from a rank that is not ours. Return 0 to welcome
	 * it, a negative code with a reason in text (PEER_TEXT_MAX + 1 bytes) to refuse it, or 1 to leave it unanswered
	 * for now (it will be repeated). */
	int (*judge)(void *context, const struct peer_message *hello, char *text);
	/* Our link to rank was welcomed by `incarnation`: sends reach it from here. link counts up with every
	 * connection that the transport makes; a HELLO repeated on one connection repeats its number and is only
	 * answered again. */
	void (*up)(void *context, uint32_t rank, uint64_t link, uint64_t incarnation);
	void (*down)(void *context, uint32_t rank);
	/* A connection from rank was welcomed: what came from it on older links and was not heard will never come. */
	void (*inbound)(void *context, uint32_t rank, uint64_t link, uint64_t incarnation);
	/* Our HELLO was refused by rank: say why, once. It is tried again. */
	void (*refused)(void *context, uint32_t rank, int code, const char *text);
	/* We refused a HELLO (judge, another cluster, another world size, our own rank): say why, once a kind and
	 * rank. */
	void (*refusing)(void *context, const struct peer_message *hello, int code, const char *text);
	/* A message from rank, of the present link and generation, payload matching message->length. Both borrowed. */
	void (*message)(void *context, uint32_t rank, const struct peer_message *message, struct buffer *payload);
};

struct links_config {
	uint32_t rank, world_size;
	const char *cluster; /* copied */
	uint64_t incarnation;
	/* which ops are heard: control ops on the control plane, bulk ops on the bulk plane, no payload where none
	 * belongs */
	bool bulk;
	struct transport *transport; /* borrowed */
	const struct links_owner *owner;
	void *context;
	struct link_counters *counters; /* borrowed */
};

int links_new(const struct links_config *config, struct links **ret_links);
void links_free(struct links *links);

/* The events to give to the transport, with the links as context. */
const struct transport_events *links_events(void);

void links_tick(struct links *links); /* every heartbeat interval: repeats what was not answered */

/* 0 while the group is not formed: then only HELLO and HEARTBEAT pass. */
void links_set_generation(struct links *links, uint64_t generation);
/* Forget the incarnation of rank: its connections are not heard any more until it says HELLO and is judged again. */
void links_forget(struct links *links, uint32_t rank);

/* Stamps and sends. 0, -ENOTCONN, -EAGAIN, -ENOMEM. Sending to oneself is a mistake (assert). */
int links_send(struct links *links, uint32_t rank, struct peer_message *message, struct transport_piece payload);
bool links_is_up(const struct links *links, uint32_t rank);      /* outgoing */
bool links_is_welcomed(const struct links *links, uint32_t rank); /* incoming */
void links_reset(struct links *links, uint32_t rank);             /* breaks our link to rank; down follows */

#endif
