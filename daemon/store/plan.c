/*
 * Plans. Owns the layouts of all units and the six arenas; holds a reference to the manifest. Built by one thread,
 * immutable once shared, freed by whoever drops the last reference. What the arenas contain is not the plan's
 * business.
 */
#include "daemon/store/plan.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "daemon/math/dtype.h"
#include "daemon/math/optimizer.h"
#include "fsdp/error.h"

#define PLAN_ALIGN 64u     /* where a shard begins */
#define PLAN_PAGE 4096u    /* the rounding of full copies; the same as a pool's */
#define PLAN_STAGGER 1088u /* 17 cache lines */

struct plan {
	atomic_size_t references;
	struct manifest *manifest;
	uint32_t rank, world_size;
	uint32_t unit_count;
	struct plan_unit *units;
	struct plan_sizes sizes;
	unsigned moments;
	struct plan_memory memory;
};

/* How far the next buffer begins behind one of this size. Buffers of whole pages would all begin at the same place of
 * a page (and those of 2 MiB in the same cache sets), and loops that read several of them at one index would fight
 * for it. */
static uint64_t plan_stride(uint64_t bytes)
{
	uint64_t stride = (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
	return stride > 0 && stride % PLAN_PAGE == 0 ? stride + PLAN_STAGGER : stride;
}

static uint64_t plan_round_page(uint64_t bytes)
{
	return bytes == 0 ? PLAN_PAGE : (bytes + PLAN_PAGE - 1) / PLAN_PAGE * PLAN_PAGE;
}

static bool plan_add(uint64_t *total, uint64_t bytes)
{
	return !__builtin_add_overflow(*total, bytes, total) && *total <= (uint64_t)INT64_MAX;
}

/* One f32 segment, seen and sent as f32: what the engine can add and step so far. A unit without parameters is one of
 * 0 elements. */
static bool plan_supports(const struct manifest_options *options, const struct manifest_unit *unit)
{
	enum fsdp_dtype set[] = { options->gather_dtype, options->reduce_dtype, unit->gather_dtype,
				  unit->reduce_dtype };
	for (size_t i = 0; i < sizeof(set) / sizeof(set[0]); i++) {
		if (set[i] != 0 && set[i] != FSDP_F32) {
			return false;
		}
	}
	for (uint32_t i = 0; i < unit->param_count; i++) {
		if (unit->params[i].dtype != FSDP_F32) {
			return false;
		}
	}
	return true;
}

static uint64_t plan_segment_total(const struct plan_unit *unit)
{
	return unit->layout.segment_count ? unit->layout.segments[0].total : 0;
}

static int plan_place_unit(struct plan *plan, uint32_t canonical)
{
	const struct manifest_unit *source = manifest_unit(plan->manifest, canonical);
	struct plan_unit *unit = &plan->units[canonical];
	if (!plan_supports(manifest_get_options(plan->manifest), source)) {
		return FSDP_E_DTYPE;
	}
	int code = layout_unit_init(&unit->layout, source);
	if (code < 0) {
		return code;
	}
	code = layout_shard(plan_segment_total(unit), sizeof(float), plan->rank, plan->world_size, &unit->shard);
	if (code < 0) {
		return code;
	}
	struct plan_sizes *sizes = &plan->sizes;
	uint64_t full = plan_round_page(unit->layout.full_bytes);
	unit->shard_bytes = unit->shard.count * sizeof(float);
	unit->shard_offset = sizes->shards;
	unit->moments_offset = sizes->moments;
	uint64_t stride = plan_stride(unit->shard_bytes);
	if (!plan_add(&sizes->shards, stride) || !plan_add(&sizes->all_units, full)) {
		return FSDP_E_OVERFLOW;
	}
	for (unsigned k = 0; k < plan->moments; k++) {
		if (!plan_add(&sizes->moments, stride)) {
			return FSDP_E_OVERFLOW;
		}
	}
	if (full > sizes->largest_unit) {
		sizes->largest_unit = full;
	}
	return 0;
}

int plan_new(struct manifest *manifest, uint32_t rank, uint32_t world_size, struct plan **ret_plan)
{
	if (world_size == 0 || rank >= world_size) {
		return FSDP_E_INVALID;
	}
	struct plan *plan = calloc(1, sizeof(*plan));
	if (!plan) {
		return -ENOMEM;
	}
	atomic_init(&plan->references, 1);
	plan->manifest = manifest_ref(manifest);
	plan->rank = rank;
	plan->world_size = world_size;
	plan->unit_count = manifest_unit_count(manifest);
	plan->moments = optimizer_moments(&manifest_get_options(manifest)->optimizer);
	plan->sizes.moments =
		plan->moments ? 2 * PLAN_STAGGER : 0; /* not congruent with the master at the same place */
	plan->units = calloc(plan->unit_count ? plan->unit_count : 1, sizeof(*plan->units));
	int code = plan->units ? 0 : -ENOMEM;
	for (uint32_t i = 0; code == 0 && i < plan->unit_count; i++) {
		code = plan_place_unit(plan, i);
	}
	if (code < 0) {
		plan_unref(plan);
		return code;
	}
	*ret_plan = plan;
	return 0;
}

struct plan *plan_ref(struct plan *plan)
{
	size_t before = atomic_fetch_add_explicit(&plan->references, 1, memory_order_relaxed);
	assert(before > 0);
	return plan;
}

static void plan_fini_memory(struct plan_memory *memory)
{
	struct arena *arenas[] = { &memory->masters, &memory->gradients, &memory->moments,
				   &memory->staging, &memory->gathers,   &memory->grads };
	for (size_t i = 0; i < sizeof(arenas) / sizeof(arenas[0]); i++) {
		arena_fini(arenas[i]);
	}
}

void plan_unref(struct plan *plan)
{
	if (!plan) {
		return;
	}
	size_t before = atomic_fetch_sub_explicit(&plan->references, 1, memory_order_acq_rel);
	assert(before > 0);
	if (before > 1) {
		return;
	}
	plan_fini_memory(&plan->memory);
	for (uint32_t i = 0; plan->units && i < plan->unit_count; i++) {
		layout_unit_fini(&plan->units[i].layout);
	}
	free(plan->units);
	manifest_unref(plan->manifest);
	free(plan);
}

struct plan_sizes plan_get_sizes(const struct plan *plan)
{
	return plan->sizes;
}

int plan_allocate(struct plan *plan, uint64_t gather_bytes, uint64_t grad_bytes, bool private_memory)
{
	struct plan_memory *memory = &plan->memory;
	const struct {
		struct arena *arena;
		const char *name;
		uint64_t bytes;
	} wanted[] = {
		{ &memory->masters, "fsdp-masters", plan->sizes.shards },
		{ &memory->gradients, "fsdp-gradients", plan->sizes.shards },
		{ &memory->moments, "fsdp-moments", plan->sizes.moments },
		{ &memory->staging, "fsdp-staging", plan->sizes.shards },
		{ &memory->gathers, "fsdp-gathers", gather_bytes },
		{ &memory->grads, "fsdp-grads", grad_bytes },
	};
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		assert(!wanted[i].arena->base);
		int code = private_memory ? arena_init_private(wanted[i].arena, wanted[i].bytes)
					  : arena_init(wanted[i].arena, wanted[i].name, wanted[i].bytes);
		if (code < 0) {
			plan_fini_memory(memory);
			return code;
		}
	}
	return 0;
}

