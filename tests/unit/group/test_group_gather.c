/* The two pools: what is held, what goes, what waits, what is refused. */
#include "tests/unit/group/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cluster *loaded(uint32_t units, uint64_t gather_bytes, uint64_t grad_bytes)
{
	struct cluster *cluster = cluster_new(1);
	cluster->units = units;
	cluster->gather_bytes = gather_bytes;
	cluster->grad_bytes = grad_bytes;
	cluster_form(cluster);
	cluster_attach_all(cluster);
	cluster_load_all(cluster);
	return cluster;
}

static struct test_call *unshard(struct cluster *cluster, uint32_t unit)
{
	struct test_call *call = test_call(0);
	worker_unshard(cluster->nodes[0].worker, unit, &call->call);
	cluster_run(cluster);
	return call;
}

static void step(struct cluster *cluster, uint32_t unit)
{
	struct test_call *call = test_call(0);
	cluster_reduce(cluster, 0, unit);
	cluster_step(cluster, 0, 0.1, call);
	assert_answer(call, 0);
	free(call);
}

Test(group_gather, a_copy_is_kept_for_the_next_unshard)
{
	struct cluster *cluster = loaded(2, 8192, 8192);
	struct test_call *first = unshard(cluster, 0);
	assert_answer(first, 0);
	cr_assert_eq(worker_reshard(cluster->nodes[0].worker, 0), 0);
	cr_assert_eq(worker_reshard(cluster->nodes[0].worker, 0), FSDP_E_STATE);
	struct test_call *again = unshard(cluster, 0);
	cr_assert_eq(again->answer.slot, first->answer.slot);
	cr_assert_eq(cluster->nodes[0].gathers, 1);
	free(first);
	free(again);
	cluster_free(cluster);
}

Test(group_gather, copies_that_nobody_holds_make_room_oldest_first)
{
	struct cluster *cluster = loaded(3, 8192, 8192);
	for (uint32_t unit = 0; unit < 3; unit++) {
		struct test_call *call = unshard(cluster, unit);
		assert_answer(call, 0);
		cr_assert_eq(worker_reshard(cluster->nodes[0].worker, unit), 0);
		free(call);
	}
	cr_assert_not(group_unit(cluster->nodes[0].group, 0, 0).gathered);
	cr_assert(group_unit(cluster->nodes[0].group, 0, 1).gathered);
	cr_assert(group_unit(cluster->nodes[0].group, 0, 2).gathered);
	cluster_free(cluster);
}

Test(group_gather, without_room_it_says_held_wanted_and_budget)
{
	struct cluster *cluster = loaded(2, 4096, 8192);
	struct test_call *first = unshard(cluster, 0);
	cr_assert_eq(worker_unshard_start(cluster->nodes[0].worker, 1), 0, "no room is no error of a hint");
	struct test_call *second = unshard(cluster, 1);
	assert_answer(second, FSDP_E_BUDGET);
	cr_assert_str_eq(second->text, "unit \"u1\" wants 16 bytes of the gather pool: 4096 of 4096 are held: "
				       "reshard another unit first or raise gather-budget");
	cr_assert_eq(worker_reshard(cluster->nodes[0].worker, 0), 0);
	struct test_call *third = unshard(cluster, 1);
	assert_answer(third, 0);
	free(first);
	free(second);
	free(third);
	cluster_free(cluster);
}

Test(group_gather, it_waits_for_a_slot_that_is_filled_for_nobody)
{
	struct cluster *cluster = loaded(2, 4096, 8192);
	cluster->nodes[0].hold_gathers = true;
	cr_assert_eq(worker_unshard_start(cluster->nodes[0].worker, 0), 0);
	struct test_call *call = unshard(cluster, 1);
	cr_assert_eq(call->answered, 0);
	cluster->nodes[0].hold_gathers = false;
	cluster_held_go(cluster, 0);
	assert_answer(call, 0);
	cr_assert_eq(cluster->nodes[0].gathers, 2);
	free(call);
	cluster_free(cluster);
}

Test(group_gather, what_can_never_fit_is_refused_at_once)
{
	struct cluster *cluster = cluster_new(1);
	cluster->elements = 2000;
	cluster->gather_bytes = 4096;
	cluster_form(cluster);
	cluster_attach_all(cluster);
	cluster_load_all(cluster);
	struct test_call *call = unshard(cluster, 0);
	assert_answer(call, FSDP_E_BUDGET);
	free(call);
	cluster_free(cluster);
}

