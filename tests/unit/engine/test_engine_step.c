/* Decisions: applying, skipping, aborting, and what of the next step comes too early. */
#include "tests/unit/engine/cluster.h"

#include <criterion/criterion.h>

static struct cluster *cluster_of(uint32_t size, enum optimizer_kind optimizer, const uint64_t *units)
{
	return cluster_new(
		&(struct cluster_options){ .size = size, .units = units, .op = REDUCE_MEAN, .optimizer = optimizer });
}

static void reduce_all(struct cluster *cluster, uint64_t step, uint32_t attempt, uint32_t units, float value)
{
	for (uint32_t rank = 0; rank < cluster->size; rank++) {
		for (uint32_t unit = 0; unit < units; unit++)
			cluster_reduce_in(cluster, rank, unit, step, attempt, 0, unit, value, 0);
		cluster_close_in(cluster, rank, step, attempt, 0, NULL, true, 1);
	}
	cluster_run(cluster);
	for (uint32_t rank = 0; rank < cluster->size; rank++)
		cr_assert_eq(cluster_count(cluster, rank, REPORT_REDUCED), 1, "rank %u", rank);
}

Test(step, sgd_takes_the_mean_from_every_element)
{
	struct cluster *cluster = cluster_of(3, OPTIMIZER_SGD, (uint64_t[]){ 100000, 5, CLUSTER_UNITS_END });

	cluster_load(cluster, 0, 10);
	cluster_load(cluster, 1, 20);
	reduce_all(cluster, 0, 0, 2, 4);
	cluster_apply(cluster, 0, STEP_APPLIED, COMMIT_OPTIMIZER, 0.5);
	cluster_run(cluster);
	for (uint64_t i = 0; i < 100000; i++)
		cr_assert_eq(cluster_master(cluster, 0, i), 8 + (float)i);
	for (uint32_t rank = 0; rank < 3; rank++) {
		cr_assert_eq(cluster_count(cluster, rank, REPORT_PROGRESS), 2);
		cr_assert_eq(cluster_count(cluster, rank, REPORT_APPLIED), 1);
		cr_assert_eq(cluster_count(cluster, rank, REPORT_RETURNED), 2);
	}
	cluster_free(cluster);
}

Test(step, an_absent_unit_keeps_its_version_and_its_values)
{
	struct cluster *cluster = cluster_of(2, OPTIMIZER_SGD, (uint64_t[]){ 4, 4, CLUSTER_UNITS_END });
	struct report *report;

	cluster_load(cluster, 0, 1);
	cluster_load(cluster, 1, 1);
	for (uint32_t rank = 0; rank < 2; rank++) {
		cluster_reduce(cluster, rank, 1, 0, 0, 1, 0);
		cluster_close(cluster, rank, 0, "10", true, 1);
	}
	cluster_run(cluster);
	for (uint32_t rank = 0; rank < 2; rank++)
		cluster_apply_on(cluster, rank, 0, STEP_APPLIED, COMMIT_OPTIMIZER, 1, "01");
	cluster_run(cluster);
	report = cluster_take(cluster, 0, REPORT_PROGRESS);
	cr_assert_eq(report->unit, 1);
	cr_assert_eq(report->version, 2);
	report_free(report);
	cr_assert_not(cluster_take(cluster, 0, REPORT_PROGRESS));
	cr_assert_eq(cluster_master(cluster, 0, 0), 1.0f);
	cr_assert_eq(cluster_master(cluster, 1, 0), 0.0f);
	cluster_free(cluster);
}

