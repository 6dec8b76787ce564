/*
 * The simulated network: two planes, W nodes, and an implementation of struct transport for every plane of every node,
 * under a virtual clock and a seed. In one life of a connection nothing is lost, doubled or reordered; a break loses
 * what had not left, and of what had left everything but a random first part, which may still arrive when the next
 * connection already works.
 *
 * A payload is read from its buffer when it leaves (some time between send and arrival), so that memory that is changed
 * too early corrupts it; besides, its hash is taken at send and compared then. One thread.
 */
#ifndef TESTS_SIM_SIM_TRANSPORT_H
#define TESTS_SIM_SIM_TRANSPORT_H

#include "daemon/transport/transport.h"
#include "tests/sim/dice.h"
#include "tests/sim/sim_clock.h"

enum plane { PLANE_CONTROL, PLANE_BULK, PLANES };

struct net;

/* What an observer sees; every entry may be NULL. connection names one life of a link, payload is NULL or the bytes. */
struct net_watch {
	void (*sent)(void *context, enum plane plane, uint32_t from, uint32_t to, transport_connection connection,
		     const void *header, size_t header_size, size_t payload_size);
	/* before and after the receiver has heard it */
	void (*arriving)(void *context, enum plane plane, uint32_t from, uint32_t to, transport_connection connection,
			 const void *header, size_t header_size, const void *payload, size_t payload_size, bool broken);
	void (*arrived)(void *context, enum plane plane, uint32_t from, uint32_t to, transport_connection connection,
			const void *header, size_t header_size);
	void (*answered)(void *context, enum plane plane, uint32_t from, uint32_t to, const void *header,
			 size_t header_size);
	void (*full)(void *context, enum plane plane, uint32_t from, uint32_t to);
	/* Memory was changed while a buffer into it was on its way. */
	void (*changed)(void *context, enum plane plane, uint32_t from, uint32_t to, const void *header,
			size_t header_size);
	void (*link)(void *context, enum plane plane, uint32_t from, uint32_t to, bool up);
	void *context;
};

struct net_config {
	uint32_t world_size;
	uint64_t seed;
	uint64_t delay_min_us, delay_max_us; /* of a message */
	uint64_t late_of_a_thousand;         /* so many messages take up to late_us besides, and what follows waits */
	uint64_t late_us;
	struct sim_clock *clock; /* borrowed */
	struct net_watch watch;
};

struct net *net_new(const struct net_config *config);
void net_free(struct net *net); /* every node must be closed */

/* The node's transport; there from the beginning, its address is constant. Sends fail until it is opened. */
struct transport *net_transport(struct net *net, enum plane plane, uint32_t rank);
void net_open(struct net *net, enum plane plane, uint32_t rank, const struct transport_events *events, void *context);
/* The process is gone: nothing is told to it any more, its queues are let go of, its peers see their links break. */
void net_close(struct net *net, enum plane plane, uint32_t rank);

/* Faults of one direction of one pair. Times are virtual. */
void net_clog(struct net *net, enum plane plane, uint32_t from, uint32_t to, uint64_t until_us);  /* stands still */
void net_slow(struct net *net, enum plane plane, uint32_t from, uint32_t to, uint64_t extra_us);  /* 0: as before */
void net_limit(struct net *net, enum plane plane, uint32_t from, uint32_t to, unsigned messages); /* 0: as before */
/* Breaks it; both sides notice within notice_us; it cannot be made anew before until_us. */
void net_break(struct net *net, enum plane plane, uint32_t from, uint32_t to, uint64_t notice_us, uint64_t until_us);

bool net_holds(const struct net *net, enum plane plane, uint32_t rank, const void *memory, size_t size);
uint64_t net_buffers(const struct net *net); /* payloads that are held and have not left */
void net_settle(struct net *net);            /* after every node was closed: forgets what is on its way */

#endif
