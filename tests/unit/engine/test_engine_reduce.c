/* Reductions: the one order of a sum, its division, absent contributions, slots that come back. */
#include "tests/unit/engine/cluster.h"

#include <criterion/criterion.h>
#include <math.h>

static struct cluster *cluster_of(uint32_t size, enum reduce_op op, double scale, const uint64_t *units)
{
	return cluster_new(&(struct cluster_options){
		.size = size, .units = units, .op = op, .scale = scale, .optimizer = OPTIMIZER_SGD });
}

static void expect_reduced(struct cluster *cluster)
{
	for (uint32_t rank = 0; rank < cluster->size; rank++) {
		struct report *report = cluster_take(cluster, rank, REPORT_REDUCED);

		cr_assert(report, "rank %u", rank);
		cr_assert(report->finite);
		report_free(report);
		cr_assert_not(cluster_take(cluster, rank, REPORT_REDUCED));
	}
}

Test(reduce, the_mean_of_rank_numbers_is_one_and_a_half_for_every_split)
{
	for (uint64_t elements = 1; elements <= 9; elements++) {
		struct cluster *cluster = cluster_of(4, REDUCE_MEAN, 1, (uint64_t[]){ elements, CLUSTER_UNITS_END });

		for (uint32_t rank = 0; rank < 4; rank++) {
			cluster_reduce(cluster, rank, 0, 0, 0, (float)rank, 0);
			cluster_close(cluster, rank, 0, NULL, true, 1);
		}
		cluster_run(cluster);
		expect_reduced(cluster);
		for (uint64_t i = 0; i < elements; i++)
			cr_assert_eq(cluster_gradient(cluster, 0, i), 1.5f);
		for (uint32_t rank = 0; rank < 4; rank++)
			cr_assert_eq(cluster_count(cluster, rank, REPORT_RETURNED), 1);
		cluster_free(cluster);
	}
}

Test(reduce, adds_in_rank_order_whoever_comes_first)
{
	const float values[] = { 1e8f, 1, -1e8f, 1 };

	for (uint32_t first = 0; first < 4; first++) {
		struct cluster *cluster = cluster_of(4, REDUCE_SUM, 1, (uint64_t[]){ 4099, CLUSTER_UNITS_END });

		for (uint32_t i = 0; i < 4; i++) {
			uint32_t rank = (first + 3 * i) % 4;

			cluster_reduce(cluster, rank, 0, 0, 0, values[rank], 0);
			cluster_run(cluster);
		}
		for (uint32_t rank = 0; rank < 4; rank++)
			cluster_close(cluster, rank, 0, NULL, true, 1);
		cluster_run(cluster);
		expect_reduced(cluster);
		for (uint64_t i = 0; i < 4099; i++)
			cr_assert_eq(cluster_gradient(cluster, 0, i), 1.0f);
		cluster_free(cluster);
	}
}

/* Products are rounded before they are added: 3 * f32(1/3) is 1 in f32. */
Test(reduce, a_weight_is_multiplied_before_adding_and_divided_by_at_the_end)
{
	const double weights[] = { 3, 1, 0.5 };
	const float values[] = { 1.0f / 3.0f, 2, 8 };
	struct cluster *cluster = cluster_of(3, REDUCE_MEAN, 1, (uint64_t[]){ 4099, CLUSTER_UNITS_END });

	for (uint32_t rank = 0; rank < 3; rank++) {
		cluster->weight = weights[rank];
		cluster_reduce(cluster, rank, 0, 0, 0, values[rank], 0);
		cluster_close(cluster, rank, 0, NULL, true, weights[rank]);
	}
	cluster_run(cluster);
	expect_reduced(cluster);
	for (uint64_t i = 0; i < 4099; i++)
		cr_assert_eq(cluster_gradient(cluster, 0, i), 7.0f / 4.5f);
	cluster_free(cluster);
}

Test(reduce, at_weight_0_the_slot_comes_back_at_once_and_nothing_is_sent)
{
	struct cluster *cluster = cluster_of(2, REDUCE_MEAN, 1, (uint64_t[]){ 4, CLUSTER_UNITS_END });
	struct command *ignored = cluster_command(COMMAND_REDUCE);

	cluster_slot(cluster, 1, 0)[0] = NAN;
	cluster_give(cluster, 1, ignored);
	cr_assert_eq(cluster_count(cluster, 1, REPORT_RETURNED), 1);
	cluster_close(cluster, 1, 0, "1", true, 0);
	cluster_reduce(cluster, 0, 0, 0, 0, 6, 0);
	cluster_close(cluster, 0, 0, NULL, true, 1);
	cluster_run(cluster);
	expect_reduced(cluster);
	cr_assert_eq(cluster_gradient(cluster, 0, 0), 6.0f);
	cr_assert_eq(cluster_gradient(cluster, 0, 3), 6.0f);
	cr_assert_eq(cluster->nodes[1].counters.pushed_bytes, 0);
	cluster_free(cluster);
}

