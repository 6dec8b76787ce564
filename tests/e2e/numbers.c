/* Numbers of a step: weights, norms, clipping, loss scales, and what is not finite. */
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

/* Shards [3], [4], [12] on three ranks. */
static struct fsdp_unit *three_four_twelve(struct e2e *e2e)
{
	struct fsdp_options options = with(FSDP_OPTIMIZER_SGD);
	const float values[] = { 0, 0, 0 }, gradient[] = { 3, 4, 12 };
	struct fsdp_unit *unit = e2e_vector(e2e, &options, values, 3);
	e2e_reduce(unit, gradient, 3);
	return unit;
}

static void a_gradient_is_clipped_to_its_norm(struct e2e *e2e)
{
	struct fsdp_step step = FSDP_STEP_INIT;
	struct fsdp_step_result result;
	const float clipped[] = { -1.5f, -2, -6 }, twice[] = { -2.25f, -3, -9 }, zeros[] = { 0, 0, 0 },
		    gradient[] = { 3, 4, 12 };
	struct fsdp_unit *unit = three_four_twelve(e2e);
	step.learning_rate = 1;
	step.norm_kind = FSDP_NORM_2;
	step.max_norm = 6.5;
	DO(fsdp_model_step(e2e->model, &step, &result));
	CHECK(result.norm == 13, "norm %.17g", result.norm);
	e2e_full_is(unit, 0, clipped, 3);
	e2e_reduce(unit, gradient, 3);
	step.norm_kind = FSDP_NORM_INF;
	step.max_norm = 3;
	DO(fsdp_model_step(e2e->model, &step, &result));
	CHECK(result.norm == 12, "norm %.17g", result.norm);
	e2e_full_is(unit, 0, twice, 3);
	e2e_reduce(unit, zeros, 3); /* a norm of 0 clips nothing, and is no NaN */
	DO(fsdp_model_step(e2e->model, &step, &result));
	CHECK(result.norm == 0 && result.outcome == FSDP_APPLIED, "norm %.17g", result.norm);
	e2e_full_is(unit, 0, twice, 3);
}

static void a_norm_is_computed_and_nothing_clipped(struct e2e *e2e)
{
	struct fsdp_step step = FSDP_STEP_INIT;
	struct fsdp_step_result result;
	const float stepped[] = { -3, -4, -12 };
	struct fsdp_unit *unit = three_four_twelve(e2e);
	step.learning_rate = 1;
	step.norm_kind = FSDP_NORM_2;
	DO(fsdp_model_step(e2e->model, &step, &result));
	CHECK(result.norm == 13, "norm %.17g", result.norm);
	e2e_full_is(unit, 0, stepped, 3);
}

/* Four ranks, two elements: ranks 2 and 3 own nothing. */
static void an_empty_shard_has_the_same_norm(struct e2e *e2e)
{
	struct fsdp_options options = with(FSDP_OPTIMIZER_SGD);
	struct fsdp_step step = FSDP_STEP_INIT;
	struct fsdp_step_result result;
	double norm = 0;
	int finite = 0;
	const float values[] = { 0, 0 }, gradient[] = { 3, 4 };
	struct fsdp_unit *unit = e2e_vector(e2e, &options, values, 2);
	e2e_reduce(unit, gradient, 2);
	DO(fsdp_model_sync_gradients(e2e->model));
	DO(fsdp_model_norm(e2e->model, FSDP_NORM_2, &norm, &finite));
	CHECK(norm == 5 && finite == 1, "norm %.17g", norm);
	step.norm_kind = FSDP_NORM_2;
	DO(fsdp_model_step(e2e->model, &step, &result));
	CHECK(result.norm == 5, "norm %.17g", result.norm);
}

