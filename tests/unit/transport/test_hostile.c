/*
 * What strangers do to a node, and what it costs: their own connection, and nothing that grows. Beside them the node's
 * peer is served all the time.
 */
#include "raw_client.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/peer_message.h"
#include "zmq_pair.h"

#define FROM_PEER "from the peer"

struct heard {
	size_t connected, disconnected, messages, from_peer, malformed, closed, answers, askew;
	transport_connection last;
	char last_header[32];
	size_t last_payload;
	struct transport *answers_with; /* NULL: it does not answer */
	struct buffer **keeps;          /* where the next payload is kept; NULL: nowhere */
};

static struct heard heard[2];
static struct zmq_pair *pair;

static void on_connected(void *context, uint32_t rank)
{
	(void)rank;
	((struct heard *)context)->connected++;
}

static void on_disconnected(void *context, uint32_t rank)
{
	(void)rank;
	((struct heard *)context)->disconnected++;
}

static void on_message(void *context, transport_connection connection, const void *header, size_t size,
		       struct buffer *payload)
{
	struct heard *mine = context;
	mine->messages++;
	mine->malformed += size == 0;
	mine->last = connection;
	mine->last_payload = payload ? buffer_size(payload) : 0;
	snprintf(mine->last_header, sizeof(mine->last_header), "%.*s", (int)size, (const char *)header);
	mine->from_peer += strcmp(mine->last_header, FROM_PEER) == 0;
	mine->askew += payload && (uintptr_t)buffer_data(payload) % 8 != 0;
	if (mine->keeps && payload)
		*mine->keeps++ = buffer_ref(payload);
	if (mine->answers_with)
		mine->answers_with->answer(mine->answers_with, connection, header, size);
}

static void on_answered(void *context, uint32_t rank, const void *header, size_t size)
{
	(void)rank, (void)header, (void)size;
	((struct heard *)context)->answers++;
}

static void on_closed(void *context, transport_connection connection)
{
	(void)connection;
	((struct heard *)context)->closed++;
}

static const struct transport_events EVENTS = { on_connected, on_disconnected, on_message, on_answered, on_closed };

#define UNTIL(condition)                                                                      \
	do {                                                                                  \
		while (!(condition))                                                          \
			cr_assert(zmq_pair_fixture.step(pair, 3), "in time: %s", #condition); \
	} while (0)

static void expect_peer_served(void)
{
	struct transport *peer = zmq_pair_fixture.transport(pair, 1);
	size_t before = heard[0].from_peer;
	int rc = peer->send(peer, 0, FROM_PEER, strlen(FROM_PEER), (struct transport_piece){ 0 });
	cr_assert_eq(rc, 0);
	UNTIL(heard[0].from_peer == before + 1);
	cr_assert_eq(heard[1].disconnected, 0);
}

static void init(void)
{
	void *const contexts[2] = { &heard[0], &heard[1] };
	pair = zmq_pair_fixture.pair_new(&EVENTS, contexts, 16);
	cr_assert_not_null(pair);
	UNTIL(heard[0].connected == 1 && heard[1].connected == 1);
	expect_peer_served();
}

static void fini(void)
{
	zmq_pair_fixture.pair_free(pair);
}

TestSuite(hostile, .init = init, .fini = fini);

Test(hostile, garbage_bytes_end_their_connection_only)
{
	static const char *const garbage[] = {
		"GET / HTTP/1.1\r\nHost: fsdpd\r\n\r\n", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		"\xff\x01\x01\x01\x01\x01\x01\x01\x01\x7f\x03\x01NOPE, and then some more of it"
	};
	for (size_t i = 0; i < 30; i++) {
		int fd = zmq_pair_connect(pair->ports[0]);
		cr_assert_geq(fd, 0);
		cr_assert(raw_client_send(fd, garbage[i % 3], strlen(garbage[i % 3])));
		shutdown(fd, SHUT_WR);
		UNTIL(raw_client_is_ended(fd));
		close(fd);
	}
	cr_assert_eq(heard[0].messages, 1);
	expect_peer_served();
}

Test(hostile, a_frame_of_an_impossible_size_takes_no_memory)
{
	static const uint64_t sizes[] = { PEER_PAYLOAD_MAX + 1, UINT64_C(1) << 32, INT64_MAX, UINT64_MAX };
	size_t before = mallinfo2().uordblks;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int fd = raw_client_greet(pair->ports[0], "");
		cr_assert_geq(fd, 0);
		cr_assert(raw_client_send_frame(fd, false, sizes[i], "abc", 3));
		UNTIL(raw_client_is_ended(fd));
		close(fd);
	}
	cr_assert_eq(heard[0].messages, 1);
	cr_assert_lt(mallinfo2().uordblks, before + (1u << 20));
	expect_peer_served();
}

