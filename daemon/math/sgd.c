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
 * Scalars are computed in double and rounded to float once. Pure; any thread.
 */
#include "daemon/math/update.h"

#include <assert.h>

struct sgd_scalars {
	float weight_decay, momentum, undamped, rate;
};

static void sgd_plain(struct sgd_scalars s, float *__restrict p, const float *__restrict g, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		p[i] = p[i] + s.rate * g[i];
	}
}

static void sgd_decay(struct sgd_scalars s, float *__restrict p, const float *__restrict g, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		float d = g[i] + s.weight_decay * p[i];
		p[i] = p[i] + s.rate * d;
	}
}

/* first, nesterov and decay are constants in every call. */
static inline __attribute__((always_inline)) void sgd_momentum(struct sgd_scalars s, float *__restrict p,
							       const float *__restrict g, float *__restrict buffer,
							       size_t count, bool decay, bool first, bool nesterov)
{
	for (size_t i = 0; i < count; i++) {
		float d = decay ? g[i] + s.weight_decay * p[i] : g[i];
		float b = first ? d : s.momentum * buffer[i] + s.undamped * d;
		buffer[i] = b;
		d = nesterov ? d + s.momentum * b : b;
		p[i] = p[i] + s.rate * d;
	}
}

void sgd_update_f32(const struct optimizer_spec *spec, const struct optimizer_options *options, uint64_t step,
		    float *master, const float *gradient, float *const moments[OPTIMIZER_MOMENTS_MAX], size_t count)
{
	const struct sgd_scalars s = { .weight_decay = (float)options->weight_decay,
				       .momentum = (float)options->momentum,
				       .undamped = (float)(1 - options->dampening),
				       .rate = (float)-options->learning_rate };
	bool decay = options->weight_decay != 0;
	bool first = step == 1;
	if (!spec->momentum) {
		(decay ? sgd_decay : sgd_plain)(s, master, gradient, count);
		return;
	}
	float *buffer = moments[0];
	assert(buffer);
	switch ((decay ? 4 : 0) + (first ? 2 : 0) + (spec->nesterov ? 1 : 0)) {
	case 0:
		sgd_momentum(s, master, gradient, buffer, count, false, false, false);
		break;
	case 1:
		sgd_momentum(s, master, gradient, buffer, count, false, false, true);
		break;
	case 2:
		sgd_momentum(s, master, gradient, buffer, count, false, true, false);
		break;
	case 3:
		sgd_momentum(s, master, gradient, buffer, count, false, true, true);
		break;
	case 4:
		sgd_momentum(s, master, gradient, buffer, count, true, false, false);
		break;
	case 5:
		sgd_momentum(s, master, gradient, buffer, count, true, false, true);
		break;
	case 6:
		sgd_momentum(s, master, gradient, buffer, count, true, true, false);
		break;
	case 7:
		sgd_momentum(s, master, gradient, buffer, count, true, true, true);
		break;
	}
}
