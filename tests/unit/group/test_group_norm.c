/* The norm that an optimizer outside asks for. */
#include "tests/unit/group/cluster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void sync_all(struct cluster *cluster)
{
	for (uint32_t rank = 0; rank < cluster->world_size; rank++) {
		struct test_call *sync = test_call(0);
		worker_sync(cluster->nodes[rank].worker, &sync->call);
		cluster_run(cluster);
		if (rank + 1 < cluster->world_size)
			call_cancel(cluster->nodes[rank].group, &sync->call);
		free(sync);
	}
}

static struct cluster *synced(uint32_t world_size)
{
	static const double values[] = { 3, 4, 12 };
	struct cluster *cluster = cluster_new(world_size);
	cluster_form(cluster);
	cluster_attach_all(cluster);
	cluster_load_all(cluster);
	for (uint32_t rank = 0; rank < world_size; rank++) {
		cluster->nodes[rank].squares = values[rank] * values[rank];
		cluster->nodes[rank].largest = values[rank];
	}
	sync_all(cluster);
	return cluster;
}

static struct test_call *ask(struct cluster *cluster, uint32_t rank, enum norm_kind kind)
{
	struct test_call *call = test_call(0);
	worker_norm(cluster->nodes[rank].worker, kind, &call->call);
	cluster_run(cluster);
	return call;
}

static void tells(struct test_call *call, double norm, bool finite)
{
	assert_answer(call, 0);
	cr_assert_eq(call->answer.norm, norm);
	cr_assert_eq(call->answer.finite, finite);
	free(call);
}

Test(group_norm, all_ranks_get_the_same_whatever_kind_each_asks_for)
{
	struct cluster *cluster = synced(3);
	struct test_call *calls[] = { ask(cluster, 0, NORM_2), ask(cluster, 1, NORM_INF) };
	cr_assert_eq(calls[0]->answered, 0);
	tells(ask(cluster, 2, NORM_2), 13, true);
	tells(calls[0], 13, true);
	tells(calls[1], 12, true);
	tells(ask(cluster, 1, NORM_2), 13, true); /* again, at once */
	cr_assert_eq(cluster->nodes[1].measured, 1);
	cluster_free(cluster);
}

Test(group_norm, what_is_not_finite_is_told_and_the_next_step_begins_anew)
{
	struct cluster *cluster = synced(2);
	struct test_call *steps[] = { test_call(0), test_call(0) };
	cluster->nodes[1].not_finite = true;
	cluster->nodes[1].squares = (double)INFINITY;
	cluster->nodes[1].largest = (double)NAN;
	struct test_call *first = ask(cluster, 0, NORM_2);
	struct test_call *second = ask(cluster, 1, NORM_INF);
	tells(first, (double)INFINITY, false);
	assert_answer(second, 0);
	cr_assert(isnan(second->answer.norm) && !second->answer.finite);
	free(second);
	for (uint32_t rank = 0; rank < 2; rank++)
		cluster_step(cluster, rank, 0.1, steps[rank]);
	assert_answer(steps[0], 0);
	first = ask(cluster, 0, NORM_2);
	assert_answer(first, FSDP_E_STATE);
	assert_has(first->text, "sync first");
	free(first);
	cluster->nodes[1].squares = cluster->nodes[1].largest = 0;
	cluster->nodes[1].not_finite = false;
	sync_all(cluster);
	first = ask(cluster, 0, NORM_2);
	tells(ask(cluster, 1, NORM_2), 3, true);
	tells(first, 3, true);
	for (size_t i = 0; i < 2; i++)
		free(steps[i]);
	cluster_free(cluster);
}

Test(group_norm, messages_that_were_lost_are_repeated)
{
	struct cluster *cluster = synced(2);
	cluster->cut[1][0] = true;
	struct test_call *calls[] = { ask(cluster, 0, NORM_2), ask(cluster, 1, NORM_2) };
	cluster->cut[1][0] = false;
	cluster->cut[0][1] = true;
	cluster_advance(cluster, 600);
	tells(calls[0], 5, true);
	cr_assert_eq(calls[1]->answered, 0);
	cluster->cut[0][1] = false;
	cluster_advance(cluster, 600);
	tells(calls[1], 5, true);
	cluster_free(cluster);
}

Test(group_norm, who_is_missing_is_named_and_the_step_aborted)
{
	struct cluster *cluster = synced(3);
	struct test_call *calls[] = { ask(cluster, 1, NORM_2), ask(cluster, 2, NORM_2) };
	cluster_advance(cluster, 11000);
	for (size_t i = 0; i < 2; i++) {
		assert_answer(calls[i], FSDP_E_TIMEOUT);
		assert_has(calls[i]->text, "norm, waiting for rank 0");
		free(calls[i]);
	}
	cr_assert_eq(group_model(cluster->nodes[0].group, 0).attempt, 1);
	cluster_free(cluster);
}

Test(group_norm, a_kind_that_is_none_is_refused)
{
	struct cluster *cluster = synced(1);
	struct test_call *call = ask(cluster, 0, NORM_NONE);
	assert_answer(call, FSDP_E_INVALID);
	free(call);
	cluster_free(cluster);
}
