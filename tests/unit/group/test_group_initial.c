/* Initial values: version 1 when all ranks loaded the same. */
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

Test(group_initial, a_unit_is_published_when_every_rank_loaded_the_same)
{
	struct cluster *cluster = sealed(3);
	struct test_call *load = test_call(0), *unshard = test_call(0);
	cluster_load(cluster, 0, 0, load);
	assert_answer(load, 0);
	worker_unshard(cluster->nodes[0].worker, 0, &unshard->call);
	free(load);
	load = test_call(0);
	cluster_load(cluster, 1, 0, load);
	cr_assert_eq(cluster->nodes[0].published, 0);
	cr_assert_eq(unshard->answered, 0);
	free(load);
	load = test_call(0);
	cluster_load(cluster, 2, 0, load);
	for (uint32_t rank = 0; rank < 3; rank++)
		cr_assert_eq(cluster->nodes[rank].published, 1);
	assert_answer(unshard, 0);
	cr_assert_eq(unshard->answer.version, 1);
	free(load);
	free(unshard);
	cluster_free(cluster);
}

Test(group_initial, before_it_is_loaded_a_unit_cannot_be_unsharded_or_stepped)
{
	struct cluster *cluster = sealed(1);
	struct test_call *unshard = test_call(0), *step = test_call(0), *load = test_call(0), *again = test_call(0);
	worker_unshard(cluster->nodes[0].worker, 1, &unshard->call);
	assert_answer(unshard, FSDP_E_STATE);
	cr_assert_eq(worker_unshard_start(cluster->nodes[0].worker, 1), FSDP_E_STATE);
	assert_has(worker_error(cluster->nodes[0].worker), "u1");
	cluster_step(cluster, 0, 0.1, step);
	assert_answer(step, FSDP_E_STATE);
	assert_has(step->text, "u0");
	cluster_load(cluster, 0, 0, load);
	assert_answer(load, 0);
	cr_assert_eq(group_unit(cluster->nodes[0].group, 0, 0).version, 1);
	cluster_load(cluster, 0, 0, again);
	assert_answer(again, FSDP_E_STATE);
	free(unshard);
	free(step);
	free(load);
	free(again);
	cluster_free(cluster);
}

Test(group_initial, values_that_differ_are_an_error_that_names_them_until_all_loaded_again)
{
	struct cluster *cluster = sealed(2);
	struct test_call *loads[4] = { test_call(0), test_call(0), test_call(0), test_call(0) };
	struct test_call *unshard = test_call(0), *later = test_call(0), *step = test_call(0), *good = test_call(0);
	cluster->nodes[0].load_sum = 0xa;
	cluster->nodes[1].load_sum = 0xb;
	cluster_load(cluster, 0, 0, loads[0]);
	worker_unshard(cluster->nodes[0].worker, 0, &unshard->call);
	cluster_load(cluster, 1, 0, loads[1]);
	assert_answer(loads[1], 0);
	assert_answer(unshard, FSDP_E_MISMATCH);
	cr_assert_str_eq(unshard->text,
			 "unit \"u0\" parameter \"w\": rank 0 loaded values with checksum "
			 "0x000000000000000a, rank 1 0x000000000000000b: load the same values on every rank");
	worker_unshard(cluster->nodes[1].worker, 0, &later->call);
	assert_answer(later, FSDP_E_MISMATCH);
	cluster_step(cluster, 1, 0.1, step);
	assert_answer(step, FSDP_E_MISMATCH);
	cr_assert_eq(cluster->nodes[0].published + cluster->nodes[1].published, 0);
	cluster->nodes[0].load_sum = 0xb;
	cluster_load(cluster, 0, 0, loads[2]);
	cr_assert_eq(group_unit(cluster->nodes[0].group, 0, 0).version, 0);
	cluster_load(cluster, 1, 0, loads[3]);
	cr_assert_eq(group_unit(cluster->nodes[0].group, 0, 0).version, 1);
	worker_unshard(cluster->nodes[1].worker, 0, &good->call);
	cluster_run(cluster);
	assert_answer(good, 0);
	for (int i = 0; i < 4; i++)
		free(loads[i]);
	free(unshard);
	free(later);
	free(step);
	free(good);
	cluster_free(cluster);
}

