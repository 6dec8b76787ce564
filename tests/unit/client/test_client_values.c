/* Parameters, gradients, steps and shards over memory that is really shared. */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

#include "tests/unit/client/trainer.h"

#define says(part) cr_assert(strstr(fsdp_last_error(), part), "%s", fsdp_last_error())
#define ok(call) cr_assert_eq(call, 0, "%s", fsdp_last_error())

static const float *param(struct fsdp_unit *unit, size_t index)
{
	return fsdp_unit_param(unit, index);
}

static float *grad(struct fsdp_unit *unit, size_t index)
{
	void *at = NULL;
	ok(fsdp_unit_grad(unit, index, &at));
	return at;
}

Test(client_values, loaded_values_are_what_an_unshard_shows_at_constant_addresses)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	const float *a = param(trainer.units[1], 0), *b = param(trainer.units[1], 1);
	ok(fsdp_unit_unshard(trainer.units[1]));
	cr_assert_eq(a[0], 11.0f);
	cr_assert_eq(a[3], 14.0f);
	cr_assert_eq(b[0], 15.0f);
	cr_assert_eq(b[2], 17.0f);
	ok(fsdp_unit_reshard(trainer.units[1]));
	ok(fsdp_unit_unshard(trainer.units[1]));
	cr_assert_eq(param(trainer.units[1], 0), a);
	cr_assert_eq(a[0], 11.0f);
	cr_assert_null(fsdp_unit_param(trainer.units[1], 2));
	trainer_stop(&trainer);
}

Test(client_values, unshards_are_counted_here_and_in_the_daemon)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	struct fsdp_unit *unit = trainer.units[0];
	ok(fsdp_unit_unshard(unit));
	ok(fsdp_unit_unshard(unit));
	ok(fsdp_unit_reshard(unit));
	cr_assert_eq(trainer.fake->unshards, 1);
	cr_assert_eq(param(unit, 0)[0], 1.0f);
	ok(fsdp_unit_reshard(unit));
	cr_assert_eq(trainer.fake->unshards, 0);
	cr_assert_eq(fsdp_unit_reshard(unit), FSDP_E_STATE);
	says("\"u0\" is not unsharded");
	trainer_stop(&trainer);
}

Test(client_values, use_after_reshard_faults, .signal = SIGSEGV)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	ok(fsdp_unit_unshard(trainer.units[0]));
	const volatile float *a = param(trainer.units[0], 0);
	cr_assert_eq(a[0], 1.0f);
	ok(fsdp_unit_reshard(trainer.units[0]));
	cr_assert_eq(a[0], 1.0f, "not reached");
}

Test(client_values, parameters_cannot_be_written, .signal = SIGSEGV)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	ok(fsdp_unit_unshard(trainer.units[0]));
	((volatile float *)(uintptr_t)param(trainer.units[0], 0))[0] = 5.0f;
}

Test(client_values, a_gradient_that_was_handed_over_faults, .signal = SIGSEGV)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	volatile float *a = grad(trainer.units[0], 0);
	a[0] = 1.0f;
	ok(fsdp_unit_reduce(trainer.units[0]));
	a[0] = 2.0f;
}

Test(client_values, gradients_begin_as_zero_and_those_never_asked_for_count_as_zero)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	struct fsdp_unit *unit = trainer.units[0];
	float *b = grad(unit, 1);
	cr_assert_eq(b[0], 0.0f);
	cr_assert_eq(b[2], 0.0f);
	b[1] = 8.0f;
	cr_assert_eq(grad(unit, 1), b);
	cr_assert_eq(b[1], 8.0f, "asked for again, it is what it was");
	ok(fsdp_unit_reduce(unit));
	ok(fsdp_model_sync_gradients(trainer.model));
	struct fsdp_shard shard;
	ok(fsdp_unit_shard(unit, 0, &shard));
	const float expected[7] = { 0, 0, 0, 0, 0, 8, 0 };
	cr_assert_eq(shard.count, 7);
	cr_assert_arr_eq(shard.gradient, expected, sizeof(expected));
	cr_assert_eq(trainer.fake->seen[WORKER_GRAD], TRAINER_UNITS + 1, "one for each load, one for the gradient");
	trainer_stop(&trainer);
}

