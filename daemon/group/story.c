/*
 * What a call waits for, for people: the operation, the unit, the ranks. Owns nothing, changes nothing. The loop thread
 * runs it.
 */
#include "daemon/group/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/group/model.h"

/* What the engine said it waits for: of one unit, or, where unit is UINT32_MAX, of the first that it named. */
static void from_engine(const struct model *model, enum wait_op op, uint32_t unit, struct story *story)
{
	for (uint32_t i = 0; i < model->wait_count; i++) {
		const struct wait *wait = &model->waits[i];
		if (wait->op != op || (unit != UINT32_MAX && wait->unit != unit))
			continue;
		unit = wait->unit;
		story->unit = model_unit_name(model, unit);
		rank_list_add(&story->ranks, wait->rank);
	}
}

static void of_attach(struct group *group, const struct call *call, struct story *story)
{
	const struct model *model = call->worker->model;

	story->op = "seal";
	if (call->worker->state == WORKER_WAITS_GONE) {
		story->op = "drop of the model before";
	} else if (model && call->worker->state == WORKER_WAITS_DECISION) {
		story->op = "decision on the step before";
		story->ranks = model->vote_awaited;
		if (group_coordinates(group))
			votes_lacking(model, &story->ranks);
	} else if (model && group->generation != 0) {
		if (group_coordinates(group))
			seals_lacking(group, model->name, &story->ranks);
		else
			story->ranks = model->seal_awaited;
	}
}

static void of_unit(struct group *group, const struct call *call, struct story *story)
{
	const struct model *model = call->worker->model;
	(void)group;

	story->op = "all-gather";
	if (!model)
		return;
	story->unit = model_unit_name(model, call->unit);
	if (model->units[call->unit].state != UNIT_VERIFIED) {
		story->op = "initial values";
		initial_awaited(model, call->unit, &story->ranks);
	} else {
		from_engine(model, WAIT_GATHER, call->unit, story);
	}
}

/* A step cannot be voted on before the initial values agree. */
static void of_verification(const struct model *model, struct story *story)
{
	story->op = "initial values";
	for (uint32_t unit = 0; unit < model->unit_count; unit++)
		if (model->units[unit].state != UNIT_VERIFIED) {
			story->unit = model_unit_name(model, unit);
			initial_awaited(model, unit, &story->ranks);
			return;
		}
}

static void of_step(struct group *group, const struct call *call, struct story *story)
{
	const struct model *model = call->worker->model;

	story->op = "reduce-scatter";
	if (!model)
		return;
	if (model->phase == STEP_VOTED) {
		story->op = "vote";
		if (group_coordinates(group))
			votes_lacking(model, &story->ranks);
		else
			story->ranks = model->vote_awaited;
	} else if (model->phase == STEP_REDUCED && model->measuring) {
		story->op = "norm";
	} else if (model->phase == STEP_REDUCED && call->kind == CALL_STEP) {
		of_verification(model, story);
	} else {
		from_engine(model, WAIT_REDUCE, UINT32_MAX, story);
	}
}

static void of_all_reduce(struct group *group, const struct call *call, struct story *story)
{
	const struct model *model = call->worker->model;

	story->op = "all-reduce";
	if (model && group_coordinates(group))
		all_reduces_lacking(model, &story->ranks);
	else if (model)
		story->ranks = model->all_reduce_awaited;
}

static void of_norm(struct group *group, const struct call *call, struct story *story)
{
	const struct model *model = call->worker->model;

	story->op = "norm";
	if (!model)
		return;
	story->ranks = model->norm.awaited;
	if (group_coordinates(group))
		norm_lacking(model, &story->ranks);
}

static void of_other(struct group *group, const struct call *call, struct story *story)
{
	static const char *const ops[CALL_KINDS] = {
		[CALL_LOAD] = "load",       [CALL_SHARD] = "update of the shard",
		[CALL_PUBLISH] = "publish", [CALL_ABORT] = "abort",
		[CALL_DROP] = "drop",
	};
	const struct model *model = call_model(group, call);

	story->op = ops[call->kind] ? ops[call->kind] : "call";
	if (model && (call->kind == CALL_LOAD || call->kind == CALL_SHARD))
		story->unit = model_unit_name(model, call->unit);
	if ((call->kind == CALL_ABORT || call->kind == CALL_DROP) && !group_coordinates(group))
		rank_list_add(&story->ranks, GROUP_COORDINATOR);
}

void story_of(struct group *group, const struct call *call, struct story *ret_story)
{
	static void (*const tellers[CALL_KINDS])(struct group *, const struct call *, struct story *) = {
		[CALL_ATTACH] = of_attach, [CALL_UNSHARD] = of_unit, [CALL_GRAD] = of_step,
		[CALL_SYNC] = of_step,     [CALL_STEP] = of_step,    [CALL_NORM] = of_norm,
		[CALL_ALL_REDUCE] = of_all_reduce,
	};
	memset(ret_story, 0, sizeof(*ret_story));
	(tellers[call->kind] ? tellers[call->kind] : of_other)(group, call, ret_story);
	if (ret_story->ranks.count == 0)
		membership_absent(group, &ret_story->ranks);
}

void story_write(const struct story *story, char *text, size_t size)
{
	size_t at = 0;
#define SAY(...)                                                                           \
	do {                                                                               \
		int said = snprintf(text + at, size - at, __VA_ARGS__);                    \
		at = said < 0 || (size_t)said >= size - at ? size - 1 : at + (size_t)said; \
	} while (0)

	text[0] = '\0';
	if (story->unit)
		SAY("unit \"%s\", ", story->unit);
	SAY("%s", story->op);
	if (story->ranks.count == 0)
		return;
	SAY(", waiting for rank%s ", story->ranks.count + story->ranks.more > 1 ? "s" : "");
	for (uint32_t i = 0; i < story->ranks.count; i++)
		SAY("%s%" PRIu32, i ? ", " : "", story->ranks.ranks[i]);
	if (story->ranks.more)
		SAY(" and %" PRIu32 " more", story->ranks.more);
#undef SAY
}

void story_deadline(struct group *group, const struct call *call, char *text, size_t size)
{
	const struct model *model = call_model(group, call);
	struct story story;
	char what[CALL_TEXT_MAX / 2], head[FSDP_NAME_MAX + 64] = "";

	story_of(group, call, &story);
	story_write(&story, what, sizeof(what));
	if (model && model->state != MODEL_SEALING)
		snprintf(head, sizeof(head), "model \"%s\" step %" PRIu64 ": ", model->name, model->step);
	else if (call->worker)
		snprintf(head, sizeof(head), "model \"%s\": ", manifest_name(call->worker->manifest));
	snprintf(text, size, "%sdeadline of %.1f s passed: %s", head, (double)call->deadline_ms / 1000.0, what);
}
