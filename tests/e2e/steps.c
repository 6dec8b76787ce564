/* Steps: optimizers in the daemon, staging, micro-batches, aborts, several units, what is refused. */
#include "tests/e2e/e2e.h"

#include <math.h>

static struct fsdp_options with(uint32_t optimizer)
{
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	options.optimizer = optimizer;
	return options;
}

static void adamw_agrees_with_pytorch(struct e2e *e2e)
{
	struct fsdp_options options = with(FSDP_OPTIMIZER_ADAMW);
	struct fsdp_step step = FSDP_STEP_INIT;
	struct fsdp_step_result result;
	const float one[] = { 1, 1, 1, 1, 1 }, half[] = { 0.5f, 0.5f, 0.5f, 0.5f, 0.5f };
	struct fsdp_unit *unit = e2e_vector(e2e, &options, one, 5);
	step.learning_rate = 0.1;
	e2e_reduce(unit, half, 5);
	DO(fsdp_model_step(e2e->model, &step, &result));
	CHECK(result.step == 1 && result.outcome == FSDP_APPLIED, "step %llu", (unsigned long long)result.step);
	DO(fsdp_unit_unshard(unit));
	const float *values = fsdp_unit_param(unit, 0);
	for (int i = 0; i < 5; i++)
		CHECK(values[i] >= nextafterf(0.9f, 0) && values[i] <= nextafterf(0.9f, 1), "%.9g", (double)values[i]);
	DO(fsdp_unit_reshard(unit));
}

static void sgd_with_momentum(struct e2e *e2e)
{
	struct fsdp_options options = with(FSDP_OPTIMIZER_SGD);
	struct fsdp_step step = FSDP_STEP_INIT;
	options.momentum = 1;
	step.learning_rate = 0.5;
	step.momentum = 0.5;
	const float values[] = { 8, 16 }, gradient[] = { 2, 4 };
	/* momentum 2, 3; values 8 - 1 = 7, 7 - 1.5 = 5.5 */
	const float first[] = { 7, 14 }, second[] = { 5.5f, 11 };
	struct fsdp_unit *unit = e2e_vector(e2e, &options, values, 2);
	e2e_reduce(unit, gradient, 2);
	DO(fsdp_model_step(e2e->model, &step, NULL));
	e2e_full_is(unit, 0, first, 2);
	e2e_reduce(unit, gradient, 2);
	DO(fsdp_model_step(e2e->model, &step, NULL));
	e2e_full_is(unit, 0, second, 2);
}

/* An optimizer outside: read the gradient, write the staging copy, publish. */
static void staging_is_published(struct e2e *e2e)
{
	const float values[] = { 1, 2, 3, 4, 5 }, expected[] = { 0.5f, 1.5f, 2.5f, 3.5f, 4.5f };
	float gradient[5];
	struct fsdp_shard shard;
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, 5);
	for (int i = 0; i < 5; i++)
		gradient[i] = e2e->rank == 0 ? (float)e2e->world : 0.0f; /* the mean is 1 */
	e2e_reduce(unit, gradient, 5);
	DO(fsdp_model_sync_gradients(e2e->model));
	DO(fsdp_unit_shard(unit, 0, &shard));
	for (uint64_t i = 0; i < shard.count; i++)
		((float *)shard.staging)[i] =
			((const float *)shard.parameter)[i] - 0.5f * ((const float *)shard.gradient)[i];
	DO(fsdp_model_update_shards(e2e->model, NULL, 0));
	e2e_full_is(unit, 0, expected, 5);
}

static void micro_batches_add_up(struct e2e *e2e)
{
	const float values[] = { 0, 0, 0 };
	float gradient[3], mean[3];
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, 3);
	/* rank r gives r + 1 in each of three micro-batches, and 3 more in the last */
	for (unsigned micro = 0; micro < 3; micro++) {
		for (int i = 0; i < 3; i++)
			gradient[i] = (float)(e2e->rank + 1 + (micro == 2 ? 3 : 0));
		e2e_reduce(unit, gradient, 3);
		if (micro < 2)
			DO(fsdp_model_next_micro_batch(e2e->model));
	}
	for (int i = 0; i < 3; i++)
		mean[i] = (float)(e2e->world + 1) / 2.0f + 1.0f;
	DO(fsdp_model_sync_gradients(e2e->model));
	struct fsdp_shard shard;
	DO(fsdp_unit_shard(unit, 0, &shard));
	e2e_gradient_is(unit, mean, shard.count);
}

static void an_untouched_micro_batch_does_not_count(struct e2e *e2e)
{
	const float values[] = { 0, 0 }, gradient[] = { 3, 6 };
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, 2);
	e2e_reduce(unit, gradient, 2);
	DO(fsdp_model_next_micro_batch(e2e->model));
	DO(fsdp_model_sync_gradients(e2e->model));
	e2e_gradient_is(unit, gradient + e2e->rank, 1);
}

