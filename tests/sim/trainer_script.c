/*
 * What a trainer is going to do: the list of calls for one attempt of one step, drawn anew for every attempt, in
 * another order on every rank. Owns nothing. Pure but for the trainer's own dice.
 */
#include "tests/sim/sim_trainer.h"

#include <assert.h>

#include "tests/sim/tally.h"

static void script_add(struct trainer *trainer, enum act act, uint32_t unit)
{
	assert(trainer->length < TRAINER_ACTIONS_MAX);
	trainer->script[trainer->length++] = (struct action){ .act = act, .unit = unit };
}

static void script_clear(struct trainer *trainer)
{
	trainer->length = 0;
	trainer->next = 0;
}

static uint32_t script_units(const struct trainer *trainer)
{
	return trainer->sim->workloads[trainer->model].unit_count;
}

static void script_shuffle(struct trainer *trainer, uint32_t *units)
{
	uint32_t count = script_units(trainer);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t j = (uint32_t)dice_below(&trainer->dice, i + 1);
		units[i] = units[j];
		units[j] = i;
	}
}

/* Whether this rank's initial values count. */
static bool script_has_values(const struct trainer *trainer)
{
	const struct manifest_options *options = &trainer->sim->workloads[trainer->model].options;
	return options->init == INIT_VERIFY ||
	       (options->init == INIT_FROM_RANK && options->init_rank == trainer->node->rank);
}

void script_load(struct trainer *trainer)
{
	uint32_t units[SIM_UNITS];
	script_clear(trainer);
	script_shuffle(trainer, units);
	for (uint32_t i = 0; i < script_units(trainer) && script_has_values(trainer); i++) {
		script_add(trainer, ACT_GRAD, units[i]);
		script_add(trainer, ACT_LOAD, units[i]);
	}
	for (uint32_t i = 0; i < script_units(trainer); i++) {
		script_add(trainer, ACT_LOADED, units[i]);
	}
	/* An unshard waits until the ranks agree. Where all are known to agree, some begin to train at once. */
	if (trainer->sim->liars || dice_chance(&trainer->dice, 500)) {
		for (uint32_t i = 0; i < script_units(trainer); i++) {
			script_add(trainer, ACT_UNSHARD, units[i]);
			script_add(trainer, ACT_USE, units[i]);
			script_add(trainer, ACT_RESHARD, units[i]);
		}
	}
}

static void script_forward(struct trainer *trainer, const uint32_t *units)
{
	uint32_t count = script_units(trainer);
	uint32_t ahead = (uint32_t)dice_below(&trainer->dice, 3);
	uint32_t asked = 0;
	for (uint32_t i = 0; i < count; i++) {
		if (dice_chance(&trainer->dice, 200)) {
			script_add(trainer, ACT_START, units[dice_below(&trainer->dice, count)]);
		}
		for (; asked < count && asked <= i + ahead; asked++) {
			script_add(trainer, ACT_UNSHARD, units[asked]);
		}
		script_add(trainer, ACT_USE, units[i]);
		if (dice_chance(&trainer->dice, 700)) {
			script_add(trainer, ACT_RESHARD, units[i]);
		}
	}
}

static void script_backward(struct trainer *trainer, const uint32_t *units)
{
	bool sparse = dice_chance(&trainer->dice, 200);
	for (uint32_t i = 0; i < script_units(trainer); i++) {
		uint32_t unit = units[i];
		if (dice_chance(&trainer->dice, 400)) {
			script_add(trainer, ACT_UNSHARD, unit);
			script_add(trainer, ACT_USE, unit);
		}
		if (dice_chance(&trainer->dice, sparse ? 300 : 900)) {
			script_add(trainer, ACT_GRAD, unit);
			script_add(trainer, ACT_REDUCE, unit);
		} else {
			tally_count(TALLY_EVENT, EVENT_LEFT_OUT);
		}
		script_add(trainer, ACT_RESHARD, unit);
	}
}

static uint32_t script_all_reduces(const struct trainer *trainer, bool synced)
{
	return workload_all_reduces(&trainer->sim->workloads[trainer->model], oracle_life(trainer->of->oracle),
				    trainer->step, synced);
}

void script_step(struct trainer *trainer)
{
	uint32_t units[SIM_UNITS];
	bool staging = workload_commit(&trainer->sim->workloads[trainer->model], oracle_life(trainer->of->oracle),
				       trainer->step) == COMMIT_STAGING;
	bool asks_norm = workload_asks_norm(&trainer->sim->workloads[trainer->model], oracle_life(trainer->of->oracle),
					    trainer->step);
	bool weightless = workload_is_weightless(&trainer->sim->workloads[trainer->model],
						 oracle_life(trainer->of->oracle), trainer->step);
	uint32_t batches = (uint32_t)dice_between(&trainer->dice, 1, 3);
	uint32_t all_reduces = script_all_reduces(trainer, true);
	script_clear(trainer);
	trainer->all_reduce = 0;
	for (uint32_t i = script_all_reduces(trainer, false); i > 0; i--) {
		script_add(trainer, ACT_ALL_REDUCE, 0);
	}
	for (uint32_t m = 0; m < batches; m++) {
		if (m > 0) {
			script_add(trainer, ACT_NEXT, 0);
		}
		if (weightless || dice_chance(&trainer->dice, 300)) {
			script_add(trainer, ACT_WEIGHT, 0);
		}
		script_shuffle(trainer, units);
		if (dice_chance(&trainer->dice, 800)) {
			script_forward(trainer, units);
		}
		script_shuffle(trainer, units);
		script_backward(trainer, units);
	}
	/* A rank that waits in an all-reduce before it has ended its micro-batches would hold back the others'
	 * gradients. */
	if (asks_norm || all_reduces > 0 || dice_chance(&trainer->dice, 500)) {
		script_add(trainer, ACT_SYNC, 0);
	}
	for (uint32_t i = asks_norm ? (uint32_t)dice_between(&trainer->dice, 1, 2) : 0; i > 0; i--) {
		script_add(trainer, ACT_NORM, 0);
	}
	for (; all_reduces > 0; all_reduces--) {
		script_add(trainer, ACT_ALL_REDUCE, 0);
	}
	if (dice_chance(&trainer->dice, 300)) {
		script_add(trainer, ACT_SHARD, units[0]);
	}
	if (dice_chance(&trainer->dice, 200)) {
		script_add(trainer, ACT_UNSHARD, units[0]); /* held over the step */
		script_add(trainer, ACT_USE, units[0]);
	}
	for (uint32_t i = 1; i < script_units(trainer); i++) {
		if (dice_chance(&trainer->dice, 200)) {
			script_add(trainer, ACT_UNSHARD, units[i]); /* asked for over the step */
		}
	}
	if (staging) {
		script_add(trainer, ACT_STAGE, 0);
	}
	script_add(trainer, ACT_STEP, 0);
}

void script_look(struct trainer *trainer)
{
	uint32_t units[SIM_UNITS];
	script_clear(trainer);
	script_shuffle(trainer, units);
	for (uint32_t i = 0; i < script_units(trainer); i++) {
		script_add(trainer, ACT_UNSHARD, units[i]);
		script_add(trainer, ACT_USE, units[i]);
		script_add(trainer, ACT_RESHARD, units[i]);
		script_add(trainer, ACT_SHARD, units[i]);
	}
}