Test(step, counts_of_updates_are_kept_for_each_parameter)
{
	/* Adam's first update moves by the learning rate whenever it comes. */
	struct cluster *cluster = cluster_of(1, OPTIMIZER_ADAMW, (uint64_t[]){ 1, 1, CLUSTER_UNITS_END });

	cluster_load(cluster, 0, 1);
	cluster_load(cluster, 1, 1);
	for (uint64_t step = 0; step < 3; step++) {
		cluster_reduce_in(cluster, 0, 0, step, 0, 0, 0, 0.5f, 0);
		if (step == 2)
			cluster_reduce_in(cluster, 0, 1, step, 0, 0, 1, 0.5f, 0);
		cluster_close_in(cluster, 0, step, 0, 0, step == 2 ? "00" : "01", true, 1);
		cluster_run(cluster);
		cluster_apply_on(cluster, 0, step, STEP_APPLIED, COMMIT_OPTIMIZER, 0.125, step == 2 ? "11" : "10");
		cluster_run(cluster);
	}
	cr_assert_float_eq(cluster_master(cluster, 0, 0), 1 - 3 * 0.125, 1e-5);
	cr_assert_float_eq(cluster_master(cluster, 1, 0), 1 - 0.125, 1e-5);
	cluster_free(cluster);
}

Test(step, skipped_changes_nothing_and_counts)
{
	struct cluster *cluster = cluster_of(2, OPTIMIZER_SGD, (uint64_t[]){ 4, CLUSTER_UNITS_END });

	cluster_load(cluster, 0, 1);
	reduce_all(cluster, 0, 0, 1, 4);
	cluster_apply(cluster, 0, STEP_SKIPPED, COMMIT_OPTIMIZER, 1);
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_APPLIED), 1);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_PROGRESS), 0);
	cr_assert_eq(cluster_master(cluster, 0, 3), 4.0f);
	reduce_all(cluster, 1, 0, 1, 1);
	cr_assert_eq(cluster_gradient(cluster, 0, 0), 1.0f);
	cluster_free(cluster);
}

Test(step, staging_is_taken_by_every_unit)
{
	struct cluster *cluster = cluster_of(2, OPTIMIZER_NONE, (uint64_t[]){ 4, 3, CLUSTER_UNITS_END });

	cluster_load(cluster, 0, 1);
	cluster_load(cluster, 1, 1);
	reduce_all(cluster, 0, 0, 2, 4);
	plan_staging(cluster->nodes[1].plan, 1)[0] = 99;
	cluster_apply(cluster, 0, STEP_APPLIED, COMMIT_STAGING, 1);
	cluster_run(cluster);
	cr_assert_eq(cluster_master(cluster, 1, 2), 99.0f);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_PROGRESS), 2);
	cluster_free(cluster);
}

Test(step, what_comes_of_the_next_step_is_held)
{
	struct cluster *cluster = cluster_of(2, OPTIMIZER_SGD, (uint64_t[]){ 8, CLUSTER_UNITS_END });

	cluster_load(cluster, 0, 0);
	reduce_all(cluster, 0, 0, 1, 0);
	cluster_apply_on(cluster, 0, 0, STEP_APPLIED, COMMIT_OPTIMIZER, 1, NULL);
	cluster_reduce_in(cluster, 0, 0, 1, 0, 0, 1, 3, 0);
	cluster_close_in(cluster, 0, 1, 0, 0, NULL, true, 1);
	cluster_run(cluster); /* rank 1 has not heard of the decision */
	cr_assert_eq(cluster_gradient(cluster, 0, 7), 0.0f);
	cluster_apply_on(cluster, 1, 0, STEP_APPLIED, COMMIT_OPTIMIZER, 1, NULL);
	cluster_reduce_in(cluster, 1, 0, 1, 0, 0, 1, 5, 0);
	cluster_close_in(cluster, 1, 1, 0, 0, NULL, true, 1);
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_REDUCED), 1);
	cr_assert_eq(cluster_count(cluster, 1, REPORT_REDUCED), 1);
	cr_assert_eq(cluster_gradient(cluster, 0, 7), 4.0f);
	cr_assert_eq(cluster->nodes[1].counters.violations, 0);
	cluster_free(cluster);
}

