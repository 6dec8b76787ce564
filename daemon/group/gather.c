/*
 * Gathered copies: which slots of the gather pool hold which version of which unit, who holds them, which go when room
 * is wanted, and the unshards that wait. Owns struct gather. The loop thread runs it; the engine fills the slots.
 */
#include "daemon/group/model.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/runtime/planted.h"
#include "fsdp/error.h"

static uint64_t full_bytes(const struct model *model, uint32_t index)
{
	return plan_unit(model->plan, index)->layout.full_bytes;
}

/* ---- Slots ---- */

static void gather_end(struct model *model, struct unit *unit, struct gather *gather)
{
	assert(gather->holds == 0 && unit->held != gather);
	for (struct gather **at = &unit->gathers; *at; at = &(*at)->next)
		if (*at == gather) {
			*at = gather->next;
			break;
		}
	if (!gather->borrowed)
		pool_give(model->gather_pool, gather->slot);
	free(gather);
}

/* What goes first: a whole copy that nobody holds, superseded ones before all, then the one that was used longest
 * ago. */
static bool give_back_one(struct model *model)
{
	struct unit *victim_unit = NULL;
	struct gather *victim = NULL;
	bool victim_old = false;

	for (uint32_t i = 0; i < model->unit_count; i++) {
		struct unit *unit = &model->units[i];
		for (struct gather *gather = unit->gathers; gather; gather = gather->next) {
			bool old = gather->version < unit->version;
			if (!gather->whole || gather->holds > 0)
				continue;
			if (victim && (victim_old > old || (victim_old == old && victim->used <= gather->used)))
				continue;
			victim = gather;
			victim_unit = unit;
			victim_old = old;
		}
	}
	if (!victim)
		return false;
	gather_end(model, victim_unit, victim);
	return true;
}

static bool borrow_held(const struct model *model, uint64_t bytes, uint64_t *ret_slot)
{
	for (uint32_t i = 0; i < model->unit_count; i++) {
		const struct gather *held = model->units[i].held;
		if (held && full_bytes(model, i) >= bytes) {
			*ret_slot = held->slot;
			return true;
		}
	}
	return false;
}

/* A slot for the unit's present version, and the command to fill it. 0, -ENOSPC, FSDP_E_BUDGET. */
static int gather_begin(struct model *model, uint32_t index)
{
	struct unit *unit = &model->units[index];
	uint64_t bytes = full_bytes(model, index), slot = 0;
	bool borrowed = PLANTED(PLANTED_HELD_SLOT_REUSED) && borrow_held(model, bytes, &slot);
	int code = borrowed ? 0 : pool_take(model->gather_pool, bytes, &slot);

	while (code == -ENOSPC && give_back_one(model))
		code = pool_take(model->gather_pool, bytes, &slot);
	if (code < 0)
		return code;
	struct gather *gather = group_allocate(1, sizeof(*gather));
	gather->slot = slot;
	gather->borrowed = borrowed;
	gather->version = unit->version;
	gather->used = ++model->use_clock;
	gather->next = unit->gathers;
	unit->gathers = gather;
	struct command *command = command_new(COMMAND_GATHER);
	command->model = model->number;
	command->unit = index;
	command->version = unit->version;
	command->slot = slot;
	group_command(model->group, command);
	return 0;
}

static struct gather *gather_of(const struct unit *unit, uint64_t version, bool whole)
{
	for (struct gather *gather = unit->gathers; gather; gather = gather->next)
		if (gather->whole == whole && gather->version >= version)
			return gather;
	return NULL;
}

static struct call *waiting_unshard(const struct model *model, uint32_t index, uint64_t version)
{
	for (struct call *call = model->group->calls; call; call = call->next)
		if (call->kind == CALL_UNSHARD && call->worker->model == model && call->unit == index &&
		    call->token <= version)
			return call;
	return NULL;
}

/* Is a slot being filled that will be free when it is full? */
static bool room_will_come(const struct model *model)
{
	for (uint32_t i = 0; i < model->unit_count; i++)
		for (const struct gather *gather = model->units[i].gathers; gather; gather = gather->next)
			if (!gather->whole && !waiting_unshard(model, i, gather->version))
				return true;
	return false;
}

/* ---- Unshards ---- */

static void hold(struct model *model, struct unit *unit, struct gather *gather, struct call *call)
{
	assert(gather->whole && (!unit->held || unit->held == gather));
	unit->held = gather;
	gather->holds++;
	gather->used = ++model->use_clock;
	call_answer(model->group, call, &(struct answer){ .slot = gather->slot, .version = gather->version });
}

