/*
 * What the two files of the simulated network share: connections with what is on its way on them, links, endpoints.
 * Private to sim_transport.c and sim_connection.c.
 */
#ifndef TESTS_SIM_SIM_CONNECTION_H
#define TESTS_SIM_SIM_CONNECTION_H

#include "tests/sim/sim_transport.h"
#include <assert.h>

#define NET_RETRY_MIN_US 5000u
#define NET_RETRY_MAX_US 60000u

struct packet {
	struct packet *next;
	uint64_t leaves_us, arrives_us;
	size_t header_size;
	struct transport_piece payload; /* until it leaves */
	uint64_t sum;
	struct buffer *copy; /* after that */
	bool gone;           /* it has left */
	unsigned char header[];
};

/* One direction of a connection. */
struct stream {
	struct packet *head, *tail, *waiting; /* waiting: the first that has not left */
	size_t count;
	uint64_t last_leave_us, last_arrive_us;
	bool leave_armed, arrive_armed;
};

struct connection {
	struct connection *next; /* of those that lead to its receiver */
	struct net *net;
	transport_connection id;
	enum plane plane;
	uint32_t from, to;
	uint64_t from_life, to_life;
	struct stream out, back;
	bool severed;    /* nothing that is sent from now on arrives */
	bool dropped;    /* by the receiver: nothing is heard on it any more */
	bool noticed;    /* the sender knows */
	bool spoke;      /* something was heard on it */
	unsigned events; /* on the clock that point here */
};

struct link_state {
	struct connection *connection; /* NULL: down */
	uint64_t epoch;                /* of the attempts to connect */
	uint64_t clogged_until_us, refused_until_us, extra_us;
	unsigned limit;
};

struct endpoint {
	struct transport transport; /* first */
	struct net *net;
	enum plane plane;
	uint32_t rank;
	uint64_t life; /* counts openings */
	bool open;
	const struct transport_events *events;
	void *context;
	struct link_state *links;       /* [world_size] */
	struct connection *connections; /* that lead here, of every life */
};

struct net {
	struct net_config config;
	struct dice dice;
	struct endpoint *endpoints[PLANES];
	transport_connection ids;
	uint64_t buffers;
};

static inline struct link_state *net_link(struct net *net, enum plane plane, uint32_t from, uint32_t to)
{
	assert(from < net->config.world_size && to < net->config.world_size && from != to);
	return &net->endpoints[plane][from].links[to];
}

static inline uint64_t net_now(const struct net *net)
{
	return sim_clock_now(net->config.clock);
}

static inline uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The endpoints of its lives, or NULL where they are gone. */
struct endpoint *connection_receiver(const struct connection *connection);
struct endpoint *connection_sender(const struct connection *connection);

const void *packet_bytes(const struct packet *packet); /* that has not left */
void connection_append(struct connection *connection, bool back, const void *header, size_t header_size,
		       struct transport_piece payload);
/* Nothing sent from now on arrives; of what has left, a random first part still does. */
void connection_sever(struct connection *connection);
/* The sender's side ends here, whether it is told or not. */
void connection_end(struct connection *connection);
void connection_at(struct connection *connection, uint64_t at_us, sim_clock_run *run); /* counts the event */
void connection_event_over(struct connection *connection); /* the last one frees a connection that is over */
void connection_clear(struct connection *connection);

#endif
