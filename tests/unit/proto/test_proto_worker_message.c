/* What a worker and its daemon say survives the wire, and what neither would say is refused. */
#include "proto/worker_message.h"

#include <criterion/criterion.h>
#include <string.h>

#include "fsdp/error.h"
#include "proto/frame.h"
#include "tests/unit/proto/hostile.h"
#include "tests/unit/proto/sample.h"
#include "tests/unit/proto/wire_bytes.h"

/* The fields of worker.proto that are written by hand here. */
enum {
	OP = 1,
	CODE = 4,
	HANDLE = 5,
	GATHER_DTYPE = 22,
	REDUCE_DTYPE = 23,
	HYPER = 34,
	NAME = 35,
	TEXT = 36,
	PARAMS = 37,
	PLACES = 38,
	VALUES = 71,
	BLOB = 72
};
enum { PARAM_NAME = 1, PARAM_DTYPE = 2, PARAM_FLAGS = 3, PARAM_SHAPE = 4 };

static struct wire_bytes bytes, row;
static uint8_t frame[FRAME_BYTES_MAX];

static int read_and_drop(const void *data, size_t size)
{
	struct worker_message message;
	int rc = worker_message_read(data, size, &message);
	if (rc == 0)
		worker_message_fini(&message);
	return rc;
}

static void begin(void)
{
	bytes.size = 0;
	wire_bytes_number(&bytes, OP, WORKER_HELLO);
}
static int read_bytes(void)
{
	return hostile_exact(bytes.data, bytes.size, read_and_drop);
}
static int with_number(uint32_t field, uint64_t value)
{
	begin();
	wire_bytes_number(&bytes, field, value);
	return read_bytes();
}
static int with_block(uint32_t field, const void *data, size_t size)
{
	begin();
	wire_bytes_block(&bytes, field, data, size);
	return read_bytes();
}
static int with_empty_rows(uint32_t field, size_t count)
{
	begin();
	for (size_t i = 0; i < count; i++)
		wire_bytes_block(&bytes, field, NULL, 0);
	return read_bytes();
}
static int with_param_number(uint32_t field, uint64_t value)
{
	row.size = 0;
	wire_bytes_number(&row, field, value);
	return with_block(PARAMS, row.data, row.size);
}
static int with_param_block(uint32_t field, const void *data, size_t size)
{
	row.size = 0;
	wire_bytes_block(&row, field, data, size);
	return with_block(PARAMS, row.data, row.size);
}

static void assert_rows_same(const struct worker_message *got, const struct worker_message *want)
{
	cr_assert_eq(got->param_count, want->param_count);
	for (size_t i = 0; i < want->param_count; i++) {
		cr_assert_str_eq(got->params[i].name, want->params[i].name);
		cr_assert_eq(got->params[i].dtype, want->params[i].dtype);
		cr_assert_eq(got->params[i].ndim, want->params[i].ndim);
		cr_assert_eq(got->params[i].flags, want->params[i].flags);
		cr_assert_eq(got->params[i].group, want->params[i].group);
		cr_assert_arr_eq(got->params[i].shape, want->params[i].shape, sizeof want->params[i].shape);
	}
	cr_assert_eq(got->value_count, want->value_count);
	if (want->value_count > 0)
		cr_assert_arr_eq(got->values, want->values, want->value_count * sizeof *want->values);
	cr_assert_eq(got->blob_size, want->blob_size);
	if (want->blob_size > 0)
		cr_assert_arr_eq(got->blob, want->blob, want->blob_size);
	cr_assert_eq(got->group_count, want->group_count);
	for (size_t i = 0; i < want->group_count; i++) {
		const struct worker_group *g = &got->groups[i], *w = &want->groups[i];
		cr_assert_eq(g->group, w->group);
		cr_assert_arr_eq(&g->learning_rate, &w->learning_rate, 10 * sizeof(double));
	}
	cr_assert_eq(got->place_count, want->place_count);
	for (size_t i = 0; i < want->place_count; i++) {
		cr_assert_eq(got->places[i].full_bytes, want->places[i].full_bytes);
		cr_assert_eq(got->places[i].shard_offset, want->places[i].shard_offset);
		cr_assert_eq(got->places[i].shard_count, want->places[i].shard_count);
		cr_assert_eq(got->places[i].arena_offset, want->places[i].arena_offset);
	}
}

