/*
 * The state of a trainer on its way: a blob that comes from the worker part by part before the step that it belongs to,
 * and goes back part by part. What it means is the trainer's business. Owns the parts that came. One thread (the loop)
 * runs it.
 */
#ifndef FSDPD_SERVE_BLOB_H
#define FSDPD_SERVE_BLOB_H

#include "daemon/runtime/buffer.h"
#include "proto/worker_message.h"

struct blob {
	struct buffer *buffer; /* of the whole; NULL: no part is here */
	size_t received;
};

/* The next part; that at offset 0 begins anew. 0, -ENOMEM, FSDP_E_OVERFLOW (the whole is too large), FSDP_E_STATE (it
 * does not follow). On failure nothing is kept. */
int blob_take(struct blob *blob, const struct worker_message *part);
/* With the last part in a step; where the step has none, ret_state is NULL and what came is dropped. Gives the
 * reference. As blob_take; FSDP_E_STATE where parts are missing. */
int blob_finish(struct blob *blob, const struct worker_message *step, struct buffer **ret_state);
void blob_drop(struct blob *blob);

/* Into the answer: the part of state (NULL: nothing) from offset on, borrowed, and the bytes of the whole. */
void blob_part(const struct buffer *state, uint64_t offset, struct worker_message *answer);

#endif