struct manifest *plan_manifest(const struct plan *plan)
{
	return plan->manifest;
}

uint32_t plan_rank(const struct plan *plan)
{
	return plan->rank;
}

uint32_t plan_world_size(const struct plan *plan)
{
	return plan->world_size;
}

uint32_t plan_unit_count(const struct plan *plan)
{
	return plan->unit_count;
}

const struct plan_unit *plan_unit(const struct plan *plan, uint32_t canonical)
{
	assert(canonical < plan->unit_count);
	return &plan->units[canonical];
}

const struct plan_memory *plan_memory(const struct plan *plan)
{
	return &plan->memory;
}

struct range plan_shard_of(const struct plan *plan, uint32_t canonical, uint32_t rank)
{
	struct range range = { 0 };
	int code = layout_shard(plan_segment_total(plan_unit(plan, canonical)), sizeof(float), rank, plan->world_size,
				&range);
	assert(code == 0); /* the total was checked in plan_new; a rank that is none is the caller's mistake */
	return range;
}

static float *plan_at(const struct arena *arena, uint64_t offset)
{
	return arena->base ? (float *)(void *)((char *)arena->base + offset) : NULL;
}

float *plan_master(const struct plan *plan, uint32_t canonical)
{
	return plan_at(&plan->memory.masters, plan_unit(plan, canonical)->shard_offset);
}

float *plan_gradient(const struct plan *plan, uint32_t canonical)
{
	return plan_at(&plan->memory.gradients, plan_unit(plan, canonical)->shard_offset);
}

float *plan_staging(const struct plan *plan, uint32_t canonical)
{
	return plan_at(&plan->memory.staging, plan_unit(plan, canonical)->shard_offset);
}

float *plan_moment(const struct plan *plan, uint32_t canonical, unsigned k)
{
	if (k >= plan->moments) {
		return NULL;
	}
	const struct plan_unit *unit = plan_unit(plan, canonical);
	return plan_at(&plan->memory.moments, unit->moments_offset + k * plan_stride(unit->shard_bytes));
}
