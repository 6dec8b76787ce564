/* What a run trains. Pure functions of the seed; owns nothing. Values have exponents far apart, so that every order of
 * addition but the right one gives other bits. */
#include "tests/sim/workload.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum workload_stream {
	STREAM_SHAPE = 101,
	STREAM_INITIAL,
	STREAM_GRADIENT,
	STREAM_WILD,
	STREAM_STEP,
	STREAM_STAGING,
	STREAM_ALL_REDUCE,
	STREAM_STATE
};

static uint64_t workload_param_count(struct dice *dice, bool large)
{
	if (dice_chance(dice, 150)) {
		return 0;
	}
	if (large && dice_chance(dice, 400)) {
		return dice_between(dice, 1025, 9000);
	}
	return dice_between(dice, 1, 40);
}

static struct optimizer_spec workload_spec(struct dice *dice)
{
	switch (dice_below(dice, 8)) {
	case 0:
		return (struct optimizer_spec){ .kind = OPTIMIZER_ADAMW };
	case 4:
		return (struct optimizer_spec){ .kind = OPTIMIZER_ADAM };
	case 5:
		return (struct optimizer_spec){ .kind = OPTIMIZER_ADAGRAD };
	case 6:
		return (struct optimizer_spec){ .kind = OPTIMIZER_RMSPROP, .momentum = true, .centered = true };
	case 7:
		return (struct optimizer_spec){ .kind = OPTIMIZER_LION };
	case 1:
		return (struct optimizer_spec){ .kind = OPTIMIZER_SGD };
	case 2:
		return (struct optimizer_spec){ .kind = OPTIMIZER_SGD, .momentum = true };
	default:
		return (struct optimizer_spec){ .kind = OPTIMIZER_SGD, .momentum = true, .nesterov = true };
	}
}

void workload_init(struct workload *workload, uint32_t index, uint64_t seed, uint32_t world_size)
{
	struct dice dice = { .state = DICE_HASH(seed, index, STREAM_SHAPE) };
	bool many = world_size <= 8;
	*workload = (struct workload){ .seed = DICE_HASH(seed, index) };
	snprintf(workload->name, sizeof(workload->name), "model%u", index);
	workload->unit_count = (uint32_t)dice_between(&dice, 1, many ? WORKLOAD_UNITS_MAX - 1 : 2);
	bool large = many && dice_chance(&dice, 600);
	for (uint32_t u = 0; u < workload->unit_count; u++) {
		struct workload_unit *unit = &workload->units[u];
		unit->param_count = (uint32_t)dice_between(&dice, 1, WORKLOAD_PARAMS_MAX);
		for (uint32_t p = 0; p < unit->param_count; p++) {
			unit->counts[p] = workload_param_count(&dice, large);
			unit->groups[p] = (uint32_t)dice_below(&dice, 3);
			unit->total += unit->counts[p];
		}
	}
	bool sum = dice_chance(&dice, 300);
	workload->options = (struct manifest_options){ .op = sum ? REDUCE_SUM : REDUCE_MEAN,
						       .scale = sum ? 0.25 + (double)dice_below(&dice, 4) / 3.0 : 1.0,
						       .optimizer = workload_spec(&dice) };
	uint64_t init = dice_below(&dice, 10);
	if (init < 3) {
		workload->options.init = INIT_FROM_RANK;
		workload->options.init_rank = (uint32_t)dice_below(&dice, world_size);
	} else if (init == 3) {
		workload->options.init = INIT_ZEROS;
	}
	workload->steps = many ? dice_between(&dice, 3, 16) : 2;
	workload->wild = dice_chance(&dice, 400);
	workload->scaled = dice_chance(&dice, 400);
}

