/* Deadlines and peers that are gone: who is named, what fails, what goes on. */
#include "tests/unit/group/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cluster *loaded(uint32_t world_size)
{
	struct cluster *cluster = cluster_new(world_size);
	cluster->elements = 6; /* every rank of three has some */
	cluster_form(cluster);
	cluster_attach_all(cluster);
	cluster_load_all(cluster);
	return cluster;
}

static void free_all(struct cluster *cluster, struct test_call **calls, size_t count)
{
	cluster_free(cluster);
	for (size_t i = 0; i < count; i++)
		free(calls[i]);
}

Test(group_deadline, a_rank_that_sleeps_is_named_at_half_time_and_in_the_error_of_all)
{
	struct cluster *cluster = loaded(3);
	struct test_call *calls[] = { test_call(2000), test_call(2000), test_call(0), test_call(0) };
	cluster_step(cluster, 0, 0.1, calls[0]);
	cluster_step(cluster, 1, 0.1, calls[1]);
	cluster_advance(cluster, 1000);
	for (uint32_t rank = 0; rank < 2; rank++)
		assert_has(cluster_notice(&cluster->nodes[rank], NOTICE_CALL_SLOW),
			   "1.0 s of 2.0 s passed: unit \"u0\", reduce-scatter, waiting for rank 2");
	struct wait_status wait;
	cr_assert_eq(group_waits(cluster->nodes[0].group, &wait, 1), 1);
	cr_assert_str_eq(wait.op, "reduce-scatter");
	cr_assert_str_eq(wait.unit, "u0");
	cr_assert_eq(wait.ranks[0], 2);
	cr_assert_eq(wait.waiting_ms, 1000);
	cluster_advance(cluster, 1000);
	for (uint32_t rank = 0; rank < 2; rank++) {
		assert_answer(calls[rank], FSDP_E_TIMEOUT);
		cr_assert_str_eq(calls[rank]->text, "model \"m\" step 0: deadline of 2.0 s passed: unit \"u0\", "
						    "reduce-scatter, waiting for rank 2");
	}
	cluster_step(cluster, 2, 0.1, calls[2]);
	assert_answer(calls[2], FSDP_E_ABORTED);
	cr_assert_str_eq(calls[2]->text, calls[0]->text);
	worker_grad(cluster->nodes[2].worker, 0, &calls[3]->call);
	assert_answer(calls[3], 0);
	free_all(cluster, calls, 4);
}

Test(group_deadline, the_longest_deadline_is_not_half_over_at_once)
{
	struct cluster *cluster = loaded(2);
	struct test_call *calls[] = { test_call(UINT64_MAX), test_call(0) };
	cluster_step(cluster, 0, 0.1, calls[0]);
	cluster_advance(cluster, 1000);
	cr_assert_null(cluster_notice(&cluster->nodes[0], NOTICE_CALL_SLOW));
	cluster_step(cluster, 1, 0.1, calls[1]);
	assert_answer(calls[0], 0);
	free_all(cluster, calls, 2);
}

Test(group_deadline, who_has_not_voted_gives_up_alone_and_asks_until_it_hears)
{
	struct cluster *cluster = loaded(2);
	struct test_call *calls[] = { test_call(1000), test_call(0), test_call(0), test_call(0) };
	cluster_step(cluster, 1, 0.1, calls[0]);
	cluster_mute(cluster, 1, true);
	cluster_advance(cluster, 1875);
	cr_assert_eq(calls[0]->answered, 0);
	cluster_advance(cluster, 125);
	assert_answer(calls[0], FSDP_E_TIMEOUT);
	worker_grad(cluster->nodes[1].worker, 0, &calls[1]->call);
	assert_answer(calls[1], FSDP_E_TIMEOUT);
	cluster_mute(cluster, 1, false);
	cluster_advance(cluster, 500);
	cr_assert_eq(group_model(cluster->nodes[0].group, 0).attempt, 1);
	cr_assert_eq(group_model(cluster->nodes[1].group, 0).attempt, 1);
	worker_grad(cluster->nodes[1].worker, 0, &calls[2]->call); /* it was told already */
	assert_answer(calls[2], 0);
	worker_grad(cluster->nodes[0].worker, 0, &calls[3]->call);
	assert_answer(calls[3], FSDP_E_ABORTED);
	free_all(cluster, calls, 4);
}

