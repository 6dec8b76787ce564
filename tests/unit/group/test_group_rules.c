/* What happens to a gradient before the optimizer: norms, clipping, loss scales, and the names of what is not
 * finite. */
#include "tests/unit/group/cluster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct cluster *loaded(uint32_t world_size, struct step_rules rules)
{
	struct cluster *cluster = cluster_new(world_size);
	cluster_form(cluster);
	cluster_attach_all(cluster);
	cluster_load_all(cluster);
	cluster->rules = rules;
	return cluster;
}

/* One step of every rank; gives rank 0's answer, which every rank has. */
static struct answer step_all(struct cluster *cluster, int code, const char *text)
{
	struct test_call *steps[CLUSTER_MAX];
	for (uint32_t rank = 0; rank < cluster->world_size; rank++) {
		steps[rank] = test_call(0);
		cluster_reduce(cluster, rank, 0);
		cluster_step(cluster, rank, 0.1, steps[rank]);
	}
	struct answer first = steps[0]->answer;
	for (uint32_t rank = 0; rank < cluster->world_size; rank++) {
		const struct answer *answer = &steps[rank]->answer;
		assert_answer(steps[rank], code);
		if (text)
			assert_has(steps[rank]->text, text);
		cr_assert_eq(answer->outcome, first.outcome);
		cr_assert_eq(answer->norm, first.norm);
		cr_assert_eq(answer->next_scale, first.next_scale);
		cr_assert_eq(answer->bad_count, first.bad_count);
		cr_assert_arr_eq(answer->bad, first.bad, sizeof(first.bad));
		free(steps[rank]);
	}
	return first;
}

static void shards(struct cluster *cluster, double a, double b, double c)
{
	const double values[] = { a, b, c };
	for (uint32_t rank = 0; rank < cluster->world_size; rank++) {
		cluster->nodes[rank].squares = values[rank] * values[rank];
		cluster->nodes[rank].largest = values[rank];
	}
}

Test(group_rules, the_norm_is_of_all_ranks_and_one_factor_clips_to_it)
{
	struct cluster *cluster = loaded(3, (struct step_rules){ .norm_kind = NORM_2, .max_norm = 6.5 });
	shards(cluster, 3, 4, 12);
	cr_assert_eq(step_all(cluster, 0, NULL).norm, 13);
	for (uint32_t rank = 0; rank < 3; rank++) {
		cr_assert_eq(cluster->nodes[rank].measured, 1);
		cr_assert_eq(cluster->nodes[rank].clip, 0.5);
		cr_assert_eq(cluster->nodes[rank].loss_scale, 0);
	}
	cluster->rules.max_norm = 20;
	cr_assert_eq(step_all(cluster, 0, NULL).norm, 13);
	cr_assert_eq(cluster->nodes[2].clip, 1);
	cluster->rules.norm_kind = NORM_INF;
	cluster->rules.max_norm = 3;
	cr_assert_eq(step_all(cluster, 0, NULL).norm, 12);
	cr_assert_eq(cluster->nodes[1].clip, 0.25);
	shards(cluster, 0, 0, 0);
	cr_assert_eq(step_all(cluster, 0, NULL).norm, 0);
	cr_assert_eq(cluster->nodes[1].clip, 1);
	cluster_free(cluster);
}

Test(group_rules, nothing_is_measured_where_nobody_asks)
{
	struct cluster *cluster = loaded(2, (struct step_rules){ 0 });
	shards(cluster, 3, 4, 0);
	cr_assert_eq(step_all(cluster, 0, NULL).norm, 0);
	cr_assert_eq(cluster->nodes[0].measured, 0);
	cr_assert_eq(cluster->nodes[0].clip, 1);
	cluster_free(cluster);
}