Test(step, an_abort_is_as_if_the_attempt_had_not_been)
{
	struct cluster *cluster = cluster_of(2, OPTIMIZER_SGD, (uint64_t[]){ 8, 70000, CLUSTER_UNITS_END });
	struct command abort = { .kind = COMMAND_ABORT, .model = CLUSTER_MODEL, .attempt = 1 };

	cluster_reduce(cluster, 0, 0, 0, 0, 100, 0);
	cluster_reduce(cluster, 0, 1, 0, 1, 100, 0);
	cluster_reduce(cluster, 1, 1, 0, 1, 100, 0);
	cluster->jobs_held = true;
	cluster_run(cluster); /* sums are under way */
	cluster_give_all(cluster, &abort);
	cluster_run(cluster);
	cluster->jobs_held = false;
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_RETURNED), 2);
	cr_assert_eq(cluster_count(cluster, 1, REPORT_RETURNED), 1);
	reduce_all(cluster, 0, 1, 2, 6);
	cr_assert_eq(cluster_gradient(cluster, 0, 3), 6.0f);
	for (uint64_t i = 0; i < 70000; i++)
		cr_assert_eq(cluster_gradient(cluster, 1, i), 6.0f);
	cluster_free(cluster);
}

Test(step, an_abort_heard_late_drops_the_old_and_keeps_the_new)
{
	struct cluster *cluster = cluster_of(2, OPTIMIZER_SGD, (uint64_t[]){ 8, CLUSTER_UNITS_END });
	struct command *abort;

	cluster_reduce(cluster, 1, 0, 0, 0, 100, 0);
	cluster_run(cluster);
	abort = cluster_command(COMMAND_ABORT);
	abort->attempt = 1;
	cluster_give(cluster, 0, abort);
	cluster_reduce_in(cluster, 0, 0, 0, 1, 0, 0, 2, 0);
	cluster_close_in(cluster, 0, 0, 1, 0, NULL, true, 1);
	cluster_run(cluster);
	cluster_close(cluster, 1, 0, NULL, true, 1); /* still of the old attempt */
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_REDUCED), 0);
	abort = cluster_command(COMMAND_ABORT);
	abort->attempt = 1;
	cluster_give(cluster, 1, abort);
	cluster_reduce_in(cluster, 1, 0, 0, 1, 0, 1, 4, 0);
	cluster_close_in(cluster, 1, 0, 1, 0, NULL, true, 1);
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_REDUCED), 1);
	cr_assert_eq(cluster_count(cluster, 1, REPORT_REDUCED), 1);
	cr_assert_eq(cluster_gradient(cluster, 0, 0), 3.0f);
	cr_assert_eq(cluster_gradient(cluster, 0, 7), 3.0f);
	cluster_free(cluster);
}

Test(step, an_attempt_that_is_over_takes_nothing)
{
	struct cluster *cluster = cluster_of(2, OPTIMIZER_SGD, (uint64_t[]){ 8, CLUSTER_UNITS_END });
	struct command abort = { .kind = COMMAND_ABORT, .model = CLUSTER_MODEL, .attempt = 1 };

	cluster_give_all(cluster, &abort);
	cluster_reduce(cluster, 0, 0, 0, 3, 1, 0);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_RETURNED), 1);
	cluster_run(cluster);
	cr_assert_eq(cluster->nodes[1].counters.stale_attempts, 0);
	cluster_free(cluster);
}

Test(step, waits_for_a_reader_and_then_gives_it_up)
{
	struct cluster *cluster = cluster_of(2, OPTIMIZER_NONE, (uint64_t[]){ 40000, CLUSTER_UNITS_END });

	cluster_load(cluster, 0, 1);
	cluster->links[1][0].clogged = true;
	cluster_gather(cluster, 0, 0, 0, 1);
	cluster_run(cluster); /* chunks of version 1 stand in rank 1's queue */
	cluster_apply(cluster, 0, STEP_APPLIED, COMMIT_STAGING, 0);
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 1, REPORT_APPLIED), 0);
	cluster_tick(cluster);
	cr_assert_eq(cluster_count(cluster, 1, REPORT_APPLIED), 0);
	cluster_tick(cluster);
	cluster_tick(cluster); /* read_drain_ms is over: the link is made anew */
	cr_assert_eq(cluster_count(cluster, 1, REPORT_APPLIED), 1);
	cluster->links[1][0].clogged = false;
	cluster_run(cluster);
	cluster_tick(cluster);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_APPLIED), 1);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_GATHERED), 1);
	for (uint64_t i = 0; i < 40000; i++)
		cr_assert_eq(cluster_gathered(cluster, 0, 0)[i], 0.0f);
	cluster_free(cluster);
}
