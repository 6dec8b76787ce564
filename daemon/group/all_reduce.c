/*
 * Small all-reduces, this rank's part: the worker's question goes to the coordinator, with every heartbeat until it is
 * answered. Questions are numbered within an attempt, and a worker that comes anew begins with 0 again: what its
 * predecessor was told it is told too. Owns struct all_reduce. The loop thread runs it. Who adds is in
 * all_reduce_coordinator.c.
 */
#include "daemon/group/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"

static const char *const NAMES[] = {
	[ALL_REDUCE_SUM] = "sum",
	[ALL_REDUCE_MAX] = "maximum",
	[ALL_REDUCE_MIN] = "minimum",
};

const char *all_reduce_op_name(enum all_reduce_op op)
{
	return all_reduce_op_is_known((uint32_t)op) ? NAMES[op] : "?";
}

bool all_reduce_op_is_known(uint32_t op)
{
	return op < sizeof(NAMES) / sizeof(NAMES[0]) && NAMES[op];
}

void all_reduce_restart(struct model *model)
{
	free(model->all_reduce.values);
	model->all_reduce = (struct all_reduce){ 0 };
	memset(&model->all_reduce_awaited, 0, sizeof(model->all_reduce_awaited));
}

static void ask(struct model *model)
{
	const struct all_reduce *own = &model->all_reduce;
	struct peer_message message;

	group_message_init(&message, PEER_ALL_REDUCE);
	message.model = model->number;
	message.step = model->step;
	message.attempt = model->attempt;
	message.number = own->number;
	message.combine = (uint32_t)own->op;
	message.values = own->values;
	message.value_count = own->count;
	group_send(model->group, GROUP_COORDINATOR, &message);
}

void all_reduce_repeat(struct model *model)
{
	if (model_is_live(model) && call_find(model->group, model, CALL_BIT(CALL_ALL_REDUCE)))
		ask(model);
}

/* Not every moment of a step will do: 0, or why not. */
static int check_moment(const struct worker *worker, char *text)
{
	const struct model *model = worker->model;

	if (worker->step_owed || model->phase == STEP_VOTED) {
		snprintf(text, CALL_TEXT_MAX,
			 "model \"%s\": this rank has voted on a step, and the worker was not told the decision: call "
			 "step again first",
			 model->name);
		return FSDP_E_STATE;
	}
	if (call_find(model->group, model, CALL_BIT(CALL_ALL_REDUCE))) {
		snprintf(text, CALL_TEXT_MAX, "model \"%s\" step %" PRIu64 ": another thread is in all-reduce",
			 model->name, model->step);
		return FSDP_E_STATE;
	}
	return 0;
}

static void begin(struct model *model, enum all_reduce_op op, const double *values, uint32_t count, struct call *call)
{
	struct all_reduce *own = &model->all_reduce;
	int64_t gone = membership_gone(model->group);

	free(own->values);
	own->op = op;
	own->count = count;
	own->values = group_allocate(count, sizeof(*own->values));
	if (count > 0)
		memcpy(own->values, values, count * sizeof(*own->values));
	memset(&model->all_reduce_awaited, 0, sizeof(model->all_reduce_awaited));
	call_wait(model->group, call);
	if (gone >= 0)
		step_peer_gone(model, (uint32_t)gone); /* as if it had waited before */
	else
		ask(model);
}

void worker_all_reduce(struct worker *worker, enum all_reduce_op op, const double *values, uint32_t count,
		       struct call *call)
{
	struct group *group = worker->group;
	char text[CALL_TEXT_MAX];

	group_enter(group);
	call_init(call, CALL_ALL_REDUCE, worker, 0);
	if (count > ALL_REDUCE_VALUES_MAX || !all_reduce_op_is_known((uint32_t)op)) {
		call_fail(group, call, FSDP_E_INVALID,
			  "an all-reduce takes at most %u values, and there are sum, max and min of them",
			  ALL_REDUCE_VALUES_MAX);
	} else if (step_admits(worker, call)) {
		int code = check_moment(worker, text);
		if (code < 0)
			call_fail(group, call, code, "%s", text);
		else
			begin(worker->model, op, values, count, call);
	}
	group_leave(group);
}

void all_reduce_hear_reduced(struct group *group, uint32_t rank, const struct peer_message *message,
			     struct buffer *payload)
{
	struct model *model = model_find(group, message->model);
	(void)rank;
	(void)payload;

	if (!model || !model_is_live(model) || message->step != model->step || message->attempt != model->attempt)
		return;
	struct all_reduce *own = &model->all_reduce;
	struct call *call = call_find(group, model, CALL_BIT(CALL_ALL_REDUCE));
	if (!call || message->number != own->number || (message->code == 0 && message->value_count != own->count))
		return;
	own->number++;
	if (message->code < 0)
		call_fail(group, call, message->code, "%s", message->text);
	else
		call_answer(
			group, call,
			&(struct answer){ .values = message->values, .value_count = (uint32_t)message->value_count });
}
