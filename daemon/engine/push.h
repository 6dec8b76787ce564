/*
 * The source's side of reductions: this node's contributions, sent to their owners as their credit allows, again after
 * a break from what they acknowledged on, and held until all of it was added everywhere. And this node's CLOSEs.
 */
#ifndef FSDPD_ENGINE_PUSH_H
#define FSDPD_ENGINE_PUSH_H

#include "daemon/store/command.h"
#include <stdbool.h>
#include <stdint.h>

#define PUSH_CLOSES_AT_ONCE 256 /* CLOSEs repeated to one target in a tick */

struct lease;
struct model;
struct outgoing;
struct peer_message;
struct unit;

struct push_close {
	uint8_t *bits; /* NULL: nothing is absent */
	bool last;
	double weight;
};

struct push {
	struct outgoing *first, *last; /* of this step and attempt, in order */
	struct outgoing *leaving;      /* over, but still in the transport's queues or read by a task */
	struct push_close *closes;     /* [close_count], by micro-batch */
	uint32_t close_count, close_room;
};

/* What we may send to one owner, and how far it is. */
struct target {
	uint64_t credit, sent; /* bytes, on the present link */
	uint32_t closed;       /* micro-batches of which it took our CLOSE */
	bool heard;            /* PROGRESS came since the last tick */
	struct outgoing *next; /* the first that is not sent */
};

/* With weight 0 it does not count: its slot is given back at once, and the CLOSE says that it is absent. */
void push_reduce(struct unit *unit, const struct command *command);
void push_close_command(struct model *model, const struct command *command);
void push_progress(struct model *model, uint32_t rank, const struct peer_message *message);

void push_up(struct model *model, uint32_t rank); /* our link to rank was made anew */
void push_resume(struct model *model);            /* a queue may have room again */
void push_tick(struct model *model);
void push_restart(struct model *model); /* everything of the present step and attempt is over */
void push_drop(struct model *model);

/* For the sum: where our own contribution lies, and what becomes of it. */
const float *push_own_range(const struct outgoing *outgoing);
float push_weight(const struct outgoing *outgoing);
/* Its slot waits for nothing but our own range, or it has waited for a tick. */
bool push_is_hurried(const struct outgoing *outgoing);
void push_hold(struct outgoing *outgoing);      /* a task reads it */
void push_let_go(struct outgoing *outgoing);    /* it does no more; may free it */
void push_own_added(struct outgoing *outgoing); /* our own range is added; may free it */

/* As reader_waits: the owners that have not added what we sent them. */
void push_waits(const struct model *model, bool (*tell)(void *context, uint32_t unit, uint32_t rank), void *context);

#endif
