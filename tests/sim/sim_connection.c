/*
 * Connections of the simulated network: packets leave and arrive in order, payloads are let go of when they leave, and
 * a break loses what a break loses. Owns packets; who connects, and who is told of it, is in sim_transport.c. One
 * thread.
 */
#include "tests/sim/sim_connection.h"

#include <assert.h>
#include <string.h>

#include <xxhash.h>

#include "tests/sim/memory.h"

#define NET_CLOSED_LATE_US 400000u

/* ---- Packets ---- */

static void packet_release(struct net *net, struct packet *packet)
{
	if (packet->payload.buffer) {
		net->buffers--;
		struct buffer *buffer = packet->payload.buffer;
		packet->payload.buffer = NULL;
		buffer_unref(buffer);
	}
}

static void packet_free(struct net *net, struct packet *packet)
{
	packet_release(net, packet);
	buffer_unref(packet->copy);
	free(packet);
}

const void *packet_bytes(const struct packet *packet)
{
	return (const char *)buffer_data(packet->payload.buffer) + packet->payload.offset;
}

/* Its bytes are read now and its buffer is let go. */
static void packet_leave(struct connection *connection, struct packet *packet)
{
	struct net *net = connection->net;
	packet->gone = true;
	if (!packet->payload.buffer) {
		return;
	}
	int rc = buffer_new_heap(packet->payload.size, &packet->copy);
	assert(rc == 0);
	memcpy(buffer_data(packet->copy), packet_bytes(packet), packet->payload.size);
	if (XXH3_64bits(buffer_data(packet->copy), packet->payload.size) != packet->sum && net->config.watch.changed) {
		net->config.watch.changed(net->config.watch.context, connection->plane, connection->from,
					  connection->to, packet->header, packet->header_size);
	}
	packet_release(net, packet);
}

static void stream_pop(struct net *net, struct stream *stream)
{
	struct packet *packet = stream->head;
	stream->head = packet->next;
	if (!stream->head) {
		stream->tail = NULL;
	}
	if (stream->waiting == packet) {
		stream->waiting = packet->next;
	}
	stream->count--;
	packet_free(net, packet);
}

static void stream_clear(struct net *net, struct stream *stream)
{
	while (stream->head) {
		stream_pop(net, stream);
	}
}

/* Keeps the first `keep` packets that have left. */
static void stream_cut(struct net *net, struct stream *stream, size_t keep)
{
	struct packet **link = &stream->head;
	struct packet *last = NULL;
	size_t kept = 0;
	while (*link && kept < keep && (*link)->gone) {
		last = *link;
		link = &(*link)->next;
		kept++;
	}
	struct packet *rest = *link;
	*link = NULL;
	stream->tail = last;
	stream->waiting = NULL;
	stream->count = kept;
	while (rest) {
		struct packet *next = rest->next;
		packet_free(net, rest);
		rest = next;
	}
}

static size_t stream_gone(const struct stream *stream)
{
	size_t gone = 0;
	for (const struct packet *packet = stream->head; packet && packet->gone; packet = packet->next) {
		gone++;
	}
	return gone;
}

/* ---- Connections ---- */

struct endpoint *connection_receiver(const struct connection *connection)
{
	struct endpoint *endpoint = &connection->net->endpoints[connection->plane][connection->to];
	return endpoint->open && endpoint->life == connection->to_life ? endpoint : NULL;
}

struct endpoint *connection_sender(const struct connection *connection)
{
	struct endpoint *endpoint = &connection->net->endpoints[connection->plane][connection->from];
	return endpoint->open && endpoint->life == connection->from_life ? endpoint : NULL;
}

static void connection_free_if_over(struct connection *connection)
{
	if (!connection->noticed || connection->events > 0 || connection->out.head || connection->back.head) {
		return;
	}
	struct connection **link = &connection->net->endpoints[connection->plane][connection->to].connections;
	while (*link != connection) {
		link = &(*link)->next;
	}
	*link = connection->next;
	free(connection);
}

void connection_at(struct connection *connection, uint64_t at_us, sim_clock_run *run)
{
	connection->events++;
	sim_clock_at(connection->net->config.clock, at_us, run, connection, 0);
}

