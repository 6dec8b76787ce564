/* A peer that has lost its mind: counted, never believed, and no reason to stop. */
#include "tests/unit/engine/cluster.h"

#include <criterion/criterion.h>
#include <math.h>

static struct cluster *hostile_cluster(void)
{
	struct cluster *cluster = cluster_new(&(struct cluster_options){
		.size = 2, .units = (uint64_t[]){ 8, 0, CLUSTER_UNITS_END }, .optimizer = OPTIMIZER_SGD });

	cluster_load(cluster, 0, 1);
	cluster_load(cluster, 1, 1);
	return cluster;
}

/* Rank 1 says it to rank 0, which counts one violation; afterwards, on a new link, a reduction succeeds. */
static void expect_violation(struct peer_message *message, const void *payload)
{
	struct cluster *cluster = hostile_cluster();
	uint64_t before = cluster->nodes[0].counters.violations;

	cluster_run(cluster);
	cluster_forge(cluster, 1, 0, message, payload);
	cluster_run(cluster);
	cr_assert_eq(cluster->nodes[0].counters.violations, before + 1);
	cluster_break(cluster, 1, 0);
	for (uint32_t rank = 0; rank < 2; rank++) {
		cluster_reduce(cluster, rank, 0, 0, 0, 2, 0);
		cluster_close(cluster, rank, 0, "01", true, 1);
	}
	cluster_tick(cluster);
	for (uint32_t rank = 0; rank < 2; rank++)
		cr_assert_eq(cluster_count(cluster, rank, REPORT_REDUCED), 1);
	cr_assert_eq(cluster_gradient(cluster, 0, 0), 2.0f);
	cluster_free(cluster);
}

static const float zeros[65536];

#define VIOLATION(what, data, ...)                                             \
	Test(hostile, what)                                                    \
	{                                                                      \
		expect_violation(&(struct peer_message){ __VA_ARGS__ }, data); \
	}

VIOLATION(push_of_no_unit, zeros, .op = PEER_PUSH, .unit = 2, .length = 4)
VIOLATION(push_to_an_empty_shard, zeros, .op = PEER_PUSH, .unit = 1, .length = 4)
VIOLATION(push_beyond_the_shard, zeros, .op = PEER_PUSH, .offset = 12, .length = 8)
VIOLATION(push_at_an_offset_that_wraps, zeros, .op = PEER_PUSH, .offset = UINT64_MAX - 3, .length = 8)
VIOLATION(push_of_half_a_float, zeros, .op = PEER_PUSH, .length = 6)
VIOLATION(push_between_floats, zeros, .op = PEER_PUSH, .offset = 2, .length = 4)
VIOLATION(push_with_a_gap, zeros, .op = PEER_PUSH, .offset = 8, .length = 4)
VIOLATION(push_of_a_step_that_nobody_can_be_in, zeros, .op = PEER_PUSH, .step = 2, .length = 4)
VIOLATION(push_of_too_late_a_micro_batch, zeros, .op = PEER_PUSH, .micro_batch = 65536, .length = 4)
VIOLATION(push_of_more_than_a_shard, zeros, .op = PEER_PUSH, .length = 65536 * 4)
VIOLATION(push_with_a_weight_below_zero, zeros, .op = PEER_PUSH, .length = 4, .weight = -1)
VIOLATION(push_with_a_weight_beyond_f32, zeros, .op = PEER_PUSH, .length = 4, .weight = 1e39)
VIOLATION(push_with_a_weight_below_f32, zeros, .op = PEER_PUSH, .length = 4, .weight = 1e-60)
VIOLATION(close_with_bits_of_another_size, NULL, .op = PEER_CLOSE, .bits = (uint8_t[]){ 0, 0 }, .bits_size = 2)
VIOLATION(close_with_a_weight_below_zero, NULL, .op = PEER_CLOSE, .last = true, .weight = -1)
VIOLATION(close_of_a_step_that_nobody_can_be_in, NULL, .op = PEER_CLOSE, .step = 7)
VIOLATION(close_of_too_late_a_micro_batch, NULL, .op = PEER_CLOSE, .micro_batch = 65536)
VIOLATION(progress_of_no_unit, NULL, .op = PEER_PROGRESS, .progress = (struct peer_progress[]){ { 0, 5, 4 } },
	  .progress_count = 1)
VIOLATION(read_of_no_unit, NULL, .op = PEER_READ, .unit = 9, .version = 1, .read = 1, .limit = 16, .length = 16)
VIOLATION(read_of_version_0, NULL, .op = PEER_READ, .version = 0, .read = 1, .limit = 16, .length = 16)
VIOLATION(read_of_an_empty_shard, NULL, .op = PEER_READ, .unit = 1, .version = 1, .read = 1, .limit = 4, .length = 4)
VIOLATION(read_of_another_length, NULL, .op = PEER_READ, .version = 1, .read = 1, .limit = 16, .length = 20)
VIOLATION(read_beyond_the_shard, NULL, .op = PEER_READ, .version = 1, .read = 1, .limit = 20, .length = 16)
VIOLATION(read_that_ends_before_it_begins, NULL, .op = PEER_READ, .version = 1, .read = 1, .offset = 8, .limit = 4,
	  .length = 16)
