/* What daemons say to each other survives the wire, and what no daemon would say is refused. */
#include "proto/peer_message.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"
#include "tests/unit/proto/hostile.h"
#include "tests/unit/proto/sample.h"
#include "tests/unit/proto/wire_bytes.h"

/* The fields of peer.proto that are written by hand here. */
enum {
	OP = 1,
	PROTOCOL = 2,
	UNIT = 9,
	DTYPE = 19,
	OUTCOME = 23,
	AWAITED = 30,
	CODE = 31,
	OPTIONS = 32,
	NAME = 33,
	TEXT = 34,
	BITS = 35,
	SUMS = 36,
	VALUES = 71,
	PROGRESS = 37,
	MODELS = 38
};

static struct wire_bytes bytes;

static int read_and_drop(const void *data, size_t size)
{
	struct peer_message message;
	int rc = peer_message_read(data, size, &message);
	if (rc == 0)
		peer_message_fini(&message);
	return rc;
}

static void begin(void)
{
	bytes.size = 0;
	wire_bytes_number(&bytes, OP, PEER_HELLO);
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

static int write_and_drop(const struct peer_message *message)
{
	void *data;
	size_t size;
	int rc = peer_message_write(message, &data, &size);
	if (rc == 0)
		free(data);
	return rc;
}

static void assert_rows_same(const struct peer_message *got, const struct peer_message *want)
{
	cr_assert_eq(got->bad_size, want->bad_size);
	if (want->bad_size > 0)
		cr_assert_arr_eq(got->bad, want->bad, want->bad_size);
	cr_assert_eq(got->bits_size, want->bits_size);
	if (want->bits_size > 0)
		cr_assert_arr_eq(got->bits, want->bits, want->bits_size);
	cr_assert_eq(got->sum_count, want->sum_count);
	if (want->sum_count > 0)
		cr_assert_arr_eq(got->sums, want->sums, want->sum_count * sizeof *want->sums);
	cr_assert_eq(got->value_count, want->value_count);
	if (want->value_count > 0)
		cr_assert_arr_eq(got->values, want->values, want->value_count * sizeof *want->values);
	cr_assert_eq(got->group_count, want->group_count);
	for (size_t i = 0; i < want->group_count; i++) {
		const struct peer_group *g = &got->groups[i], *w = &want->groups[i];
		cr_assert_eq(g->group, w->group);
		cr_assert_arr_eq(&g->learning_rate, &w->learning_rate, 10 * sizeof(double));
	}
	cr_assert_eq(got->progress_count, want->progress_count);
	for (size_t i = 0; i < want->progress_count; i++) {
		cr_assert_eq(got->progress[i].micro_batch, want->progress[i].micro_batch);
		cr_assert_eq(got->progress[i].unit, want->progress[i].unit);
		cr_assert_eq(got->progress[i].offset, want->progress[i].offset);
	}
	cr_assert_eq(got->model_count, want->model_count);
	for (size_t i = 0; i < want->model_count; i++) {
		cr_assert_eq(got->models[i].model, want->models[i].model);
		cr_assert_eq(got->models[i].step, want->models[i].step);
		cr_assert_eq(got->models[i].attempt, want->models[i].attempt);
		cr_assert_eq(got->models[i].voted, want->models[i].voted);
		cr_assert_eq(got->models[i].workers, want->models[i].workers);
	}
}

static void assert_same(const struct peer_message *got, const struct peer_message *want)
{
#define SAME(field) cr_assert_eq(got->field, want->field, #field)
	SAME(op);
	SAME(protocol);
	SAME(cluster);
	SAME(generation);
	SAME(incarnation);
	SAME(link);
	SAME(source);
	SAME(world_size);
	SAME(model);
	SAME(unit);
	SAME(version);
	SAME(step);
	SAME(attempt);
	SAME(micro_batch);
	SAME(read);
	SAME(offset);
	SAME(length);
	SAME(limit);
	SAME(dtype);
	SAME(credit);
	SAME(credit_link);
	SAME(closed);
	SAME(outcome);
	SAME(commit);
	SAME(last);
	SAME(finite);
	SAME(reply);
	SAME(weight);
	SAME(sum);
	SAME(awaited);
	SAME(code);
	SAME(number);
	SAME(combine);
	SAME(has_options);
	SAME(options.learning_rate);
	SAME(options.momentum);
	SAME(options.dampening);
	SAME(options.weight_decay);
	SAME(options.beta1);
	SAME(options.beta2);
	SAME(options.epsilon);
	SAME(options.alpha);
	SAME(options.learning_rate_decay);
	SAME(options.initial_accumulator);
	SAME(has_rules);
	SAME(rules.norm_kind);
	SAME(rules.max_norm);
	SAME(rules.loss_scale);
	SAME(rules.growth_factor);
	SAME(rules.backoff_factor);
	SAME(rules.growth_interval);
	SAME(rules.min_scale);
	SAME(norm);
	SAME(largest);
	SAME(clip);
	SAME(next_scale);
	SAME(good_steps);
#undef SAME
	cr_assert_str_eq(got->name, want->name);
	cr_assert_str_eq(got->text, want->text);
	assert_rows_same(got, want);
}

static void assert_round_trip(const struct peer_message *want)
{
	struct peer_message got;
	void *data;
	size_t size;

	cr_assert_eq(peer_message_write(want, &data, &size), 0);
	cr_assert_eq(peer_message_read(data, size, &got), 0);
	free(data);
	assert_same(&got, want);
	peer_message_fini(&got);
}

Test(peer_message, every_op_comes_back_with_every_field)
{
	for (const enum peer_op *op = sample_peer_ops; *op; op++) {
		struct peer_message want = sample_peer(*op);
		assert_round_trip(&want);
	}
}

Test(peer_message, what_is_not_set_comes_back_as_zero)
{
	struct peer_message want = { .op = PEER_STALE };
	assert_round_trip(&want);
}

Test(peer_message, options_of_zeros_are_not_no_options)
{
	struct peer_message want = { .op = PEER_VOTE, .has_options = true };
	assert_round_trip(&want);
}

Test(peer_message, the_header_of_a_chunk_is_small)
{
	struct peer_message chunk = sample_peer_chunk();
	void *data;
	size_t size;
	cr_assert_eq(peer_message_write(&chunk, &data, &size), 0);
	cr_assert_leq(size, 96);
	free(data);
	assert_round_trip(&chunk);
}

Test(peer_message, everything_at_its_maximum_comes_back)
{
	static uint8_t bits[PEER_BITS_MAX];
	static uint64_t sums[PEER_SUMS_MAX];
	static struct peer_progress progress[PEER_PROGRESS_MAX];
	static struct peer_model models[PEER_MODELS_MAX];
	static struct peer_group groups[PEER_GROUPS_MAX];
	struct peer_message want = sample_peer(PEER_HEARTBEAT);

	memset(bits, 0xff, sizeof bits);
	memset(sums, 0xff, sizeof sums);
	memset(progress, 0xff, sizeof progress);
	for (size_t i = 0; i < PEER_MODELS_MAX; i++)
		models[i] = (struct peer_model){ UINT64_MAX, UINT64_MAX, UINT32_MAX, true, UINT32_MAX };
	memset(groups, 0xff, sizeof groups);
	want.groups = groups, want.group_count = PEER_GROUPS_MAX;
	want.bits = bits, want.bits_size = PEER_BITS_MAX;
	want.bad = bits, want.bad_size = PEER_BITS_MAX;
	want.sums = sums, want.sum_count = PEER_SUMS_MAX;
	want.progress = progress, want.progress_count = PEER_PROGRESS_MAX;
	want.models = models, want.model_count = PEER_MODELS_MAX;
	memset(want.name, 'n', PEER_NAME_MAX);
	memset(want.text, 't', PEER_TEXT_MAX);
	want.name[PEER_NAME_MAX] = want.text[PEER_TEXT_MAX] = '\0';
	assert_round_trip(&want);
}

Test(peer_message, one_more_than_a_maximum_is_not_written)
{
	static uint8_t bits[PEER_BITS_MAX + 1];
	static uint64_t sums[PEER_SUMS_MAX + 1];
	static double values[PEER_VALUES_MAX + 1];
	static struct peer_progress progress[PEER_PROGRESS_MAX + 1];
	static struct peer_model models[PEER_MODELS_MAX + 1];
	static struct peer_group groups[PEER_GROUPS_MAX + 1];
	struct peer_message message[] = {
		{ .op = PEER_VOTE, .bits = bits, .bits_size = PEER_BITS_MAX + 1 },
		{ .op = PEER_VOTE, .bad = bits, .bad_size = PEER_BITS_MAX + 1 },
		{ .op = PEER_LOADED, .sums = sums, .sum_count = PEER_SUMS_MAX + 1 },
		{ .op = PEER_PROGRESS, .progress = progress, .progress_count = PEER_PROGRESS_MAX + 1 },
		{ .op = PEER_HEARTBEAT, .models = models, .model_count = PEER_MODELS_MAX + 1 },
		{ .op = PEER_VOTE, .groups = groups, .group_count = PEER_GROUPS_MAX + 1 },
		{ .op = PEER_ALL_REDUCE, .values = values, .value_count = PEER_VALUES_MAX + 1 },
		{ .op = PEER_HELLO },
	};
	const size_t count = sizeof message / sizeof message[0];
	memset(message[count - 1].name, 'n', sizeof message[0].name);
	for (size_t i = 0; i < count; i++)
		cr_assert_eq(write_and_drop(&message[i]), FSDP_E_OVERFLOW, "message %zu", i);
}

Test(peer_message, one_more_than_a_maximum_is_refused)
{
	cr_assert_eq(with_block(NAME, NULL, PEER_NAME_MAX), 0);
	cr_assert_eq(with_block(NAME, NULL, PEER_NAME_MAX + 1), FSDP_E_PROTOCOL);
	cr_assert_eq(with_block(TEXT, NULL, PEER_TEXT_MAX), 0);
	cr_assert_eq(with_block(TEXT, NULL, PEER_TEXT_MAX + 1), FSDP_E_PROTOCOL);
	cr_assert_eq(with_block(BITS, NULL, PEER_BITS_MAX), 0);
	cr_assert_eq(with_block(BITS, NULL, PEER_BITS_MAX + 1), FSDP_E_PROTOCOL);
	cr_assert_eq(with_block(SUMS, NULL, 8 * PEER_SUMS_MAX), 0);
	cr_assert_eq(with_block(SUMS, NULL, 8 * (PEER_SUMS_MAX + 1)), FSDP_E_PROTOCOL);
	cr_assert_eq(with_block(VALUES, NULL, 8 * PEER_VALUES_MAX), 0);
	cr_assert_eq(with_block(VALUES, NULL, 8 * (PEER_VALUES_MAX + 1)), FSDP_E_PROTOCOL);
	cr_assert_eq(with_empty_rows(PROGRESS, PEER_PROGRESS_MAX), 0);
	cr_assert_eq(with_empty_rows(PROGRESS, PEER_PROGRESS_MAX + 1), FSDP_E_PROTOCOL);
	cr_assert_eq(with_empty_rows(MODELS, PEER_MODELS_MAX), 0);
	cr_assert_eq(with_empty_rows(MODELS, PEER_MODELS_MAX + 1), FSDP_E_PROTOCOL);
}

Test(peer_message, a_header_may_have_256_KiB_and_no_byte_more)
{
	/* An unknown field fills it up: a later version may have fields that we do not know. */
	begin();
	wire_bytes_block(&bytes, 100, NULL, PEER_HEADER_MAX - bytes.size - 5);
	cr_assert_eq(bytes.size, PEER_HEADER_MAX);
	cr_assert_eq(read_bytes(), 0);
	begin();
	wire_bytes_block(&bytes, 100, NULL, PEER_HEADER_MAX - bytes.size - 4);
	cr_assert_eq(read_bytes(), FSDP_E_PROTOCOL);
}

Test(peer_message, a_frame_full_of_empty_rows_is_refused)
{
	cr_assert_eq(with_empty_rows(PROGRESS, 80000), FSDP_E_PROTOCOL);
	cr_assert_eq(with_empty_rows(OPTIONS, 80000), FSDP_E_PROTOCOL);
}

Test(peer_message, ops_that_do_not_exist_are_refused)
{
	const uint64_t unknown[] = { 0, 4, 9, 27, 39, 46, 1000, UINT32_MAX, (1ull << 32) + PEER_HELLO, UINT64_MAX };
	for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
		cr_assert_eq(with_number(OP, unknown[i]), FSDP_E_PROTOCOL, "op %zu", (size_t)unknown[i]);
		if (unknown[i] != 0)
			cr_assert_eq(with_number(AWAITED, unknown[i]), FSDP_E_PROTOCOL);
	}
	cr_assert_eq(with_number(AWAITED, 0), 0);
	cr_assert_eq(hostile_exact("", 0, read_and_drop), FSDP_E_PROTOCOL);
	cr_assert_eq(write_and_drop(&(struct peer_message){ .op = 4 }), FSDP_E_INVALID);
	cr_assert_eq(write_and_drop(&(struct peer_message){ .op = PEER_WAITING, .awaited = 9 }), FSDP_E_INVALID);
}

