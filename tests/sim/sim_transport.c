/*
 * The simulated network's endpoints: struct transport, links that come and go, nodes, faults. Owns the endpoints and,
 * through them, all connections; borrows the clock, and the nodes' events until net_close. It does not know what a
 * message says. One thread.
 */
#include "tests/sim/sim_transport.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tests/sim/memory.h"
#include "tests/sim/sim_connection.h"

#define NET_QUEUE_MAX 65536u /* messages on one link */

/* ---- Links come and go ---- */

static void endpoint_retry(struct endpoint *endpoint, uint32_t to);

static void endpoint_on_connect(void *context, uint64_t argument)
{
	struct endpoint *endpoint = context;
	struct net *net = endpoint->net;
	uint32_t to = (uint32_t)(argument % net->config.world_size);
	struct link_state *link = &endpoint->links[to];
	struct endpoint *peer = &net->endpoints[endpoint->plane][to];
	if (!endpoint->open || argument / net->config.world_size != link->epoch || link->connection) {
		return;
	}
	if (!peer->open || net_now(net) < link->refused_until_us) {
		endpoint_retry(endpoint, to);
		return;
	}
	struct connection *connection = memory_zeroed(sizeof(*connection));
	connection->net = net;
	connection->id = ++net->ids;
	connection->plane = endpoint->plane;
	connection->from = endpoint->rank;
	connection->to = to;
	connection->from_life = endpoint->life;
	connection->to_life = peer->life;
	connection->next = peer->connections;
	peer->connections = connection;
	link->connection = connection;
	if (net->config.watch.link) {
		net->config.watch.link(net->config.watch.context, endpoint->plane, endpoint->rank, to, true);
	}
	endpoint->events->connected(endpoint->context, to);
}

static void endpoint_retry(struct endpoint *endpoint, uint32_t to)
{
	struct net *net = endpoint->net;
	sim_clock_at(net->config.clock, net_now(net) + dice_between(&net->dice, NET_RETRY_MIN_US, NET_RETRY_MAX_US),
		     endpoint_on_connect, endpoint, endpoint->links[to].epoch * net->config.world_size + to);
}

static void connection_tell(struct connection *connection)
{
	struct net *net = connection->net;
	struct endpoint *sender = connection_sender(connection);
	if (!sender) {
		return;
	}
	if (net->config.watch.link) {
		net->config.watch.link(net->config.watch.context, connection->plane, connection->from, connection->to,
				       false);
	}
	sender->events->disconnected(sender->context, connection->to);
	endpoint_retry(sender, connection->to);
}

static void connection_on_notice(void *context, uint64_t unused)
{
	struct connection *connection = context;
	(void)unused;
	if (!connection->noticed) {
		connection_end(connection);
		connection_tell(connection);
	}
	connection_event_over(connection);
}

static void connection_on_told(void *context, uint64_t unused)
{
	struct connection *connection = context;
	(void)unused;
	connection_tell(connection);
	connection_event_over(connection);
}

/* ---- struct transport ---- */

static int endpoint_send(struct transport *transport, uint32_t rank, const void *header, size_t header_size,
			 struct transport_piece payload)
{
	struct endpoint *endpoint = (struct endpoint *)transport;
	struct net *net = endpoint->net;
	assert(rank < net->config.world_size && rank != endpoint->rank);
	struct link_state *link = &endpoint->links[rank];
	if (!endpoint->open || !link->connection) {
		return -ENOTCONN;
	}
	if (link->connection->out.count >= (link->limit ? link->limit : NET_QUEUE_MAX)) {
		if (net->config.watch.full) {
			net->config.watch.full(net->config.watch.context, endpoint->plane, endpoint->rank, rank);
		}
		return -EAGAIN;
	}
	if (net->config.watch.sent) {
		net->config.watch.sent(net->config.watch.context, endpoint->plane, endpoint->rank, rank,
				       link->connection->id, header, header_size, payload.buffer ? payload.size : 0);
	}
	connection_append(link->connection, false, header, header_size, payload);
	return 0;
}

/* The connection of that number that leads to this endpoint, or NULL. */
static struct connection *endpoint_find(const struct endpoint *endpoint, transport_connection id)
{
	struct connection *connection = endpoint->connections;
	while (connection && connection->id != id) {
		connection = connection->next;
	}
	return connection && connection->to_life == endpoint->life && !connection->dropped ? connection : NULL;
}

static int endpoint_answer(struct transport *transport, transport_connection id, const void *header, size_t header_size)
{
	struct endpoint *endpoint = (struct endpoint *)transport;
	struct connection *connection = endpoint->open ? endpoint_find(endpoint, id) : NULL;
	if (!connection || connection->severed) {
		return -ENOTCONN;
	}
	connection_append(connection, true, header, header_size, (struct transport_piece){ 0 });
	return 0;
}

static void endpoint_reset(struct transport *transport, uint32_t rank)
{
	struct endpoint *endpoint = (struct endpoint *)transport;
	assert(rank < endpoint->net->config.world_size && rank != endpoint->rank);
	struct connection *connection = endpoint->links[rank].connection;
	if (!connection) {
		return;
	}
	connection_end(connection);
	connection_at(connection, net_now(endpoint->net) + dice_below(&endpoint->net->dice, 2000), connection_on_told);
}