Test(reduce, large_units_go_through_windows_and_jobs)
{
	struct cluster *cluster = cluster_of(3, REDUCE_SUM, 0.5, (uint64_t[]){ 500000, CLUSTER_UNITS_END });

	for (uint32_t rank = 0; rank < 3; rank++) {
		cluster_reduce(cluster, rank, 0, 0, 0, (float)rank, 1);
		cluster_close(cluster, rank, 0, NULL, true, 1);
	}
	cluster_run(cluster);
	expect_reduced(cluster);
	for (uint64_t i = 0; i < 500000; i++)
		cr_assert_eq(cluster_gradient(cluster, 0, i), 0.5f * (3 + 3 * (float)i));
	cr_assert_eq(cluster->nodes[0].counters.violations, 0);
	cr_assert_eq(cluster->nodes[0].counters.duplicates, 0);
	cluster_free(cluster);
}

Test(reduce, micro_batches_come_before_ranks)
{
	/* ((1e8 + 1) + -1e8) + 1 = 1 where the order is (0,r0) (0,r1) (1,r0) (1,r1). */
	struct cluster *cluster = cluster_of(2, REDUCE_SUM, 1, (uint64_t[]){ 2, CLUSTER_UNITS_END });

	cluster_reduce(cluster, 1, 0, 0, 0, 1, 0);
	cluster_close(cluster, 1, 0, NULL, false, 0);
	cluster_reduce(cluster, 1, 0, 1, 1, 1, 0);
	cluster_close(cluster, 1, 1, NULL, true, 2);
	cluster_run(cluster);
	cluster_reduce(cluster, 0, 0, 0, 0, 1e8f, 0);
	cluster_close(cluster, 0, 0, NULL, false, 0);
	cluster_reduce(cluster, 0, 0, 1, 1, -1e8f, 0);
	cluster_close(cluster, 0, 1, NULL, true, 2);
	cluster_run(cluster);
	expect_reduced(cluster);
	cr_assert_eq(cluster_gradient(cluster, 0, 0), 1.0f);
	cr_assert_eq(cluster_gradient(cluster, 0, 1), 1.0f);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_RETURNED), 2);
	cr_assert_eq(cluster_count(cluster, 1, REPORT_RETURNED), 2);
	cluster_free(cluster);
}

Test(reduce, a_rank_without_a_gradient_counts_in_the_mean)
{
	struct cluster *cluster = cluster_of(2, REDUCE_MEAN, 1, (uint64_t[]){ 2, 2, CLUSTER_UNITS_END });

	cluster_reduce(cluster, 0, 1, 0, 0, 2, 0);
	cluster_close(cluster, 0, 0, "10", true, 1);
	cluster_close(cluster, 1, 0, "11", true, 1);
	cluster_run(cluster);
	expect_reduced(cluster);
	cr_assert_eq(cluster_gradient(cluster, 1, 0), 1.0f);
	cr_assert_eq(cluster_gradient(cluster, 1, 1), 1.0f);
	cr_assert_eq(cluster_gradient(cluster, 0, 0), 0.0f);
	cluster_free(cluster);
}

Test(reduce, ranks_may_have_different_numbers_of_micro_batches)
{
	struct cluster *cluster = cluster_of(2, REDUCE_MEAN, 1, (uint64_t[]){ 3, CLUSTER_UNITS_END });

	for (uint32_t micro_batch = 0; micro_batch < 3; micro_batch++) {
		cluster_reduce(cluster, 0, 0, micro_batch, micro_batch, 4, 0);
		cluster_close(cluster, 0, micro_batch, NULL, micro_batch == 2, 3);
	}
	cluster_reduce(cluster, 1, 0, 0, 0, 8, 0);
	cluster_close(cluster, 1, 0, NULL, true, 1);
	cluster_run(cluster);
	expect_reduced(cluster);
	cr_assert_eq(cluster_gradient(cluster, 0, 2), 5.0f); /* (3 * 4 + 8) / 4 */
	cluster_free(cluster);
}

