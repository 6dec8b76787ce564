/*
 * A part of a gather: the range of one owner, what of it came and waits to be copied, and the task that copies it into
 * the slot.
 */
#ifndef FSDPD_ENGINE_PART_H
#define FSDPD_ENGINE_PART_H

#include "daemon/runtime/buffer.h"
#include <stdbool.h>
#include <stdint.h>

#define PART_CHUNKS_AT_ONCE 16    /* in one task */
#define PART_OWN_BYTES (4u << 20) /* of our own range in one task */

struct part_chunk;
struct gather;
struct unit;

struct part {
	uint32_t rank;
	uint64_t place, length;           /* bytes in the full copy */
	uint64_t received, copied, limit; /* limit: as told to the owner */
	bool asked, heard, copying;
	struct part_chunk *chunks, **chunks_tail; /* received, not given to a task */
};

void part_reset(struct part *part);                                      /* nothing of it is here; also for a new one */
void part_take(struct part *part, struct buffer *buffer, uint64_t size); /* the next bytes; takes a reference */
void part_forget(struct part *part);                                     /* what waits to be copied */

/* Copies what is here of one part of unit's gather into the slot at `to`, unless a task does so already. False: there
 * is nothing. Each task ends with reader_copied, maybe before this returns. */
bool part_copy(struct part *part, struct gather *gather, struct unit *unit, char *to);

#endif