Test(client_values, a_step_moves_the_masters_by_the_learning_rate)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	grad(trainer.units[2], 0)[0] = 4.0f;
	ok(fsdp_unit_reduce(trainer.units[2]));
	struct fsdp_step step = FSDP_STEP_INIT;
	step.learning_rate = 0.5;
	struct fsdp_step_result result;
	ok(fsdp_model_step(trainer.model, &step, &result));
	cr_assert_eq(result.step, 1);
	cr_assert_eq(result.outcome, FSDP_APPLIED);
	cr_assert_eq(trainer.fake->last[WORKER_STEP].commit, 0);
	cr_assert_eq(trainer.fake->last[WORKER_STEP].hyper.beta2, 0.999);
	ok(fsdp_unit_unshard(trainer.units[2]));
	cr_assert_eq(param(trainer.units[2], 0)[0], 19.0f);
	cr_assert_eq(param(trainer.units[2], 0)[1], 22.0f);
	trainer_stop(&trainer);
}

Test(client_values, numbers_of_a_step_that_cannot_be_are_named)
{
	struct trainer trainer = trainer_start();
	struct fsdp_step step = FSDP_STEP_INIT;
	step.beta1 = 1.0; /* SGD does not look at it */
	step.momentum = -1;
	cr_assert_eq(fsdp_model_step(trainer.model, &step, NULL), FSDP_E_INVALID);
	says("momentum is -1");
	step = (struct fsdp_step)FSDP_STEP_INIT;
	step.learning_rate = -1;
	cr_assert_eq(fsdp_model_step(trainer.model, &step, NULL), FSDP_E_INVALID);
	step.size = 0;
	cr_assert_eq(fsdp_model_step(trainer.model, &step, NULL), FSDP_E_INVALID);
	cr_assert_eq(trainer.fake->seen[WORKER_STEP], 0);
	trainer_stop(&trainer);
}

Test(client_values, a_reduce_without_a_gradient_says_what_to_do)
{
	struct trainer trainer = trainer_start();
	cr_assert_eq(fsdp_unit_reduce(trainer.units[0]), FSDP_E_STATE);
	says("leave this call out");
	cr_assert_eq(trainer.fake->seen[WORKER_REDUCE], 0);
	trainer_stop(&trainer);
}

Test(client_values, a_micro_batch_takes_back_what_was_not_reduced)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	float *a = grad(trainer.units[0], 0);
	a[0] = 3.0f;
	ok(fsdp_model_next_micro_batch(trainer.model));
	cr_assert_eq(fsdp_unit_reduce(trainer.units[0]), FSDP_E_STATE);
	cr_assert_eq(grad(trainer.units[0], 0), a, "the address is for life");
	cr_assert_eq(a[0], 0.0f);
	trainer_stop(&trainer);
}

Test(client_values, an_abort_takes_back_what_was_not_reduced)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	grad(trainer.units[0], 0)[0] = 3.0f;
	ok(fsdp_model_abort_step(trainer.model));
	cr_assert_eq(fsdp_unit_reduce(trainer.units[0]), FSDP_E_ABORTED);
	says("\"u0\"");
	cr_assert_eq(grad(trainer.units[0], 0)[0], 0.0f);
	ok(fsdp_unit_reduce(trainer.units[0]));
	trainer_stop(&trainer);
}

static enum fake_verdict abort_at_sync(struct fake *fake, const struct worker_message *request,
				       struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fds;
	(void)fd_count;
	if (request->op == WORKER_SYNC && fake->attempt == 0) {
		answer->code = FSDP_E_ABORTED;
		answer->attempt = ++fake->attempt;
	}
	return FAKE_SEND;
}

Test(client_values, an_error_that_carries_a_new_attempt_takes_gradients_back_too)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	trainer.fake->hook = abort_at_sync;
	grad(trainer.units[1], 0)[0] = 3.0f;
	cr_assert_eq(fsdp_model_sync_gradients(trainer.model), FSDP_E_ABORTED);
	cr_assert_eq(fsdp_unit_reduce(trainer.units[1]), FSDP_E_ABORTED);
	cr_assert_eq(grad(trainer.units[1], 0)[0], 0.0f);
	trainer_stop(&trainer);
}

