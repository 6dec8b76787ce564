/*
 * One model in the engine: its units, what is expected from every source, what is owed to every target, and where in
 * the sequence of steps and attempts it stands. `step` and `attempt` name what is collected now: they move when a
 * decision arrives, and a unit that the decision is still going to change (`changing`) takes part in the new step once
 * it was stepped.
 */
#ifndef FSDPD_ENGINE_SHARDS_H
#define FSDPD_ENGINE_SHARDS_H

#include "daemon/engine/apply.h"
#include "daemon/engine/collect.h"
#include "daemon/engine/core.h"
#include "daemon/engine/load.h"
#include "daemon/engine/measure.h"
#include "daemon/engine/reader.h"
#include "daemon/engine/part.h"
#include "daemon/engine/push.h"
#include "daemon/engine/serve.h"

#define ENGINE_MICRO_BATCHES_MAX 65536u /* of one step */

struct unit {
	struct model *model;
	uint32_t index; /* canonical */
	uint64_t bytes; /* of this rank's shard */
	uint64_t version;
	bool changing; /* a decision is going to raise its version */

	struct load_task *loads;     /* of initial values; the first one runs */
	struct load_offer offer;     /* of ours to the others */
	struct serve *serves;        /* reads of it by others, and what of ended ones lies in the transport */
	struct gather *gathers;      /* reads of it by us that are not done */
	uint32_t copies;             /* of those, how many still copy our own range */
	struct outgoing *outgoings;  /* our contributions to it, oldest first */
	struct collect_unit collect; /* the sum of our shard */
	struct apply_unit apply;
};

struct model {
	struct model *next;
	struct engine *engine;
	uint64_t id;
	struct plan *plan;
	const struct manifest_options *options;
	uint32_t unit_count, world_size, rank;
	uint64_t step;
	uint32_t attempt;
	uint64_t refs; /* jobs that run, leases that are out */
	struct lease *leases;
	bool dropping;
	uint64_t dropped_ms;

	struct unit *units;     /* [unit_count], canonical order */
	struct source *sources; /* [world_size] */
	struct target *targets; /* [world_size] */
	struct collect collect;
	struct push push;
	struct gathers gathers;
	struct apply apply;
	struct measures measures;
};

struct model *shards_new(struct engine *engine, uint64_t id, struct plan *plan); /* takes a reference */
void shards_drop(struct model *model);         /* moves it among those that wait for their references */
bool shards_free_if_over(struct model *model); /* a dropped one: frees it and reports, or returns false */
struct model *shards_find(const struct engine *engine, uint64_t id);

/* Begins (step, attempt): what was collected and sent for the one before is over. */
void shards_restart(struct model *model, uint64_t step, uint32_t attempt);
/* (step, attempt) against what is collected now: negative: older, 0: the same, positive: later. */
int shards_compare(const struct model *model, uint64_t step, uint32_t attempt);

/* The unit of a message from a peer; NULL, counted as a violation, where there is none. */
struct unit *shards_unit_of(struct model *model, uint32_t index);
void shards_count_violation(struct model *model);

/* unit has a new version: tell the loop, readers, gathers and the sum. */
void shards_version_changed(struct unit *unit);

#endif