static void assert_same(const struct worker_message *got, const struct worker_message *want)
{
#define SAME(field) cr_assert_eq(got->field, want->field, #field)
	SAME(op);
	SAME(request);
	SAME(answer);
	SAME(code);
	SAME(protocol);
	SAME(handle);
	SAME(unit);
	SAME(more);
	SAME(deadline_ms);
	SAME(slot);
	SAME(version);
	SAME(step);
	SAME(attempt);
	SAME(micro_batch);
	SAME(resumed);
	SAME(drop);
	SAME(outcome);
	SAME(commit);
	SAME(rank);
	SAME(world_size);
	SAME(generation);
	SAME(bytes_in);
	SAME(bytes_out);
	SAME(gather_dtype);
	SAME(reduce_dtype);
	SAME(reduce_op);
	SAME(scale);
	SAME(weight);
	SAME(norm_kind);
	SAME(norm);
	SAME(next_scale);
	SAME(finite);
	SAME(bad_count);
	SAME(bad_named);
	cr_assert_arr_eq(got->bad, want->bad, sizeof want->bad);
	SAME(hyper.norm_kind);
	SAME(hyper.max_norm);
	SAME(hyper.loss_scale);
	SAME(hyper.growth_factor);
	SAME(hyper.backoff_factor);
	SAME(hyper.growth_interval);
	SAME(hyper.min_scale);
	SAME(optimizer);
	SAME(momentum);
	SAME(nesterov);
	SAME(centered);
	SAME(local_worker);
	SAME(local_workers);
	SAME(init);
	SAME(init_rank);
	SAME(shard_bytes);
	SAME(gather_bytes);
	SAME(grad_bytes);
	SAME(combine);
	SAME(blob_offset);
	SAME(blob_bytes);
	SAME(has_hyper);
	SAME(hyper.learning_rate);
	SAME(hyper.momentum);
	SAME(hyper.dampening);
	SAME(hyper.weight_decay);
	SAME(hyper.beta1);
	SAME(hyper.beta2);
	SAME(hyper.epsilon);
	SAME(hyper.alpha);
	SAME(hyper.learning_rate_decay);
	SAME(hyper.initial_accumulator);
#undef SAME
	cr_assert_str_eq(got->name, want->name);
	cr_assert_str_eq(got->text, want->text);
	assert_rows_same(got, want);
}

static void assert_round_trip(const struct worker_message *want)
{
	struct worker_message got;
	long size = worker_message_write(want, frame);
	cr_assert_gt(size, 0);
	cr_assert_eq(worker_message_read(frame, (size_t)size, &got), 0);
	assert_same(&got, want);
	worker_message_fini(&got);
}

Test(worker_message, every_op_comes_back_with_every_field)
{
	for (enum worker_op op = 1; op <= SAMPLE_WORKER_OP_LAST; op++) {
		struct worker_message want = sample_worker(op);
		assert_round_trip(&want);
	}
}

Test(worker_message, what_is_not_set_comes_back_as_zero)
{
	struct worker_message want = { .op = WORKER_SYNC };
	assert_round_trip(&want);
	want.has_hyper = true;
	assert_round_trip(&want);
}

Test(worker_message, as_many_params_as_may_be_come_back)
{
	static struct worker_param params[WORKER_PARAMS_MAX];
	struct worker_message want = { .op = WORKER_UNIT, .params = params, .param_count = WORKER_PARAMS_MAX };
	for (size_t i = 0; i < WORKER_PARAMS_MAX; i++) {
		params[i].dtype = 9, params[i].ndim = 8, params[i].flags = UINT32_MAX;
		memset(params[i].name, 'n', FSDP_NAME_MAX);
		memset(params[i].shape, 0xff, sizeof params[i].shape);
	}
	memset(want.name, 'n', FSDP_NAME_MAX);
	memset(want.text, 't', WORKER_TEXT_MAX);
	assert_round_trip(&want);
}

Test(worker_message, as_many_places_as_may_be_come_back)
{
	static struct worker_place places[WORKER_UNITS_MAX];
	struct worker_message want = { .op = WORKER_PLACES, .places = places, .place_count = WORKER_UNITS_MAX };
	memset(places, 0xff, sizeof places);
	assert_round_trip(&want);
}