Test(hostile, a_client_by_hand_is_heard_and_told_of_when_it_goes)
{
	int fd = raw_client_greet(pair->ports[0], "");
	cr_assert(raw_client_send_frame(fd, true, 2, "hi", 2));
	cr_assert(raw_client_send_frame(fd, false, 5, "12345", 5));
	UNTIL(heard[0].messages == 2);
	cr_assert_str_eq(heard[0].last_header, "hi");
	cr_assert_eq(heard[0].last_payload, 5);
	close(fd);
	UNTIL(heard[0].closed == 1);
	expect_peer_served();
}

Test(hostile, payloads_lie_straight_whatever_comes_before_them)
{
	static const char bytes[1000];
	int fd = raw_client_greet(pair->ports[0], "");
	for (size_t i = 0; i < 16; i++) {
		cr_assert(raw_client_send_frame(fd, true, 100 + i, bytes, 100 + i));
		cr_assert(raw_client_send_frame(fd, false, sizeof(bytes), bytes, sizeof(bytes)));
	}
	UNTIL(heard[0].messages == 17);
	cr_assert_eq(heard[0].last_payload, sizeof(bytes));
	cr_assert_eq(heard[0].askew, 0);
	close(fd);
}

/* A receive buffer has 8 KiB. */
Test(hostile, a_small_payload_keeps_no_more_memory_than_it_has)
{
	enum { COUNT = 400 };
	static const char bytes[64];
	struct buffer *kept[COUNT] = { NULL };
	int fd = raw_client_greet(pair->ports[0], "");
	size_t before = mallinfo2().uordblks;
	heard[0].keeps = kept;
	for (size_t i = 0; i < COUNT; i++) { /* one at a time, so that each is received by itself; at every alignment */
		cr_assert(raw_client_send_frame(fd, true, 1 + i % 8, bytes, 1 + i % 8));
		cr_assert(raw_client_send_frame(fd, false, sizeof(bytes), bytes, sizeof(bytes)));
		UNTIL(heard[0].messages == 2 + i);
	}
	cr_assert_lt(mallinfo2().uordblks, before + COUNT * 512);
	heard[0].keeps = NULL;
	for (size_t i = 0; i < COUNT; i++)
		buffer_unref(kept[i]);
	close(fd);
}

Test(hostile, a_message_of_more_frames_has_no_header)
{
	int fd = raw_client_greet(pair->ports[0], "");
	for (int i = 0; i < 100; i++)
		cr_assert(raw_client_send_frame(fd, i < 99, 3, "abc", 3));
	cr_assert(raw_client_send_frame(fd, false, 0, "", 0));
	cr_assert(raw_client_send_frame(fd, false, 4, "fine", 4));
	UNTIL(heard[0].messages == 4);
	cr_assert_eq(heard[0].malformed, 2);
	cr_assert_str_eq(heard[0].last_header, "fine", "what comes after is not torn");
	close(fd);
}

Test(hostile, a_message_that_never_ends_ends_its_connection)
{
	static const char bytes[1 << 20];
	int fd = raw_client_greet(pair->ports[0], "");
	for (size_t i = 0; i < 4 && raw_client_send_frame(fd, true, sizeof(bytes), bytes, sizeof(bytes)); i++)
		;
	UNTIL(raw_client_is_ended(fd));
	close(fd);
	cr_assert_eq(heard[0].messages, 1);
	expect_peer_served();
}

