/* What fsdpctl and a daemon say survives the wire, and what neither would say is refused. */
#include "proto/control_message.h"

#include <criterion/criterion.h>
#include <string.h>

#include "fsdp/error.h"
#include "proto/frame.h"
#include "tests/unit/proto/hostile.h"
#include "tests/unit/proto/sample.h"
#include "tests/unit/proto/wire_bytes.h"

/* The fields of control.proto that are written by hand here. */
enum { OP = 1, CODE = 4, NAME = 6, TEXT = 7, STATUS = 8, PEERS = 9, MODELS = 10, UNITS = 11, WORKERS = 12, WAITS = 13 };
enum { STATUS_VERSION = 2, STATUS_RANK = 4, PEER_STATE = 2, WAIT_RANKS = 6 };

static struct wire_bytes bytes, row;
static uint8_t frame[FRAME_BYTES_MAX];

static int read_and_drop(const void *data, size_t size)
{
	struct control_message message;
	int rc = control_message_read(data, size, &message);
	if (rc == 0)
		control_message_fini(&message);
	return rc;
}

static void begin(void)
{
	bytes.size = 0;
	wire_bytes_number(&bytes, OP, CONTROL_STATUS);
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
static int with_row_block(uint32_t rows, uint32_t field, const void *data, size_t size)
{
	row.size = 0;
	wire_bytes_block(&row, field, data, size);
	return with_block(rows, row.data, row.size);
}

static void assert_status_same(const struct control_status *got, const struct control_status *want)
{
#define SAME(field) cr_assert_eq(got->field, want->field, #field)
	cr_assert_str_eq(got->cluster, want->cluster);
	cr_assert_str_eq(got->version, want->version);
	cr_assert_str_eq(got->phase, want->phase);
	SAME(rank);
	SAME(world_size);
	SAME(joined);
	SAME(generation);
	SAME(incarnation);
	SAME(uptime_ms);
	SAME(degraded);
	SAME(bytes_in);
	SAME(bytes_out);
	SAME(gather_bytes);
	SAME(served_bytes);
	SAME(pushed_bytes);
	SAME(added_bytes);
	SAME(resent_bytes);
	SAME(malformed);
	SAME(refused);
	SAME(stale);
	SAME(duplicates);
	SAME(violations);
}

static void assert_peer_same(const struct control_peer *got, const struct control_peer *want)
{
	SAME(rank);
	SAME(bulk_up);
	SAME(incarnation);
	SAME(heard_ms_ago);
	cr_assert_str_eq(got->state, want->state);
	cr_assert_str_eq(got->endpoint, want->endpoint);
	cr_assert_str_eq(got->refusal, want->refusal);
}

static void assert_model_same(const struct control_model *got, const struct control_model *want)
{
	cr_assert_str_eq(got->name, want->name);
	cr_assert_str_eq(got->state, want->state);
	cr_assert_str_eq(got->phase, want->phase);
	cr_assert_str_eq(got->trouble, want->trouble);
	SAME(step);
	SAME(attempt);
	SAME(micro_batch);
	SAME(units);
	SAME(workers);
	SAME(applied);
	SAME(skipped);
	SAME(aborted);
	SAME(parameters);
	SAME(shard_bytes);
	SAME(gather_used);
	SAME(gather_bytes);
	SAME(grad_used);
	SAME(grad_bytes);
}

static void assert_unit_same(const struct control_unit *got, const struct control_unit *want)
{
	cr_assert_str_eq(got->name, want->name);
	SAME(version);
	SAME(full_bytes);
	SAME(shard_elements);
	SAME(held);
	SAME(gathered);
	SAME(reduced);
}

static void assert_worker_same(const struct control_worker *got, const struct control_worker *want)
{
	SAME(pid);
	SAME(uid);
	SAME(local_worker);
	SAME(waiting_ms);
	SAME(attached_ms);
	cr_assert_str_eq(got->model, want->model);
	cr_assert_str_eq(got->call, want->call);
}

static void assert_wait_same(const struct control_wait *got, const struct control_wait *want)
{
	cr_assert_str_eq(got->model, want->model);
	cr_assert_str_eq(got->unit, want->unit);
	cr_assert_str_eq(got->op, want->op);
	SAME(waiting_ms);
	SAME(deadline_ms);
	SAME(rank_count);
	cr_assert_arr_eq(got->ranks, want->ranks, sizeof want->ranks);
}

static void assert_same(const struct control_message *got, const struct control_message *want)
{
	SAME(op);
	SAME(answer);
	SAME(more);
	SAME(code);
	SAME(protocol);
	SAME(has_status);
	cr_assert_str_eq(got->name, want->name);
	cr_assert_str_eq(got->text, want->text);
	assert_status_same(&got->status, &want->status);
	SAME(peer_count);
	SAME(model_count);
	SAME(unit_count);
	SAME(worker_count);
	SAME(wait_count);
	for (size_t i = 0; i < want->peer_count; i++)
		assert_peer_same(&got->peers[i], &want->peers[i]);
	for (size_t i = 0; i < want->model_count; i++)
		assert_model_same(&got->models[i], &want->models[i]);
	for (size_t i = 0; i < want->unit_count; i++)
		assert_unit_same(&got->units[i], &want->units[i]);
	for (size_t i = 0; i < want->worker_count; i++)
		assert_worker_same(&got->workers[i], &want->workers[i]);
	for (size_t i = 0; i < want->wait_count; i++)
		assert_wait_same(&got->waits[i], &want->waits[i]);
}
#undef SAME

static void assert_round_trip(const struct control_message *want)
{
	struct control_message got;
	long size = control_message_write(want, frame);
	cr_assert_gt(size, 0);
	cr_assert_eq(control_message_read(frame, (size_t)size, &got), 0);
	assert_same(&got, want);
	control_message_fini(&got);
}

Test(control_message, every_op_comes_back_with_every_field)
{
	for (enum control_op op = 1; op <= SAMPLE_CONTROL_OP_LAST; op++) {
		struct control_message want = sample_control(op);
		assert_round_trip(&want);
	}
}

Test(control_message, what_is_not_set_comes_back_as_zero)
{
	struct control_message want = { .op = CONTROL_PEERS };
	assert_round_trip(&want);
	want.has_status = true;
	assert_round_trip(&want);
}

Test(control_message, as_many_units_as_may_be_come_back)
{
	static struct control_unit units[CONTROL_ROWS_MAX];
	struct control_message want = { .op = CONTROL_UNITS, .units = units, .unit_count = CONTROL_ROWS_MAX };
	for (size_t i = 0; i < CONTROL_ROWS_MAX; i++) {
		units[i] = (struct control_unit){ "", UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT32_MAX, true, true };
		memset(units[i].name, 'n', FSDP_NAME_MAX);
	}
	assert_round_trip(&want);
}

Test(control_message, every_list_full_of_short_rows_comes_back)
{
	static struct control_peer peers[CONTROL_ROWS_MAX];
	static struct control_model models[CONTROL_ROWS_MAX];
	static struct control_unit units[CONTROL_ROWS_MAX];
	static struct control_worker workers[CONTROL_ROWS_MAX];
	static struct control_wait waits[CONTROL_ROWS_MAX];
	struct control_message want = sample_control(CONTROL_STATUS);
	for (size_t i = 0; i < CONTROL_ROWS_MAX; i++) {
		peers[i] = want.peers[0];
		models[i] = want.models[0];
		units[i] = want.units[0];
		workers[i] = want.workers[0];
		waits[i] = want.waits[i % 2];
	}
	want.peers = peers, want.peer_count = CONTROL_ROWS_MAX;
	want.models = models, want.model_count = CONTROL_ROWS_MAX;
	want.units = units, want.unit_count = CONTROL_ROWS_MAX;
	want.workers = workers, want.worker_count = CONTROL_ROWS_MAX;
	want.waits = waits, want.wait_count = CONTROL_ROWS_MAX;
	assert_round_trip(&want);
}

Test(control_message, one_more_than_a_maximum_is_not_written)
{
	static struct control_peer peers[CONTROL_ROWS_MAX + 1];
	static struct control_wait crowd = { .rank_count = CONTROL_RANKS_MAX + 1 };
	struct control_message message[] = {
		{ .op = CONTROL_PEERS, .peers = peers, .peer_count = CONTROL_ROWS_MAX + 1 },
		{ .op = CONTROL_STATUS, .waits = &crowd, .wait_count = 1 },
		{ .op = CONTROL_UNITS },
	};
	memset(message[2].name, 'n', sizeof message[2].name);
	for (size_t i = 0; i < 3; i++)
		cr_assert_eq(control_message_write(&message[i], frame), FSDP_E_OVERFLOW, "message %zu", i);
}

Test(control_message, rows_that_do_not_fit_a_frame_are_not_written)
{
	static struct control_model models[CONTROL_ROWS_MAX];
	struct control_message message = { .op = CONTROL_MODELS, .models = models, .model_count = CONTROL_ROWS_MAX };
	for (size_t i = 0; i < CONTROL_ROWS_MAX; i++)
		memset(models[i].trouble, 't', CONTROL_TEXT_MAX);
	cr_assert_eq(control_message_write(&message, frame), FSDP_E_OVERFLOW);
	message.model_count = 64;
	cr_assert_gt(control_message_write(&message, frame), 0);
}

Test(control_message, one_more_than_a_maximum_is_refused)
{
	const uint32_t lists[] = { PEERS, MODELS, UNITS, WORKERS, WAITS };
	for (size_t i = 0; i < 5; i++) {
		cr_assert_eq(with_empty_rows(lists[i], CONTROL_ROWS_MAX), 0);
		cr_assert_eq(with_empty_rows(lists[i], CONTROL_ROWS_MAX + 1), FSDP_E_PROTOCOL);
		cr_assert_eq(with_empty_rows(lists[i], 60000), FSDP_E_PROTOCOL);
	}
	cr_assert_eq(with_block(NAME, NULL, FSDP_NAME_MAX), 0);
	cr_assert_eq(with_block(NAME, NULL, FSDP_NAME_MAX + 1), FSDP_E_PROTOCOL);
	cr_assert_eq(with_block(TEXT, NULL, CONTROL_TEXT_MAX), 0);
	cr_assert_eq(with_block(TEXT, NULL, CONTROL_TEXT_MAX + 1), FSDP_E_PROTOCOL);
	cr_assert_eq(with_row_block(STATUS, STATUS_VERSION, NULL, 63), 0);
	cr_assert_eq(with_row_block(STATUS, STATUS_VERSION, NULL, 64), FSDP_E_PROTOCOL);
	cr_assert_eq(with_row_block(PEERS, PEER_STATE, NULL, 15), 0);
	cr_assert_eq(with_row_block(PEERS, PEER_STATE, NULL, 16), FSDP_E_PROTOCOL);
	cr_assert_eq(with_row_block(WAITS, WAIT_RANKS, NULL, 4 * 16), 0);
	cr_assert_eq(with_row_block(WAITS, WAIT_RANKS, NULL, 4 * 17), FSDP_E_PROTOCOL);
	cr_assert_eq(with_row_block(WAITS, WAIT_RANKS, NULL, 3), FSDP_E_PROTOCOL);
}

Test(control_message, values_that_mean_nothing_are_refused)
{
	cr_assert_eq(with_number(OP, 0), FSDP_E_PROTOCOL);
	cr_assert_eq(with_number(OP, CONTROL_STEP_ABORT), 0);
	cr_assert_eq(with_number(OP, CONTROL_STEP_ABORT + 1), FSDP_E_PROTOCOL);
	cr_assert_eq(hostile_exact("", 0, read_and_drop), FSDP_E_PROTOCOL);
	cr_assert_eq(with_number(CODE, 2), FSDP_E_PROTOCOL);
	cr_assert_eq(with_block(NAME, "a\0b", 3), FSDP_E_PROTOCOL);
	cr_assert_eq(with_row_block(PEERS, PEER_STATE, "\x1b[2J", 4), FSDP_E_PROTOCOL);
	row.size = 0;
	wire_bytes_number(&row, STATUS_RANK, 1ull << 32);
	cr_assert_eq(with_block(STATUS, row.data, row.size), FSDP_E_PROTOCOL);
}

Test(control_message, values_that_would_be_refused_are_not_written)
{
	struct control_message message[] = {
		{ .op = 0 },
		{ .op = CONTROL_STEP_ABORT + 1 },
		{ .op = CONTROL_STATUS, .code = 1 },
		{ .op = CONTROL_UNITS, .name = "a\tb" },
	};
	for (size_t i = 0; i < 4; i++)
		cr_assert_eq(control_message_write(&message[i], frame), FSDP_E_INVALID, "message %zu", i);
}

Test(control_message, prefixes_and_flipped_bits_are_taken_or_refused)
{
	struct control_message message = sample_control(CONTROL_STATUS);
	long size = control_message_write(&message, frame);
	cr_assert_gt(size, 0);
	/* Only a cut between two fields or rows leaves a message: 8 fields and 10 rows. */
	cr_assert_eq(hostile_prefixes(frame, (size_t)size, read_and_drop), 17);
	cr_assert_gt(hostile_flips(frame, (size_t)size, read_and_drop), 0);
}
