/*
 * Frames to messages and back. Runs in the plane's thread, but for the two free functions: ZeroMQ calls
 * release_reference from its I/O thread, and release_frame runs in whichever thread lets go of a payload last. It
 * judges form only; what a header says is link.c's.
 */
#include "daemon/transport/parcel.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PARCEL_SHARED_MAX 8192 /* of ZeroMQ's receive buffers: what is larger has memory of its own */
#define ROUTING_SIZE 5         /* what a ROUTER draws for peers that choose no identity: a zero and a number */

static void release_reference(void *data, void *buffer)
{
	(void)data;
	buffer_unref(buffer);
}

static void release_frame(void *frame)
{
	zmq_msg_close(frame);
	free(frame);
}

/* Takes what is in frame (it is empty afterwards). */
static int wrap_payload(zmq_msg_t *frame, struct buffer **ret_payload)
{
	size_t size = zmq_msg_size(frame);
	/* What shares a receive buffer with others would keep all of it, however little of it is meant; and only that
	 * lies askew. */
	if (size <= PARCEL_SHARED_MAX || (uintptr_t)zmq_msg_data(frame) % PARCEL_ALIGNMENT != 0) {
		int rc = buffer_new_heap(size, ret_payload);
		if (rc == 0)
			memcpy(buffer_data(*ret_payload), zmq_msg_data(frame), size);
		return rc;
	}
	zmq_msg_t *kept = malloc(sizeof(*kept));
	if (!kept)
		return -ENOMEM;
	zmq_msg_init(kept);
	zmq_msg_move(kept, frame);
	int rc = buffer_new(zmq_msg_data(kept), size, release_frame, kept, ret_payload);
	if (rc < 0)
		release_frame(kept);
	return rc;
}

static void read_routing(zmq_msg_t *frame, struct parcel *parcel)
{
	const unsigned char *id = zmq_msg_data(frame);
	parcel->known = zmq_msg_size(frame) == ROUTING_SIZE && id[0] == 0;
	if (parcel->known) {
		memcpy(&parcel->routing, id + 1, sizeof(parcel->routing));
		parcel->routing = be32toh(parcel->routing);
	}
}

/* ZeroMQ looks for commands first and may be interrupted there; half a message must not be left behind because of
 * it. */
static int receive_frame(void *socket, zmq_msg_t *frame)
{
	int size;
	do
		size = zmq_msg_recv(frame, socket, ZMQ_DONTWAIT);
	while (size < 0 && errno == EINTR);
	return size < 0 ? -errno : 0;
}

int parcel_receive(void *socket, bool router, struct parcel *parcel)
{
	*parcel = (struct parcel){ .known = !router, .fd = -1 };
	zmq_msg_init(&parcel->header_frame);
	zmq_msg_t frame;
	zmq_msg_init(&frame);

	int rc = 0;
	size_t frames = 0, header_at = router ? 1 : 0;
	for (bool more = true; more; frames++) {
		int received = receive_frame(socket, &frame);
		if (received < 0) {
			assert(frames == 0 || received != -EAGAIN); /* a multipart message arrives whole */
			zmq_msg_close(&frame);
			parcel_fini(parcel);
			return received == -EAGAIN ? 0 : received;
		}
		more = zmq_msg_more(&frame);
		if (router && frames == 0) {
			read_routing(&frame, parcel);
		} else if (frames == header_at) {
			parcel->fd = zmq_msg_get(&frame, ZMQ_SRCFD);
			zmq_msg_move(&parcel->header_frame, &frame);
		} else if (frames == header_at + 1) {
			rc = wrap_payload(&frame, &parcel->payload);
		} /* the rest of something that is not ours is taken and forgotten */
	}
	zmq_msg_close(&frame);
	if (rc < 0) {
		parcel_fini(parcel);
		return rc;
	}
	parcel->header = zmq_msg_data(&parcel->header_frame);
	if (frames == header_at + 1 || frames == header_at + 2) {
		parcel->header_size = zmq_msg_size(&parcel->header_frame);
	} else {
		buffer_unref(parcel->payload);
		parcel->payload = NULL;
	}
	return 1;
}

void parcel_fini(struct parcel *parcel)
{
	zmq_msg_close(&parcel->header_frame);
	buffer_unref(parcel->payload);
	parcel->payload = NULL;
}

static int send_copy(void *socket, const void *data, size_t size, int flags)
{
	int sent;
	do
		sent = zmq_send(socket, data, size, ZMQ_DONTWAIT | flags);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

static int send_frame(void *socket, zmq_msg_t *frame)
{
	int sent;
	do
		sent = zmq_msg_send(frame, socket, ZMQ_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

int parcel_send(void *socket, const void *header, size_t header_size, struct transport_piece payload)
{
	if (!payload.buffer)
		return send_copy(socket, header, header_size, 0);

	assert(payload.offset <= buffer_size(payload.buffer) &&
	       payload.size <= buffer_size(payload.buffer) - payload.offset);
	zmq_msg_t frame;
	if (zmq_msg_init_data(&frame, (char *)buffer_data(payload.buffer) + payload.offset, payload.size,
			      release_reference, buffer_ref(payload.buffer)) != 0) {
		buffer_unref(payload.buffer);
		return -ENOMEM;
	}
	int rc = send_copy(socket, header, header_size, ZMQ_SNDMORE);
	/* A queue that took the header takes the payload, unless its connection broke in between: then it let go of
	 * both. */
	if (rc == 0)
		rc = send_frame(socket, &frame);
	if (rc < 0)
		zmq_msg_close(&frame);
	return rc;
}

int parcel_answer(void *socket, uint32_t routing, const void *header, size_t header_size)
{
	unsigned char id[ROUTING_SIZE] = { 0 };
	routing = htobe32(routing);
	memcpy(id + 1, &routing, sizeof(routing));
	int rc = send_copy(socket, id, sizeof(id), ZMQ_SNDMORE);
	if (rc == 0)
		rc = send_copy(socket, header, header_size, 0);
	return rc == -EHOSTUNREACH ? -ENOTCONN : rc;
}