Test(group_rules, rules_that_differ_are_refused_naming_both_ranks)
{
	struct cluster *cluster = loaded(2, (struct step_rules){ 0 });
	static const struct {
		struct step_rules first, second;
		const char *text;
	} cases[] = {
		{ { .norm_kind = NORM_2 }, { .norm_kind = NORM_INF }, "rank 0 passed norm_kind 1, rank 1 2" },
		{ { .norm_kind = NORM_2, .max_norm = 0.5 },
		  { .norm_kind = NORM_2, .max_norm = 2 },
		  "max_norm 0.5, rank 1 2" },
		{ { .loss_scale = 4, .growth_factor = 2, .backoff_factor = 0.5 },
		  { .loss_scale = 8, .growth_factor = 2, .backoff_factor = 0.5 },
		  "loss_scale 4, rank 1 8" },
		{ { .growth_factor = 2 }, { .growth_factor = 3 }, "growth_factor 2, rank 1 3" },
		{ { .backoff_factor = 0.5 }, { .backoff_factor = 0.25 }, "backoff_factor 0.5, rank 1 0.25" },
		{ { .growth_interval = UINT64_MAX },
		  { .growth_interval = 7 },
		  "growth_interval 18446744073709551615, rank 1 7" },
		{ { .min_scale = 1 }, { .min_scale = 0.1 }, "min_scale 1, rank 1 0.1" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct test_call *steps[] = { test_call(0), test_call(0) };
		cluster->rules = cases[i].first;
		cluster_step(cluster, 0, 0.1, steps[0]);
		cluster->rules = cases[i].second;
		cluster_step(cluster, 1, 0.1, steps[1]);
		for (uint32_t rank = 0; rank < 2; rank++) {
			assert_answer(steps[rank], FSDP_E_MISMATCH);
			assert_has(steps[rank]->text, cases[i].text);
			free(steps[rank]);
		}
	}
	cluster_free(cluster);
}

Test(group_rules, rules_are_checked_before_anything_is_asked)
{
	struct cluster *cluster = loaded(1, (struct step_rules){ 0 });
	const struct step_rules bad[] = {
		{ .norm_kind = 3 },
		{ .norm_kind = NORM_2, .max_norm = -1 },
		{ .norm_kind = NORM_2, .max_norm = (double)NAN },
		{ .max_norm = 1 },
		{ .loss_scale = -2 },
		{ .loss_scale = 1e39 },
		{ .loss_scale = 1e-40 },
		{ .loss_scale = 2, .growth_factor = 0.5, .backoff_factor = 0.5 },
		{ .loss_scale = 2, .growth_factor = 2 },
		{ .loss_scale = 2, .growth_factor = 2, .backoff_factor = 1.5 },
		{ .loss_scale = 2, .growth_factor = 2, .backoff_factor = 0.5, .min_scale = -1 },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct test_call *step = test_call(0);
		cluster->rules = bad[i];
		cluster_step(cluster, 0, 0.1, step);
		assert_answer(step, FSDP_E_INVALID);
		free(step);
	}
	cluster_free(cluster);
}

Test(group_rules, what_was_not_finite_is_named_on_every_rank)
{
	struct cluster *cluster = loaded(3, (struct step_rules){ .norm_kind = NORM_2 });
	cluster->nodes[2].not_finite = true;
	shards(cluster, 1, 1, (double)INFINITY);
	struct answer answer = step_all(cluster, 0, NULL);
	cr_assert_eq(answer.outcome, STEP_SKIPPED);
	cr_assert_eq(answer.bad_count, 1);
	cr_assert_eq(answer.bad[0], cluster->units - 1);
	cr_assert_eq(answer.norm, (double)INFINITY);
	for (uint32_t rank = 0; rank < 3; rank++)
		assert_has(cluster_notice(&cluster->nodes[rank], NOTICE_STEP_COMMITTED), "not finite of unit \"u1\"");
	cluster->nodes[2].not_finite = false;
	cr_assert_eq(step_all(cluster, 0, NULL).bad_count, 0);
	cluster_free(cluster);
}

static const struct step_rules SCALED = {
	.loss_scale = 8, .growth_factor = 2, .backoff_factor = 0.5, .growth_interval = 2, .min_scale = 4
};

Test(group_rules, a_loss_scale_grows_backs_off_and_has_a_floor)
{
	struct cluster *cluster = loaded(2, SCALED);
	cr_assert_eq(step_all(cluster, 0, NULL).next_scale, 8);
	cr_assert_eq(cluster->nodes[1].loss_scale, 8);
	cr_assert_eq(cluster->rules.loss_scale = step_all(cluster, 0, NULL).next_scale, 16);
	cr_assert_eq(step_all(cluster, 0, NULL).next_scale, 16);
	cluster->nodes[1].not_finite = true;
	cr_assert_eq(cluster->rules.loss_scale = step_all(cluster, 0, NULL).next_scale, 8);
	cluster->nodes[1].not_finite = false;
	cr_assert_eq(step_all(cluster, 0, NULL).next_scale, 8); /* the first good one again */
	cluster->nodes[1].not_finite = true;
	cr_assert_eq(cluster->rules.loss_scale = step_all(cluster, 0, NULL).next_scale, 4);
	struct answer answer = step_all(cluster, FSDP_E_STATE, "of unit \"u1\", at loss scale 4, and min_scale is 4");
	cr_assert_eq(answer.step, 7);
	cr_assert_eq(group_model(cluster->nodes[0].group, 0).steps_skipped, 3);
	cr_assert_eq(group_model(cluster->nodes[1].group, 0).steps_skipped, 3);
	cluster->nodes[1].not_finite = false;
	cr_assert_eq(step_all(cluster, 0, NULL).next_scale, 4);
	cluster_free(cluster);
}

Test(group_rules, a_scale_never_leaves_what_f32_can_divide_by)
{
	struct cluster *cluster = loaded(1, SCALED);
	cluster->rules.growth_interval = 1;
	cluster->rules.loss_scale = 3e38;
	cr_assert_eq(step_all(cluster, 0, NULL).next_scale, 3e38);
	cluster->rules.min_scale = 0;
	cluster->rules.loss_scale = 1.2e-38;
	cluster->nodes[0].not_finite = true;
	cr_assert_eq(step_all(cluster, 0, NULL).next_scale, 1.2e-38);
	cluster_free(cluster);
}

/* Below 1 the division makes gradients larger: they are looked at again although nobody asks for a norm. */
Test(group_rules, a_scale_below_1_may_make_a_gradient_too_large)
{
	struct cluster *cluster = loaded(2, SCALED);
	cluster->rules.loss_scale = 0.5;
	cluster->rules.min_scale = 0.125;
	cluster->nodes[0].too_large = true;
	struct answer answer = step_all(cluster, 0, NULL);
	cr_assert_eq(answer.outcome, STEP_SKIPPED);
	cr_assert_eq(answer.bad_count, 1);
	cr_assert_eq(answer.bad[0], 0);
	cr_assert_eq(answer.next_scale, 0.25);
	cluster_free(cluster);
}

Test(group_rules, a_step_whose_weights_sum_to_0_leaves_the_scale_alone)
{
	struct cluster *cluster = loaded(1, SCALED);
	struct test_call *weight = test_call(0);
	cluster->rules.growth_interval = 1;
	worker_weight(cluster->nodes[0].worker, 0, &weight->call);
	struct answer answer = step_all(cluster, 0, NULL);
	cr_assert_eq(answer.outcome, STEP_SKIPPED);
	cr_assert_eq(answer.next_scale, 8);
	cr_assert_eq(step_all(cluster, 0, NULL).next_scale, 16);
	free(weight);
	cluster_free(cluster);
}

/* Who voted and was in doubt is told all of it when it asks again, the failure too. */
Test(group_rules, a_result_that_nobody_waited_for_is_owed_whole)
{
	struct cluster *cluster = loaded(2, SCALED);
	struct test_call *steps[] = { test_call(0), test_call(1000), test_call(0) };
	cluster->rules.loss_scale = cluster->rules.min_scale;
	cluster->nodes[0].not_finite = true;
	cluster_step(cluster, 1, 0.1, steps[1]);
	cluster->cut[0][1] = true;
	cluster_step(cluster, 0, 0.1, steps[0]);
	assert_answer(steps[0], FSDP_E_STATE);
	cluster_advance(cluster, 2500);
	assert_answer(steps[1], FSDP_E_IN_DOUBT);
	cluster->cut[0][1] = false;
	cluster_advance(cluster, 1500);
	cluster_step(cluster, 1, 0.1, steps[2]);
	assert_answer(steps[2], FSDP_E_STATE);
	assert_has(steps[2]->text, "at loss scale 4");
	cr_assert_eq(steps[2]->answer.step, 1);
	cr_assert_eq(steps[2]->answer.bad_count, 1);
	for (size_t i = 0; i < 3; i++)
		free(steps[i]);
	cluster_free(cluster);
}

/* A commit from staging does not look at gradients, and says nothing of them. */
Test(group_rules, a_commit_from_staging_names_nothing)
{
	struct cluster *cluster = loaded(2, (struct step_rules){ 0 });
	struct test_call *steps[] = { test_call(0), test_call(1000), test_call(0) };
	cluster->nodes[0].not_finite = true;
	worker_step(cluster->nodes[1].worker, COMMIT_STAGING, NULL, NULL, NULL, NULL, &steps[1]->call);
	cluster->cut[0][1] = true;
	worker_step(cluster->nodes[0].worker, COMMIT_STAGING, NULL, NULL, NULL, NULL, &steps[0]->call);
	cluster_advance(cluster, 2500);
	assert_answer(steps[1], FSDP_E_IN_DOUBT);
	cluster->cut[0][1] = false;
	cluster_advance(cluster, 1500);
	worker_step(cluster->nodes[1].worker, COMMIT_STAGING, NULL, NULL, NULL, NULL, &steps[2]->call);
	cluster_run(cluster);
	for (size_t i = 0; i < 3; i += 2) {
		assert_answer(steps[i], 0);
		cr_assert_eq(steps[i]->answer.outcome, STEP_APPLIED);
		cr_assert_eq(steps[i]->answer.bad_count, 0);
	}
	for (size_t i = 0; i < 3; i++)
		free(steps[i]);
	cluster_free(cluster);
}