/* An optimizer outside clips for itself. */
static void a_norm_for_an_optimizer_outside(struct e2e *e2e)
{
	const float values[] = { 0, 0, 0 }, gradient[] = { 3, 4, 12 }, bad[] = { 3, NAN, INFINITY };
	double norm = 0, again = 0, largest = 0;
	int finite = 0;
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, 3);
	FAILS(FSDP_E_STATE, fsdp_model_norm(e2e->model, FSDP_NORM_2, &norm, &finite), "sync");
	FAILS(FSDP_E_INVALID, fsdp_model_norm(e2e->model, FSDP_NORM_NONE, &norm, &finite), "kind");
	e2e_reduce(unit, gradient, 3);
	DO(fsdp_model_sync_gradients(e2e->model));
	DO(fsdp_model_norm(e2e->model, FSDP_NORM_2, &norm, &finite));
	DO(fsdp_model_norm(e2e->model, FSDP_NORM_2, &again, NULL));
	DO(fsdp_model_norm(e2e->model, FSDP_NORM_INF, &largest, &finite));
	CHECK(norm == 13 && again == 13 && largest == 12 && finite == 1, "%g, %g, %g", norm, again, largest);
	e2e_gradient_is(unit, gradient + e2e->rank, 1);
	DO(fsdp_model_update_shards(e2e->model, NULL, 0));
	e2e_reduce(unit, bad, 3);
	DO(fsdp_model_sync_gradients(e2e->model));
	DO(fsdp_model_norm(e2e->model, FSDP_NORM_2, &norm, &finite));
	CHECK(!isfinite(norm) && finite == 0, "norm %g, finite %d", norm, finite);
}

/* Every element counts once, whatever unit and rank it lies in; the same on every rank. */
static void a_norm_of_several_units(struct e2e *e2e)
{
	enum { COUNT = 200001 };
	static float values[COUNT], gradient[COUNT];
	struct fsdp_options options = with(FSDP_OPTIMIZER_SGD);
	struct fsdp_step step = FSDP_STEP_INIT;
	struct fsdp_step_result result;
	e2e_open(e2e, &options);
	/* the order of registration is each rank's own */
	struct fsdp_unit *units[3];
	for (unsigned i = 0; i < 3; i++) {
		unsigned u = (i + e2e->rank) % 3;
		char name[8];
		snprintf(name, sizeof(name), "u%u", u);
		units[u] = e2e_add(e2e, name, COUNT);
	}
	DO(fsdp_model_seal(e2e->model, NULL));
	for (unsigned u = 0; u < 3; u++)
		e2e_load(units[u], values);
	fill(gradient, COUNT, 2);
	e2e_reduce(units[0], gradient, COUNT);
	e2e_reduce(units[2], gradient, COUNT); /* u1 has none, and no part */
	step.norm_kind = FSDP_NORM_2;
	DO(fsdp_model_step(e2e->model, &step, &result));
	CHECK(result.norm == sqrt(8.0 * COUNT), "norm %.17g", result.norm);
}

static void what_is_not_finite_is_named(struct e2e *e2e)
{
	struct fsdp_options options = with(FSDP_OPTIMIZER_SGD);
	struct fsdp_step_result result;
	const float values[] = { 1, 2, 3, 4 };
	float gradient[] = { 1, 1, 1, 1 };
	e2e_open(e2e, &options);
	/* rank 0 adds u0, u1, u2; the others u2, u1, u0 */
	struct fsdp_unit *units[3];
	for (unsigned i = 0; i < 3; i++) {
		unsigned u = e2e->rank ? 2 - i : i;
		char name[8];
		snprintf(name, sizeof(name), "u%u", u);
		units[u] = e2e_add(e2e, name, 4);
	}
	DO(fsdp_model_seal(e2e->model, NULL));
	for (unsigned u = 0; u < 3; u++)
		e2e_load(units[u], values);
	for (unsigned u = 0; u < 3; u++) {
		gradient[0] = u > 0 && e2e->rank == 1 ? NAN : 1; /* in a part that rank 0 owns */
		e2e_reduce(units[u], gradient, 4);
	}
	DO(fsdp_model_step(e2e->model, NULL, &result));
	CHECK(result.outcome == FSDP_SKIPPED && result.not_finite == 2, "%u units", result.not_finite);
	unsigned first = e2e->rank ? 0 : 1; /* u2, u1 or u1, u2 */
	CHECK(result.not_finite_units[0] == first && result.not_finite_units[1] == first + 1, "units %u, %u",
	      result.not_finite_units[0], result.not_finite_units[1]);
	for (unsigned u = 0; u < 3; u++)
		e2e_full_is(units[u], 0, values, 4);
}

