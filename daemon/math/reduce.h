/*
 * Sums of gradients, in an order that is part of the contract. Pure; any thread.
 *
 * No function here may be compiled with fused multiply-add or re-association: same inputs, same bits, however the
 * range was cut into pieces and on whichever instruction set.
 */
#ifndef FSDPD_MATH_REDUCE_H
#define FSDPD_MATH_REDUCE_H

#include "fsdp/dtype.h"
#include <stdbool.h>
#include <stddef.h>

#define REDUCE_SOURCES_MAX 8

enum reduce_finish {
	REDUCE_FINISH_NOT = 0, /* leave the sum as it is */
	REDUCE_FINISH_DIVIDE,  /* divide it by factor */
	REDUCE_FINISH_MULTIPLY /* multiply it by factor */
};

/*
 * sum[i] = (((sum[i] + sources[0][i]) + sources[1][i]) + ...), left to right; where fresh is true the sum starts from
 * sources[0] itself (a first contribution of -0.0 stays -0.0). Then finish with factor, once. count elements, f32;
 * sources may not overlap sum; 0 to REDUCE_SOURCES_MAX of them (0 sources with fresh gives zeros). Returns whether
 * every element of the result is finite, which is only looked at when finish is not REDUCE_FINISH_NOT (else true).
 */
bool reduce_add_f32(float *sum, const float *const *sources, size_t source_count, size_t count, bool fresh,
		    enum reduce_finish finish, float factor);

/* The same in f64. */
bool reduce_add_f64(double *sum, const double *const *sources, size_t source_count, size_t count, bool fresh,
		    enum reduce_finish finish, double factor);

/* One contribution. */
struct reduce_source {
	const void *data;      /* aligned to its elements */
	enum fsdp_dtype dtype; /* f32, bf16 or f16 into a sum of f32; f64 too into one of f64 */
	double weight;         /* finite, not negative; 0: as if it were not there, whatever it holds */
};

/*
 * The same for sources of any dtype, into a sum of f32 or f64 (sum_dtype). Each element is widened, which is exact,
 * and multiplied by the weight, where that is not 1, before it is added: both in the sum's dtype, to which weight and
 * factor are rounded once. The same bits at every cpu_level().
 */
bool reduce_add(void *sum, enum fsdp_dtype sum_dtype, const struct reduce_source *sources, size_t source_count,
		size_t count, bool fresh, enum reduce_finish finish, double factor);

#endif
