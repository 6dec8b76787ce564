/*
 * Small all-reduces, the coordinator's part: when every rank has asked the same, adds in rank order and tells
 * everybody, once. Answers of the attempt are kept, for who asks again and for a worker that comes anew. Owns the
 * questions and the answers. The loop thread runs it.
 */
#include "daemon/group/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/runtime/planted.h"
#include "fsdp/error.h"

/* ---- Questions and answers ---- */

static void questions_clear(struct model *model)
{
	for (uint32_t rank = 0; rank < model->group->config.world_size; rank++) {
		free(model->questions[rank].values);
		model->questions[rank] = (struct question){ 0 };
	}
}

void all_reduces_clear(struct model *model)
{
	questions_clear(model);
	for (uint32_t i = 0; model->reduced && i < ALL_REDUCES_KEPT; i++) {
		free(model->reduced[i].values);
		free(model->reduced[i].text);
	}
	free(model->reduced);
	model->reduced = NULL;
	model->reduced_number = 0;
}

bool all_reduces_any(const struct model *model)
{
	for (uint32_t rank = 0; rank < model->group->config.world_size; rank++)
		if (model->questions[rank].asked)
			return true;
	return false;
}

void all_reduces_lacking(const struct model *model, struct rank_list *ranks)
{
	for (uint32_t rank = 0; rank < model->group->config.world_size; rank++)
		if (!model->questions[rank].asked)
			rank_list_add(ranks, rank);
}

/* Of the present attempt, and kept; NULL where there is none any more. */
static const struct reduced *find_reduced(const struct model *model, uint64_t number)
{
	if (number >= model->reduced_number || model->reduced_number - number > ALL_REDUCES_KEPT)
		return NULL;
	return &model->reduced[number % ALL_REDUCES_KEPT];
}

/* ---- Saying ---- */

static void say_reduced(struct model *model, uint64_t number, const struct reduced *reduced, int code, const char *text,
			int64_t rank)
{
	struct peer_message message;

	group_message_init(&message, PEER_ALL_REDUCED);
	group_message_text(&message, text);
	message.model = model->number;
	message.step = model->step;
	message.attempt = model->attempt;
	message.number = number;
	message.code = code;
	if (code == 0) {
		message.values = reduced->values;
		message.value_count = reduced->count;
	}
	if (rank >= 0)
		group_send(model->group, (uint32_t)rank, &message);
	else
		group_tell_others(model->group, &message);
}

static void say_waiting(struct model *model, uint32_t rank)
{
	struct rank_list ranks = { 0 };
	uint64_t sums[RANK_LIST_MAX];
	struct peer_message message;

	all_reduces_lacking(model, &ranks);
	group_message_init(&message, PEER_WAITING);
	group_message_name(&message, model->name);
	message.model = model->number;
	message.step = model->step;
	message.attempt = model->attempt;
	message.number = model->reduced_number;
	message.awaited = PEER_ALL_REDUCE;
	for (uint32_t i = 0; i < ranks.count; i++)
		sums[i] = ranks.ranks[i];
	message.sums = sums;
	message.sum_count = ranks.count;
	group_send(model->group, rank, &message);
}

/* ---- The arithmetic ---- */

/* The first value that is not a number wins over all numbers, as the same bits for everybody. */
static double combine(enum all_reduce_op op, double sum, double value)
{
	if (op == ALL_REDUCE_SUM)
		return sum + value;
	if (isnan(sum))
		return sum;
	if (isnan(value))
		return value;
	return (op == ALL_REDUCE_MAX ? value > sum : value < sum) ? value : sum;
}

static void combine_all(const struct model *model, double *ret_values)
{
	const struct question *first = &model->questions[0];
	uint32_t world_size = model->group->config.world_size;

	for (uint32_t i = 0; i < first->count; i++) {
		double sum = first->values[i];
		for (uint32_t rank = 1; rank < world_size; rank++) {
			uint32_t at = PLANTED(PLANTED_ALL_REDUCE_ORDER) ? world_size - rank : rank;
			sum = combine(first->op, sum, model->questions[at].values[i]);
		}
		ret_values[i] = sum;
	}
}

/* ---- Deciding ---- */

static bool alike(enum all_reduce_op op, size_t count, const struct question *question)
{
	return question->op == op && question->count == count;
}

static void difference_write(const struct model *model, uint32_t a, uint32_t b, char *text, size_t size)
{
	const struct question *first = &model->questions[a], *second = &model->questions[b];

	snprintf(text, size,
		 "model \"%s\" step %" PRIu64 ", all-reduce %" PRIu64 ": rank %" PRIu32 " asks for the %s of %" PRIu32
		 " values, rank %" PRIu32 " for the %s of %" PRIu32,
		 model->name, model->step, model->reduced_number, a, all_reduce_op_name(first->op), first->count, b,
		 all_reduce_op_name(second->op), second->count);
}

