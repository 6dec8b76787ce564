/* The agreement on manifests: accepted by all, or refused on all with the first difference. */
#include "tests/unit/group/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Test(group_seal, the_same_manifest_is_sealed_everywhere_under_one_number)
{
	struct cluster *cluster = cluster_new(3);
	cluster_form(cluster);
	cluster_attach_all(cluster);
	cr_assert_neq(cluster->nodes[0].model, 0);
	cr_assert_eq(cluster->nodes[1].model, cluster->nodes[0].model);
	cr_assert_eq(cluster->nodes[2].model, cluster->nodes[0].model);
	cr_assert_eq(cluster->nodes[2].attach.answer.model, cluster->nodes[0].model);
	cr_assert_not(cluster->nodes[1].attach.answer.resumed);
	cr_assert_eq(group_model(cluster->nodes[1].group, 0).state, MODEL_LOADING);
	cluster_free(cluster);
}

Test(group_seal, a_world_of_one_seals_without_a_message)
{
	struct cluster *cluster = cluster_new(1);
	cluster_form(cluster);
	cluster_attach(cluster, 0, NULL);
	assert_answer(&cluster->nodes[0].attach, 0);
	cr_assert_eq(cluster->nodes[0].link_counters.messages_out, 0);
	cluster_free(cluster);
}

Test(group_seal, a_difference_is_refused_on_both_ranks_naming_the_unit_and_both_sides)
{
	struct cluster *cluster = cluster_new(2);
	cluster_form(cluster);
	cluster_attach(cluster, 0, NULL);
	cluster_attach(cluster, 1, cluster_manifest(cluster, "u", "w", 5));
	cluster_run(cluster);
	for (uint32_t rank = 0; rank < 2; rank++) {
		assert_answer(&cluster->nodes[rank].attach, FSDP_E_MISMATCH);
		assert_has(cluster->nodes[rank].attach.text, "u0");
		assert_has(cluster->nodes[rank].attach.text, "f32[4]");
		assert_has(cluster->nodes[rank].attach.text, "f32[5]");
	}
	cr_assert_eq(group_model_count(cluster->nodes[0].group), 0);
	for (uint32_t rank = 0; rank < 2; rank++)
		worker_detach(cluster->nodes[rank].worker);
	cluster_attach_all(cluster);
	cluster_free(cluster);
}

Test(group_seal, a_refusal_is_told_to_who_comes_later)
{
	struct cluster *cluster = cluster_new(3);
	cluster_form(cluster);
	cluster_attach(cluster, 0, NULL);
	cluster_attach(cluster, 1, cluster_manifest(cluster, "u", "w", 5));
	cluster_run(cluster);
	assert_answer(&cluster->nodes[1].attach, FSDP_E_MISMATCH);
	cluster_attach(cluster, 2, NULL);
	cluster_run(cluster);
	assert_answer(&cluster->nodes[2].attach, FSDP_E_MISMATCH);
	assert_has(cluster->nodes[2].attach.text, "rank 1");
	cluster_free(cluster);
}

Test(group_seal, a_rank_that_cannot_seal_is_named_to_all)
{
	struct cluster *cluster = cluster_new(2);
	cluster_form(cluster);
	cluster_attach(cluster, 0, NULL);
	struct node *node = &cluster->nodes[1];
	node->manifest = cluster_manifest(cluster, "u", "w", 4);
	struct test_call *call = test_call(0);
	group_attach(node->group, node->manifest, NULL, FSDP_E_DTYPE, "u0 has bf16", &call->call, &node->worker);
	cluster_run(cluster);
	assert_answer(call, FSDP_E_DTYPE);
	assert_answer(&cluster->nodes[0].attach, FSDP_E_DTYPE);
	assert_has(cluster->nodes[0].attach.text, "rank 1 cannot seal it: u0 has bf16");
	free(call);
	cluster_free(cluster);
}

Test(group_seal, it_survives_lost_messages_and_a_late_rank)
{
	struct cluster *cluster = cluster_new(2);
	cluster_start(cluster, 0);
	cluster_attach(cluster, 0, NULL);
	cluster_advance(cluster, 2000);
	cluster_start(cluster, 1);
	cluster_run(cluster);
	cluster->cut[1][0] = true;
	cluster_attach(cluster, 1, NULL);
	cluster_run(cluster);
	cr_assert_eq(cluster->nodes[1].attach.answered, 0);
	cluster->cut[1][0] = false;
	cluster->cut[0][1] = true;
	cluster_advance(cluster, 500);
	assert_answer(&cluster->nodes[0].attach, 0);
	cr_assert_eq(cluster->nodes[1].attach.answered, 0);
	cluster->cut[0][1] = false;
	cluster_advance(cluster, 500);
	assert_answer(&cluster->nodes[1].attach, 0);
	cluster_free(cluster);
}

