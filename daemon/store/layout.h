/*
 * The sharding rule. A unit's parameters of one master dtype, in registration order, form one flat vector of N
 * elements: a segment. With S = ceil(N / W), rank r owns [min(r*S, N), min((r+1)*S, N)). Pure arithmetic; every
 * product is checked.
 */
#ifndef FSDPD_STORE_LAYOUT_H
#define FSDPD_STORE_LAYOUT_H

#include "daemon/store/manifest.h"
#include <stdint.h>

struct range {
	uint64_t offset; /* elements into the segment */
	uint64_t count;  /* elements */
};

/* FSDP_E_OVERFLOW where total * element_bytes does not fit 63 bits; FSDP_E_INVALID where world_size is 0 or rank is
 * not below it. */
int layout_shard(uint64_t total, uint64_t element_bytes, uint32_t rank, uint32_t world_size, struct range *ret_range);

/* One parameter's place in its segment. */
struct layout_param {
	uint32_t segment;
	uint64_t offset; /* elements */
	uint64_t count;  /* elements */
};

struct layout_segment {
	enum fsdp_dtype master;
	uint64_t total; /* elements */
};

/* A unit: where each parameter lies. The full copy that workers see has the segments one after another, each at a
 * multiple of 64 bytes (f32 only so far: one segment, full_bytes = total * 4). */
struct layout_unit {
	struct layout_param *params;
	uint32_t param_count;
	struct layout_segment *segments;
	uint32_t segment_count;
	uint64_t full_bytes;
};

int layout_unit_init(struct layout_unit *layout, const struct manifest_unit *unit); /* 0, -ENOMEM, FSDP_E_OVERFLOW */
void layout_unit_fini(struct layout_unit *layout);

#endif
