/*
 * Conversions, as a table of kernels: row and column are dtypes, one table for each instruction set. A kernel of
 * integer operations is written once and translated for every level; f16 has kernels of its own where the processor
 * converts it. Pure; any thread.
 *
 * AVX-512's own bf16 instruction is not used: it flushes denormals.
 */
#include "daemon/math/convert.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "daemon/math/cpu.h"
#if CPU_HAS_VARIANTS
#include <immintrin.h>
#endif

#define CONVERT_INLINE static inline __attribute__((always_inline))

CONVERT_INLINE uint32_t bits_of_f32(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

CONVERT_INLINE float f32_of_bits(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

CONVERT_INLINE uint64_t bits_of_f64(double value)
{
	uint64_t bits;
	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* ---- One element ---- */

CONVERT_INLINE float f32_of_bf16(uint16_t half)
{
	uint32_t bits = (uint32_t)half << 16;
	return f32_of_bits((bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x00400000u : bits);
}

CONVERT_INLINE uint16_t bf16_of_f32(float value)
{
	uint32_t bits = bits_of_f32(value);
	uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
	uint32_t quiet = bits | 0x00400000u;
	return (uint16_t)(((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) >> 16);
}

/* Without a branch. Of a denormal the exponent is made by a subtraction of normal numbers that is exact. */
CONVERT_INLINE float f32_of_f16(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
	uint32_t magnitude = half & 0x7fffu;
	uint32_t normal = (magnitude << 13) + (112u << 23);
	uint32_t special = (magnitude << 13) | 0x7f800000u | (magnitude > 0x7c00u ? 0x00400000u : 0u);
	uint32_t denormal = bits_of_f32(f32_of_bits((magnitude << 13) + (113u << 23)) - f32_of_bits(113u << 23));
	uint32_t bits = magnitude >= 0x7c00u ? special : magnitude < 0x0400u ? denormal : normal;
	return f32_of_bits(bits | sign);
}

/* n / 2^shift, to nearest even; shift is 1 to 63, n below 2^63. */
CONVERT_INLINE uint64_t shift_to_even(uint64_t n, unsigned shift)
{
	return (n + (UINT64_C(1) << (shift - 1)) - 1 + ((n >> shift) & 1)) >> shift;
}

/*
 * The bits of a float of 16 bits, exponent_bits of them its exponent's, from those of an f64. Every f32 is an f64, so
 * that this is also the slow way for one.
 */
CONVERT_INLINE uint16_t half_of_f64_bits(uint64_t bits, unsigned exponent_bits)
{
	const unsigned mantissa_bits = 15 - exponent_bits;
	const unsigned drop = 52 - mantissa_bits;
	const uint64_t infinity = ((UINT64_C(1) << exponent_bits) - 1) << mantissa_bits;
	const uint64_t lowest =
		1023 - (UINT64_C(1) << (exponent_bits - 1)) + 2; /* f64's exponent of its least normal */
	uint64_t magnitude = bits & (UINT64_MAX >> 1);
	uint64_t exponent = magnitude >> 52;
	uint64_t mantissa = magnitude & ((UINT64_C(1) << 52) - 1);
	uint64_t result;
	if (exponent == 0x7ff) {
		uint64_t quiet = UINT64_C(1) << (mantissa_bits - 1);
		result = infinity | (mantissa ? quiet | (mantissa >> drop) : 0);
	} else if (exponent >= lowest) {
		result = shift_to_even(magnitude - ((lowest - 1) << 52), drop);
		result = result > infinity ? infinity : result; /* a carry out of the mantissa goes to the exponent */
	} else {
		uint64_t shift = drop + (lowest - exponent);
		result = exponent && shift < 63 ? shift_to_even(mantissa | UINT64_C(1) << 52, (unsigned)shift) : 0;
	}
	return (uint16_t)(result | (bits >> 63) << 15);
}

/* The bits of an f32 as an f64: by integers, so that no mode of the processor touches a denormal. */
CONVERT_INLINE uint64_t f64_bits_of_f32(float value)
{
	uint32_t bits = bits_of_f32(value);
	uint64_t sign = (uint64_t)(bits >> 31) << 63;
	uint64_t magnitude = bits & 0x7fffffffu;
	if (magnitude > 0x7f800000u) {
		return sign | UINT64_C(0x7ff8000000000000) | magnitude << 29;
	}
	if (magnitude == 0x7f800000u) {
		return sign | UINT64_C(0x7ff0000000000000);
	}
	if (magnitude >= 0x00800000u) {
		return sign | ((magnitude << 29) + (UINT64_C(896) << 52));
	}
	if (magnitude == 0) {
		return sign;
	}
	unsigned up = (unsigned)__builtin_clz((uint32_t)magnitude) - 8; /* the top bit goes to where 1.0 has it */
	return sign | ((magnitude << (up + 29)) + ((UINT64_C(896) - up) << 52));
}

CONVERT_INLINE float f32_of_f64(double value)
{
	uint64_t bits = bits_of_f64(value);
	uint32_t sign = (uint32_t)(bits >> 63) << 31;
	uint64_t magnitude = bits & (UINT64_MAX >> 1);
	uint64_t exponent = magnitude >> 52;
	if (magnitude > UINT64_C(0x7ff0000000000000)) {
		return f32_of_bits(sign | 0x7fc00000u | ((uint32_t)(magnitude >> 29) & 0x003fffffu));
	}
	if (exponent >= 897) {
		uint64_t result = shift_to_even(magnitude - (UINT64_C(896) << 52), 29);
		return f32_of_bits(sign | (result > 0x7f800000u ? 0x7f800000u : (uint32_t)result));
	}
	uint64_t mantissa = (magnitude & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
	uint64_t shift = 29 + (897 - exponent);
	return f32_of_bits(sign | (shift < 63 ? (uint32_t)shift_to_even(mantissa, (unsigned)shift) : 0));
}

CONVERT_INLINE double f64_of_f32(float value)
{
	uint64_t bits = f64_bits_of_f32(value);
	double wide;
	memcpy(&wide, &bits, sizeof(wide));
	return wide;
}

CONVERT_INLINE uint16_t f16_of_f32(float value)
{
	return half_of_f64_bits(f64_bits_of_f32(value), 5);
}

CONVERT_INLINE uint16_t f16_of_f64(double value)
{
	return half_of_f64_bits(bits_of_f64(value), 5);
}

CONVERT_INLINE uint16_t bf16_of_f64(double value)
{
	return half_of_f64_bits(bits_of_f64(value), 8);
}

CONVERT_INLINE double f64_of_bf16(uint16_t half)
{
	return f64_of_f32(f32_of_bf16(half));
}

CONVERT_INLINE double f64_of_f16(uint16_t half)
{
	return f64_of_f32(f32_of_f16(half));
}

/* ---- Ranges ---- */

typedef void convert_function(void *to, const void *from, size_t count);

/* CONVERT_KERNEL(name of the kernel, element to, element from, what converts one) */
#define CONVERT_KERNEL(name, to_type, from_type, one)                      \
	CONVERT_INLINE void name(void *to, const void *from, size_t count) \
	{                                                                  \
		to_type *__restrict t = to;                                \
		const from_type *__restrict f = from;                      \
		for (size_t i = 0; i < count; i++) {                       \
			t[i] = one(f[i]);                                  \
		}                                                          \
	}

#define CONVERT_PLAIN(name)                                                \
	static void name##_plain(void *to, const void *from, size_t count) \
	{                                                                  \
		name(to, from, count);                                     \
	}

#define CONVERT_WIDE(name)                                                                    \
	CPU_TARGET_AVX2 static void name##_avx2(void *to, const void *from, size_t count)     \
	{                                                                                     \
		name(to, from, count);                                                        \
	}                                                                                     \
	CPU_TARGET_AVX512 static void name##_avx512(void *to, const void *from, size_t count) \
	{                                                                                     \
		name(to, from, count);                                                        \
	}

CONVERT_KERNEL(f32_bf16, float, uint16_t, f32_of_bf16)
CONVERT_KERNEL(bf16_f32, uint16_t, float, bf16_of_f32)
CONVERT_KERNEL(f32_f16, float, uint16_t, f32_of_f16)
CONVERT_KERNEL(f16_f32, uint16_t, float, f16_of_f32)
CONVERT_KERNEL(f32_f64, float, double, f32_of_f64)
CONVERT_KERNEL(f64_f32, double, float, f64_of_f32)
CONVERT_KERNEL(f16_f64, uint16_t, double, f16_of_f64)
CONVERT_KERNEL(f64_f16, double, uint16_t, f64_of_f16)
CONVERT_KERNEL(bf16_f64, uint16_t, double, bf16_of_f64)
CONVERT_KERNEL(f64_bf16, double, uint16_t, f64_of_bf16)

CONVERT_PLAIN(f32_bf16)
CONVERT_PLAIN(bf16_f32)
CONVERT_PLAIN(f32_f16)
CONVERT_PLAIN(f16_f32)
CONVERT_PLAIN(f32_f64)
CONVERT_PLAIN(f64_f32)
CONVERT_PLAIN(f16_f64)
CONVERT_PLAIN(f64_f16)
CONVERT_PLAIN(bf16_f64)
CONVERT_PLAIN(f64_bf16)

#if CPU_HAS_VARIANTS

CONVERT_WIDE(f32_bf16)
CONVERT_WIDE(bf16_f32)

CPU_TARGET_AVX2 static void f32_f16_avx2(void *to, const void *from, size_t count)
{
	float *t = to;
	const uint16_t *f = from;
	size_t i = 0;
	for (; i + 8 <= count; i += 8) {
		_mm256_storeu_ps(t + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(f + i))));
	}
	f32_f16(t + i, f + i, count - i);
}

CPU_TARGET_AVX2 static void f16_f32_avx2(void *to, const void *from, size_t count)
{
	uint16_t *t = to;
	const float *f = from;
	size_t i = 0;
	for (; i + 8 <= count; i += 8) {
		_mm_storeu_si128((__m128i *)(void *)(t + i),
				 _mm256_cvtps_ph(_mm256_loadu_ps(f + i), _MM_FROUND_TO_NEAREST_INT));
	}
	f16_f32(t + i, f + i, count - i);
}

/* Vectors twice as wide bring nothing here. */
#define CONVERT_ROW_AVX2(name)                         \
	{                                              \
		name##_plain, name##_avx2, name##_avx2 \
	}
#define CONVERT_ROW(name)                                \
	{                                                \
		name##_plain, name##_avx2, name##_avx512 \
	}
#else
#define CONVERT_ROW_AVX2(name)                           \
	{                                                \
		name##_plain, name##_plain, name##_plain \
	}
#define CONVERT_ROW(name)                                \
	{                                                \
		name##_plain, name##_plain, name##_plain \
	}
#endif

/* Rare: they cost what the plain loop costs, at every level. */
#define CONVERT_ROW_PLAIN(name)                          \
	{                                                \
		name##_plain, name##_plain, name##_plain \
	}

#define CONVERT_DTYPES (FSDP_F16 + 1)

_Static_assert(FSDP_F32 == 1 && FSDP_F64 == 2 && FSDP_BF16 == 3 && FSDP_F16 == 4,
	       "the first four are the floating ones");

/* [to][from][level]; the diagonal copies. */
static convert_function *const convert_functions[CONVERT_DTYPES][CONVERT_DTYPES][CPU_LEVELS] = {
	[FSDP_F32] = { [FSDP_F64] = CONVERT_ROW_PLAIN(f32_f64),
		       [FSDP_BF16] = CONVERT_ROW(f32_bf16),
		       [FSDP_F16] = CONVERT_ROW_AVX2(f32_f16) },
	[FSDP_F64] = { [FSDP_F32] = CONVERT_ROW_PLAIN(f64_f32),
		       [FSDP_BF16] = CONVERT_ROW_PLAIN(f64_bf16),
		       [FSDP_F16] = CONVERT_ROW_PLAIN(f64_f16) },
	[FSDP_BF16] = { [FSDP_F32] = CONVERT_ROW(bf16_f32), [FSDP_F64] = CONVERT_ROW_PLAIN(bf16_f64) },
	[FSDP_F16] = { [FSDP_F32] = CONVERT_ROW_AVX2(f16_f32), [FSDP_F64] = CONVERT_ROW_PLAIN(f16_f64) },
};

static size_t convert_bytes(enum fsdp_dtype dtype)
{
	return dtype == FSDP_F64 ? 8 : dtype == FSDP_F32 ? 4 : 2;
}

bool convert_knows(enum fsdp_dtype dtype)
{
	return dtype >= FSDP_F32 && dtype <= FSDP_F16;
}

void convert_range(void *to, enum fsdp_dtype to_dtype, const void *from, enum fsdp_dtype from_dtype, size_t count)
{
	assert(convert_knows(to_dtype) && convert_knows(from_dtype));
	if (count == 0) {
		return;
	}
	if (to_dtype == from_dtype) {
		memcpy(to, from, count * convert_bytes(from_dtype));
		return;
	}
	convert_function *function = convert_functions[to_dtype][from_dtype][cpu_level()];
	if (function) {
		function(to, from, count);
		return;
	}
	/* bf16 and f16 into one another: by way of f32, which holds both, in pieces. */
	enum { PIECE = 512 };
	float piece[PIECE];
	for (size_t i = 0; i < count; i += PIECE) {
		size_t part = count - i < PIECE ? count - i : PIECE;
		convert_range(piece, FSDP_F32, (const uint16_t *)from + i, from_dtype, part);
		convert_range((uint16_t *)to + i, to_dtype, piece, FSDP_F32, part);
	}
}