Test(group_initial, a_second_load_in_a_round_is_only_compared)
{
	struct cluster *cluster = sealed(2);
	struct test_call *first = test_call(0), *same = test_call(0), *other = test_call(0);
	cluster_load(cluster, 0, 0, first);
	assert_answer(first, 0);
	cluster_load(cluster, 0, 0, same);
	assert_answer(same, 0);
	cluster->nodes[0].load_sum = 5;
	cluster_load(cluster, 0, 0, other);
	assert_answer(other, FSDP_E_MISMATCH);
	assert_has(other->text, "\"w\"");
	cr_assert_eq(group_model(cluster->nodes[0].group, 0).grad_used, 0);
	free(first);
	free(same);
	free(other);
	cluster_free(cluster);
}

Test(group_initial, answers_that_are_lost_are_asked_for_again)
{
	struct cluster *cluster = sealed(2);
	struct test_call *loads[2] = { test_call(0), test_call(0) };
	cluster->cut[0][1] = true;
	cluster_load(cluster, 0, 0, loads[0]);
	cluster_load(cluster, 1, 0, loads[1]);
	cr_assert_eq(cluster->nodes[0].published, 1);
	cr_assert_eq(cluster->nodes[1].published, 0);
	cluster->cut[0][1] = false;
	cluster_advance(cluster, 500);
	cr_assert_eq(cluster->nodes[1].published, 1);
	free(loads[0]);
	free(loads[1]);
	cluster_free(cluster);
}

Test(group_initial, a_load_of_a_worker_that_died_counts_and_keeps_its_slot_until_it_is_read)
{
	struct cluster *cluster = sealed(1);
	struct test_call *load = test_call(0);
	cluster->nodes[0].hold_loads = true;
	cluster_load(cluster, 0, 0, load);
	worker_detach(cluster->nodes[0].worker);
	cr_assert_eq(group_model(cluster->nodes[0].group, 0).grad_used, 4096);
	cluster_held_go(cluster, 0);
	cr_assert_eq(load->answered, 0);
	cr_assert_eq(group_model(cluster->nodes[0].group, 0).grad_used, 0);
	cr_assert_eq(group_unit(cluster->nodes[0].group, 0, 0).version, 1);
	free(load);
	cluster_free(cluster);
}

/* ---- From one rank ---- */

static struct cluster *sealed_from(uint32_t world_size, uint32_t rank)
{
	struct cluster *cluster = cluster_new(world_size);
	cluster->init = INIT_FROM_RANK;
	cluster->init_rank = rank;
	cluster_form(cluster);
	cluster_attach_all(cluster);
	return cluster;
}

Test(group_initial, one_rank_s_values_are_read_by_the_others_and_then_published)
{
	for (uint32_t from = 0; from < 3; from++) {
		struct cluster *cluster = sealed_from(3, from);
		struct test_call *load = test_call(0), *unshard = test_call(0);
		uint32_t other = (from + 1) % 3;
		worker_unshard(cluster->nodes[other].worker, 0, &unshard->call);
		cluster_run(cluster);
		cr_assert_eq(unshard->answered, 0, "it waits for the values of rank %u", from);
		cluster->nodes[other].hold_loads = true;
		cluster_load(cluster, from, 0, load);
		assert_answer(load, 0);
		for (uint32_t rank = 0; rank < 3; rank++) {
			cr_assert_eq(cluster->nodes[rank].fetched, rank == from ? 0 : 1);
			cr_assert_eq(cluster->nodes[rank].published, 0);
		}
		cr_assert_gt(group_model(cluster->nodes[from].group, 0).grad_used, 0, "the slot is still read");
		cluster_held_go(cluster, other);
		for (uint32_t rank = 0; rank < 3; rank++)
			cr_assert_eq(cluster->nodes[rank].published, 1);
		assert_answer(unshard, 0);
		cr_assert_eq(group_model(cluster->nodes[from].group, 0).grad_used, 0);
		free(load);
		free(unshard);
		cluster_free(cluster);
	}
}

Test(group_initial, an_offer_that_was_lost_is_made_again)
{
	struct cluster *cluster = sealed_from(2, 1);
	struct test_call *load = test_call(0);
	cluster->cut[1][0] = true;
	cluster_load(cluster, 1, 0, load);
	assert_answer(load, 0);
	cr_assert_eq(cluster->nodes[0].fetched, 0);
	cluster->cut[1][0] = false;
	cluster_advance(cluster, 1100);
	cr_assert_eq(cluster->nodes[0].fetched, 1);
	cr_assert_eq(cluster->nodes[0].published, 1);
	cr_assert_eq(cluster->nodes[1].published, 1);
	free(load);
	cluster_free(cluster);
}