Test(worker_message, one_more_than_a_maximum_is_not_written)
{
	static struct worker_param params[WORKER_PARAMS_MAX + 1];
	static struct worker_place places[WORKER_UNITS_MAX + 1];
	static double values[WORKER_VALUES_MAX + 1];
	static uint8_t blob[WORKER_BLOB_PART_MAX + 1];
	struct worker_param cube = { .ndim = 9 };
	struct worker_message message[] = {
		{ .op = WORKER_UNIT, .params = params, .param_count = WORKER_PARAMS_MAX + 1 },
		{ .op = WORKER_PLACES, .places = places, .place_count = WORKER_UNITS_MAX + 1 },
		{ .op = WORKER_UNIT, .params = &cube, .param_count = 1 },
		{ .op = WORKER_ALL_REDUCE, .values = values, .value_count = WORKER_VALUES_MAX + 1 },
		{ .op = WORKER_BLOB, .blob = blob, .blob_size = WORKER_BLOB_PART_MAX + 1 },
		{ .op = WORKER_OPEN },
	};
	memset(message[5].name, 'n', sizeof message[5].name);
	for (size_t i = 0; i < 6; i++)
		cr_assert_eq(worker_message_write(&message[i], frame), FSDP_E_OVERFLOW, "message %zu", i);
}

Test(worker_message, what_does_not_fit_a_frame_is_not_written)
{
	static struct worker_param params[WORKER_PARAMS_MAX];
	static struct worker_place places[WORKER_UNITS_MAX];
	struct worker_message message = { .op = WORKER_UNIT,
					  .params = params,
					  .param_count = WORKER_PARAMS_MAX,
					  .places = places,
					  .place_count = WORKER_UNITS_MAX };
	for (size_t i = 0; i < WORKER_PARAMS_MAX; i++) {
		params[i].ndim = 8;
		memset(params[i].name, 'n', FSDP_NAME_MAX);
		memset(params[i].shape, 0xff, sizeof params[i].shape);
	}
	memset(places, 0xff, sizeof places);
	cr_assert_eq(worker_message_write(&message, frame), FSDP_E_OVERFLOW);
}

Test(worker_message, one_more_than_a_maximum_is_refused)
{
	cr_assert_eq(with_block(NAME, NULL, FSDP_NAME_MAX), 0);
	cr_assert_eq(with_block(NAME, NULL, FSDP_NAME_MAX + 1), FSDP_E_PROTOCOL);
	cr_assert_eq(with_block(TEXT, NULL, WORKER_TEXT_MAX), 0);
	cr_assert_eq(with_block(TEXT, NULL, WORKER_TEXT_MAX + 1), FSDP_E_PROTOCOL);
	cr_assert_eq(with_empty_rows(PARAMS, WORKER_PARAMS_MAX), 0);
	cr_assert_eq(with_empty_rows(PARAMS, WORKER_PARAMS_MAX + 1), FSDP_E_PROTOCOL);
	cr_assert_eq(with_empty_rows(PLACES, WORKER_UNITS_MAX), 0);
	cr_assert_eq(with_empty_rows(PLACES, WORKER_UNITS_MAX + 1), FSDP_E_PROTOCOL);
	cr_assert_eq(with_block(BLOB, NULL, WORKER_BLOB_PART_MAX), 0);
	cr_assert_eq(with_block(BLOB, NULL, WORKER_BLOB_PART_MAX + 1), FSDP_E_PROTOCOL);
	cr_assert_eq(with_block(VALUES, NULL, 8 * WORKER_VALUES_MAX), 0);
	cr_assert_eq(with_block(VALUES, NULL, 8 * (WORKER_VALUES_MAX + 1)), FSDP_E_PROTOCOL);
	cr_assert_eq(with_param_block(PARAM_NAME, NULL, FSDP_NAME_MAX), 0);
	cr_assert_eq(with_param_block(PARAM_NAME, NULL, FSDP_NAME_MAX + 1), FSDP_E_PROTOCOL);
	cr_assert_eq(with_param_block(PARAM_SHAPE, "\1\2\3\4\5\6\7\x8", 8), 0);
	cr_assert_eq(with_param_block(PARAM_SHAPE, "\1\2\3\4\5\6\7\x8\x9", 9), FSDP_E_PROTOCOL);
}

