/*
 * AdamW in PyTorch's order of operations (t is the number of this update, from 1):
 *
 *     p = p * (1 - learning_rate * weight_decay)
 *     m = m * beta1 + (1 - beta1) * g
 *     v = v * beta2 + ((1 - beta2) * g) * g
 *     denominator = sqrt(v) / sqrt(1 - beta2^t) + epsilon
 *     p = p + (-(learning_rate / (1 - beta1^t)) * m) / denominator
 *
 * Scalars are computed in double and rounded to float once. The moments are zero before t = 1: a new arena's
 * memory is. Pure; any thread.
 */
#include "daemon/math/update.h"

#include <assert.h>
#include <math.h>

void adamw_update_f32(const struct optimizer_spec *spec, const struct optimizer_options *options, uint64_t step,
		      float *master, const float *gradient, float *const moments[OPTIMIZER_MOMENTS_MAX], size_t count)
{
	(void)spec;
	assert(moments[0] && moments[1]);
	const double t = (double)step;
	const float keep = (float)(1 - options->learning_rate * options->weight_decay);
	const float beta1 = (float)options->beta1;
	const float beta2 = (float)options->beta2;
	const float rest1 = (float)(1 - options->beta1);
	const float rest2 = (float)(1 - options->beta2);
	const float correction = (float)sqrt(1 - pow(options->beta2, t));
	const float epsilon = (float)options->epsilon;
	const float rate = (float)-(options->learning_rate / (1 - pow(options->beta1, t)));
	float *__restrict p = master;
	float *__restrict m = moments[0];
	float *__restrict v = moments[1];
	const float *__restrict g = gradient;
#pragma GCC ivdep
	for (size_t i = 0; i < count; i++) {
		float decayed = p[i] * keep;
		m[i] = m[i] * beta1 + rest1 * g[i];
		v[i] = v[i] * beta2 + (rest2 * g[i]) * g[i];
		float denominator = sqrtf(v[i]) / correction + epsilon;
		p[i] = decayed + (rate * m[i]) / denominator;
	}
}
