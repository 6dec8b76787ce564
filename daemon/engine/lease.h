/*
 * A lease: a range of a model's arena lent to the link to one peer, as a counted buffer that goes out without a copy.
 * The last reference is let go in whatever thread holds it; the lease then comes home through a list that the engine's
 * thread takes.
 */
#ifndef FSDPD_ENGINE_LEASE_H
#define FSDPD_ENGINE_LEASE_H

#include "daemon/runtime/buffer.h"
#include <stdbool.h>
#include <stdint.h>

struct engine;
struct lease;
struct model;

/* returned is called once with owner, in the engine's thread and never from inside lease_end, when no reference is
 * left. */
struct lease *lease_new(struct model *model, uint32_t rank, void *data, uint64_t bytes, void (*returned)(void *owner),
			void *owner);
struct buffer *lease_buffer(const struct lease *lease);
/* Nothing more will be sent from it. The lease is not to be touched after this but by lease_hurry before it
 * returned. */
void lease_end(struct lease *lease);

/* Somebody waits for it: when it is still out at deadline_ms (a tick looks), its link is reset. */
void lease_hurry(struct lease *lease, uint64_t deadline_ms);
void lease_hurry_all(struct model *model, uint64_t deadline_ms);
void lease_tick(struct model *model);

/* Takes home what was released. Returns whether there was any. */
bool lease_collect(struct engine *engine);

#endif
