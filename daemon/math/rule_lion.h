/*
 * Lion ("Symbolic Discovery of Optimization Algorithms", 2023), in the order of operations of its authors' code for
 * PyTorch; the paper's p = p - learning_rate * (sign(u) + weight_decay * p) is the same, before rounding:
 *
 *     p = p * (1 - learning_rate * weight_decay)
 *     u = m * beta1 + (1 - beta1) * g
 *     p = p + -learning_rate * sign(u)                    sign(0) is 0
 *     m = m * beta2 + (1 - beta2) * g
 *
 * A rule for REAL (update.h): scalars are computed in double and rounded to REAL once. The moment is zero before the
 * first step.
 */

void RULE(lion_update)(const struct optimizer_spec *spec, const struct optimizer_options *options, uint64_t step,
		       REAL *master, const REAL *gradient, REAL *const moments[OPTIMIZER_MOMENTS_MAX], size_t count)
{
	(void)spec;
	(void)step;
	assert(moments[0]);
	const REAL keep = (REAL)(1 - options->learning_rate * options->weight_decay);
	const REAL beta1 = (REAL)options->beta1;
	const REAL beta2 = (REAL)options->beta2;
	const REAL rest1 = (REAL)(1 - options->beta1);
	const REAL rest2 = (REAL)(1 - options->beta2);
	const REAL rate = (REAL)-options->learning_rate;
	REAL *__restrict p = master;
	REAL *__restrict m = moments[0];
	const REAL *__restrict g = gradient;
	CPU_INDEPENDENT
	for (size_t i = 0; i < count; i++) {
		REAL u = m[i] * beta1 + rest1 * g[i];
		REAL sign = (REAL)(u > 0 ? 1 : 0) - (REAL)(u < 0 ? 1 : 0);
		p[i] = p[i] * keep + rate * sign;
		m[i] = m[i] * beta2 + rest2 * g[i];
	}
}
