/*
 * The cases. Every message is a number and, mostly, a payload whose bytes follow from the number, so that a receiver
 * can tell by itself what is missing, doubled, out of order or damaged.
 */
#include "tests/conformance/transport_conformance.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE_MAX 16
#define FLOOD_MAX 100000 /* more than any queue and any socket buffers hold */

struct node {
	struct transport *transport;
	int number;
	bool up;
	size_t connected, disconnected, messages, answers;
	uint32_t next;    /* the number that the next message should have */
	size_t unordered; /* messages that had another */
	size_t damaged;   /* payloads that were not what their number says */
	size_t last_size; /* of the last payload */
	uint32_t last_answer;
	transport_connection last_connection;
	bool answers_back; /* everything that comes in */
	bool drops;        /* the connection of everything that comes in */
};

struct run {
	const struct conformance_fixture *fixture;
	void *pair;
	struct node nodes[2];
	_Atomic size_t released; /* payloads; counted in whatever thread lets go */
};

static const char *failed(const char *condition, int line)
{
	static char text[256];
	snprintf(text, sizeof(text), "line %d: not so: %s", line, condition);
	return text;
}

#define CHECK(condition)                                     \
	do {                                                 \
		if (!(condition))                            \
			return failed(#condition, __LINE__); \
	} while (0)

/* Lets both nodes (or those of the mask) run until it is so. */
#define UNTIL_OF(mask, condition)                                    \
	do {                                                         \
		while (!(condition))                                 \
			if (!run.fixture->step(run.pair, mask))      \
				return failed(#condition, __LINE__); \
	} while (0)
#define UNTIL(condition) UNTIL_OF(3, condition)

static unsigned char byte_of(uint32_t number, size_t at)
{
	return (unsigned char)(number * 31 + at * 7 + (at >> 8));
}

static void on_connected(void *context, uint32_t rank)
{
	struct node *node = context;
	(void)rank;
	node->connected++;
	node->up = true;
}

static void on_disconnected(void *context, uint32_t rank)
{
	struct node *node = context;
	(void)rank;
	node->disconnected++;
	node->up = false;
}

static void on_message(void *context, transport_connection connection, const void *header, size_t header_size,
		       struct buffer *payload)
{
	struct node *node = context;
	uint32_t number = UINT32_MAX;
	if (header_size == sizeof(number))
		memcpy(&number, header, sizeof(number));
	node->messages++;
	node->unordered += number != node->next;
	node->next = number + 1;
	node->last_connection = connection;
	node->last_size = payload ? buffer_size(payload) : 0;
	const unsigned char *bytes = payload ? buffer_data(payload) : NULL;
	for (size_t i = 0; i < node->last_size; i++)
		if (bytes[i] != byte_of(number, i)) {
			node->damaged++;
			break;
		}
	if (node->answers_back)
		node->transport->answer(node->transport, connection, header, header_size);
	if (node->drops)
		node->transport->drop(node->transport, connection);
}

static void on_answered(void *context, uint32_t rank, const void *header, size_t header_size)
{
	struct node *node = context;
	(void)rank;
	node->answers++;
	if (header_size == sizeof(node->last_answer))
		memcpy(&node->last_answer, header, sizeof(node->last_answer));
}

static void on_closed(void *context, transport_connection connection)
{
	(void)context;
	(void)connection;
}

static const struct transport_events EVENTS = { on_connected, on_disconnected, on_message, on_answered, on_closed };

static bool start(struct run *run, const struct conformance_fixture *fixture)
{
	*run = (struct run){ .fixture = fixture };
	void *const contexts[2] = { &run->nodes[0], &run->nodes[1] };
	run->pair = fixture->pair_new(&EVENTS, contexts, QUEUE_MAX);
	for (int i = 0; run->pair && i < 2; i++) {
		run->nodes[i].number = i;
		run->nodes[i].transport = fixture->transport(run->pair, i);
	}
	return run->pair != NULL;
}

static void finish(struct run *run)
{
	run->fixture->pair_free(run->pair);
}

static int send_number(struct node *node, uint32_t number, struct transport_piece payload)
{
	return node->transport->send(node->transport, (uint32_t)(1 - node->number), &number, sizeof(number), payload);
}

struct counted {
	struct run *run;
	unsigned char bytes[];
};

static void release_counted(void *context)
{
	struct counted *counted = context;
	atomic_fetch_add(&counted->run->released, 1);
	free(counted);
}

/* Sends size bytes that follow from number, of which the test itself keeps no reference. */
static int send_bytes(struct run *run, int from, uint32_t number, size_t size)
{
	struct counted *counted = malloc(sizeof(*counted) + size);
	struct buffer *buffer;
	if (!counted || buffer_new(counted->bytes, size, release_counted, counted, &buffer) < 0)
		return -ENOMEM;
	counted->run = run;
	for (size_t i = 0; i < size; i++)
		counted->bytes[i] = byte_of(number, i);
	int rc = send_number(&run->nodes[from], number, (struct transport_piece){ buffer, 0, size });
	buffer_unref(buffer);
	return rc;
}

/* Until the queue is full; how many were taken. The peer does not run meanwhile. */
static uint32_t flood(struct run *run, size_t size, int *ret_code)
{
	uint32_t taken = 0;
	int rc = 0;
	while (rc == 0 && taken < FLOOD_MAX) {
		rc = send_bytes(run, 0, taken, size);
		taken += rc == 0;
	}
	*ret_code = rc;
	return taken;
}

const char *conformance_both_links_come_up(const struct conformance_fixture *fixture)
{
	struct run run;
	CHECK(start(&run, fixture));
	UNTIL(run.nodes[0].up && run.nodes[1].up);
	CHECK(run.nodes[0].connected == 1 && run.nodes[1].connected == 1);
	CHECK(run.nodes[0].disconnected == 0);
	finish(&run);
	return NULL;
}

const char *conformance_messages_arrive_in_order_and_whole(const struct conformance_fixture *fixture)
{
	struct run run;
	CHECK(start(&run, fixture));
	UNTIL(run.nodes[0].up && run.nodes[1].up);
	/* both ways at once, of every size about those where implementations change their ways */
	for (uint32_t number = 0; number < 600; number++) {
		size_t size = number % 3 == 0 ? number : number * 37;
		for (int from = 0; from < 2; from++) {
			int rc;
			while ((rc = send_bytes(&run, from, number, size)) == -EAGAIN)
				CHECK(fixture->step(run.pair, 3));
			CHECK(rc == 0);
		}
	}
	UNTIL(run.nodes[0].messages == 600 && run.nodes[1].messages == 600);
	CHECK(run.nodes[0].unordered == 0 && run.nodes[1].unordered == 0);
	CHECK(run.nodes[0].damaged == 0 && run.nodes[1].damaged == 0);
	CHECK(run.nodes[0].connected == 1 && run.nodes[0].disconnected == 0);
	finish(&run);
	return NULL;
}

const char *conformance_a_payload_of_1_mib_arrives_intact(const struct conformance_fixture *fixture)
{
	struct run run;
	CHECK(start(&run, fixture));
	UNTIL(run.nodes[0].up);
	for (uint32_t number = 0; number < 4; number++)
		CHECK(send_bytes(&run, 0, number, 1u << 20) == 0);
	UNTIL(run.nodes[1].messages == 4);
	CHECK(run.nodes[1].last_size == 1u << 20);
	CHECK(run.nodes[1].damaged == 0 && run.nodes[1].unordered == 0);
	finish(&run);
	return NULL;
}

const char *conformance_a_piece_of_a_buffer_arrives(const struct conformance_fixture *fixture)
{
	struct run run;
	struct buffer *buffer;
	CHECK(start(&run, fixture));
	UNTIL(run.nodes[0].up);
	CHECK(buffer_new_heap(1000, &buffer) == 0);
	memset(buffer_data(buffer), 0xee, 1000);
	for (size_t i = 0; i < 100; i++)
		((unsigned char *)buffer_data(buffer))[333 + i] = byte_of(0, i);
	CHECK(send_number(&run.nodes[0], 0, (struct transport_piece){ buffer, 333, 100 }) == 0);
	UNTIL(run.nodes[1].messages == 1);
	CHECK(run.nodes[1].last_size == 100 && run.nodes[1].damaged == 0);
	CHECK(send_number(&run.nodes[0], 1, (struct transport_piece){ 0 }) == 0);
	UNTIL(run.nodes[1].messages == 2);
	CHECK(run.nodes[1].last_size == 0);
	finish(&run);
	buffer_unref(buffer);
	return NULL;
}

const char *conformance_an_answer_comes_back(const struct conformance_fixture *fixture)
{
	struct run run;
	CHECK(start(&run, fixture));
	run.nodes[1].answers_back = true;
	UNTIL(run.nodes[0].up);
	CHECK(send_number(&run.nodes[0], 41, (struct transport_piece){ 0 }) == 0);
	UNTIL(run.nodes[0].answers == 1);
	CHECK(run.nodes[0].last_answer == 41);
	CHECK(run.nodes[1].answers == 0 && run.nodes[0].messages == 0);
	finish(&run);
	return NULL;
}

const char *conformance_a_link_that_is_not_up_takes_nothing(const struct conformance_fixture *fixture)
{
	struct run run;
	CHECK(start(&run, fixture));
	/* not told yet that it is connected, whatever happened meanwhile */
	CHECK(send_bytes(&run, 0, 0, 100) == -ENOTCONN);
	CHECK(run.released == 1);
	UNTIL(run.nodes[0].up);
	run.nodes[0].transport->reset(run.nodes[0].transport, 1);
	CHECK(run.nodes[0].disconnected == 0); /* never from inside a call */
	CHECK(send_bytes(&run, 0, 0, 100) == -ENOTCONN);
	CHECK(run.released == 2);
	finish(&run);
	CHECK(run.released == 2);
	return NULL;
}

const char *conformance_a_broken_link_is_made_anew(const struct conformance_fixture *fixture)
{
	struct run run;
	CHECK(start(&run, fixture));
	UNTIL(run.nodes[0].up);
	CHECK(send_number(&run.nodes[0], 0, (struct transport_piece){ 0 }) == 0);
	UNTIL(run.nodes[1].messages == 1);
	transport_connection before = run.nodes[1].last_connection;
	for (size_t times = 1; times <= 3; times++) {
		fixture->break_link(run.pair, 0);
		UNTIL(run.nodes[0].disconnected == times);
		UNTIL(run.nodes[0].connected == times + 1);
		CHECK(run.nodes[0].disconnected == times);
		CHECK(send_bytes(&run, 0, (uint32_t)times, 1000) == 0);
		UNTIL(run.nodes[1].messages == times + 1);
		CHECK(run.nodes[1].last_connection != before);
		before = run.nodes[1].last_connection;
	}
	CHECK(run.nodes[1].unordered == 0 && run.nodes[1].damaged == 0);
	finish(&run);
	return NULL;
}

const char *conformance_a_reset_link_is_made_anew(const struct conformance_fixture *fixture)
{
	struct run run;
	CHECK(start(&run, fixture));
	struct transport *transport = run.nodes[0].transport;
	UNTIL(run.nodes[0].up);
	for (size_t times = 1; times <= 3; times++) {
		transport->reset(transport, 1);
		transport->reset(transport, 1); /* once more is the same */
		UNTIL(run.nodes[0].connected == times + 1);
		CHECK(run.nodes[0].disconnected == times);
		CHECK(send_bytes(&run, 0, (uint32_t)times - 1, 1000) == 0);
		UNTIL(run.nodes[1].messages == times);
	}
	CHECK(run.nodes[1].unordered == 0);
	CHECK(run.nodes[1].disconnected == 0);
	finish(&run);
	return NULL;
}

const char *conformance_the_two_directions_break_apart(const struct conformance_fixture *fixture)
{
	struct run run;
	CHECK(start(&run, fixture));
	UNTIL(run.nodes[0].up && run.nodes[1].up);
	fixture->break_link(run.pair, 0);
	UNTIL(run.nodes[0].connected == 2);
	CHECK(send_bytes(&run, 1, 0, 100) == 0);
	UNTIL(run.nodes[0].messages == 1);
	CHECK(run.nodes[1].connected == 1 && run.nodes[1].disconnected == 0);
	finish(&run);
	return NULL;
}

const char *conformance_a_dropped_connection_ends(const struct conformance_fixture *fixture)
{
	struct run run;
	CHECK(start(&run, fixture));
	struct transport *receiver = run.nodes[1].transport;
	UNTIL(run.nodes[0].up);
	run.nodes[1].drops = true;
	for (uint32_t number = 0; number < 10; number++)
		CHECK(send_number(&run.nodes[0], number, (struct transport_piece){ 0 }) == 0);
	UNTIL(run.nodes[0].disconnected == 1);
	CHECK(run.nodes[1].messages == 1); /* the first; the others were on the way */
	transport_connection dropped = run.nodes[1].last_connection;
	uint32_t number = 0;
	CHECK(receiver->answer(receiver, dropped, &number, sizeof(number)) == -ENOTCONN);
	receiver->drop(receiver, dropped); /* once more is nothing */

	run.nodes[1].drops = false;
	UNTIL(run.nodes[0].connected == 2);
	CHECK(send_number(&run.nodes[0], 1, (struct transport_piece){ 0 }) == 0);
	UNTIL(run.nodes[1].messages == 2);
	CHECK(run.nodes[1].last_connection != dropped && run.nodes[1].unordered == 0);
	CHECK(receiver->answer(receiver, run.nodes[1].last_connection, &number, sizeof(number)) == 0);
	UNTIL(run.nodes[0].answers == 1);
	CHECK(run.nodes[1].connected <= 1 && run.nodes[1].disconnected == 0);
	finish(&run);
	return NULL;
}

const char *conformance_a_full_queue_says_so_and_recovers(const struct conformance_fixture *fixture)
{
	struct run run;
	int rc;
	CHECK(start(&run, fixture));
	UNTIL(run.nodes[0].up);
	uint32_t taken = flood(&run, 64u << 10, &rc);
	CHECK(rc == -EAGAIN);
	CHECK(taken >= QUEUE_MAX);
	UNTIL(run.nodes[1].messages == taken);
	while ((rc = send_bytes(&run, 0, taken, 100)) == -EAGAIN)
		CHECK(fixture->step(run.pair, 3));
	CHECK(rc == 0);
	UNTIL(run.nodes[1].messages == taken + 1);
	CHECK(run.nodes[1].unordered == 0 && run.nodes[1].damaged == 0);
	CHECK(run.nodes[0].disconnected == 0);
	finish(&run);
	return NULL;
}

const char *conformance_a_payload_is_released_once_when_it_was_sent(const struct conformance_fixture *fixture)
{
	struct run run;
	CHECK(start(&run, fixture));
	UNTIL(run.nodes[0].up);
	CHECK(send_bytes(&run, 0, 0, 100000) == 0);
	UNTIL(run.nodes[1].messages == 1);
	UNTIL(run.released == 1);
	finish(&run);
	CHECK(run.released == 1);
	return NULL;
}

const char *conformance_payloads_are_released_once_after_a_reset(const struct conformance_fixture *fixture)
{
	struct run run;
	int rc;
	CHECK(start(&run, fixture));
	UNTIL(run.nodes[0].up);
	uint32_t taken = flood(&run, 64u << 10, &rc);
	CHECK(rc == -EAGAIN);
	run.nodes[0].transport->reset(run.nodes[0].transport, 1);
	UNTIL_OF(1, run.released >= taken + 1); /* and the one that was not taken */
	UNTIL(run.nodes[0].connected == 2);
	CHECK(run.released == taken + 1);
	finish(&run);
	CHECK(run.released == taken + 1);
	return NULL;
}

const char *conformance_payloads_are_released_once_at_the_end(const struct conformance_fixture *fixture)
{
	struct run run;
	int rc;
	CHECK(start(&run, fixture));
	UNTIL(run.nodes[0].up);
	uint32_t taken = flood(&run, 64u << 10, &rc);
	CHECK(rc == -EAGAIN);
	finish(&run);
	CHECK(run.released == taken + 1);
	return NULL;
}
