/* Update rules through the library: every optimizer, against the same rule written out here. */
#include "tests/e2e/e2e.h"

#include <math.h>

enum { COUNT = 13, STEPS = 4 };

/* One element of a reference: its value, and what the optimizer remembers of it. */
struct element {
	float value, moments[3];
};

typedef void rule(struct element *element, float gradient, double step);

/* What the cases below pass. */
#define RATE 0.125
#define DECAY 0.25

static void adam_from(struct element *e, float gradient, double step)
{
	e->moments[0] = e->moments[0] * 0.9f + (float)(1 - 0.9) * gradient;
	e->moments[1] = e->moments[1] * 0.999f + ((float)(1 - 0.999) * gradient) * gradient;
	e->value -= ((float)(RATE / (1 - pow(0.9, step))) * e->moments[0]) /
		    (sqrtf(e->moments[1]) / (float)sqrt(1 - pow(0.999, step)) + 1e-8f);
}

static void adam(struct element *e, float gradient, double step)
{
	adam_from(e, gradient + (float)DECAY * e->value, step);
}

static void adamw(struct element *e, float gradient, double step)
{
	e->value *= (float)(1 - RATE * DECAY);
	adam_from(e, gradient, step);
}

static void adagrad(struct element *e, float gradient, double step)
{
	float d = gradient + (float)DECAY * e->value;
	e->moments[0] = (step == 1 ? 0.5f : e->moments[0]) + d * d;
	e->value -= ((float)(RATE / (1 + (step - 1) * 0.0625)) * d) / (sqrtf(e->moments[0]) + 1e-8f);
}

static void rmsprop(struct element *e, float gradient, double step)
{
	float d = gradient + (float)DECAY * e->value;
	(void)step;
	e->moments[0] = e->moments[0] * 0.99f + ((float)(1 - 0.99) * d) * d;
	e->value -= ((float)RATE * d) / (sqrtf(e->moments[0]) + 1e-8f);
}

/* Three moments: the mean of squares, the mean, the momentum buffer. */
static void rmsprop_full(struct element *e, float gradient, double step)
{
	float d = gradient + (float)DECAY * e->value;
	(void)step;
	e->moments[0] = e->moments[0] * 0.99f + ((float)(1 - 0.99) * d) * d;
	e->moments[1] = e->moments[1] * 0.99f + (float)(1 - 0.99) * d;
	e->moments[2] = e->moments[2] * 0.5f + d / (sqrtf(e->moments[0] - e->moments[1] * e->moments[1]) + 1e-8f);
	e->value -= (float)RATE * e->moments[2];
}

static void lion(struct element *e, float gradient, double step)
{
	float u = e->moments[0] * 0.9f + (float)(1 - 0.9) * gradient;
	(void)step;
	e->value = e->value * (float)(1 - RATE * DECAY) - (float)RATE * (u > 0 ? 1.0f : u < 0 ? -1.0f : 0.0f);
	e->moments[0] = e->moments[0] * 0.999f + (float)(1 - 0.999) * gradient;
}

/* Two parameters in a unit, cut anywhere. Every rank gives the same gradient, of which the mean is exact, so that every
 * world has the same bits. */
static void compare(struct e2e *e2e, const struct fsdp_options *options, const struct fsdp_step *step, rule *reference)
{
	const struct fsdp_param params[] = {
		{ .name = "a", .dtype = FSDP_F32, .ndim = 2, .shape = { 2, 3 } },
		{ .name = "b", .dtype = FSDP_F32, .ndim = 1, .shape = { COUNT - 6 } },
	};
	struct element elements[COUNT] = { 0 };
	float values[COUNT], gradient[COUNT];
	e2e_open(e2e, options);
	struct fsdp_unit *unit = e2e_add_params(e2e, "u0", params, 2);
	DO(fsdp_model_seal(e2e->model, NULL));
	for (int i = 0; i < COUNT; i++)
		elements[i].value = values[i] = (float)(i - 4) * 0.75f;
	DO(fsdp_unit_load(unit, (const void *[]){ values, values + 6 }, 2));
	for (int s = 1; s <= STEPS; s++) {
		for (int i = 0; i < COUNT; i++) {
			gradient[i] = (float)((i * 7 + s * 5) % 11 - 5) * 0.25f;
			reference(&elements[i], gradient[i], s);
			values[i] = elements[i].value;
		}
		e2e_grad(unit, 0, gradient, 6);
		e2e_grad(unit, 1, gradient + 6, COUNT - 6);
		DO(fsdp_unit_reduce(unit));
		DO(fsdp_model_step(e2e->model, step, NULL));
		e2e_full_is(unit, 0, values, 6);
		e2e_full_is(unit, 1, values + 6, COUNT - 6);
	}
}

static struct fsdp_step step_of(void)
{
	struct fsdp_step step = FSDP_STEP_INIT;
	step.learning_rate = RATE;
	step.weight_decay = DECAY;
	return step;
}

