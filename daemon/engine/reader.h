/*
 * The reader's side of gathers: a full copy of a unit in a slot of the gather pool, our own range copied, the others'
 * read from their owners, all of one version.
 */
#ifndef FSDPD_ENGINE_READER_H
#define FSDPD_ENGINE_READER_H

#include "daemon/runtime/buffer.h"
#include <stdbool.h>
#include <stdint.h>

#define GATHERS_AT_ONCE 8     /* units of one model that are read at a time */
#define READ_OWNERS_AT_ONCE 8 /* owners that one gather asks at a time */

struct gather;
struct model;
struct part;
struct peer_message;
struct unit;

struct gathers {
	struct gather *reading[GATHERS_AT_ONCE];
	uint32_t reading_count;
	struct gather *ready, **ready_tail; /* their version is here; they wait for a place among the reading ones */
	bool filling;
};

void reader_init(struct model *model);
void reader_start(struct unit *unit, uint64_t slot, uint64_t version);
/* Initial values: our own range, into the masters, from the rank that offers them. */
void reader_fetch(struct unit *unit);
void reader_version_changed(struct unit *unit);

void reader_chunk(struct model *model, uint32_t owner, const struct peer_message *message, struct buffer *payload);
void reader_stale(struct model *model, uint32_t owner, const struct peer_message *message);

void reader_copied(struct gather *gather, struct part *part); /* from part.c: some of it was */
void reader_repeat(struct model *model, uint32_t owner);      /* a link between us was made anew: asks again */
void reader_tick(struct model *model);                        /* asks again where nothing came */
void reader_drop(struct model *model);

/* Tells ranks one by one, unit after unit, of which a gather waits; stops when tell returns false. */
void reader_waits(const struct model *model, bool (*tell)(void *context, uint32_t unit, uint32_t rank), void *context);

#endif
