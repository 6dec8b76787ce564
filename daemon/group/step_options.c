/*
 * The hyper-parameters of a step, its own and those of its groups: how they travel, and how two votes differ. Owns
 * nothing. The loop thread runs it.
 */
#include "daemon/group/model.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(OPTIMIZER_GROUPS_MAX == PEER_GROUPS_MAX, "a message holds the groups of a step");

/* ---- On the wire ---- */

struct peer_options step_options_write(const struct optimizer_options *options)
{
	return (struct peer_options){
		.learning_rate = options->learning_rate,
		.momentum = options->momentum,
		.dampening = options->dampening,
		.weight_decay = options->weight_decay,
		.beta1 = options->beta1,
		.beta2 = options->beta2,
		.epsilon = options->epsilon,
		.alpha = options->alpha,
		.learning_rate_decay = options->learning_rate_decay,
		.initial_accumulator = options->initial_accumulator,
	};
}

struct optimizer_options step_options_read(const struct peer_options *options)
{
	return (struct optimizer_options){
		.learning_rate = options->learning_rate,
		.momentum = options->momentum,
		.dampening = options->dampening,
		.weight_decay = options->weight_decay,
		.beta1 = options->beta1,
		.beta2 = options->beta2,
		.epsilon = options->epsilon,
		.alpha = options->alpha,
		.learning_rate_decay = options->learning_rate_decay,
		.initial_accumulator = options->initial_accumulator,
	};
}

void step_groups_write(const struct optimizer_groups *groups, struct peer_group *rows, struct peer_message *message)
{
	for (uint32_t i = 0; i < groups->count; i++) {
		const struct optimizer_options *from = &groups->options[i];
		rows[i] = (struct peer_group){
			.group = groups->groups[i],
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
	}
	message->groups = rows;
	message->group_count = groups->count;
}

void step_groups_read(const struct peer_message *message, struct optimizer_groups *ret_groups)
{
	memset(ret_groups, 0, sizeof(*ret_groups));
	ret_groups->count = (uint32_t)message->group_count;
	for (size_t i = 0; i < message->group_count; i++) {
		const struct peer_group *from = &message->groups[i];
		ret_groups->groups[i] = from->group;
		ret_groups->options[i] = (struct optimizer_options){
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
	}
}

/* ---- Differences ---- */

struct option_row {
	const char *name;
	size_t offset;
	bool whole; /* a number of 64 bits, and else a double */
};

static const struct option_row OPTIONS[] = {
	{ "learning_rate", offsetof(struct optimizer_options, learning_rate), false },
	{ "momentum", offsetof(struct optimizer_options, momentum), false },
	{ "dampening", offsetof(struct optimizer_options, dampening), false },
	{ "weight_decay", offsetof(struct optimizer_options, weight_decay), false },
	{ "beta1", offsetof(struct optimizer_options, beta1), false },
	{ "beta2", offsetof(struct optimizer_options, beta2), false },
	{ "epsilon", offsetof(struct optimizer_options, epsilon), false },
	{ "alpha", offsetof(struct optimizer_options, alpha), false },
	{ "learning_rate_decay", offsetof(struct optimizer_options, learning_rate_decay), false },
	{ "initial_accumulator", offsetof(struct optimizer_options, initial_accumulator), false },
};

static const struct option_row RULES[] = {
	{ "norm_kind", offsetof(struct step_rules, norm_kind), true },
	{ "max_norm", offsetof(struct step_rules, max_norm), false },
	{ "loss_scale", offsetof(struct step_rules, loss_scale), false },
	{ "growth_factor", offsetof(struct step_rules, growth_factor), false },
	{ "backoff_factor", offsetof(struct step_rules, backoff_factor), false },
	{ "growth_interval", offsetof(struct step_rules, growth_interval), true },
	{ "min_scale", offsetof(struct step_rules, min_scale), false },
};

/* The shortest digits that name the number. */
static void number_write(const struct option_row *row, const void *values, char *text, size_t size)
{
	const char *at = (const char *)values + row->offset;
	double number;
	uint64_t whole;

	memcpy(&number, at, sizeof(number));
	memcpy(&whole, at, sizeof(whole));
	if (row->whole)
		snprintf(text, size, "%" PRIu64, whole);
	for (int digits = 1; digits <= 17 && !row->whole; digits++) {
		snprintf(text, size, "%.*g", digits, number);
		if (strtod(text, NULL) == number)
			return;
	}
}

/* What two ranks passed, in rows of 8 bytes each; a group of 0 is the step itself. */
struct pair {
	uint64_t step;
	uint32_t rank[2];
	uint32_t group;
	const void *values[2];
};

static bool rows_differ(const struct option_row *rows, size_t count, const struct pair *pair, char *text, size_t size)
{
	for (size_t i = 0; i < count; i++) {
		char group[32] = "", numbers[2][32];
		if (memcmp((const char *)pair->values[0] + rows[i].offset,
			   (const char *)pair->values[1] + rows[i].offset, sizeof(double)) == 0)
			continue;
		for (int side = 0; side < 2; side++)
			number_write(&rows[i], pair->values[side], numbers[side], sizeof(numbers[side]));
		if (pair->group)
			snprintf(group, sizeof(group), " for group %" PRIu32, pair->group);
		snprintf(text, size, "step %" PRIu64 ": rank %" PRIu32 " passed %s %s%s, rank %" PRIu32 " %s",
			 pair->step, pair->rank[0], rows[i].name, numbers[0], group, pair->rank[1], numbers[1]);
		return true;
	}
	return false;
}

#define ROWS(array) array, sizeof(array) / sizeof((array)[0])

/* Where only one rank has numbers for a group, the other uses its step's own. */
static bool groups_differ(const struct ballot *first, const struct ballot *second, struct pair *pair, char *text,
			  size_t size)
{
	uint32_t i = 0, k = 0;

	while (i < first->groups.count || k < second->groups.count) {
		uint64_t ours = i < first->groups.count ? first->groups.groups[i] : UINT64_MAX;
		uint64_t theirs = k < second->groups.count ? second->groups.groups[k] : UINT64_MAX;
		pair->group = (uint32_t)(ours < theirs ? ours : theirs);
		pair->values[0] = ours <= theirs ? &first->groups.options[i] : &first->options;
		pair->values[1] = theirs <= ours ? &second->groups.options[k] : &second->options;
		if (rows_differ(ROWS(OPTIONS), pair, text, size))
			return true;
		i += ours <= theirs;
		k += theirs <= ours;
	}
	return false;
}

bool options_differ(const struct model *model, uint32_t a, uint32_t b, char *text, size_t size)
{
	static const char *const commits[] = {
		[COMMIT_OPTIMIZER] = "the optimizer", [COMMIT_STAGING] = "the staging copy"
	};
	const struct ballot *first = &model->ballots[a], *second = &model->ballots[b];
	struct pair pair = { .step = model->step, .rank = { a, b }, .values = { &first->options, &second->options } };

	if (first->commit != second->commit) {
		snprintf(text, size, "step %" PRIu64 ": rank %" PRIu32 " commits %s, rank %" PRIu32 " %s", model->step,
			 a, commits[first->commit], b, commits[second->commit]);
		return true;
	}
	if (rows_differ(ROWS(OPTIONS), &pair, text, size))
		return true;
	pair.values[0] = &first->rules;
	pair.values[1] = &second->rules;
	if (rows_differ(ROWS(RULES), &pair, text, size))
		return true;
	return groups_differ(first, second, &pair, text, size);
}
