/* Describing a model: options, units of many parameters, what is refused before and at the seal. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/client/trainer.h"

#define says(part) cr_assert(strstr(fsdp_last_error(), part), "%s", fsdp_last_error())

static struct fsdp_client *open_client(const struct fake *fake)
{
	struct fsdp_client *client = NULL;
	cr_assert_eq(fsdp_client_open(fake->path, &client), 0, "%s", fsdp_last_error());
	return client;
}

Test(client_model, options_travel_as_they_were_given)
{
	struct fake *fake = fake_start();
	struct fsdp_client *client = open_client(fake);
	struct fsdp_model *model;
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	options.reduce_op = FSDP_SUM;
	options.scale = 0.25;
	options.gather_dtype = FSDP_F32;
	options.optimizer = FSDP_OPTIMIZER_SGD;
	options.momentum = 1;
	options.nesterov = 1;
	options.deadline_ms = 1500;
	options.local_worker = 1;
	options.local_workers = 2;
	cr_assert_eq(fsdp_model_open(client, "tiny", &options, &model), 0, "%s", fsdp_last_error());
	const struct worker_message *seen = &fake->last[WORKER_OPEN];
	cr_assert_str_eq(seen->name, "tiny");
	cr_assert_eq(seen->reduce_op, 1);
	cr_assert_eq(seen->scale, 0.25);
	cr_assert_eq(seen->gather_dtype, FSDP_F32);
	cr_assert_eq(seen->reduce_dtype, 0);
	cr_assert_eq(seen->optimizer, 1);
	cr_assert(seen->momentum && seen->nesterov);
	cr_assert_eq(seen->deadline_ms, 1500);
	cr_assert_eq(seen->local_worker, 1);
	cr_assert_eq(seen->local_workers, 2);
	fsdp_client_close(client);
	fake_stop(fake);
}

Test(client_model, workers_come_from_the_environment_where_the_options_leave_them_out)
{
	struct fake *fake = fake_start();
	struct fsdp_client *client = open_client(fake);
	struct fsdp_model *model;
	unsetenv("LOCAL_RANK");
	unsetenv("LOCAL_WORLD_SIZE");
	cr_assert_eq(fsdp_model_open(client, "a", NULL, &model), 0);
	cr_assert_eq(fake->last[WORKER_OPEN].local_worker, 0);
	cr_assert_eq(fake->last[WORKER_OPEN].local_workers, 1);
	cr_assert_eq(fake->last[WORKER_OPEN].scale, 1.0);
	setenv("LOCAL_RANK", "2", 1);
	setenv("LOCAL_WORLD_SIZE", "3", 1);
	cr_assert_eq(fsdp_model_open(client, "b", NULL, &model), 0);
	cr_assert_eq(fake->last[WORKER_OPEN].local_worker, 2);
	cr_assert_eq(fake->last[WORKER_OPEN].local_workers, 3);
	setenv("LOCAL_RANK", "3", 1);
	cr_assert_eq(fsdp_model_open(client, "c", NULL, &model), FSDP_E_INVALID);
	says("local worker 3 of 3");
	setenv("LOCAL_RANK", "two", 1);
	cr_assert_eq(fsdp_model_open(client, "d", NULL, &model), FSDP_E_INVALID);
	says("$LOCAL_RANK is \"two\"");
	setenv("LOCAL_RANK", "99999999999999999999999", 1);
	cr_assert_eq(fsdp_model_open(client, "e", NULL, &model), FSDP_E_INVALID);
	fsdp_client_close(client);
	fake_stop(fake);
}

Test(client_model, wrong_options_are_refused_before_the_daemon_hears_of_them)
{
	struct fake *fake = fake_start();
	struct fsdp_client *client = open_client(fake);
	struct fsdp_model *model;
	const struct fsdp_options usual = FSDP_OPTIONS_INIT;
	struct fsdp_options wrong[] = { usual, usual, usual, usual, usual, usual };
	wrong[0].size = 3;
	wrong[1].reduce_op = 2;
	wrong[2].optimizer = 7;
	wrong[3].flags = 1;
	wrong[4].gather_dtype = 10;
	wrong[5].scale = __builtin_nan("");
	for (size_t i = 0; i < 6; i++)
		cr_assert_eq(fsdp_model_open(client, "m", &wrong[i], &model), FSDP_E_INVALID, "case %zu", i);
	cr_assert_eq(fsdp_model_open(client, "", NULL, &model), FSDP_E_INVALID);
	says("is empty");
	cr_assert_eq(fsdp_model_open(client, "a\nb", NULL, &model), FSDP_E_INVALID);
	says("control character");
	cr_assert_eq(fsdp_model_open(client, "a\xff", NULL, &model), FSDP_E_INVALID);
	says("UTF-8");
	cr_assert_eq(fsdp_model_open(client, "a\xed\xa0\x80", NULL, &model), FSDP_E_INVALID, "a surrogate");
	cr_assert_eq(fsdp_model_open(client, NULL, NULL, &model), FSDP_E_INVALID);
	cr_assert_eq(fake->seen[WORKER_OPEN], 0);
	cr_assert_eq(fsdp_model_open(client, "Gewicht \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80", NULL, &model), 0);
	fsdp_client_close(client);
	fake_stop(fake);
}

Test(client_model, a_unit_of_1000_parameters_goes_in_4_parts)
{
	struct fake *fake = fake_start();
	struct fsdp_client *client = open_client(fake);
	struct fsdp_model *model;
	struct fsdp_unit *unit;
	static struct fsdp_param params[1000];
	static char names[1000][FSDP_NAME_MAX + 1];
	for (int i = 0; i < 1000; i++) {
		/* The longest names and the most dimensions: the worst that a part can be. */
		snprintf(names[i], sizeof(names[i]), "%0*d", FSDP_NAME_MAX, i);
		params[i] = (struct fsdp_param){ .name = names[i], .dtype = FSDP_F32, .ndim = FSDP_DIMS_MAX };
		for (int k = 0; k < FSDP_DIMS_MAX; k++)
			params[i].shape[k] = k == 0 ? 2 : 1;
	}
	cr_assert_eq(fsdp_model_open(client, "m", NULL, &model), 0);
	cr_assert_eq(fsdp_unit_add(model, "many", params, 1000, &unit), 0, "%s", fsdp_last_error());
	cr_assert_eq(fake->units[0].parts, 4);
	cr_assert_eq(fake->units[0].params, 1000);
	cr_assert_eq(fake->units[0].elements, 2000);
	cr_assert_eq(fsdp_model_seal(model, NULL), 0, "%s", fsdp_last_error());
	const char *first = fsdp_unit_param(unit, 0);
	cr_assert_eq((const char *)fsdp_unit_param(unit, 999) - first, 999 * 2 * (int)sizeof(float));
	fsdp_client_close(client);
	fake_stop(fake);
}

