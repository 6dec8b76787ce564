/*
 * Adagrad in PyTorch's order of operations (t is the number of this update, from 1):
 *
 *     g = g + weight_decay * p                            (where weight_decay is not 0)
 *     sum = initial_accumulator                           before the first step
 *     sum = sum + g * g
 *     rate = learning_rate / (1 + (t - 1) * learning_rate_decay)
 *     p = p + (-rate * g) / (sqrt(sum) + epsilon)
 *
 * A rule for REAL (update.h): scalars are computed in double and rounded to REAL once.
 */

struct RULE(adagrad_scalars) {
	REAL weight_decay, initial, epsilon, rate;
};

/* decay and first are constants in every call. */
UPDATE_INLINE void RULE(adagrad_loop)(struct RULE(adagrad_scalars) s, REAL *__restrict p, const REAL *__restrict g,
				      REAL *__restrict sum, size_t count, bool decay, bool first)
{
	CPU_INDEPENDENT
	for (size_t i = 0; i < count; i++) {
		REAL d = decay ? g[i] + s.weight_decay * p[i] : g[i];
		sum[i] = (first ? s.initial : sum[i]) + d * d;
		p[i] = p[i] + (s.rate * d) / (REAL_SQRT(sum[i]) + s.epsilon);
	}
}

void RULE(adagrad_update)(const struct optimizer_spec *spec, const struct optimizer_options *options, uint64_t step,
			  REAL *master, const REAL *gradient, REAL *const moments[OPTIMIZER_MOMENTS_MAX], size_t count)
{
	(void)spec;
	const double past = (double)(step - 1);
	const struct RULE(adagrad_scalars) s = {
		.weight_decay = (REAL)options->weight_decay,
		.initial = (REAL)options->initial_accumulator,
		.epsilon = (REAL)options->epsilon,
		.rate = (REAL) - (options->learning_rate / (1 + past * options->learning_rate_decay)),
	};
	REAL *sum = moments[0];
	assert(sum);
	switch ((options->weight_decay != 0 ? 2 : 0) + (step == 1 ? 1 : 0)) {
	case 0:
		RULE(adagrad_loop)(s, master, gradient, sum, count, false, false);
		break;
	case 1:
		RULE(adagrad_loop)(s, master, gradient, sum, count, false, true);
		break;
	case 2:
		RULE(adagrad_loop)(s, master, gradient, sum, count, true, false);
		break;
	case 3:
		RULE(adagrad_loop)(s, master, gradient, sum, count, true, true);
		break;
	}
}
