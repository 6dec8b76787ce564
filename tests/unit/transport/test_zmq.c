/*
 * The ZeroMQ transport does what every transport does, and what only it has: one descriptor that wakes, and supervision
 * of sockets that ZeroMQ gave up. What strangers do to it is in test_hostile.c.
 */
#include "raw_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "zmq_pair.h"

#define CASE(name)                                                       \
	Test(zmq, name)                                                  \
	{                                                                \
		const char *why = conformance_##name(&zmq_pair_fixture); \
		cr_assert_null(why, "%s", why);                          \
	}
CONFORMANCE_CASES(CASE)

struct counts {
	size_t connected, disconnected, messages, answers;
	struct transport *answers_with;
};

static void on_connected(void *context, uint32_t rank)
{
	(void)rank;
	((struct counts *)context)->connected++;
}

static void on_disconnected(void *context, uint32_t rank)
{
	(void)rank;
	((struct counts *)context)->disconnected++;
}

static void on_message(void *context, transport_connection connection, const void *header, size_t size,
		       struct buffer *payload)
{
	struct counts *counts = context;
	(void)payload;
	counts->messages++;
	if (counts->answers_with)
		counts->answers_with->answer(counts->answers_with, connection, header, size);
}

static void on_answered(void *context, uint32_t rank, const void *header, size_t size)
{
	(void)rank, (void)header, (void)size;
	((struct counts *)context)->answers++;
}

static void on_closed(void *context, transport_connection connection)
{
	(void)context, (void)connection;
}

static const struct transport_events EVENTS = { on_connected, on_disconnected, on_message, on_answered, on_closed };

/* A node 0 of 2 whose peer should be at this port. */
static struct zmq_transport *lone_node(void *zmq_context, struct counts *counts, const char *bind, uint16_t peer_port,
				       int *ret_code)
{
	char endpoint[64];
	snprintf(endpoint, sizeof(endpoint), "tcp://127.0.0.1:%u", peer_port);
	const char *endpoints[2] = { NULL, endpoint };
	const struct zmq_transport_config config = {
		.zmq_context = zmq_context,
		.rank = 0,
		.world_size = 2,
		.bind_endpoint = bind,
		.bind_fd = -1,
		.endpoints = endpoints,
		.high_water_mark = 16,
	};
	struct zmq_transport *node = NULL;
	*ret_code = zmq_transport_new(&config, &EVENTS, counts, &node);
	return node;
}

Test(zmq_own, waiting_on_the_descriptor_alone_misses_nothing)
{
	struct counts counts[2] = { 0 };
	void *const contexts[2] = { &counts[0], &counts[1] };
	struct zmq_pair *pair = zmq_pair_fixture.pair_new(&EVENTS, contexts, 16);
	struct transport *from = zmq_pair_fixture.transport(pair, 0);
	counts[1].answers_with = zmq_pair_fixture.transport(pair, 1);
	while (counts[0].connected == 0)
		cr_assert(zmq_pair_fixture.step(pair, 3));

	struct pollfd fds[2];
	for (int i = 0; i < 2; i++)
		fds[i] = (struct pollfd){ .fd = zmq_transport_fd(pair->nodes[i]), .events = POLLIN };
	for (size_t round = 1; round <= 3000; round++) {
		cr_assert_eq(from->send(from, 1, "ping", 4, (struct transport_piece){ 0 }), 0);
		while (counts[0].answers < round) {
			cr_assert_gt(poll(fds, 2, 5000), 0, "round %zu: nobody was woken", round);
			for (int i = 0; i < 2; i++)
				if (fds[i].revents)
					zmq_transport_process(pair->nodes[i]);
		}
	}
	/* and it is silent when there is nothing: a few turns for what ZeroMQ says to itself */
	int turns = 0;
	while (poll(fds, 2, 100) > 0 && ++turns < 100)
		for (int i = 0; i < 2; i++)
			zmq_transport_process(pair->nodes[i]);
	cr_assert_lt(turns, 100);
	zmq_pair_fixture.pair_free(pair);
}

static void spin(long ms)
{
	struct timespec from, now;
	clock_gettime(CLOCK_MONOTONIC, &from);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000 < ms);
}

Test(zmq_own, what_a_send_swallows_still_wakes)
{
	struct counts counts[2] = { 0 };
	void *const contexts[2] = { &counts[0], &counts[1] };
	struct zmq_pair *pair = zmq_pair_fixture.pair_new(&EVENTS, contexts, 64);
	struct transport *from = zmq_pair_fixture.transport(pair, 0);
	counts[1].answers_with = zmq_pair_fixture.transport(pair, 1);
	while (counts[0].connected == 0)
		cr_assert(zmq_pair_fixture.step(pair, 3));
	while (zmq_transport_process(pair->nodes[0]))
		;
	struct pollfd waiting = { .fd = zmq_transport_fd(pair->nodes[0]), .events = POLLIN };
	for (size_t round = 1; round <= 10; round++) {
		size_t answers = counts[0].answers;
		cr_assert_eq(from->send(from, 1, "ping", 4, (struct transport_piece){ 0 }), 0);
		while (zmq_transport_process(pair->nodes[0]))
			;
		while (counts[1].messages < 2 * round - 1)
			cr_assert(zmq_pair_fixture.step(pair, 2));
		cr_assert_gt(poll(&waiting, 1, 5000), 0, "the answer is there");
		spin(5); /* ZeroMQ looks for signs in a send only when some time has passed since it did */
		cr_assert_eq(from->send(from, 1, "ping", 4, (struct transport_piece){ 0 }), 0);
		while (counts[0].answers == answers) {
			cr_assert_gt(poll(&waiting, 1, 5000), 0);
			zmq_transport_process(pair->nodes[0]);
		}
		while (counts[0].answers < 2 * round)
			cr_assert(zmq_pair_fixture.step(pair, 3));
	}
	zmq_pair_fixture.pair_free(pair);
}

