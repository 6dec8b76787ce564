/* Small all-reduces: in rank order, numbered within an attempt, and over with the step. */
#include "tests/unit/group/cluster.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cluster *attached(uint32_t world_size)
{
	struct cluster *cluster = cluster_new(world_size);
	cluster_form(cluster);
	cluster_attach_all(cluster);
	return cluster;
}

/* A call with what was in the answer: that is gone after done. */
struct asked {
	struct call call; /* first */
	int answered, code;
	char text[CALL_TEXT_MAX];
	double values[4];
	uint32_t value_count, attempt;
};

static void on_done(struct call *call, const struct answer *answer)
{
	struct asked *asked = (struct asked *)call;
	asked->answered++;
	asked->code = answer->code;
	asked->attempt = answer->attempt;
	asked->value_count = answer->value_count;
	if (answer->value_count > 0)
		memcpy(asked->values, answer->values, answer->value_count * sizeof(double));
	snprintf(asked->text, sizeof(asked->text), "%s", answer->text ? answer->text : "");
}

static void ask(struct cluster *cluster, uint32_t rank, enum all_reduce_op op, const double *values, uint32_t count,
		struct asked *asked)
{
	*asked = (struct asked){ .call = { .done = on_done } };
	worker_all_reduce(cluster->nodes[rank].worker, op, values, count, &asked->call);
	cluster_run(cluster);
}

static void ask_one(struct cluster *cluster, uint32_t rank, double value, struct asked *asked)
{
	ask(cluster, rank, ALL_REDUCE_SUM, &value, 1, asked);
}

#define assert_sum(asked, wanted)                                                         \
	do {                                                                              \
		cr_assert_eq((asked).answered, 1, "answered %d times", (asked).answered); \
		cr_assert_eq((asked).code, 0, "code %d: %s", (asked).code, (asked).text); \
		cr_assert_eq((asked).value_count, 1);                                     \
		cr_assert_eq((asked).values[0], (wanted), "%g", (asked).values[0]);       \
	} while (0)
#define assert_failed(asked, wanted, part)                                                       \
	do {                                                                                     \
		cr_assert_eq((asked).answered, 1, "answered %d times", (asked).answered);        \
		cr_assert_eq((asked).code, (wanted), "code %d: %s", (asked).code, (asked).text); \
		assert_has((asked).text, part);                                                  \
	} while (0)

Test(group_all_reduce, a_sum_is_in_rank_order_before_anything_is_loaded)
{
	/* (1e17 + 1) loses the 1; in another order it would stay. */
	struct cluster *cluster = attached(3);
	struct asked asked[3];
	ask_one(cluster, 2, 1.0, &asked[2]);
	ask_one(cluster, 1, -1e17, &asked[1]);
	cr_assert_eq(asked[1].answered, 0);
	ask_one(cluster, 0, 1e17 + 16, &asked[0]);
	for (uint32_t rank = 0; rank < 3; rank++)
		assert_sum(asked[rank], 17.0);
	ask_one(cluster, 0, 1e17, &asked[0]);
	ask_one(cluster, 1, 1.0, &asked[1]);
	ask_one(cluster, 2, -1e17, &asked[2]);
	for (uint32_t rank = 0; rank < 3; rank++)
		assert_sum(asked[rank], 0.0);
	cluster_free(cluster);
}

Test(group_all_reduce, max_and_min_take_each_value_for_itself_and_keep_a_nan)
{
	static const double values[2][3] = { { 1, -2, 5 }, { 3, -4, NAN } };
	static const double wanted[2][2] = { { 3, -2 }, { 1, -4 } };
	struct cluster *cluster = attached(2);
	struct asked asked[2];
	for (uint32_t i = 0; i < 2; i++) {
		for (uint32_t rank = 0; rank < 2; rank++)
			ask(cluster, rank, i == 0 ? ALL_REDUCE_MAX : ALL_REDUCE_MIN, values[rank], 3, &asked[rank]);
		for (uint32_t rank = 0; rank < 2; rank++) {
			cr_assert_eq(asked[rank].code, 0);
			cr_assert_eq(asked[rank].values[0], wanted[i][0]);
			cr_assert_eq(asked[rank].values[1], wanted[i][1]);
			cr_assert(isnan(asked[rank].values[2]));
		}
	}
	cluster_free(cluster);
}

Test(group_all_reduce, without_values_it_is_a_barrier)
{
	struct cluster *cluster = attached(2);
	struct asked asked[2];
	ask(cluster, 0, ALL_REDUCE_SUM, NULL, 0, &asked[0]);
	cluster_advance(cluster, 5000);
	cr_assert_eq(asked[0].answered, 0);
	ask(cluster, 1, ALL_REDUCE_SUM, NULL, 0, &asked[1]);
	cr_assert_eq(asked[0].answered, 1);
	cr_assert_eq(asked[0].code, 0);
	cr_assert_eq(asked[1].answered, 1);
	cluster_free(cluster);
}

