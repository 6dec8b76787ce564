/* Steps: micro-batches, votes, decisions, aborts and what a worker hears of them. */
#include "tests/unit/group/cluster.h"

#include <math.h>
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

static void free_all(struct cluster *cluster, struct test_call **calls, size_t count)
{
	cluster_free(cluster);
	for (size_t i = 0; i < count; i++)
		free(calls[i]);
}

Test(group_step, it_is_applied_when_all_have_voted_and_versions_count_what_was_present)
{
	struct cluster *cluster = loaded(2);
	struct test_call *steps[] = { test_call(0), test_call(0) };
	cluster_reduce(cluster, 1, 1);
	cluster_step(cluster, 0, 0.1, steps[0]);
	cr_assert_eq(steps[0]->answered, 0);
	cr_assert_eq(cluster->nodes[0].absent[0], 1);
	cr_assert_eq(cluster->nodes[0].absent[1], 1);
	cluster_step(cluster, 1, 0.1, steps[1]);
	cr_assert_eq(cluster->nodes[1].absent[0], 1);
	cr_assert_eq(cluster->nodes[1].absent[1], 0);
	for (uint32_t rank = 0; rank < 2; rank++) {
		assert_answer(steps[rank], 0);
		cr_assert_eq(steps[rank]->answer.outcome, STEP_APPLIED);
		cr_assert_eq(steps[rank]->answer.step, 1);
		cr_assert_eq(cluster->nodes[rank].present[0], 0);
		cr_assert_eq(cluster->nodes[rank].present[1], 1);
		cr_assert_eq(group_unit(cluster->nodes[rank].group, 0, 0).version, 1);
		cr_assert_eq(group_unit(cluster->nodes[rank].group, 0, 1).version, 2);
		cr_assert_eq(group_model(cluster->nodes[rank].group, 0).steps_applied, 1);
	}
	free_all(cluster, steps, 2);
}

Test(group_step, one_gradient_that_is_not_finite_skips_it_everywhere)
{
	struct cluster *cluster = loaded(2);
	struct test_call *steps[] = { test_call(0), test_call(0) };
	cluster->nodes[1].not_finite = true;
	cluster_reduce(cluster, 0, 0);
	cluster_step(cluster, 0, 0.1, steps[0]);
	cluster_step(cluster, 1, 0.1, steps[1]);
	for (uint32_t rank = 0; rank < 2; rank++) {
		assert_answer(steps[rank], 0);
		cr_assert_eq(steps[rank]->answer.outcome, STEP_SKIPPED);
		cr_assert_eq(group_unit(cluster->nodes[rank].group, 0, 0).version, 1);
		cr_assert_eq(group_model(cluster->nodes[rank].group, 0).steps_skipped, 1);
	}
	free_all(cluster, steps, 2);
}

Test(group_step, options_that_differ_abort_it_naming_both_ranks)
{
	struct cluster *cluster = loaded(3);
	struct test_call *steps[] = {
		test_call(0), test_call(0), test_call(0), test_call(0), test_call(0), test_call(0)
	};
	cluster_step(cluster, 0, 0.1, steps[0]);
	cluster_step(cluster, 1, 0.2, steps[1]);
	cluster_step(cluster, 2, 0.1, steps[2]);
	for (uint32_t rank = 0; rank < 3; rank++) {
		assert_answer(steps[rank], FSDP_E_MISMATCH);
		assert_has(steps[rank]->text, "step 0: rank 0 passed learning_rate 0.1, rank 1 0.2");
		cr_assert_eq(steps[rank]->answer.attempt, 1);
		cr_assert_eq(cluster->nodes[rank].aborted, 1);
	}
	for (uint32_t rank = 0; rank < 3; rank++)
		cluster_step(cluster, rank, 0.1, steps[3 + rank]);
	for (uint32_t rank = 0; rank < 3; rank++)
		assert_answer(steps[3 + rank], 0);
	free_all(cluster, steps, 6);
}

Test(group_step, kinds_of_commit_that_differ_abort_it)
{
	struct cluster *cluster = loaded(2);
	struct test_call *steps[] = { test_call(0), test_call(0) };
	cluster_step(cluster, 0, 0.1, steps[0]);
	worker_step(cluster->nodes[1].worker, COMMIT_STAGING, NULL, NULL, NULL, NULL, &steps[1]->call);
	cluster_run(cluster);
	assert_answer(steps[0], FSDP_E_MISMATCH);
	assert_answer(steps[1], FSDP_E_MISMATCH);
	assert_has(steps[1]->text, "rank 0 commits the optimizer, rank 1 the staging copy");
	free_all(cluster, steps, 2);
}

