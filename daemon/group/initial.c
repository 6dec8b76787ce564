/*
 * Initial values: every rank loads its own copy, and version 1 is published when all have the same checksums; or one
 * rank loads, the others' engines read their ranges from it, and version 1 is published when all have theirs; or they
 * are zeros, from the seal on. This rank's part; the comparison is in initial_coordinator.c. Owns the units' sums and
 * troubles. The loop thread runs it.
 */
#include "daemon/group/model.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "daemon/runtime/planted.h"
#include "fsdp/error.h"

#define TO(state) (1u << (state))
static const unsigned UNIT_MOVES[] = {
	[UNIT_EMPTY] = TO(UNIT_LOADING) | TO(UNIT_VERIFIED),
	[UNIT_LOADING] = TO(UNIT_LOADED),
	[UNIT_LOADED] = TO(UNIT_VERIFIED) | TO(UNIT_EMPTY),
	[UNIT_VERIFIED] = 0,
};

static void unit_move(struct unit *unit, enum unit_state state)
{
	assert(UNIT_MOVES[unit->state] & TO(state));
	unit->state = state;
}

bool initial_is_ours(const struct model *model)
{
	const struct manifest_options *options = model_options(model);
	return options->init == INIT_VERIFY ||
	       (options->init == INIT_FROM_RANK && options->init_rank == model->group->config.rank);
}

/* What a unit's values are known by, where ranks compare them. */
uint64_t initial_sums_hash(const struct model *model, uint32_t unit)
{
	if (model_options(model)->init != INIT_VERIFY)
		return 0;
	return XXH3_64bits(model->units[unit].sums, model_param_count(model, unit) * sizeof(uint64_t));
}

/* ---- This rank ---- */

static void trouble_clear(struct model *model, struct unit *unit)
{
	if (!unit->trouble)
		return;
	free(unit->trouble);
	unit->trouble = NULL;
	model->troubled--;
}

/* It was taken for a load that cannot be. */
static void slot_back(struct model *model, struct unit *unit, uint64_t slot)
{
	struct grad *grad = unit->grad;

	if (!grad || grad->slot != slot)
		return;
	unit->grad = NULL;
	gradient_give(model, grad);
	gradient_pump(model);
}

/* 0, or why there is nothing to load. */
static int check_load(const struct model *model, uint32_t index, char *text)
{
	const struct unit *unit = &model->units[index];
	const struct manifest_options *options = model_options(model);

	if (options->init == INIT_ZEROS)
		snprintf(text, CALL_TEXT_MAX, "unit \"%s\": model \"%s\" begins with zeros: nothing is loaded",
			 model_unit_name(model, index), model->name);
	else if (!initial_is_ours(model))
		snprintf(text, CALL_TEXT_MAX,
			 "unit \"%s\": the initial values of model \"%s\" are those of rank %" PRIu32,
			 model_unit_name(model, index), model->name, options->init_rank);
	else if (unit->state == UNIT_VERIFIED)
		snprintf(text, CALL_TEXT_MAX, "unit \"%s\" is at version %" PRIu64 ": only version 0 can be loaded",
			 model_unit_name(model, index), unit->version);
	else
		return 0;
	return FSDP_E_STATE;
}

void worker_load(struct worker *worker, uint32_t registered, uint64_t slot, struct call *call)
{
	struct group *group = worker->group;
	char text[CALL_TEXT_MAX];
	uint32_t index = 0;

	group_enter(group);
	call_init(call, CALL_LOAD, worker, 0);
	int code = worker_check_unit(worker, registered, text, &index);
	struct model *model = worker->model;
	struct unit *unit = code == 0 ? &model->units[index] : NULL;
	if (code < 0) {
		call_fail(group, call, code, "%s", text);
	} else if ((code = check_load(model, index, text)) < 0) {
		slot_back(model, unit, slot);
		call_fail(group, call, code, "%s", text);
	} else if (!unit->grad || unit->grad->slot != slot) {
		call_fail(group, call, FSDP_E_INVALID,
			  "unit \"%s\": %" PRIu64 " is not the gradient slot that this worker has of it",
			  model_unit_name(model, index), slot);
	} else {
		struct grad *grad = unit->grad;
		struct command *command = command_new(COMMAND_LOAD);
		unit->grad = NULL;
		grad->state = GRAD_LOADING;
		grad->compare = unit->state != UNIT_EMPTY;
		grad->round = unit->round;
		trouble_clear(model, unit);
		if (unit->state == UNIT_EMPTY)
			unit_move(unit, UNIT_LOADING);
		command->model = model->number;
		command->unit = index;
		command->slot = slot;
		command->compare = grad->compare;
		command->offer = !grad->compare && model_options(model)->init == INIT_FROM_RANK;
		call->unit = index;
		call->token = slot;
		call_wait(group, call);
		group_command(group, command);
	}
	group_leave(group);
}

