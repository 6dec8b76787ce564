/* The state of a trainer in parts: whole or not at all, whatever a worker says of it. */
#include "daemon/serve/blob.h"

#include <criterion/criterion.h>
#include <string.h>

#include "fsdp/error.h"

static uint8_t letters[WORKER_BLOB_PART_MAX];

static struct worker_message part(uint64_t offset, size_t size, uint64_t whole)
{
	memset(letters, 'x', sizeof(letters));
	return (struct worker_message){
		.blob = letters, .blob_size = size, .blob_offset = offset, .blob_bytes = whole
	};
}

static int take(struct blob *blob, uint64_t offset, size_t size, uint64_t whole)
{
	struct worker_message message = part(offset, size, whole);
	return blob_take(blob, &message);
}

static int finish(struct blob *blob, uint64_t offset, size_t size, uint64_t whole, struct buffer **ret_state)
{
	struct worker_message message = part(offset, size, whole);
	return blob_finish(blob, &message, ret_state);
}

Test(serve_blob, parts_in_order_make_the_whole)
{
	struct blob blob = { 0 };
	struct buffer *state;
	cr_assert_eq(take(&blob, 0, 3, 8), 0);
	cr_assert_eq(take(&blob, 3, 3, 8), 0);
	cr_assert_eq(finish(&blob, 6, 2, 8, &state), 0);
	cr_assert_eq(buffer_size(state), 8);
	cr_assert(memcmp(buffer_data(state), "xxxxxxxx", 8) == 0);
	cr_assert_null(blob.buffer);
	buffer_unref(state);
}

Test(serve_blob, a_first_part_begins_anew_and_a_step_without_state_drops_what_came)
{
	struct blob blob = { 0 };
	struct buffer *state = NULL;
	cr_assert_eq(take(&blob, 0, 3, 8), 0);
	cr_assert_eq(finish(&blob, 0, 5, 5, &state), 0);
	cr_assert_eq(buffer_size(state), 5);
	buffer_unref(state);
	cr_assert_eq(take(&blob, 0, 3, 8), 0);
	cr_assert_eq(finish(&blob, 0, 0, 0, &state), 0);
	cr_assert_null(state);
	cr_assert_null(blob.buffer);
}

Test(serve_blob, what_does_not_follow_is_refused_and_nothing_of_it_is_kept)
{
	static const struct {
		uint64_t offset;
		size_t size;
		uint64_t whole;
		int code;
	} odd[] = {
		{ 2, 3, 8, FSDP_E_STATE },                         /* overlaps */
		{ 4, 3, 8, FSDP_E_STATE },                         /* leaves a gap */
		{ 3, 6, 8, FSDP_E_STATE },                         /* is too long */
		{ 3, 3, 9, FSDP_E_STATE },                         /* of another whole */
		{ 3, 0, 8, FSDP_E_STATE },                         /* is empty */
		{ UINT64_MAX, 3, 8, FSDP_E_STATE },                /* wraps */
		{ 0, 9, 8, FSDP_E_STATE },                         /* more than the whole */
		{ 0, 1, WORKER_BLOB_MAX + 1ull, FSDP_E_OVERFLOW }, /* of too large a whole */
		{ 3, 3, UINT64_MAX, FSDP_E_OVERFLOW },
	};
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		struct blob blob = { 0 };
		struct buffer *state = NULL;
		cr_assert_eq(take(&blob, 0, 3, 8), 0);
		cr_assert_eq(take(&blob, odd[i].offset, odd[i].size, odd[i].whole), odd[i].code, "case %zu", i);
		cr_assert_null(blob.buffer, "case %zu", i);
		cr_assert_eq(take(&blob, 3, 3, 8), FSDP_E_STATE, "case %zu", i);
		cr_assert_eq(finish(&blob, 0, 3, 8, &state), FSDP_E_STATE, "a step takes only the whole");
		cr_assert_null(blob.buffer);
		cr_assert_null(state);
	}
}

Test(serve_blob, it_is_given_back_in_parts)
{
	struct buffer *state;
	cr_assert_eq(buffer_new_heap(WORKER_BLOB_PART_MAX + 5, &state), 0);
	struct worker_message first = { 0 }, second = { 0 }, beyond = { 0 }, none = { 0 };
	blob_part(state, 0, &first);
	cr_assert_eq(first.blob_size, WORKER_BLOB_PART_MAX);
	cr_assert_eq(first.blob_bytes, WORKER_BLOB_PART_MAX + 5);
	blob_part(state, WORKER_BLOB_PART_MAX, &second);
	cr_assert_eq(second.blob_size, 5);
	blob_part(state, UINT64_MAX, &beyond);
	cr_assert_eq(beyond.blob_size, 0);
	blob_part(NULL, 0, &none);
	cr_assert_eq(none.blob_size, 0);
	cr_assert_eq(none.blob_bytes, 0);
	buffer_unref(state);
}