static void fail_budget(struct model *model, uint32_t index, struct call *call)
{
	call_fail(model->group, call, FSDP_E_BUDGET,
		  "unit \"%s\" wants %" PRIu64 " bytes of the gather pool: %" PRIu64 " of %" PRIu64
		  " are held: reshard another unit first or raise gather-budget",
		  model_unit_name(model, index), full_bytes(model, index), pool_used(model->gather_pool),
		  pool_bytes(model->gather_pool));
}

/* One unshard of a verified unit: served, begun, waiting or failed. */
static void serve(struct model *model, struct call *call)
{
	struct unit *unit = &model->units[call->unit];
	struct gather *gather = unit->held ? unit->held : gather_of(unit, call->token, true);

	if (gather) {
		hold(model, unit, gather, call);
		return;
	}
	if (gather_of(unit, call->token, false))
		return;
	int code = gather_begin(model, call->unit);
	if (code < 0 && (code != -ENOSPC || !room_will_come(model)))
		fail_budget(model, call->unit, call);
}

void gather_pump(struct model *model)
{
	struct group *group = model->group;

	if (!model_is_live(model))
		return;
	for (struct call *call = group->calls, *next; call; call = next) {
		next = call->next;
		if (call->kind == CALL_UNSHARD && call->worker->model == model &&
		    model->units[call->unit].state == UNIT_VERIFIED)
			serve(model, call);
	}
}

static bool needs_rank(const struct model *model, uint32_t index, uint32_t rank)
{
	return model->units[index].state != UNIT_VERIFIED || plan_shard_of(model->plan, index, rank).count > 0;
}

/* The lowest rank that is gone and needed, or -1. */
static int64_t needed_and_gone(const struct model *model, uint32_t index)
{
	const struct group *group = model->group;
	for (uint32_t rank = 0; rank < group->config.world_size; rank++)
		if (group->peers[rank].state == PEER_GONE && needs_rank(model, index, rank))
			return rank;
	return -1;
}

/* 0, or why the unit cannot be unsharded now even if somebody waited. */
static int check_unshard(const struct worker *worker, uint32_t registered, char *text, uint32_t *ret_index)
{
	int code = worker_check_unit(worker, registered, text, ret_index);
	if (code < 0)
		return code;
	const struct model *model = worker->model;
	const struct unit *unit = &model->units[*ret_index];
	if (unit->trouble) {
		snprintf(text, CALL_TEXT_MAX, "%s", unit->trouble);
		return FSDP_E_MISMATCH;
	}
	if (unit->state == UNIT_EMPTY && initial_is_ours(model)) {
		snprintf(text, CALL_TEXT_MAX, "unit \"%s\" was not loaded: load it first",
			 model_unit_name(model, *ret_index));
		return FSDP_E_STATE;
	}
	int64_t gone = needed_and_gone(model, *ret_index);
	if (gone >= 0 && !unit->held && !gather_of(unit, unit->version ? unit->version : 1, true)) {
		char who[CALL_TEXT_MAX / 2];
		membership_lost_text(worker->group, (uint32_t)gone, who, sizeof(who));
		snprintf(text, CALL_TEXT_MAX, "unit \"%s\", all-gather: %s", model_unit_name(model, *ret_index), who);
		return FSDP_E_PEER_LOST;
	}
	return 0;
}

void worker_unshard(struct worker *worker, uint32_t registered, struct call *call)
{
	struct group *group = worker->group;
	char text[CALL_TEXT_MAX];
	uint32_t index = 0;

	group_enter(group);
	call_init(call, CALL_UNSHARD, worker, 0);
	int code = check_unshard(worker, registered, text, &index);
	if (code < 0) {
		call_fail(group, call, code, "%s", text);
	} else {
		const struct unit *unit = &worker->model->units[index];
		call->unit = index;
		call->token = unit->version ? unit->version : 1;
		call_wait(group, call);
		if (unit->state == UNIT_VERIFIED)
			serve(worker->model, call);
	}
	group_leave(group);
}

int worker_unshard_start(struct worker *worker, uint32_t registered)
{
	uint32_t index = 0;

	group_enter(worker->group);
	int code = check_unshard(worker, registered, worker->error, &index);
	if (code == 0) {
		struct model *model = worker->model;
		const struct unit *unit = &model->units[index];
		if (unit->state == UNIT_VERIFIED && !unit->held && !gather_of(unit, unit->version, true) &&
		    !gather_of(unit, unit->version, false))
			(void)gather_begin(model, index); /* no room: then it is gathered when it is wanted */
	}
	group_leave(worker->group);
	return code;
}

