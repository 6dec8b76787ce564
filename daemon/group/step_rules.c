/*
 * What happens to a gradient before the optimizer, as far as the group decides it: whether the rules of a step make
 * sense, the norm and the clip factor of all ranks together, and the next loss scale. Owns nothing. The loop thread
 * runs it.
 */
#include "daemon/group/model.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/math/norm.h"
#include "daemon/runtime/planted.h"
#include "fsdp/error.h"

#define NAMED_UNITS_MAX 8

_Static_assert(sizeof(struct step_rules) == 7 * 8, "two rules are compared as memory");

/* ---- Whether they make sense ---- */

static int refuse(char *text, const char *why)
{
	snprintf(text, CALL_TEXT_MAX, "%s", why);
	return FSDP_E_INVALID;
}

int rules_check(const struct step_rules *rules, char *text)
{
	if (rules->norm_kind > NORM_INF)
		return refuse(text, "norm_kind is none that exists");
	if (!isfinite(rules->max_norm) || rules->max_norm < 0)
		return refuse(text, "max_norm must be finite and not negative");
	if (rules->max_norm > 0 && rules->norm_kind == NORM_NONE)
		return refuse(text, "max_norm needs a norm_kind");
	if (rules->loss_scale == 0)
		return 0;
	if (!(rules->loss_scale >= (double)FLT_MIN && rules->loss_scale <= (double)FLT_MAX))
		return refuse(text, "loss_scale must be 0 or a positive number that an f32 can hold");
	if (!(rules->growth_factor >= 1) || !isfinite(rules->growth_factor))
		return refuse(text, "growth_factor must be finite and at least 1");
	if (!(rules->backoff_factor > 0 && rules->backoff_factor <= 1))
		return refuse(text, "backoff_factor must be above 0 and at most 1");
	if (!isfinite(rules->min_scale) || rules->min_scale < 0)
		return refuse(text, "min_scale must be finite and not negative");
	return 0;
}

/* ---- On the wire ---- */

struct peer_rules rules_write(const struct step_rules *rules)
{
	return (struct peer_rules){ .norm_kind = rules->norm_kind,
				    .max_norm = rules->max_norm,
				    .loss_scale = rules->loss_scale,
				    .growth_factor = rules->growth_factor,
				    .backoff_factor = rules->backoff_factor,
				    .growth_interval = rules->growth_interval,
				    .min_scale = rules->min_scale };
}

struct step_rules rules_read(const struct peer_rules *rules)
{
	return (struct step_rules){ .norm_kind = rules->norm_kind,
				    .max_norm = rules->max_norm,
				    .loss_scale = rules->loss_scale,
				    .growth_factor = rules->growth_factor,
				    .backoff_factor = rules->backoff_factor,
				    .growth_interval = rules->growth_interval,
				    .min_scale = rules->min_scale };
}

/* ---- For people ---- */

void rules_name_units(const struct model *model, const uint8_t *bits, char *text, size_t size)
{
	uint32_t count = 0, named = 0;
	size_t at = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < model->unit_count && bits; i++) {
		size_t length = strlen(model_unit_name(model, i));
		if (!bits_get(bits, i))
			continue;
		count++;
		/* room for the quotes, the comma, and how many more there are */
		if (named == NAMED_UNITS_MAX || at + length + 64 > size)
			continue;
		at += (size_t)snprintf(text + at, size - at, "%s\"%s\"", named++ ? ", " : "unit ",
				       model_unit_name(model, i));
	}
	if (count > named)
		snprintf(text + at, size - at, "%s%" PRIu32 "%s", named ? " and " : "", count - named,
			 named ? " more" : " units");
	if (count == 0)
		snprintf(text, size, "no unit that was named");
}

/* ---- What the coordinator decides ---- */

/* The ranks' parts in the order of ranks. */
static double whole_norm(const struct model *model, uint64_t kind)
{
	double squares = 0, largest = 0;

	for (uint32_t rank = 0; rank < model->group->config.world_size; rank++) {
		uint32_t from = PLANTED(PLANTED_NORM_ORDER) ? model->group->config.world_size - 1 - rank : rank;
		double part = model->ballots[from].norm;
		squares += part;
		if (isnan(part) || part > largest)
			largest = part;
	}
	return kind == NORM_2 ? sqrt(squares) : kind == NORM_INF ? largest : 0;
}

static void back_off(const struct model *model, struct decision *decision)
{
	const struct step_rules *rules = &decision->rules;
	double next = rules->loss_scale * rules->backoff_factor;
	char units[PEER_TEXT_MAX / 2];

	decision->good_steps = 0;
	decision->next_scale = next < rules->min_scale ? rules->min_scale : next;
	if (decision->next_scale < (double)FLT_MIN)
		decision->next_scale = rules->loss_scale; /* there is no smaller one */
	if (rules->loss_scale > rules->min_scale)
		return;
	decision->next_scale = rules->loss_scale;
	decision->code = FSDP_E_STATE;
	rules_name_units(model, decision->bad, units, sizeof(units));
	snprintf(decision->text, sizeof(decision->text),
		 "model \"%.128s\" step %" PRIu64
		 ": the gradient is not finite of %s, at loss scale %g, and min_scale is "
		 "%g: the step was skipped",
		 model->name, decision->step, units, rules->loss_scale, rules->min_scale);
}

static void grow(const struct model *model, struct decision *decision)
{
	const struct step_rules *rules = &decision->rules;
	double next = rules->loss_scale * rules->growth_factor;

	decision->good_steps = model->good_steps + 1;
	if (rules->growth_interval == 0 || decision->good_steps < rules->growth_interval)
		return;
	decision->good_steps = 0;
	if (next <= (double)FLT_MAX)
		decision->next_scale = next;
}

void rules_decide(const struct model *model, struct decision *decision)
{
	const struct step_rules *rules = &decision->rules;

	decision->norm = whole_norm(model, rules->norm_kind);
	decision->clip = 1;
	decision->next_scale = rules->loss_scale;
	decision->good_steps = model->good_steps;
	if (decision->commit == COMMIT_STAGING)
		return;
	if (decision->outcome == PEER_APPLY && rules->max_norm > 0)
		decision->clip = norm_clip_factor(decision->norm, rules->max_norm);
	if (rules->loss_scale == 0)
		decision->good_steps = 0;
	else if (!decision->finite)
		back_off(model, decision);
	else if (decision->outcome == PEER_APPLY)
		grow(model, decision);
}
