/* Initial values of one rank: every other reads its own range from the offering rank's slot. */
#include "tests/unit/engine/cluster.h"

#include <criterion/criterion.h>

static struct cluster *cluster_from(uint32_t size, uint32_t rank, const uint64_t *units)
{
	return cluster_new(&(struct cluster_options){
		.size = size, .units = units, .optimizer = OPTIMIZER_SGD, .init = INIT_FROM_RANK, .init_rank = rank });
}

/* Element i is first + i. */
static void offer(struct cluster *cluster, uint32_t rank, uint32_t unit, uint32_t slot, float first)
{
	struct command *load = cluster_command(COMMAND_LOAD);
	uint64_t count = plan_unit(cluster->nodes[rank].plan, unit)->layout.full_bytes / sizeof(float);

	for (uint64_t i = 0; i < count; i++)
		cluster_slot(cluster, rank, slot)[i] = first + (float)i;
	load->unit = unit;
	load->slot = (uint64_t)slot * CLUSTER_SLOT_BYTES;
	load->offer = true;
	cluster_give(cluster, rank, load);
}

static void fetch(struct cluster *cluster, uint32_t rank, uint32_t unit)
{
	struct command *command = cluster_command(COMMAND_FETCH);

	command->unit = unit;
	cluster_give(cluster, rank, command);
}

static void publish(struct cluster *cluster, uint32_t unit)
{
	struct command command = { .kind = COMMAND_PUBLISH, .model = CLUSTER_MODEL, .unit = unit };

	cluster_give_all(cluster, &command);
}

static void expect_masters(struct cluster *cluster, uint32_t unit, float first, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		cr_assert_eq(cluster_master(cluster, unit, i), first + (float)i, "element %lu", (unsigned long)i);
}

static void expect_no_violations(const struct cluster *cluster)
{
	for (uint32_t rank = 0; rank < cluster->size; rank++)
		cr_assert_eq(cluster->nodes[rank].counters.violations, 0, "rank %u", rank);
}

Test(initial, every_rank_gets_its_range_and_the_slot_comes_back_when_it_is_published)
{
	struct cluster *cluster = cluster_from(4, 2, (uint64_t[]){ 5, CLUSTER_UNITS_END });
	struct report *report;

	offer(cluster, 2, 0, 3, 10);
	for (uint32_t rank = 0; rank < 4; rank++)
		if (rank != 2)
			fetch(cluster, rank, 0);
	cluster_run(cluster);
	for (uint32_t rank = 0; rank < 4; rank++)
		cr_assert_eq(cluster_count(cluster, rank, REPORT_FETCHED), rank == 2 ? 0 : 1);
	expect_masters(cluster, 0, 10, 5);
	report = cluster_take(cluster, 2, REPORT_LOADED);
	cr_assert(report && report->offered);
	report_free(report);
	cr_assert_null(cluster_take(cluster, 2, REPORT_RETURNED));
	publish(cluster, 0);
	report = cluster_take(cluster, 2, REPORT_RETURNED);
	cr_assert(report);
	cr_assert_eq(report->slot, 3u * CLUSTER_SLOT_BYTES);
	report_free(report);
	cluster_gather(cluster, 0, 0, 0, 1);
	cluster_run(cluster);
	for (uint64_t i = 0; i < 5; i++)
		cr_assert_eq(cluster_gathered(cluster, 0, 0)[i], 10 + (float)i);
	expect_no_violations(cluster);
	cluster_free(cluster);
}

Test(initial, who_asks_before_the_values_are_there_waits)
{
	struct cluster *cluster = cluster_from(2, 0, (uint64_t[]){ 100001, 0, CLUSTER_UNITS_END });

	fetch(cluster, 1, 0);
	fetch(cluster, 1, 1);
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 1, REPORT_FETCHED), 1, "a unit of nothing is there at once");
	offer(cluster, 0, 0, 1, 3);
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 1, REPORT_FETCHED), 1);
	expect_masters(cluster, 0, 3, 100001);
	expect_no_violations(cluster);
	cluster_free(cluster);
}

Test(initial, a_link_that_breaks_in_the_middle_goes_on_from_there)
{
	struct cluster *cluster = cluster_from(2, 1, (uint64_t[]){ 200000, CLUSTER_UNITS_END });

	offer(cluster, 1, 0, 1, 1);
	cluster_run(cluster);
	fetch(cluster, 0, 0);
	cluster_break(cluster, 1, 0);
	cluster_break(cluster, 0, 1);
	for (uint32_t i = 0; i < 3; i++)
		cluster_tick(cluster);
	cr_assert_eq(cluster_count(cluster, 0, REPORT_FETCHED), 1);
	expect_masters(cluster, 0, 1, 200000);
	expect_no_violations(cluster);
	cluster_free(cluster);
}

Test(initial, nobody_reads_initial_values_from_who_offers_none)
{
	struct cluster *cluster = cluster_from(3, 0, (uint64_t[]){ 30, CLUSTER_UNITS_END });
	struct peer_message read = { .op = PEER_READ, .unit = 0, .version = 0, .read = 5, .limit = 40, .length = 40 };

	cluster_forge(cluster, 2, 1, &read, NULL); /* rank 1 is not the one */
	cluster_run(cluster);
	cr_assert_eq(cluster->nodes[1].counters.violations, 1);
	read.length = 44; /* rank 2's range has 10 elements */
	cluster_forge(cluster, 2, 0, &read, NULL);
	cluster_run(cluster);
	cr_assert_eq(cluster->nodes[0].counters.violations, 1);
	cluster_free(cluster);
}

Test(initial, a_model_that_is_dropped_while_it_is_offered_comes_to_rest)
{
	struct cluster *cluster = cluster_from(2, 0, (uint64_t[]){ 100000, CLUSTER_UNITS_END });

	fetch(cluster, 1, 0);
	offer(cluster, 0, 0, 1, 3);
	cluster_free(cluster);
}