static uint64_t connection_clogged_until(const struct connection *connection, bool back)
{
	struct net *net = connection->net;
	return back ? net_link(net, connection->plane, connection->to, connection->from)->clogged_until_us
		    : net_link(net, connection->plane, connection->from, connection->to)->clogged_until_us;
}

static void connection_arm(struct connection *connection, bool back);

static void connection_on_leave(struct connection *connection, bool back)
{
	struct stream *stream = back ? &connection->back : &connection->out;
	uint64_t now = net_now(connection->net);
	connection->events--;
	stream->leave_armed = false;
	if (stream->waiting && !connection->severed && stream->waiting->leaves_us <= now &&
	    now >= connection_clogged_until(connection, back)) {
		packet_leave(connection, stream->waiting);
		stream->waiting = stream->waiting->next;
	}
	connection_arm(connection, back);
	connection_free_if_over(connection);
}

static void connection_hear(struct connection *connection, struct packet *packet)
{
	const struct net_watch *watch = &connection->net->config.watch;
	struct endpoint *receiver = connection_receiver(connection);
	if (!receiver || connection->dropped) {
		return;
	}
	connection->spoke = true;
	if (watch->arriving) {
		watch->arriving(watch->context, connection->plane, connection->from, connection->to, connection->id,
				packet->header, packet->header_size, packet->copy ? buffer_data(packet->copy) : NULL,
				packet->copy ? buffer_size(packet->copy) : 0, connection->severed);
	}
	receiver->events->message(receiver->context, connection->id, packet->header, packet->header_size, packet->copy);
	if (watch->arrived) {
		watch->arrived(watch->context, connection->plane, connection->from, connection->to, connection->id,
			       packet->header, packet->header_size);
	}
}

static void connection_hear_answer(struct connection *connection, struct packet *packet)
{
	const struct net_watch *watch = &connection->net->config.watch;
	struct endpoint *sender = connection_sender(connection);
	if (!sender || connection->severed || sender->links[connection->to].connection != connection) {
		return;
	}
	if (watch->answered) {
		watch->answered(watch->context, connection->plane, connection->to, connection->from, packet->header,
				packet->header_size);
	}
	sender->events->answered(sender->context, connection->to, packet->header, packet->header_size);
}

static void connection_on_arrive(struct connection *connection, bool back)
{
	struct stream *stream = back ? &connection->back : &connection->out;
	uint64_t now = net_now(connection->net);
	stream->arrive_armed = false;
	struct packet *packet = stream->head;
	if (packet && (packet->gone || !connection->severed) && packet->arrives_us <= now &&
	    now >= connection_clogged_until(connection, back)) {
		if (!packet->gone) {
			assert(packet == stream->waiting);
			packet_leave(connection, packet);
			stream->waiting = packet->next;
		}
		/* The receiver may do anything to the connection meanwhile, so the packet is taken out first. */
		stream->head = packet->next;
		if (!stream->head) {
			stream->tail = NULL;
		}
		stream->count--;
		packet->next = NULL;
		(back ? connection_hear_answer : connection_hear)(connection, packet);
		packet_free(connection->net, packet);
	}
	connection->events--;
	connection_arm(connection, back);
	connection_free_if_over(connection);
}

static void connection_on_leave_out(void *context, uint64_t unused)
{
	(void)unused;
	connection_on_leave(context, false);
}

static void connection_on_leave_back(void *context, uint64_t unused)
{
	(void)unused;
	connection_on_leave(context, true);
}

static void connection_on_arrive_out(void *context, uint64_t unused)
{
	(void)unused;
	connection_on_arrive(context, false);
}

static void connection_on_arrive_back(void *context, uint64_t unused)
{
	(void)unused;
	connection_on_arrive(context, true);
}

static void connection_arm(struct connection *connection, bool back)
{
	struct stream *stream = back ? &connection->back : &connection->out;
	uint64_t clogged = connection_clogged_until(connection, back);
	if (stream->waiting && !stream->leave_armed && !connection->severed) {
		stream->leave_armed = true;
		connection_at(connection, later(stream->waiting->leaves_us, clogged),
			      back ? connection_on_leave_back : connection_on_leave_out);
	}
	/* On a severed connection only what has left arrives. */
	if (stream->head && !stream->arrive_armed && (!connection->severed || stream->head->gone)) {
		stream->arrive_armed = true;
		connection_at(connection, later(stream->head->arrives_us, clogged),
			      back ? connection_on_arrive_back : connection_on_arrive_out);
	}
}

