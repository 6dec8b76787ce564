/* Sizes that do not divide: scalars, nothing, fewer elements than ranks. */
#include "tests/e2e/e2e.h"

/* elements of [0, total) that rank owns */
static uint64_t share(uint64_t total, unsigned rank, unsigned world, uint64_t *ret_offset)
{
	uint64_t each = (total + world - 1) / world, begin = each * rank, end = begin + each;
	begin = begin < total ? begin : total;
	end = end < total ? end : total;
	*ret_offset = begin;
	return end - begin;
}

static void a_large_odd_vector(struct e2e *e2e)
{
	enum { COUNT = 32001 };
	static float values[COUNT];
	uint64_t offset;
	for (int i = 0; i < COUNT; i++)
		values[i] = (float)i / 7.0f;
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, COUNT);
	CHECK(share(COUNT, e2e->rank, e2e->world, &offset) == (e2e->rank == 7 ? 3994u : 4001u), "the oracle is wrong");
	e2e_full_is(unit, 0, values, COUNT);
	e2e_shard_is(unit, values + offset, e2e->rank == 7 ? 3994 : 4001);
}

/* Gradients that equal the rank number give the mean 1.5 on four ranks. */
static void few_elements(struct e2e *e2e, uint64_t count, const uint64_t *counts)
{
	float values[8], gradient[8], mean[8];
	uint64_t offset;
	for (int i = 0; i < 8; i++) {
		values[i] = (float)(10 + i);
		gradient[i] = (float)e2e->rank;
		mean[i] = 1.5f;
	}
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, values, count);
	e2e_full_is(unit, 0, values, count);
	share(count, e2e->rank, e2e->world, &offset);
	e2e_shard_is(unit, values + offset, counts[e2e->rank]);
	e2e_reduce(unit, gradient, count);
	DO(fsdp_model_sync_gradients(e2e->model));
	e2e_gradient_is(unit, mean, counts[e2e->rank]);
	DO(fsdp_model_step(e2e->model, NULL, NULL));
}

static void five_elements_on_four_ranks(struct e2e *e2e)
{
	few_elements(e2e, 5, (const uint64_t[]){ 2, 2, 1, 0 });
}

static void three_elements_on_four_ranks(struct e2e *e2e)
{
	few_elements(e2e, 3, (const uint64_t[]){ 1, 1, 1, 0 });
}

static void a_scalar_on_three_ranks(struct e2e *e2e)
{
	struct fsdp_param param = { .name = "s", .dtype = FSDP_F32, .ndim = 0 };
	struct fsdp_unit_description description;
	const float seven = 7, two = 2, gradient = (float)(e2e->rank + 1);
	e2e_open(e2e, NULL);
	struct fsdp_unit *unit = e2e_add_params(e2e, "u0", &param, 1);
	DO(fsdp_model_seal(e2e->model, NULL));
	e2e_load(unit, &seven);
	DO(fsdp_unit_describe(unit, &description));
	CHECK(description.params[0].ndim == 0 && description.elements == 1, "%u dimensions, %llu elements",
	      description.params[0].ndim, (unsigned long long)description.elements);
	e2e_full_is(unit, 0, &seven, 1);
	e2e_reduce(unit, &gradient, 1);
	DO(fsdp_model_sync_gradients(e2e->model));
	e2e_gradient_is(unit, &two, e2e->rank == 0 ? 1 : 0);
}