static void say_offered(struct model *model, uint32_t index)
{
	struct peer_message message;

	group_message_init(&message, PEER_OFFERED);
	message.model = model->number;
	message.unit = index;
	group_tell_others(model->group, &message);
}

/* This rank has its range of another's values: there is nothing to compare. */
static void say_fetched(struct model *model, uint32_t index)
{
	struct peer_message message;

	group_message_init(&message, PEER_LOADED);
	message.model = model->number;
	message.unit = index;
	message.offset = message.length = model_param_count(model, index);
	group_send(model->group, GROUP_COORDINATOR, &message);
}

static void ask_sums(struct model *model, uint32_t index)
{
	const struct unit *unit = &model->units[index];
	uint32_t count = model_param_count(model, index);
	struct peer_message message;
	uint32_t offset = 0;

	do {
		uint32_t part = count - offset < PEER_SUMS_MAX ? count - offset : PEER_SUMS_MAX;
		group_message_init(&message, PEER_LOADED);
		message.model = model->number;
		message.unit = index;
		message.attempt = unit->round;
		message.offset = offset;
		message.length = count;
		message.sums = unit->sums + offset;
		message.sum_count = part;
		offset += part;
		group_send(model->group, GROUP_COORDINATOR, &message);
	} while (offset < count && unit->state == UNIT_LOADED);
}

static void ask(struct model *model, uint32_t index)
{
	if (!initial_is_ours(model)) {
		say_fetched(model, index);
		return;
	}
	if (model_options(model)->init == INIT_FROM_RANK)
		say_offered(model, index);
	ask_sums(model, index);
}

void initial_repeat(struct model *model)
{
	if (model->state != MODEL_LOADING || model->verified == model->unit_count)
		return;
	for (uint32_t i = 0; i < model->unit_count && model->state == MODEL_LOADING; i++)
		if (model->units[i].state == UNIT_LOADED)
			ask(model, i);
}

static void verified(struct model *model, uint32_t index)
{
	struct unit *unit = &model->units[index];
	struct command *command = command_new(COMMAND_PUBLISH);

	unit_move(unit, UNIT_VERIFIED);
	unit->version = unit->shard_version = 1;
	command->model = model->number;
	command->unit = index;
	command->version = 1;
	group_command(model->group, command);
	if (++model->verified == model->unit_count)
		model_move(model, MODEL_READY);
	gather_pump(model);
	step_try_vote(model);
}

void initial_sealed(struct model *model)
{
	for (uint32_t i = 0; i < model->unit_count && model_options(model)->init == INIT_ZEROS; i++)
		verified(model, i);
}

static void fail_unshards(struct model *model, uint32_t index, int code, const char *text)
{
	struct group *group = model->group;
	for (struct call *call = group->calls, *next; call; call = next) {
		next = call->next;
		if (call->kind == CALL_UNSHARD && call->worker->model == model && call->unit == index)
			call_fail(group, call, code, "%s", text);
	}
}

static void differs(struct model *model, uint32_t index, int code, const char *text)
{
	struct unit *unit = &model->units[index];

	unit_move(unit, UNIT_EMPTY);
	unit->round++;
	if (!unit->trouble)
		model->troubled++;
	free(unit->trouble);
	unit->trouble = group_duplicate(text);
	group_notice(model->group, NOTICE_MODEL_REFUSED, model, model_unit_name(model, index), -1, "%s", text);
	fail_unshards(model, index, code, text);
	if (model->phase != STEP_VOTED)
		call_fail_all(model->group, model, CALL_BIT(CALL_STEP), code, text);
}

/* ---- The engine has loaded ---- */

