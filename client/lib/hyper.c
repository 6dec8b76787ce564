/*
 * Hyper-parameters: one table says the name of each, which optimizers use it, and its range, so that what the daemon
 * would refuse is said before anybody votes. Pure.
 */
#include "client/lib/hyper.h"

#include <float.h>
#include <math.h>

#include "client/lib/fault.h"

#define USED_BY(name) (1u << FSDP_OPTIMIZER_##name)

int hyper_check(enum fsdp_optimizer optimizer, const struct fsdp_step *step)
{
	const unsigned momentum = USED_BY(SGD) | USED_BY(RMSPROP);
	const unsigned betas = USED_BY(ADAM) | USED_BY(ADAMW) | USED_BY(LION);
	const unsigned epsilon = USED_BY(ADAM) | USED_BY(ADAMW) | USED_BY(ADAGRAD) | USED_BY(RMSPROP);
	const double below_1 = nextafter(1, 0);
	const double finite = DBL_MAX;
	const struct {
		const char *name;
		unsigned used_by;
		double value, least, most;
	} rows[] = {
		{ "learning_rate", ~0u, step->learning_rate, 0, finite },
		{ "momentum", momentum, step->momentum, 0, finite },
		{ "dampening", USED_BY(SGD), step->dampening, -finite, finite },
		{ "weight_decay", ~0u, step->weight_decay, 0, finite },
		{ "beta1", betas, step->beta1, 0, below_1 },
		{ "beta2", betas, step->beta2, 0, below_1 },
		{ "epsilon", epsilon, step->epsilon, 0, finite },
		{ "alpha", USED_BY(RMSPROP), step->alpha, 0, 1 },
		{ "learning_rate_decay", USED_BY(ADAGRAD), step->learning_rate_decay, 0, finite },
		{ "initial_accumulator", USED_BY(ADAGRAD), step->initial_accumulator, 0, finite },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if ((rows[i].used_by >> optimizer & 1) &&
		    !(rows[i].value >= rows[i].least && rows[i].value <= rows[i].most))
			return fault_set(FSDP_E_INVALID, "fsdp_model_step: step: %s is %g, which is out of its range",
					 rows[i].name, rows[i].value);
	return 0;
}

struct worker_hyper hyper_of(const struct fsdp_step *step)
{
	return (struct worker_hyper){
		.learning_rate = step->learning_rate,
		.momentum = step->momentum,
		.dampening = step->dampening,
		.weight_decay = step->weight_decay,
		.beta1 = step->beta1,
		.beta2 = step->beta2,
		.epsilon = step->epsilon,
		.alpha = step->alpha,
		.learning_rate_decay = step->learning_rate_decay,
		.initial_accumulator = step->initial_accumulator,
		.norm_kind = step->norm_kind,
		.max_norm = step->max_norm,
		.loss_scale = step->loss_scale,
		.growth_factor = step->growth_factor,
		.backoff_factor = step->backoff_factor,
		.growth_interval = step->growth_interval,
		.min_scale = step->min_scale,
	};
}
