/* Models that come and go, and engines that stop in the middle of everything. */
#include "tests/unit/engine/cluster.h"

#include <criterion/criterion.h>

static struct cluster *busy_cluster(void)
{
	struct cluster *cluster = cluster_new(&(struct cluster_options){
		.size = 3, .units = (uint64_t[]){ 200000, 50, CLUSTER_UNITS_END }, .optimizer = OPTIMIZER_ADAMW });

	cluster_load(cluster, 0, 1);
	cluster_load(cluster, 1, 1);
	cluster->jobs_held = true;
	cluster->links[1][0].clogged = true;
	for (uint32_t rank = 0; rank < 3; rank++) {
		cluster_gather(cluster, rank, 0, 0, 1);
		cluster_gather(cluster, rank, 1, 1, 2); /* a version that never comes */
		cluster_reduce(cluster, rank, 0, 0, 0, 1, 0);
		cluster_reduce(cluster, rank, 1, 0, 1, 1, 0);
	}
	cluster_run(cluster);
	return cluster;
}

Test(life, engines_stop_in_the_middle_of_everything)
{
	struct cluster *cluster = busy_cluster();

	cluster_free(cluster); /* asserts that they come to rest */
}

Test(life, a_model_is_dropped_when_the_last_job_and_buffer_are_back)
{
	struct cluster *cluster = busy_cluster();

	cluster_give(cluster, 1, cluster_command(COMMAND_DROP));
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 1, REPORT_DROPPED), 0);
	cluster->jobs_held = false;
	cluster_run(cluster);
	cr_assert_eq(cluster_count(cluster, 1, REPORT_DROPPED), 0); /* chunks and pushes stand in the queue to rank 0 */
	for (unsigned i = 0; i < 3; i++)
		cluster_tick(cluster); /* which is made anew after read_drain_ms */
	cr_assert_eq(cluster_count(cluster, 1, REPORT_DROPPED), 1);
	cluster_give(cluster, 1, cluster_command(COMMAND_DROP));
	cr_assert_eq(cluster_count(cluster, 1, REPORT_DROPPED), 1, "nothing is held of a model that is not there");
	cluster_free(cluster);
}

Test(life, a_rank_that_adds_a_model_later_misses_nothing)
{
	struct cluster *cluster = cluster_new(&(struct cluster_options){
		.size = 2, .units = (uint64_t[]){ 8, CLUSTER_UNITS_END }, .optimizer = OPTIMIZER_SGD });

	for (uint32_t rank = 0; rank < 2; rank++) {
		cluster_give(cluster, rank, cluster_command(COMMAND_DROP));
		cluster_run(cluster);
		cr_assert_eq(cluster_count(cluster, rank, REPORT_DROPPED), 1);
	}
	for (uint32_t rank = 0; rank < 2; rank++) {
		struct command *add = cluster_command(COMMAND_ADD);

		add->model = 8;
		add->plan = plan_ref(cluster->nodes[rank].plan);
		cluster_give(cluster, rank, add);
		for (unsigned i = 0; i < 2; i++) {
			struct command *command = command_new(i == 0 ? COMMAND_REDUCE : COMMAND_CLOSE);

			command->model = 8;
			command->last = true;
			command->weight = 1;
			cluster_slot(cluster, rank, 0)[0] = 6;
			cluster_give(cluster, rank, command);
			cluster_run(cluster);
		}
	}
	cluster_tick(cluster); /* rank 1's daemon did not know what the first CLOSE was about */
	for (uint32_t rank = 0; rank < 2; rank++)
		cr_assert_eq(cluster_count(cluster, rank, REPORT_REDUCED), 1);
	cr_assert_eq(cluster_gradient(cluster, 0, 0), 6.0f);
	cluster_free(cluster);
}

Test(life, a_load_is_hashed_and_compared_without_a_change)
{
	struct cluster *cluster = cluster_new(&(struct cluster_options){
		.size = 1, .units = (uint64_t[]){ 30000, CLUSTER_UNITS_END }, .optimizer = OPTIMIZER_SGD });
	struct report *report;
	uint64_t sum = 0;

	for (unsigned i = 0; i < 3; i++) {
		struct command *load = cluster_command(COMMAND_LOAD);

		cluster_slot(cluster, 0, 2)[29999] = i == 2 ? 9 : 8;
		load->slot = 2 * CLUSTER_SLOT_BYTES;
		load->compare = i > 0;
		cluster_give(cluster, 0, load);
		cluster_run(cluster);
		report = cluster_take(cluster, 0, REPORT_LOADED);
		cr_assert(report && report->sum_count == 1 && report->slot == 2 * CLUSTER_SLOT_BYTES);
		cr_assert_eq(i == 0 || report->sums[0] == sum, i != 2);
		sum = report->sums[0];
		report_free(report);
	}
	cr_assert_eq(cluster_master(cluster, 0, 29999), 8.0f);
	cluster_free(cluster);
}