Test(group_gather, what_is_held_keeps_its_version_and_a_new_one_goes_to_another_slot)
{
	struct cluster *cluster = loaded(1, 8192, 8192);
	struct test_call *old = unshard(cluster, 0);
	step(cluster, 0);
	struct test_call *held = unshard(cluster, 0);
	cr_assert_eq(held->answer.version, 1);
	cr_assert_eq(held->answer.slot, old->answer.slot);
	cr_assert_eq(group_unit(cluster->nodes[0].group, 0, 0).held, 2);
	cr_assert_eq(worker_reshard(cluster->nodes[0].worker, 0), 0);
	cr_assert_eq(worker_reshard(cluster->nodes[0].worker, 0), 0);
	struct test_call *fresh = unshard(cluster, 0);
	assert_answer(fresh, 0);
	cr_assert_eq(fresh->answer.version, 2);
	cr_assert_eq(group_model(cluster->nodes[0].group, 0).gather_used, 4096);
	free(old);
	free(held);
	free(fresh);
	cluster_free(cluster);
}

Test(group_gather, a_slot_that_is_filled_for_an_old_version_is_free_when_it_is_full)
{
	struct cluster *cluster = loaded(1, 8192, 8192);
	cluster->nodes[0].hold_gathers = true;
	cr_assert_eq(worker_unshard_start(cluster->nodes[0].worker, 0), 0);
	step(cluster, 0);
	struct test_call *call = unshard(cluster, 0);
	cr_assert_eq(group_model(cluster->nodes[0].group, 0).gather_used, 8192);
	cluster_held_go(cluster, 0);
	assert_answer(call, 0);
	cr_assert_eq(call->answer.version, 2);
	cr_assert_eq(group_model(cluster->nodes[0].group, 0).gather_used, 4096);
	free(call);
	cluster_free(cluster);
}

Test(group_gather, a_worker_that_dies_gives_everything_back)
{
	struct cluster *cluster = loaded(2, 8192, 8192);
	struct test_call *call = unshard(cluster, 0), *grad = test_call(0);
	worker_grad(cluster->nodes[0].worker, 1, &grad->call);
	assert_answer(grad, 0);
	worker_detach(cluster->nodes[0].worker);
	cr_assert_eq(group_unit(cluster->nodes[0].group, 0, 0).held, 0);
	cr_assert_eq(group_model(cluster->nodes[0].group, 0).grad_used, 0);
	free(call);
	free(grad);
	cluster_free(cluster);
}

Test(group_gather, a_gradient_slot_is_the_same_until_reduce_and_waits_for_returned_ones)
{
	struct cluster *cluster = loaded(3, 8192, 8192);
	struct test_call *calls[4] = { test_call(0), test_call(0), test_call(0), test_call(0) };
	struct worker *worker = cluster->nodes[0].worker;
	worker_grad(worker, 0, &calls[0]->call);
	worker_grad(worker, 0, &calls[1]->call);
	cr_assert_eq(calls[1]->answer.slot, calls[0]->answer.slot);
	worker_grad(worker, 1, &calls[2]->call);
	assert_answer(calls[2], 0);
	worker_grad(worker, 2, &calls[3]->call);
	assert_answer(calls[3], FSDP_E_BUDGET);
	assert_has(calls[3]->text, "unit \"u2\" wants 16 bytes of the gradient pool: 8192 of 8192 are held");
	free(calls[2]);
	free(calls[3]);
	calls[2] = test_call(0);
	calls[3] = test_call(0);
	worker_reduce(worker, 0, &calls[2]->call);
	assert_answer(calls[2], 0);
	worker_grad(worker, 2, &calls[3]->call);
	cluster_run(cluster);
	cr_assert_eq(calls[3]->answered, 0);
	struct report *report = report_new(REPORT_RETURNED);
	report->slot = calls[0]->answer.slot;
	cluster_report(&cluster->nodes[0], report);
	cluster_run(cluster);
	assert_answer(calls[3], 0);
	cluster->nodes[0].handed_count = 0;
	for (int i = 0; i < 4; i++)
		free(calls[i]);
	cluster_free(cluster);
}

Test(group_gather, a_shard_is_there_when_the_engine_says_so)
{
	struct cluster *cluster = loaded(1, 8192, 8192);
	struct test_call *now = test_call(0), *later = test_call(0);
	worker_shard(cluster->nodes[0].worker, 0, &now->call);
	assert_answer(now, 0);
	step(cluster, 0);
	worker_shard(cluster->nodes[0].worker, 0, &later->call);
	cr_assert_eq(later->answered, 0);
	struct report *report = report_new(REPORT_PROGRESS);
	report->version = 2;
	cluster_report(&cluster->nodes[0], report);
	cluster_run(cluster);
	assert_answer(later, 0);
	cr_assert_eq(later->answer.version, 2);
	free(now);
	free(later);
	cluster_free(cluster);
}

Test(group_gather, units_are_named_in_the_worker_s_own_order)
{
	struct cluster *cluster = loaded(2, 8192, 8192);
	struct test_call *call = unshard(cluster, 7);
	assert_answer(call, FSDP_E_INVALID);
	cr_assert_eq(worker_reshard(cluster->nodes[0].worker, 2), FSDP_E_INVALID);
	free(call);
	cluster_free(cluster);
}
