/* The order and the roundings of a sum. */
#include "daemon/math/reduce.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH 67 /* no multiple of a vector */

static uint32_t bits_of(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* Values of many magnitudes, so that another order gives other bits. */
static float sample(unsigned seed)
{
	uint32_t x = seed * 2654435761u + 12345u;
	x ^= x >> 15;
	x *= 2246822519u;
	x ^= x >> 13;
	return ldexpf((float)(x & 0xffffff) - 8388608.0f, (int)(x >> 24) % 20 - 30);
}

Test(reduce, goes_from_left_to_right)
{
	const float values[4] = { 1e8f, 1.0f, -1e8f, 1.0f };
	const float *sources[4] = { &values[0], &values[1], &values[2], &values[3] };
	float sum = 55.0f;
	cr_assert(reduce_add_f32(&sum, sources, 4, 1, true, REDUCE_FINISH_NOT, 0));
	cr_assert_eq(sum, 1.0f);
	/* The same as onto a sum that is there, one source at a time. */
	sum = values[0];
	for (int i = 1; i < 4; i++) {
		reduce_add_f32(&sum, &sources[i], 1, 1, false, REDUCE_FINISH_NOT, 0);
	}
	cr_assert_eq(sum, 1.0f);
}

/* Every instance of the kernel against the plain loop, bit for bit, and cut into pieces. */
Test(reduce, of_any_number_of_sources_is_bit_identical_to_the_serial_sum)
{
	static float data[REDUCE_SOURCES_MAX][LENGTH], start[LENGTH], whole[LENGTH], pieces[LENGTH];
	for (unsigned i = 0; i < LENGTH; i++) {
		start[i] = sample(i);
		for (unsigned k = 0; k < REDUCE_SOURCES_MAX; k++) {
			data[k][i] = sample(1000 + 100 * k + i);
		}
	}
	for (size_t n = 0; n <= REDUCE_SOURCES_MAX; n++) {
		for (int variant = 0; variant < 6; variant++) {
			bool fresh = variant % 2;
			enum reduce_finish finish = (enum reduce_finish)(variant / 2);
			const float *sources[REDUCE_SOURCES_MAX], *later[REDUCE_SOURCES_MAX];
			for (size_t k = 0; k < n; k++) {
				sources[k] = data[k];
				later[k] = data[k] + 13;
			}
			memcpy(whole, start, sizeof(whole));
			memcpy(pieces, start, sizeof(pieces));
			reduce_add_f32(whole, sources, n, LENGTH, fresh, finish, 3.0f);
			reduce_add_f32(pieces, sources, n, 13, fresh, finish, 3.0f);
			reduce_add_f32(pieces + 13, later, n, LENGTH - 13, fresh, finish, 3.0f);
			for (size_t i = 0; i < LENGTH; i++) {
				volatile float sum = fresh ? (n ? data[0][i] : 0.0f) : start[i];
				for (size_t k = fresh ? 1 : 0; k < n; k++) {
					sum = sum + data[k][i];
				}
				sum = finish == REDUCE_FINISH_DIVIDE     ? sum / 3.0f
				      : finish == REDUCE_FINISH_MULTIPLY ? sum * 3.0f
									 : sum;
				cr_assert_eq(bits_of(whole[i]), bits_of(sum), "%zu sources, variant %d, element %zu", n,
					     variant, i);
				cr_assert_eq(bits_of(pieces[i]), bits_of(sum));
			}
		}
	}
}

Test(reduce, that_is_fresh_keeps_the_sign_of_a_first_zero)
{
	const float minus = -0.0f, plus = 0.0f;
	const float *sources[2] = { &minus, &minus };
	float sum = 0.0f;
	reduce_add_f32(&sum, sources, 1, 1, true, REDUCE_FINISH_NOT, 0);
	cr_assert_eq(bits_of(sum), 0x80000000u);
	reduce_add_f32(&sum, sources, 2, 1, true, REDUCE_FINISH_DIVIDE, 2);
	cr_assert_eq(bits_of(sum), 0x80000000u);
	sources[1] = &plus;
	reduce_add_f32(&sum, sources, 2, 1, true, REDUCE_FINISH_NOT, 0);
	cr_assert_eq(bits_of(sum), 0);
}

Test(reduce, of_nothing_is_zero_when_fresh_and_unchanged_else)
{
	float sum[2] = { 3.0f, NAN };
	cr_assert(reduce_add_f32(sum, NULL, 0, 2, true, REDUCE_FINISH_DIVIDE, 4));
	cr_assert_eq(bits_of(sum[0]), 0);
	cr_assert_eq(bits_of(sum[1]), 0);
	sum[0] = 3.0f;
	cr_assert(reduce_add_f32(sum, NULL, 0, 1, false, REDUCE_FINISH_NOT, 0));
	cr_assert_eq(sum[0], 3.0f);
	cr_assert(reduce_add_f32(NULL, NULL, 0, 0, true, REDUCE_FINISH_DIVIDE, 1));
}

Test(reduce, divides_and_does_not_multiply_by_a_reciprocal)
{
	/* 5/49 rounded once is 0x3dd0fac7; 5 * (1/49) rounded twice is another float. */
	const float value = 5.0f;
	const float *sources[1] = { &value };
	float sum;
	volatile float divisor = 49.0f, reciprocal = 1.0f / divisor, twice = value * reciprocal, once = value / divisor;
	cr_assert_neq(bits_of(once), bits_of(twice));
	reduce_add_f32(&sum, sources, 1, 1, true, REDUCE_FINISH_DIVIDE, 49);
	cr_assert_eq(bits_of(sum), bits_of(once));
}

Test(reduce, gives_the_known_means)
{
	const float ranks[4] = { 0, 1, 2, 3 }, single = 30000.0f, three[3] = { 1, 2, 3 };
	const float *of_ranks[4] = { &ranks[0], &ranks[1], &ranks[2], &ranks[3] };
	const float *of_three[3] = { &three[0], &three[1], &three[2] };
	const float *of_one[1] = { &single };
	float sum;
	cr_assert(reduce_add_f32(&sum, of_ranks, 4, 1, true, REDUCE_FINISH_DIVIDE, 4));
	cr_assert_eq(sum, 1.5f);
	cr_assert(reduce_add_f32(&sum, of_three, 3, 1, true, REDUCE_FINISH_DIVIDE, 3));
	cr_assert_eq(sum, 2.0f);
	cr_assert(reduce_add_f32(&sum, of_one, 1, 1, true, REDUCE_FINISH_DIVIDE, 1));
	cr_assert_eq(sum, 30000.0f);
}

Test(reduce, tells_at_the_end_whether_everything_is_finite)
{
	static const float bad[] = { INFINITY, -INFINITY, NAN, -NAN };
	static const float good[] = { 3.4028234e38f, -3.4028234e38f, 1e-45f, -0.0f };
	for (size_t place = 0; place < LENGTH; place++) {
		float values[LENGTH], sum[LENGTH];
		const float *sources[1] = { values };
		for (size_t k = 0; k < 4; k++) {
			memset(values, 0, sizeof(values));
			values[place] = bad[k];
			cr_assert_not(reduce_add_f32(sum, sources, 1, LENGTH, true, REDUCE_FINISH_DIVIDE, 2));
			cr_assert_not(reduce_add_f32(sum, sources, 1, LENGTH, true, REDUCE_FINISH_MULTIPLY, 1));
			cr_assert(reduce_add_f32(sum, sources, 1, LENGTH, true, REDUCE_FINISH_NOT, 1));
			values[place] = good[k];
			cr_assert(reduce_add_f32(sum, sources, 1, LENGTH, true, REDUCE_FINISH_DIVIDE, 1));
		}
	}
}

Test(reduce, sees_an_overflow_that_the_sum_itself_made)
{
	const float huge = 3e38f;
	const float *sources[2] = { &huge, &huge };
	float sum;
	cr_assert_not(reduce_add_f32(&sum, sources, 2, 1, true, REDUCE_FINISH_DIVIDE, 2));
	cr_assert(isinf(sum));
}
