/*
 * A message of the transport as ZeroMQ frames: on a ROUTER [routing id] header [payload], on a DEALER header [payload].
 * Payloads are never copied on the way out (the frame holds a reference to the buffer), and on the way in only where
 * they are small and lie askew.
 */
#ifndef FSDPD_TRANSPORT_PARCEL_H
#define FSDPD_TRANSPORT_PARCEL_H

#include "daemon/runtime/buffer.h"
#include "daemon/transport/transport.h"
#include <stdbool.h>
#include <stdint.h>

#include <zmq.h>

#define PARCEL_ALIGNMENT 8 /* of every payload that comes in */

struct parcel {
	zmq_msg_t header_frame;
	const void *header; /* in header_frame; of size 0 where the message was not of this form */
	size_t header_size;
	struct buffer *payload; /* NULL: none */
	bool known;             /* its routing id is one that a ROUTER gives; true on a DEALER */
	uint32_t routing;       /* counts up with every connection, and wraps */
	int fd;                 /* of the connection that it came on, when it came; -1: not known */
};

/* Takes one message, whatever its form; never waits. 1: parcel holds it, until parcel_fini. 0: nothing there. -ENOMEM:
 * one was lost; other -errno. */
int parcel_receive(void *socket, bool router, struct parcel *parcel);
void parcel_fini(struct parcel *parcel);

/* Never waits. 0, -EAGAIN, -ENOMEM. */
int parcel_send(void *socket, const void *header, size_t header_size, struct transport_piece payload);
/* 0, -ENOTCONN, -EAGAIN, -ENOMEM. */
int parcel_answer(void *socket, uint32_t routing, const void *header, size_t header_size);

#endif