Test(group_step, a_commit_from_staging_returns_when_it_was_applied_and_steps_every_unit)
{
	struct cluster *cluster = loaded(2);
	struct test_call *steps[] = { test_call(0), test_call(0) };
	cluster->nodes[0].hold_applied = true;
	cluster->nodes[0].not_finite = true;
	for (uint32_t rank = 0; rank < 2; rank++)
		worker_step(cluster->nodes[rank].worker, COMMIT_STAGING, NULL, NULL, NULL, NULL, &steps[rank]->call);
	cluster_run(cluster);
	assert_answer(steps[1], 0);
	cr_assert_eq(steps[0]->answered, 0);
	cr_assert_eq(group_unit(cluster->nodes[0].group, 0, 1).version, 2);
	cr_assert_str_eq(group_model(cluster->nodes[0].group, 0).phase, "applying");
	cluster_held_go(cluster, 0);
	assert_answer(steps[0], 0);
	cr_assert_eq(steps[0]->answer.outcome, STEP_APPLIED);
	free_all(cluster, steps, 2);
}

Test(group_step, options_are_checked_before_anything_is_asked)
{
	struct cluster *cluster = loaded(1);
	struct test_call *calls[] = { test_call(0), test_call(0) };
	cluster_step(cluster, 0, (double)NAN, calls[0]);
	assert_answer(calls[0], FSDP_E_INVALID);
	worker_step(cluster->nodes[0].worker, COMMIT_OPTIMIZER, NULL, NULL, NULL, NULL, &calls[1]->call);
	assert_answer(calls[1], FSDP_E_INVALID);
	free_all(cluster, calls, 2);
	cluster = cluster_new(1);
	cluster->optimizer = OPTIMIZER_NONE;
	cluster_form(cluster);
	cluster_attach_all(cluster);
	cluster_load_all(cluster);
	calls[0] = test_call(0);
	cluster_step(cluster, 0, 0.1, calls[0]);
	assert_answer(calls[0], FSDP_E_STATE);
	free_all(cluster, calls, 1);
}

Test(group_step, micro_batches_that_count_add_to_the_weight)
{
	struct cluster *cluster = loaded(1);
	struct test_call *calls[] = {
		test_call(0), test_call(0), test_call(0), test_call(0), test_call(0), test_call(0)
	};
	struct worker *worker = cluster->nodes[0].worker;
	cluster_reduce(cluster, 0, 0);
	worker_reduce(worker, 0, &calls[0]->call);
	assert_answer(calls[0], FSDP_E_STATE);
	worker_next_micro_batch(worker, &calls[1]->call);
	assert_answer(calls[1], 0);
	cr_assert_eq(calls[1]->answer.micro_batch, 1);
	cr_assert_eq(cluster->nodes[0].absent[0], 0);
	worker_next_micro_batch(worker, &calls[2]->call);
	cluster_reduce(cluster, 0, 1);
	worker_sync(worker, &calls[3]->call);
	cluster_run(cluster);
	assert_answer(calls[3], 0);
	cr_assert_float_eq(cluster->nodes[0].weight, 2.0, 0);
	worker_grad(worker, 0, &calls[4]->call);
	assert_answer(calls[4], FSDP_E_STATE);
	cluster_step(cluster, 0, 0.1, calls[5]);
	assert_answer(calls[5], 0);
	cr_assert_eq(group_unit(cluster->nodes[0].group, 0, 0).version, 2);
	free_all(cluster, calls, 6);
}

static void weigh(struct cluster *cluster, uint32_t rank, double weight, int code)
{
	struct test_call *call = test_call(0);
	worker_weight(cluster->nodes[rank].worker, weight, &call->call);
	assert_answer(call, code);
	free(call);
}

