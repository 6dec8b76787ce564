/*
 * What every transport must do, written against transport.h alone and run over each of them: real sockets and the
 * simulated cluster. A case returns NULL, or a sentence that says what was not so. It needs no test framework.
 *
 *	#define CASE(name) Test(zmq, name) { const char *why = conformance_##name(&fixture); cr_assert_null(why, "%s", why); }
 *	CONFORMANCE_CASES(CASE)
 */
#ifndef FSDPD_TESTS_TRANSPORT_CONFORMANCE_H
#define FSDPD_TESTS_TRANSPORT_CONFORMANCE_H

#include "daemon/transport/transport.h"
#include <stdbool.h>

/* Two nodes, 0 and 1, of a world of 2: each the other's peer, by its number. */
struct conformance_fixture {
	/* contexts[n] is the context of node n's events. queue_max is the high-water mark in messages. NULL: it
	 * failed. */
	void *(*pair_new)(const struct transport_events *events, void *const contexts[2], size_t queue_max);
	/* Ends everything. When it returns no payload is held any more. */
	void (*pair_free)(void *pair);
	struct transport *(*transport)(void *pair, int node);
	/* Lets the nodes of the mask (1: node 0, 2: node 1) tell what there is, and a little time pass if there is
	 * nothing. False: enough time has passed since pair_new for anything to happen (tens of seconds). */
	bool (*step)(void *pair, unsigned nodes);
	/* Breaks the link from this node to the other, as a network does: neither asked for it. */
	void (*break_link)(void *pair, int from);
};

/* X(what is true) */
#define CONFORMANCE_CASES(X)                           \
	X(both_links_come_up)                          \
	X(messages_arrive_in_order_and_whole)          \
	X(a_payload_of_1_mib_arrives_intact)           \
	X(a_piece_of_a_buffer_arrives)                 \
	X(an_answer_comes_back)                        \
	X(a_link_that_is_not_up_takes_nothing)         \
	X(a_broken_link_is_made_anew)                  \
	X(a_reset_link_is_made_anew)                   \
	X(the_two_directions_break_apart)              \
	X(a_dropped_connection_ends)                   \
	X(a_full_queue_says_so_and_recovers)           \
	X(a_payload_is_released_once_when_it_was_sent) \
	X(payloads_are_released_once_after_a_reset)    \
	X(payloads_are_released_once_at_the_end)

#define CONFORMANCE_DECLARE(name) const char *conformance_##name(const struct conformance_fixture *fixture);
CONFORMANCE_CASES(CONFORMANCE_DECLARE)
#undef CONFORMANCE_DECLARE

#endif
