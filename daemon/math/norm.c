/*
 * Norms. The sum of squares is one chain of additions, since its order is part of the contract: it takes as long as an
 * addition for every element, and no vector helps. All else is integer operations on the bits, whose order does not
 * matter. Pure; any thread.
 */
#include "daemon/math/norm.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

double norm_squares_f32(const float *values, size_t count, double sum)
{
	for (size_t i = 0; i < count; i++) {
		double value = (double)values[i];
		sum += value * value; /* the square of an f32 is exact */
	}
	return sum;
}

double norm_squares_f64(const double *values, size_t count, double sum)
{
	for (size_t i = 0; i < count; i++) {
		sum += values[i] * values[i];
	}
	return sum;
}

/* The bits of absolute values are ordered as the values are, infinity above them, NaNs above that. */
static int32_t norm_magnitude_f32(float value)
{
	int32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	return bits & INT32_MAX;
}

static int64_t norm_magnitude_f64(double value)
{
	int64_t bits;
	memcpy(&bits, &value, sizeof(bits));
	return bits & INT64_MAX;
}

double norm_max_f32(const float *values, size_t count, double max)
{
	int32_t most = 0;
	float value;
	for (size_t i = 0; i < count; i++) {
		int32_t magnitude = norm_magnitude_f32(values[i]);
		most = magnitude > most ? magnitude : most;
	}
	memcpy(&value, &most, sizeof(value));
	double found = (double)value;
	return isnan(max) || max > found ? max : found;
}

double norm_max_f64(const double *values, size_t count, double max)
{
	int64_t most = norm_magnitude_f64(max);
	double value;
	for (size_t i = 0; i < count; i++) {
		int64_t magnitude = norm_magnitude_f64(values[i]);
		most = magnitude > most ? magnitude : most;
	}
	memcpy(&value, &most, sizeof(value));
	return value;
}

/* The top bit of a magnitude plus the lowest of an exponent is set for infinities and NaNs alone. */
bool norm_finite_f32(const float *values, size_t count)
{
	uint32_t bad = 0;
	for (size_t i = 0; i < count; i++) {
		bad |= (uint32_t)norm_magnitude_f32(values[i]) + 0x00800000u;
	}
	return bad >> 31 == 0;
}

bool norm_finite_f64(const double *values, size_t count)
{
	uint64_t bad = 0;
	for (size_t i = 0; i < count; i++) {
		bad |= (uint64_t)norm_magnitude_f64(values[i]) + UINT64_C(0x0010000000000000);
	}
	return bad >> 63 == 0;
}

double norm_clip_factor(double norm, double max_norm)
{
	assert(norm >= 0 && max_norm >= 0);
	return norm > max_norm ? max_norm / norm : 1;
}

void norm_scale_f32(float *values, size_t count, double factor)
{
	const float by = (float)factor;
	for (size_t i = 0; i < count; i++) {
		values[i] = values[i] * by;
	}
}

void norm_scale_f64(double *values, size_t count, double factor)
{
	for (size_t i = 0; i < count; i++) {
		values[i] = values[i] * factor;
	}
}
