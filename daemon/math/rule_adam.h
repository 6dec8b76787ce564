/*
 * Adam and AdamW in PyTorch's order of operations (t is the number of this update, from 1):
 *
 *     p = p * (1 - learning_rate * weight_decay)          AdamW
 *     g = g + weight_decay * p                            Adam (where weight_decay is not 0)
 *     m = m * beta1 + (1 - beta1) * g
 *     v = v * beta2 + ((1 - beta2) * g) * g
 *     denominator = sqrt(v) / sqrt(1 - beta2^t) + epsilon
 *     p = p + (-(learning_rate / (1 - beta1^t)) * m) / denominator
 *
 * A rule for REAL (update.h): scalars are computed in double and rounded to REAL once. The moments are zero before
 * t = 1: a new arena's memory is.
 */

struct RULE(adam_scalars) {
	REAL keep, weight_decay, beta1, beta2, rest1, rest2, correction, epsilon, rate;
};

/* decoupled (AdamW) and decay (Adam's) are constants in every call. */
UPDATE_INLINE void RULE(adam_loop)(struct RULE(adam_scalars) s, REAL *__restrict p, const REAL *__restrict g,
				   REAL *__restrict m, REAL *__restrict v, size_t count, bool decoupled, bool decay)
{
	CPU_INDEPENDENT
	for (size_t i = 0; i < count; i++) {
		REAL kept = decoupled ? p[i] * s.keep : p[i];
		REAL d = decay ? g[i] + s.weight_decay * p[i] : g[i];
		m[i] = m[i] * s.beta1 + s.rest1 * d;
		v[i] = v[i] * s.beta2 + (s.rest2 * d) * d;
		REAL denominator = REAL_SQRT(v[i]) / s.correction + s.epsilon;
		p[i] = kept + (s.rate * m[i]) / denominator;
	}
}

static struct RULE(adam_scalars) RULE(adam_scalars_of)(const struct optimizer_options *options, uint64_t step)
{
	const double t = (double)step;
	return (struct RULE(adam_scalars)){
		.keep = (REAL)(1 - options->learning_rate * options->weight_decay),
		.weight_decay = (REAL)options->weight_decay,
		.beta1 = (REAL)options->beta1,
		.beta2 = (REAL)options->beta2,
		.rest1 = (REAL)(1 - options->beta1),
		.rest2 = (REAL)(1 - options->beta2),
		.correction = (REAL)sqrt(1 - pow(options->beta2, t)),
		.epsilon = (REAL)options->epsilon,
		.rate = (REAL) - (options->learning_rate / (1 - pow(options->beta1, t))),
	};
}

void RULE(adamw_update)(const struct optimizer_spec *spec, const struct optimizer_options *options, uint64_t step,
			REAL *master, const REAL *gradient, REAL *const moments[OPTIMIZER_MOMENTS_MAX], size_t count)
{
	(void)spec;
	assert(moments[0] && moments[1]);
	const struct RULE(adam_scalars) s = RULE(adam_scalars_of)(options, step);
	RULE(adam_loop)(s, master, gradient, moments[0], moments[1], count, true, false);
}

void RULE(adam_update)(const struct optimizer_spec *spec, const struct optimizer_options *options, uint64_t step,
		       REAL *master, const REAL *gradient, REAL *const moments[OPTIMIZER_MOMENTS_MAX], size_t count)
{
	(void)spec;
	assert(moments[0] && moments[1]);
	const struct RULE(adam_scalars) s = RULE(adam_scalars_of)(options, step);
	if (options->weight_decay != 0) {
		RULE(adam_loop)(s, master, gradient, moments[0], moments[1], count, false, true);
	} else {
		RULE(adam_loop)(s, master, gradient, moments[0], moments[1], count, false, false);
	}
}