struct manifest *workload_manifest(const struct workload *workload, const uint32_t *order, uint64_t odd)
{
	struct manifest *manifest;
	int rc = manifest_new(workload->name, &workload->options, &manifest);
	assert(rc == 0);
	for (uint32_t i = 0; i < workload->unit_count; i++) {
		const struct workload_unit *unit = &workload->units[order[i]];
		char name[16];
		snprintf(name, sizeof(name), "u%u", order[i]);
		rc = manifest_add_unit(manifest, name);
		assert(rc == 0);
		for (uint32_t p = 0; p < unit->param_count; p++) {
			char param_name[16];
			snprintf(param_name, sizeof(param_name), "p%u", p);
			struct manifest_param param = { .name = param_name,
							.dtype = FSDP_F32,
							.ndim = unit->counts[p] == 1 ? 0 : 1,
							.shape = { unit->counts[p] },
							.group = unit->groups[p] };
			if (odd > 0 && order[i] == 0 && p == 0) {
				param.ndim = 1;
				param.shape[0] = unit->counts[p] + odd;
			}
			rc = manifest_add_param(manifest, &param);
			assert(rc == 0);
		}
	}
	rc = manifest_seal(manifest);
	assert(rc == 0);
	return manifest;
}

/* Of either sign, with 23 bits that matter and exponents of a range. */
static float workload_float(uint64_t chance, unsigned exponents)
{
	uint32_t exponent = 127 - exponents / 2 + (uint32_t)(chance >> 32) % exponents;
	uint32_t bits = (uint32_t)(chance & 0x807fffffu) | exponent << 23;
	float value;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

float workload_initial(const struct workload *workload, uint64_t life, uint32_t unit, uint64_t element)
{
	if (workload->options.init == INIT_ZEROS) {
		return 0;
	}
	return workload_float(DICE_HASH(workload->seed, STREAM_INITIAL, life, unit, element), 4);
}

void workload_gradient(const struct workload *workload, const struct workload_place *place, float *ret_values)
{
	uint64_t key = DICE_HASH(workload->seed, place->life, place->step, place->attempt, place->micro_batch,
				 place->rank, place->unit);
	uint64_t total = workload->units[place->unit].total;
	for (uint64_t i = 0; i < total; i++) {
		ret_values[i] = workload_float(dice_mix(key + i), 24);
	}
	uint64_t wild = DICE_HASH(key, STREAM_WILD);
	if (workload->wild && total > 0 && wild % 40 == 0) {
		ret_values[(wild >> 8) % total] = (wild >> 40) % 2 ? NAN : -INFINITY;
	}
}

bool workload_is_weightless(const struct workload *workload, uint64_t life, uint64_t step)
{
	return DICE_HASH(workload->seed, STREAM_STEP, life, step, 2) % 16 == 0;
}

enum step_commit workload_commit(const struct workload *workload, uint64_t life, uint64_t step)
{
	return DICE_HASH(workload->seed, STREAM_STEP, life, step) % 6 == 0 ? COMMIT_STAGING : COMMIT_OPTIMIZER;
}

struct optimizer_options workload_step_options(const struct workload *workload, uint64_t life, uint64_t step)
{
	struct dice dice = { .state = DICE_HASH(workload->seed, STREAM_STEP, life, step, 1) };
	const struct optimizer_spec *spec = &workload->options.optimizer;
	struct optimizer_options options = { .learning_rate = 0.001 * (double)dice_between(&dice, 1, 100) };
	if (dice_chance(&dice, 500)) {
		options.weight_decay = 0.01 * (double)dice_between(&dice, 1, 10);
	}
	options.epsilon = 1e-8;
	if (spec->kind != OPTIMIZER_SGD) {
		options.beta1 = 0.9;
		options.beta2 = 0.999;
		options.alpha = 0.99;
		options.learning_rate_decay = 0.01 * (double)dice_below(&dice, 3);
		options.initial_accumulator = 0.25 * (double)dice_below(&dice, 2);
		options.momentum = spec->momentum ? 0.5 * (double)dice_below(&dice, 2) : 0;
	} else if (spec->momentum) {
		options.momentum = 0.9;
		options.dampening = spec->nesterov ? 0 : 0.1 * (double)dice_below(&dice, 3);
	}
	return options;
}

struct optimizer_groups workload_step_groups(const struct workload *workload, uint64_t life, uint64_t step)
{
	struct dice dice = { .state = DICE_HASH(workload->seed, STREAM_STEP, life, step, 5) };
	struct optimizer_options options = workload_step_options(workload, life, step);
	struct optimizer_groups groups = { 0 };
	for (uint32_t group = 3; group > 0; group--) {
		const char *why;
		if (dice_chance(&dice, 500)) {
			options.learning_rate *= 0.5 + (double)dice_below(&dice, 3) / 2;
			int rc = optimizer_groups_add(&groups, group, &options, &why);
			assert(rc == 0);
		}
	}
	return groups;
}

struct step_rules workload_step_rules(const struct workload *workload, uint64_t life, uint64_t step, double loss_scale)
{
	struct dice dice = { .state = DICE_HASH(workload->seed, STREAM_STEP, life, step, 3) };
	struct step_rules rules = { .norm_kind = dice_below(&dice, 3) };
	if (rules.norm_kind != NORM_NONE && dice_chance(&dice, 700)) {
		rules.max_norm = 0.25 * (double)dice_between(&dice, 1, 40);
	}
	if (workload->scaled) {
		rules.loss_scale = loss_scale;
		rules.growth_factor = 3;
		rules.backoff_factor = 0.25;
		rules.growth_interval = 2;
		rules.min_scale = 0.5;
	}
	return rules;
}

bool workload_asks_norm(const struct workload *workload, uint64_t life, uint64_t step)
{
	return DICE_HASH(workload->seed, STREAM_STEP, life, step, 4) % 4 == 0;
}

float workload_staging(const struct workload *workload, uint64_t life, uint64_t step, uint32_t unit, uint64_t element)
{
	return workload_float(DICE_HASH(workload->seed, STREAM_STAGING, life, step, unit, element), 4);
}

uint32_t workload_all_reduces(const struct workload *workload, uint64_t life, uint64_t step, bool synced)
{
	uint64_t chance = DICE_HASH(workload->seed, STREAM_ALL_REDUCE, life, step, synced);
	return chance % 3 == 0 ? 1 + (uint32_t)(chance >> 32) % 2 : 0;
}

struct workload_all_reduce workload_all_reduce(const struct workload *workload, uint64_t life, uint64_t step,
					       uint64_t number)
{
	uint64_t chance = DICE_HASH(workload->seed, STREAM_ALL_REDUCE, life, step, number, 2);
	return (struct workload_all_reduce){ .op = 1 + (uint32_t)(chance % 3),
					     .count = (uint32_t)((chance >> 32) % (WORKLOAD_VALUES_MAX + 1)) };
}

/* All 52 bits matter, and exponents are far apart. */
double workload_value(const struct workload *workload, uint64_t life, uint64_t step, uint64_t number, uint32_t rank,
		      uint32_t index)
{
	uint64_t chance = DICE_HASH(workload->seed, STREAM_ALL_REDUCE, life, step, number, rank, index);
	uint64_t bits = (chance & 0x800fffffffffffffu) | (1023 - 12 + (chance >> 52) % 24) << 52;
	double value;
	memcpy(&value, &bits, sizeof(value));
	return chance % 61 == 0 ? (double)NAN : value;
}

size_t workload_state(const struct workload *workload, uint64_t life, uint64_t step, uint32_t rank,
		      unsigned char *ret_state)
{
	struct dice dice = { .state = DICE_HASH(workload->seed, STREAM_STATE, life, step, rank) };
	size_t size = dice_chance(&dice, 250) ? 0 : (size_t)dice_between(&dice, 1, WORKLOAD_STATE_MAX);
	for (size_t i = 0; i < size; i++) {
		ret_state[i] = (unsigned char)dice_next(&dice);
	}
	return size;
}
