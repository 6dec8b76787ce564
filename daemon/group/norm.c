/*
 * The norm of an attempt's gradient, for who looks at gradients himself: each rank has its engine measure its sums and
 * tells the coordinator, which puts the parts together in the order of ranks and tells everybody. Once an attempt:
 * whoever asks again gets the same answer. Owns struct norm and the coordinator's parts. The loop thread runs it.
 */
#include "daemon/group/model.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "fsdp/error.h"

uint64_t norm_measure(struct model *model, double loss_scale)
{
	struct command *command = command_new(COMMAND_MEASURE);
	uint64_t token = ++model->measured;

	command->model = model->number;
	command->step = model->step;
	command->attempt = model->attempt;
	command->loss_scale = loss_scale;
	command->token = token;
	group_command(model->group, command);
	return token;
}

void norm_reset(struct model *model)
{
	memset(&model->norm, 0, sizeof(model->norm));
	if (model->norm_parts)
		memset(model->norm_parts, 0, model->group->config.world_size * sizeof(*model->norm_parts));
}

/* ---- The worker ---- */

static void answer(struct model *model, struct call *call)
{
	const struct norm_part *whole = &model->norm.whole;

	call_answer(model->group, call,
		    &(struct answer){ .norm = call->unit == NORM_INF ? whole->largest : sqrt(whole->squares),
				      .finite = whole->finite });
}

void worker_norm(struct worker *worker, enum norm_kind kind, struct call *call)
{
	struct group *group = worker->group;

	group_enter(group);
	call_init(call, CALL_NORM, worker, 0);
	if (step_admits(worker, call)) {
		struct model *model = worker->model;
		int64_t gone = membership_gone(group);
		call->unit = kind; /* it is of no unit */
		if (kind != NORM_2 && kind != NORM_INF) {
			call_fail(group, call, FSDP_E_INVALID, "there is no norm of kind %d", (int)kind);
		} else if (model->phase != STEP_REDUCED) {
			call_fail(group, call, FSDP_E_STATE,
				  "step %" PRIu64 ": a norm is that of gradients which were synchronised: sync first",
				  model->step);
		} else if (model->norm.phase == NORM_KNOWN) {
			answer(model, call);
		} else {
			call_wait(group, call);
			if (gone >= 0) {
				step_peer_gone(model, (uint32_t)gone);
			} else if (model->norm.phase == NORM_IDLE) {
				model->norm.phase = NORM_MEASURING;
				model->norm.token = norm_measure(model, 0);
			}
		}
	}
	group_leave(group);
}

/* ---- This rank ---- */

static void say_norm(struct model *model, uint32_t rank, enum peer_op op, const struct norm_part *part)
{
	struct peer_message message;

	group_message_init(&message, op);
	message.model = model->number;
	message.step = model->step;
	message.attempt = model->attempt;
	message.norm = part->squares;
	message.largest = part->largest;
	message.finite = part->finite;
	group_send(model->group, rank, &message);
}

void norm_measured(struct model *model, const struct report *report)
{
	if (model->norm.phase != NORM_MEASURING || report->token != model->norm.token)
		return;
	model->norm.own =
		(struct norm_part){ .finite = report->finite, .squares = report->squares, .largest = report->largest };
	model->norm.phase = NORM_ASKING;
	say_norm(model, GROUP_COORDINATOR, PEER_NORM, &model->norm.own);
}

void norm_repeat(struct model *model)
{
	if (model->norm.phase == NORM_ASKING)
		say_norm(model, GROUP_COORDINATOR, PEER_NORM, &model->norm.own);
}

void norm_hear_whole(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	struct model *model = model_find(group, message->model);
	struct call *call;
	(void)rank;
	(void)payload;

	if (!model || !model_is_live(model) || message->step != model->step || message->attempt != model->attempt ||
	    model->norm.phase != NORM_ASKING)
		return;
	model->norm.phase = NORM_KNOWN;
	model->norm.whole =
		(struct norm_part){ .finite = message->finite, .squares = message->norm, .largest = message->largest };
	while ((call = call_find(group, model, CALL_BIT(CALL_NORM))) != NULL)
		answer(model, call);
}

/* ---- The coordinator ---- */

void norm_lacking(const struct model *model, struct rank_list *ranks)
{
	for (uint32_t rank = 0; rank < model->group->config.world_size; rank++)
		if (!model->norm_parts[rank].cast)
			rank_list_add(ranks, rank);
}

static void say_waiting(struct model *model, uint32_t rank, const struct rank_list *lacking)
{
	uint64_t sums[RANK_LIST_MAX];
	struct peer_message message;

	group_message_init(&message, PEER_WAITING);
	group_message_name(&message, model->name);
	message.model = model->number;
	message.step = model->step;
	message.attempt = model->attempt;
	message.awaited = PEER_NORM;
	for (uint32_t i = 0; i < lacking->count; i++)
		sums[i] = lacking->ranks[i];
	message.sums = sums;
	message.sum_count = lacking->count;
	group_send(model->group, rank, &message);
}

static struct norm_part put_together(const struct model *model)
{
	struct norm_part whole = { .finite = true };

	for (uint32_t rank = 0; rank < model->group->config.world_size; rank++) {
		const struct norm_part *part = &model->norm_parts[rank];
		whole.squares += part->squares;
		if (isnan(part->largest) || part->largest > whole.largest)
			whole.largest = part->largest;
		whole.finite = whole.finite && part->finite;
	}
	return whole;
}

void norm_hear_part(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	struct model *model = model_find(group, message->model);
	struct rank_list lacking = { 0 };
	(void)payload;

	if (!model || !model_is_live(model) || votes_catch_up(model, rank, message->step, message->attempt) ||
	    message->step != model->step || message->attempt != model->attempt)
		return;
	bool repeated = model->norm_parts[rank].cast;
	if (!repeated)
		model->norm_parts[rank] = (struct norm_part){
			.cast = true, .finite = message->finite, .squares = message->norm, .largest = message->largest
		};
	norm_lacking(model, &lacking);
	if (lacking.count > 0) {
		if (repeated)
			say_waiting(model, rank, &lacking);
		return;
	}
	struct norm_part whole = put_together(model);
	for (uint32_t to = 0; to < group->config.world_size; to++)
		if (!repeated || to == rank)
			say_norm(model, to, PEER_NORMED, &whole);
}
