/*
 * Links: who greets and is greeted, over a transport that the test plays. What is heard afterwards is in
 * test_link_session.c.
 */
#include "fake_node.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>

#include "fsdp/error.h"

static struct fake_node *node;

static void control(void)
{
	node = fake_node_new(false);
}

static void fini(void)
{
	fake_node_free(node);
}

/* Our links */

TestSuite(outgoing, .init = control, .fini = fini);

Test(outgoing, a_connection_is_greeted_with_its_number)
{
	fake_connect(node, 1);
	const struct peer_message *hello = &fake_last(node)->message;
	cr_assert_eq(hello->op, PEER_HELLO);
	cr_assert_eq(hello->link, 1);
	cr_assert_eq(hello->incarnation, 100);
	cr_assert_eq(hello->source, 0);
	cr_assert_eq(hello->world_size, 3);
	cr_assert_str_eq(hello->name, "a");

	fake_disconnect(node, 1);
	fake_connect(node, 1);
	cr_assert_eq(fake_last(node)->message.link, 2);
	fake_connect(node, 2);
	cr_assert_eq(fake_last(node)->message.link, 1, "each peer has its own count");
}

Test(outgoing, hello_is_repeated_until_it_is_answered)
{
	fake_connect(node, 1);
	links_tick(node->links);
	cr_assert_eq(node->out_count, 2);
	cr_assert_eq(fake_last(node)->message.link, 1);

	struct peer_message welcome = fake_message(PEER_WELCOME, 1, 1);
	fake_answer(node, 1, &welcome);
	links_tick(node->links);
	cr_assert_eq(node->out_count, 2);
	cr_assert_eq(node->up.count, 1);
	cr_assert_eq(node->up.rank, 1);
	cr_assert_eq(node->up.link, 1);
	cr_assert_eq(node->up.incarnation, 101);
}

Test(outgoing, an_answer_to_another_link_is_not_heard)
{
	fake_connect(node, 1);
	fake_disconnect(node, 1);
	fake_connect(node, 1);
	struct peer_message late = fake_message(PEER_WELCOME, 1, 1);
	fake_answer(node, 1, &late);
	cr_assert_eq(node->up.count, 0);
	late = fake_message(PEER_REFUSE, 1, 1);
	fake_answer(node, 1, &late);
	cr_assert_eq(node->refused.count, 0);
	cr_assert_eq(node->counters.stale_link, 2);
}

Test(outgoing, a_second_welcome_changes_nothing)
{
	fake_bring_up(node, 1);
	struct peer_message again = fake_message(PEER_WELCOME, 1, 1);
	again.incarnation = 999;
	fake_answer(node, 1, &again);
	cr_assert_eq(node->up.count, 1);
}

Test(outgoing, what_is_sent_before_it_is_up_is_not_connected)
{
	struct peer_message beat = { .op = PEER_HEARTBEAT };
	cr_assert_eq(links_send(node->links, 1, &beat, (struct transport_piece){ 0 }), -ENOTCONN);
	fake_connect(node, 1);
	cr_assert_eq(links_send(node->links, 1, &beat, (struct transport_piece){ 0 }), -ENOTCONN);
	fake_bring_up(node, 1);
	cr_assert_eq(links_send(node->links, 1, &beat, (struct transport_piece){ 0 }), 0);
	fake_disconnect(node, 1);
	cr_assert_eq(links_send(node->links, 1, &beat, (struct transport_piece){ 0 }), -ENOTCONN);
	cr_assert_eq(node->down.count, 1);
}

Test(outgoing, what_is_sent_is_stamped)
{
	fake_bring_up(node, 2);
	struct peer_message drop = { .op = PEER_DROP, .model = 5, .source = 77, .link = 88, .incarnation = 99 };
	cr_assert_eq(links_send(node->links, 2, &drop, (struct transport_piece){ 0 }), 0);
	const struct fake_out *out = fake_last(node);
	cr_assert_eq(out->rank, 2);
	cr_assert_eq(out->message.source, 0);
	cr_assert_eq(out->message.link, 1);
	cr_assert_eq(out->message.incarnation, 100);
	cr_assert_eq(out->message.generation, 7);
	cr_assert_eq(out->message.protocol, PEER_PROTOCOL);
	cr_assert_eq(out->message.model, 5);
}