Test(peer_message, numbers_that_their_field_cannot_hold_are_refused)
{
	cr_assert_eq(with_number(UNIT, UINT32_MAX), 0);
	cr_assert_eq(with_number(UNIT, 1ull << 32), FSDP_E_PROTOCOL);
	cr_assert_eq(with_number(PROTOCOL, UINT64_MAX), FSDP_E_PROTOCOL);
	cr_assert_eq(with_number(DTYPE, 9), 0);
	cr_assert_eq(with_number(DTYPE, 10), FSDP_E_PROTOCOL);
	cr_assert_eq(with_number(OUTCOME, PEER_ABORT_STEP), 0);
	cr_assert_eq(with_number(OUTCOME, 3), FSDP_E_PROTOCOL);
}

Test(peer_message, codes_are_zero_or_negative_and_can_be_negated)
{
	/* Zigzag: 2n-1 is -n, 2n is n. */
	cr_assert_eq(with_number(CODE, 2 * 1003 - 1), 0);
	cr_assert_eq(with_number(CODE, 2 * 65535 - 1), 0);
	cr_assert_eq(with_number(CODE, 2 * 65536 - 1), FSDP_E_PROTOCOL);
	cr_assert_eq(with_number(CODE, 2), FSDP_E_PROTOCOL);
	cr_assert_eq(with_number(CODE, UINT64_MAX), FSDP_E_PROTOCOL);
	cr_assert_eq(write_and_drop(&(struct peer_message){ .op = PEER_ABORT, .code = 1 }), FSDP_E_INVALID);
}

