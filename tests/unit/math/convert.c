/*
 * Conversions against an oracle that knows a dtype only as the sorted list of its values: the nearest one is looked up.
 * Every test runs at every level of this processor.
 */
#include "daemon/math/convert.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "daemon/math/cpu.h"

#define PATTERNS 65536u
#define POINTS 7 /* a value and its neighbours, the middle to the next value and its neighbours, its negative */

struct kind {
	enum fsdp_dtype dtype;
	int mantissa_bits, bias;
	uint16_t infinity;
};

static const struct kind kinds[] = { { FSDP_BF16, 7, 127, 0x7f80 }, { FSDP_F16, 10, 15, 0x7c00 } };

static uint32_t bits_of(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static float float_of(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint64_t bits_of_double(double value)
{
	uint64_t bits;
	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* What a pattern that is no NaN means. */
static double value_of(const struct kind *kind, uint32_t pattern)
{
	int exponent = (int)(pattern & 0x7fff) >> kind->mantissa_bits;
	int mantissa = (int)pattern & ((1 << kind->mantissa_bits) - 1);
	double magnitude =
		(pattern & 0x7fff) == kind->infinity ? INFINITY
		: exponent ? ldexp(mantissa + (1 << kind->mantissa_bits), exponent - kind->bias - kind->mantissa_bits)
			   : ldexp(mantissa, 1 - kind->bias - kind->mantissa_bits);
	return pattern & 0x8000 ? -magnitude : magnitude;
}

static bool is_nan(const struct kind *kind, uint32_t pattern)
{
	return (pattern & 0x7fff) > kind->infinity;
}

/* The pattern nearest to a number that is no NaN. */
static uint16_t nearest(const struct kind *kind, double value)
{
	double magnitude = fabs(value);
	uint32_t low = 0, high = kind->infinity; /* the value of low is at most magnitude, that of high more */
	while (high - low > 1) {
		uint32_t middle = (low + high) / 2;
		*(value_of(kind, middle) <= magnitude ? &low : &high) = middle;
	}
	double below = value_of(kind, low);
	/* As if the exponents went on: what infinity stands for is the next power of two. */
	double above = high == kind->infinity ? 2 * value_of(kind, (uint32_t)(high - (1u << kind->mantissa_bits)))
					      : value_of(kind, high);
	uint32_t result =
		magnitude - below < above - magnitude || (magnitude - below == above - magnitude && low % 2 == 0)
			? low
			: high;
	result = isinf(magnitude) ? kind->infinity : result;
	return (uint16_t)(result | (signbit(value) ? 0x8000u : 0));
}

/* Calls test for every level that this processor has, and sees to it that there is more than one where there can be. */
static void at_every_level(void (*test)(void))
{
	for (int level = CPU_PLAIN; level < CPU_LEVELS; level++) {
		if (cpu_force((enum cpu_level)level)) {
			cr_assert_eq(cpu_level(), (enum cpu_level)level);
			test();
		}
	}
}

static void widens_every_pattern(void)
{
	static uint16_t patterns[PATTERNS];
	static float narrow[PATTERNS];
	static double wide[PATTERNS];
	for (uint32_t p = 0; p < PATTERNS; p++) {
		patterns[p] = (uint16_t)p;
	}
	for (size_t k = 0; k < 2; k++) {
		convert_range(narrow, FSDP_F32, patterns, kinds[k].dtype, PATTERNS);
		convert_range(wide, FSDP_F64, patterns, kinds[k].dtype, PATTERNS);
		for (uint32_t p = 0; p < PATTERNS; p++) {
			if (is_nan(&kinds[k], p)) {
				cr_assert((bits_of(narrow[p]) & 0x7fc00000u) == 0x7fc00000u, "pattern %x", p);
				cr_assert(isnan(wide[p]) && bits_of_double(wide[p]) >> 51 & 1, "pattern %x", p);
				cr_assert_eq(bits_of(narrow[p]) >> 31, p >> 15);
				continue;
			}
			cr_assert_eq(bits_of_double((double)narrow[p]), bits_of_double(value_of(&kinds[k], p)),
				     "pattern %x of %zu", p, k);
			cr_assert_eq(bits_of_double(wide[p]), bits_of_double(value_of(&kinds[k], p)),
				     "pattern %x of %zu", p, k);
		}
	}
}

Test(convert, widens_every_pattern_of_16_bits_exactly)
{
	at_every_level(widens_every_pattern);
}

static void comes_back_from_f32_and_f64(void)
{
	static uint16_t patterns[PATTERNS], back[PATTERNS], back_wide[PATTERNS];
	static float narrow[PATTERNS];
	static double wide[PATTERNS];
	for (uint32_t p = 0; p < PATTERNS; p++) {
		patterns[p] = (uint16_t)p;
	}
	for (size_t k = 0; k < 2; k++) {
		uint32_t quiet = 1u << (kinds[k].mantissa_bits - 1);
		convert_range(narrow, FSDP_F32, patterns, kinds[k].dtype, PATTERNS);
		convert_range(back, kinds[k].dtype, narrow, FSDP_F32, PATTERNS);
		convert_range(wide, FSDP_F64, patterns, kinds[k].dtype, PATTERNS);
		convert_range(back_wide, kinds[k].dtype, wide, FSDP_F64, PATTERNS);
		for (uint32_t p = 0; p < PATTERNS; p++) {
			uint32_t want = is_nan(&kinds[k], p) ? p | quiet : p;
			cr_assert_eq(back[p], want, "pattern %x of %zu", p, k);
			cr_assert_eq(back_wide[p], want, "pattern %x of %zu by way of f64", p, k);
		}
	}
}

Test(convert, of_16_bits_to_f32_or_f64_and_back_is_nothing)
{
	at_every_level(comes_back_from_f32_and_f64);
}

/* Returns how many were written: values of f32 at and about each finite value of the kind and each middle. */
static size_t points_of(const struct kind *kind, float points[])
{
	size_t n = 0;
	for (uint32_t p = 0; p < kind->infinity; p++) {
		double here = value_of(kind, p);
		double next = p + 1u == kind->infinity ? here + (here - value_of(kind, p - 1)) : value_of(kind, p + 1);
		float value = (float)here, middle = (float)((here + next) / 2);
		const float some[POINTS] = { value,  nextafterf(value, INFINITY),  nextafterf(value, -INFINITY),
					     middle, nextafterf(middle, INFINITY), nextafterf(middle, -INFINITY),
					     -middle };
		memcpy(points + n, some, sizeof(some));
		n += POINTS;
	}
	return n;
}

static void rounds_f32_to_nearest(void)
{
	static float points[PATTERNS / 2 * POINTS];
	static uint16_t halves[PATTERNS / 2 * POINTS];
	for (size_t k = 0; k < 2; k++) {
		size_t count = points_of(&kinds[k], points);
		convert_range(halves, kinds[k].dtype, points, FSDP_F32, count);
		for (size_t i = 0; i < count; i++) {
			cr_assert_eq(halves[i], nearest(&kinds[k], (double)points[i]), "%a gave %x", (double)points[i],
				     halves[i]);
		}
		for (size_t i = 0; i < count; i++) {
			points[i] = -points[i];
		}
		convert_range(halves, kinds[k].dtype, points, FSDP_F32, count);
		for (size_t i = 0; i < count; i++) {
			cr_assert_eq(halves[i], nearest(&kinds[k], (double)points[i]), "%a gave %x", (double)points[i],
				     halves[i]);
		}
	}
}

Test(convert, of_f32_to_16_bits_rounds_to_nearest_even_at_every_value_and_every_middle)
{
	at_every_level(rounds_f32_to_nearest);
}

/* A middle moved by one unit of an f64 is not a middle: rounding by way of f32 would make it one. */
Test(convert, of_f64_to_16_bits_rounds_once)
{
	static float points[PATTERNS / 2 * POINTS];
	static double wide[PATTERNS / 2 * POINTS * 3];
	static uint16_t halves[PATTERNS / 2 * POINTS * 3];
	for (size_t k = 0; k < 2; k++) {
		size_t count = points_of(&kinds[k], points);
		for (size_t i = 0; i < count; i++) {
			double value = (double)points[i];
			wide[3 * i] = value;
			wide[3 * i + 1] = nextafter(value, (double)INFINITY);
			wide[3 * i + 2] = nextafter(value, (double)-INFINITY);
		}
		convert_range(halves, kinds[k].dtype, wide, FSDP_F64, 3 * count);
		for (size_t i = 0; i < 3 * count; i++) {
			cr_assert_eq(halves[i], nearest(&kinds[k], wide[i]), "%a gave %x", wide[i], halves[i]);
		}
	}
	const double far[4] = { 1e300, -1e300, 5e-324, -5e-324 };
	convert_range(halves, FSDP_BF16, far, FSDP_F64, 4);
	cr_assert(halves[0] == 0x7f80 && halves[1] == 0xff80 && halves[2] == 0 && halves[3] == 0x8000);
}

static void keeps_what_is_special(void)
{
	/* Long enough that a vector and a rest see each of them. */
	static const struct {
		uint32_t f32;
		uint16_t bf16, f16;
	} rows[] = {
		{ 0x7f800000, 0x7f80, 0x7c00 }, { 0xff800000, 0xff80, 0xfc00 }, /* infinities */
		{ 0x7f800001, 0x7fc0, 0x7e00 }, { 0xff800001, 0xffc0, 0xfe00 }, /* signalling, payload at the bottom */
		{ 0x7fffffff, 0x7fff, 0x7fff }, { 0xffc00000, 0xffc0, 0xfe00 }, { 0x7fa00000, 0x7fe0, 0x7f00 },
		{ 0x00000000, 0x0000, 0x0000 }, { 0x80000000, 0x8000, 0x8000 }, { 0x00000001, 0x0000, 0x0000 },
		{ 0x7f7fffff, 0x7f80, 0x7c00 }, { 0x00400000, 0x0040, 0x0000 }, { 0x33800000, 0x3380, 0x0001 },
		{ 0x477fefff, 0x4780, 0x7bff }, { 0x477ff000, 0x4780, 0x7c00 }, /* 65519.996, 65520 */
	};
	enum { ROWS = sizeof(rows) / sizeof(rows[0]), REPEAT = 37 };
	float from[ROWS * REPEAT];
	uint16_t bf16[ROWS * REPEAT], f16[ROWS * REPEAT];
	for (size_t i = 0; i < ROWS * REPEAT; i++) {
		from[i] = float_of(rows[i % ROWS].f32);
	}
	convert_range(bf16, FSDP_BF16, from, FSDP_F32, ROWS * REPEAT);
	convert_range(f16, FSDP_F16, from, FSDP_F32, ROWS * REPEAT);
	for (size_t i = 0; i < ROWS * REPEAT; i++) {
		cr_assert_eq(bf16[i], rows[i % ROWS].bf16, "%x gave %x", rows[i % ROWS].f32, bf16[i]);
		cr_assert_eq(f16[i], rows[i % ROWS].f16, "%x gave %x", rows[i % ROWS].f32, f16[i]);
	}
}

Test(convert, keeps_infinities_zeros_and_nans)
{
	at_every_level(keeps_what_is_special);
}

/* Every level against the plain one: any bits at all, any length, any alignment; nothing beyond the range is
 * written. */
Test(convert, gives_the_same_bits_at_every_level)
{
	enum { LENGTH = 1 << 16, GUARD = 64 };
	static uint64_t random_bits[LENGTH];
	static unsigned char plain[LENGTH * 8 + GUARD], other[LENGTH * 8 + GUARD];
	uint64_t state = 88172645463325252u;
	for (size_t i = 0; i < LENGTH; i++) {
		state ^= state << 13, state ^= state >> 7, state ^= state << 17;
		random_bits[i] = state;
	}
	for (uint32_t from = FSDP_F32; from <= FSDP_F16; from++) {
		size_t from_bytes = from == FSDP_F64 ? 8 : from == FSDP_F32 ? 4 : 2;
		for (uint32_t to = FSDP_F32; to <= FSDP_F16; to++) {
			size_t to_bytes = to == FSDP_F64 ? 8 : to == FSDP_F32 ? 4 : 2;
			for (size_t round = 0; round < 80; round++) {
				size_t count = round ? random_bits[round] % 70 : LENGTH - 64;
				size_t shift = random_bits[round + 100] % 32;
				const unsigned char *data = (const unsigned char *)random_bits + shift * from_bytes;
				memset(plain, 0xa5, sizeof(plain));
				cr_assert(cpu_force(CPU_PLAIN));
				convert_range(plain + shift % 5 * to_bytes, (enum fsdp_dtype)to, data,
					      (enum fsdp_dtype)from, count);
				for (int level = CPU_AVX2; level < CPU_LEVELS && cpu_force((enum cpu_level)level);
				     level++) {
					memset(other, 0xa5, sizeof(other));
					convert_range(other + shift % 5 * to_bytes, (enum fsdp_dtype)to, data,
						      (enum fsdp_dtype)from, count);
					cr_assert_arr_eq(plain, other, sizeof(plain), "from %u to %u, round %zu", from,
							 to, round);
				}
			}
		}
	}
}

Test(convert, between_f32_and_f64_is_what_the_language_does)
{
	enum { LENGTH = 1 << 16 };
	static float narrow[LENGTH], narrow_back[LENGTH];
	static double wide[LENGTH], wider[LENGTH];
	uint64_t state = 42;
	for (size_t i = 0; i < LENGTH; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		narrow[i] = float_of((uint32_t)(state >> 32) & (i % 8 ? 0xffffffffu : 0x807fffffu)); /* denormals too */
		/* About f32's range, its denormals and both ends. */
		wide[i] = ldexp((double)(int64_t)state, (int)(state >> 20 & 0x1ff) - 63 - 256);
	}
	convert_range(wider, FSDP_F64, narrow, FSDP_F32, LENGTH);
	convert_range(narrow_back, FSDP_F32, wide, FSDP_F64, LENGTH);
	for (size_t i = 0; i < LENGTH; i++) {
		cr_assert_eq(bits_of_double(wider[i]), bits_of_double((double)narrow[i]), "%a", (double)narrow[i]);
		cr_assert_eq(bits_of(narrow_back[i]), bits_of((float)wide[i]), "%a", wide[i]);
	}
	const double special[] = { NAN, -INFINITY, 1e300, -0.0, 5e-324, 0x1.ffffffp127, 0x1.fffffefffffffp127 };
	convert_range(narrow, FSDP_F32, special, FSDP_F64, 7);
	for (size_t i = 0; i < 7; i++) {
		cr_assert_eq(bits_of(narrow[i]), bits_of((float)special[i]), "%a", special[i]);
	}
}

Test(convert, between_the_two_kinds_of_16_bits_goes_by_way_of_f32)
{
	static uint16_t from[1300], to[1300];
	for (size_t i = 0; i < 1300; i++) {
		from[i] = (uint16_t)(0x3f80 + i % 7); /* bf16 1, 1 + 1/128, ... */
	}
	convert_range(to, FSDP_F16, from, FSDP_BF16, 1300);
	for (size_t i = 0; i < 1300; i++) {
		cr_assert_eq(to[i], 0x3c00 + i % 7 * 8);
	}
	convert_range(from, FSDP_F16, to, FSDP_F16, 1300);
	cr_assert_arr_eq(from, to, sizeof(from));
	convert_range(NULL, FSDP_F16, NULL, FSDP_F32, 0);
}

#if defined(__x86_64__)
/* A library that was built with -ffast-math may have set these for every thread. */
static void does_not_flush(void)
{
	static float denormals[96];
	static double wide[96];
	static uint16_t f16[96], bf16[96];
	static float back[96], from_wide[96];
	unsigned mode = _mm_getcsr();
	for (uint32_t i = 0; i < 96; i++) {
		denormals[i] = float_of(i << 16 | 0x80000000u);
		f16[i] = (uint16_t)(i + 1);
	}
	_mm_setcsr(mode | 0x8040); /* flush to zero, denormals are zero */
	convert_range(bf16, FSDP_BF16, denormals, FSDP_F32, 96);
	convert_range(wide, FSDP_F64, denormals, FSDP_F32, 96);
	convert_range(from_wide, FSDP_F32, wide, FSDP_F64, 96);
	convert_range(back, FSDP_F32, f16, FSDP_F16, 96);
	convert_range(f16, FSDP_F16, back, FSDP_F32, 96);
	_mm_setcsr(mode);
	for (uint32_t i = 0; i < 96; i++) {
		cr_assert_eq(bf16[i], i | 0x8000);
		cr_assert_eq(wide[i], -ldexp(i, -133));
		cr_assert_eq(bits_of(from_wide[i]), i << 16 | 0x80000000u);
		cr_assert_eq((double)back[i], ldexp(i + 1, -24));
		cr_assert_eq(f16[i], i + 1);
	}
}

Test(convert, keeps_denormals_where_the_processor_is_told_to_flush_them)
{
	at_every_level(does_not_flush);
}
#endif