Test(hostile, a_large_message_that_comes_slowly_is_heard)
{
	static const char bytes[1 << 20];
	int fd = raw_client_greet(pair->ports[0], "");
	for (size_t i = 0; i < 4; i++) {
		cr_assert(raw_client_send_frame(fd, true, 200000, bytes, 200000));
		cr_assert(raw_client_send_frame(fd, false, sizeof(bytes), bytes, sizeof(bytes) - 7));
		struct timespec due, now;
		clock_gettime(CLOCK_MONOTONIC, &due);
		do { /* 0.4 s: long enough for all that is unfinished to be suspected */
			zmq_pair_fixture.step(pair, 3);
			clock_gettime(CLOCK_MONOTONIC, &now);
		} while ((now.tv_sec - due.tv_sec) * 1000 + (now.tv_nsec - due.tv_nsec) / 1000000 < 400);
		cr_assert(raw_client_send(fd, bytes, 7));
		UNTIL(heard[0].messages == 2 + i);
	}
	cr_assert_eq(heard[0].last_payload, sizeof(bytes));
	close(fd);
}

Test(hostile, an_identity_of_its_own_choice_ends_the_connection)
{
	static const char *const identities[] = { "mallory", "12345", "a" };
	for (size_t i = 0; i < 3; i++) {
		int fd = raw_client_greet(pair->ports[0], identities[i]);
		cr_assert_geq(fd, 0);
		cr_assert(raw_client_send_frame(fd, false, 2, "hi", 2));
		UNTIL(raw_client_is_ended(fd));
		close(fd);
	}
	cr_assert_eq(heard[0].messages, 1);
	expect_peer_served();
}

Test(hostile, two_hundred_connects_and_disconnects_leave_nothing)
{
	size_t fds = raw_client_count_fds();
	for (int i = 0; i < 200; i++) {
		int fd = i % 2 ? zmq_pair_connect(pair->ports[0]) : raw_client_greet(pair->ports[0], "");
		cr_assert_geq(fd, 0);
		if (i % 2 == 0)
			cr_assert(raw_client_send_frame(fd, false, 2, "hi", 2));
		close(fd);
		zmq_pair_fixture.step(pair, 3);
	}
	UNTIL(heard[0].messages == 101);
	UNTIL(raw_client_count_fds() == fds);
	expect_peer_served();
	cr_assert_eq(heard[0].closed, 100);
}

Test(hostile, whoever_is_silent_longest_makes_room)
{
	enum { CLIENTS = 120 }; /* the table holds 4 a rank and 64 besides: 72 */
	int fds[CLIENTS];
	heard[0].answers_with = zmq_pair_fixture.transport(pair, 0);
	expect_peer_served(); /* it is answered, so it stays although it is the oldest */
	heard[0].answers_with = NULL;
	size_t before = heard[0].messages;
	for (size_t i = 0; i < CLIENTS; i++) {
		fds[i] = raw_client_greet(pair->ports[0], "");
		cr_assert_geq(fds[i], 0);
		cr_assert(raw_client_send_frame(fds[i], false, 2, "hi", 2));
		UNTIL(heard[0].messages == before + i + 1);
	}
	size_t ended = 0;
	UNTIL(raw_client_is_ended(fds[0]));
	for (int i = 0; i < CLIENTS; i++)
		ended += raw_client_is_ended(fds[i]);
	cr_assert_eq(ended, CLIENTS - 71);
	cr_assert_not(raw_client_is_ended(fds[CLIENTS - 1]));
	cr_assert_eq(heard[0].closed, ended, "told of each");
	expect_peer_served();
	for (int i = 0; i < CLIENTS; i++)
		close(fds[i]);
}

Test(hostile, a_drop_ends_the_connection_that_is_meant)
{
	struct transport *victim = zmq_pair_fixture.transport(pair, 0);
	int first = raw_client_greet(pair->ports[0], ""), second = raw_client_greet(pair->ports[0], "");
	cr_assert(raw_client_send_frame(first, false, 5, "first", 5));
	UNTIL(heard[0].messages == 2);
	transport_connection meant = heard[0].last;
	cr_assert(raw_client_send_frame(second, false, 6, "second", 6));
	UNTIL(heard[0].messages == 3);
	victim->drop(victim, meant);
	UNTIL(raw_client_is_ended(first));
	/* the kernel gives the number of the descriptor to the next one */
	int third = raw_client_greet(pair->ports[0], "");
	victim->drop(victim, meant);
	victim->drop(victim, UINT64_MAX);
	cr_assert(raw_client_send_frame(second, false, 6, "second", 6));
	cr_assert(raw_client_send_frame(third, false, 5, "third", 5));
	UNTIL(heard[0].messages == 5);
	cr_assert_not(raw_client_is_ended(second));
	cr_assert_not(raw_client_is_ended(third));
	close(first), close(second), close(third);
}