static void one(struct e2e *e2e, uint32_t optimizer, rule *reference)
{
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	struct fsdp_step step = step_of();
	options.optimizer = optimizer;
	compare(e2e, &options, &step, reference);
}

static void adam_is(struct e2e *e2e)
{
	one(e2e, FSDP_OPTIMIZER_ADAM, adam);
}

static void adamw_is(struct e2e *e2e)
{
	one(e2e, FSDP_OPTIMIZER_ADAMW, adamw);
}

static void rmsprop_is(struct e2e *e2e)
{
	one(e2e, FSDP_OPTIMIZER_RMSPROP, rmsprop);
}

static void lion_is(struct e2e *e2e)
{
	one(e2e, FSDP_OPTIMIZER_LION, lion);
}

static void adagrad_is(struct e2e *e2e)
{
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	struct fsdp_step step = step_of();
	options.optimizer = FSDP_OPTIMIZER_ADAGRAD;
	step.learning_rate_decay = 0.0625;
	step.initial_accumulator = 0.5;
	compare(e2e, &options, &step, adagrad);
}

static void rmsprop_centered_with_momentum_is(struct e2e *e2e)
{
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	struct fsdp_step step = step_of();
	options.optimizer = FSDP_OPTIMIZER_RMSPROP;
	options.momentum = options.centered = 1;
	step.momentum = 0.5;
	compare(e2e, &options, &step, rmsprop_full);
}

static void what_an_optimizer_cannot_use_is_refused(struct e2e *e2e)
{
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	struct fsdp_step step = FSDP_STEP_INIT;
	struct fsdp_model *model;
	const float values[] = { 1, 2 };
	options.optimizer = FSDP_OPTIMIZER_LION;
	options.centered = 1;
	FAILS(FSDP_E_INVALID, fsdp_model_open(e2e->client, "m", &options, &model), "centered");
	options.optimizer = 7;
	options.centered = 0;
	FAILS(FSDP_E_INVALID, fsdp_model_open(e2e->client, "m", &options, &model), "optimizer");
	options.optimizer = FSDP_OPTIMIZER_RMSPROP;
	e2e_vector(e2e, &options, values, 2);
	step.alpha = 1.5;
	FAILS(FSDP_E_INVALID, fsdp_model_step(e2e->model, &step, NULL), "alpha");
	step.alpha = e2e->rank ? 0.5 : 0.25;
	FAILS(FSDP_E_MISMATCH, fsdp_model_step(e2e->model, &step, NULL), "rank 0 passed alpha 0.25, rank 1 0.5");
}

/* ---- Groups ---- */

/* A unit of a[3], b[5] of group 1, c[2] of group 2, all 8. */
static struct fsdp_unit *in_groups(struct e2e *e2e)
{
	const struct fsdp_param params[] = {
		{ .name = "a", .dtype = FSDP_F32, .ndim = 1, .shape = { 3 } },
		{ .name = "b", .dtype = FSDP_F32, .ndim = 1, .shape = { 5 }, .group = 1 },
		{ .name = "c", .dtype = FSDP_F32, .ndim = 1, .shape = { 2 }, .group = 2 },
	};
	const float eights[] = { 8, 8, 8, 8, 8 };
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	options.optimizer = FSDP_OPTIMIZER_SGD;
	e2e_open(e2e, &options);
	struct fsdp_unit *unit = e2e_add_params(e2e, "u0", params, 3);
	DO(fsdp_model_seal(e2e->model, NULL));
	DO(fsdp_unit_load(unit, (const void *[]){ eights, eights, eights }, 3));
	return unit;
}

/* Every gradient is 4. */
static void step_groups(struct e2e *e2e, struct fsdp_unit *unit, const struct fsdp_step *step, float a, float b,
			float c)
{
	const float fours[] = { 4, 4, 4, 4, 4 }, wanted[3][5] = { { a, a, a }, { b, b, b, b, b }, { c, c } };
	for (size_t p = 0; p < 3; p++)
		e2e_grad(unit, p, fours, p == 0 ? 3 : p == 1 ? 5 : 2);
	DO(fsdp_unit_reduce(unit));
	DO(fsdp_model_step(e2e->model, step, NULL));
	for (size_t p = 0; p < 3; p++)
		e2e_full_is(unit, p, wanted[p], p == 0 ? 3 : p == 1 ? 5 : 2);
}

static void groups_have_numbers_of_their_own(struct e2e *e2e)
{
	struct fsdp_unit *unit = in_groups(e2e);
	struct fsdp_step step = FSDP_STEP_INIT;
	step.learning_rate = 0.25;
	struct fsdp_step_group groups[] = { FSDP_STEP_GROUP_INIT(9, step), FSDP_STEP_GROUP_INIT(1, step) };
	groups[0].learning_rate = 100; /* nobody is in it */
	groups[1].learning_rate = 0.5;
	groups[1].weight_decay = 0.25; /* the gradient is 4 + 2 */
	step.groups = groups;
	step.group_count = 2;
	step_groups(e2e, unit, &step, 7, 5, 7);
	groups[0] = (struct fsdp_step_group)FSDP_STEP_GROUP_INIT(2, step);
	groups[0].learning_rate = 0;
	step.group_count = 1;
	step_groups(e2e, unit, &step, 6, 4, 7);
	step_groups(e2e, unit, NULL, 6 - 0.001f * 4, 4 - 0.001f * 4, 7 - 0.001f * 4);
}