Test(group_seal, the_deadline_names_the_rank_that_did_not_come)
{
	struct cluster *cluster = cluster_new(3);
	cluster_form(cluster);
	cluster->nodes[0].attach.call.deadline_ms = cluster->nodes[1].attach.call.deadline_ms = 2000;
	cluster_attach(cluster, 0, NULL);
	cluster_attach(cluster, 1, NULL);
	cluster_advance(cluster, 1000);
	assert_has(cluster_notice(&cluster->nodes[1], NOTICE_CALL_SLOW),
		   "1.0 s of 2.0 s passed: seal, waiting for rank 2");
	struct wait_status wait;
	cr_assert_eq(group_waits(cluster->nodes[1].group, &wait, 1), 1);
	cr_assert_str_eq(wait.op, "seal");
	cr_assert_eq(wait.rank_count, 1);
	cr_assert_eq(wait.ranks[0], 2);
	cluster_advance(cluster, 1000);
	for (uint32_t rank = 0; rank < 2; rank++) {
		assert_answer(&cluster->nodes[rank].attach, FSDP_E_TIMEOUT);
		assert_has(cluster->nodes[rank].attach.text,
			   "model \"m\": deadline of 2.0 s passed: seal, waiting for rank 2");
		worker_detach(cluster->nodes[rank].worker);
	}
	/* What was given up does not count. */
	cluster_attach(cluster, 2, NULL);
	cluster_advance(cluster, 1000);
	cr_assert_eq(cluster->nodes[2].attach.answered, 0);
	cluster_attach(cluster, 0, NULL);
	cluster_attach(cluster, 1, NULL);
	cluster_run(cluster);
	for (uint32_t rank = 0; rank < 3; rank++)
		assert_answer(&cluster->nodes[rank].attach, 0);
	cluster_free(cluster);
}

Test(group_seal, a_seal_that_a_rank_gave_up_unheard_is_dropped_again)
{
	struct cluster *cluster = cluster_new(2);
	cluster_form(cluster);
	cluster_attach(cluster, 1, NULL);
	cluster_run(cluster);
	cluster->cut[1][0] = true; /* the withdrawal is lost */
	worker_detach(cluster->nodes[1].worker);
	cluster_run(cluster);
	cluster->cut[1][0] = false;
	cluster_attach(cluster, 0, NULL);
	cluster_run(cluster);
	assert_answer(&cluster->nodes[0].attach, 0);
	cluster_advance(cluster, 500);
	cr_assert_eq(group_model_count(cluster->nodes[0].group), 0);
	struct test_call *call = test_call(0);
	worker_unshard(cluster->nodes[0].worker, 0, &call->call);
	assert_answer(call, FSDP_E_DROPPED);
	free(call);
	cluster_free(cluster);
}

Test(group_seal, a_second_worker_is_refused_and_a_later_one_resumes)
{
	struct cluster *cluster = cluster_new(2);
	cluster_form(cluster);
	cluster_attach_all(cluster);
	struct node *node = &cluster->nodes[0];
	struct worker *first = node->worker;
	cluster_attach(cluster, 0, NULL);
	assert_answer(&node->attach, FSDP_E_BUSY);
	worker_detach(node->worker);
	worker_detach(first);
	cluster_attach(cluster, 0, cluster_manifest(cluster, "u", "w", 7));
	assert_answer(&node->attach, FSDP_E_MISMATCH);
	assert_has(node->attach.text, "f32[7]");
	worker_detach(node->worker);
	cluster_attach(cluster, 0, NULL);
	assert_answer(&node->attach, 0);
	cr_assert(node->attach.answer.resumed);
	cluster_free(cluster);
}

Test(group_seal, a_large_manifest_is_compared_in_parts)
{
	struct cluster *cluster = cluster_new(2);
	cluster_form(cluster);
	for (uint32_t rank = 0; rank < 2; rank++) {
		const struct manifest_options options = { .scale = 1 };
		struct manifest *manifest;
		cr_assert_eq(manifest_new("m", &options, &manifest), 0);
		cr_assert_eq(manifest_add_unit(manifest, "u"), 0);
		for (uint32_t i = 0; i < 20000; i++) {
			char name[200];
			snprintf(name, sizeof(name), "%0190u", i);
			struct manifest_param param = { .name = name, .dtype = FSDP_F32, .ndim = 1 };
			param.shape[0] = i == 19999 ? rank + 1 : 1;
			cr_assert_eq(manifest_add_param(manifest, &param), 0);
		}
		cr_assert_eq(manifest_seal(manifest), 0);
		cluster->gather_bytes = cluster->grad_bytes = 1 << 20;
		cluster_attach(cluster, rank, manifest);
	}
	cluster_run(cluster);
	assert_answer(&cluster->nodes[1].attach, FSDP_E_MISMATCH);
	assert_has(cluster->nodes[1].attach.text, "19999");
	cluster_free(cluster);
}