Test(client_values, update_shards_publishes_exactly_as_many_values_as_there_are)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	float flat[3 * 7];
	for (int i = 0; i < 21; i++)
		flat[i] = (float)(100 + i);
	cr_assert_eq(fsdp_model_update_shards(trainer.model, flat, 2), FSDP_E_INVALID);
	says("2 values");
	says("21 elements");
	cr_assert_eq(trainer.fake->seen[WORKER_STEP], 0);
	ok(fsdp_model_update_shards(trainer.model, flat, 21));
	cr_assert_eq(trainer.fake->last[WORKER_STEP].commit, 1);
	ok(fsdp_unit_unshard(trainer.units[1]));
	cr_assert_eq(param(trainer.units[1], 0)[0], 107.0f);
	cr_assert_eq(param(trainer.units[1], 1)[2], 113.0f);
	struct fsdp_shard shard;
	ok(fsdp_unit_shard(trainer.units[2], 0, &shard));
	((float *)shard.staging)[6] = 5.0f;
	ok(fsdp_model_update_shards(trainer.model, NULL, 0));
	cr_assert_eq(((const float *)shard.parameter)[6], 5.0f);
	cr_assert_eq(((const float *)shard.parameter)[0], 114.0f);
	cr_assert_eq(fsdp_unit_shard(trainer.units[2], 1, &shard), FSDP_E_NOT_FOUND);
	trainer_stop(&trainer);
}

struct walk {
	struct fake *fake;
	float sum;
	size_t calls;
	int verdict;
	size_t stop_at;
};

static int walk_unit(struct fsdp_unit *unit, size_t index, void *context)
{
	struct walk *walk = context;
	cr_assert_eq(index, walk->calls);
	cr_assert_eq(walk->fake->unshards, 1);
	/* The next one has begun before this runs. */
	cr_assert_eq(walk->fake->seen[WORKER_UNSHARD_START], index + 1 < TRAINER_UNITS ? index + 1 : index);
	walk->calls++;
	walk->sum += param(unit, 0)[0];
	return index == walk->stop_at ? walk->verdict : 0;
}

Test(client_values, forward_shows_each_unit_in_order_with_the_next_one_under_way)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	struct walk walk = { .fake = trainer.fake };
	ok(fsdp_model_forward(trainer.model, walk_unit, &walk));
	cr_assert_eq(walk.calls, 3);
	cr_assert_eq(walk.sum, 1.0f + 11.0f + 21.0f);
	cr_assert_eq(trainer.fake->unshards, 0);
	trainer_stop(&trainer);
}

Test(client_values, forward_ends_with_what_the_function_returned_and_everything_resharded)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	struct walk walk = { .fake = trainer.fake, .verdict = 42, .stop_at = 1 };
	cr_assert_eq(fsdp_model_forward(trainer.model, walk_unit, &walk), 42);
	cr_assert_eq(walk.calls, 2);
	cr_assert_eq(trainer.fake->unshards, 0);
	trainer_stop(&trainer);
}

Test(client_values, a_declared_order_begins_the_next_gather)
{
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	struct fsdp_unit *const *u = trainer.units;
	struct fsdp_unit *const order[] = { u[0], u[1], u[2], u[1] };
	const unsigned next[] = { 1, 2, 1, 0 };
	ok(fsdp_model_prefetch_order(trainer.model, order, 4));
	for (int i = 0; i < 8; i++) {
		ok(fsdp_unit_unshard(order[i % 4]));
		cr_assert_eq(trainer.fake->last[WORKER_UNSHARD_START].unit, next[i % 4], "unshard %d", i);
		ok(fsdp_unit_reshard(order[i % 4]));
	}
	ok(fsdp_model_prefetch_order(trainer.model, NULL, 0));
	ok(fsdp_unit_unshard(u[0]));
	cr_assert_eq(trainer.fake->seen[WORKER_UNSHARD_START], 8);
	trainer_stop(&trainer);
}