static void groups_that_differ_are_refused(struct e2e *e2e)
{
	struct fsdp_unit *unit = in_groups(e2e);
	struct fsdp_step step = FSDP_STEP_INIT;
	step.learning_rate = 0.25;
	struct fsdp_step_group groups[] = { FSDP_STEP_GROUP_INIT(1, step), FSDP_STEP_GROUP_INIT(3, step) };
	step.groups = groups;
	step.group_count = 2;
	groups[1].weight_decay = e2e->rank ? 0.5 : 0.125;
	FAILS(FSDP_E_MISMATCH, fsdp_model_step(e2e->model, &step, NULL),
	      "rank 0 passed weight_decay 0.125 for group 3, rank 1 0.5");
	/* Only rank 1 says something of group 1: it is compared with the step's own. */
	groups[0].learning_rate = 0.5;
	step.group_count = e2e->rank;
	FAILS(FSDP_E_MISMATCH, fsdp_model_step(e2e->model, &step, NULL),
	      "rank 0 passed learning_rate 0.25 for group 1, rank 1 0.5");
	/* The same said in two ways is the same. */
	groups[0] = (struct fsdp_step_group)FSDP_STEP_GROUP_INIT(1, step);
	step_groups(e2e, unit, &step, 7, 7, 7);
}

static void groups_that_make_no_sense_are_refused(struct e2e *e2e)
{
	static struct fsdp_step_group groups[FSDP_STEP_GROUPS_MAX + 1];
	struct fsdp_step step = FSDP_STEP_INIT;
	struct fsdp_unit *unit = in_groups(e2e);
	for (uint32_t i = 0; i <= FSDP_STEP_GROUPS_MAX; i++)
		groups[i] = (struct fsdp_step_group)FSDP_STEP_GROUP_INIT(i + 1, step);
	step.groups = groups;
	step.group_count = FSDP_STEP_GROUPS_MAX + 1;
	FAILS(FSDP_E_INVALID, fsdp_model_step(e2e->model, &step, NULL), "group_count is 65");
	groups[1].group = 1;
	step.group_count = 2;
	FAILS(FSDP_E_INVALID, fsdp_model_step(e2e->model, &step, NULL), "group 1 is given twice");
	groups[1].group = 0;
	FAILS(FSDP_E_INVALID, fsdp_model_step(e2e->model, &step, NULL), "group 0");
	groups[1].group = 4;
	groups[1].learning_rate = -1;
	FAILS(FSDP_E_INVALID, fsdp_model_step(e2e->model, &step, NULL), "group 4", "learning_rate is -1");
	groups[1].learning_rate = 1;
	groups[1].momentum = 0.5; /* what only the daemon knows */
	FAILS(FSDP_E_INVALID, fsdp_model_step(e2e->model, &step, NULL), "group 4", "momentum");
	step.group_count = 0;
	step.learning_rate = 1;
	step_groups(e2e, unit, &step, 4, 4, 4);
}

static void parameters_in_other_groups_are_refused(struct e2e *e2e)
{
	const struct fsdp_param param = {
		.name = "a", .dtype = FSDP_F32, .ndim = 1, .shape = { 3 }, .group = 1 + e2e->rank
	};
	e2e_open(e2e, NULL);
	e2e_add_params(e2e, "u0", &param, 1);
	FAILS(FSDP_E_MISMATCH, fsdp_model_seal(e2e->model, NULL),
	      "rank 0 has a f32[3] group 1, rank 1 has a f32[3] group 2");
}

const struct e2e_case e2e_rules[] = {
	{ "rules_adam", adam_is },
	{ "rules_adamw", adamw_is },
	{ "rules_adagrad", adagrad_is },
	{ "rules_rmsprop", rmsprop_is },
	{ "rules_rmsprop_centered_with_momentum", rmsprop_centered_with_momentum_is },
	{ "rules_lion", lion_is },
	{ "rules_groups_have_numbers_of_their_own", groups_have_numbers_of_their_own },
	{ "rules_groups_that_differ_are_refused", groups_that_differ_are_refused },
	{ "rules_groups_that_make_no_sense_are_refused", groups_that_make_no_sense_are_refused },
	{ "rules_parameters_in_other_groups_are_refused", parameters_in_other_groups_are_refused },
	{ "rules_what_an_optimizer_cannot_use_is_refused", what_an_optimizer_cannot_use_is_refused },
	{ 0 },
};
