/*
 * Blobs in parts. Nothing that a worker says of one is believed before it was compared with what is here.
 */
#include "daemon/serve/blob.h"

#include <string.h>

#include "fsdp/error.h"

void blob_drop(struct blob *blob)
{
	buffer_unref(blob->buffer);
	*blob = (struct blob){ 0 };
}

static int take(struct blob *blob, const struct worker_message *part)
{
	if (part->blob_bytes > WORKER_BLOB_MAX)
		return FSDP_E_OVERFLOW;
	if (part->blob_size == 0 || part->blob_size > part->blob_bytes)
		return FSDP_E_STATE;
	if (part->blob_offset == 0) {
		blob_drop(blob);
		int code = buffer_new_heap((size_t)part->blob_bytes, &blob->buffer);
		if (code < 0)
			return code;
	}
	if (!blob->buffer || buffer_size(blob->buffer) != part->blob_bytes || blob->received != part->blob_offset ||
	    part->blob_size > buffer_size(blob->buffer) - blob->received)
		return FSDP_E_STATE;
	memcpy((char *)buffer_data(blob->buffer) + blob->received, part->blob, part->blob_size);
	blob->received += part->blob_size;
	return 0;
}

int blob_take(struct blob *blob, const struct worker_message *part)
{
	int code = take(blob, part);

	if (code < 0)
		blob_drop(blob);
	return code;
}

int blob_finish(struct blob *blob, const struct worker_message *step, struct buffer **ret_state)
{
	if (step->blob_bytes == 0 && step->blob_size == 0) {
		blob_drop(blob);
		*ret_state = NULL;
		return 0;
	}
	int code = blob_take(blob, step);
	if (code < 0)
		return code;
	if (blob->received < buffer_size(blob->buffer)) {
		blob_drop(blob);
		return FSDP_E_STATE;
	}
	*ret_state = blob->buffer;
	*blob = (struct blob){ 0 };
	return 0;
}

void blob_part(const struct buffer *state, uint64_t offset, struct worker_message *answer)
{
	size_t size = state ? buffer_size(state) : 0, rest;

	answer->blob_bytes = size;
	if (offset >= size)
		return;
	rest = size - (size_t)offset;
	answer->blob = (uint8_t *)buffer_data(state) + offset;
	answer->blob_size = rest < WORKER_BLOB_PART_MAX ? rest : WORKER_BLOB_PART_MAX;
}