void connection_append(struct connection *connection, bool back, const void *header, size_t header_size,
		       struct transport_piece payload)
{
	struct net *net = connection->net;
	struct stream *stream = back ? &connection->back : &connection->out;
	struct packet *packet = memory_zeroed(sizeof(*packet) + header_size);
	memcpy(packet->header, header, header_size);
	packet->header_size = header_size;
	if (payload.buffer) {
		packet->payload = payload;
		buffer_ref(payload.buffer);
		net->buffers++;
		packet->sum = XXH3_64bits(packet_bytes(packet), payload.size);
	}
	uint64_t delay = dice_between(&net->dice, net->config.delay_min_us, net->config.delay_max_us);
	delay += net_link(net, connection->plane, back ? connection->to : connection->from,
			  back ? connection->from : connection->to)
			 ->extra_us;
	if (dice_chance(&net->dice, net->config.late_of_a_thousand)) {
		delay += dice_below(&net->dice, net->config.late_us + 1);
	}
	uint64_t now = net_now(net);
	packet->arrives_us = later(now + delay, stream->last_arrive_us);
	packet->leaves_us = later(now + dice_below(&net->dice, delay + 1), stream->last_leave_us);
	stream->last_arrive_us = packet->arrives_us;
	stream->last_leave_us = packet->leaves_us;
	if (stream->tail) {
		stream->tail->next = packet;
	} else {
		stream->head = packet;
	}
	stream->tail = packet;
	if (!stream->waiting) {
		stream->waiting = packet;
	}
	stream->count++;
	connection_arm(connection, back);
}

void connection_sever(struct connection *connection)
{
	struct net *net = connection->net;
	if (connection->severed) {
		return;
	}
	connection->severed = true;
	size_t gone = stream_gone(&connection->out);
	size_t keep = gone && dice_chance(&net->dice, 500) ? dice_between(&net->dice, 1, gone) : 0;
	/* What has not left stays until the sender notices, as it would in a socket's queue. */
	struct packet **link = &connection->out.head;
	for (size_t i = 0; i < gone; i++) {
		if (i < keep) {
			link = &(*link)->next;
			continue;
		}
		struct packet *lost = *link;
		*link = lost->next;
		connection->out.count--;
		packet_free(net, lost);
	}
	connection->out.tail = NULL;
	for (struct packet *packet = connection->out.head; packet; packet = packet->next) {
		connection->out.tail = packet;
	}
	stream_clear(net, &connection->back);
}

static void connection_on_closed(void *context, uint64_t unused)
{
	struct connection *connection = context;
	struct endpoint *receiver = connection_receiver(connection);
	(void)unused;
	/* What had left before the break and is kept is heard before the end. */
	if (connection->out.head && receiver) {
		sim_clock_at(connection->net->config.clock, net_now(connection->net) + NET_RETRY_MIN_US,
			     connection_on_closed, connection, 0);
		return;
	}
	connection->events--;
	if (receiver && connection->spoke) {
		receiver->events->closed(receiver->context, connection->id);
	}
	connection_free_if_over(connection);
}

void connection_end(struct connection *connection)
{
	struct net *net = connection->net;
	connection_sever(connection);
	if (connection->noticed) {
		return;
	}
	connection->noticed = true;
	stream_cut(net, &connection->out, stream_gone(&connection->out));
	connection_arm(connection, false);
	connection_at(connection, net_now(net) + dice_below(&net->dice, NET_CLOSED_LATE_US), connection_on_closed);
	struct endpoint *sender = &net->endpoints[connection->plane][connection->from];
	struct link_state *link = &sender->links[connection->to];
	if (link->connection == connection) {
		link->connection = NULL;
		link->epoch++;
	}
}

void connection_event_over(struct connection *connection)
{
	connection->events--;
	connection_free_if_over(connection);
}

void connection_clear(struct connection *connection)
{
	stream_clear(connection->net, &connection->out);
	stream_clear(connection->net, &connection->back);
}
