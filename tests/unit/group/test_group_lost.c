/* A rank that comes back without its shards: every model of the old generation is lost, on every rank, until it is
 * dropped. */
#include "tests/unit/group/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cluster *loaded(uint32_t world_size)
{
	struct cluster *cluster = cluster_new(world_size);
	cluster_form(cluster);
	cluster_attach_all(cluster);
	cluster_load_all(cluster);
	return cluster;
}

static void come_back(struct cluster *cluster, uint32_t rank)
{
	cluster_stop(cluster, rank);
	cluster_advance(cluster, 2000);
	cluster_start(cluster, rank);
	cluster_advance(cluster, 2000);
	cr_assert_neq(group_generation(cluster->nodes[0].group), 0);
}

Test(group_lost, calls_fail_and_name_the_rank_that_came_back)
{
	struct cluster *cluster = loaded(3);
	struct test_call *waiting = test_call(30000), *later = test_call(0);
	cluster_step(cluster, 0, 0.1, waiting);
	come_back(cluster, 2);
	assert_answer(waiting, FSDP_E_LOST);
	assert_has(waiting->text, "rank 2 came back without its shards");
	cr_assert_eq(group_model(cluster->nodes[1].group, 0).state, MODEL_LOST);
	worker_unshard(cluster->nodes[1].worker, 0, &later->call);
	assert_answer(later, FSDP_E_LOST);
	cr_assert_eq(cluster->nodes[1].dropped, 0, "the masters are kept");
	free(waiting);
	free(later);
	cluster_free(cluster);
}

Test(group_lost, the_rank_that_came_back_is_refused_the_name_until_it_is_dropped_everywhere)
{
	struct cluster *cluster = loaded(3);
	come_back(cluster, 2);
	cluster_attach(cluster, 2, NULL);
	cluster_run(cluster);
	assert_answer(&cluster->nodes[2].attach, FSDP_E_LOST);
	worker_detach(cluster->nodes[2].worker);
	struct test_call *busy = test_call(0), *drop = test_call(0);
	group_drop_model(cluster->nodes[2].group, "m", &busy->call);
	cluster_run(cluster);
	assert_answer(busy, FSDP_E_BUSY);
	assert_has(busy->text, "rank 0: close it first");
	worker_detach(cluster->nodes[0].worker);
	worker_detach(cluster->nodes[1].worker);
	cluster_advance(cluster, 500);
	group_drop_model(cluster->nodes[2].group, "m", &drop->call);
	cluster_run(cluster);
	assert_answer(drop, 0);
	cr_assert_eq(group_model_count(cluster->nodes[0].group), 0);
	cr_assert_eq(group_model_count(cluster->nodes[1].group), 0);
	cluster_attach_all(cluster);
	free(busy);
	free(drop);
	cluster_free(cluster);
}

Test(group_lost, a_coordinator_that_came_back_knows_of_it_from_the_others)
{
	struct cluster *cluster = loaded(2);
	come_back(cluster, 0);
	cluster_attach(cluster, 0, NULL);
	cluster_run(cluster);
	assert_answer(&cluster->nodes[0].attach, FSDP_E_LOST);
	assert_has(cluster->nodes[0].attach.text, "rank 0 came back");
	worker_detach(cluster->nodes[0].worker);
	worker_detach(cluster->nodes[1].worker);
	cluster_advance(cluster, 500);
	struct test_call *drop = test_call(0);
	group_drop_model(cluster->nodes[1].group, "m", &drop->call);
	cluster_run(cluster);
	assert_answer(drop, 0);
	cr_assert_eq(group_model_count(cluster->nodes[1].group), 0);
	cluster_attach_all(cluster);
	free(drop);
	cluster_free(cluster);
}

Test(group_lost, a_worker_that_closes_it_drops_it_on_its_rank)
{
	struct cluster *cluster = loaded(2);
	come_back(cluster, 1);
	struct test_call *close = test_call(0);
	worker_close(cluster->nodes[0].worker, &close->call);
	cluster_run(cluster);
	assert_answer(close, 0);
	cr_assert_eq(cluster->nodes[0].dropped, 1);
	cr_assert_eq(group_model_count(cluster->nodes[0].group), 0);
	cluster_advance(cluster, 3000);
	cluster_attach_all(cluster);
	free(close);
	cluster_free(cluster);
}

Test(group_lost, a_seal_of_the_coordinator_that_is_refused_when_it_asks_again_is_ended_once)
{
	struct cluster *cluster = loaded(2);
	cluster_stop(cluster, 0);
	cluster_advance(cluster, 2000);
	cluster_start(cluster, 0);
	cluster_attach(cluster, 0, NULL); /* before the group is formed: the first question goes out with a heartbeat */
	cluster_advance(cluster, 3000);
	assert_answer(&cluster->nodes[0].attach, FSDP_E_LOST);
	cluster_free(cluster);
}