Test(group_deadline, who_has_voted_is_in_doubt_and_learns_the_answer_from_a_later_call)
{
	struct cluster *cluster = loaded(2);
	struct test_call *calls[] = { test_call(1000), test_call(0), test_call(0), test_call(0) };
	cluster->cut[0][1] = true;
	cluster_step(cluster, 0, 0.1, calls[1]);
	cluster_step(cluster, 1, 0.1, calls[0]);
	assert_answer(calls[1], 0);
	cluster_advance(cluster, 2000);
	assert_answer(calls[0], FSDP_E_IN_DOUBT);
	assert_has(calls[0]->text, "rank 0");
	cluster->cut[0][1] = false;
	worker_step(cluster->nodes[1].worker, COMMIT_OPTIMIZER, NULL, NULL, NULL, NULL, &calls[2]->call);
	cr_assert_eq(calls[2]->answered, 0);
	cluster_advance(cluster, 500);
	assert_answer(calls[2], 0);
	cr_assert_eq(calls[2]->answer.step, 1);
	free_all(cluster, calls, 4);
}

Test(group_deadline, a_decision_that_comes_while_nobody_waits_is_kept_for_the_next_step_call)
{
	struct cluster *cluster = loaded(2);
	struct test_call *calls[] = { test_call(1000), test_call(0), test_call(0) };
	cluster->cut[0][1] = true;
	cluster_step(cluster, 0, 0.1, calls[1]);
	cluster_step(cluster, 1, 0.1, calls[0]);
	cluster_advance(cluster, 2000);
	assert_answer(calls[0], FSDP_E_IN_DOUBT);
	cluster->cut[0][1] = false;
	cluster_advance(cluster, 500);
	cluster_step(cluster, 1, 0.1, calls[2]);
	assert_answer(calls[2], 0);
	cr_assert_eq(calls[2]->answer.step, 1);
	cr_assert_eq(group_model(cluster->nodes[1].group, 0).step, 1);
	free_all(cluster, calls, 3);
}

Test(group_deadline, a_vote_that_lacks_a_rank_says_so)
{
	struct cluster *cluster = loaded(2);
	struct test_call *calls[] = { test_call(2000), test_call(0) };
	worker_sync(cluster->nodes[0].worker, &calls[1]->call);
	cluster_step(cluster, 1, 0.1, calls[0]);
	assert_answer(calls[1], 0);
	cluster_advance(cluster, 2000);
	assert_answer(calls[0], FSDP_E_TIMEOUT);
	cr_assert_str_eq(calls[0]->text, "model \"m\" step 0: deadline of 2.0 s passed: vote, waiting for rank 0");
	free_all(cluster, calls, 2);
}

Test(group_deadline, an_unshard_fails_alone_and_names_its_unit)
{
	struct cluster *cluster = loaded(2);
	struct test_call *calls[] = { test_call(1000), test_call(0) };
	cluster->nodes[0].hold_gathers = true;
	worker_unshard(cluster->nodes[0].worker, 0, &calls[0]->call);
	cluster_advance(cluster, 1000);
	assert_answer(calls[0], FSDP_E_TIMEOUT);
	assert_has(calls[0]->text, "deadline of 1.0 s passed: unit \"u0\", all-gather, waiting for rank 1");
	cr_assert_eq(group_model(cluster->nodes[0].group, 0).attempt, 0);
	cluster_held_go(cluster, 0);
	worker_unshard(cluster->nodes[0].worker, 0, &calls[1]->call);
	assert_answer(calls[1], 0);
	cr_assert_eq(cluster->nodes[0].gathers, 1);
	free_all(cluster, calls, 2);
}

