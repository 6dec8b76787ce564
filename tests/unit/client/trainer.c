/* The trainer of the tests: see the header. */
#include "tests/unit/client/trainer.h"

#include <stdio.h>
#include <stdlib.h>

static void trainer_require(int code, const char *what)
{
	if (code == 0)
		return;
	fprintf(stderr, "trainer: %s: %d %s\n", what, code, fsdp_last_error());
	abort();
}

struct trainer trainer_open(struct fake *fake)
{
	struct trainer trainer = { .fake = fake };
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	options.optimizer = FSDP_OPTIMIZER_SGD;
	options.local_workers = 1;
	trainer_require(fsdp_client_open(fake->path, &trainer.client), "open");
	trainer_require(fsdp_model_open(trainer.client, "m", &options, &trainer.model), "model");
	for (int i = 0; i < TRAINER_UNITS; i++) {
		const struct fsdp_param params[] = {
			{ .name = "a", .dtype = FSDP_F32, .ndim = 2, .shape = { 2, 2 } },
			{ .name = "b", .dtype = FSDP_F32, .ndim = 1, .shape = { 3 } },
		};
		char name[16];
		snprintf(name, sizeof(name), "u%d", i);
		trainer_require(fsdp_unit_add(trainer.model, name, params, 2, &trainer.units[i]), "unit");
	}
	return trainer;
}

struct trainer trainer_start(void)
{
	struct trainer trainer = trainer_open(fake_start());
	trainer_require(fsdp_model_seal(trainer.model, &trainer.info), "seal");
	return trainer;
}

void trainer_load(struct trainer *trainer)
{
	for (int i = 0; i < TRAINER_UNITS; i++) {
		float values[7];
		for (int k = 0; k < 7; k++)
			values[k] = (float)(10 * i + k + 1);
		const void *pointers[] = { values, values + 4 };
		trainer_require(fsdp_unit_load(trainer->units[i], pointers, 2), "load");
	}
}

void trainer_stop(struct trainer *trainer)
{
	fsdp_client_close(trainer->client);
	fake_stop(trainer->fake);
}
