/*
 * Steps that do not go on: deadlines, lost peers, and aborts that a worker or an operator asks for. Asks the
 * coordinator, and gives up alone where it does not answer. The loop thread runs it.
 */
#include "daemon/group/model.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"

void step_ask_abort(struct model *model)
{
	struct peer_message message;

	group_message_init(&message, PEER_ABORT);
	group_message_text(&message, model->abort_text);
	message.model = model->number;
	message.step = model->step;
	message.attempt = model->attempt;
	message.code = model->abort_code;
	group_send(model->group, GROUP_COORDINATOR, &message);
}

void step_want_abort(struct model *model, int code, const char *text)
{
	if (!model->abort_wanted) {
		model->abort_wanted = true;
		model->abort_code = code;
		snprintf(model->abort_text, sizeof(model->abort_text), "%s", text);
	}
	step_ask_abort(model);
}

/* Nobody decides. Who has voted cannot know; who has not gives the attempt up. */
static void fail_here(struct model *model)
{
	struct group *group = model->group;
	char text[CALL_TEXT_MAX];

	if (model->phase == STEP_VOTED) {
		snprintf(text, sizeof(text),
			 "model \"%s\" step %" PRIu64 ": this rank voted, and rank %u, which decides, does not answer: "
			 "call step again for the decision",
			 model->name, model->step, GROUP_COORDINATOR);
		call_fail_all(group, model, CALL_OF_STEP, FSDP_E_IN_DOUBT, text);
		return;
	}
	if (model->phase != STEP_GIVEN_UP)
		step_move(model, STEP_GIVEN_UP);
	call_fail_all(group, model, CALL_OF_STEP, model->abort_code, model->abort_text);
	gradient_release(model);
}

static void hurry(struct group *group, struct call *call)
{
	uint64_t ends_ms = group->now_ms + 2 * group->config.heartbeat_ms;
	call->token = 1; /* an abort was asked for */
	call->ends_ms = ends_ms;
}

void step_expired(struct group *group, struct call *call)
{
	struct model *model = call->worker->model;
	char text[CALL_TEXT_MAX];

	if (call->token != 0) {
		fail_here(model);
		return;
	}
	story_deadline(group, call, text, sizeof(text));
	group_notice(group, NOTICE_CALL_TIMEOUT, model, NULL, -1, "%s", text);
	hurry(group, call);
	step_want_abort(model, FSDP_E_TIMEOUT, text);
}

static void coordinator_gone(struct model *model, const char *text)
{
	struct group *group = model->group;

	if (model->worker && model->worker->state == WORKER_WAITS_DECISION)
		worker_refuse(model->worker, FSDP_E_PEER_LOST, text);
	call_fail_all(group, model, CALL_BIT(CALL_ABORT), FSDP_E_PEER_LOST, text);
	if (!call_find(group, model, CALL_OF_STEP))
		return;
	if (model->phase != STEP_VOTED)
		step_want_abort(model, FSDP_E_PEER_LOST, text);
	fail_here(model);
}

void step_peer_gone(struct model *model, uint32_t rank)
{
	struct group *group = model->group;
	char text[CALL_TEXT_MAX], who[CALL_TEXT_MAX / 2];
	bool waits = call_find(group, model, CALL_OF_STEP) != NULL;

	membership_lost_text(group, rank, who, sizeof(who));
	snprintf(text, sizeof(text), "model \"%s\" step %" PRIu64 ": %s", model->name, model->step, who);
	if (rank == GROUP_COORDINATOR) {
		coordinator_gone(model, text);
	} else if (group_coordinates(group)) {
		if (waits || step_has_contributions(model) || votes_any(model) || all_reduces_any(model))
			votes_abort(model, FSDP_E_PEER_LOST, text);
	} else if (waits) {
		for (struct call *call = group->calls; call; call = call->next)
			if ((CALL_OF_STEP & CALL_BIT(call->kind)) && call->worker->model == model)
				hurry(group, call);
		step_want_abort(model, FSDP_E_PEER_LOST, text);
	}
}

/* ---- Aborts that somebody asks for ---- */

static void abort_step(struct model *model, struct call *call, const char *who)
{
	struct group *group = model->group;
	char text[CALL_TEXT_MAX];

	if (group->peers[GROUP_COORDINATOR].state == PEER_GONE) {
		membership_lost_text(group, GROUP_COORDINATOR, text, sizeof(text));
		call_fail(group, call, FSDP_E_PEER_LOST, "model \"%s\" step %" PRIu64 ": %s", model->name, model->step,
			  text);
		return;
	}
	snprintf(text, sizeof(text), "model \"%s\" step %" PRIu64 ": aborted by %s of rank %" PRIu32, model->name,
		 model->step, who, group->config.rank);
	call->token = model->number;
	call_wait(group, call);
	step_want_abort(model, FSDP_E_ABORTED, text);
}

void worker_abort(struct worker *worker, struct call *call)
{
	struct group *group = worker->group;
	char text[CALL_TEXT_MAX];

	group_enter(group);
	call_init(call, CALL_ABORT, worker, 0);
	int code = worker_check(worker, text);
	if (code < 0)
		call_fail(group, call, code, "%s", text);
	else if (worker->step_owed)
		call_fail(group, call, FSDP_E_STATE, "the step was committed before it could be aborted");
	else
		abort_step(worker->model, call, "the worker");
	group_leave(group);
}

void group_abort_step(struct group *group, const char *name, struct call *call)
{
	struct model *model = model_named(group, name);

	group_enter(group);
	call_init(call, CALL_ABORT, NULL, 0);
	if (!model || !(model_is_live(model) || model->state == MODEL_LOST))
		call_fail(group, call, FSDP_E_NOT_FOUND, "no model \"%s\" is sealed here", name);
	else if (model->state == MODEL_LOST)
		call_fail(group, call, FSDP_E_LOST, "%s", model->trouble);
	else
		abort_step(model, call, "the operator");
	group_leave(group);
}