Test(group_all_reduce, other_counts_or_ops_are_refused_on_every_rank_naming_both_sides)
{
	static const double values[3] = { 1, 2, 3 };
	struct cluster *cluster = attached(3);
	struct asked asked[3];
	ask(cluster, 1, ALL_REDUCE_SUM, values, 3, &asked[1]);
	ask(cluster, 2, ALL_REDUCE_MAX, values, 2, &asked[2]);
	assert_failed(asked[1], FSDP_E_MISMATCH, "rank 1 asks for the sum of 3 values, rank 2 for the maximum of 2");
	assert_failed(asked[2], FSDP_E_MISMATCH, "rank 1 asks for the sum of 3 values, rank 2 for the maximum of 2");
	ask(cluster, 0, ALL_REDUCE_SUM, values, 3, &asked[0]);
	assert_failed(asked[0], FSDP_E_MISMATCH, "rank 1 asks for the sum of 3 values, rank 2 for the maximum of 2");
	for (uint32_t rank = 0; rank < 3; rank++)
		ask_one(cluster, rank, 1.0, &asked[rank]);
	for (uint32_t rank = 0; rank < 3; rank++) {
		assert_sum(asked[rank], 3.0);
		cr_assert_eq(asked[rank].attempt, 0, "the step goes on");
	}
	cluster_free(cluster);
}

Test(group_all_reduce, a_lost_question_and_a_lost_answer_are_said_again)
{
	struct cluster *cluster = attached(2);
	struct asked asked[2];
	cluster->cut[1][0] = true;
	ask_one(cluster, 1, 2.0, &asked[1]);
	ask_one(cluster, 0, 1.0, &asked[0]);
	cr_assert_eq(asked[0].answered, 0);
	cluster->cut[1][0] = false;
	cluster->cut[0][1] = true;
	cluster_advance(cluster, 600);
	assert_sum(asked[0], 3.0);
	cr_assert_eq(asked[1].answered, 0);
	cluster->cut[0][1] = false;
	cluster_advance(cluster, 600);
	assert_sum(asked[1], 3.0);
	cluster_free(cluster);
}

Test(group_all_reduce, a_successor_gets_the_answers_that_were_given)
{
	struct cluster *cluster = attached(2);
	struct asked asked[2];
	for (uint32_t i = 0; i < 2; i++) {
		ask_one(cluster, 0, 1.0 + i, &asked[0]);
		ask_one(cluster, 1, 10.0, &asked[1]);
	}
	worker_detach(cluster->nodes[1].worker);
	cluster_attach(cluster, 1, NULL);
	assert_answer(&cluster->nodes[1].attach, 0);
	ask_one(cluster, 0, 5.0, &asked[0]);
	ask_one(cluster, 1, 99.0, &asked[1]);
	assert_sum(asked[1], 11.0);
	ask(cluster, 1, ALL_REDUCE_MIN, NULL, 0, &asked[1]);
	assert_failed(asked[1], FSDP_E_MISMATCH,
		      "the ranks asked for the sum of 1 values, rank 1 now asks for the minimum of 0");
	cr_assert_eq(asked[0].answered, 0);
	ask_one(cluster, 1, 20.0, &asked[1]);
	assert_sum(asked[0], 25.0);
	assert_sum(asked[1], 25.0);
	cluster_free(cluster);
}

Test(group_all_reduce, who_asks_for_more_than_is_kept_begins_the_step_again_with_everybody)
{
	struct cluster *cluster = attached(2);
	struct asked asked[2];
	for (uint32_t i = 0; i < 1025; i++)
		for (uint32_t rank = 0; rank < 2; rank++)
			ask_one(cluster, rank, 1.0, &asked[rank]);
	assert_sum(asked[0], 2.0);
	worker_detach(cluster->nodes[1].worker);
	cluster_attach(cluster, 1, NULL);
	assert_answer(&cluster->nodes[1].attach, 0);
	ask_one(cluster, 1, 1.0, &asked[1]);
	assert_failed(asked[1], FSDP_E_ABORTED, "rank 1 asks for all-reduce 0 again");
	ask_one(cluster, 0, 1.0, &asked[0]);
	assert_failed(asked[0], FSDP_E_ABORTED, "rank 1 asks for all-reduce 0 again");
	for (uint32_t rank = 0; rank < 2; rank++)
		ask_one(cluster, rank, 4.0, &asked[rank]);
	assert_sum(asked[0], 8.0);
	assert_sum(asked[1], 8.0);
	cluster_free(cluster);
}