Test(reduce, a_negative_zero_stays_one)
{
	struct cluster *cluster = cluster_of(1, REDUCE_SUM, 1, (uint64_t[]){ 1, CLUSTER_UNITS_END });

	cluster_reduce(cluster, 0, 0, 0, 0, -0.0f, -0.0f);
	cluster_close(cluster, 0, 0, NULL, true, 1);
	cluster_run(cluster);
	expect_reduced(cluster);
	cr_assert(signbit(cluster_gradient(cluster, 0, 0)));
	cluster_free(cluster);
}

Test(reduce, a_nan_is_said_by_the_rank_that_owns_it)
{
	struct cluster *cluster = cluster_of(2, REDUCE_MEAN, 1, (uint64_t[]){ 4, CLUSTER_UNITS_END });
	struct report *report;

	cluster->links[0][1].clogged = true;
	cluster_reduce(cluster, 0, 0, 0, 0, 1, 0);
	cluster_slot(cluster, 0, 0)[3] = NAN;
	cluster->links[0][1].clogged = false;
	cluster_reduce(cluster, 1, 0, 0, 0, 1, 0);
	cluster_close(cluster, 0, 0, NULL, true, 1);
	cluster_close(cluster, 1, 0, NULL, true, 1);
	cluster_run(cluster);
	report = cluster_take(cluster, 0, REPORT_REDUCED);
	cr_assert(report->finite);
	report_free(report);
	report = cluster_take(cluster, 1, REPORT_REDUCED);
	cr_assert_not(report->finite);
	report_free(report);
	cluster_free(cluster);
}

Test(reduce, is_divided_once_though_the_last_close_comes_late)
{
	struct cluster *cluster = cluster_of(2, REDUCE_MEAN, 1, (uint64_t[]){ 60000, CLUSTER_UNITS_END });

	cluster_reduce(cluster, 0, 0, 0, 0, 2, 0);
	cluster_reduce(cluster, 1, 0, 0, 0, 6, 0);
	cluster_run(cluster);
	cluster_tick(cluster);
	cr_assert_not(cluster_take(cluster, 0, REPORT_REDUCED));
	cluster_close(cluster, 0, 0, NULL, true, 1);
	cluster_close(cluster, 1, 0, NULL, true, 1);
	cluster_run(cluster);
	expect_reduced(cluster);
	for (uint64_t i = 0; i < 60000; i++)
		cr_assert_eq(cluster_gradient(cluster, 0, i), 4.0f);
	cluster_free(cluster);
}

Test(reduce, a_slot_returns_before_the_others_contribute)
{
	/* Rank 0 comes first in the order: its contribution can be added everywhere, so its slot may not wait for rank
	 * 1. */
	struct cluster *cluster = cluster_of(2, REDUCE_MEAN, 1, (uint64_t[]){ 1000, CLUSTER_UNITS_END });

	cluster_reduce(cluster, 0, 0, 0, 0, 2, 0);
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_RETURNED), 1);
	cluster_free(cluster);
}

Test(reduce, a_slot_that_others_come_before_is_kept)
{
	struct cluster *cluster = cluster_of(2, REDUCE_MEAN, 1, (uint64_t[]){ 1000, CLUSTER_UNITS_END });

	cluster_reduce(cluster, 1, 0, 0, 0, 2, 0);
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 1, REPORT_RETURNED), 0);
	cluster_close(cluster, 0, 0, "1", true, 1);
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 1, REPORT_RETURNED), 1);
	cluster_free(cluster);
}

Test(reduce, who_is_missing_is_named)
{
	struct cluster *cluster = cluster_of(3, REDUCE_MEAN, 1, (uint64_t[]){ 9, CLUSTER_UNITS_END });
	struct report *report;

	for (uint32_t rank = 0; rank < 2; rank++) {
		cluster_reduce(cluster, rank, 0, 0, 0, 2, 0);
		cluster_close(cluster, rank, 0, NULL, true, 1);
	}
	cluster_run(cluster);
	cluster_give(cluster, 0, cluster_command(COMMAND_INQUIRE));
	report = cluster_take(cluster, 0, REPORT_WAITING);
	cr_assert_eq(report->wait_count, 1);
	cr_assert_eq(report->waits[0].op, WAIT_REDUCE);
	cr_assert_eq(report->waits[0].unit, 0);
	cr_assert_eq(report->waits[0].rank, 2);
	report_free(report);
	cluster_free(cluster);
}
