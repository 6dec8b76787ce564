/* Where the first values come from: one rank's, or zeros. (That all ranks' agree is in steps.c.) */
#include "tests/e2e/e2e.h"

static struct fsdp_options from_rank(uint32_t rank)
{
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	options.optimizer = FSDP_OPTIMIZER_SGD;
	options.init = FSDP_INIT_FROM_RANK;
	options.init_rank = rank;
	return options;
}

static void one_rank_s_values_are_everybody_s(struct e2e *e2e)
{
	static const float ours[2][4] = { { 1, 1, 1, 1 }, { 9, 9, 9, 9 } };
	for (uint32_t from = 0; from < 2; from++) {
		struct fsdp_options options = from_rank(from);
		struct fsdp_unit *unit = e2e_vector(e2e, &options, ours[e2e->rank != 0], 4);
		e2e_full_is(unit, 0, ours[from], 4);
		e2e_close(e2e);
		e2e_meet(e2e, from ? "second" : "first");
	}
}

/* Every rank but the one may pass nothing, or not call at all; and steps go on from there. */
static void the_others_need_no_values(struct e2e *e2e)
{
	enum { COUNT = 70001 };
	static float values[COUNT], gradient[COUNT];
	struct fsdp_options options = from_rank(e2e->world - 1);
	struct fsdp_step step = FSDP_STEP_INIT;
	e2e_open(e2e, &options);
	for (unsigned u = 0; u < 3; u++) {
		char name[16];
		snprintf(name, sizeof(name), "u%u", u);
		e2e_add(e2e, name, u == 1 ? 1 : COUNT);
	}
	DO(fsdp_model_seal(e2e->model, NULL));
	for (unsigned u = 3; u-- > 0;) {
		const void *list[1] = { values };
		for (int i = 0; i < COUNT; i++)
			values[i] = (float)(u * 100000 + (unsigned)i);
		if (e2e->rank == e2e->world - 1)
			DO(fsdp_unit_load(e2e->units[u], list, 1));
		else if (e2e->rank == 0)
			DO(fsdp_unit_load(e2e->units[u], NULL, 0));
	}
	for (unsigned u = 0; u < 3; u++) {
		for (int i = 0; i < COUNT; i++)
			values[i] = (float)(u * 100000 + (unsigned)i);
		e2e_full_is(e2e->units[u], 0, values, u == 1 ? 1 : COUNT);
		for (int i = 0; i < COUNT; i++) {
			gradient[i] = 2;
			values[i] -= 0.25f * 2;
		}
		e2e_reduce(e2e->units[u], gradient, u == 1 ? 1 : COUNT);
	}
	step.learning_rate = 0.25;
	DO(fsdp_model_step(e2e->model, &step, NULL));
	e2e_full_is(e2e->units[2], 0, values, COUNT);
}

/* The deadline of the cluster is 2 s. */
static void the_rank_whose_values_are_missing_is_named(struct e2e *e2e)
{
	static const float values[3] = { 4, 5, 6 };
	struct fsdp_options options = from_rank(1);
	e2e_open(e2e, &options);
	struct fsdp_unit *unit = e2e_add(e2e, "u0", 3);
	DO(fsdp_model_seal(e2e->model, NULL));
	if (e2e->rank != 1)
		FAILS(FSDP_E_TIMEOUT, fsdp_unit_unshard(unit), "\"u0\"", "initial values", "waiting for rank 1");
	else
		FAILS(FSDP_E_STATE, fsdp_unit_unshard(unit), "\"u0\"", "load it first");
	e2e_meet(e2e, "failed");
	e2e_load(unit, values);
	e2e_full_is(unit, 0, values, 3);
	if (e2e->rank == 1) {
		const void *list[1] = { values };
		FAILS(FSDP_E_STATE, fsdp_unit_load(unit, list, 1), "version 1");
	}
}

static void zeros_need_no_load(struct e2e *e2e)
{
	static const float zeros[5], ones[5] = { 1, 1, 1, 1, 1 }, moved[5] = { -0.5f, -0.5f, -0.5f, -0.5f, -0.5f };
	const void *list[1] = { ones };
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	struct fsdp_step step = FSDP_STEP_INIT;
	options.optimizer = FSDP_OPTIMIZER_SGD;
	options.init = FSDP_INIT_ZEROS;
	e2e_open(e2e, &options);
	struct fsdp_unit *unit = e2e_add(e2e, "u0", 5);
	DO(fsdp_model_seal(e2e->model, NULL));
	FAILS(FSDP_E_STATE, fsdp_unit_load(unit, list, 1), "\"u0\"", "zeros");
	e2e_full_is(unit, 0, zeros, 5);
	e2e_reduce(unit, ones, 5);
	step.learning_rate = 0.5;
	DO(fsdp_model_step(e2e->model, &step, NULL));
	e2e_full_is(unit, 0, moved, 5);
}

static void other_origins_are_refused(struct e2e *e2e)
{
	struct fsdp_options options = from_rank(7);
	FAILS(FSDP_E_INVALID, fsdp_model_open(e2e->client, "m", &options, &e2e->model), "init_rank is 7", "2 ranks");
	options = from_rank(e2e->rank);
	e2e_open(e2e, &options);
	e2e_add(e2e, "u0", 5);
	FAILS(FSDP_E_MISMATCH, fsdp_model_seal(e2e->model, NULL), "option init", "rank 0 has from rank 0",
	      "rank 1 has from rank 1");
}

const struct e2e_case e2e_initial[] = {
	{ "initial_one_rank_s_values_are_everybody_s", one_rank_s_values_are_everybody_s },
	{ "initial_the_others_need_no_values", the_others_need_no_values },
	{ "initial_the_rank_whose_values_are_missing_is_named", the_rank_whose_values_are_missing_is_named },
	{ "initial_zeros_need_no_load", zeros_need_no_load },
	{ "initial_other_origins_are_refused", other_origins_are_refused },
	{ 0 },
};
