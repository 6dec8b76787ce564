/* Gathers: whole, of one version, whatever the sizes, the order and the links. */
#include "tests/unit/engine/cluster.h"

#include <criterion/criterion.h>

static struct cluster *cluster_of(uint32_t size, const uint64_t *units)
{
	return cluster_new(&(struct cluster_options){ .size = size, .units = units, .optimizer = OPTIMIZER_SGD });
}

static void expect_gathered(struct cluster *cluster, uint32_t rank, uint32_t slot, uint64_t version, float first,
			    uint64_t count)
{
	struct report *report = cluster_take(cluster, rank, REPORT_GATHERED);

	cr_assert(report);
	cr_assert_eq(report->version, version);
	cr_assert_eq(report->slot, (uint64_t)slot * CLUSTER_SLOT_BYTES);
	for (uint64_t i = 0; i < count; i++)
		cr_assert_eq(cluster_gathered(cluster, rank, slot)[i], first + (float)i, "element %lu",
			     (unsigned long)i);
	report_free(report);
}

Test(gather, five_elements_over_four_ranks_arrive_on_each)
{
	struct cluster *cluster = cluster_of(4, (uint64_t[]){ 5, CLUSTER_UNITS_END });

	cluster_load(cluster, 0, 10);
	for (uint32_t rank = 0; rank < 4; rank++)
		cluster_gather(cluster, rank, 0, 0, 1);
	cluster_run(cluster);
	for (uint32_t rank = 0; rank < 4; rank++)
		expect_gathered(cluster, rank, 0, 1, 10, 5);
	cluster_free(cluster);
}

Test(gather, a_scalar_and_nothing_at_all_are_units_too)
{
	struct cluster *cluster = cluster_of(3, (uint64_t[]){ 1, 0, CLUSTER_UNITS_END });

	cluster_load(cluster, 0, 7);
	cluster_load(cluster, 1, 0);
	cluster_gather(cluster, 2, 0, 0, 1);
	cluster_gather(cluster, 2, 1, 1, 1);
	cluster_run(cluster);
	expect_gathered(cluster, 2, 1, 1, 0, 0);
	expect_gathered(cluster, 2, 0, 1, 7, 1);
	cluster_free(cluster);
}

Test(gather, one_rank_alone_copies_its_own)
{
	struct cluster *cluster = cluster_of(1, (uint64_t[]){ 300000, CLUSTER_UNITS_END });

	cluster_load(cluster, 0, 1);
	cluster_gather(cluster, 0, 0, 0, 1);
	cluster_run(cluster);
	expect_gathered(cluster, 0, 0, 1, 1, 300000);
	cluster_free(cluster);
}

Test(gather, more_than_a_window_needs_more_than_one_grant)
{
	struct cluster *cluster = cluster_of(2, (uint64_t[]){ 100001, CLUSTER_UNITS_END });

	cluster_load(cluster, 0, 3);
	cluster_gather(cluster, 0, 0, 2, 1);
	cluster_gather(cluster, 1, 0, 2, 1);
	cluster_run(cluster);
	expect_gathered(cluster, 0, 2, 1, 3, 100001);
	expect_gathered(cluster, 1, 2, 1, 3, 100001);
	cr_assert_eq(cluster->nodes[0].counters.violations + cluster->nodes[1].counters.violations, 0);
	cluster_free(cluster);
}

Test(gather, an_unpublished_unit_is_waited_for)
{
	struct cluster *cluster = cluster_of(2, (uint64_t[]){ 4, CLUSTER_UNITS_END });

	cluster_gather(cluster, 0, 0, 0, 1);
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_GATHERED), 0);
	cluster_load(cluster, 0, 1);
	expect_gathered(cluster, 0, 0, 1, 1, 4);
	cluster_free(cluster);
}

