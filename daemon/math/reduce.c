/*
 * Sums: the kernels for f32 and f64, and what brings sources of other dtypes and weights to them. Those are widened and
 * multiplied a piece at a time, into a buffer on the stack that stays in the first cache, and added from there by the
 * same kernels: so there is one order, and one place that has it. Pure; any thread.
 *
 * The kernels have no variants for wider vectors: sources come from memory, which is as fast as the narrow ones.
 */
#include "daemon/math/reduce.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "daemon/math/convert.h"
#include "daemon/math/cpu.h"

_Static_assert(REDUCE_FINISH_NOT == 0 && REDUCE_FINISH_DIVIDE == 1 && REDUCE_FINISH_MULTIPLY == 2,
	       "columns of the table");

#define REAL float
#define REAL_BITS uint32_t
#define REAL_LEAST_EXPONENT 0x00800000u
#define KERNEL(name) name##_f32
#include "daemon/math/reduce_kernel.h"

#define REAL double
#define REAL_BITS uint64_t
#define REAL_LEAST_EXPONENT UINT64_C(0x0010000000000000)
#define KERNEL(name) name##_f64
#include "daemon/math/reduce_kernel.h"

/* ---- Sources of any dtype, with weights ---- */

#define REDUCE_PIECE_BYTES 2048 /* of one source; REDUCE_SOURCES_MAX of them fit into the first cache */

static size_t reduce_bytes(enum fsdp_dtype dtype)
{
	return dtype == FSDP_F64 ? 8 : dtype == FSDP_F32 ? 4 : 2;
}

/* Where piece begins in a source that is added as it is; else NULL. */
static const void *reduce_as_it_is(const struct reduce_source *source, enum fsdp_dtype sum_dtype, size_t from)
{
	bool same = source->dtype == sum_dtype && source->weight == 1;
	return same ? (const char *)source->data + from * reduce_bytes(source->dtype) : NULL;
}

static void reduce_prepare_f32(float *piece, const struct reduce_source *source, size_t from, size_t count)
{
	const float weight = (float)source->weight;
	const float *values = piece;
	if (source->dtype == FSDP_F32) {
		values = (const float *)source->data + from;
	} else {
		convert_range(piece, FSDP_F32, (const char *)source->data + from * reduce_bytes(source->dtype),
			      source->dtype, count);
	}
	if (source->weight == 1) {
		return;
	}
	CPU_INDEPENDENT
	for (size_t i = 0; i < count; i++) {
		piece[i] = weight * values[i];
	}
}

static void reduce_prepare_f64(double *piece, const struct reduce_source *source, size_t from, size_t count)
{
	const double weight = source->weight;
	const double *values = piece;
	if (source->dtype == FSDP_F64) {
		values = (const double *)source->data + from;
	} else {
		convert_range(piece, FSDP_F64, (const char *)source->data + from * reduce_bytes(source->dtype),
			      source->dtype, count);
	}
	if (source->weight == 1) {
		return;
	}
	CPU_INDEPENDENT
	for (size_t i = 0; i < count; i++) {
		piece[i] = weight * values[i];
	}
}

static bool reduce_add_piece_f32(float *sum, const struct reduce_source *const *sources, size_t source_count,
				 size_t from, size_t count, bool fresh, enum reduce_finish finish, float factor)
{
	float pieces[REDUCE_SOURCES_MAX][REDUCE_PIECE_BYTES / sizeof(float)];
	const float *ready[REDUCE_SOURCES_MAX];
	for (size_t k = 0; k < source_count; k++) {
		ready[k] = reduce_as_it_is(sources[k], FSDP_F32, from);
		if (!ready[k]) {
			reduce_prepare_f32(pieces[k], sources[k], from, count);
			ready[k] = pieces[k];
		}
	}
	return reduce_add_f32(sum + from, ready, source_count, count, fresh, finish, factor);
}

static bool reduce_add_piece_f64(double *sum, const struct reduce_source *const *sources, size_t source_count,
				 size_t from, size_t count, bool fresh, enum reduce_finish finish, double factor)
{
	double pieces[REDUCE_SOURCES_MAX][REDUCE_PIECE_BYTES / sizeof(double)];
	const double *ready[REDUCE_SOURCES_MAX];
	for (size_t k = 0; k < source_count; k++) {
		ready[k] = reduce_as_it_is(sources[k], FSDP_F64, from);
		if (!ready[k]) {
			reduce_prepare_f64(pieces[k], sources[k], from, count);
			ready[k] = pieces[k];
		}
	}
	return reduce_add_f64(sum + from, ready, source_count, count, fresh, finish, factor);
}

bool reduce_add(void *sum, enum fsdp_dtype sum_dtype, const struct reduce_source *sources, size_t source_count,
		size_t count, bool fresh, enum reduce_finish finish, double factor)
{
	assert(sum_dtype == FSDP_F32 || sum_dtype == FSDP_F64);
	assert(source_count <= REDUCE_SOURCES_MAX);
	const struct reduce_source *present[REDUCE_SOURCES_MAX];
	size_t n = 0;
	bool direct = true;
	for (size_t k = 0; k < source_count; k++) {
		const struct reduce_source *source = &sources[k];
		assert(convert_knows(source->dtype) && (sum_dtype == FSDP_F64 || source->dtype != FSDP_F64));
		assert(source->weight >= 0);
		if (source->weight > 0) {
			present[n++] = source;
			direct = direct && reduce_as_it_is(source, sum_dtype, 0);
		}
	}
	/* What needs no buffer is one piece. */
	size_t piece = direct ? count : REDUCE_PIECE_BYTES / reduce_bytes(sum_dtype);
	bool finite = true;
	for (size_t from = 0; from < count; from += piece) {
		size_t part = count - from < piece ? count - from : piece;
		bool good = sum_dtype == FSDP_F32
				    ? reduce_add_piece_f32(sum, present, n, from, part, fresh, finish, (float)factor)
				    : reduce_add_piece_f64(sum, present, n, from, part, fresh, finish, factor);
		finite = finite && good;
	}
	return finite;
}