Test(client_values, a_unit_without_elements_goes_the_whole_way)
{
	struct trainer trainer = trainer_open(fake_start());
	const struct fsdp_param nothing = { .name = "w", .dtype = FSDP_F32, .ndim = 2, .shape = { 0, 8 } };
	struct fsdp_unit *unit;
	ok(fsdp_unit_add(trainer.model, "empty", &nothing, 1, &unit));
	ok(fsdp_model_seal(trainer.model, NULL));
	const void *values[] = { NULL };
	ok(fsdp_unit_load(unit, values, 1));
	cr_assert_not_null(fsdp_unit_param(unit, 0));
	ok(fsdp_unit_unshard(unit));
	ok(fsdp_unit_reshard(unit));
	cr_assert_not_null(grad(unit, 0));
	ok(fsdp_unit_reduce(unit));
	struct fsdp_shard shard;
	ok(fsdp_unit_shard(unit, 0, &shard));
	cr_assert_eq(shard.count, 0);
	cr_assert_null(shard.staging);
	trainer_stop(&trainer);
}

Test(client_values, load_wants_one_pointer_a_parameter)
{
	struct trainer trainer = trainer_start();
	const float four[4] = { 1, 2, 3, 4 };
	const void *values[] = { four, NULL };
	cr_assert_eq(fsdp_unit_load(trainer.units[0], values, 1), FSDP_E_INVALID);
	says("2 parameters, not 1");
	cr_assert_eq(fsdp_unit_load(trainer.units[0], values, 2), FSDP_E_INVALID);
	says("\"b\"");
	grad(trainer.units[0], 0)[0] = 1.0f;
	const void *good[] = { four, four };
	cr_assert_eq(fsdp_unit_load(trainer.units[0], good, 2), FSDP_E_STATE);
	trainer_stop(&trainer);
}

Test(client_values, an_all_reduce_is_made_in_place)
{
	struct trainer trainer = trainer_start();
	double values[2] = { 1.5, -4.0 };
	ok(fsdp_model_all_reduce(trainer.model, values, 2, FSDP_SUM));
	cr_assert_eq(values[0], 3.0);
	cr_assert_eq(values[1], -8.0);
	ok(fsdp_model_all_reduce(trainer.model, values, 1, FSDP_MAX));
	cr_assert_eq(values[0], 3.0);
	ok(fsdp_model_all_reduce(trainer.model, NULL, 0, FSDP_MIN));
	cr_assert_eq(trainer.fake->seen[WORKER_ALL_REDUCE], 3);
	trainer_stop(&trainer);
}

Test(client_values, an_all_reduce_of_too_many_values_or_another_op_is_not_asked)
{
	static double values[FSDP_ALL_REDUCE_MAX + 1];
	struct trainer trainer = trainer_start();
	cr_assert_eq(fsdp_model_all_reduce(trainer.model, values, FSDP_ALL_REDUCE_MAX + 1, FSDP_SUM), FSDP_E_INVALID);
	says("1025 values; 1024 are the most");
	cr_assert_eq(fsdp_model_all_reduce(trainer.model, values, 1, FSDP_MEAN), FSDP_E_INVALID);
	says("FSDP_SUM, FSDP_MAX or FSDP_MIN, not 0");
	cr_assert_eq(fsdp_model_all_reduce(trainer.model, NULL, 1, FSDP_SUM), FSDP_E_INVALID);
	cr_assert_eq(trainer.fake->seen[WORKER_ALL_REDUCE], 0);
	ok(fsdp_model_all_reduce(trainer.model, values, FSDP_ALL_REDUCE_MAX, FSDP_SUM));
	trainer_stop(&trainer);
}

