/*
 * Gradient slots: which are the worker's, which were handed to a load or a reduction and come back with a report, and
 * the calls that wait for room. Owns struct grad. The loop thread runs it; it never touches what lies in them.
 */
#include "daemon/group/model.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "fsdp/error.h"

struct grad *gradient_find(struct model *model, uint64_t slot)
{
	struct grad *grad = model->grads;
	while (grad && grad->slot != slot)
		grad = grad->next;
	return grad;
}

void gradient_give(struct model *model, struct grad *grad)
{
	for (struct grad **at = &model->grads; *at; at = &(*at)->next)
		if (*at == grad) {
			*at = grad->next;
			break;
		}
	assert(model->units[grad->unit].grad != grad);
	pool_give(model->grad_pool, grad->slot);
	free(grad);
}

static bool any_handed_over(const struct model *model)
{
	for (const struct grad *grad = model->grads; grad; grad = grad->next)
		if (grad->state != GRAD_WORKER)
			return true;
	return false;
}

static void fail_budget(struct model *model, struct call *call)
{
	call_fail(model->group, call, FSDP_E_BUDGET,
		  "unit \"%s\" wants %" PRIu64 " bytes of the gradient pool: %" PRIu64 " of %" PRIu64
		  " are held: reduce another unit first or raise gradient-budget",
		  model_unit_name(model, call->unit), plan_unit(model->plan, call->unit)->layout.full_bytes,
		  pool_used(model->grad_pool), pool_bytes(model->grad_pool));
}

/* True: the call was answered. */
static bool serve(struct model *model, struct call *call)
{
	struct unit *unit = &model->units[call->unit];

	if (!unit->grad) {
		uint64_t slot;
		int code = pool_take(model->grad_pool, plan_unit(model->plan, call->unit)->layout.full_bytes, &slot);
		if (code == -ENOSPC && any_handed_over(model))
			return false;
		if (code < 0) {
			fail_budget(model, call);
			return true;
		}
		unit->grad = group_allocate(1, sizeof(*unit->grad));
		unit->grad->unit = call->unit;
		unit->grad->slot = slot;
		unit->grad->state = GRAD_WORKER;
		unit->grad->next = model->grads;
		model->grads = unit->grad;
	}
	call_answer(model->group, call, &(struct answer){ .slot = unit->grad->slot });
	return true;
}

void gradient_pump(struct model *model)
{
	struct call *call;

	if (!model_is_live(model))
		return;
	while ((call = call_find(model->group, model, CALL_BIT(CALL_GRAD))) != NULL)
		if (!serve(model, call))
			return;
}

void worker_grad(struct worker *worker, uint32_t registered, struct call *call)
{
	struct group *group = worker->group;
	char text[CALL_TEXT_MAX];
	uint32_t index = 0;

	group_enter(group);
	call_init(call, CALL_GRAD, worker, 0);
	if (step_admits(worker, call)) {
		struct model *model = worker->model;
		int code = worker_check_unit(worker, registered, text, &index);
		call->unit = index;
		if (code < 0) {
			call_fail(group, call, code, "%s", text);
		} else if (model->phase != STEP_COLLECTING) {
			call_fail(group, call, FSDP_E_STATE,
				  "unit \"%s\": the gradients of step %" PRIu64
				  " were synchronised: call step before the next gradient",
				  model_unit_name(model, index), model->step);
		} else if (model->units[index].grad) {
			serve(model, call);
		} else if (model->units[index].reduced) {
			call_fail(group, call, FSDP_E_STATE,
				  "unit \"%s\" was reduced in this micro-batch already: begin the next one first",
				  model_unit_name(model, index));
		} else {
			int64_t gone = membership_gone(group);
			worker->step_owed = false; /* it goes on, so it knows */
			call_wait(group, call);
			gradient_pump(model);
			if (gone >= 0 && call_find(group, model, CALL_BIT(CALL_GRAD)))
				step_peer_gone(model, (uint32_t)gone);
		}
	}
	group_leave(group);
}

void worker_reduce(struct worker *worker, uint32_t registered, struct call *call)
{
	struct group *group = worker->group;
	char text[CALL_TEXT_MAX];
	uint32_t index = 0;

	group_enter(group);
	call_init(call, CALL_REDUCE, worker, 0);
	if (!step_admits(worker, call)) {
		group_leave(group);
		return;
	}
	struct model *model = worker->model;
	int code = worker_check_unit(worker, registered, text, &index);
	struct unit *unit = &model->units[index];
	if (code < 0) {
		call_fail(group, call, code, "%s", text);
	} else if (model->phase != STEP_COLLECTING) {
		call_fail(group, call, FSDP_E_STATE,
			  "unit \"%s\": the gradients of step %" PRIu64
			  " were synchronised: call step before the next reduce",
			  model_unit_name(model, index), model->step);
	} else if (unit->trouble) {
		call_fail(group, call, FSDP_E_MISMATCH, "%s", unit->trouble);
	} else if (unit->reduced) {
		call_fail(group, call, FSDP_E_STATE, "unit \"%s\" was reduced in this micro-batch already",
			  model_unit_name(model, index));
	} else if (!unit->grad) {
		call_fail(group, call, FSDP_E_STATE, "unit \"%s\" has no gradient: ask for one and write it first",
			  model_unit_name(model, index));
	} else {
		struct command *command = command_new(COMMAND_REDUCE);
		command->model = model->number;
		command->unit = index;
		command->step = model->step;
		command->attempt = model->attempt;
		command->micro_batch = model->micro_batch;
		command->slot = unit->grad->slot;
		command->weight = model->weight;
		unit->grad->state = GRAD_HANDED;
		unit->grad = NULL;
		unit->reduced = true;
		unit->present |= model->weight > 0;
		model->reduced_count++;
		worker->step_owed = false; /* it goes on, so it knows */
		group_command(group, command);
		call_succeed(group, call);
	}
	group_leave(group);
}

void gradient_returned(struct model *model, uint64_t slot)
{
	struct grad *grad = gradient_find(model, slot);
	if (!grad || grad->state != GRAD_HANDED)
		return;
	gradient_give(model, grad);
	gradient_pump(model);
}

void gradient_release(struct model *model)
{
	for (uint32_t i = 0; i < model->unit_count; i++) {
		struct grad *grad = model->units[i].grad;
		if (!grad)
			continue;
		model->units[i].grad = NULL;
		gradient_give(model, grad);
	}
	gradient_pump(model);
}

void gradient_free(struct model *model)
{
	for (uint32_t i = 0; i < model->unit_count; i++)
		model->units[i].grad = NULL;
	while (model->grads)
		gradient_give(model, model->grads);
}
