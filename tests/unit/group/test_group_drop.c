/* The end of a model: closed by all, or dropped by an operator. */
#include "tests/unit/group/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cluster *sealed(uint32_t world_size)
{
	struct cluster *cluster = cluster_new(world_size);
	cluster_form(cluster);
	cluster_attach_all(cluster);
	return cluster;
}

static void close_one(struct cluster *cluster, uint32_t rank)
{
	struct test_call *call = test_call(0);
	worker_close(cluster->nodes[rank].worker, &call->call);
	assert_answer(call, 0);
	free(call);
	cluster_run(cluster);
}

Test(group_drop, it_goes_when_every_rank_s_worker_closed_it)
{
	struct cluster *cluster = sealed(2);
	close_one(cluster, 0);
	cr_assert_eq(group_model_count(cluster->nodes[0].group), 1);
	close_one(cluster, 1);
	for (uint32_t rank = 0; rank < 2; rank++) {
		cr_assert_eq(cluster->nodes[rank].dropped, 1);
		cr_assert_eq(group_model_count(cluster->nodes[rank].group), 0);
		assert_has(cluster_notice(&cluster->nodes[rank], NOTICE_MODEL_DROPPED), "closed it");
	}
	uint64_t before = cluster->nodes[0].model;
	cluster_attach_all(cluster);
	cr_assert_neq(cluster->nodes[0].model, before, "a number is never used twice");
	cluster_free(cluster);
}

Test(group_drop, a_drop_that_was_not_heard_is_told_to_who_still_lists_the_model)
{
	struct cluster *cluster = sealed(2);
	close_one(cluster, 0);
	cluster->cut[0][1] = true;
	close_one(cluster, 1);
	cr_assert_eq(group_model_count(cluster->nodes[0].group), 0);
	cr_assert_eq(group_model_count(cluster->nodes[1].group), 1);
	cluster->cut[0][1] = false;
	cluster_advance(cluster, 500);
	cr_assert_eq(group_model_count(cluster->nodes[1].group), 0);
	cluster_free(cluster);
}

Test(group_drop, who_attaches_to_a_name_that_is_being_dropped_waits_until_it_is_gone)
{
	struct cluster *cluster = sealed(2);
	cluster->nodes[0].hold_dropped = true;
	close_one(cluster, 0);
	cr_assert_null(group_find_plan(cluster->nodes[0].group, "m"));
	cluster_attach(cluster, 0, NULL);
	cr_assert_eq(cluster->nodes[0].attach.answered, 0);
	close_one(cluster, 1);
	cluster_attach(cluster, 1, NULL);
	cluster_advance(cluster, 1000);
	cr_assert_eq(cluster->nodes[0].attach.answered, 0);
	cluster_held_go(cluster, 0);
	cluster_advance(cluster, 500);
	assert_answer(&cluster->nodes[0].attach, 0);
	assert_answer(&cluster->nodes[1].attach, 0);
	cr_assert_not(cluster->nodes[0].attach.answer.resumed);
	cluster_free(cluster);
}

Test(group_drop, an_operator_drops_what_nobody_is_attached_to)
{
	struct cluster *cluster = sealed(2);
	struct test_call *calls[] = { test_call(0), test_call(0), test_call(0) };
	worker_detach(cluster->nodes[0].worker);
	cluster_advance(cluster, 500);
	group_drop_model(cluster->nodes[0].group, "m", &calls[0]->call);
	cluster_run(cluster);
	assert_answer(calls[0], FSDP_E_BUSY);
	assert_has(calls[0]->text, "rank 1");
	worker_detach(cluster->nodes[1].worker);
	cluster_advance(cluster, 500);
	group_drop_model(cluster->nodes[1].group, "m", &calls[1]->call);
	cluster_run(cluster);
	assert_answer(calls[1], 0);
	cr_assert_eq(group_model_count(cluster->nodes[0].group), 0);
	group_drop_model(cluster->nodes[1].group, "m", &calls[2]->call);
	cluster_run(cluster);
	assert_answer(calls[2], FSDP_E_NOT_FOUND);
	for (int i = 0; i < 3; i++)
		free(calls[i]);
	cluster_free(cluster);
}

Test(group_drop, an_operator_aborts_the_step_of_all)
{
	struct cluster *cluster = sealed(2);
	cluster_load_all(cluster);
	struct test_call *calls[] = { test_call(0), test_call(0), test_call(0) };
	cluster_step(cluster, 0, 0.1, calls[0]);
	group_abort_step(cluster->nodes[1].group, "m", &calls[1]->call);
	cluster_run(cluster);
	assert_answer(calls[1], 0);
	assert_answer(calls[0], FSDP_E_ABORTED);
	assert_has(calls[0]->text, "the operator of rank 1");
	group_abort_step(cluster->nodes[1].group, "x", &calls[2]->call);
	assert_answer(calls[2], FSDP_E_NOT_FOUND);
	for (int i = 0; i < 3; i++)
		free(calls[i]);
	cluster_free(cluster);
}