Test(peer_message, strings_with_a_NUL_or_no_UTF_8_are_refused)
{
	cr_assert_eq(with_block(NAME, "ab", 2), 0);
	cr_assert_eq(with_block(NAME, "a\0b", 3), FSDP_E_PROTOCOL);
	cr_assert_eq(with_block(NAME, "a\0", 2), FSDP_E_PROTOCOL);
	cr_assert_eq(with_block(TEXT, "a\xff", 2), FSDP_E_PROTOCOL);
	cr_assert_eq(with_block(TEXT, "a\nb", 3), FSDP_E_PROTOCOL);
}

Test(peer_message, a_text_cut_within_a_character_is_sent_up_to_it)
{
	struct peer_message message = { .op = PEER_ABORT, .text = "unit \xe6\xbc" }, got;
	void *data;
	size_t size;
	cr_assert_eq(peer_message_write(&message, &data, &size), 0);
	cr_assert_eq(peer_message_read(data, size, &got), 0);
	cr_assert_str_eq(got.text, "unit ");
	peer_message_fini(&got);
	free(data);
}

Test(peer_message, a_name_that_is_no_text_is_not_written)
{
	cr_assert_eq(write_and_drop(&(struct peer_message){ .op = PEER_HELLO, .name = "a\xe6" }), FSDP_E_INVALID);
}

