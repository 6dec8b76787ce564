/*
 * The owner's side of reductions: what arrived from whom. For every unit the contributions to this rank's shard in the
 * one order that counts, (micro_batch, rank), and for every source its CLOSEs, its credit, and what it sent of a step
 * or attempt that this rank has not reached. sum.c adds what is kept here.
 */
#ifndef FSDPD_ENGINE_COLLECT_H
#define FSDPD_ENGINE_COLLECT_H

#include "daemon/engine/progress.h"
#include "daemon/engine/sum.h"
#include "daemon/runtime/buffer.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COLLECT_PIECES_MAX (1u << 20) /* of one source, that wait to be added */
#define COLLECT_HELD_CLOSES_MAX 256   /* of one source, of later steps and attempts */

struct held;
struct model;
struct outgoing;
struct peer_message;
struct unit;

struct piece {
	struct piece *next;
	struct buffer *buffer;
	const char *data;
	uint64_t offset, size; /* bytes of our shard */
};

struct contribution {
	struct contribution *next, *prev; /* of the unit, in order */
	uint64_t position;                /* micro_batch * world_size + rank */
	uint64_t following;               /* first position after it that is not known to be absent */
	uint32_t micro_batch, rank;
	float weight;                        /* that all of it is multiplied by */
	uint64_t received, added;            /* bytes, from the start on */
	uint64_t claimed;                    /* up to where a running task adds; else as added */
	struct piece *pieces, **pieces_tail; /* from added on, without gaps */
	struct outgoing *outgoing;           /* our own: lies in its slot, whole */
};

/* Of one source: everything about it in this model. */
struct source {
	struct model *model;
	uint32_t rank;
	/* its CLOSEs, of this step and attempt */
	uint32_t closed; /* of micro-batches 0 to closed - 1 */
	bool has_last;
	uint32_t last;
	double weight;
	uint8_t **absent; /* [closed] bits, NULL: nothing absent */
	uint32_t absent_room;
	size_t absent_bytes;
	/* its credit, on the present link */
	uint64_t arrived, granted;
	uint64_t buffered; /* bytes that wait, whatever link they came on */
	uint32_t pieces;
	bool barred; /* it exceeded it, or worse */
	struct held *held, **held_tail;
	uint32_t held_closes;
	struct telling tell;
};

struct collect {
	uint32_t lasts;      /* sources that have closed their last micro-batch */
	uint64_t end;        /* the first position beyond all; UINT64_MAX while not all have */
	uint64_t epoch;      /* counts the restarts */
	uint32_t units_left; /* that are not whole and divided */
	float divisor;       /* valid with end */
	bool finite, reported;
};

void collect_init(struct model *model);
void collect_push(struct model *model, uint32_t rank, const struct peer_message *message, struct buffer *payload);
/* A PUSH of the present step and attempt that was found sane and is in the accounts. */
void collect_take(struct source *source, const struct peer_message *message, struct buffer *payload);
void collect_close_message(struct model *model, uint32_t rank, const struct peer_message *message);
/* Micro-batch `micro_batch` of rank has ended; bits are copied. It is the next one of that rank. */
void collect_close(struct model *model, uint32_t rank, uint32_t micro_batch, const uint8_t *bits, bool last,
		   double weight);
void collect_own(struct unit *unit, uint32_t micro_batch, struct outgoing *outgoing);

bool collect_is_absent(const struct unit *unit, uint64_t position); /* known to be */
/* The first position from `position` on that is not known to be absent, or the end. */
uint64_t collect_skip(const struct unit *unit, uint64_t position);
/* Pieces of a contribution up to `added` are not needed any more. */
void collect_consume(struct source *source, struct contribution *contribution);
void collect_forget_contribution(struct unit *unit, struct contribution *contribution);

/* Its link was made anew: it sends again what is not acknowledged, so what is held, and what takes too much room, may
 * go. */
void collect_inbound(struct model *model, uint32_t rank);
void collect_restart(struct model *model); /* everything of the present step and attempt is over */
void collect_drop(struct model *model);

/* As reader_waits: for units that are not complete, the ranks whose data or CLOSE is missing. */
void collect_waits(const struct model *model, bool (*tell)(void *context, uint32_t unit, uint32_t rank), void *context);

#endif