VIOLATION(chunk_of_no_unit, zeros, .op = PEER_CHUNK, .unit = 3, .version = 1, .read = 1, .length = 4)
VIOLATION(stale_of_no_unit, NULL, .op = PEER_STALE, .unit = 3, .version = 1, .read = 1)

Test(hostile, more_than_the_credit_is_not_taken)
{
	struct cluster *cluster = cluster_new(&(struct cluster_options){
		.size = 2, .units = (uint64_t[]){ 100000, CLUSTER_UNITS_END }, .optimizer = OPTIMIZER_SGD });

	/* Rank 1's pushes cannot be added before rank 0's: they fill the window. */
	for (uint64_t i = 0; i < 17; i++)
		cluster_forge(cluster, 1, 0,
			      &(struct peer_message){ .op = PEER_PUSH, .offset = i * 4096, .length = 4096 }, zeros);
	cluster_run(cluster);
	cr_assert_eq(cluster->nodes[0].counters.violations, 1);
	cluster_free(cluster);
}

Test(hostile, a_chunk_that_nobody_asked_for_is_a_duplicate)
{
	struct cluster *cluster = hostile_cluster();

	cluster_forge(cluster, 1, 0,
		      &(struct peer_message){ .op = PEER_CHUNK, .version = 1, .read = 77, .offset = 0, .length = 4 },
		      zeros);
	cluster_run(cluster);
	cr_assert_eq(cluster->nodes[0].counters.duplicates, 1);
	cr_assert_eq(cluster->nodes[0].counters.violations, 0);
	cluster_free(cluster);
}

Test(hostile, a_chunk_of_another_version_or_place_is_not_taken)
{
	struct cluster *cluster = hostile_cluster();
	struct report *report;

	cluster->links[0][1].clogged = true;
	cluster_gather(cluster, 0, 0, 0, 1); /* the first read of rank 0 */
	cluster_forge(cluster, 1, 0, &(struct peer_message){ .op = PEER_CHUNK, .version = 2, .read = 1, .length = 4 },
		      zeros);
	cluster_forge(cluster, 1, 0,
		      &(struct peer_message){ .op = PEER_CHUNK, .version = 1, .read = 1, .offset = 4, .length = 4 },
		      zeros);
	cluster_forge(cluster, 1, 0, &(struct peer_message){ .op = PEER_CHUNK, .version = 1, .read = 1, .length = 64 },
		      zeros);
	cluster_forge(cluster, 1, 0, &(struct peer_message){ .op = PEER_STALE, .version = 1, .read = 1 }, NULL);
	cluster_run(cluster);
	cr_assert_eq(cluster->nodes[0].counters.violations, 4);
	cluster->links[0][1].clogged = false;
	cluster_run(cluster);
	report = cluster_take(cluster, 0, REPORT_GATHERED);
	cr_assert(report);
	for (unsigned i = 0; i < 8; i++)
		cr_assert_eq(cluster_gathered(cluster, 0, 0)[i], 1.0f + (float)i);
	report_free(report);
	cluster_free(cluster);
}

Test(hostile, data_that_a_close_denies_and_data_after_the_last_are_not_taken)
{
	struct cluster *cluster = hostile_cluster();

	cluster_forge(cluster, 1, 0,
		      &(struct peer_message){
			      .op = PEER_CLOSE, .bits = (uint8_t[]){ 1 }, .bits_size = 1, .last = true, .weight = 1 },
		      NULL);
	cluster_forge(cluster, 1, 0, &(struct peer_message){ .op = PEER_PUSH, .length = 4 }, zeros);
	cluster_run(cluster);
	cr_assert_eq(cluster->nodes[0].counters.violations, 1);
	cluster_break(cluster, 1, 0);
	cluster_run(cluster);
	cluster_forge(cluster, 1, 0, &(struct peer_message){ .op = PEER_PUSH, .micro_batch = 1, .length = 4 }, zeros);
	cluster_run(cluster);
	cr_assert_eq(cluster->nodes[0].counters.violations, 2);
	cluster_free(cluster);
}

Test(hostile, messages_of_an_unknown_model_do_nothing)
{
	struct cluster *cluster = hostile_cluster();

	cluster_forge(cluster, 1, 0, &(struct peer_message){ .op = PEER_PUSH, .model = 5, .length = 4 }, zeros);
	cluster_forge(cluster, 1, 0, &(struct peer_message){ .op = PEER_READ, .model = 5, .version = 1 }, NULL);
	cluster_run(cluster);
	cr_assert_eq(cluster->nodes[0].counters.violations, 0);
	cluster_free(cluster);
}

/* All of a contribution has one weight. */
Test(hostile, a_weight_that_changes_within_a_contribution_is_a_violation)
{
	struct cluster *cluster = hostile_cluster();
	struct peer_message push = { .op = PEER_PUSH, .length = 4, .weight = 2 };

	cluster_run(cluster);
	cluster_forge(cluster, 1, 0, &push, zeros);
	cluster_run(cluster);
	cr_assert_eq(cluster->nodes[0].counters.violations, 0);
	push.offset = 4;
	push.weight = 3;
	cluster_forge(cluster, 1, 0, &push, zeros);
	cluster_run(cluster);
	cr_assert_eq(cluster->nodes[0].counters.violations, 1);
	cluster_free(cluster);
}
