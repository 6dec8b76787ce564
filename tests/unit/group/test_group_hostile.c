/* Messages that no peer of ours would send: they change nothing that matters, and end nothing. */
#include "tests/unit/group/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/group/state.h"

static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % below;
}

static uint64_t number(void)
{
	static const uint64_t numbers[] = { 0, 1, 2, 3, 7, 65535, UINT32_MAX, UINT64_MAX };
	return numbers[draw(sizeof(numbers) / sizeof(numbers[0]))];
}

static void send_nonsense(struct node *node)
{
	static const uint32_t first = PEER_HEARTBEAT, last = PEER_WITHDRAW;
	struct peer_message message;
	struct buffer *payload = NULL;
	uint64_t sums[4] = { number(), number(), number(), number() };
	uint8_t bits[2] = { 0xff, 0xff };
	struct peer_model model = { .model = draw(2) ? node->model : number(),
				    .step = number(),
				    .attempt = (uint32_t)number(),
				    .workers = (uint32_t)number() };

	memset(&message, 0, sizeof(message));
	double values[3] = { 1, 2, 3 };
	message.op = (enum peer_op)(first + draw(last - first + 1));
	if (draw(16) == 0)
		message.op = draw(2) ? PEER_ALL_REDUCE : PEER_ALL_REDUCED;
	if (draw(16) == 0)
		message.op = draw(2) ? PEER_NORM : PEER_NORMED;
	message.norm = (double)number();
	message.bad = bits;
	message.bad_size = draw(3);
	/* What a peer may rightly ask for is not nonsense: a model may be dropped, lost, and refused. */
	if (message.op == PEER_DROP || message.op == PEER_LOST || message.op == PEER_CLOSED ||
	    message.op == PEER_WITHDRAW)
		return;
	message.model = draw(2) ? node->model : number();
	message.unit = (uint32_t)number();
	message.version = draw(2) ? 1 : number() % 7; /* a higher one begins a new seal, which drops this one */
	message.step = number();
	message.attempt = (uint32_t)number();
	message.offset = number();
	message.length = number();
	message.outcome = (uint32_t)number();
	message.commit = (uint32_t)number();
	message.sum = number();
	message.code = (int32_t)number();
	message.awaited = (uint32_t)draw(62);
	message.number = number();
	message.combine = (uint32_t)number();
	message.values = values;
	message.value_count = draw(4);
	message.sums = sums;
	message.sum_count = draw(5);
	message.bits = bits;
	message.bits_size = draw(3);
	message.models = &model;
	message.model_count = draw(2);
	if (message.op == PEER_MANIFEST && message.version != 1)
		return;
	if (message.op == PEER_DECISION || message.op == PEER_ABORT || message.op == PEER_VOTE)
		message.step = 1 + draw(1000); /* not the step that is worked on */
	if (draw(2))
		snprintf(message.name, sizeof(message.name), "%s", draw(2) ? "m" : "n");
	if (message.op == PEER_DETAIL)
		cr_assert_eq(buffer_new_heap(1 + draw(64), &payload), 0);
	group_message(node->group, (node->rank + 1) % 2, &message, payload);
	buffer_unref(payload);
}

Test(group_hostile, nonsense_changes_nothing)
{
	struct cluster *cluster = cluster_new(2);
	random_state = 88172645463325252u;
	cluster_form(cluster);
	cluster_attach_all(cluster);
	cluster_load_all(cluster);
	for (uint32_t i = 0; i < 20000; i++) {
		send_nonsense(&cluster->nodes[i % 2]);
		if (i % 64 == 0)
			cluster_run(cluster);
	}
	cluster_advance(cluster, 1000);
	struct test_call *steps[2] = { test_call(0), test_call(0) };
	cluster_step(cluster, 0, 0.1, steps[0]);
	cluster_step(cluster, 1, 0.1, steps[1]);
	assert_answer(steps[0], 0);
	assert_answer(steps[1], 0);
	cr_assert_eq(steps[0]->answer.step, 1);
	free(steps[0]);
	free(steps[1]);
	cluster_free(cluster);
}

Test(group_hostile, a_manifest_that_is_not_the_one_it_asked_for_is_refused)
{
	struct cluster *cluster = cluster_new(2);
	struct peer_message message;
	struct buffer *payload;
	cluster_form(cluster);
	cluster_attach(cluster, 0, NULL);
	memset(&message, 0, sizeof(message));
	message.op = PEER_MANIFEST;
	message.version = 5;
	message.sum = 12345;
	snprintf(message.name, sizeof(message.name), "m");
	group_message(cluster->nodes[0].group, 1, &message, NULL);
	message.op = PEER_DETAIL;
	message.length = 16;
	buffer_new_heap(16, &payload);
	memset(buffer_data(payload), 0xee, 16);
	group_message(cluster->nodes[0].group, 1, &message, payload);
	buffer_unref(payload);
	assert_answer(&cluster->nodes[0].attach, FSDP_E_MISMATCH);
	assert_has(cluster->nodes[0].attach.text, "rank 1 has a manifest that cannot be read");
	cluster_free(cluster);
}

Test(group_hostile, a_manifest_takes_no_more_memory_than_it_may)
{
	struct cluster *cluster = cluster_new(2);
	struct peer_message message;
	struct buffer *payload;
	cluster_form(cluster);
	cluster_attach(cluster, 0, NULL);
	memset(&message, 0, sizeof(message));
	message.op = PEER_MANIFEST;
	message.version = 5;
	message.sum = 12345;
	snprintf(message.name, sizeof(message.name), "m");
	group_message(cluster->nodes[0].group, 1, &message, NULL);
	message.op = PEER_DETAIL;
	message.length = UINT64_MAX;
	buffer_new_heap(16, &payload);
	group_message(cluster->nodes[0].group, 1, &message, payload);
	buffer_unref(payload);
	assert_answer(&cluster->nodes[0].attach, FSDP_E_OVERFLOW);
	cluster_free(cluster);
}
