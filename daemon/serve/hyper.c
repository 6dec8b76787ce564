/*
 * Takes the numbers of a step out of a worker's request and checks them against the model's optimizer, so that nobody
 * votes on what makes no sense. Pure.
 */
#include "daemon/serve/hyper.h"

#include <stdio.h>
#include <string.h>

#include "fsdp/error.h"

_Static_assert(OPTIMIZER_GROUPS_MAX == WORKER_GROUPS_MAX, "a request holds the groups of a step");

static int refuse(uint32_t group, const char *why, char *text)
{
	if (group)
		snprintf(text, WORKER_TEXT_MAX + 1, "step: group %u: %s", group, why);
	else
		snprintf(text, WORKER_TEXT_MAX + 1, "step: %s", why);
	return FSDP_E_INVALID;
}

static int read_groups(const struct worker_message *message, struct optimizer_groups *groups, char *text)
{
	for (size_t i = 0; i < message->group_count; i++) {
		const struct worker_group *from = &message->groups[i];
		const struct optimizer_options options = {
			.learning_rate = from->learning_rate,
			.momentum = from->momentum,
			.dampening = from->dampening,
			.weight_decay = from->weight_decay,
			.beta1 = from->beta1,
			.beta2 = from->beta2,
			.epsilon = from->epsilon,
			.alpha = from->alpha,
			.learning_rate_decay = from->learning_rate_decay,
			.initial_accumulator = from->initial_accumulator,
		};
		const char *why;
		if (optimizer_groups_add(groups, from->group, &options, &why) < 0)
			return refuse(from->group, why, text);
	}
	return 0;
}

static struct step_rules read_rules(const struct worker_hyper *from)
{
	return (struct step_rules){
		.norm_kind = from->norm_kind,
		.max_norm = from->max_norm,
		.loss_scale = from->loss_scale,
		.growth_factor = from->growth_factor,
		.backoff_factor = from->backoff_factor,
		.growth_interval = from->growth_interval,
		.min_scale = from->min_scale,
	};
}

int hyper_read(const struct worker_message *message, const struct optimizer_spec *spec, struct hyper *ret_hyper,
	       char *text)
{
	const struct worker_hyper *from = &message->hyper;
	const char *why;
	uint32_t group = 0;

	memset(ret_hyper, 0, sizeof(*ret_hyper));
	ret_hyper->options = (struct optimizer_options){
		.learning_rate = from->learning_rate,
		.momentum = from->momentum,
		.dampening = from->dampening,
		.weight_decay = from->weight_decay,
		.beta1 = from->beta1,
		.beta2 = from->beta2,
		.epsilon = from->epsilon,
		.alpha = from->alpha,
		.learning_rate_decay = from->learning_rate_decay,
		.initial_accumulator = from->initial_accumulator,
	};
	ret_hyper->rules = read_rules(from);
	if (spec && optimizer_check(spec, &ret_hyper->options, &why) < 0)
		return refuse(0, why, text);
	int code = read_groups(message, &ret_hyper->groups, text);
	if (code == 0 && spec && optimizer_groups_check(spec, &ret_hyper->groups, &group, &why) < 0)
		return refuse(group, why, text);
	return code;
}