Test(group_step, a_weight_is_of_one_micro_batch_and_set_before_its_first_reduce)
{
	struct cluster *cluster = loaded(1);
	struct test_call *calls[] = { test_call(0), test_call(0), test_call(0), test_call(0), test_call(0) };
	struct worker *worker = cluster->nodes[0].worker;
	weigh(cluster, 0, -1, FSDP_E_INVALID);
	weigh(cluster, 0, (double)INFINITY, FSDP_E_INVALID);
	weigh(cluster, 0, 1e39, FSDP_E_INVALID);
	weigh(cluster, 0, 2, 0);
	weigh(cluster, 0, 3.5, 0);
	cluster_reduce(cluster, 0, 0);
	cr_assert_eq(cluster->nodes[0].handed_weight, 3.5);
	weigh(cluster, 0, 2, FSDP_E_STATE);
	worker_next_micro_batch(worker, &calls[0]->call);
	cluster_reduce(cluster, 0, 0);
	cr_assert_eq(cluster->nodes[0].handed_weight, 1);
	worker_next_micro_batch(worker, &calls[1]->call);
	weigh(cluster, 0, 100, 0); /* nothing is reduced in it */
	worker_next_micro_batch(worker, &calls[2]->call);
	weigh(cluster, 0, 0, 0);
	cluster_reduce(cluster, 0, 1);
	worker_sync(worker, &calls[3]->call);
	cluster_run(cluster);
	assert_answer(calls[3], 0);
	cr_assert_eq(cluster->nodes[0].weight, 4.5);
	cr_assert_eq(cluster->nodes[0].absent[1], 1);
	weigh(cluster, 0, 1, FSDP_E_STATE);
	cluster_step(cluster, 0, 0.1, calls[4]);
	assert_answer(calls[4], 0);
	cr_assert_eq(cluster->nodes[0].present[0], 1);
	cr_assert_eq(cluster->nodes[0].present[1], 0);
	free_all(cluster, calls, 5);
}

Test(group_step, weights_that_sum_to_0_skip_it_everywhere)
{
	struct cluster *cluster = loaded(2);
	struct test_call *steps[] = { test_call(0), test_call(0), test_call(0), test_call(0) };
	for (uint32_t rank = 0; rank < 2; rank++) {
		weigh(cluster, rank, rank ? 1e-60 : 0, 0);
		cluster_reduce(cluster, rank, 0);
		cluster_step(cluster, rank, 0.1, steps[rank]);
	}
	for (uint32_t rank = 0; rank < 2; rank++) {
		assert_answer(steps[rank], 0);
		cr_assert_eq(steps[rank]->answer.outcome, STEP_SKIPPED);
		cr_assert_eq(steps[rank]->answer.step, 1);
		cr_assert_eq(group_unit(cluster->nodes[rank].group, 0, 0).version, 1);
		cr_assert_eq(group_model(cluster->nodes[rank].group, 0).steps_skipped, 1);
		assert_has(cluster_notice(&cluster->nodes[rank], NOTICE_STEP_COMMITTED), "its weights sum to 0");
		cluster_reduce(cluster, rank, 0); /* of weight 1 again */
		cluster_step(cluster, rank, 0.1, steps[2 + rank]);
	}
	for (uint32_t rank = 0; rank < 2; rank++)
		cr_assert_eq(steps[2 + rank]->answer.outcome, STEP_APPLIED);
	free_all(cluster, steps, 4);
}

Test(group_step, a_successor_begins_with_weight_1)
{
	struct cluster *cluster = loaded(1);
	weigh(cluster, 0, 7, 0);
	worker_detach(cluster->nodes[0].worker);
	cluster_attach(cluster, 0, NULL);
	cluster_run(cluster);
	cluster_reduce(cluster, 0, 0);
	cr_assert_eq(cluster->nodes[0].handed_weight, 1);
	free_all(cluster, NULL, 0);
}

/* 64 MiB of what every rank keeps of them: 8 KiB each for 65536 units. */
Test(group_step, of_a_model_of_very_many_units_a_step_has_fewer_micro_batches)
{
	struct cluster *cluster = cluster_new(1);
	struct test_call *call = test_call(0);
	cluster->units = 65536;
	struct manifest *manifest = cluster_manifest(cluster, "u", "w", 0);
	cluster->units = 2; /* what the fake engine looks at */
	cluster_form(cluster);
	cluster_attach(cluster, 0, manifest);
	cluster_run(cluster);
	assert_answer(&cluster->nodes[0].attach, 0);
	for (uint32_t i = 0; i < 8191; i++) {
		call->answered = 0;
		worker_next_micro_batch(cluster->nodes[0].worker, &call->call);
		assert_answer(call, 0);
	}
	call->answered = 0;
	worker_next_micro_batch(cluster->nodes[0].worker, &call->call);
	assert_answer(call, FSDP_E_OVERFLOW);
	assert_has(call->text, "at most 8192 micro-batches");
	free_all(cluster, &call, 1);
}