Test(gather, goes_on_after_a_break_in_either_direction)
{
	struct cluster *cluster = cluster_of(2, (uint64_t[]){ 100000, CLUSTER_UNITS_END });

	cluster_load(cluster, 0, 0);
	cluster->links[1][0].clogged = true;
	cluster_gather(cluster, 0, 0, 0, 1);
	cluster_run(cluster); /* a window of chunks stands in the queue */
	cluster_break(cluster, 1, 0);
	cluster->links[1][0].clogged = false;
	cluster_run(cluster);
	expect_gathered(cluster, 0, 0, 1, 0, 100000);
	cluster->links[0][1].clogged = true;
	cluster_gather(cluster, 0, 0, 1, 1);
	cluster_run(cluster); /* the READ stands in the queue */
	cluster_break(cluster, 0, 1);
	cluster->links[0][1].clogged = false;
	cluster_run(cluster);
	expect_gathered(cluster, 0, 1, 1, 0, 100000);
	cluster_free(cluster);
}

Test(gather, is_never_of_two_versions)
{
	struct cluster *cluster = cluster_of(2, (uint64_t[]){ 40000, CLUSTER_UNITS_END });

	cluster_load(cluster, 0, 0);
	cluster->links[0][1].clogged = true; /* the READ is on its way while both ranks step */
	cluster_gather(cluster, 0, 0, 0, 1);
	for (uint64_t i = 0; i < 40000; i++) {
		uint32_t owner = i >= 20000;

		plan_staging(cluster->nodes[owner].plan, 0)[i - owner * 20000u] = 5 + (float)i;
	}
	cluster_apply_on(cluster, 1, 0, STEP_APPLIED, COMMIT_STAGING, 0, NULL);
	cluster_run(cluster);
	cluster->links[0][1].clogged = false;
	cluster_run(cluster); /* the other is ahead: stale; our own shard is not there yet */
	cr_assert_eq(cluster_count(cluster, 0, REPORT_GATHERED), 0);
	cluster_apply_on(cluster, 0, 0, STEP_APPLIED, COMMIT_STAGING, 0, NULL);
	cluster_run(cluster);
	expect_gathered(cluster, 0, 0, 2, 5, 40000);
	cr_assert_eq(cluster->nodes[1].counters.stale_reads, 1);
	cluster_free(cluster);
}

Test(gather, of_a_later_version_is_held_by_an_owner_that_is_behind)
{
	struct cluster *cluster = cluster_of(2, (uint64_t[]){ 6, CLUSTER_UNITS_END });

	cluster_load(cluster, 0, 0);
	cluster_apply_on(cluster, 0, 0, STEP_APPLIED, COMMIT_STAGING, 0, NULL);
	cluster_gather(cluster, 0, 0, 0, 2);
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_GATHERED), 0);
	cluster_apply_on(cluster, 1, 0, STEP_APPLIED, COMMIT_STAGING, 0, NULL);
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_GATHERED), 1);
	cr_assert_eq(cluster->nodes[1].counters.stale_reads, 0);
	cluster_free(cluster);
}

Test(gather, that_lasted_for_several_steps_starts_again_with_the_present_version)
{
	struct cluster *cluster = cluster_of(2, (uint64_t[]){ 40000, CLUSTER_UNITS_END });

	cluster_load(cluster, 0, 0);
	cluster->links[0][1].clogged = true;
	cluster_gather(cluster, 0, 0, 0, 1);
	for (uint64_t step = 0; step < 4; step++) {
		plan_staging(cluster->nodes[1].plan, 0)[7] = (float)step;
		cluster_apply(cluster, step, STEP_APPLIED, COMMIT_STAGING, 0);
		cluster_run(cluster);
	}
	cluster->links[0][1].clogged = false;
	cluster_run(cluster);
	cr_assert_eq(cluster->nodes[0].counters.violations, 0);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_GATHERED), 1);
	cr_assert_eq(cluster_gathered(cluster, 0, 0)[20007], 3.0f);
	cluster_free(cluster);
}

Test(gather, twenty_at_once_all_end)
{
	uint64_t units[21];
	struct cluster *cluster;

	for (unsigned i = 0; i < 20; i++)
		units[i] = 1000 + i;
	units[20] = CLUSTER_UNITS_END;
	cluster = cluster_of(3, units);
	for (uint32_t i = 0; i < 20; i++)
		cluster_load(cluster, i, (float)i);
	for (uint32_t i = 0; i < 20; i++)
		cluster_gather(cluster, 1, i, i % CLUSTER_SLOTS, 1);
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 1, REPORT_GATHERED), 20);
	cr_assert_eq(cluster->nodes[1].counters.gathers, 20);
	cluster_free(cluster);
}