Test(peer_message, a_refused_message_leaves_the_output_alone)
{
	struct peer_message message = { .unit = 7 };
	begin();
	wire_bytes_block(&bytes, BITS, NULL, 10);
	wire_bytes_number(&bytes, OUTCOME, 3);
	cr_assert_eq(peer_message_read(bytes.data, bytes.size, &message), FSDP_E_PROTOCOL);
	cr_assert_eq(message.unit, 7);
	cr_assert_null(message.bits);
}

Test(peer_message, prefixes_and_flipped_bits_are_taken_or_refused)
{
	struct peer_message message = sample_peer(PEER_DECISION);
	void *data;
	size_t size;
	cr_assert_eq(peer_message_write(&message, &data, &size), 0);
	/* A cut between two fields leaves a message; every other cut must be seen. 40 fields and 5 rows follow the
	 * op. */
	size_t taken = hostile_prefixes(data, size, read_and_drop);
	cr_assert_leq(taken, 52);
	cr_assert_geq(taken, 30);
	cr_assert_gt(hostile_flips(data, size, read_and_drop), 0);
	free(data);
}

Test(peer_message, every_op_has_a_name_of_its_own)
{
	cr_assert_str_eq(peer_op_name(PEER_PUSH), "push");
	cr_assert_str_eq(peer_op_name(PEER_DETAIL_WANTED), "detail-wanted");
	cr_assert_str_eq(peer_op_name(0), "?");
	cr_assert_str_eq(peer_op_name(4), "?");
	cr_assert_str_eq(peer_op_name(46), "?");
	for (const enum peer_op *a = sample_peer_ops; *a; a++) {
		cr_assert_str_neq(peer_op_name(*a), "?");
		for (const enum peer_op *b = sample_peer_ops; b < a; b++)
			cr_assert_str_neq(peer_op_name(*a), peer_op_name(*b));
	}
}