/* A copy that nobody holds any more stays for the next, unless it is old. */
static void let_go(struct model *model, struct unit *unit)
{
	struct gather *gather = unit->held;

	unit->held = NULL;
	gather->holds = 0;
	if (gather->version < unit->version || gather->borrowed)
		gather_end(model, unit, gather);
}

int worker_reshard(struct worker *worker, uint32_t registered)
{
	uint32_t index = 0;

	group_enter(worker->group);
	int code = worker_check_unit(worker, registered, worker->error, &index);
	if (code == 0) {
		struct model *model = worker->model;
		struct unit *unit = &model->units[index];
		if (!unit->held) {
			snprintf(worker->error, sizeof(worker->error), "unit \"%s\" is not unsharded",
				 model_unit_name(model, index));
			code = FSDP_E_STATE;
		} else if (--unit->held->holds == 0) {
			let_go(model, unit);
			gather_pump(model);
		}
	}
	group_leave(worker->group);
	return code;
}

/* ---- Shards ---- */

void worker_shard(struct worker *worker, uint32_t registered, struct call *call)
{
	struct group *group = worker->group;
	char text[CALL_TEXT_MAX];
	uint32_t index = 0;

	group_enter(group);
	call_init(call, CALL_SHARD, worker, 0);
	int code = worker_check_unit(worker, registered, text, &index);
	if (code < 0) {
		call_fail(group, call, code, "%s", text);
	} else {
		const struct unit *unit = &worker->model->units[index];
		call->unit = index;
		call->token = unit->version;
		if (unit->shard_version >= unit->version)
			call_answer(group, call, &(struct answer){ .version = unit->shard_version });
		else
			call_wait(group, call);
	}
	group_leave(group);
}

void gather_progress(struct model *model, const struct report *report)
{
	struct group *group = model->group;

	if (report->unit >= model->unit_count)
		return;
	struct unit *unit = &model->units[report->unit];
	if (report->version <= unit->shard_version)
		return;
	unit->shard_version = report->version;
	for (struct call *call = group->calls, *next; call; call = next) {
		next = call->next;
		if (call->kind == CALL_SHARD && call->worker->model == model && call->unit == report->unit &&
		    call->token <= unit->shard_version)
			call_answer(group, call, &(struct answer){ .version = unit->shard_version });
	}
}

/* ---- What happens to them ---- */

void gather_gathered(struct model *model, const struct report *report)
{
	struct gather *gather = NULL;

	if (report->unit >= model->unit_count)
		return;
	struct unit *unit = &model->units[report->unit];
	for (gather = unit->gathers; gather; gather = gather->next)
		if (gather->slot == report->slot && !gather->whole)
			break;
	if (!gather)
		return;
	gather->whole = true;
	gather->version = report->version;
	gather->used = ++model->use_clock;
	gather_pump(model); /* may give it back, or be what holds it */
	gather_prune(model);
}

void gather_prune(struct model *model)
{
	for (uint32_t i = 0; i < model->unit_count; i++) {
		struct unit *unit = &model->units[i];
		for (struct gather *gather = unit->gathers, *next; gather; gather = next) {
			next = gather->next;
			if (gather->whole && gather->holds == 0 && gather->version < unit->version)
				gather_end(model, unit, gather);
		}
	}
}

void gather_release(struct model *model)
{
	for (uint32_t i = 0; i < model->unit_count; i++)
		if (model->units[i].held)
			let_go(model, &model->units[i]);
}

void gather_free(struct model *model)
{
	for (uint32_t i = 0; i < model->unit_count; i++) {
		struct unit *unit = &model->units[i];
		unit->held = NULL;
		while (unit->gathers) {
			unit->gathers->holds = 0;
			gather_end(model, unit, unit->gathers);
		}
	}
}

/* A gather goes on, since the peer may come back: only those who wait for it are told. */
void gather_peer_gone(struct model *model, uint32_t rank)
{
	struct group *group = model->group;
	char who[CALL_TEXT_MAX / 2];

	membership_lost_text(group, rank, who, sizeof(who));
	for (struct call *call = group->calls, *next; call; call = next) {
		next = call->next;
		if (call->kind == CALL_UNSHARD && call->worker->model == model && needs_rank(model, call->unit, rank))
			call_fail(group, call, FSDP_E_PEER_LOST, "unit \"%s\", all-gather: %s",
				  model_unit_name(model, call->unit), who);
	}
}