static struct call *load_call(const struct model *model, uint64_t slot)
{
	for (struct call *call = model->group->calls; call; call = call->next)
		if (call->kind == CALL_LOAD && call->worker->model == model && call->token == slot)
			return call;
	return NULL;
}

static void answer_compared(struct model *model, uint32_t index, uint32_t round, const uint64_t *sums,
			    struct call *call)
{
	const struct unit *unit = &model->units[index];
	struct group *group = model->group;
	uint32_t count = model_param_count(model, index), i = 0;

	if (round != unit->round) {
		call_fail(group, call, FSDP_E_MISMATCH, "%s",
			  unit->trouble ? unit->trouble : "the ranks had loaded different values: load the unit again");
		return;
	}
	while (i < count && unit->sums[i] == sums[i])
		i++;
	if (i == count)
		call_succeed(group, call);
	else
		call_fail(group, call, FSDP_E_MISMATCH,
			  "unit \"%s\" parameter \"%s\": this rank loaded values with checksum 0x%016" PRIx64
			  " before, and 0x%016" PRIx64 " now: load the same values",
			  model_unit_name(model, index), model_param_name(model, index, i), unit->sums[i], sums[i]);
}

void initial_loaded(struct model *model, struct report *report)
{
	struct grad *grad = gradient_find(model, report->slot);

	if (!grad || grad->state != GRAD_LOADING)
		return;
	uint32_t index = grad->unit;
	struct unit *unit = &model->units[index];
	bool compare = grad->compare;
	uint32_t round = grad->round;
	struct call *call = load_call(model, report->slot);
	assert(report->sum_count == model_param_count(model, index));
	if (report->offered)
		grad->state = GRAD_HANDED;
	else
		gradient_give(model, grad);
	if (compare) {
		if (call)
			answer_compared(model, index, round, report->sums, call);
	} else {
		free(unit->sums);
		unit->sums = report->sums ? report->sums : group_allocate(1, sizeof(*unit->sums));
		report->sums = NULL;
		unit_move(unit, UNIT_LOADED);
		if (call)
			call_succeed(model->group, call);
		if (model_is_live(model) && model->group->generation != 0)
			ask(model, index);
		if (PLANTED(PLANTED_UNVERIFIED) && unit->state == UNIT_LOADED)
			verified(model, index);
	}
	gradient_pump(model);
}

void initial_fetched(struct model *model, uint32_t index)
{
	assert(!initial_is_ours(model));
	unit_move(&model->units[index], UNIT_LOADED);
	if (model_is_live(model) && model->group->generation != 0)
		ask(model, index);
}

void initial_hear_offered(struct group *group, uint32_t rank, const struct peer_message *message,
			  struct buffer *payload)
{
	struct model *model = model_find(group, message->model);
	(void)payload;

	if (!model || !model_is_live(model) || message->unit >= model->unit_count || initial_is_ours(model) ||
	    model_options(model)->init != INIT_FROM_RANK || model_options(model)->init_rank != rank ||
	    model->units[message->unit].state != UNIT_EMPTY)
		return;
	struct command *command = command_new(COMMAND_FETCH);
	unit_move(&model->units[message->unit], UNIT_LOADING);
	command->model = model->number;
	command->unit = message->unit;
	group_command(group, command);
}

void initial_hear_verified(struct group *group, uint32_t rank, const struct peer_message *message,
			   struct buffer *payload)
{
	struct model *model = model_find(group, message->model);
	(void)rank;
	(void)payload;

	if (!model || !model_is_live(model) || message->unit >= model->unit_count)
		return;
	const struct unit *unit = &model->units[message->unit];
	if (unit->state != UNIT_LOADED || message->attempt != unit->round)
		return;
	if (message->code < 0)
		differs(model, message->unit, message->code, message->text);
	else if (message->sum == initial_sums_hash(model, message->unit))
		verified(model, message->unit);
}

/* ---- What it waits for ---- */

void initial_awaited(const struct model *model, uint32_t index, struct rank_list *ranks)
{
	enum unit_state state = model->units[index].state;

	if (group_coordinates(model->group))
		initial_lacking(model, index, ranks);
	else if (!initial_is_ours(model) && (state == UNIT_EMPTY || state == UNIT_LOADING))
		rank_list_add(ranks, model_options(model)->init_rank);
	else
		*ranks = model->load_awaited;
}
