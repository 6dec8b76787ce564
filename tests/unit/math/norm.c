/* Norms and clipping: known answers, and the same bits however a range is cut. */
#include "daemon/math/norm.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

Test(norm, of_three_shards_is_theirs_together)
{
	float shards[3] = { 3, 4, 12 };
	double sum = 0, max = 0;
	for (int rank = 0; rank < 3; rank++) {
		sum += norm_squares_f32(&shards[rank], 1, 0);
		max = norm_max_f32(&shards[rank], 1, max);
	}
	cr_assert_eq(sqrt(sum), 13.0);
	cr_assert_eq(max, 12.0);
	double factor = norm_clip_factor(sqrt(sum), 6.5);
	norm_scale_f32(shards, 3, factor);
	cr_assert(shards[0] == 1.5f && shards[1] == 2.0f && shards[2] == 6.0f);
}

Test(norm, of_an_empty_range_is_nothing)
{
	const float two[2] = { 3, 4 };
	cr_assert_eq(norm_squares_f32(two, 2, norm_squares_f32(NULL, 0, 0)), 25.0);
	cr_assert_eq(norm_squares_f64(NULL, 0, 7), 7.0);
	cr_assert_eq(norm_max_f32(NULL, 0, 0), 0.0);
	cr_assert_eq(norm_max_f64(NULL, 0, 3), 3.0);
	cr_assert(norm_finite_f32(NULL, 0) && norm_finite_f64(NULL, 0));
}

Test(norm, is_added_in_f64_in_the_order_of_the_elements)
{
	/* 2^60 and 1: the ones get lost one by one, but not if they are added first. */
	const float falling[5] = { 0x1p30f, 1, 1, 1, 1 }, rising[5] = { 8, 8, 8, 8, 0x1p30f };
	cr_assert_eq(norm_squares_f32(falling, 5, 0), 0x1p60);
	cr_assert_eq(norm_squares_f32(rising, 5, 0), 0x1p60 + 256);
	/* Squares that f32 has not. */
	const float large[2] = { 3e30f, 1e-30f };
	cr_assert_eq(norm_squares_f32(large, 1, 0), (double)3e30f * (double)3e30f);
	cr_assert_eq(norm_squares_f32(large + 1, 1, 0), (double)1e-30f * (double)1e-30f);
}

Test(norm, has_the_same_bits_wherever_a_range_is_cut)
{
	enum { COUNT = 257 };
	float f32[COUNT];
	double f64[COUNT];
	uint32_t state = 1;
	for (size_t i = 0; i < COUNT; i++) {
		state = state * 1664525u + 1013904223u;
		f32[i] = ldexpf((float)(int32_t)state, (int)(i % 40) - 50);
		f64[i] = ldexp((double)(int32_t)state / 3, (int)(i % 90) - 70);
	}
	double squares32 = norm_squares_f32(f32, COUNT, 0), squares64 = norm_squares_f64(f64, COUNT, 0);
	double max32 = norm_max_f32(f32, COUNT, 0), max64 = norm_max_f64(f64, COUNT, 0);
	volatile double serial = 0, most = 0;
	for (size_t i = 0; i < COUNT; i++) {
		serial = serial + f64[i] * f64[i];
		most = fabs(f64[i]) > most ? fabs(f64[i]) : most;
	}
	cr_assert_eq(squares64, serial);
	cr_assert_eq(max64, most);
	for (size_t cut = 0; cut <= COUNT; cut++) {
		size_t rest = COUNT - cut;
		cr_assert_eq(norm_squares_f32(f32 + cut, rest, norm_squares_f32(f32, cut, 0)), squares32);
		cr_assert_eq(norm_squares_f64(f64 + cut, rest, norm_squares_f64(f64, cut, 0)), squares64);
		cr_assert_eq(norm_max_f32(f32 + cut, rest, norm_max_f32(f32, cut, 0)), max32);
		cr_assert_eq(norm_max_f64(f64 + cut, rest, norm_max_f64(f64, cut, 0)), max64);
	}
}

/* Each place in a vector and behind it, each kind of bad value. */
Test(norm, sees_what_is_not_finite_wherever_it_is)
{
	enum { COUNT = 37 };
	static const double bad[] = { INFINITY, -INFINITY, NAN, -NAN };
	for (size_t place = 0; place < COUNT; place++) {
		for (size_t k = 0; k < 4; k++) {
			float f32[COUNT];
			double f64[COUNT];
			for (size_t i = 0; i < COUNT; i++) {
				f32[i] = i % 2 ? 3.4028234e38f : -1e-45f;
				f64[i] = i % 2 ? -1.7976931348623157e308 : 5e-324;
			}
			cr_assert(norm_finite_f32(f32, COUNT) && norm_finite_f64(f64, COUNT));
			f32[place] = (float)bad[k];
			f64[place] = bad[k];
			cr_assert_not(norm_finite_f32(f32, COUNT));
			cr_assert_not(norm_finite_f64(f64, COUNT));
			double max32 = norm_max_f32(f32, COUNT, 0), max64 = norm_max_f64(f64, COUNT, 0);
			cr_assert(k < 2 ? isinf(max32) && isinf(max64) : isnan(max32) && isnan(max64));
			cr_assert(isnan(norm_max_f32(f32, 0, (double)NAN)) && isnan(norm_max_f64(f64, 0, (double)NAN)));
		}
	}
}

Test(norm, clips_what_is_above_and_leaves_what_is_not)
{
	cr_assert_eq(norm_clip_factor(0, 0), 1.0);
	cr_assert_eq(norm_clip_factor(0, 5), 1.0);
	cr_assert_eq(norm_clip_factor(5, 5), 1.0);
	cr_assert_eq(norm_clip_factor(10, 5), 0.5);
	cr_assert_eq(norm_clip_factor(10, 0), 0.0);
	cr_assert_eq(norm_clip_factor((double)INFINITY, 1), 0.0); /* squares of f64 overflowed */
	double values[3] = { 1, -0.0, 5e-324 };
	norm_scale_f64(values, 3, 1);
	cr_assert(values[0] == 1.0 && signbit(values[1]) && values[2] == 5e-324);
	norm_scale_f64(values, 1, 0.1);
	cr_assert_eq(values[0], 0.1);
}
