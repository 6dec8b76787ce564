/*
 * One update rule: what optimizer_step_f32 and _f64 promise, for one kind, with step and count above 0. Pure.
 *
 * A rule is written once, in rule_NAME.h, in terms of REAL (its type), REAL_SQRT and RULE(name) (the name for that
 * type); rules_f32.c and rules_f64.c translate it. Only + - * / and square roots, which IEEE 754 rounds in one way:
 * neither the width of a vector nor where a range was cut changes a bit.
 */
#ifndef FSDPD_MATH_UPDATE_H
#define FSDPD_MATH_UPDATE_H

#include "daemon/math/cpu.h"
#include "daemon/math/optimizer.h"

#define UPDATE_INLINE static inline __attribute__((always_inline))

typedef void update_function_f32(const struct optimizer_spec *spec, const struct optimizer_options *options,
				 uint64_t step, float *master, const float *gradient,
				 float *const moments[OPTIMIZER_MOMENTS_MAX], size_t count);
typedef void update_function_f64(const struct optimizer_spec *spec, const struct optimizer_options *options,
				 uint64_t step, double *master, const double *gradient,
				 double *const moments[OPTIMIZER_MOMENTS_MAX], size_t count);

update_function_f32 sgd_update_f32, adam_update_f32, adamw_update_f32, adagrad_update_f32, rmsprop_update_f32,
	lion_update_f32;
update_function_f64 sgd_update_f64, adam_update_f64, adamw_update_f64, adagrad_update_f64, rmsprop_update_f64,
	lion_update_f64;

#endif