static void a_sum_is_scaled(struct e2e *e2e)
{
	struct fsdp_options options = with(FSDP_OPTIMIZER_NONE);
	options.reduce_op = FSDP_SUM;
	options.scale = 0.5;
	const float values[] = { 0, 0 }, gradient[] = { 3, 5 };
	float sum[] = { 3 * 0.5f * (float)e2e->world, 5 * 0.5f * (float)e2e->world };
	struct fsdp_unit *unit = e2e_vector(e2e, &options, values, 2);
	e2e_reduce(unit, gradient, 2);
	DO(fsdp_model_sync_gradients(e2e->model));
	e2e_gradient_is(unit, sum + e2e->rank, 1);
}

/* f32 1e8, 1, -1e8, 1 from ranks 0 to 3, summed in rank order, is 1. */
static void a_sum_is_in_rank_order(struct e2e *e2e)
{
	struct fsdp_options options = with(FSDP_OPTIMIZER_NONE);
	options.reduce_op = FSDP_SUM;
	static float values[5000], gradient[5000], sum[5000];
	const float mine[] = { 1e8f, 1, -1e8f, 1 };
	for (int i = 0; i < 5000; i++) {
		gradient[i] = mine[e2e->rank];
		sum[i] = 1;
	}
	struct fsdp_unit *unit = e2e_vector(e2e, &options, values, 5000);
	e2e_reduce(unit, gradient, 5000);
	DO(fsdp_model_sync_gradients(e2e->model));
	e2e_gradient_is(unit, sum, 1250);
}

static void an_aborted_attempt_leaves_no_trace(struct e2e *e2e)
{
	const float values[] = { 0, 0, 0, 0 }, old[] = { 100, 100, 100, 100 }, fresh[] = { 2, 4, 6, 8 };
	e2e_open(e2e, NULL);
	struct fsdp_unit *u0 = e2e_add(e2e, "u0", 4), *u1 = e2e_add(e2e, "u1", 4);
	DO(fsdp_model_seal(e2e->model, NULL));
	e2e_load(u0, values);
	e2e_load(u1, values);
	e2e_reduce(u0, old, 4);
	if (e2e->rank == 1)
		e2e_reduce(u1, old, 4);
	e2e_meet(e2e, "reduced");
	if (e2e->rank == 0)
		DO(fsdp_model_abort_step(e2e->model));
	e2e_meet(e2e, "aborted");
	if (e2e->rank == 1)
		FAILS(FSDP_E_ABORTED, fsdp_model_sync_gradients(e2e->model), "abort");
	e2e_reduce(u0, fresh, 4);
	e2e_reduce(u1, fresh, 4);
	DO(fsdp_model_sync_gradients(e2e->model));
	e2e_gradient_is(u0, fresh + 2 * e2e->rank, 2);
	e2e_gradient_is(u1, fresh + 2 * e2e->rank, 2);
}

static void different_options_are_refused(struct e2e *e2e)
{
	struct fsdp_options options = with(FSDP_OPTIMIZER_SGD);
	struct fsdp_step step = FSDP_STEP_INIT;
	const float values[] = { 1, 2 }, gradient[] = { 1, 1 }, stepped[] = { 0, 1 };
	struct fsdp_unit *unit = e2e_vector(e2e, &options, values, 2);
	e2e_reduce(unit, gradient, 2);
	step.learning_rate = e2e->rank ? 0.25 : 0.125;
	FAILS(FSDP_E_MISMATCH, fsdp_model_step(e2e->model, &step, NULL), "learning", "0.125", "0.25", "rank 0",
	      "rank 1");
	e2e_full_is(unit, 0, values, 2);
	step.learning_rate = 1;
	e2e_reduce(unit, gradient, 2);
	DO(fsdp_model_step(e2e->model, &step, NULL));
	e2e_full_is(unit, 0, stepped, 2);
}

static void a_gradient_that_is_not_finite_skips(struct e2e *e2e)
{
	struct fsdp_options options = with(FSDP_OPTIMIZER_SGD);
	struct fsdp_step_result result;
	const float values[] = { 1, 2, 3, 4 };
	float gradient[] = { 1, 1, 1, 1 };
	struct fsdp_unit *unit = e2e_vector(e2e, &options, values, 4);
	if (e2e->rank == 1)
		gradient[0] = INFINITY; /* in a part that rank 0 owns */
	e2e_reduce(unit, gradient, 4);
	DO(fsdp_model_step(e2e->model, NULL, &result));
	CHECK(result.outcome == FSDP_SKIPPED && result.step == 1, "outcome %u", result.outcome);
	e2e_full_is(unit, 0, values, 4);
}

