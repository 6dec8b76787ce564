/*
 * The trainer's state that commits with a step: to the daemon in parts, all but the last before the step's own request,
 * and back in parts of one committed step.
 */
#include "client/lib/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/fault.h"
#include "client/lib/model.h"

#define STATE_TRIES 8 /* to read all parts of one step, while others commit */

_Static_assert(FSDP_STATE_MAX == WORKER_BLOB_MAX, "the library allows what the daemon does");

int state_check(const void *state, size_t bytes, const char *what)
{
	if (bytes > FSDP_STATE_MAX)
		return fault_set(FSDP_E_INVALID, "%s: step: the state has %zu bytes, %d are the most", what, bytes,
				 FSDP_STATE_MAX);
	if (bytes > 0 && !state)
		return fault_set(FSDP_E_INVALID, "%s: step: state is NULL, but state_bytes is %zu", what, bytes);
	return 0;
}

int state_send(struct fsdp_model *model, const void *state, size_t bytes, struct worker_message *step, const char *what)
{
	uint8_t *from = (uint8_t *)(uintptr_t)state; /* the message borrows it, and is only written */
	size_t sent = 0;
	while (bytes - sent > WORKER_BLOB_PART_MAX) {
		WIRE_CALL_AUTO call = { 0 };
		struct worker_message request = model_request(model, NULL, WORKER_BLOB);
		request.blob = from + sent;
		request.blob_size = WORKER_BLOB_PART_MAX;
		request.blob_offset = sent;
		request.blob_bytes = bytes;
		int code = model_ask(model, NULL, &request, &call, what);
		if (code < 0)
			return code;
		sent += WORKER_BLOB_PART_MAX;
	}
	step->blob = bytes > 0 ? from + sent : NULL;
	step->blob_size = bytes - sent;
	step->blob_offset = sent;
	step->blob_bytes = bytes;
	return 0;
}

/* The part at offset; its bytes are in the call's answer. */
static int state_ask(struct fsdp_model *model, size_t offset, struct wire_call *call, const char *what)
{
	struct worker_message request = model_request(model, NULL, WORKER_STATE);
	request.blob_offset = offset;
	int code = model_ask(model, NULL, &request, call, what);
	if (code < 0)
		return code;
	const struct worker_message *answer = &call->answer;
	uint64_t rest = answer->blob_bytes > offset ? answer->blob_bytes - offset : 0;
	if (answer->blob_bytes <= WORKER_BLOB_MAX &&
	    answer->blob_size == (rest < WORKER_BLOB_PART_MAX ? rest : WORKER_BLOB_PART_MAX))
		return 0;
	fault_set(FSDP_E_PROTOCOL, "%s: the daemon gave %zu bytes at %zu of a state of %llu", what, answer->blob_size,
		  offset, (unsigned long long)answer->blob_bytes);
	wire_break(model->client->wire, FSDP_E_PROTOCOL, "%s", fsdp_last_error());
	return FSDP_E_PROTOCOL;
}

/* All parts, as far as they are of one step. FSDP_E_STALE: one was committed meanwhile. */
static int state_read(struct fsdp_model *model, unsigned char *state, size_t size, size_t *ret_bytes)
{
	uint64_t step = 0, bytes = 0;
	size_t read = 0;
	do {
		WIRE_CALL_AUTO call = { 0 };
		int code = state_ask(model, read, &call, "fsdp_model_state");
		if (code < 0)
			return code;
		const struct worker_message *answer = &call.answer;
		if (read > 0 && (answer->step != step || answer->blob_bytes != bytes))
			return FSDP_E_STALE;
		step = answer->step;
		bytes = answer->blob_bytes;
		if (bytes > size)
			return fault_set(FSDP_E_INVALID,
					 "fsdp_model_state: the state of model \"%s\" has %llu bytes, the buffer %zu",
					 model->name, (unsigned long long)bytes, size);
		if (answer->blob_size > 0)
			memcpy(state + read, answer->blob, answer->blob_size);
		read += answer->blob_size;
	} while (read < bytes);
	*ret_bytes = read;
	return 0;
}

int fsdp_model_state(struct fsdp_model *model, void *buffer, size_t size)
{
	int code = model_check_sealed(model, "fsdp_model_state");
	if (code < 0)
		return code;
	if (size > 0 && !buffer)
		return fault_set(FSDP_E_INVALID, "fsdp_model_state: buffer is NULL");
	size_t most = size < FSDP_STATE_MAX ? size : FSDP_STATE_MAX, bytes = 0;
	unsigned char *state = malloc(most + 1);
	if (!state)
		return fault_set(-ENOMEM, "fsdp_model_state: out of memory");
	code = FSDP_E_STALE;
	for (int i = 0; i < STATE_TRIES && code == FSDP_E_STALE; i++)
		code = state_read(model, state, most, &bytes);
	if (code == FSDP_E_STALE)
		fault_set(code,
			  "fsdp_model_state: steps of model \"%s\" were committed while it was read: call it again",
			  model->name);
	if (code == 0 && bytes > 0)
		memcpy(buffer, state, bytes);
	free(state);
	return code;
}

int fsdp_model_state_bytes(struct fsdp_model *model, size_t *ret_bytes)
{
	int code = model_check_sealed(model, "fsdp_model_state_bytes");
	if (code < 0)
		return code;
	if (!ret_bytes)
		return fault_set(FSDP_E_INVALID, "fsdp_model_state_bytes: ret_bytes is NULL");
	WIRE_CALL_AUTO call = { 0 };
	code = state_ask(model, 0, &call, "fsdp_model_state_bytes");
	if (code == 0)
		*ret_bytes = (size_t)call.answer.blob_bytes;
	return code;
}
