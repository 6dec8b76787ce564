/*
 * RMSprop, plain or centered, with or without momentum, in PyTorch's order of operations:
 *
 *     g = g + weight_decay * p                            (where weight_decay is not 0)
 *     square = square * alpha + ((1 - alpha) * g) * g
 *     mean = mean * alpha + (1 - alpha) * g               centered
 *     average = sqrt(square - mean * mean) + epsilon      centered
 *     average = sqrt(square) + epsilon                    else
 *     buffer = buffer * momentum + g / average            (where momentum is above 0)
 *     p = p + -learning_rate * buffer
 *     p = p + (-learning_rate * g) / average              else
 *
 * A rule for REAL (update.h): scalars are computed in double and rounded to REAL once. Moments, in this order and
 * zero before the first step: square, mean (centered), buffer (momentum).
 */

struct RULE(rmsprop_scalars) {
	REAL weight_decay, alpha, rest, epsilon, momentum, rate;
};

/* decay, centered and buffered are constants in every call. */
UPDATE_INLINE void RULE(rmsprop_loop)(struct RULE(rmsprop_scalars) s, REAL *__restrict p, const REAL *__restrict g,
				      REAL *__restrict square, REAL *__restrict mean, REAL *__restrict buffer,
				      size_t count, bool decay, bool centered, bool buffered)
{
	CPU_INDEPENDENT
	for (size_t i = 0; i < count; i++) {
		REAL d = decay ? g[i] + s.weight_decay * p[i] : g[i];
		REAL average = square[i] * s.alpha + (s.rest * d) * d;
		square[i] = average;
		if (centered) {
			REAL moved = mean[i] * s.alpha + s.rest * d;
			mean[i] = moved;
			average = average - moved * moved;
		}
		average = REAL_SQRT(average) + s.epsilon;
		if (buffered) {
			REAL b = buffer[i] * s.momentum + d / average;
			buffer[i] = b;
			p[i] = p[i] + s.rate * b;
		} else {
			p[i] = p[i] + (s.rate * d) / average;
		}
	}
}

void RULE(rmsprop_update)(const struct optimizer_spec *spec, const struct optimizer_options *options, uint64_t step,
			  REAL *master, const REAL *gradient, REAL *const moments[OPTIMIZER_MOMENTS_MAX], size_t count)
{
	(void)step;
	const struct RULE(rmsprop_scalars) s = { .weight_decay = (REAL)options->weight_decay,
						 .alpha = (REAL)options->alpha,
						 .rest = (REAL)(1 - options->alpha),
						 .epsilon = (REAL)options->epsilon,
						 .momentum = (REAL)options->momentum,
						 .rate = (REAL)-options->learning_rate };
	bool decay = options->weight_decay != 0;
	bool buffered = spec->momentum && options->momentum > 0;
	REAL *square = moments[0];
	REAL *mean = spec->centered ? moments[1] : NULL;
	REAL *buffer = buffered ? moments[spec->centered ? 2 : 1] : NULL;
	assert(square && (mean || !spec->centered) && (buffer || !buffered));
	switch ((decay ? 4 : 0) + (spec->centered ? 2 : 0) + (buffered ? 1 : 0)) {
	case 0:
		RULE(rmsprop_loop)(s, master, gradient, square, mean, buffer, count, false, false, false);
		break;
	case 1:
		RULE(rmsprop_loop)(s, master, gradient, square, mean, buffer, count, false, false, true);
		break;
	case 2:
		RULE(rmsprop_loop)(s, master, gradient, square, mean, buffer, count, false, true, false);
		break;
	case 3:
		RULE(rmsprop_loop)(s, master, gradient, square, mean, buffer, count, false, true, true);
		break;
	case 4:
		RULE(rmsprop_loop)(s, master, gradient, square, mean, buffer, count, true, false, false);
		break;
	case 5:
		RULE(rmsprop_loop)(s, master, gradient, square, mean, buffer, count, true, false, true);
		break;
	case 6:
		RULE(rmsprop_loop)(s, master, gradient, square, mean, buffer, count, true, true, false);
		break;
	case 7:
		RULE(rmsprop_loop)(s, master, gradient, square, mean, buffer, count, true, true, true);
		break;
	}
}