Test(worker_message, a_frame_may_have_128_KiB_and_no_byte_more)
{
	begin();
	wire_bytes_block(&bytes, 100, NULL, FRAME_BYTES_MAX - bytes.size - 5);
	cr_assert_eq(bytes.size, FRAME_BYTES_MAX);
	cr_assert_eq(read_bytes(), 0);
	begin();
	wire_bytes_block(&bytes, 100, NULL, FRAME_BYTES_MAX - bytes.size - 4);
	cr_assert_eq(read_bytes(), FSDP_E_PROTOCOL);
}

Test(worker_message, a_frame_full_of_empty_rows_is_refused)
{
	cr_assert_eq(with_empty_rows(PARAMS, 40000), FSDP_E_PROTOCOL);
	cr_assert_eq(with_empty_rows(HYPER, 40000), FSDP_E_PROTOCOL);
}

Test(worker_message, values_that_mean_nothing_are_refused)
{
	cr_assert_eq(with_number(OP, 0), FSDP_E_PROTOCOL);
	cr_assert_eq(with_number(OP, WORKER_OP_LAST), 0);
	cr_assert_eq(with_number(OP, WORKER_OP_LAST + 1), FSDP_E_PROTOCOL);
	cr_assert_eq(with_number(OP, (1ull << 32) + 1), FSDP_E_PROTOCOL);
	cr_assert_eq(hostile_exact("", 0, read_and_drop), FSDP_E_PROTOCOL);
	cr_assert_eq(with_number(HANDLE, 1ull << 32), FSDP_E_PROTOCOL);
	cr_assert_eq(with_number(CODE, 2), FSDP_E_PROTOCOL);
	cr_assert_eq(with_number(GATHER_DTYPE, 9), 0);
	cr_assert_eq(with_number(GATHER_DTYPE, 10), FSDP_E_PROTOCOL);
	cr_assert_eq(with_number(REDUCE_DTYPE, 10), FSDP_E_PROTOCOL);
	cr_assert_eq(with_param_number(PARAM_DTYPE, 9), 0);
	cr_assert_eq(with_param_number(PARAM_DTYPE, 10), FSDP_E_PROTOCOL);
	cr_assert_eq(with_param_number(PARAM_FLAGS, 1ull << 32), FSDP_E_PROTOCOL);
	cr_assert_eq(with_block(NAME, "a\0b", 3), FSDP_E_PROTOCOL);
	cr_assert_eq(with_param_block(PARAM_NAME, "a\x1b[0m", 5), FSDP_E_PROTOCOL);
	cr_assert_eq(with_block(TEXT, "\xed\xa0\x80", 3), FSDP_E_PROTOCOL);
}

Test(worker_message, values_that_would_be_refused_are_not_written)
{
	struct worker_param no_text = { .name = "a\nb" }, no_dtype = { .dtype = 10 };
	struct worker_message message[] = {
		{ .op = 0 },
		{ .op = WORKER_OP_LAST + 1 },
		{ .op = WORKER_OPEN, .code = 1 },
		{ .op = WORKER_OPEN, .reduce_dtype = 10 },
		{ .op = WORKER_OPEN, .name = "\xff" },
		{ .op = WORKER_UNIT, .params = &no_text, .param_count = 1 },
		{ .op = WORKER_UNIT, .params = &no_dtype, .param_count = 1 },
	};
	for (size_t i = 0; i < 7; i++)
		cr_assert_eq(worker_message_write(&message[i], frame), FSDP_E_INVALID, "message %zu", i);
}

Test(worker_message, prefixes_and_flipped_bits_are_taken_or_refused)
{
	struct worker_message message = sample_worker(WORKER_UNIT);
	long size = worker_message_write(&message, frame);
	cr_assert_gt(size, 0);
	/* Only a cut between two fields or rows leaves a message. */
	size_t taken = hostile_prefixes(frame, (size_t)size, read_and_drop);
	cr_assert_leq(taken, 64);
	cr_assert_geq(taken, 35);
	cr_assert_gt(hostile_flips(frame, (size_t)size, read_and_drop), 0);
}