Test(group_deadline, a_lost_rank_fails_what_needs_it_and_nothing_else)
{
	struct cluster *cluster = loaded(3);
	struct test_call *calls[] = { test_call(0), test_call(0), test_call(0), test_call(0),
				      test_call(0), test_call(0), test_call(0) };
	worker_unshard(cluster->nodes[1].worker, 0, &calls[0]->call);
	cluster_run(cluster);
	assert_answer(calls[0], 0);
	cluster->nodes[1].hold_gathers = true;
	worker_unshard(cluster->nodes[1].worker, 1, &calls[1]->call);
	cluster_step(cluster, 1, 0.1, calls[2]);
	cluster_mute(cluster, 2, true);
	cluster_advance(cluster, 5000);
	assert_answer(calls[1], FSDP_E_PEER_LOST);
	assert_has(calls[1]->text, "unit \"u1\", all-gather: rank 2 is lost");
	assert_answer(calls[2], FSDP_E_PEER_LOST);
	assert_has(calls[2]->text, "rank 2 is lost");
	worker_unshard(cluster->nodes[1].worker, 0, &calls[3]->call);
	assert_answer(calls[3], 0);
	cluster_step(cluster, 0, 0.1, calls[4]); /* is told of the abort, once */
	assert_answer(calls[4], FSDP_E_ABORTED);
	cluster_step(cluster, 0, 0.1, calls[5]);
	assert_answer(calls[5], FSDP_E_PEER_LOST);
	cluster_mute(cluster, 2, false);
	cluster_advance(cluster, 1000);
	free(calls[5]);
	free(calls[4]);
	calls[4] = test_call(0);
	calls[5] = test_call(0);
	for (uint32_t rank = 1; rank < 3; rank++) { /* the attempt that ended with rank 0's call */
		cluster_step(cluster, rank, 0.1, calls[6]);
		assert_answer(calls[6], FSDP_E_ABORTED);
		free(calls[6]);
		calls[6] = test_call(0);
	}
	cluster_step(cluster, 0, 0.1, calls[4]);
	cluster_step(cluster, 1, 0.1, calls[5]);
	cluster_step(cluster, 2, 0.1, calls[6]);
	for (int i = 4; i < 7; i++)
		assert_answer(calls[i], 0);
	free_all(cluster, calls, 7);
}

Test(group_deadline, a_lost_coordinator_fails_who_has_not_voted_and_leaves_who_has_in_doubt)
{
	struct cluster *cluster = loaded(3);
	struct test_call *calls[] = { test_call(0), test_call(0), test_call(0), test_call(0) };
	worker_sync(cluster->nodes[0].worker, &calls[0]->call);
	worker_sync(cluster->nodes[2].worker, &calls[1]->call);
	cluster_step(cluster, 1, 0.1, calls[2]);
	assert_answer(calls[1], 0);
	cr_assert_str_eq(group_model(cluster->nodes[1].group, 0).phase, "voted");
	cluster_mute(cluster, 0, true);
	cluster_advance(cluster, 5000);
	assert_answer(calls[2], FSDP_E_IN_DOUBT);
	cluster_step(cluster, 2, 0.1, calls[3]);
	assert_answer(calls[3], FSDP_E_PEER_LOST);
	assert_has(calls[3]->text, "rank 0 is lost");
	free_all(cluster, calls, 4);
}

Test(group_deadline, a_call_that_was_cancelled_or_detached_is_not_answered)
{
	struct cluster *cluster = loaded(2);
	struct test_call *calls[] = { test_call(0), test_call(0) };
	cluster_step(cluster, 0, 0.1, calls[0]);
	call_cancel(cluster->nodes[0].group, &calls[0]->call);
	worker_sync(cluster->nodes[1].worker, &calls[1]->call);
	worker_detach(cluster->nodes[1].worker);
	cluster_advance(cluster, 12000);
	cr_assert_eq(calls[0]->answered, 0);
	cr_assert_eq(calls[1]->answered, 0);
	free_all(cluster, calls, 2);
}

Test(group_deadline, what_waits_when_the_daemon_leaves_is_told)
{
	struct cluster *cluster = loaded(2);
	struct test_call *calls[] = { test_call(0) };
	cluster_step(cluster, 0, 0.1, calls[0]);
	cluster_stop(cluster, 0);
	assert_answer(calls[0], FSDP_E_STOPPED);
	free_all(cluster, calls, 1);
}

Test(group_deadline, an_owed_step_tells_of_an_abort_of_the_next_too)
{
	struct cluster *cluster = loaded(2);
	struct test_call *calls[] = { test_call(1000), test_call(0), test_call(0), test_call(0), test_call(0) };
	cluster->cut[0][1] = true;
	cluster_step(cluster, 0, 0.1, calls[1]);
	cluster_step(cluster, 1, 0.1, calls[0]);
	cluster_advance(cluster, 2000);
	assert_answer(calls[0], FSDP_E_IN_DOUBT);
	group_abort_step(cluster->nodes[0].group, "m", &calls[2]->call);
	cluster->cut[0][1] = false;
	cluster_advance(cluster, 1000);
	cluster_step(cluster, 1, 0.1, calls[3]);
	assert_answer(calls[3], 0);
	cr_assert_eq(calls[3]->answer.step, 1);
	cr_assert_eq(calls[3]->answer.attempt, 1);
	worker_grad(cluster->nodes[1].worker, 0, &calls[4]->call);
	assert_answer(calls[4], 0);
	free_all(cluster, calls, 5);
}
