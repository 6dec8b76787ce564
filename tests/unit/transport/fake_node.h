/*
 * Links over a transport that only writes down what it is asked for, and an owner that writes down what it is told. The
 * test plays the network: it hands in messages and connections one by one.
 */
#ifndef FSDPD_TESTS_FAKE_NODE_H
#define FSDPD_TESTS_FAKE_NODE_H

#include "daemon/transport/link.h"

#define FAKE_RECORDS_MAX 256

struct fake_out { /* one thing that was sent or answered */
	bool answer;
	uint32_t rank;                   /* not answer */
	transport_connection connection; /* answer */
	struct peer_message message;
	size_t payload_size;
};

struct fake_told { /* what the owner heard last of a kind, and how often */
	size_t count;
	uint32_t rank;
	uint64_t link, incarnation;
	int code;
	char text[PEER_TEXT_MAX + 1];
	enum peer_op op;
	size_t payload_size;
};

struct fake_node {
	struct transport transport; /* first */
	struct links *links;
	struct link_counters counters;
	struct fake_out out[FAKE_RECORDS_MAX];
	size_t out_count;
	transport_connection dropped[FAKE_RECORDS_MAX];
	size_t dropped_count;
	size_t reset_count;
	int send_code; /* what the transport's send gives */
	int verdict;   /* what judge gives */
	const char *verdict_text;
	size_t judged;
	struct fake_told up, down, inbound, refused, refusing, message;
};

/* Rank 0 of a world of 3 in cluster "a", incarnation 100; judge welcomes everybody. */
struct fake_node *fake_node_new(bool bulk);
void fake_node_free(struct fake_node *node);

/* A message as rank would stamp it for this node: incarnation 100 + rank, generation 7. */
struct peer_message fake_message(enum peer_op op, uint32_t rank, uint64_t link);
struct peer_message fake_hello(uint32_t rank, uint64_t link);

void fake_deliver(struct fake_node *node, transport_connection connection, const struct peer_message *message,
		  size_t payload_size /* 0: none */);
void fake_deliver_bytes(struct fake_node *node, transport_connection connection, const void *data, size_t size);
void fake_answer(struct fake_node *node, uint32_t rank, const struct peer_message *message);
void fake_connect(struct fake_node *node, uint32_t rank);
void fake_disconnect(struct fake_node *node, uint32_t rank);
void fake_close(struct fake_node *node, transport_connection connection);

/* Connects, and welcomes the HELLO: the link to rank is up, generation 7. */
void fake_bring_up(struct fake_node *node, uint32_t rank);
/* A connection of rank with this link number, welcomed. */
void fake_bring_in(struct fake_node *node, uint32_t rank, transport_connection connection, uint64_t link);

const struct fake_out *fake_last(const struct fake_node *node); /* what went out last */

#endif
