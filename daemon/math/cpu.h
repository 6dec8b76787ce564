/*
 * Which instruction set the arithmetic uses. The kernels of every level give the same bits; the level changes only how
 * fast they come. Any thread.
 */
#ifndef FSDPD_MATH_CPU_H
#define FSDPD_MATH_CPU_H

#include <stdbool.h>

enum cpu_level {
	CPU_PLAIN = 0, /* C, as the compiler was told to translate it */
	CPU_AVX2,      /* with F16C */
	CPU_AVX512     /* F, BW, DQ and VL */
};

#define CPU_LEVELS 3

enum cpu_level cpu_level(void); /* the best that this processor has, or the forced one */

/* For tests: every later call uses this level. False, and nothing changes, where the processor does not have it. */
bool cpu_force(enum cpu_level level);

#if defined(__x86_64__)
#define CPU_HAS_VARIANTS 1
#define CPU_TARGET_AVX2 __attribute__((target("avx2,f16c")))
#if defined(__clang__)
#define CPU_TARGET_AVX512 __attribute__((target("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define CPU_TARGET_AVX512 \
	__attribute__((target("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif
#else
#define CPU_HAS_VARIANTS 0
#define CPU_TARGET_AVX2
#define CPU_TARGET_AVX512
#endif

/* Before a loop whose turns do not depend on one another, which the compiler cannot see. Clang's word for it is an
 * order to vectorise, and a warning where the sanitizers forbid that. */
#if defined(__clang__)
#define CPU_INDEPENDENT
#else
#define CPU_INDEPENDENT _Pragma("GCC ivdep")
#endif

#endif