Test(group_step, an_abort_is_told_once_and_slots_stay_until_then)
{
	struct cluster *cluster = loaded(2);
	struct test_call *calls[] = { test_call(0), test_call(0), test_call(0), test_call(0) };
	worker_grad(cluster->nodes[1].worker, 0, &calls[0]->call);
	cluster_reduce(cluster, 0, 0);
	worker_abort(cluster->nodes[0].worker, &calls[1]->call);
	cluster_run(cluster);
	assert_answer(calls[1], 0);
	cr_assert_eq(group_model(cluster->nodes[1].group, 0).grad_used, 4096);
	worker_reduce(cluster->nodes[1].worker, 0, &calls[2]->call);
	assert_answer(calls[2], FSDP_E_ABORTED);
	assert_has(calls[2]->text, "aborted by the worker of rank 0");
	cr_assert_eq(calls[2]->answer.attempt, 1);
	cr_assert_eq(cluster->nodes[1].handed_count, 0);
	cr_assert_eq(group_model(cluster->nodes[1].group, 0).grad_used, 0);
	worker_grad(cluster->nodes[1].worker, 0, &calls[3]->call);
	assert_answer(calls[3], 0);
	free(calls[3]);
	calls[3] = test_call(0);
	worker_grad(cluster->nodes[0].worker, 0, &calls[3]->call); /* it asked, so it knows */
	assert_answer(calls[3], 0);
	free_all(cluster, calls, 4);
}

Test(group_step, decisions_that_were_lost_are_told_again)
{
	struct cluster *cluster = loaded(2);
	struct test_call *calls[] = { test_call(0), test_call(0), test_call(0), test_call(0) };
	cluster_step(cluster, 1, 0.1, calls[1]);
	cluster->cut[0][1] = true;
	cluster_step(cluster, 0, 0.1, calls[0]);
	cluster_advance(cluster, 500);
	assert_answer(calls[0], 0);
	cr_assert_eq(calls[1]->answered, 0);
	group_abort_step(cluster->nodes[0].group, "m", &calls[2]->call); /* of the next step: heard after the commit */
	cluster_run(cluster);
	assert_answer(calls[2], 0);
	cluster->cut[0][1] = false;
	cluster_advance(cluster, 1000);
	assert_answer(calls[1], 0);
	cr_assert_eq(cluster->nodes[1].applied, 1);
	cr_assert_eq(group_model(cluster->nodes[1].group, 0).attempt, 1);
	worker_grad(cluster->nodes[1].worker, 0, &calls[3]->call);
	assert_answer(calls[3], FSDP_E_ABORTED);
	free_all(cluster, calls, 4);
}

Test(group_step, who_attaches_after_a_vote_waits_for_the_decision)
{
	struct cluster *cluster = loaded(2);
	struct test_call *calls[] = { test_call(0), test_call(0) };
	cluster->nodes[1].closed = true; /* rank 0's reduction is whole without rank 1's call */
	cluster_step(cluster, 0, 0.1, calls[0]);
	cr_assert_str_eq(group_model(cluster->nodes[0].group, 0).phase, "voted");
	worker_detach(cluster->nodes[0].worker);
	cluster_attach(cluster, 0, NULL);
	cr_assert_eq(cluster->nodes[0].attach.answered, 0);
	cluster_step(cluster, 1, 0.1, calls[1]);
	assert_answer(calls[1], 0);
	assert_answer(&cluster->nodes[0].attach, 0);
	cr_assert(cluster->nodes[0].attach.answer.resumed);
	cr_assert_eq(cluster->nodes[0].attach.answer.step, 1);
	cr_assert_eq(calls[0]->answered, 0);
	free_all(cluster, calls, 2);
}

Test(group_step, who_attaches_to_pending_contributions_aborts_the_attempt_first)
{
	struct cluster *cluster = loaded(2);
	struct test_call *calls[] = { test_call(0), test_call(0) };
	cluster_reduce(cluster, 1, 0);
	worker_detach(cluster->nodes[1].worker);
	cluster_attach(cluster, 1, NULL);
	cluster_run(cluster);
	assert_answer(&cluster->nodes[1].attach, 0);
	cr_assert_eq(cluster->nodes[1].attach.answer.attempt, 1);
	worker_grad(cluster->nodes[1].worker, 0, &calls[0]->call);
	assert_answer(calls[0], 0);
	worker_grad(cluster->nodes[0].worker, 0, &calls[1]->call);
	assert_answer(calls[1], FSDP_E_ABORTED);
	assert_has(calls[1]->text, "the worker of rank 1 was replaced");
	free_all(cluster, calls, 2);
}

static struct buffer *state_of(const struct cluster *cluster, uint32_t rank)
{
	struct buffer *state;
	uint64_t step;
	char text[CALL_TEXT_MAX];
	cr_assert_eq(worker_state(cluster->nodes[rank].worker, &state, &step, text), 0);
	return state;
}