static void calls_out_of_order_are_refused(struct e2e *e2e)
{
	const float values[] = { 1, 2, 3, 4 };
	void *grad;
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, 4);
	const void *list[] = { values };
	FAILS(FSDP_E_STATE, fsdp_unit_reshard(unit), "u0");
	e2e_full_is(unit, 0, values, 4);
	FAILS(FSDP_E_STATE, fsdp_unit_load(unit, list, 1), "u0");
	FAILS(FSDP_E_STATE, fsdp_unit_reduce(unit), "u0");
	e2e_reduce(unit, values, 4);
	FAILS(FSDP_E_STATE, fsdp_unit_grad(unit, 0, &grad), "u0");
	DO(fsdp_model_sync_gradients(e2e->model));
	FAILS(FSDP_E_STATE, fsdp_unit_grad(unit, 0, &grad), "u0");
	DO(fsdp_model_update_shards(e2e->model, NULL, 0));
	struct fsdp_unit *late;
	struct fsdp_param param = { .name = "x", .dtype = FSDP_F32 };
	FAILS(FSDP_E_STATE, fsdp_unit_add(e2e->model, "late", &param, 1, &late), "seal");
}

static void initial_values_must_agree(struct e2e *e2e)
{
	const float ones[] = { 1, 1, 1, 1 }, nines[] = { 9, 9, 9, 9 };
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, e2e->rank ? nines : ones, 4);
	FAILS(FSDP_E_MISMATCH, fsdp_unit_unshard(unit), "w", "rank 0", "rank 1", "checksum");
	e2e_meet(e2e, "refused");
	e2e_load(unit, ones);
	e2e_full_is(unit, 0, ones, 4);
}

static void a_kept_model_resumes(struct e2e *e2e)
{
	const float values[] = { 1, 2, 3, 4 }, fresh[] = { 5, 6, 7, 8 };
	struct fsdp_model_info info;
	e2e_vector(e2e, NULL, values, 4);
	DO(fsdp_model_update_shards(e2e->model, fresh + 2 * e2e->rank, 2));
	DO(fsdp_model_close(e2e->model, 1));
	e2e_open(e2e, NULL);
	struct fsdp_unit *unit = e2e_add(e2e, "u0", 4);
	DO(fsdp_model_seal(e2e->model, &info));
	CHECK(info.resumed == 1 && info.step == 1, "resumed %u, step %llu", info.resumed,
	      (unsigned long long)info.step);
	e2e_full_is(unit, 0, fresh, 4);
}

/* Ten steps over several units with the parameters changing under way: every rank sees the same, step by step. */
static void ten_steps_of_several_units(struct e2e *e2e)
{
	enum { UNITS = 4, COUNT = 3001 };
	static float values[UNITS][COUNT], gradient[COUNT];
	struct fsdp_options options = with(FSDP_OPTIMIZER_SGD);
	struct fsdp_step step = FSDP_STEP_INIT;
	step.learning_rate = 0.25;
	e2e_open(e2e, &options);
	for (unsigned u = 0; u < UNITS; u++) {
		char name[8];
		snprintf(name, sizeof(name), "u%u", u);
		e2e_add(e2e, name, COUNT);
		for (int i = 0; i < COUNT; i++)
			values[u][i] = (float)(u * 1000 + (unsigned)i);
	}
	DO(fsdp_model_seal(e2e->model, NULL));
	for (unsigned u = 0; u < UNITS; u++)
		e2e_load(e2e->units[u], values[u]);
	for (unsigned s = 0; s < 10; s++) {
		for (unsigned u = 0; u < UNITS; u++)
			e2e_full_is(e2e->units[u], 0, values[u], COUNT);
		for (unsigned u = UNITS; u-- > 0;) {
			if ((s + u) % 3 == 0)
				continue; /* nobody has a gradient for it in this step */
			for (int i = 0; i < COUNT; i++) {
				float sum = 0;
				for (unsigned r = 0; r < e2e->world; r++)
					sum = r ? sum + (float)(r + s + (unsigned)i % 7) : (float)(s + (unsigned)i % 7);
				gradient[i] = (float)(e2e->rank + s + (unsigned)i % 7);
				values[u][i] += -0.25f * (sum / (float)e2e->world);
			}
			e2e_reduce(e2e->units[u], gradient, COUNT);
		}
		DO(fsdp_model_step(e2e->model, &step, NULL));
	}
}

const struct e2e_case e2e_steps[] = {
	{ "steps_adamw_agrees_with_pytorch", adamw_agrees_with_pytorch },
	{ "steps_sgd_with_momentum", sgd_with_momentum },
	{ "steps_staging_is_published", staging_is_published },
	{ "steps_micro_batches_add_up", micro_batches_add_up },
	{ "steps_an_untouched_micro_batch_does_not_count", an_untouched_micro_batch_does_not_count },
	{ "steps_a_sum_is_scaled", a_sum_is_scaled },
	{ "steps_a_sum_is_in_rank_order", a_sum_is_in_rank_order },
	{ "steps_an_aborted_attempt_leaves_no_trace", an_aborted_attempt_leaves_no_trace },
	{ "steps_different_options_are_refused", different_options_are_refused },
	{ "steps_a_gradient_that_is_not_finite_skips", a_gradient_that_is_not_finite_skips },
	{ "steps_calls_out_of_order_are_refused", calls_out_of_order_are_refused },
	{ "steps_initial_values_must_agree", initial_values_must_agree },
	{ "steps_a_kept_model_resumes", a_kept_model_resumes },
	{ "steps_ten_steps_of_several_units", ten_steps_of_several_units },
	{ 0 },
};
