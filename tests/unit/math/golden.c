/*
 * The update rules against PyTorch: tests/golden/make.py made the values, in a hundred steps for every combination of
 * options, in both dtypes of masters.
 */
#include "daemon/math/optimizer.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tests/golden/optimizers.h"

#define GOLDEN_CASES (sizeof(golden) / sizeof(golden[0]))

/* scramble, weight and gradient are those of make.py. */
static uint32_t scramble(uint32_t seed)
{
	uint32_t x = seed * 2654435761u + 12345u;
	x ^= x >> 15;
	x *= 2246822519u;
	return x ^ x >> 13;
}

static double weight(uint32_t i)
{
	return ((double)(scramble(i) & 0xffff) - 32767.5) / 16384;
}

static double gradient(uint32_t step, uint32_t i)
{
	if (i == GOLDEN_COUNT - 1 || (i == GOLDEN_COUNT - 2 && step % 3 != 0)) {
		return 0;
	}
	uint32_t x = scramble(1000 + step * GOLDEN_COUNT + i);
	return ((double)(x & 0xffff) - 32767.5) / 32768 / (1 << (x >> 16 & 7));
}

static float float_of(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

static double double_of(uint64_t bits)
{
	double value;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* One rule over the weights of make.py, in both dtypes; cut says how many elements an update takes at once. */
struct run {
	float p32[GOLDEN_COUNT], moments32[OPTIMIZER_MOMENTS_MAX][GOLDEN_COUNT];
	double p64[GOLDEN_COUNT], moments64[OPTIMIZER_MOMENTS_MAX][GOLDEN_COUNT];
};

static void run_init(struct run *run)
{
	memset(run, 0, sizeof(*run));
	for (uint32_t i = 0; i < GOLDEN_COUNT; i++) {
		run->p32[i] = (float)weight(i);
		run->p64[i] = weight(i);
	}
}

static void run_step(struct run *run, const struct golden *want, uint32_t step, size_t cut)
{
	float g32[GOLDEN_COUNT];
	double g64[GOLDEN_COUNT];
	for (uint32_t i = 0; i < GOLDEN_COUNT; i++) {
		g64[i] = gradient(step, i);
		g32[i] = (float)g64[i];
	}
	unsigned kept = optimizer_moments(&want->spec);
	for (size_t at = 0; at < GOLDEN_COUNT; at += cut) {
		size_t count = GOLDEN_COUNT - at < cut ? GOLDEN_COUNT - at : cut;
		float *m32[OPTIMIZER_MOMENTS_MAX] = { NULL };
		double *m64[OPTIMIZER_MOMENTS_MAX] = { NULL };
		for (unsigned k = 0; k < kept; k++) {
			m32[k] = run->moments32[k] + at;
			m64[k] = run->moments64[k] + at;
		}
		optimizer_step_f32(&want->spec, &want->options, step, run->p32 + at, g32 + at, m32, count);
		optimizer_step_f64(&want->spec, &want->options, step, run->p64 + at, g64 + at, m64, count);
	}
}

Test(golden, options_are_good_ones)
{
	for (size_t c = 0; c < GOLDEN_CASES; c++) {
		const char *text = "";
		cr_assert_eq(optimizer_check(&golden[c].spec, &golden[c].options, &text), 0, "case %zu: %s", c, text);
	}
}

Test(golden, one_step_is_within_one_ulp)
{
	for (size_t c = 0; c < GOLDEN_CASES; c++) {
		struct run run;
		run_init(&run);
		run_step(&run, &golden[c], 1, GOLDEN_COUNT);
		for (size_t i = 0; i < GOLDEN_COUNT; i++) {
			float f32 = float_of(golden[c].f32[0][i]);
			double f64 = double_of(golden[c].f64[0][i]);
			cr_assert(run.p32[i] >= nextafterf(f32, -INFINITY) && run.p32[i] <= nextafterf(f32, INFINITY),
				  "%s, case %zu, element %zu: %a, not %a", optimizer_name(golden[c].spec.kind), c, i,
				  (double)run.p32[i], (double)f32);
			cr_assert(run.p64[i] >= nextafter(f64, (double)-INFINITY) &&
					  run.p64[i] <= nextafter(f64, (double)INFINITY),
				  "%s, case %zu, element %zu: %a, not %a", optimizer_name(golden[c].spec.kind), c, i,
				  run.p64[i], f64);
		}
	}
}

Test(golden, a_hundred_steps_agree_to_a_millionth)
{
	for (size_t c = 0; c < GOLDEN_CASES; c++) {
		struct run run;
		run_init(&run);
		for (uint32_t step = 1; step <= GOLDEN_STEPS; step++) {
			run_step(&run, &golden[c], step, GOLDEN_COUNT);
		}
		for (size_t i = 0; i < GOLDEN_COUNT; i++) {
			double f32 = (double)float_of(golden[c].f32[1][i]), f64 = double_of(golden[c].f64[1][i]);
			cr_assert(fabs((double)run.p32[i] - f32) <= 1e-6 * fabs(f32),
				  "%s, case %zu, element %zu: %a, not %a", optimizer_name(golden[c].spec.kind), c, i,
				  (double)run.p32[i], f32);
			/* The smallest part that f64 has to show is a billion times smaller. */
			cr_assert(fabs(run.p64[i] - f64) <= 1e-13 * fabs(f64), "%s, case %zu, element %zu: %a, not %a",
				  optimizer_name(golden[c].spec.kind), c, i, run.p64[i], f64);
		}
	}
}

/* More than is promised: it holds where the C library's pow is the one that PyTorch was run with, and it finds an
 * operation out of order, which may be less than an ulp. */
Test(golden, a_hundred_steps_have_the_bits_of_pytorch)
{
	for (size_t c = 0; c < GOLDEN_CASES; c++) {
		struct run run;
		run_init(&run);
		for (uint32_t step = 1; step <= GOLDEN_STEPS; step++) {
			run_step(&run, &golden[c], step, GOLDEN_COUNT);
		}
		cr_assert_arr_eq(run.p32, golden[c].f32[1], sizeof(run.p32), "%s, case %zu",
				 optimizer_name(golden[c].spec.kind), c);
		cr_assert_arr_eq(run.p64, golden[c].f64[1], sizeof(run.p64), "%s, case %zu",
				 optimizer_name(golden[c].spec.kind), c);
	}
}

/* As worlds of 2, 3, 5 and 8 ranks cut sixteen elements. */
Test(golden, however_the_vector_is_cut_the_bits_are_the_same)
{
	static const size_t cuts[] = { 8, 6, 4, 2, 1 };
	for (size_t c = 0; c < GOLDEN_CASES; c++) {
		struct run whole, parts;
		run_init(&whole);
		for (uint32_t step = 1; step <= GOLDEN_STEPS; step++) {
			run_step(&whole, &golden[c], step, GOLDEN_COUNT);
		}
		for (size_t k = 0; k < sizeof(cuts) / sizeof(cuts[0]); k++) {
			run_init(&parts);
			for (uint32_t step = 1; step <= GOLDEN_STEPS; step++) {
				run_step(&parts, &golden[c], step, cuts[k]);
			}
			cr_assert_arr_eq(&whole, &parts, sizeof(whole), "%s, case %zu, pieces of %zu",
					 optimizer_name(golden[c].spec.kind), c, cuts[k]);
		}
	}
}