static void endpoint_drop(struct transport *transport, transport_connection id)
{
	struct endpoint *endpoint = (struct endpoint *)transport;
	struct connection *connection = endpoint_find(endpoint, id);
	if (!connection) {
		return;
	}
	connection->dropped = true;
	connection_sever(connection);
	connection_at(connection, net_now(endpoint->net) + dice_below(&endpoint->net->dice, 20000),
		      connection_on_notice);
}

/* ---- Nodes ---- */

struct net *net_new(const struct net_config *config)
{
	struct net *net = memory_zeroed(sizeof(*net));
	net->config = *config;
	net->dice.state = DICE_HASH(config->seed, 0x6e6574);
	for (enum plane plane = 0; plane < PLANES; plane++) {
		net->endpoints[plane] = memory_zeroed(config->world_size * sizeof(struct endpoint));
		for (uint32_t rank = 0; rank < config->world_size; rank++) {
			struct endpoint *endpoint = &net->endpoints[plane][rank];
			endpoint->transport = (struct transport){ .send = endpoint_send,
								  .answer = endpoint_answer,
								  .reset = endpoint_reset,
								  .drop = endpoint_drop };
			endpoint->net = net;
			endpoint->plane = plane;
			endpoint->rank = rank;
			endpoint->links = memory_zeroed(config->world_size * sizeof(struct link_state));
		}
	}
	return net;
}

void net_settle(struct net *net)
{
	for (enum plane plane = 0; plane < PLANES; plane++) {
		for (uint32_t rank = 0; rank < net->config.world_size; rank++) {
			struct connection *connection = net->endpoints[plane][rank].connections;
			for (; connection; connection = connection->next) {
				connection_clear(connection);
			}
		}
	}
}

void net_free(struct net *net)
{
	net_settle(net);
	for (enum plane plane = 0; plane < PLANES; plane++) {
		for (uint32_t rank = 0; rank < net->config.world_size; rank++) {
			struct endpoint *endpoint = &net->endpoints[plane][rank];
			assert(!endpoint->open);
			while (endpoint->connections) {
				struct connection *connection = endpoint->connections;
				endpoint->connections = connection->next;
				free(connection);
			}
			free(endpoint->links);
		}
		free(net->endpoints[plane]);
	}
	free(net);
}

struct transport *net_transport(struct net *net, enum plane plane, uint32_t rank)
{
	return &net->endpoints[plane][rank].transport;
}

void net_open(struct net *net, enum plane plane, uint32_t rank, const struct transport_events *events, void *context)
{
	struct endpoint *endpoint = &net->endpoints[plane][rank];
	assert(!endpoint->open);
	endpoint->open = true;
	endpoint->life++;
	endpoint->events = events;
	endpoint->context = context;
	for (uint32_t to = 0; to < net->config.world_size; to++) {
		if (to != rank) {
			endpoint->links[to].connection = NULL;
			endpoint->links[to].epoch++;
			endpoint_retry(endpoint, to);
		}
	}
}

void net_close(struct net *net, enum plane plane, uint32_t rank)
{
	struct endpoint *endpoint = &net->endpoints[plane][rank];
	if (!endpoint->open) {
		return;
	}
	endpoint->open = false;
	for (uint32_t to = 0; to < net->config.world_size; to++) {
		if (endpoint->links[to].connection) {
			connection_end(endpoint->links[to].connection);
		}
	}
	for (struct connection *connection = endpoint->connections; connection; connection = connection->next) {
		if (!connection->noticed) {
			connection_sever(connection);
			connection_at(connection, net_now(net) + dice_below(&net->dice, 300000), connection_on_notice);
		}
	}
}

/* ---- Faults ---- */

void net_clog(struct net *net, enum plane plane, uint32_t from, uint32_t to, uint64_t until_us)
{
	struct link_state *link = net_link(net, plane, from, to);
	link->clogged_until_us = later(link->clogged_until_us, until_us);
}

void net_slow(struct net *net, enum plane plane, uint32_t from, uint32_t to, uint64_t extra_us)
{
	net_link(net, plane, from, to)->extra_us = extra_us;
}

void net_limit(struct net *net, enum plane plane, uint32_t from, uint32_t to, unsigned messages)
{
	net_link(net, plane, from, to)->limit = messages;
}

void net_break(struct net *net, enum plane plane, uint32_t from, uint32_t to, uint64_t notice_us, uint64_t until_us)
{
	struct link_state *link = net_link(net, plane, from, to);
	link->refused_until_us = later(link->refused_until_us, until_us);
	if (link->connection) {
		connection_sever(link->connection);
		connection_at(link->connection, net_now(net) + dice_below(&net->dice, notice_us + 1),
			      connection_on_notice);
	}
}

bool net_holds(const struct net *net, enum plane plane, uint32_t rank, const void *memory, size_t size)
{
	const char *base = memory;
	for (uint32_t to = 0; to < net->config.world_size; to++) {
		const struct connection *connection = net->endpoints[plane][rank].links[to].connection;
		for (const struct packet *packet = connection ? connection->out.waiting : NULL; packet;
		     packet = packet->next) {
			const char *bytes = packet->payload.buffer ? packet_bytes(packet) : NULL;
			if (bytes && bytes < base + size && base < bytes + packet->payload.size) {
				return true;
			}
		}
	}
	return false;
}

uint64_t net_buffers(const struct net *net)
{
	return net->buffers;
}
