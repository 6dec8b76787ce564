/*
 * Workers: attaching to a model (which may mean sealing it, or waiting for what was before), detaching, closing, and
 * whether a worker's call can be taken at all. Owns struct worker. The loop thread runs it.
 */
#include "daemon/group/model.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"

#define TO(state) (1u << (state))
static const unsigned WORKER_MOVES[] = {
	[WORKER_WAITS_GONE] = TO(WORKER_SEALING) | TO(WORKER_REFUSED),
	[WORKER_SEALING] = TO(WORKER_ATTACHED) | TO(WORKER_REFUSED),
	[WORKER_WAITS_DECISION] = TO(WORKER_ATTACHED) | TO(WORKER_REFUSED),
	[WORKER_ATTACHED] = TO(WORKER_DROPPED),
	[WORKER_REFUSED] = 0,
	[WORKER_DROPPED] = 0,
};

void worker_move(struct worker *worker, enum worker_state state)
{
	assert(WORKER_MOVES[worker->state] & TO(state));
	worker->state = state;
}

static struct call *attach_call(const struct worker *worker)
{
	for (struct call *call = worker->group->calls; call; call = call->next)
		if (call->worker == worker && call->kind == CALL_ATTACH)
			return call;
	return NULL;
}

/* The worker lets go of its model; a model that was never sealed goes with it. */
static void leave_model(struct worker *worker)
{
	struct model *model = worker->model;
	if (!model)
		return;
	worker->model = NULL;
	model->worker = NULL;
	if (model->state == MODEL_SEALING)
		seal_withdraw(model);
}

void worker_refuse(struct worker *worker, int code, const char *text)
{
	struct call *call = attach_call(worker);

	worker_move(worker, WORKER_REFUSED);
	leave_model(worker);
	if (call)
		call_fail(worker->group, call, code, "%s", text);
}

void worker_attached(struct worker *worker, bool resumed)
{
	struct call *call = attach_call(worker);

	worker_move(worker, WORKER_ATTACHED);
	all_reduce_restart(worker->model); /* it asks from number 0 on, whatever its predecessor asked */
	if (worker->model->reduced_count == 0)
		worker->model->weight = 1;                   /* its predecessor's is forgotten with it */
	worker->group->heartbeat_ms = worker->group->now_ms; /* who is attached is said soon: a drop depends on it */
	if (worker->plan != worker->model->plan) {
		plan_unref(worker->plan);
		worker->plan = plan_ref(worker->model->plan);
	}
	if (call)
		call_answer(worker->group, call,
			    &(struct answer){ .resumed = resumed, .model = worker->model->number });
}

void worker_name_gone(struct group *group, const char *name)
{
	for (struct worker *worker = group->workers; worker; worker = worker->next)
		if (worker->state == WORKER_WAITS_GONE && strcmp(manifest_name(worker->manifest), name) == 0) {
			worker_move(worker, WORKER_SEALING);
			seal_start(worker, worker->code, worker->text);
			return;
		}
}

/* ---- Attaching ---- */

struct plan *group_find_plan(struct group *group, const char *name)
{
	struct model *model = model_named(group, name);
	if (!model || model->state == MODEL_SEALING || model->state == MODEL_DROPPING ||
	    (model->closed && model->state != MODEL_LOST))
		return NULL;
	return model->plan;
}

static bool is_waiting_for_name(const struct group *group, const struct worker *self, const char *name)
{
	for (const struct worker *worker = group->workers; worker; worker = worker->next)
		if (worker != self && worker->state == WORKER_WAITS_GONE &&
		    strcmp(manifest_name(worker->manifest), name) == 0)
			return true;
	return false;
}

static void refuse_now(struct worker *worker, struct call *call, int code, const char *text)
{
	worker->state = WORKER_REFUSED; /* it was nothing before */
	call_fail(worker->group, call, code, "%s", text);
}

