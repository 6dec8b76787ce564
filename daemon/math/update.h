/* One update rule: what optimizer_step_f32 promises, for one kind, with step and count above 0. */
#ifndef FSDPD_MATH_UPDATE_H
#define FSDPD_MATH_UPDATE_H

#include "daemon/math/optimizer.h"

typedef void update_function(const struct optimizer_spec *spec, const struct optimizer_options *options, uint64_t step,
			     float *master, const float *gradient, float *const moments[OPTIMIZER_MOMENTS_MAX],
			     size_t count);

update_function sgd_update_f32;
update_function adamw_update_f32;

#endif