Test(group_all_reduce, a_deadline_aborts_the_step_on_every_rank_naming_who_did_not_ask)
{
	struct cluster *cluster = attached(3);
	struct asked asked[3];
	ask_one(cluster, 0, 1.0, &asked[0]);
	ask_one(cluster, 1, 1.0, &asked[1]);
	cluster_advance(cluster, 6000);
	assert_has(cluster_notice(&cluster->nodes[1], NOTICE_CALL_SLOW), "all-reduce, waiting for rank 2");
	cluster_advance(cluster, 5000);
	assert_failed(asked[0], FSDP_E_TIMEOUT, "all-reduce, waiting for rank 2");
	assert_failed(asked[1], FSDP_E_TIMEOUT, "all-reduce, waiting for rank 2");
	cr_assert_eq(asked[1].attempt, 1);
	ask_one(cluster, 2, 1.0, &asked[2]);
	assert_failed(asked[2], FSDP_E_ABORTED, "all-reduce, waiting for rank 2");
	for (uint32_t rank = 0; rank < 3; rank++)
		ask_one(cluster, rank, 2.0, &asked[rank]);
	assert_sum(asked[2], 6.0);
	cluster_free(cluster);
}

Test(group_all_reduce, an_abort_ends_it_and_numbers_begin_anew)
{
	struct cluster *cluster = attached(2);
	struct asked asked[2];
	struct test_call *abort = test_call(0);
	for (uint32_t rank = 0; rank < 2; rank++)
		ask_one(cluster, rank, 1.0, &asked[rank]);
	ask_one(cluster, 0, 7.0, &asked[0]);
	worker_abort(cluster->nodes[1].worker, &abort->call);
	cluster_run(cluster);
	assert_answer(abort, 0);
	assert_failed(asked[0], FSDP_E_ABORTED, "aborted by the worker of rank 1");
	for (uint32_t rank = 0; rank < 2; rank++)
		ask_one(cluster, rank, 3.0, &asked[rank]);
	assert_sum(asked[0], 6.0);
	assert_sum(asked[1], 6.0);
	free(abort);
	cluster_free(cluster);
}

Test(group_all_reduce, a_peer_that_is_gone_ends_it)
{
	struct cluster *cluster = attached(3);
	struct asked asked[3];
	ask_one(cluster, 0, 1.0, &asked[0]);
	ask_one(cluster, 1, 1.0, &asked[1]);
	cluster_mute(cluster, 2, true);
	cluster_advance(cluster, 5500);
	assert_failed(asked[0], FSDP_E_PEER_LOST, "rank 2");
	assert_failed(asked[1], FSDP_E_PEER_LOST, "rank 2");
	ask_one(cluster, 1, 1.0, &asked[1]);
	cluster_advance(cluster, 1500);
	assert_failed(asked[1], FSDP_E_PEER_LOST, "rank 2");
	cluster_free(cluster);
}

Test(group_all_reduce, between_a_vote_and_its_decision_there_is_none)
{
	struct cluster *cluster = attached(2);
	struct asked asked[2];
	struct test_call *steps[] = { test_call(0), test_call(0) };
	cluster_load_all(cluster);
	cluster->nodes[1].no_votes = true;
	for (uint32_t rank = 0; rank < 2; rank++)
		cluster_step(cluster, rank, 0.1, steps[rank]);
	ask_one(cluster, 0, 1.0, &asked[0]);
	assert_failed(asked[0], FSDP_E_STATE, "call step again first");
	ask_one(cluster, 1, 1.0, &asked[1]);
	ask_one(cluster, 1, 1.0, &asked[0]);
	assert_failed(asked[0], FSDP_E_STATE, "another thread is in all-reduce");
	struct report *report = report_new(REPORT_REDUCED);
	report->finite = true;
	cluster_report(&cluster->nodes[1], report);
	cluster_run(cluster);
	assert_answer(steps[0], 0);
	assert_answer(steps[1], 0);
	assert_failed(asked[1], FSDP_E_STATE, "the step was committed while this call waited");
	for (uint32_t rank = 0; rank < 2; rank++)
		ask_one(cluster, rank, 1.5, &asked[rank]);
	assert_sum(asked[0], 3.0);
	assert_sum(asked[1], 3.0);
	free(steps[0]);
	free(steps[1]);
	cluster_free(cluster);
}

Test(group_all_reduce, what_no_rank_would_say_is_ignored)
{
	struct cluster *cluster = attached(1);
	static const double many[ALL_REDUCE_VALUES_MAX + 1];
	struct asked asked;
	ask(cluster, 0, ALL_REDUCE_SUM, many, ALL_REDUCE_VALUES_MAX + 1, &asked);
	assert_failed(asked, FSDP_E_INVALID, "at most 1024 values");
	ask(cluster, 0, (enum all_reduce_op)4, many, 1, &asked);
	assert_failed(asked, FSDP_E_INVALID, "sum, max and min");
	ask_one(cluster, 0, 2.0, &asked);
	assert_sum(asked, 2.0);
	cluster_free(cluster);
}
