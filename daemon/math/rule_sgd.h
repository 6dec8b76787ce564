/*
 * Stochastic gradient descent, with weight decay, momentum, dampening and Nesterov, in PyTorch's order of operations:
 *
 *     d = g + weight_decay * p                            (where weight_decay is not 0)
 *     buffer = d                                          at the first step
 *     buffer = momentum * buffer + (1 - dampening) * d    afterwards
 *     d = d + momentum * buffer                           Nesterov
 *     d = buffer                                          else
 *     p = p + -learning_rate * d
 *
 * A rule for REAL (update.h): scalars are computed in double and rounded to REAL once.
 */

struct RULE(sgd_scalars) {
	REAL weight_decay, momentum, undamped, rate;
};

static void RULE(sgd_plain)(struct RULE(sgd_scalars) s, REAL *__restrict p, const REAL *__restrict g, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		p[i] = p[i] + s.rate * g[i];
	}
}

static void RULE(sgd_decay)(struct RULE(sgd_scalars) s, REAL *__restrict p, const REAL *__restrict g, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		REAL d = g[i] + s.weight_decay * p[i];
		p[i] = p[i] + s.rate * d;
	}
}

/* decay, first and nesterov are constants in every call. */
UPDATE_INLINE void RULE(sgd_momentum)(struct RULE(sgd_scalars) s, REAL *__restrict p, const REAL *__restrict g,
				      REAL *__restrict buffer, size_t count, bool decay, bool first, bool nesterov)
{
	for (size_t i = 0; i < count; i++) {
		REAL d = decay ? g[i] + s.weight_decay * p[i] : g[i];
		REAL b = first ? d : s.momentum * buffer[i] + s.undamped * d;
		buffer[i] = b;
		d = nesterov ? d + s.momentum * b : b;
		p[i] = p[i] + s.rate * d;
	}
}

void RULE(sgd_update)(const struct optimizer_spec *spec, const struct optimizer_options *options, uint64_t step,
		      REAL *master, const REAL *gradient, REAL *const moments[OPTIMIZER_MOMENTS_MAX], size_t count)
{
	const struct RULE(sgd_scalars) s = { .weight_decay = (REAL)options->weight_decay,
					     .momentum = (REAL)options->momentum,
					     .undamped = (REAL)(1 - options->dampening),
					     .rate = (REAL)-options->learning_rate };
	bool decay = options->weight_decay != 0;
	bool first = step == 1;
	if (!spec->momentum) {
		(decay ? RULE(sgd_decay) : RULE(sgd_plain))(s, master, gradient, count);
		return;
	}
	REAL *buffer = moments[0];
	assert(buffer);
	switch ((decay ? 4 : 0) + (first ? 2 : 0) + (spec->nesterov ? 1 : 0)) {
	case 0:
		RULE(sgd_momentum)(s, master, gradient, buffer, count, false, false, false);
		break;
	case 1:
		RULE(sgd_momentum)(s, master, gradient, buffer, count, false, false, true);
		break;
	case 2:
		RULE(sgd_momentum)(s, master, gradient, buffer, count, false, true, false);
		break;
	case 3:
		RULE(sgd_momentum)(s, master, gradient, buffer, count, false, true, true);
		break;
	case 4:
		RULE(sgd_momentum)(s, master, gradient, buffer, count, true, false, false);
		break;
	case 5:
		RULE(sgd_momentum)(s, master, gradient, buffer, count, true, false, true);
		break;
	case 6:
		RULE(sgd_momentum)(s, master, gradient, buffer, count, true, true, false);
		break;
	case 7:
		RULE(sgd_momentum)(s, master, gradient, buffer, count, true, true, true);
		break;
	}
}