static void nothing_between_two_parameters(struct e2e *e2e)
{
	const struct fsdp_param params[] = {
		{ .name = "a", .dtype = FSDP_F32, .ndim = 1, .shape = { 3 } },
		{ .name = "none", .dtype = FSDP_F32, .ndim = 2, .shape = { 0, 8 } },
		{ .name = "b", .dtype = FSDP_F32, .ndim = 1, .shape = { 2 } },
	};
	const float a[] = { 1, 2, 3 }, b[] = { 4, 5 }, ones[] = { 1, 1, 1 };
	const float stepped_a[] = { 0, 1, 2 }, stepped_b[] = { 3, 4 };
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	struct fsdp_step step = FSDP_STEP_INIT;
	struct fsdp_unit_description description;
	options.optimizer = FSDP_OPTIMIZER_SGD;
	step.learning_rate = 1;
	e2e_open(e2e, &options);
	struct fsdp_unit *unit = e2e_add_params(e2e, "u0", params, 3);
	DO(fsdp_model_seal(e2e->model, NULL));
	DO(fsdp_unit_load(unit, (const void *const[]){ a, NULL, b }, 3));
	DO(fsdp_unit_describe(unit, &description));
	CHECK(description.params[1].ndim == 2 && description.params[1].shape[0] == 0 &&
		      description.params[1].shape[1] == 8,
	      "the shape was not kept");
	e2e_full_is(unit, 0, a, 3);
	e2e_full_is(unit, 2, b, 2);
	e2e_grad(unit, 0, ones, 3);
	e2e_grad(unit, 1, NULL, 0);
	e2e_grad(unit, 2, ones, 2);
	DO(fsdp_unit_reduce(unit));
	DO(fsdp_model_step(e2e->model, &step, NULL));
	e2e_full_is(unit, 0, stepped_a, 3);
	e2e_full_is(unit, 2, stepped_b, 2);
}

static void one_element_on_one_rank(struct e2e *e2e)
{
	const float zero = 0, large = 30000;
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, &zero, 1);
	e2e_reduce(unit, &large, 1);
	DO(fsdp_model_sync_gradients(e2e->model));
	e2e_gradient_is(unit, &large, 1);
}

/* Parameters of 3, 1 and 5 elements in one unit, on any number of ranks: gather, reduce, step. */
static void three_parameters_in_a_unit(struct e2e *e2e)
{
	const struct fsdp_param params[] = {
		{ .name = "a", .dtype = FSDP_F32, .ndim = 1, .shape = { 3 } },
		{ .name = "b", .dtype = FSDP_F32, .ndim = 0 },
		{ .name = "c", .dtype = FSDP_F32, .ndim = 2, .shape = { 5, 1 } },
	};
	const float values[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
	float gradient[9], mean[9], stepped[9];
	uint64_t offset, count = share(9, e2e->rank, e2e->world, &offset);
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	struct fsdp_step step = FSDP_STEP_INIT;
	options.optimizer = FSDP_OPTIMIZER_SGD;
	step.learning_rate = 0.5;
	for (int i = 0; i < 9; i++) {
		gradient[i] = (float)(e2e->rank * 2 + (unsigned)i);
		mean[i] = (float)(e2e->world - 1) + (float)i;
		stepped[i] = values[i] - 0.5f * mean[i];
	}
	e2e_open(e2e, &options);
	struct fsdp_unit *unit = e2e_add_params(e2e, "u0", params, 3);
	DO(fsdp_model_seal(e2e->model, NULL));
	DO(fsdp_unit_load(unit, (const void *const[]){ values, values + 3, values + 4 }, 3));
	e2e_full_is(unit, 0, values, 3);
	e2e_full_is(unit, 1, values + 3, 1);
	e2e_full_is(unit, 2, values + 4, 5);
	e2e_shard_is(unit, values + offset, count);
	e2e_grad(unit, 0, gradient, 3);
	e2e_grad(unit, 1, gradient + 3, 1);
	e2e_grad(unit, 2, gradient + 4, 5);
	DO(fsdp_unit_reduce(unit));
	DO(fsdp_model_sync_gradients(e2e->model));
	e2e_gradient_is(unit, mean + offset, count);
	DO(fsdp_model_step(e2e->model, &step, NULL));
	e2e_full_is(unit, 0, stepped, 3);
	e2e_full_is(unit, 1, stepped + 3, 1);
	e2e_full_is(unit, 2, stepped + 4, 5);
}

const struct e2e_case e2e_sizes[] = {
	{ "sizes_a_large_odd_vector", a_large_odd_vector },
	{ "sizes_five_elements_on_four_ranks", five_elements_on_four_ranks },
	{ "sizes_three_elements_on_four_ranks", three_elements_on_four_ranks },
	{ "sizes_a_scalar_on_three_ranks", a_scalar_on_three_ranks },
	{ "sizes_nothing_between_two_parameters", nothing_between_two_parameters },
	{ "sizes_one_element_on_one_rank", one_element_on_one_rank },
	{ "sizes_three_parameters_in_a_unit", three_parameters_in_a_unit },
	{ 0 },
};
