/*
 * Sums of sources of any dtype, with weights, against an oracle of a few lines that adds one element at a time and
 * knows what a pattern of 16 bits means by itself.
 */
#include "daemon/math/reduce.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/math/cpu.h"

#define LENGTH_MAX 3000
#define SHIFT_MAX 17 /* elements by which a source or a sum is moved from a round address */

static uint64_t dice_state;

static uint64_t dice(uint64_t sides)
{
	dice_state ^= dice_state << 13;
	dice_state ^= dice_state >> 7;
	dice_state ^= dice_state << 17;
	return dice_state % sides;
}

static double value_of_16(uint16_t pattern, int mantissa_bits, int bias)
{
	int exponent = (pattern & 0x7fff) >> mantissa_bits, mantissa = pattern & ((1 << mantissa_bits) - 1);
	double sign = pattern & 0x8000 ? -1 : 1;
	if (exponent == 0x7fff >> mantissa_bits) {
		return mantissa ? (double)NAN : sign * (double)INFINITY;
	}
	return sign * (exponent ? ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits)
				: ldexp(mantissa, 1 - bias - mantissa_bits));
}

static double element_of(const struct reduce_source *source, size_t i)
{
	switch (source->dtype) {
	case FSDP_F64:
		return ((const double *)source->data)[i];
	case FSDP_F32:
		return (double)((const float *)source->data)[i];
	case FSDP_BF16:
		return value_of_16(((const uint16_t *)source->data)[i], 7, 127);
	case FSDP_F16:
		return value_of_16(((const uint16_t *)source->data)[i], 10, 15);
	default:
		abort();
	}
}

static float oracle_f32(float start, const struct reduce_source *sources, size_t n, size_t i, bool fresh,
			enum reduce_finish finish, float factor)
{
	volatile float sum = fresh ? 0 : start;
	for (size_t k = 0; k < n; k++) {
		if (sources[k].weight == 0) {
			continue;
		}
		volatile float term = (float)sources[k].weight * (float)element_of(&sources[k], i);
		sum = fresh ? term : sum + term;
		fresh = false;
	}
	return finish == REDUCE_FINISH_DIVIDE ? sum / factor : finish == REDUCE_FINISH_MULTIPLY ? sum * factor : sum;
}

static double oracle_f64(double start, const struct reduce_source *sources, size_t n, size_t i, bool fresh,
			 enum reduce_finish finish, double factor)
{
	volatile double sum = fresh ? 0 : start;
	for (size_t k = 0; k < n; k++) {
		if (sources[k].weight == 0) {
			continue;
		}
		volatile double term = sources[k].weight * element_of(&sources[k], i);
		sum = fresh ? term : sum + term;
		fresh = false;
	}
	return finish == REDUCE_FINISH_DIVIDE ? sum / factor : finish == REDUCE_FINISH_MULTIPLY ? sum * factor : sum;
}

/* NaNs are equal whatever their payload; zeros are not whatever their sign. */
static bool same(double a, double b)
{
	return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof(a)) == 0;
}

static uint64_t pool[REDUCE_SOURCES_MAX][LENGTH_MAX + SHIFT_MAX];

/* Any bits at all in some rounds, and in the others values near 1, so that not every sum is lost in one large term. */
static void make_source(struct reduce_source *source, size_t k, enum fsdp_dtype dtype, size_t count, bool wild)
{
	static const double weights[] = { 1, 1, 0, 0.5, 3, 0.1, 1e-3, 17.25 };
	size_t shift = dice(SHIFT_MAX);
	source->dtype = dtype;
	source->weight = weights[dice(8)];
	for (size_t i = 0; i < count; i++) {
		uint64_t bits = dice(UINT64_MAX);
		if (dtype == FSDP_F64) {
			double value = ldexp((double)(int64_t)bits, (int)dice(8) - 63);
			memcpy((double *)pool[k] + shift + i, wild ? (void *)&bits : (void *)&value, 8);
		} else if (dtype == FSDP_F32) {
			float value = ldexpf((float)(int32_t)bits, (int)dice(8) - 31);
			memcpy((float *)(void *)pool[k] + shift + i, wild ? (void *)&bits : (void *)&value, 4);
		} else {
			uint16_t tame = (uint16_t)((bits & 0x83ff) | (dtype == FSDP_F16 ? 0x3c00 : 0x3f80));
			((uint16_t *)(void *)pool[k])[shift + i] = wild ? (uint16_t)bits : tame;
		}
	}
	size_t bytes = dtype == FSDP_F64 ? 8 : dtype == FSDP_F32 ? 4 : 2;
	source->data = (const char *)(const void *)pool[k] + shift * bytes;
}

