/*
 * PROGRESS: what an owner tells its sources: how far their contributions are added, which CLOSEs it took, and their
 * credit.
 */
#ifndef FSDPD_ENGINE_PROGRESS_H
#define FSDPD_ENGINE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#define PROGRESS_UNITS_MAX 512 /* whose changes are remembered between two messages */

struct engine;
struct model;
struct source;
struct unit;

/* What a source is still to be told. */
struct telling {
	bool due, all, reply;
	struct source *next; /* of those that are due */
	uint32_t *units;     /* [PROGRESS_UNITS_MAX] that changed; may repeat */
	uint32_t unit_count;
	uint64_t arrived;  /* of the source, at the last tick */
	uint32_t rotation; /* the unit from which on the next tick repeats */
};

void progress_note(struct source *source, uint32_t unit); /* it changed; told with the next message */
void progress_want(struct source *source);                /* a message is due at the end of this event */
/* With everything; reply: and the source's own is asked for. */
void progress_want_all(struct source *source, bool reply);
void progress_check_credit(struct source *source); /* due if enough credit has come free */

void progress_tick(struct model *model);
bool progress_flush(struct engine *engine); /* sends what is due; whether anything was */
void progress_forget(struct source *source);

#endif
