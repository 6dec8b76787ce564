/*
 * Asks the processor once what it has. The answer lies in one atomic word: a race of first callers stores the same
 * value twice. Any thread.
 */
#include "daemon/math/cpu.h"

#include <stdatomic.h>
#if CPU_HAS_VARIANTS
#include <cpuid.h>
#endif

#define CPU_UNKNOWN (-1)

static _Atomic int cpu_chosen = CPU_UNKNOWN;

#if CPU_HAS_VARIANTS
/* Not every compiler's __builtin_cpu_supports knows it. */
static bool cpu_has_f16c(void)
{
	unsigned a, b, c, d;
	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

static enum cpu_level cpu_best(void)
{
#if CPU_HAS_VARIANTS
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("avx2") || !cpu_has_f16c()) {
		return CPU_PLAIN;
	}
	if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
	    !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
		return CPU_AVX2;
	}
	return CPU_AVX512;
#else
	return CPU_PLAIN;
#endif
}

enum cpu_level cpu_level(void)
{
	int level = atomic_load_explicit(&cpu_chosen, memory_order_relaxed);
	if (level == CPU_UNKNOWN) {
		level = (int)cpu_best();
		atomic_store_explicit(&cpu_chosen, level, memory_order_relaxed);
	}
	return (enum cpu_level)level;
}

bool cpu_force(enum cpu_level level)
{
	if (level > cpu_best()) {
		return false;
	}
	atomic_store_explicit(&cpu_chosen, (int)level, memory_order_relaxed);
	return true;
}