Test(client_values, a_state_goes_to_the_daemon_in_parts_and_comes_back)
{
	static unsigned char given[FSDP_STATE_MAX], got[FSDP_STATE_MAX];
	static const size_t sizes[] = { 1, WORKER_BLOB_PART_MAX, WORKER_BLOB_PART_MAX + 1, FSDP_STATE_MAX, 0 };
	static const unsigned parts[] = { 0, 0, 1, 10, 0 };
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	for (size_t i = 0; i < FSDP_STATE_MAX; i++)
		given[i] = (unsigned char)(i * 31 + i / 1000);
	for (size_t i = 0; i < 5; i++) {
		struct fsdp_step step = FSDP_STEP_INIT;
		step.state = given + i;
		step.state_bytes = sizes[i] - (sizes[i] == FSDP_STATE_MAX ? i : 0);
		unsigned before = trainer.fake->seen[WORKER_BLOB];
		size_t bytes = 1;
		ok(fsdp_model_step(trainer.model, &step, NULL));
		cr_assert_eq(trainer.fake->seen[WORKER_BLOB] - before, parts[i], "state %zu", i);
		ok(fsdp_model_state_bytes(trainer.model, &bytes));
		cr_assert_eq(bytes, step.state_bytes);
		memset(got, 0xee, sizeof(got));
		ok(fsdp_model_state(trainer.model, got, sizeof(got)));
		cr_assert(memcmp(got, given + i, bytes) == 0, "state %zu", i);
		cr_assert(bytes == sizeof(got) || got[bytes] == 0xee, "beyond it nothing is written");
		if (bytes > 0) {
			cr_assert_eq(fsdp_model_state(trainer.model, got, bytes - 1), FSDP_E_INVALID);
			says("bytes, the buffer");
		}
	}
	trainer_stop(&trainer);
}

Test(client_values, a_state_that_is_too_large_or_missing_is_not_sent)
{
	static unsigned char given[FSDP_STATE_MAX + 1];
	struct trainer trainer = trainer_start();
	trainer_load(&trainer);
	struct fsdp_step step = FSDP_STEP_INIT;
	step.state = given;
	step.state_bytes = sizeof(given);
	cr_assert_eq(fsdp_model_step(trainer.model, &step, NULL), FSDP_E_INVALID);
	says("the state has 1048577 bytes, 1048576 are the most");
	step.state = NULL;
	step.state_bytes = 5;
	cr_assert_eq(fsdp_model_step(trainer.model, &step, NULL), FSDP_E_INVALID);
	says("state is NULL");
	cr_assert_eq(trainer.fake->seen[WORKER_STEP], 0);
	trainer_stop(&trainer);
}

Test(client_values, an_origin_of_initial_values_that_cannot_be_is_refused)
{
	struct trainer trainer = trainer_start();
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	struct fsdp_model *model;
	options.init = FSDP_INIT_ZEROS + 1;
	cr_assert_eq(fsdp_model_open(trainer.client, "other", &options, &model), FSDP_E_INVALID);
	says("no such init");
	options.init = FSDP_INIT_ZEROS;
	options.init_rank = 1;
	cr_assert_eq(fsdp_model_open(trainer.client, "other", &options, &model), FSDP_E_INVALID);
	says("init_rank is of FSDP_INIT_FROM_RANK alone");
	options.init = FSDP_INIT_FROM_RANK;
	cr_assert_eq(fsdp_model_open(trainer.client, "other", &options, &model), FSDP_E_INVALID);
	says("the group has 1 ranks");
	trainer_stop(&trainer);
}

static enum fake_verdict two_ranks(struct fake *fake, const struct worker_message *request,
				   struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fake;
	(void)fds;
	(void)fd_count;
	if (request->op == WORKER_HELLO)
		answer->world_size = 2;
	return FAKE_SEND;
}