/* Adds in pieces cut anywhere, one call or several for the sources too. */
static bool add_cut(void *sum, enum fsdp_dtype sum_dtype, const struct reduce_source *sources, size_t n, size_t count,
		    bool fresh, enum reduce_finish finish, double factor)
{
	size_t sum_bytes = sum_dtype == FSDP_F64 ? 8 : 4;
	bool finite = true;
	for (size_t from = 0; from < count;) {
		size_t part = 1 + dice(count - from);
		struct reduce_source moved[REDUCE_SOURCES_MAX];
		for (size_t k = 0; k < n; k++) {
			size_t bytes = sources[k].dtype == FSDP_F64 ? 8 : sources[k].dtype == FSDP_F32 ? 4 : 2;
			moved[k] = sources[k];
			moved[k].data = (const char *)sources[k].data + from * bytes;
		}
		finite &= reduce_add((char *)sum + from * sum_bytes, sum_dtype, moved, n, part, fresh, finish, factor);
		from += part;
	}
	return finite;
}

static void check(uint64_t seed, enum fsdp_dtype sum_dtype)
{
	static double start[LENGTH_MAX + SHIFT_MAX], whole[LENGTH_MAX + SHIFT_MAX], cut[LENGTH_MAX + SHIFT_MAX];
	static const enum fsdp_dtype dtypes[] = { FSDP_F32, FSDP_BF16, FSDP_F16, FSDP_F64 };
	dice_state = seed * 0x9e3779b97f4a7c15u + 1;
	size_t count = dice(4) ? dice(80) : dice(LENGTH_MAX), n = dice(REDUCE_SOURCES_MAX + 1), shift = dice(SHIFT_MAX);
	bool wild = dice(4) == 0, fresh = dice(2), finite = true;
	enum reduce_finish finish = (enum reduce_finish)dice(3);
	double factor = (double[]){ 1, 3, 7.7, 1024 }[dice(4)];
	struct reduce_source sources[REDUCE_SOURCES_MAX];
	for (size_t k = 0; k < n; k++) {
		make_source(&sources[k], k, dtypes[dice(sum_dtype == FSDP_F64 ? 4 : 3)], count, wild);
	}
	for (size_t i = 0; i < LENGTH_MAX + SHIFT_MAX; i++) {
		start[i] = ldexp((double)(int64_t)dice(UINT64_MAX), -60);
		if (sum_dtype == FSDP_F32) {
			float value = (float)start[i];
			memcpy((float *)(void *)start + i, &value, sizeof(value));
		}
	}
	memcpy(whole, start, sizeof(whole));
	memcpy(cut, start, sizeof(cut));
	size_t bytes = sum_dtype == FSDP_F64 ? 8 : 4;
	bool good = reduce_add((char *)whole + shift * bytes, sum_dtype, sources, n, count, fresh, finish, factor);
	bool good_cut = add_cut((char *)cut + shift * bytes, sum_dtype, sources, n, count, fresh, finish, factor);
	for (size_t i = 0; i < count; i++) {
		size_t at = shift + i;
		double want, got, got_cut;
		if (sum_dtype == FSDP_F64) {
			want = oracle_f64(start[at], sources, n, i, fresh, finish, factor);
			got = whole[at];
			got_cut = cut[at];
		} else {
			want = (double)oracle_f32(((float *)(void *)start)[at], sources, n, i, fresh, finish,
						  (float)factor);
			got = (double)((float *)(void *)whole)[at];
			got_cut = (double)((float *)(void *)cut)[at];
		}
		finite = finite && (finish == REDUCE_FINISH_NOT || isfinite(want));
		cr_assert(same(got, want), "seed %lu, element %zu: %a, not %a", seed, i, got, want);
		cr_assert(same(got_cut, want), "seed %lu, element %zu, cut: %a, not %a", seed, i, got_cut, want);
	}
	cr_assert_eq(good, finite, "seed %lu", seed);
	cr_assert_eq(good_cut, finite, "seed %lu", seed);
	/* Nothing before or behind the range is touched. */
	cr_assert_arr_eq(whole, start, shift * bytes);
	cr_assert_arr_eq((char *)whole + (shift + count) * bytes, (char *)start + (shift + count) * bytes,
			 (LENGTH_MAX - count) * bytes);
}

static void check_every_level(enum fsdp_dtype sum_dtype)
{
	for (int level = CPU_PLAIN; level < CPU_LEVELS; level++) {
		for (uint64_t seed = 1; seed <= 600 && cpu_force((enum cpu_level)level); seed++) {
			check(seed, sum_dtype);
		}
	}
}

Test(reduce_any, into_f32_is_the_serial_sum_at_every_level)
{
	check_every_level(FSDP_F32);
}

Test(reduce_any, into_f64_is_the_serial_sum_at_every_level)
{
	check_every_level(FSDP_F64);
}