Test(group_initial, the_others_cannot_load_and_get_their_slot_back)
{
	struct cluster *cluster = sealed_from(2, 0);
	struct test_call *load = test_call(0);
	cluster_load(cluster, 1, 0, load);
	assert_answer(load, FSDP_E_STATE);
	assert_has(load->text, "the initial values of model \"m\" are those of rank 0");
	cr_assert_eq(group_model(cluster->nodes[1].group, 0).grad_used, 0);
	free(load);
	cluster_free(cluster);
}

Test(group_initial, a_deadline_names_the_rank_whose_values_are_missing)
{
	struct cluster *cluster = sealed_from(3, 1);
	struct test_call *unshards[] = { test_call(0), test_call(0) };
	worker_unshard(cluster->nodes[0].worker, 1, &unshards[0]->call);
	worker_unshard(cluster->nodes[2].worker, 1, &unshards[1]->call);
	cluster_advance(cluster, 11000);
	for (uint32_t i = 0; i < 2; i++) {
		assert_answer(unshards[i], FSDP_E_TIMEOUT);
		assert_has(unshards[i]->text, "unit \"u1\", initial values, waiting for rank 1");
		cr_assert_null(strstr(unshards[i]->text, "rank 1,"));
		free(unshards[i]);
	}
	cluster_free(cluster);
}

Test(group_initial, a_step_of_the_others_waits_for_the_values)
{
	struct cluster *cluster = sealed_from(2, 0);
	struct test_call *steps[] = { test_call(0), test_call(0) };
	cluster_step(cluster, 1, 0.1, steps[1]);
	cr_assert_eq(steps[1]->answered, 0);
	for (uint32_t unit = 0; unit < 2; unit++) {
		struct test_call *load = test_call(0);
		cluster_load(cluster, 0, unit, load);
		assert_answer(load, 0);
		free(load);
	}
	cluster_step(cluster, 0, 0.1, steps[0]);
	assert_answer(steps[0], 0);
	assert_answer(steps[1], 0);
	free(steps[0]);
	free(steps[1]);
	cluster_free(cluster);
}

Test(group_initial, who_loads_for_all_may_load_again_while_the_others_read)
{
	struct cluster *cluster = sealed_from(2, 0);
	struct test_call *loads[] = { test_call(0), test_call(0), test_call(0) };
	cluster->nodes[1].hold_loads = true;
	cluster_load(cluster, 0, 0, loads[0]);
	cluster_load(cluster, 0, 0, loads[1]);
	cluster->nodes[0].load_sum = 78;
	cluster_load(cluster, 0, 0, loads[2]);
	assert_answer(loads[0], 0);
	assert_answer(loads[1], 0);
	assert_answer(loads[2], FSDP_E_MISMATCH);
	cluster_held_go(cluster, 1);
	cr_assert_eq(cluster->nodes[0].published, 1);
	cr_assert_eq(group_model(cluster->nodes[0].group, 0).grad_used, 0);
	for (uint32_t i = 0; i < 3; i++)
		free(loads[i]);
	cluster_free(cluster);
}

Test(group_initial, zeros_need_no_load_and_take_none)
{
	struct cluster *cluster = cluster_new(2);
	struct test_call *unshard = test_call(0), *load = test_call(0);
	cluster->init = INIT_ZEROS;
	cluster_form(cluster);
	cluster_attach_all(cluster);
	for (uint32_t rank = 0; rank < 2; rank++) {
		cr_assert_eq(cluster->nodes[rank].published, 2);
		cr_assert_eq(group_model(cluster->nodes[rank].group, 0).state, MODEL_READY);
	}
	worker_unshard(cluster->nodes[1].worker, 0, &unshard->call);
	cluster_run(cluster);
	assert_answer(unshard, 0);
	cr_assert_eq(unshard->answer.version, 1);
	cluster_load(cluster, 0, 0, load);
	assert_answer(load, FSDP_E_STATE);
	assert_has(load->text, "begins with zeros");
	free(unshard);
	free(load);
	cluster_free(cluster);
}
