/*
 * What is heard on a connection that was welcomed, and what is thrown away, with or without its connection.
 */
#include "fake_node.h"

#include <criterion/criterion.h>

static struct fake_node *node;

static void control(void)
{
	node = fake_node_new(false);
}

static void bulk(void)
{
	node = fake_node_new(true);
}

static void fini(void)
{
	fake_node_free(node);
}

TestSuite(session, .init = control, .fini = fini);

Test(session, what_fits_is_heard)
{
	fake_bring_in(node, 1, 10, 3);
	struct peer_message drop = fake_message(PEER_DROP, 1, 3);
	fake_deliver(node, 10, &drop, 0);
	cr_assert_eq(node->message.count, 1);
	cr_assert_eq(node->message.rank, 1);
	cr_assert_eq(node->message.op, PEER_DROP);
	cr_assert_eq(node->counters.messages_in, 2);
}

Test(session, another_link_incarnation_or_generation_is_dropped_and_counted)
{
	fake_bring_in(node, 1, 10, 3);
	struct peer_message drop = fake_message(PEER_DROP, 1, 2);
	fake_deliver(node, 10, &drop, 0);
	cr_assert_eq(node->counters.stale_link, 1);
	drop = fake_message(PEER_DROP, 1, 3);
	drop.incarnation = 1;
	fake_deliver(node, 10, &drop, 0);
	cr_assert_eq(node->counters.stale_link, 2);
	drop = fake_message(PEER_DROP, 1, 3);
	drop.generation = 6;
	fake_deliver(node, 10, &drop, 0);
	cr_assert_eq(node->counters.stale_generation, 1);
	cr_assert_eq(node->message.count, 0);
	cr_assert_eq(node->dropped_count, 0);
}

Test(session, heartbeats_pass_with_any_generation)
{
	fake_bring_in(node, 1, 10, 1);
	links_set_generation(node->links, 0);
	struct peer_message beat = fake_message(PEER_HEARTBEAT, 1, 1), drop = fake_message(PEER_DROP, 1, 1);
	beat.generation = 12;
	drop.generation = 0;
	fake_deliver(node, 10, &beat, 0);
	fake_deliver(node, 10, &drop, 0);
	cr_assert_eq(node->message.count, 1);
	cr_assert_eq(node->counters.stale_generation, 1);
}

/* Each on a welcomed connection of its own: malformed is counted, the connection ends, nothing is heard. */
static void expect_malformed(const struct peer_message *message, size_t payload_size, const char *what)
{
	uint64_t before = node->counters.malformed;
	size_t dropped = node->dropped_count, heard = node->message.count;
	fake_deliver(node, 10, message, payload_size);
	cr_assert_eq(node->counters.malformed, before + 1, "%s", what);
	cr_assert_eq(node->dropped_count, dropped + 1, "%s", what);
	cr_assert_eq(node->dropped[dropped], 10, "%s", what);
	cr_assert_eq(node->message.count, heard, "%s", what);
	cr_assert_not(links_is_welcomed(node->links, 1), "%s", what);
}

Test(session, garbage_ends_the_connection)
{
	fake_bring_in(node, 1, 10, 1);
	fake_deliver_bytes(node, 10, "garbage", 7);
	cr_assert_eq(node->counters.malformed, 1);
	cr_assert_eq(node->dropped[0], 10);
	cr_assert_not(links_is_welcomed(node->links, 1));
	fake_deliver_bytes(node, 33, "", 0);
	cr_assert_eq(node->dropped[1], 33, "of strangers too");
}

Test(session, what_control_never_carries_ends_the_connection)
{
	struct peer_message message;
	uint64_t link = 1;
	fake_bring_in(node, 1, 10, link);
	message = fake_message(PEER_READ, 1, link);
	expect_malformed(&message, 0, "a bulk op");

	fake_bring_in(node, 1, 10, ++link);
	message = fake_message(PEER_WELCOME, 1, link);
	expect_malformed(&message, 0, "an answer as a message");

	fake_bring_in(node, 1, 10, ++link);
	message = fake_message(PEER_VOTE, 1, link);
	expect_malformed(&message, 4, "a payload where none belongs");

	fake_bring_in(node, 1, 10, ++link);
	message = fake_hello(1, link);
	expect_malformed(&message, 4, "a payload with hello");

	fake_bring_in(node, 1, 10, ++link);
	message = fake_message(PEER_HEARTBEAT, 2, link);
	expect_malformed(&message, 0, "another source than the connection's");

	fake_bring_in(node, 1, 10, ++link);
	message = fake_hello(2, 1);
	expect_malformed(&message, 0, "hello of another source than the connection's");

	fake_bring_in(node, 1, 10, ++link);
	message = fake_message(PEER_HEARTBEAT, 1, link);
	message.cluster = 1;
	expect_malformed(&message, 0, "another cluster after hello");

	fake_bring_in(node, 1, 10, ++link);
	message = fake_hello(1, 0);
	expect_malformed(&message, 0, "link 0 is none");
}

Test(session, a_piece_of_a_manifest_lies_within_it)
{
	fake_bring_in(node, 1, 10, 1);
	struct peer_message detail = fake_message(PEER_DETAIL, 1, 1);
	detail.length = 10;
	detail.offset = 6;
	fake_deliver(node, 10, &detail, 4);
	cr_assert_eq(node->message.count, 1);
	cr_assert_eq(node->message.payload_size, 4);
	expect_malformed(&detail, 5, "it goes beyond the end");
	fake_bring_in(node, 1, 10, 2);
	detail.link = 2;
	detail.offset = UINT64_MAX;
	expect_malformed(&detail, 4, "the offset wraps");
}

TestSuite(bulk_session, .init = bulk, .fini = fini);

Test(bulk_session, a_payload_is_as_long_as_the_message_says)
{
	fake_bring_in(node, 1, 10, 1);
	struct peer_message chunk = fake_message(PEER_CHUNK, 1, 1);
	chunk.length = 8;
	fake_deliver(node, 10, &chunk, 8);
	cr_assert_eq(node->message.count, 1);
	cr_assert_eq(node->message.payload_size, 8);
	expect_malformed(&chunk, 7, "shorter");
	fake_bring_in(node, 1, 10, 2);
	chunk.link = 2;
	expect_malformed(&chunk, 0, "absent");
	fake_bring_in(node, 1, 10, 3);
	struct peer_message push = fake_message(PEER_PUSH, 1, 3);
	expect_malformed(&push, 0, "of no bytes");
	fake_bring_in(node, 1, 10, 4);
	push.link = 4;
	push.length = PEER_PAYLOAD_MAX + 1;
	expect_malformed(&push, PEER_PAYLOAD_MAX + 1, "longer than any may be");
}

Test(bulk_session, control_ops_end_the_connection)
{
	fake_bring_in(node, 1, 10, 1);
	struct peer_message beat = fake_message(PEER_HEARTBEAT, 1, 1);
	expect_malformed(&beat, 0, "a heartbeat");
}

Test(bulk_session, a_piece_of_a_buffer_is_sent)
{
	struct buffer *buffer;
	cr_assert_eq(buffer_new_heap(100, &buffer), 0);
	fake_bring_up(node, 1);
	struct peer_message push = { .op = PEER_PUSH, .length = 40 };
	uint64_t bytes = node->counters.bytes_out;
	cr_assert_eq(links_send(node->links, 1, &push, (struct transport_piece){ buffer, 60, 40 }), 0);
	cr_assert_eq(fake_last(node)->payload_size, 40);
	cr_assert_gt(node->counters.bytes_out, bytes + 40);
	buffer_unref(buffer);
}
