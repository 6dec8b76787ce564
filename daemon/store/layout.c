/*
 * The sharding rule, as arithmetic. Owns the arrays of a layout_unit and nothing else. Pure; any thread. It does not
 * know of arenas or of where a shard lies in memory: that is the plan's.
 */
#include "daemon/store/layout.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/math/dtype.h"
#include "fsdp/error.h"

#define LAYOUT_SEGMENT_ALIGN 64u
#define LAYOUT_SEGMENTS_MAX 16u /* there are fewer dtypes than that */

int layout_shard(uint64_t total, uint64_t element_bytes, uint32_t rank, uint32_t world_size, struct range *ret_range)
{
	if (world_size == 0 || rank >= world_size || element_bytes == 0) {
		return FSDP_E_INVALID;
	}
	if (total > (uint64_t)INT64_MAX / element_bytes) {
		return FSDP_E_OVERFLOW;
	}
	/* rank * share < total + world_size: below 2^63 + 2^32, so no product here can wrap. */
	uint64_t share = total / world_size + (total % world_size != 0);
	uint64_t begin = rank * share < total ? rank * share : total;
	uint64_t left = total - begin;
	*ret_range = (struct range){ .offset = begin, .count = left < share ? left : share };
	return 0;
}

static uint32_t layout_find_segment(struct layout_unit *layout, enum fsdp_dtype master)
{
	for (uint32_t i = 0; i < layout->segment_count; i++) {
		if (layout->segments[i].master == master) {
			return i;
		}
	}
	layout->segments[layout->segment_count] = (struct layout_segment){ .master = master };
	return layout->segment_count++;
}

static int layout_sum_bytes(struct layout_unit *layout)
{
	uint64_t end = 0;
	for (uint32_t i = 0; i < layout->segment_count; i++) {
		const struct layout_segment *segment = &layout->segments[i];
		uint64_t begin = (end + LAYOUT_SEGMENT_ALIGN - 1) / LAYOUT_SEGMENT_ALIGN * LAYOUT_SEGMENT_ALIGN;
		uint64_t bytes;
		if (__builtin_mul_overflow(segment->total, dtype_bytes(segment->master), &bytes) ||
		    __builtin_add_overflow(begin, bytes, &end) || end > (uint64_t)INT64_MAX) {
			return FSDP_E_OVERFLOW;
		}
	}
	layout->full_bytes = end;
	return 0;
}

int layout_unit_init(struct layout_unit *layout, const struct manifest_unit *unit)
{
	*layout = (struct layout_unit){ .param_count = unit->param_count };
	layout->params = calloc(unit->param_count ? unit->param_count : 1, sizeof(*layout->params));
	layout->segments = calloc(LAYOUT_SEGMENTS_MAX, sizeof(*layout->segments));
	int code = -ENOMEM;
	if (!layout->params || !layout->segments) {
		goto fail;
	}
	for (uint32_t i = 0; i < unit->param_count; i++) {
		const struct manifest_param *param = &unit->params[i];
		uint32_t s = layout_find_segment(layout, dtype_master(param->dtype));
		struct layout_segment *segment = &layout->segments[s];
		layout->params[i] = (struct layout_param){ .segment = s,
							   .offset = segment->total,
							   .count = manifest_param_count(param) };
		if (__builtin_add_overflow(segment->total, layout->params[i].count, &segment->total)) {
			code = FSDP_E_OVERFLOW;
			goto fail;
		}
	}
	code = layout_sum_bytes(layout);
	if (code < 0) {
		goto fail;
	}
	return 0;

fail:
	layout_unit_fini(layout);
	return code;
}

void layout_unit_fini(struct layout_unit *layout)
{
	free(layout->params);
	free(layout->segments);
	*layout = (struct layout_unit){ 0 };
}