Test(client_model, parameters_that_cannot_be_are_refused_and_named)
{
	struct trainer trainer = trainer_open(fake_start());
	struct fsdp_unit *unit;
	const struct {
		struct fsdp_param param;
		int code;
		const char *text;
	} cases[] = {
		{ { .name = NULL, .dtype = FSDP_F32 }, FSDP_E_INVALID, "parameter 0 is NULL" },
		{ { .name = "p", .dtype = 0 }, FSDP_E_INVALID, "no dtype 0" },
		{ { .name = "p", .dtype = 10 }, FSDP_E_INVALID, "no dtype 10" },
		{ { .name = "p", .dtype = FSDP_F32, .ndim = 9 }, FSDP_E_INVALID, "9 dimensions" },
		{ { .name = "p", .dtype = FSDP_F32, .flags = 1 }, FSDP_E_INVALID, "flags" },
		{ { .name = "p", .dtype = FSDP_F64, .ndim = 1, .shape = { 1ull << 60 } }, FSDP_E_OVERFLOW, "63" },
		{ { .name = "p", .dtype = FSDP_U8, .ndim = 2, .shape = { 1ull << 40, 1ull << 40 } },
		  FSDP_E_OVERFLOW,
		  "63" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cr_assert_eq(fsdp_unit_add(trainer.model, "x", &cases[i].param, 1, &unit), cases[i].code, "case %zu",
			     i);
		says(cases[i].text);
		says("\"x\"");
	}
	const struct fsdp_param empty = { .name = "p", .dtype = FSDP_F32, .ndim = 2, .shape = { 0, 1ull << 63 } };
	cr_assert_eq(fsdp_unit_add(trainer.model, "x", &empty, 1, &unit), 0, "no elements, so no bytes");
	struct fsdp_unit_description description;
	cr_assert_eq(fsdp_unit_describe(unit, &description), 0);
	cr_assert_eq(description.index, 3);
	cr_assert_eq(description.elements, 0);
	cr_assert_eq(description.params[0].shape[1], 1ull << 63);
	trainer_stop(&trainer);
}

Test(client_model, what_needs_a_seal_says_so_and_what_precedes_it_too)
{
	struct trainer trainer = trainer_open(fake_start());
	struct fsdp_unit *unit = trainer.units[0];
	struct fsdp_unit *other;
	void *grad;
	cr_assert_eq(fsdp_unit_unshard(unit), FSDP_E_STATE);
	says("fsdp_model_seal first");
	cr_assert_eq(fsdp_unit_grad(unit, 0, &grad), FSDP_E_STATE);
	cr_assert_null(fsdp_unit_param(unit, 0));
	cr_assert_eq(fsdp_model_step(trainer.model, NULL, NULL), FSDP_E_STATE);
	struct fsdp_unit_options options = FSDP_UNIT_OPTIONS_INIT;
	options.gather_dtype = FSDP_F32;
	cr_assert_eq(fsdp_unit_set_options(trainer.units[2], &options), 0);
	cr_assert_eq(trainer.fake->last[WORKER_SET_UNIT].unit, 2);
	cr_assert_eq(trainer.fake->last[WORKER_SET_UNIT].gather_dtype, FSDP_F32);
	cr_assert_eq(fsdp_model_seal(trainer.model, &trainer.info), 0, "%s", fsdp_last_error());
	cr_assert_eq(trainer.info.workers, 1);
	cr_assert_eq(trainer.info.resumed, 0);
	cr_assert_eq(fsdp_unit_add(trainer.model, "late", NULL, 0, &other), FSDP_E_STATE);
	cr_assert_eq(fsdp_unit_set_options(unit, &options), FSDP_E_STATE);
	cr_assert_eq(fsdp_model_seal(trainer.model, NULL), FSDP_E_STATE);
	cr_assert_eq(fsdp_model_unit(trainer.model, 2, &other), 0);
	cr_assert_eq(other, trainer.units[2]);
	cr_assert_eq(fsdp_model_unit(trainer.model, 3, &other), FSDP_E_NOT_FOUND);
	struct fsdp_unit_description description;
	cr_assert_eq(fsdp_unit_describe(other, &description), 0);
	cr_assert_str_eq(description.name, "u2");
	cr_assert_eq(description.param_count, 2);
	cr_assert_str_eq(description.params[1].name, "b");
	cr_assert_eq(description.full_bytes, 28);
	cr_assert_eq(description.shard_count, 7);
	trainer_stop(&trainer);
}

Test(client_model, a_dtype_that_cannot_be_trained_is_refused_at_the_seal_and_not_before)
{
	struct trainer trainer = trainer_open(fake_start());
	const struct fsdp_param param = { .name = "w", .dtype = FSDP_BF16, .ndim = 1, .shape = { 4 } };
	struct fsdp_unit *unit;
	cr_assert_eq(fsdp_unit_add(trainer.model, "half", &param, 1, &unit), 0);
	cr_assert_eq(fsdp_model_seal(trainer.model, NULL), FSDP_E_DTYPE);
	says("\"half\"");
	cr_assert_eq(fsdp_model_seal(trainer.model, NULL), FSDP_E_STATE);
	says("open it again");
	trainer_stop(&trainer);
}

Test(client_model, close_tells_the_daemon_whether_to_drop)
{
	struct trainer trainer = trainer_start();
	struct fsdp_model *second;
	cr_assert_eq(fsdp_model_close(trainer.model, 0), 0);
	cr_assert(trainer.fake->last[WORKER_CLOSE].drop);
	cr_assert_eq(fsdp_model_open(trainer.client, "m", NULL, &second), 0);
	cr_assert_eq(fsdp_model_close(second, 1), 0);
	cr_assert_not(trainer.fake->last[WORKER_CLOSE].drop);
	trainer_stop(&trainer);
}
