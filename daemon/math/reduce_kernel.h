/*
 * The sum for REAL: f32 or f64. One kernel, written once, is instantiated for every number of sources, start and
 * finish, so that each instance is a plain loop that the compiler vectorises: one pass over memory, the order of
 * additions fixed by the expression. reduce.c includes this file once for each type, with
 *
 *     REAL                  the type
 *     REAL_BITS             the unsigned integer of its size
 *     REAL_LEAST_EXPONENT   the lowest bit of its exponent
 *     KERNEL(name)          the name for that type
 *
 * The order within one element is left to right. Elements are independent, so neither the width of a vector nor where
 * a range was cut changes a bit.
 */

/* The top bit of what this gives is set for infinities and NaNs alone: adding one to an exponent of all ones carries
 * into it. Plain integer operations, which vectorise where a call of isfinite does not. */
static inline REAL_BITS KERNEL(reduce_not_finite)(REAL value)
{
	REAL_BITS bits;
	memcpy(&bits, &value, sizeof(bits));
	return (bits & ((REAL_BITS)-1 >> 1)) + REAL_LEAST_EXPONENT;
}

/* n, fresh and finish are constants in every call, so that nothing of the choice is left in the loop. */
static inline __attribute__((always_inline)) bool
KERNEL(reduce_kernel)(REAL *__restrict sum, const REAL *__restrict a, const REAL *__restrict b,
		      const REAL *__restrict c, const REAL *__restrict d, const REAL *__restrict e,
		      const REAL *__restrict f, const REAL *__restrict g, const REAL *__restrict h, size_t count,
		      REAL factor, size_t n, bool fresh, enum reduce_finish finish)
{
	REAL_BITS bad = 0;
	CPU_INDEPENDENT
	for (size_t i = 0; i < count; i++) {
		REAL x = fresh ? (n > 0 ? a[i] : 0) : (n > 0 ? sum[i] + a[i] : sum[i]);
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
			bad |= KERNEL(reduce_not_finite)(x);
		}
	}
	return bad >> (8 * sizeof(REAL_BITS) - 1) == 0;
}

typedef bool KERNEL(reduce_function)(REAL *sum, const REAL *const *s, size_t count, REAL factor);

#define REDUCE_NAME(n, fresh, finish) KERNEL(reduce_##n##_##fresh##_##finish)

#define REDUCE_INSTANCE(n, fresh, finish)                                                                           \
	static bool REDUCE_NAME(n, fresh, finish)(REAL * sum, const REAL *const *s, size_t count, REAL factor)      \
	{                                                                                                           \
		return KERNEL(reduce_kernel)(sum, s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], count, factor, n, \
					     fresh, (enum reduce_finish)finish);                                    \
	}

#define REDUCE_INSTANCES(n)      \
	REDUCE_INSTANCE(n, 0, 0) \
	REDUCE_INSTANCE(n, 0, 1) \
	REDUCE_INSTANCE(n, 0, 2) \
	REDUCE_INSTANCE(n, 1, 0) \
	REDUCE_INSTANCE(n, 1, 1) \
	REDUCE_INSTANCE(n, 1, 2)

#define REDUCE_ROW(n)                                                                    \
	{                                                                                \
		{ REDUCE_NAME(n, 0, 0), REDUCE_NAME(n, 0, 1), REDUCE_NAME(n, 0, 2) },    \
		{                                                                        \
			REDUCE_NAME(n, 1, 0), REDUCE_NAME(n, 1, 1), REDUCE_NAME(n, 1, 2) \
		}                                                                        \
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
static KERNEL(reduce_function) *const KERNEL(reduce_functions)[REDUCE_SOURCES_MAX + 1][2][3] = {
	REDUCE_ROW(0), REDUCE_ROW(1), REDUCE_ROW(2), REDUCE_ROW(3), REDUCE_ROW(4),
	REDUCE_ROW(5), REDUCE_ROW(6), REDUCE_ROW(7), REDUCE_ROW(8),
};

bool KERNEL(reduce_add)(REAL *sum, const REAL *const *sources, size_t source_count, size_t count, bool fresh,
			enum reduce_finish finish, REAL factor)
{
	assert(source_count <= REDUCE_SOURCES_MAX);
	assert(finish == REDUCE_FINISH_NOT || finish == REDUCE_FINISH_DIVIDE || finish == REDUCE_FINISH_MULTIPLY);
	if (count == 0) {
		return true;
	}
	const REAL *padded[REDUCE_SOURCES_MAX] = { NULL };
	for (size_t k = 0; k < source_count; k++) {
		padded[k] = sources[k];
	}
	return KERNEL(reduce_functions)[source_count][fresh][finish](sum, padded, count, factor);
}

#undef REDUCE_NAME
#undef REDUCE_INSTANCE
#undef REDUCE_INSTANCES
#undef REDUCE_ROW
#undef REAL
#undef REAL_BITS
#undef REAL_LEAST_EXPONENT
#undef KERNEL