Test(outgoing, only_heartbeats_go_out_before_the_group_is_formed)
{
	fake_bring_up(node, 1);
	links_set_generation(node->links, 0);
	struct peer_message beat = { .op = PEER_HEARTBEAT }, drop = { .op = PEER_DROP };
	cr_assert_eq(links_send(node->links, 1, &drop, (struct transport_piece){ 0 }), -ENOTCONN);
	cr_assert_eq(links_send(node->links, 1, &beat, (struct transport_piece){ 0 }), 0);
}

Test(outgoing, what_the_transport_says_comes_back)
{
	fake_bring_up(node, 1);
	struct peer_message beat = { .op = PEER_HEARTBEAT };
	uint64_t sent = node->counters.messages_out;
	node->send_code = -EAGAIN;
	cr_assert_eq(links_send(node->links, 1, &beat, (struct transport_piece){ 0 }), -EAGAIN);
	cr_assert_eq(node->counters.messages_out, sent);
}

Test(outgoing, a_hello_that_did_not_go_out_goes_out_with_the_tick)
{
	node->send_code = -EAGAIN;
	fake_connect(node, 1);
	cr_assert_eq(node->out_count, 0);
	node->send_code = 0;
	links_tick(node->links);
	cr_assert_eq(fake_last(node)->message.op, PEER_HELLO);
}

Test(outgoing, a_refusal_is_told_once_and_hello_is_tried_again)
{
	struct peer_message refusal = fake_message(PEER_REFUSE, 1, 1);
	refusal.code = FSDP_E_BUSY;
	snprintf(refusal.text, sizeof(refusal.text), "rank 0 is taken");
	fake_connect(node, 1);
	for (int i = 0; i < 3; i++) {
		fake_answer(node, 1, &refusal);
		links_tick(node->links);
	}
	cr_assert_eq(node->refused.count, 1);
	cr_assert_eq(node->refused.code, FSDP_E_BUSY);
	cr_assert_str_eq(node->refused.text, "rank 0 is taken");
	cr_assert_eq(node->out_count, 4);

	struct peer_message welcome = fake_message(PEER_WELCOME, 1, 1);
	fake_answer(node, 1, &welcome);
	cr_assert_eq(node->up.count, 1);
}

Test(outgoing, one_hello_hears_one_answer)
{
	struct peer_message refusal = fake_message(PEER_REFUSE, 1, 1);
	fake_connect(node, 1);
	for (int i = 0; i < 100; i++) {
		snprintf(refusal.text, sizeof(refusal.text), "reason %d", i);
		fake_answer(node, 1, &refusal);
	}
	cr_assert_eq(node->refused.count, 1);
}

Test(outgoing, a_refusal_after_a_welcome_is_told_again)
{
	struct peer_message refusal = fake_message(PEER_REFUSE, 1, 1), welcome = fake_message(PEER_WELCOME, 1, 1);
	fake_connect(node, 1);
	fake_answer(node, 1, &refusal);
	links_tick(node->links);
	fake_answer(node, 1, &welcome);
	fake_disconnect(node, 1);
	fake_connect(node, 1);
	refusal.link = 2;
	fake_answer(node, 1, &refusal);
	cr_assert_eq(node->refused.count, 2);
}

Test(outgoing, a_refusal_of_another_cluster_is_heard)
{
	struct peer_message refusal = fake_message(PEER_REFUSE, 1, 1);
	refusal.cluster = 12345;
	refusal.code = FSDP_E_MISMATCH;
	fake_connect(node, 1);
	fake_answer(node, 1, &refusal);
	cr_assert_eq(node->refused.code, FSDP_E_MISMATCH);
}

Test(outgoing, a_welcome_from_another_rank_than_expected_is_none)
{
	fake_connect(node, 1);
	struct peer_message welcome = fake_message(PEER_WELCOME, 2, 1);
	fake_answer(node, 1, &welcome);
	cr_assert_eq(node->up.count, 0);
	cr_assert_eq(node->refused.count, 1);
	cr_assert_eq(node->refused.rank, 1);
}

Test(outgoing, garbage_as_an_answer_breaks_the_link)
{
	fake_connect(node, 1);
	links_events()->answered(node->links, 1, "\xff\xff\xff", 3);
	cr_assert_eq(node->reset_count, 1);
	cr_assert_eq(node->counters.malformed, 1);
	struct peer_message beat = fake_message(PEER_HEARTBEAT, 1, 1);
	fake_answer(node, 1, &beat);
	cr_assert_eq(node->reset_count, 2, "only WELCOME and REFUSE are answers");
}

