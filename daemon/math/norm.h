/*
 * Norms of gradients, whether they are finite, and clipping. Pure; any thread.
 *
 * A range may be cut into pieces anywhere, as long as they are given in order, each with what the one before it gave:
 * the result has the same bits.
 */
#ifndef FSDPD_MATH_NORM_H
#define FSDPD_MATH_NORM_H

#include <stdbool.h>
#include <stddef.h>

/* sum and the squares of count elements, added to it in f64 in their order; begin with 0. Ranks' sums are added in
 * rank order; the 2-norm is the square root. Squares of f64 may overflow although every element is finite. */
double norm_squares_f32(const float *values, size_t count, double sum);
double norm_squares_f64(const double *values, size_t count, double sum);

/* The largest of max and the absolute values; begin with 0. A NaN once there is one. */
double norm_max_f32(const float *values, size_t count, double max);
double norm_max_f64(const double *values, size_t count, double max);

/* Whether no element is an infinity or a NaN. */
bool norm_finite_f32(const float *values, size_t count);
bool norm_finite_f64(const double *values, size_t count);

/* min(1, max_norm / norm); 1 at norm 0. Neither is a NaN or negative. */
double norm_clip_factor(double norm, double max_norm);

/* Multiplies every element by factor, which is rounded to the dtype once; a factor of 1 changes nothing. */
void norm_scale_f32(float *values, size_t count, double factor);
void norm_scale_f64(double *values, size_t count, double factor);

#endif