/* One element, the same dtype and weight for all contributions, as many at a time as a call takes. */
static float sum_of(enum fsdp_dtype dtype, const void *values, size_t count, enum reduce_finish finish, double factor)
{
	float sum = 99;
	size_t bytes = dtype == FSDP_F32 ? 4 : 2;
	for (size_t from = 0; from < count; from += REDUCE_SOURCES_MAX) {
		size_t n = count - from < REDUCE_SOURCES_MAX ? count - from : REDUCE_SOURCES_MAX;
		struct reduce_source sources[REDUCE_SOURCES_MAX];
		for (size_t k = 0; k < n; k++) {
			sources[k] = (struct reduce_source){ (const char *)values + (from + k) * bytes, dtype, 1 };
		}
		cr_assert(reduce_add(&sum, FSDP_F32, sources, n, 1, from == 0,
				     from + n == count ? finish : REDUCE_FINISH_NOT, factor));
	}
	return sum;
}

Test(reduce_any, gives_the_known_answers)
{
	static uint16_t many[1024];
	const uint16_t bf16[4] = { 0x4380, 0x3f80, 0x3f80, 0x3f80 }; /* 256, 1, 1, 1 */
	cr_assert_eq(sum_of(FSDP_BF16, bf16, 4, REDUCE_FINISH_DIVIDE, 4), 64.75f);
	/* Two nodes of two workers: what crosses is f32. */
	const float nodes[2] = { sum_of(FSDP_BF16, bf16, 2, REDUCE_FINISH_NOT, 0),
				 sum_of(FSDP_BF16, bf16 + 2, 2, REDUCE_FINISH_NOT, 0) };
	cr_assert_eq(sum_of(FSDP_F32, nodes, 2, REDUCE_FINISH_DIVIDE, 4), 64.75f);
	const uint16_t f16[4] = { 0x7753, 0x7753, 0x7753, 0x7753 }; /* 30000 */
	cr_assert_eq(sum_of(FSDP_F16, f16, 4, REDUCE_FINISH_DIVIDE, 4), 30000.0f);
	cr_assert_eq(sum_of(FSDP_F16, f16, 3, REDUCE_FINISH_DIVIDE, 3), 30000.0f);
	const float wide[4] = { 1e8f, 1, -1e8f, 1 };
	cr_assert_eq(sum_of(FSDP_F32, wide, 4, REDUCE_FINISH_NOT, 0), 1.0f);
	for (size_t i = 0; i < 1024; i++) {
		many[i] = 0x3f80;
	}
	cr_assert_eq(sum_of(FSDP_BF16, many, 1024, REDUCE_FINISH_NOT, 0), 1024.0f);
	for (size_t i = 0; i < 64; i++) {
		many[i] = 0x3dcd; /* 0.1 in bf16 */
	}
	cr_assert_eq(sum_of(FSDP_BF16, many, 64, REDUCE_FINISH_DIVIDE, 64), 0.10009765625f);
	for (size_t i = 0; i < 8; i++) {
		many[i] = 1; /* 2^-24 in f16 */
	}
	cr_assert_eq(sum_of(FSDP_F16, many, 8, REDUCE_FINISH_DIVIDE, 8), 0x1p-24f);
}

Test(reduce_any, a_weight_is_multiplied_and_rounded_before_it_is_added)
{
	/* 0.1f * 3 is rounded in f32; fused, the first and the last would not cancel. */
	const float values[2] = { 0.1f, -1 };
	volatile float product = 3.0f * values[0];
	const float minus = -product;
	const struct reduce_source sources[] = { { &minus, FSDP_F32, 1 }, { &values[0], FSDP_F32, 3 } };
	float sum;
	cr_assert_neq(fmaf(3, values[0], minus), 0.0f);
	cr_assert(reduce_add(&sum, FSDP_F32, sources, 2, 1, true, REDUCE_FINISH_NOT, 0));
	cr_assert_eq(sum, 0.0f);
	/* An uneven last batch: three samples of 2 and one of 6 have the mean 3. */
	const float batches[2] = { 2, 6 };
	const struct reduce_source uneven[] = { { &batches[0], FSDP_F32, 3 }, { &batches[1], FSDP_F32, 1 } };
	cr_assert(reduce_add(&sum, FSDP_F32, uneven, 2, 1, true, REDUCE_FINISH_DIVIDE, 4));
	cr_assert_eq(sum, 3.0f);
}

Test(reduce_any, a_weight_of_zero_is_as_if_nothing_were_there)
{
	const float bad = NAN, minus_zero = -0.0f;
	const struct reduce_source sources[] = { { &bad, FSDP_F32, 0 }, { &minus_zero, FSDP_F32, 1 } };
	float sum = 5;
	cr_assert(reduce_add(&sum, FSDP_F32, sources, 2, 1, true, REDUCE_FINISH_DIVIDE, 1));
	cr_assert(sum == 0 && signbit(sum)); /* it starts from the first that is there */
	cr_assert(reduce_add(&sum, FSDP_F32, sources, 1, 1, false, REDUCE_FINISH_DIVIDE, 1));
	cr_assert(sum == 0 && signbit(sum));
}