/* Keeps the answer, and tells it; the place in the ring is the oldest one's. */
static void conclude(struct model *model, int code, const char *text)
{
	uint64_t number = model->reduced_number++;
	struct reduced *reduced;

	if (!model->reduced)
		model->reduced = group_allocate(ALL_REDUCES_KEPT, sizeof(*model->reduced));
	reduced = &model->reduced[number % ALL_REDUCES_KEPT];
	free(reduced->values);
	free(reduced->text);
	*reduced = (struct reduced){ .code = code };
	if (code == 0) {
		reduced->op = model->questions[0].op;
		reduced->count = model->questions[0].count;
		reduced->values = group_allocate(reduced->count, sizeof(*reduced->values));
		combine_all(model, reduced->values);
	} else {
		reduced->text = group_duplicate(text);
	}
	questions_clear(model);
	say_reduced(model, number, reduced, code, text, -1);
	say_reduced(model, number, reduced, code, text, model->group->config.rank);
}

static void consider(struct model *model)
{
	uint32_t world_size = model->group->config.world_size, first = UINT32_MAX, count = 0;
	char text[CALL_TEXT_MAX];

	for (uint32_t rank = 0; rank < world_size; rank++) {
		const struct question *question = &model->questions[rank];
		if (!question->asked)
			continue;
		count++;
		if (first == UINT32_MAX) {
			first = rank;
		} else if (!alike(question->op, question->count, &model->questions[first])) {
			difference_write(model, first, rank, text, sizeof(text));
			conclude(model, FSDP_E_MISMATCH, text);
			return;
		}
	}
	if (count == world_size)
		conclude(model, 0, "");
}

/* ---- Hearing ---- */

/* A question that was answered: the same answer again. A worker that came anew may ask for one that is not kept any
 * more. */
static void answer_again(struct model *model, uint32_t rank, const struct peer_message *message)
{
	const struct reduced *reduced = find_reduced(model, message->number);
	char text[CALL_TEXT_MAX];

	if (!reduced) {
		snprintf(text, sizeof(text),
			 "model \"%s\" step %" PRIu64 ": rank %" PRIu32 " asks for all-reduce %" PRIu64
			 " again; the last %u are kept: begin the step again",
			 model->name, model->step, rank, message->number, ALL_REDUCES_KEPT);
		votes_abort(model, FSDP_E_ABORTED, text);
	} else if (reduced->code < 0) {
		say_reduced(model, message->number, reduced, reduced->code, reduced->text, rank);
	} else if (message->combine != (uint32_t)reduced->op || message->value_count != reduced->count) {
		snprintf(text, sizeof(text),
			 "model \"%s\" step %" PRIu64 ", all-reduce %" PRIu64 ": the ranks asked for the %s of %" PRIu32
			 " values, rank %" PRIu32 " now asks for the %s of %zu",
			 model->name, model->step, message->number, all_reduce_op_name(reduced->op), reduced->count,
			 rank, all_reduce_op_name((enum all_reduce_op)message->combine), message->value_count);
		say_reduced(model, message->number, reduced, FSDP_E_MISMATCH, text, rank);
	} else {
		say_reduced(model, message->number, reduced, 0, "", rank);
	}
}

/* What a rank asked first stands; from its worker's successor another question is a difference. */
static void hear_repeated(struct model *model, uint32_t rank, const struct peer_message *message)
{
	const struct question *question = &model->questions[rank];
	char text[CALL_TEXT_MAX];

	if (alike((enum all_reduce_op)message->combine, message->value_count, question)) {
		say_waiting(model, rank);
		return;
	}
	snprintf(text, sizeof(text),
		 "model \"%s\" step %" PRIu64 ", all-reduce %" PRIu64 ": rank %" PRIu32 " asked for the %s of %" PRIu32
		 " values, and now rank %" PRIu32 " asks for the %s of %zu",
		 model->name, model->step, message->number, rank, all_reduce_op_name(question->op), question->count,
		 rank, all_reduce_op_name((enum all_reduce_op)message->combine), message->value_count);
	conclude(model, FSDP_E_MISMATCH, text);
}

void all_reduces_hear(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	struct model *model = model_find(group, message->model);
	(void)payload;

	if (!model || !model_is_live(model) || !all_reduce_op_is_known(message->combine) ||
	    message->value_count > ALL_REDUCE_VALUES_MAX ||
	    votes_catch_up(model, rank, message->step, message->attempt) || message->step != model->step ||
	    message->attempt != model->attempt || message->number > model->reduced_number)
		return;
	if (message->number < model->reduced_number) {
		answer_again(model, rank, message);
		return;
	}
	struct question *question = &model->questions[rank];
	if (question->asked) {
		hear_repeated(model, rank, message);
		return;
	}
	question->asked = true;
	question->op = (enum all_reduce_op)message->combine;
	question->count = (uint32_t)message->value_count;
	question->values = group_allocate(question->count, sizeof(*question->values));
	if (question->count > 0)
		memcpy(question->values, message->values, question->count * sizeof(*question->values));
	int64_t gone = membership_gone(group);
	if (gone >= 0)
		step_peer_gone(model, (uint32_t)gone);
	else
		consider(model);
}
