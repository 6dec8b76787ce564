/*
 * Sums. One kernel, written once, is instantiated for every number of sources, start and finish, so that each
 * instance is a plain loop that the compiler vectorises: one pass over memory, the order of additions fixed by the
 * expression. Pure; any thread.
 *
 * The order within one element is left to right. Elements are independent, so neither the width of a vector nor where
 * a range was cut changes a bit.
 */
#include "daemon/math/reduce.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

/* The top bit of what this gives is set for infinities and NaNs alone: adding one to an exponent of all ones carries
 * into it. Plain integer operations, which vectorise where a call of isfinite does not. */
static inline uint32_t reduce_not_finite(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	return (bits & 0x7fffffffu) + 0x00800000u;
}

/* n, fresh and finish are constants in every call, so that nothing of the choice is left in the loop. */
static inline __attribute__((always_inline)) bool reduce_kernel(float *__restrict sum, const float *__restrict a,
								const float *__restrict b, const float *__restrict c,
								const float *__restrict d, const float *__restrict e,
								const float *__restrict f, const float *__restrict g,
								const float *__restrict h, size_t count, float factor,
								size_t n, bool fresh, enum reduce_finish finish)
{
	uint32_t bad = 0;
#pragma GCC ivdep
	for (size_t i = 0; i < count; i++) {
		float x = fresh ? (n > 0 ? a[i] : 0.0f) : (n > 0 ? sum[i] + a[i] : sum[i]);
		x = n > 1 ? x + b[i] : x;
		x = n > 2 ? x + c[i] : x;
		x = n > 3 ? x + d[i] : x;
		x = n > 4 ? x + e[i] : x;
		x = n > 5 ? x + f[i] : x;
		x = n > 6 ? x + g[i] : x;
		x = n > 7 ? x + h[i] : x;
		x = finish == REDUCE_FINISH_DIVIDE ? x / factor : x;
		x = finish == REDUCE_FINISH_MULTIPLY ? x * factor : x;
		sum[i] = x;
		if (finish != REDUCE_FINISH_NOT) {
			bad |= reduce_not_finite(x);
		}
	}
	return bad >> 31 == 0;
}

typedef bool reduce_function(float *sum, const float *const *s, size_t count, float factor);

#define REDUCE_INSTANCE(n, fresh, finish)                                                                          \
	static bool reduce_##n##_##fresh##_##finish(float *sum, const float *const *s, size_t count, float factor) \
	{                                                                                                          \
		return reduce_kernel(sum, s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], count, factor, n, fresh, \
				     (enum reduce_finish)finish);                                                  \
	}

#define REDUCE_INSTANCES(n)      \
	REDUCE_INSTANCE(n, 0, 0) \
	REDUCE_INSTANCE(n, 0, 1) \
	REDUCE_INSTANCE(n, 0, 2) \
	REDUCE_INSTANCE(n, 1, 0) \
	REDUCE_INSTANCE(n, 1, 1) \
	REDUCE_INSTANCE(n, 1, 2)

#define REDUCE_ROW(n)                                                        \
	{                                                                    \
		{ reduce_##n##_0_0, reduce_##n##_0_1, reduce_##n##_0_2 },    \
		{                                                            \
			reduce_##n##_1_0, reduce_##n##_1_1, reduce_##n##_1_2 \
		}                                                            \
	}

REDUCE_INSTANCES(0)
REDUCE_INSTANCES(1)
REDUCE_INSTANCES(2)
REDUCE_INSTANCES(3)
REDUCE_INSTANCES(4)
REDUCE_INSTANCES(5)
REDUCE_INSTANCES(6)
REDUCE_INSTANCES(7)
REDUCE_INSTANCES(8)

/* [sources][fresh][finish] */
static reduce_function *const reduce_functions[REDUCE_SOURCES_MAX + 1][2][3] = {
	REDUCE_ROW(0), REDUCE_ROW(1), REDUCE_ROW(2), REDUCE_ROW(3), REDUCE_ROW(4),
	REDUCE_ROW(5), REDUCE_ROW(6), REDUCE_ROW(7), REDUCE_ROW(8),
};

_Static_assert(REDUCE_FINISH_NOT == 0 && REDUCE_FINISH_DIVIDE == 1 && REDUCE_FINISH_MULTIPLY == 2,
	       "columns of the table");

bool reduce_add_f32(float *sum, const float *const *sources, size_t source_count, size_t count, bool fresh,
		    enum reduce_finish finish, float factor)
{
	assert(source_count <= REDUCE_SOURCES_MAX);
	assert(finish == REDUCE_FINISH_NOT || finish == REDUCE_FINISH_DIVIDE || finish == REDUCE_FINISH_MULTIPLY);
	if (count == 0) {
		return true;
	}
	const float *padded[REDUCE_SOURCES_MAX] = { NULL };
	for (size_t k = 0; k < source_count; k++) {
		padded[k] = sources[k];
	}
	return reduce_functions[source_count][fresh][finish](sum, padded, count, factor);
}