Test(outgoing, a_break_that_was_not_told_is_told_with_the_next_connection)
{
	fake_bring_up(node, 1);
	fake_connect(node, 1);
	cr_assert_eq(node->down.count, 1);
	cr_assert_not(links_is_up(node->links, 1));
}

/* Their connections */

TestSuite(incoming, .init = control, .fini = fini);

Test(incoming, a_hello_is_judged_and_welcomed)
{
	fake_bring_in(node, 1, 10, 4);
	cr_assert_eq(node->inbound.count, 1);
	cr_assert_eq(node->inbound.rank, 1);
	cr_assert_eq(node->inbound.link, 4);
	cr_assert_eq(node->inbound.incarnation, 101);
	const struct fake_out *out = fake_last(node);
	cr_assert(out->answer);
	cr_assert_eq(out->connection, 10);
	cr_assert_eq(out->message.op, PEER_WELCOME);
	cr_assert_eq(out->message.link, 4, "the number is theirs");
	cr_assert_eq(out->message.incarnation, 100);
}

Test(incoming, a_repeated_hello_is_answered_again_and_not_told)
{
	fake_bring_in(node, 1, 10, 4);
	fake_bring_in(node, 1, 10, 4);
	cr_assert_eq(node->out_count, 2);
	cr_assert_eq(node->inbound.count, 1);
	cr_assert_eq(node->judged, 1);
}

Test(incoming, a_hello_may_be_left_unanswered)
{
	struct peer_message hello = fake_hello(1, 1);
	node->verdict = 1;
	fake_deliver(node, 10, &hello, 0);
	cr_assert_eq(node->out_count, 0);
	cr_assert_not(links_is_welcomed(node->links, 1));
	node->verdict = 0;
	fake_deliver(node, 10, &hello, 0);
	cr_assert(links_is_welcomed(node->links, 1));
}

Test(incoming, a_judged_refusal_goes_back_and_is_told_once_a_rank)
{
	struct peer_message first = fake_hello(1, 1), second = fake_hello(2, 1);
	node->verdict = FSDP_E_BUSY;
	node->verdict_text = "rank 1 is taken";
	fake_deliver(node, 10, &first, 0);
	fake_deliver(node, 10, &first, 0);
	cr_assert_eq(node->refusing.count, 1);
	cr_assert_str_eq(node->refusing.text, "rank 1 is taken");
	cr_assert_eq(fake_last(node)->message.op, PEER_REFUSE);
	cr_assert_eq(fake_last(node)->message.code, FSDP_E_BUSY);
	cr_assert_str_eq(fake_last(node)->message.text, "rank 1 is taken");
	fake_deliver(node, 11, &second, 0);
	cr_assert_eq(node->refusing.count, 2);
	cr_assert_eq(node->counters.refused, 3);
	cr_assert_eq(node->dropped_count, 0, "whoever is refused may ask again");
}

Test(incoming, a_judged_refusal_is_told_again_when_the_rank_had_been_welcome)
{
	struct peer_message hello = fake_hello(1, 1);
	node->verdict = FSDP_E_BUSY;
	node->verdict_text = "rank 1 is taken";
	fake_deliver(node, 10, &hello, 0);
	node->verdict = 0;
	fake_deliver(node, 10, &hello, 0);
	node->verdict = FSDP_E_BUSY;
	hello.incarnation = 77;
	fake_deliver(node, 11, &hello, 0);
	cr_assert_eq(node->refusing.count, 2);
	cr_assert(links_is_welcomed(node->links, 1), "the one that has the rank keeps it");
}

Test(incoming, another_cluster_is_refused_with_both_names)
{
	struct peer_message hello = fake_hello(1, 1);
	snprintf(hello.name, sizeof(hello.name), "b");
	hello.cluster = 12345;
	fake_deliver(node, 10, &hello, 0);
	cr_assert_eq(node->judged, 0);
	cr_assert_str_eq(node->refusing.text, "cluster \"a\" here, \"b\" there");
	cr_assert_str_eq(fake_last(node)->message.text, "cluster \"b\" here, \"a\" there", "here is where it is read");
}