static void step_with_state(struct cluster *cluster, uint32_t rank, char letter, struct test_call *call)
{
	const struct optimizer_options options = { .learning_rate = 0.1 };
	struct buffer *state;
	cr_assert_eq(buffer_new_heap(1, &state), 0);
	*(char *)buffer_data(state) = letter;
	worker_step(cluster->nodes[rank].worker, COMMIT_OPTIMIZER, &options, NULL, NULL, state, &call->call);
	buffer_unref(state); /* the group has its own reference, where it needs one */
	cluster_run(cluster);
}

Test(group_step, groups_that_differ_end_the_attempt_and_the_engine_gets_those_that_are_agreed)
{
	struct cluster *cluster = loaded(2);
	struct test_call *steps[] = { test_call(0), test_call(0), test_call(0), test_call(0) };
	struct optimizer_groups one = { .count = 1, .groups = { 3 }, .options = { { .learning_rate = 0.5 } } };
	struct optimizer_groups other = { .count = 2,
					  .groups = { 2, 3 },
					  .options = { { .learning_rate = 0.1 }, { .learning_rate = 0.25 } } };
	cluster->groups = &one;
	cluster_step(cluster, 0, 0.1, steps[0]);
	cluster->groups = &other;
	cluster_step(cluster, 1, 0.1, steps[1]);
	assert_answer(steps[0], FSDP_E_MISMATCH);
	assert_has(steps[0]->text, "rank 0 passed learning_rate 0.5 for group 3, rank 1 0.25");
	assert_answer(steps[1], FSDP_E_MISMATCH);
	other.options[1].learning_rate = 0.5; /* and group 2 has no other numbers than the step */
	cluster_step(cluster, 1, 0.1, steps[3]);
	cluster->groups = &one;
	cluster_step(cluster, 0, 0.1, steps[2]);
	for (uint32_t rank = 0; rank < 2; rank++) {
		assert_answer(steps[2 + rank], 0);
		cr_assert_eq(cluster->nodes[rank].groups.count, 1);
		cr_assert_eq(cluster->nodes[rank].groups.groups[0], 3);
		cr_assert_eq(cluster->nodes[rank].groups.options[0].learning_rate, 0.5);
		free(steps[rank]);
		free(steps[2 + rank]);
	}
	cluster_free(cluster);
}

Test(group_step, the_state_is_kept_when_the_step_commits_and_is_each_rank_s_own)
{
	struct cluster *cluster = loaded(2);
	struct test_call *steps[] = { test_call(0), test_call(0), test_call(0), test_call(0), test_call(0) };
	step_with_state(cluster, 0, 'a', steps[0]);
	cr_assert_null(state_of(cluster, 0));
	step_with_state(cluster, 1, 'b', steps[1]);
	cr_assert_eq(*(char *)buffer_data(state_of(cluster, 0)), 'a');
	cr_assert_eq(*(char *)buffer_data(state_of(cluster, 1)), 'b');
	struct test_call *abort = test_call(0);
	step_with_state(cluster, 0, 'c', steps[2]);
	worker_abort(cluster->nodes[1].worker, &abort->call);
	cluster_run(cluster);
	assert_answer(steps[2], FSDP_E_ABORTED);
	cr_assert_eq(*(char *)buffer_data(state_of(cluster, 0)), 'a');
	cluster_step(cluster, 0, 0.1, steps[3]);
	step_with_state(cluster, 1, 'd', steps[4]);
	assert_answer(steps[3], 0);
	cr_assert_null(state_of(cluster, 0));
	cr_assert_eq(*(char *)buffer_data(state_of(cluster, 1)), 'd');
	free(abort);
	free_all(cluster, steps, 5);
}

Test(group_step, the_state_of_a_vote_whose_worker_died_is_its_successor_s_after_the_decision)
{
	struct cluster *cluster = loaded(2);
	struct test_call *steps[] = { test_call(0), test_call(0) };
	cluster->nodes[1].no_votes = true;
	step_with_state(cluster, 0, 'a', steps[0]);
	step_with_state(cluster, 1, 'b', steps[1]);
	worker_detach(cluster->nodes[0].worker);
	cluster->nodes[0].worker = NULL;
	cluster_attach(cluster, 0, NULL);
	cr_assert_eq(cluster->nodes[0].attach.answered, 0, "it waits for the decision");
	struct report *report = report_new(REPORT_REDUCED);
	report->finite = true;
	cluster_report(&cluster->nodes[1], report);
	cluster_run(cluster);
	assert_answer(&cluster->nodes[0].attach, 0);
	cr_assert_eq(*(char *)buffer_data(state_of(cluster, 0)), 'a');
	free_all(cluster, steps, 2);
}