Test(zmq_own, poll_wakes_for_another_descriptor_and_for_what_is_left)
{
	void *context;
	struct counts counts = { 0 };
	int rc, pipe_fds[2];
	cr_assert_eq(zmq_context_new(1, -1, &context), 0);
	struct zmq_transport *node = lone_node(context, &counts, "tcp://127.0.0.1:*", 1, &rc);
	cr_assert_eq(rc, 0);
	cr_assert_eq(pipe(pipe_fds), 0);
	cr_assert_eq(zmq_transport_poll(node, -1, 0), 1, "a new node has something to look at");
	while (zmq_transport_process(node))
		;
	cr_assert_eq(write(pipe_fds[1], "x", 1), 1);
	cr_assert_eq(zmq_transport_poll(node, pipe_fds[0], 5000), 1);
	struct transport *transport = zmq_transport_transport(node);
	transport->reset(transport, 1);
	cr_assert_eq(zmq_transport_poll(node, -1, 5000), 1);
	close(pipe_fds[0]), close(pipe_fds[1]);
	zmq_transport_free(node);
	zmq_context_free(context);
}

Test(zmq_own, it_says_where_it_is_bound_and_why_not)
{
	void *context;
	struct counts counts = { 0 };
	int rc;
	size_t fds = raw_client_count_fds();
	cr_assert_eq(zmq_context_new(1, -1, &context), 0);
	struct zmq_transport *node = lone_node(context, &counts, "tcp://127.0.0.1:*", 1, &rc);
	cr_assert_eq(rc, 0);
	const char *bound = zmq_transport_bound_endpoint(node);
	cr_assert_eq(strncmp(bound, "tcp://127.0.0.1:", 16), 0);
	cr_assert_str_neq(bound, "tcp://127.0.0.1:*");

	lone_node(context, &counts, bound, 1, &rc);
	cr_assert_eq(rc, -EADDRINUSE);
	lone_node(context, &counts, "ipc:///nowhere", 1, &rc);
	cr_assert_eq(rc, -EINVAL);
	lone_node(context, &counts, "tcp://127.0.0.1:banana", 1, &rc);
	cr_assert_eq(rc, -EINVAL);
	zmq_transport_free(node);
	zmq_context_free(context);
	cr_assert_eq(raw_client_count_fds(), fds);
}

static void run_until(struct zmq_transport *node, const size_t *count, size_t wanted)
{
	for (int i = 0; i < 2000 && *count < wanted; i++) {
		zmq_transport_process(node);
		zmq_transport_poll(node, -1, 10);
	}
	cr_assert_geq(*count, wanted);
}

Test(zmq_own, a_peer_that_spoke_garbage_is_connected_when_it_speaks_sense)
{
	void *contexts[2];
	struct counts counts[2] = { 0 };
	uint16_t port;
	char bind[64];
	int rc, listener = zmq_pair_listen(0, &port);
	cr_assert_eq(zmq_context_new(1, -1, &contexts[0]), 0);
	cr_assert_eq(zmq_context_new(1, -1, &contexts[1]), 0);
	struct zmq_transport *node = lone_node(contexts[0], &counts[0], "tcp://127.0.0.1:*", port, &rc);
	cr_assert_eq(rc, 0);

	/* Twice: that there is a second time shows that it came back by itself, which ZeroMQ does not after this. */
	for (int times = 0; times < 2; times++) {
		struct pollfd waiting = { .fd = listener, .events = POLLIN };
		for (int i = 0; i < 1000 && poll(&waiting, 1, 10) == 0; i++)
			zmq_transport_process(node);
		int fd = accept(listener, NULL, NULL);
		cr_assert_geq(fd, 0);
		cr_assert(raw_client_send(
			fd,
			"\xff\0\0\0\0\0\0\0\1\x7f\3\0NONSENSE\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
			"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
			64));
		while (!raw_client_is_ended(fd))
			zmq_transport_process(node);
		close(fd);
	}
	cr_assert_eq(counts[0].connected, 0);
	close(listener);
	snprintf(bind, sizeof(bind), "tcp://127.0.0.1:%u", port);
	struct zmq_transport *peer = lone_node(contexts[1], &counts[1], bind, 1, &rc);
	cr_assert_eq(rc, 0);
	run_until(node, &counts[0].connected, 1);
	zmq_transport_free(node);
	zmq_transport_free(peer);
	zmq_context_free(contexts[0]);
	zmq_context_free(contexts[1]);
}

Test(zmq_own, a_peer_that_accepts_and_says_nothing_is_tried_again)
{
	void *context;
	struct counts counts = { 0 };
	uint16_t port;
	int rc, listener = zmq_pair_listen(0, &port);
	cr_assert_eq(zmq_context_new(1, -1, &context), 0);
	struct zmq_transport *node = lone_node(context, &counts, "tcp://127.0.0.1:*", port, &rc);
	cr_assert_eq(rc, 0);
	for (int times = 0; times < 2; times++) {
		struct pollfd waiting = { .fd = listener, .events = POLLIN };
		for (int i = 0; i < 1000 && poll(&waiting, 1, 0) == 0; i++) {
			zmq_transport_process(node);
			zmq_transport_poll(node, listener, 50);
		}
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
		cr_assert_geq(fd, 0, "attempt %d", times);
		close(times == 0 ? dup(fd) : fd); /* the first stays open and silent */
	}
	zmq_transport_free(node);
	zmq_context_free(context);
	close(listener);
}
