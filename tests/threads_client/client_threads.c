/*
 * Threads on one connection of the library, for the thread sanitizer (a plain program: Criterion aborts under it). Some
 * threads unshard and reshard, some write gradients, one ends micro-batches, aborts and steps, one closes and opens
 * another model. What is asserted is little; what the sanitizer sees is the point.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/client/trainer.h"

#define ROUNDS 100

#define REQUIRE(condition)                                                                                     \
	do {                                                                                                   \
		if (!(condition)) {                                                                            \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, fsdp_last_error()); \
			abort();                                                                               \
		}                                                                                              \
	} while (0)

/* Two threads share a unit's parameters: the counts nest across threads. */
static void *read_parameters(void *context)
{
	struct fsdp_unit *unit = context;
	for (int i = 0; i < ROUNDS; i++) {
		REQUIRE(fsdp_unit_unshard(unit) == 0);
		REQUIRE(fsdp_unit_param(unit, 1) != NULL);
		REQUIRE(fsdp_unit_reshard(unit) == 0);
	}
	return NULL;
}

/* The other threads' aborts and steps take the buffer away at any time, so it is asked for and not written. */
static void *ask_for_gradients(void *context)
{
	struct fsdp_unit *unit = context;
	for (int i = 0; i < ROUNDS; i++) {
		void *grad;
		int code = fsdp_unit_grad(unit, (size_t)i % 2, &grad);
		REQUIRE(code == 0 || code == FSDP_E_ABORTED || code == FSDP_E_STATE);
		code = fsdp_unit_reduce(unit);
		REQUIRE(code == 0 || code == FSDP_E_ABORTED || code == FSDP_E_STATE);
	}
	return NULL;
}

static void *move_on(void *context)
{
	struct trainer *trainer = context;
	for (int i = 0; i < ROUNDS; i++) {
		struct fsdp_step_result result;
		REQUIRE(fsdp_model_next_micro_batch(trainer->model) == 0);
		REQUIRE(fsdp_model_abort_step(trainer->model) == 0);
		REQUIRE(fsdp_model_sync_gradients(trainer->model) == 0);
		REQUIRE(fsdp_model_step(trainer->model, NULL, &result) == 0);
		REQUIRE(result.step == (uint64_t)i + 1);
	}
	return NULL;
}

static void *open_and_close(void *context)
{
	struct trainer *trainer = context;
	for (int i = 0; i < ROUNDS; i++) {
		struct fsdp_model *model;
		struct fsdp_group group;
		REQUIRE(fsdp_model_open(trainer->client, "other", NULL, &model) == 0);
		REQUIRE(fsdp_client_group(trainer->client, &group) == 0);
		REQUIRE(fsdp_model_prefetch_order(trainer->model, trainer->units, TRAINER_UNITS) == 0);
		REQUIRE(fsdp_model_close(model, 1) == 0);
	}
	return NULL;
}

int main(void)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	const struct {
		void *(*run)(void *context);
		void *context;
	} work[] = {
		{ read_parameters, trainer.units[0] },
		{ read_parameters, trainer.units[0] },
		{ read_parameters, trainer.units[1] },
		{ ask_for_gradients, trainer.units[1] },
		{ ask_for_gradients, trainer.units[2] },
		{ move_on, &trainer },
		{ open_and_close, &trainer },
	};
	enum { THREADS = sizeof(work) / sizeof(work[0]) };
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		REQUIRE(pthread_create(&threads[i], NULL, work[i].run, work[i].context) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	REQUIRE(trainer.fake->unshards == 0);
	trainer_stop(&trainer);
	puts("client threads: ok");
	return 0;
}
