/* Numbers of a step: weights. */
#include "tests/e2e/e2e.h"

#include <math.h>

static struct fsdp_options with(uint32_t optimizer)
{
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	options.optimizer = optimizer;
	return options;
}

/* The shard of this rank of a vector of count elements. */
static uint64_t shard_count(const struct e2e *e2e, uint64_t count)
{
	uint64_t each = (count + e2e->world - 1) / e2e->world, from = e2e->rank * each;
	return from >= count ? 0 : count - from < each ? count - from : each;
}

static void fill(float *values, uint64_t count, float value)
{
	for (uint64_t i = 0; i < count; i++)
		values[i] = value;
}

/* Rank r gives r + 1 of weight r + 1, then in a second micro-batch rank 0 gives 7 of weight 2. */
static void a_mean_is_weighted(struct e2e *e2e)
{
	enum { COUNT = 5000 };
	static float values[COUNT], gradient[COUNT], mean[COUNT];
	float sum = 14, weights = 2;
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, COUNT);
	DO(fsdp_model_weight(e2e->model, e2e->rank + 1));
	fill(gradient, COUNT, (float)(e2e->rank + 1));
	e2e_reduce(unit, gradient, COUNT);
	DO(fsdp_model_next_micro_batch(e2e->model));
	if (e2e->rank == 0) {
		DO(fsdp_model_weight(e2e->model, 2));
		fill(gradient, COUNT, 7);
		e2e_reduce(unit, gradient, COUNT);
	} else {
		DO(fsdp_model_weight(e2e->model, 100)); /* it leaves this one untouched */
	}
	for (unsigned r = 0; r < e2e->world; r++) {
		sum += (float)((r + 1) * (r + 1));
		weights += (float)(r + 1);
	}
	fill(mean, COUNT, sum / weights);
	DO(fsdp_model_sync_gradients(e2e->model));
	e2e_gradient_is(unit, mean, shard_count(e2e, COUNT));
}

static void a_sum_is_weighted(struct e2e *e2e)
{
	struct fsdp_options options = with(FSDP_OPTIMIZER_NONE);
	options.reduce_op = FSDP_SUM;
	options.scale = 0.25;
	const float values[] = { 0, 0 }, gradient[] = { 3, 5 }, sum[] = { 3.75f, 6.25f };
	struct fsdp_unit *unit = e2e_vector(e2e, &options, values, 2);
	DO(fsdp_model_weight(e2e->model, e2e->rank ? 4 : 1)); /* (1 + 4) / 4 */
	e2e_reduce(unit, gradient, 2);
	DO(fsdp_model_sync_gradients(e2e->model));
	e2e_gradient_is(unit, sum + e2e->rank, 1);
}

static void at_weight_0_nothing_is_looked_at(struct e2e *e2e)
{
	struct fsdp_options options = with(FSDP_OPTIMIZER_SGD);
	struct fsdp_step step = FSDP_STEP_INIT;
	struct fsdp_step_result result;
	const float values[] = { 8, 8, 8, 8 }, stepped[] = { 6, 6, 6, 6 };
	float gradient[4];
	e2e_open(e2e, &options);
	struct fsdp_unit *u0 = e2e_add(e2e, "u0", 4), *u1 = e2e_add(e2e, "u1", 4);
	DO(fsdp_model_seal(e2e->model, NULL));
	e2e_load(u0, values);
	e2e_load(u1, values);
	if (e2e->rank == 1)
		DO(fsdp_model_weight(e2e->model, 0));
	fill(gradient, 4, e2e->rank == 1 ? NAN : e2e->rank == 0 ? 1.0f : 3.0f);
	e2e_reduce(u0, gradient, 4);
	if (e2e->rank == 1)
		e2e_reduce(u1, gradient, 4);
	step.learning_rate = 1;
	DO(fsdp_model_step(e2e->model, &step, &result));
	CHECK(result.outcome == FSDP_APPLIED, "outcome %u", result.outcome);
	e2e_full_is(u0, 0, stepped, 4); /* (1 + 3) / 2 */
	e2e_full_is(u1, 0, values, 4);  /* nobody's gradient counted */
}

static void weights_that_sum_to_0_skip_the_step(struct e2e *e2e)
{
	struct fsdp_options options = with(FSDP_OPTIMIZER_SGD);
	struct fsdp_step step = FSDP_STEP_INIT;
	struct fsdp_step_result result;
	const float values[] = { 1, 2, 3, 4 }, gradient[] = { 1, 1, 1, 1 }, zeros[] = { 0, 0, 0, 0 },
		    stepped[] = { 0, 1, 2, 3 };
	struct fsdp_unit *unit = e2e_vector(e2e, &options, values, 4);
	DO(fsdp_model_weight(e2e->model, 0));
	e2e_reduce(unit, gradient, 4);
	DO(fsdp_model_sync_gradients(e2e->model));
	e2e_gradient_is(unit, zeros, 2);
	step.learning_rate = 1;
	step.weight_decay = 0.5;
	DO(fsdp_model_step(e2e->model, &step, &result));
	CHECK(result.outcome == FSDP_SKIPPED && result.step == 1, "outcome %u", result.outcome);
	e2e_full_is(unit, 0, values, 4);
	step.weight_decay = 0;
	e2e_reduce(unit, gradient, 4); /* of weight 1 again */
	DO(fsdp_model_step(e2e->model, &step, &result));
	CHECK(result.outcome == FSDP_APPLIED && result.step == 2, "outcome %u", result.outcome);
	e2e_full_is(unit, 0, stepped, 4);
}

static void a_weight_comes_before_the_first_reduce(struct e2e *e2e)
{
	const float values[] = { 0, 0 }, gradient[] = { 4, 8 };
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, 2);
	FAILS(FSDP_E_INVALID, fsdp_model_weight(e2e->model, -1), "-1");
	FAILS(FSDP_E_INVALID, fsdp_model_weight(e2e->model, NAN), "nan");
	FAILS(FSDP_E_INVALID, fsdp_model_weight(e2e->model, 1e39), "1e+39");
	e2e_reduce(unit, gradient, 2);
	FAILS(FSDP_E_STATE, fsdp_model_weight(e2e->model, 2), "before the first reduce");
	DO(fsdp_model_sync_gradients(e2e->model));
	e2e_gradient_is(unit, gradient + e2e->rank, 1);
	FAILS(FSDP_E_STATE, fsdp_model_weight(e2e->model, 2), "call step first");
}

const struct e2e_case e2e_numbers[] = {
	{ "numbers_a_mean_is_weighted", a_mean_is_weighted },
	{ "numbers_a_sum_is_weighted", a_sum_is_weighted },
	{ "numbers_at_weight_0_nothing_is_looked_at", at_weight_0_nothing_is_looked_at },
	{ "numbers_weights_that_sum_to_0_skip_the_step", weights_that_sum_to_0_skip_the_step },
	{ "numbers_a_weight_comes_before_the_first_reduce", a_weight_comes_before_the_first_reduce },
	{ 0 },
};