/* To a model that is sealed here. */
static void attach_sealed(struct worker *worker, struct model *model, int code, const char *text, struct call *call)
{
	struct group *group = worker->group;
	char why[CALL_TEXT_MAX];

	if (code != 0) {
		refuse_now(worker, call, code, text);
		return;
	}
	if (manifest_hash(worker->manifest) != manifest_hash(model->manifest)) {
		char difference[CALL_TEXT_MAX / 2];
		manifest_difference(model->manifest, group->config.rank, worker->manifest, group->config.rank,
				    difference, sizeof(difference));
		snprintf(why, sizeof(why), "model \"%s\" is sealed already and differs (sealed, and now): %s",
			 model->name, difference);
		refuse_now(worker, call, FSDP_E_MISMATCH, why);
		return;
	}
	model->worker = worker;
	worker->model = model;
	worker->state = WORKER_WAITS_DECISION;
	call_wait(group, call);
	if (model->phase != STEP_VOTED && model->phase != STEP_GIVEN_UP && !step_has_contributions(model)) {
		worker_attached(worker, true);
		return;
	}
	if (model->phase != STEP_VOTED) {
		snprintf(why, sizeof(why),
			 "model \"%s\" step %" PRIu64 " was aborted, since the worker of rank %" PRIu32
			 " was replaced: begin the step again",
			 model->name, model->step, group->config.rank);
		step_want_abort(model, FSDP_E_ABORTED, why);
	}
	if (worker->state == WORKER_WAITS_DECISION && group->peers[GROUP_COORDINATOR].state == PEER_GONE) {
		membership_lost_text(group, GROUP_COORDINATOR, why, sizeof(why));
		worker_refuse(worker, FSDP_E_PEER_LOST, why);
	}
}

/* To a name that nothing of is sealed here, or that waits to be gone. */
static void attach_new(struct worker *worker, bool must_go, int code, const char *text, struct call *call)
{
	struct group *group = worker->group;
	const char *name = manifest_name(worker->manifest);
	char why[CALL_TEXT_MAX];
	const struct lost_name *lost = drop_lost_name(group, name);
	int64_t gone = membership_gone(group);
	uint32_t count = 0;

	for (const struct model *model = group->models; model; model = model->next)
		count++;
	if (lost) {
		refuse_now(worker, call, FSDP_E_LOST, lost->text);
	} else if (code == 0 && !worker->plan) {
		snprintf(why, sizeof(why), "model \"%s\" was dropped meanwhile: attach again", name);
		refuse_now(worker, call, FSDP_E_DROPPED, why);
	} else if (is_waiting_for_name(group, worker, name)) {
		snprintf(why, sizeof(why), "model \"%s\" has a worker on rank %" PRIu32 " already", name,
			 group->config.rank);
		refuse_now(worker, call, FSDP_E_BUSY, why);
	} else if (gone >= 0) {
		char who[CALL_TEXT_MAX / 2];
		membership_lost_text(group, (uint32_t)gone, who, sizeof(who));
		snprintf(why, sizeof(why), "model \"%s\": %s", name, who);
		refuse_now(worker, call, FSDP_E_PEER_LOST, why);
	} else if (count >= GROUP_MODELS_MAX) {
		snprintf(why, sizeof(why), "a daemon holds at most %u models: drop one first", GROUP_MODELS_MAX);
		refuse_now(worker, call, FSDP_E_OVERFLOW, why);
	} else {
		call_wait(group, call);
		if (must_go) {
			worker->state = WORKER_WAITS_GONE;
			worker->code = code;
			worker->text = group_duplicate(text);
			return;
		}
		worker->state = WORKER_SEALING;
		seal_start(worker, code, text);
	}
}

static void attach(struct worker *worker, int code, const char *text, struct call *call)
{
	struct group *group = worker->group;
	const char *name = manifest_name(worker->manifest);
	struct model *model = model_named(group, name);

	if (model && model->state == MODEL_LOST) {
		refuse_now(worker, call, FSDP_E_LOST, model->trouble);
	} else if (model && model->state != MODEL_DROPPING && model->worker) {
		char why[CALL_TEXT_MAX];
		snprintf(why, sizeof(why), "model \"%s\" has a worker on rank %" PRIu32 " already", name,
			 group->config.rank);
		refuse_now(worker, call, FSDP_E_BUSY, why);
	} else if (model && model_is_live(model) && !model->closed) {
		attach_sealed(worker, model, code, text, call);
	} else {
		attach_new(worker, model != NULL, code, text, call);
	}
}

