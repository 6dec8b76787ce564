/* How large sums are: squares and the largest element in the order of the contract, what is not finite, and what
 * decisions make of it. */
#include "tests/unit/engine/cluster.h"

#include <criterion/criterion.h>
#include <math.h>

static struct cluster *cluster_of(uint32_t size, const uint64_t *units)
{
	return cluster_new(&(struct cluster_options){
		.size = size, .units = units, .op = REDUCE_MEAN, .optimizer = OPTIMIZER_SGD });
}

static void ask(struct cluster *cluster, uint32_t rank, double loss_scale, uint64_t token)
{
	struct command *measure = cluster_command(COMMAND_MEASURE);

	measure->loss_scale = loss_scale;
	measure->token = token;
	cluster_give(cluster, rank, measure);
}

static void expect(struct cluster *cluster, uint32_t rank, uint64_t token, double squares, double largest)
{
	struct report *report = cluster_take(cluster, rank, REPORT_MEASURED);

	cr_assert(report, "rank %u", rank);
	cr_assert_eq(report->token, token);
	cr_assert_eq(report->squares, squares, "%a, not %a", report->squares, squares);
	cr_assert_eq(report->largest, largest);
	cr_assert(report->finite && !report->bits);
	report_free(report);
}

/* Element i of every unit is first + i * each on every rank. */
static void reduce_all(struct cluster *cluster, uint32_t units, float first, float each)
{
	for (uint32_t rank = 0; rank < cluster->size; rank++) {
		for (uint32_t unit = 0; unit < units; unit++)
			cluster_reduce(cluster, rank, unit, 0, unit, first, each);
		cluster_close(cluster, rank, 0, NULL, true, 1);
	}
	cluster_run(cluster);
}

Test(measure, every_rank_tells_of_its_own_shard)
{
	struct cluster *cluster = cluster_of(4, (uint64_t[]){ 3, CLUSTER_UNITS_END });

	reduce_all(cluster, 1, 3, 4.5f);
	for (uint32_t rank = 0; rank < 4; rank++)
		ask(cluster, rank, 0, 7);
	cluster_run(cluster);
	expect(cluster, 0, 7, 9, 3);
	expect(cluster, 1, 7, 56.25, 7.5);
	expect(cluster, 2, 7, 144, 12);
	expect(cluster, 3, 7, 0, 0);
	cluster_free(cluster);
}

/* Units in canonical order, elements in theirs, in f64: any other order gives other bits. */
Test(measure, squares_are_added_in_order_however_they_are_cut)
{
	enum { COUNT = 400000 };
	struct cluster *cluster = cluster_of(1, (uint64_t[]){ COUNT, COUNT - 1, CLUSTER_UNITS_END });
	double squares = 0, scaled = 0;

	reduce_all(cluster, 2, 1.1f, 0.7f);
	for (uint32_t unit = 0; unit < 2; unit++) {
		for (uint64_t i = 0; i < COUNT - unit; i++) {
			volatile float x = cluster_gradient(cluster, unit, i), y = x / 3.0f;

			squares += (double)x * (double)x;
			scaled += (double)y * (double)y;
		}
	}
	ask(cluster, 0, 0, 1);
	ask(cluster, 0, 3, 2);
	cluster_run(cluster);
	expect(cluster, 0, 1, squares, (double)cluster_gradient(cluster, 0, COUNT - 1));
	expect(cluster, 0, 2, scaled, (double)(cluster_gradient(cluster, 0, COUNT - 1) / 3.0f));
	cluster_free(cluster);
}

Test(measure, a_unit_that_nobody_contributed_to_has_no_part)
{
	struct cluster *cluster = cluster_of(2, (uint64_t[]){ 2, 2, CLUSTER_UNITS_END });

	for (uint32_t rank = 0; rank < 2; rank++) {
		cluster_reduce(cluster, rank, 1, 0, 0, 5, 0);
		cluster_close(cluster, rank, 0, "10", true, 1);
	}
	cluster_run(cluster);
	ask(cluster, 0, 0, 1);
	cluster_run(cluster);
	expect(cluster, 0, 1, 25, 5);
	cluster_free(cluster);
}

