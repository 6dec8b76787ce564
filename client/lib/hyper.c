/*
 * Hyper-parameters: one table says the name of each, which optimizers use it, and its range, so that what the daemon
 * would refuse is said before anybody votes. Pure.
 */
#include "client/lib/hyper.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "client/lib/fault.h"

#define BELOW_1 (1 - DBL_EPSILON / 2)

#define USED_BY(name) (1u << FSDP_OPTIMIZER_##name)
#define BETAS (USED_BY(ADAM) | USED_BY(ADAMW) | USED_BY(LION))
#define EPSILON (USED_BY(ADAM) | USED_BY(ADAMW) | USED_BY(ADAGRAD) | USED_BY(RMSPROP))

_Static_assert(FSDP_STEP_GROUPS_MAX == WORKER_GROUPS_MAX, "a request holds the groups of a step");

static const struct {
	const char *name;
	size_t offset;
	unsigned used_by;
	double least, most;
} hyper_rows[] = {
	{ "learning_rate", offsetof(struct worker_group, learning_rate), ~0u, 0, DBL_MAX },
	{ "momentum", offsetof(struct worker_group, momentum), USED_BY(SGD) | USED_BY(RMSPROP), 0, DBL_MAX },
	{ "dampening", offsetof(struct worker_group, dampening), USED_BY(SGD), -DBL_MAX, DBL_MAX },
	{ "weight_decay", offsetof(struct worker_group, weight_decay), ~0u, 0, DBL_MAX },
	{ "beta1", offsetof(struct worker_group, beta1), BETAS, 0, BELOW_1 },
	{ "beta2", offsetof(struct worker_group, beta2), BETAS, 0, BELOW_1 },
	{ "epsilon", offsetof(struct worker_group, epsilon), EPSILON, 0, DBL_MAX },
	{ "alpha", offsetof(struct worker_group, alpha), USED_BY(RMSPROP), 0, 1 },
	{ "learning_rate_decay", offsetof(struct worker_group, learning_rate_decay), USED_BY(ADAGRAD), 0, DBL_MAX },
	{ "initial_accumulator", offsetof(struct worker_group, initial_accumulator), USED_BY(ADAGRAD), 0, DBL_MAX },
};

static int hyper_check_rows(enum fsdp_optimizer optimizer, const struct worker_group *numbers)
{
	for (size_t i = 0; i < sizeof(hyper_rows) / sizeof(hyper_rows[0]); i++) {
		double value = *(const double *)(const void *)((const char *)numbers + hyper_rows[i].offset);
		char group[32] = "";
		if (!(hyper_rows[i].used_by >> optimizer & 1) ||
		    (value >= hyper_rows[i].least && value <= hyper_rows[i].most))
			continue;
		if (numbers->group)
			snprintf(group, sizeof(group), " group %u:", numbers->group);
		return fault_set(FSDP_E_INVALID, "fsdp_model_step: step:%s %s is %g, which is out of its range", group,
				 hyper_rows[i].name, value);
	}
	return 0;
}

static struct worker_group hyper_own(const struct fsdp_step *step)
{
	return (struct worker_group){
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
	};
}

static struct worker_group hyper_group(const struct fsdp_step_group *group)
{
	return (struct worker_group){
		.group = group->group,
		.learning_rate = group->learning_rate,
		.momentum = group->momentum,
		.dampening = group->dampening,
		.weight_decay = group->weight_decay,
		.beta1 = group->beta1,
		.beta2 = group->beta2,
		.epsilon = group->epsilon,
		.alpha = group->alpha,
		.learning_rate_decay = group->learning_rate_decay,
		.initial_accumulator = group->initial_accumulator,
	};
}

static int hyper_check_groups(enum fsdp_optimizer optimizer, const struct fsdp_step *step)
{
	if (step->group_count > FSDP_STEP_GROUPS_MAX)
		return fault_set(FSDP_E_INVALID, "fsdp_model_step: step: group_count is %zu, %d are the most",
				 step->group_count, FSDP_STEP_GROUPS_MAX);
	if (step->group_count > 0 && !step->groups)
		return fault_set(FSDP_E_INVALID, "fsdp_model_step: step: groups is NULL, but group_count is %zu",
				 step->group_count);
	for (size_t i = 0; i < step->group_count; i++) {
		const struct fsdp_step_group *group = &step->groups[i];
		struct worker_group numbers = hyper_group(group);
		if (group->size != sizeof(*group))
			return fault_set(
				FSDP_E_INVALID,
				"fsdp_model_step: step: groups[%zu]: size is not that of this version's struct "
				"(begin with FSDP_STEP_GROUP_INIT)",
				i);
		if (group->group == 0)
			return fault_set(
				FSDP_E_INVALID,
				"fsdp_model_step: step: groups[%zu] is group 0, whose numbers are the step's own", i);
		for (size_t k = 0; k < i; k++)
			if (step->groups[k].group == group->group)
				return fault_set(FSDP_E_INVALID, "fsdp_model_step: step: group %u is given twice",
						 group->group);
		int code = hyper_check_rows(optimizer, &numbers);
		if (code < 0)
			return code;
	}
	return 0;
}

int hyper_check(enum fsdp_optimizer optimizer, const struct fsdp_step *step)
{
	struct worker_group own = hyper_own(step);
	int code = hyper_check_rows(optimizer, &own);
	return code < 0 ? code : hyper_check_groups(optimizer, step);
}

void hyper_groups(const struct fsdp_step *step, struct worker_group *rows, struct worker_message *request)
{
	for (size_t i = 0; i < step->group_count; i++)
		rows[i] = hyper_group(&step->groups[i]);
	request->groups = rows;
	request->group_count = step->group_count;
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