Test(client_values, values_that_do_not_count_are_not_looked_at)
{
	static const struct {
		uint32_t init, init_rank;
		int code;
	} cases[] = { { FSDP_INIT_FROM_RANK, 1, 0 },
		      { FSDP_INIT_FROM_RANK, 0, FSDP_E_INVALID },
		      { FSDP_INIT_ZEROS, 0, FSDP_E_STATE } };
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fake *fake = fake_start();
		struct fsdp_param param = { .name = "w", .dtype = FSDP_F32, .ndim = 1, .shape = { 4 } };
		struct fsdp_options options = FSDP_OPTIONS_INIT;
		struct fsdp_client *client;
		struct fsdp_model *model;
		struct fsdp_unit *unit;
		fake->hook = two_ranks;
		options.init = cases[i].init;
		options.init_rank = cases[i].init_rank;
		ok(fsdp_client_open(fake->path, &client));
		ok(fsdp_model_open(client, "m", &options, &model));
		cr_assert_eq(fake->last[WORKER_OPEN].init, cases[i].init);
		cr_assert_eq(fake->last[WORKER_OPEN].init_rank, cases[i].init_rank);
		ok(fsdp_unit_add(model, "u0", &param, 1, &unit));
		cr_assert_eq(fsdp_unit_load(unit, NULL, 0), FSDP_E_STATE, "it is not sealed");
		ok(fsdp_model_seal(model, NULL));
		cr_assert_eq(fsdp_unit_load(unit, NULL, 0), cases[i].code, "case %zu: %s", i, fsdp_last_error());
		cr_assert_eq(fake->seen[WORKER_GRAD], 0);
		ok(fsdp_client_close(client));
		fake_stop(fake);
	}
}

Test(client_values, weights_and_norms_are_asked_of_the_daemon_as_they_are)
{
	struct trainer trainer = trainer_start();
	double norm = 0;
	int finite = 0;
	trainer_load(&trainer);
	ok(fsdp_model_weight(trainer.model, 2.5));
	cr_assert_eq(trainer.fake->weight, 2.5);
	cr_assert_eq(fsdp_model_weight(trainer.model, -0.5), FSDP_E_INVALID);
	says("-0.5");
	cr_assert_eq(trainer.fake->weight, 2.5);
	ok(fsdp_model_norm(trainer.model, FSDP_NORM_2, &norm, NULL));
	cr_assert_eq(norm, 5);
	ok(fsdp_model_norm(trainer.model, FSDP_NORM_INF, &norm, &finite));
	cr_assert(norm == 4 && finite == 1);
	cr_assert_eq(fsdp_model_norm(trainer.model, FSDP_NORM_NONE, &norm, &finite), FSDP_E_INVALID);
	trainer_stop(&trainer);
}

static enum fake_verdict skip_naming_units(struct fake *fake, const struct worker_message *request,
					   struct worker_message *answer, int *fds, size_t *fd_count)
{
	(void)fake;
	(void)fds;
	(void)fd_count;
	if (request->op != WORKER_STEP)
		return FAKE_SEND;
	cr_assert_eq(request->hyper.norm_kind, FSDP_NORM_INF);
	cr_assert_eq(request->hyper.max_norm, 0.5);
	cr_assert_eq(request->hyper.loss_scale, 4);
	cr_assert_eq(request->hyper.growth_factor, 2);
	cr_assert_eq(request->hyper.backoff_factor, 0.5);
	cr_assert_eq(request->hyper.growth_interval, 2000);
	cr_assert_eq(request->hyper.min_scale, 1);
	answer->outcome = FSDP_SKIPPED;
	answer->norm = 7;
	answer->next_scale = 2;
	answer->bad_count = 3;
	answer->bad_named = 3;
	answer->bad[0] = 1;
	answer->bad[1] = 4000000000u; /* there is none: it is not given out */
	answer->bad[2] = 0;
	return FAKE_SEND;
}

Test(client_values, a_step_tells_norm_scale_and_the_units_that_exist)
{
	struct trainer trainer = trainer_start();
	struct fsdp_step step = FSDP_STEP_INIT;
	struct fsdp_step_result result;
	trainer_load(&trainer);
	step.norm_kind = FSDP_NORM_INF;
	step.max_norm = 0.5;
	step.loss_scale = 4;
	trainer.fake->hook = skip_naming_units;
	ok(fsdp_model_step(trainer.model, &step, &result));
	cr_assert_eq(result.outcome, FSDP_SKIPPED);
	cr_assert_eq(result.norm, 7);
	cr_assert_eq(result.next_loss_scale, 2);
	cr_assert_eq(result.not_finite, 2);
	cr_assert_eq(result.not_finite_units[0], 1);
	cr_assert_eq(result.not_finite_units[1], 0);
	trainer_stop(&trainer);
}
