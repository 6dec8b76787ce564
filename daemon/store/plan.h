/*
 * A plan: everything about one sealed model on one rank that never changes. Manifest, layout of every unit, where
 * each unit's shard lies in the arenas, and the arenas themselves. Immutable after plan_new, counted, shared by every
 * thread; the memory that it points to has owners of its own (see daemon/README.md).
 */
#ifndef FSDPD_STORE_PLAN_H
#define FSDPD_STORE_PLAN_H

#include "daemon/store/arena.h"
#include "daemon/store/layout.h"
#include "daemon/store/manifest.h"

/* The six arenas of a model. */
struct plan_memory {
	struct arena masters;   /* this rank's shard of every unit; workers map it read-only */
	struct arena gradients; /* the same shape: sums, then mean gradients; workers map it read-only */
	struct arena moments;   /* optimizer state; never shared */
	struct arena staging;   /* the same shape as masters; workers write it */
	struct arena gathers;   /* the gather pool; workers map it read-only */
	struct arena grads;     /* the gradient pool; workers write it */
};

struct plan_unit {
	struct layout_unit layout;
	struct range shard;      /* of segment 0, of this rank */
	uint64_t shard_bytes;    /* bytes of the shard */
	uint64_t shard_offset;   /* bytes into masters, gradients and staging; a multiple of 64 */
	uint64_t moments_offset; /* bytes into moments, of moment 0; the others follow it (plan_moment knows how far) */
};

struct plan_sizes {
	uint64_t shards; /* bytes of masters, of gradients and of staging each */
	uint64_t moments;
	uint64_t largest_unit; /* full bytes, rounded to a page (at least one): what its slot takes from a pool */
	uint64_t all_units;    /* the same of all units together */
};

struct plan;

/* Computes layouts; takes a reference to manifest (sealed). No memory for shards is taken. 0, -ENOMEM,
 * FSDP_E_OVERFLOW, FSDP_E_INVALID (a rank that is none), FSDP_E_DTYPE: a unit has a parameter, or a gather or reduce
 * dtype, that is not f32, which is all that the engine can move so far. */
int plan_new(struct manifest *manifest, uint32_t rank, uint32_t world_size, struct plan **ret_plan);
struct plan *plan_ref(struct plan *plan);
void plan_unref(struct plan *plan); /* the last one frees the arenas too; any thread */

struct plan_sizes plan_get_sizes(const struct plan *plan);

/* Makes the arenas. gather_bytes and grad_bytes are the sizes of the pools. Blocks (pre-faults): call it from exec,
 * once, before the plan is shared. private_memory: no memfds (simulation). */
int plan_allocate(struct plan *plan, uint64_t gather_bytes, uint64_t grad_bytes, bool private_memory);

struct manifest *plan_manifest(const struct plan *plan);
uint32_t plan_rank(const struct plan *plan);
uint32_t plan_world_size(const struct plan *plan);
uint32_t plan_unit_count(const struct plan *plan);
const struct plan_unit *plan_unit(const struct plan *plan, uint32_t canonical);
const struct plan_memory *plan_memory(const struct plan *plan);

/* The shard of `rank` of a unit: what every rank can compute of every other. */
struct range plan_shard_of(const struct plan *plan, uint32_t canonical, uint32_t rank);

float *plan_master(const struct plan *plan, uint32_t canonical);
float *plan_gradient(const struct plan *plan, uint32_t canonical);
float *plan_staging(const struct plan *plan, uint32_t canonical);
float *plan_moment(const struct plan *plan, uint32_t canonical, unsigned k); /* NULL where the optimizer has fewer */

#endif