static void a_loss_scale_grows_and_backs_off(struct e2e *e2e)
{
	struct fsdp_options options = with(FSDP_OPTIMIZER_SGD);
	struct fsdp_step step = FSDP_STEP_INIT;
	struct fsdp_step_result result;
	const float values[] = { 8, 8 }, stepped[] = { 7, 6 }, last[] = { 6, 4 };
	float gradient[] = { 4, 8 };
	struct fsdp_unit *unit = e2e_vector(e2e, &options, values, 2);
	step.learning_rate = 1;
	step.loss_scale = 4;
	step.growth_interval = 1;
	step.min_scale = 4;
	step.norm_kind = FSDP_NORM_INF;
	step.max_norm = 2; /* of what is left after the division: nothing is clipped */
	e2e_reduce(unit, gradient, 2);
	DO(fsdp_model_step(e2e->model, &step, &result));
	CHECK(result.next_loss_scale == 8 && result.norm == 2, "scale %g, norm %g", result.next_loss_scale,
	      result.norm);
	e2e_full_is(unit, 0, stepped, 2);
	step.loss_scale = result.next_loss_scale;
	gradient[1] = INFINITY;
	e2e_reduce(unit, gradient, 2);
	DO(fsdp_model_step(e2e->model, &step, &result));
	CHECK(result.outcome == FSDP_SKIPPED && result.next_loss_scale == 4, "scale %g", result.next_loss_scale);
	step.loss_scale = result.next_loss_scale;
	e2e_reduce(unit, gradient, 2);
	FAILS(FSDP_E_STATE, fsdp_model_step(e2e->model, &step, &result), "u0", "not finite", "min_scale is 4",
	      "skipped");
	gradient[1] = 8;
	e2e_reduce(unit, gradient, 2);
	DO(fsdp_model_step(e2e->model, &step, &result));
	CHECK(result.step == 4 && result.next_loss_scale == 8, "step %llu", (unsigned long long)result.step);
	e2e_full_is(unit, 0, last, 2);
	step.loss_scale = e2e->rank ? 8 : 16;
	e2e_reduce(unit, gradient, 2);
	FAILS(FSDP_E_MISMATCH, fsdp_model_step(e2e->model, &step, NULL), "loss_scale 16, rank 1 8");
}

static void rules_out_of_range_are_refused(struct e2e *e2e)
{
	struct fsdp_step step = FSDP_STEP_INIT;
	three_four_twelve(e2e);
	step.max_norm = 1;
	FAILS(FSDP_E_INVALID, fsdp_model_step(e2e->model, &step, NULL), "max_norm", "norm_kind");
	step.norm_kind = 3;
	FAILS(FSDP_E_INVALID, fsdp_model_step(e2e->model, &step, NULL), "norm_kind is 3");
	step.norm_kind = FSDP_NORM_2;
	step.loss_scale = NAN;
	FAILS(FSDP_E_INVALID, fsdp_model_step(e2e->model, &step, NULL), "loss_scale");
	step.loss_scale = 2;
	step.backoff_factor = 0;
	FAILS(FSDP_E_INVALID, fsdp_model_step(e2e->model, &step, NULL), "backoff_factor");
}

const struct e2e_case e2e_numbers[] = {
	{ "numbers_a_mean_is_weighted", a_mean_is_weighted },
	{ "numbers_a_sum_is_weighted", a_sum_is_weighted },
	{ "numbers_at_weight_0_nothing_is_looked_at", at_weight_0_nothing_is_looked_at },
	{ "numbers_weights_that_sum_to_0_skip_the_step", weights_that_sum_to_0_skip_the_step },
	{ "numbers_a_weight_comes_before_the_first_reduce", a_weight_comes_before_the_first_reduce },
	{ "numbers_a_gradient_is_clipped_to_its_norm", a_gradient_is_clipped_to_its_norm },
	{ "numbers_a_norm_is_computed_and_nothing_clipped", a_norm_is_computed_and_nothing_clipped },
	{ "numbers_an_empty_shard_has_the_same_norm", an_empty_shard_has_the_same_norm },
	{ "numbers_a_norm_for_an_optimizer_outside", a_norm_for_an_optimizer_outside },
	{ "numbers_a_norm_of_several_units", a_norm_of_several_units },
	{ "numbers_what_is_not_finite_is_named", what_is_not_finite_is_named },
	{ "numbers_a_loss_scale_grows_and_backs_off", a_loss_scale_grows_and_backs_off },
	{ "numbers_rules_out_of_range_are_refused", rules_out_of_range_are_refused },
	{ 0 },
};