int group_attach(struct group *group, struct manifest *manifest, struct plan *plan, int code, const char *text,
		 struct call *call, struct worker **ret_worker)
{
	struct worker *worker = calloc(1, sizeof(*worker));
	if (!worker)
		return -ENOMEM;
	group_enter(group);
	worker->group = group;
	worker->manifest = manifest_ref(manifest);
	worker->plan = plan ? plan_ref(plan) : NULL;
	worker->next = group->workers;
	group->workers = worker;
	*ret_worker = worker; /* the answer may come before we return */
	call_init(call, CALL_ATTACH, worker, 0);
	attach(worker, code, text ? text : "", call);
	group_leave(group);
	return 0;
}

struct plan *worker_plan(const struct worker *worker)
{
	return worker->plan;
}

const char *worker_error(const struct worker *worker)
{
	return worker->error;
}

/* ---- Leaving ---- */

static void worker_end(struct worker *worker)
{
	struct group *group = worker->group;

	call_drop_worker(group, worker);
	if (worker->model && worker->state == WORKER_ATTACHED) {
		gather_release(worker->model);
		gradient_release(worker->model);
		group->heartbeat_ms = group->now_ms;
	}
	leave_model(worker);
	for (struct worker **at = &group->workers; *at; at = &(*at)->next)
		if (*at == worker) {
			*at = worker->next;
			break;
		}
	plan_unref(worker->plan);
	manifest_unref(worker->manifest);
	free(worker->text);
	free(worker);
}

void worker_detach(struct worker *worker)
{
	struct group *group = worker->group;

	group_enter(group);
	worker_end(worker);
	group_leave(group);
}

void worker_close(struct worker *worker, struct call *call)
{
	struct group *group = worker->group;
	struct model *model = worker->state == WORKER_ATTACHED ? worker->model : NULL;
	struct answer answer = { 0 };

	group_enter(group);
	if (model) {
		answer.step = model->step;
		answer.attempt = model->attempt;
		answer.micro_batch = model->micro_batch;
	}
	worker_end(worker);
	call_init(call, CALL_CLOSE, NULL, 0);
	call_answer(group, call, &answer);
	if (model && model->state == MODEL_LOST)
		model_drop(model, "its worker closed it");
	else if (model)
		drop_closed(model);
	group_leave(group);
}

/* ---- Whether a call can be taken ---- */

int worker_check(const struct worker *worker, char *text)
{
	const char *name = manifest_name(worker->manifest);

	switch (worker->state) {
	case WORKER_ATTACHED:
		if (worker->model->state != MODEL_LOST)
			return 0;
		snprintf(text, CALL_TEXT_MAX, "%s", worker->model->trouble);
		return FSDP_E_LOST;
	case WORKER_DROPPED:
		snprintf(text, CALL_TEXT_MAX, "model \"%s\" was dropped", name);
		return FSDP_E_DROPPED;
	case WORKER_REFUSED:
		snprintf(text, CALL_TEXT_MAX, "model \"%s\": the seal was refused", name);
		return FSDP_E_STATE;
	case WORKER_WAITS_GONE:
	case WORKER_SEALING:
	case WORKER_WAITS_DECISION:
		break;
	}
	snprintf(text, CALL_TEXT_MAX, "model \"%s\" is not sealed yet", name);
	return FSDP_E_STATE;
}

int worker_check_unit(const struct worker *worker, uint32_t registered, char *text, uint32_t *ret_unit)
{
	int code = worker_check(worker, text);
	if (code < 0)
		return code;
	if (registered >= worker->model->unit_count) {
		snprintf(text, CALL_TEXT_MAX, "model \"%s\" has %" PRIu32 " units, and no number %" PRIu32,
			 worker->model->name, worker->model->unit_count, registered);
		return FSDP_E_INVALID;
	}
	*ret_unit = manifest_canonical(worker->manifest, registered);
	return 0;
}
