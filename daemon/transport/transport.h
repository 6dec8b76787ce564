/*
 * The transport: one plane (control or bulk) of one node. It moves messages of a header and at most one payload to
 * peers, and tells of links that come and go. It knows ranks and bytes, nothing of models. Two implementations: ZeroMQ
 * (zmq.h) and the simulated cluster's (tests/sim). Everything here happens in the one thread that owns the plane.
 *
 * What comes in arrives on connections (opened by peers), what goes out leaves on links (one a peer, opened by us). The
 * two directions of a pair are independent: either can break and be made anew on its own. Nothing here is authenticated
 * or ordered across a break: link.h makes sessions out of it.
 */
#ifndef FSDPD_TRANSPORT_TRANSPORT_H
#define FSDPD_TRANSPORT_TRANSPORT_H

#include "daemon/runtime/buffer.h"
#include <stddef.h>
#include <stdint.h>

/* A connection that a peer opened to us; never reused for another while this plane lives. */
typedef uint64_t transport_connection;

struct transport_piece { /* a range of a counted buffer */
	struct buffer *buffer; /* NULL: no payload */
	size_t offset;
	size_t size;
};

struct transport {
	/* Sends header (copied) and payload (a reference is taken and held until the bytes are no longer needed) on the
	 * link to rank. Never blocks. 0; -ENOTCONN: the link is not up, nothing was taken; -EAGAIN: the queue is full,
	 * try again later (queues hold more than what credits allow, so that this means a peer that does not read). A
	 * message that was accepted may still be lost when the link breaks; in one life of a link nothing is lost,
	 * doubled or reordered. */
	int (*send)(struct transport *transport, uint32_t rank, const void *header, size_t header_size,
		    struct transport_piece payload);

	/* Sends a header back on a connection that a message came from. Best effort: 0 or -ENOTCONN. */
	int (*answer)(struct transport *transport, transport_connection connection, const void *header,
		      size_t header_size);

	/* Breaks the link to rank and makes it anew (with back-off): drops what is queued and lets go of its payloads.
	 * The disconnected event follows if it was up. */
	void (*reset)(struct transport *transport, uint32_t rank);

	/* Ends a connection that misbehaved. Nothing comes from it any more; its peer may open another. */
	void (*drop)(struct transport *transport, transport_connection connection);
};

/* What the transport tells. Each is called from the owner's thread, never from inside a call above. */
struct transport_events {
	/* The link to rank is made: what is sent from now on travels on it. Told again after every break. */
	void (*connected)(void *context, uint32_t rank);
	void (*disconnected)(void *context, uint32_t rank);
	/* A message came in on a connection. header is borrowed for the call; payload is NULL or a counted buffer,
	 * borrowed (take a reference to keep it). */
	void (*message)(void *context, transport_connection connection, const void *header, size_t header_size,
			struct buffer *payload);
	/* An answer came back on our link to rank. */
	void (*answered)(void *context, uint32_t rank, const void *header, size_t header_size);
	/* The connection is gone (may come late, or, for one that never said anything, not at all). */
	void (*closed)(void *context, transport_connection connection);
};

#endif
