/* The state that a trainer gives to a step. */
#ifndef FSDP_CLIENT_STATE_H
#define FSDP_CLIENT_STATE_H

#include <stddef.h>

struct fsdp_model;
struct worker_message;

/* 0, or FSDP_E_INVALID with the fault set. */
int state_check(const void *state, size_t bytes, const char *what);
/* Sends all parts but the last, which goes into the request step, borrowed. The fault is set. */
int state_send(struct fsdp_model *model, const void *state, size_t bytes, struct worker_message *step,
	       const char *what);

#endif
