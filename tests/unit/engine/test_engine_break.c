/* Breaks: what was lost is sent again, what arrives twice counts once. */
#include "tests/unit/engine/cluster.h"

#include <criterion/criterion.h>

static struct cluster *cluster_of(uint32_t size, const uint64_t *units)
{
	return cluster_new(&(struct cluster_options){
		.size = size, .units = units, .op = REDUCE_SUM, .optimizer = OPTIMIZER_SGD });
}

static void expect_sum(struct cluster *cluster, uint32_t unit, uint64_t count, float value)
{
	for (uint32_t rank = 0; rank < cluster->size; rank++)
		cr_assert_eq(cluster_count(cluster, rank, REPORT_REDUCED), 1, "rank %u", rank);
	for (uint64_t i = 0; i < count; i++)
		cr_assert_eq(cluster_gradient(cluster, unit, i), value, "element %lu", (unsigned long)i);
	for (uint32_t rank = 0; rank < cluster->size; rank++)
		cr_assert_eq(cluster->nodes[rank].counters.violations, 0);
}

Test(break, pushes_that_were_lost_are_sent_again)
{
	struct cluster *cluster = cluster_of(2, (uint64_t[]){ 100000, CLUSTER_UNITS_END });

	cluster->links[0][1].clogged = true;
	cluster_reduce(cluster, 0, 0, 0, 0, 1, 0);
	cluster_close(cluster, 0, 0, NULL, true, 1);
	cluster_reduce(cluster, 1, 0, 0, 0, 2, 0);
	cluster_close(cluster, 1, 0, NULL, true, 1);
	cluster_run(cluster);
	cluster_break(cluster, 0, 1);
	cluster->links[0][1].clogged = false;
	cluster_run(cluster);
	expect_sum(cluster, 0, 100000, 3);
	cr_assert_gt(cluster->nodes[0].counters.resent_bytes, 0);
	cluster_free(cluster);
}

Test(break, acknowledgements_that_were_lost_cause_duplicates_that_count_once)
{
	struct cluster *cluster = cluster_of(2, (uint64_t[]){ 20000, CLUSTER_UNITS_END });

	cluster->links[1][0].clogged = true; /* acknowledgements */
	cluster_reduce(cluster, 0, 0, 0, 0, 1, 0);
	cluster_close(cluster, 0, 0, NULL, true, 1);
	cluster_run(cluster);
	cluster_break(cluster, 0, 1);
	cluster_break(cluster, 1, 0);
	cluster->links[1][0].clogged = false;
	cluster_reduce(cluster, 1, 0, 0, 0, 2, 0);
	cluster_close(cluster, 1, 0, NULL, true, 1);
	cluster_run(cluster);
	expect_sum(cluster, 0, 20000, 3);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_RETURNED), 1);
	cluster_free(cluster);
}

Test(break, in_the_middle_of_windows_and_jobs_loses_nothing)
{
	struct cluster *cluster = cluster_of(3, (uint64_t[]){ 300000, 7, CLUSTER_UNITS_END });

	for (uint32_t rank = 0; rank < 3; rank++) {
		cluster_reduce(cluster, rank, 1, 0, 1, 1, 0);
		cluster_reduce(cluster, rank, 0, 0, 0, (float)rank, 0);
		cluster_close(cluster, rank, 0, NULL, true, 1);
	}
	for (unsigned round = 0; round < 40; round++) {
		cluster->links[round % 3][(round + 1) % 3].clogged = round % 2 == 0;
		cluster->jobs_held = round % 5 < 2;
		cluster_tick(cluster);
		cluster_break(cluster, round % 3, (round + 1 + round % 2) % 3);
	}
	cluster->jobs_held = false;
	for (uint32_t i = 0; i < 3; i++)
		cluster->links[i][(i + 1) % 3].clogged = false;
	cluster_tick(cluster);
	expect_sum(cluster, 0, 300000, 3);
	for (uint64_t i = 0; i < 7; i++)
		cr_assert_eq(cluster_gradient(cluster, 1, i), 3.0f);
	cluster_free(cluster);
}

Test(break, closes_that_were_lost_are_said_again)
{
	struct cluster *cluster = cluster_of(2, (uint64_t[]){ 4, CLUSTER_UNITS_END });

	cluster->links[0][1].clogged = true;
	cluster_close(cluster, 0, 0, "1", false, 0);
	cluster_close(cluster, 0, 1, "1", true, 2);
	cluster_break(cluster, 0, 1);
	cluster_run(cluster);
	cluster_reduce(cluster, 1, 0, 0, 0, 3, 0);
	cluster_close(cluster, 1, 0, NULL, true, 1);
	cluster->links[0][1].clogged = false;
	cluster_run(cluster);
	expect_sum(cluster, 0, 4, 3);
	cluster_free(cluster);
}

Test(break, another_generation_silences_every_link_until_it_is_shared)
{
	struct cluster *cluster = cluster_of(2, (uint64_t[]){ 4, CLUSTER_UNITS_END });
	struct report *report;

	for (uint32_t rank = 0; rank < 2; rank++)
		cluster_count(cluster, rank, REPORT_BULK);
	for (uint32_t rank = 0; rank < 2; rank++) {
		struct command *peers = command_new(COMMAND_PEERS);

		peers->generation = 43;
		peers->incarnations = calloc(2, sizeof(*peers->incarnations));
		peers->incarnations[0] = 1000;
		peers->incarnations[1] = 1001;
		cluster_give(cluster, rank, peers);
		cluster_run(cluster);
		if (rank == 0) {
			cluster_reduce(cluster, 0, 0, 0, 0, 1, 0);
			cluster_close(cluster, 0, 0, NULL, true, 1);
			cluster_run(cluster);
			report = cluster_take(cluster, 0, REPORT_BULK);
			cr_assert(report && report->rank_count == 0);
			report_free(report);
		}
	}
	cluster_tick(cluster);
	report = cluster_take(cluster, 0, REPORT_BULK);
	cr_assert(report && report->rank_count == 1 && report->ranks[0] == 1);
	report_free(report);
	cluster_reduce(cluster, 1, 0, 0, 0, 1, 0);
	cluster_close(cluster, 1, 0, NULL, true, 1);
	cluster_run(cluster);
	expect_sum(cluster, 0, 4, 2);
	cluster_free(cluster);
}