Test(measure, reports_name_the_units_that_are_not_finite)
{
	struct cluster *cluster = cluster_of(1, (uint64_t[]){ 2, 2, 2, CLUSTER_UNITS_END });
	struct report *report;

	cluster_reduce(cluster, 0, 0, 0, 0, 3e38f, 0);
	cluster_reduce(cluster, 0, 1, 0, 1, INFINITY, 0);
	cluster_reduce(cluster, 0, 2, 0, 2, 1, 0);
	cluster_close(cluster, 0, 0, NULL, true, 1);
	cluster_run(cluster);
	report = cluster_take(cluster, 0, REPORT_REDUCED);
	cr_assert(report && !report->finite && report->bits);
	cr_assert(!report->bits[0] && report->bits[1] && !report->bits[2]);
	report_free(report);
	ask(cluster, 0, 0.5, 1); /* twice 3e38 is too large for an f32 */
	cluster_run(cluster);
	report = cluster_take(cluster, 0, REPORT_MEASURED);
	cr_assert(report && !report->finite && report->bits);
	cr_assert(report->bits[0] && report->bits[1] && !report->bits[2]);
	cr_assert_eq(report->squares, (double)INFINITY);
	report_free(report);
	cluster_free(cluster);
}

Test(measure, an_abort_ends_it_and_leaves_the_next_attempt_alone)
{
	enum { COUNT = 400000 };
	struct cluster *cluster = cluster_of(1, (uint64_t[]){ COUNT, CLUSTER_UNITS_END });
	struct command *abort = cluster_command(COMMAND_ABORT);

	reduce_all(cluster, 1, 3, 0);
	cluster->jobs_held = true;
	ask(cluster, 0, 0, 1);
	ask(cluster, 0, 0, 2);
	abort->attempt = 1;
	cluster_give(cluster, 0, abort);
	cluster_reduce_in(cluster, 0, 0, 0, 1, 0, 1, 8, 0); /* waits until nobody reads the sum any more */
	cluster_close_in(cluster, 0, 0, 1, 0, NULL, true, 1);
	cluster_run(cluster);
	cr_assert_eq(cluster_gradient(cluster, 0, COUNT - 1), 3.0f);
	cluster->jobs_held = false;
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_MEASURED), 0);
	cr_assert_eq(cluster_gradient(cluster, 0, COUNT - 1), 8.0f);
	ask(cluster, 0, 0, 3); /* of an attempt that is over */
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_MEASURED), 0);
	cluster_free(cluster);
}

Test(measure, a_dropped_model_lets_go_of_it)
{
	struct cluster *cluster = cluster_of(1, (uint64_t[]){ 400000, CLUSTER_UNITS_END });

	reduce_all(cluster, 1, 3, 0);
	cluster->jobs_held = true;
	ask(cluster, 0, 0, 1);
	ask(cluster, 0, 0, 2);
	cluster_give(cluster, 0, cluster_command(COMMAND_DROP));
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_DROPPED), 0);
	cluster->jobs_held = false;
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_DROPPED), 1);
	cluster_free(cluster);
}

/* (g / 3) * 0.3, each rounded to f32, and in this order. */
Test(measure, what_is_applied_was_divided_by_the_loss_scale_and_then_clipped)
{
	enum { COUNT = 300000 };
	struct cluster *cluster = cluster_of(2, (uint64_t[]){ COUNT, CLUSTER_UNITS_END });

	cluster_load(cluster, 0, 0);
	reduce_all(cluster, 1, 0.1f, 0.37f);
	cluster->loss_scale = 3;
	cluster->clip = 0.3;
	cluster_apply(cluster, 0, STEP_APPLIED, COMMIT_OPTIMIZER, 1);
	cluster_run(cluster);
	for (uint64_t i = 0; i < COUNT; i++) {
		volatile float scaled = cluster_gradient(cluster, 0, i) / 3.0f, clipped = scaled * 0.3f;
		volatile float value = (float)i - clipped;

		cr_assert_eq(cluster_master(cluster, 0, i), value, "element %u", (unsigned)i);
	}
	cluster_free(cluster);
}