Test(incoming, another_world_size_is_refused_with_both_numbers)
{
	struct peer_message hello = fake_hello(1, 1);
	hello.world_size = 2;
	fake_deliver(node, 10, &hello, 0);
	cr_assert_str_eq(node->refusing.text, "world size 3 here, 2 there");
	cr_assert_eq(fake_last(node)->message.op, PEER_REFUSE);
	hello = fake_hello(4000000, 1);
	hello.world_size = 5000000;
	fake_deliver(node, 10, &hello, 0);
	cr_assert_eq(node->refusing.count, 2, "a rank that does not exist here is refused like any");
}

Test(incoming, our_own_rank_is_refused)
{
	struct peer_message hello = fake_hello(0, 1);
	hello.incarnation = 55;
	fake_deliver(node, 10, &hello, 0);
	cr_assert_str_eq(node->refusing.text, "rank 0 here, rank 0 there too");
	cr_assert_eq(node->judged, 0);
}

Test(incoming, another_protocol_is_refused)
{
	struct peer_message hello = fake_hello(1, 1);
	hello.protocol = PEER_PROTOCOL + 1;
	fake_deliver(node, 10, &hello, 0);
	cr_assert_eq(node->refusing.code, FSDP_E_PROTOCOL);
	cr_assert_eq(node->judged, 0);
}

Test(incoming, what_is_remembered_of_refusals_is_bounded)
{
	for (uint32_t rank = 0; rank < 1000; rank++) {
		struct peer_message hello = fake_hello(rank, 1);
		hello.world_size = 100000;
		node->out_count = 0;
		fake_deliver(node, rank, &hello, 0);
	}
	cr_assert_eq(node->refusing.count, 64);
	cr_assert_eq(node->counters.refused, 1000);
}

Test(incoming, nothing_is_heard_before_hello_and_the_connection_lives_on)
{
	struct peer_message beat = fake_message(PEER_HEARTBEAT, 1, 1);
	fake_deliver(node, 10, &beat, 0);
	cr_assert_eq(node->message.count, 0);
	cr_assert_eq(node->counters.before_hello, 1);
	cr_assert_eq(node->dropped_count, 0);
}

Test(incoming, a_newer_connection_takes_the_place_of_the_older)
{
	fake_bring_in(node, 1, 10, 1);
	fake_bring_in(node, 1, 11, 2);
	cr_assert_eq(node->inbound.count, 2);
	cr_assert_eq(node->dropped_count, 1);
	cr_assert_eq(node->dropped[0], 10);
	struct peer_message beat = fake_message(PEER_HEARTBEAT, 1, 1);
	fake_deliver(node, 10, &beat, 0);
	cr_assert_eq(node->counters.before_hello, 1);
	beat.link = 2;
	fake_deliver(node, 11, &beat, 0);
	cr_assert_eq(node->message.count, 1);
}

Test(incoming, a_hello_that_was_overtaken_takes_no_place)
{
	fake_bring_in(node, 1, 11, 2);
	fake_bring_in(node, 1, 10, 1);
	cr_assert_eq(node->inbound.count, 1);
	cr_assert_eq(node->counters.stale_link, 1);
	cr_assert_eq(node->out_count, 1);
	/* sent before the break, it travels on the next connection; that one's own HELLO is on the way */
	fake_bring_in(node, 1, 12, 2);
	cr_assert_eq(node->dropped_count, 0);
	cr_assert_eq(node->out_count, 1, "nor an answer");
	fake_bring_in(node, 1, 12, 3);
	cr_assert_eq(node->inbound.link, 3);
}

Test(incoming, a_new_link_on_the_same_connection_is_told)
{
	fake_bring_in(node, 1, 10, 1);
	fake_bring_in(node, 1, 10, 2);
	cr_assert_eq(node->inbound.count, 2);
	cr_assert_eq(node->dropped_count, 0);
}

Test(incoming, a_closed_connection_is_not_welcomed_any_more)
{
	fake_bring_in(node, 1, 10, 1);
	fake_close(node, 99);
	cr_assert(links_is_welcomed(node->links, 1));
	fake_close(node, 10);
	cr_assert_not(links_is_welcomed(node->links, 1));
}

Test(incoming, a_forgotten_rank_says_hello_on_a_new_connection)
{
	fake_bring_in(node, 1, 10, 5);
	links_forget(node->links, 1);
	cr_assert_not(links_is_welcomed(node->links, 1));
	cr_assert_eq(node->dropped[0], 10, "its peer would never say HELLO again");
	fake_bring_in(node, 1, 11, 6);
	cr_assert_eq(node->judged, 2);
	links_forget(node->links, 2);
	cr_assert_eq(node->dropped_count, 1);
}
