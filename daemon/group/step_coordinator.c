/*
 * Steps, the coordinator's part: counts the votes and decides, once. Also, on every rank, telling a decision again to
 * whoever is behind. Owns the ballots. The loop thread runs it.
 */
#include "daemon/group/model.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/runtime/planted.h"
#include "fsdp/error.h"

/* ---- Ballots ---- */

void votes_clear(struct model *model)
{
	for (uint32_t rank = 0; rank < model->group->config.world_size; rank++) {
		free(model->ballots[rank].bits);
		free(model->ballots[rank].bad);
		model->ballots[rank] = (struct ballot){ 0 };
	}
}

bool votes_any(const struct model *model)
{
	for (uint32_t rank = 0; rank < model->group->config.world_size; rank++)
		if (model->ballots[rank].cast)
			return true;
	return false;
}

void votes_lacking(const struct model *model, struct rank_list *ranks)
{
	for (uint32_t rank = 0; rank < model->group->config.world_size; rank++)
		if (!model->ballots[rank].cast)
			rank_list_add(ranks, rank);
}

/* ---- Deciding ---- */

/* The planted bug: to who has not heard of a commit yet the coordinator says that the step was aborted. */
static void abort_after_commit(struct model *model, uint32_t rank, const struct decision *committed)
{
	struct decision decision = *committed;

	decision.outcome = PEER_ABORT_STEP;
	decision.attempt++;
	decision.code = FSDP_E_ABORTED;
	snprintf(decision.text, sizeof(decision.text), "aborted too late");
	step_tell(model, rank, &decision);
}

static void decide(struct model *model, const struct decision *decision)
{
	uint32_t last = model->group->config.world_size - 1;

	for (uint32_t rank = 0; rank <= last; rank++) {
		if (rank == model->group->config.rank)
			continue;
		if (PLANTED(PLANTED_ABORT_AFTER_COMMIT) && decision->outcome != PEER_ABORT_STEP && rank == last)
			abort_after_commit(model, rank, decision);
		else
			step_tell(model, rank, decision);
	}
	step_decided(model, decision);
}

void votes_abort(struct model *model, int code, const char *text)
{
	struct decision decision = {
		.step = model->step, .attempt = model->attempt + 1, .outcome = PEER_ABORT_STEP, .code = code
	};

	assert(group_coordinates(model->group));
	if (model->attempt == UINT32_MAX)
		return;
	snprintf(decision.text, sizeof(decision.text), "%s", text);
	decide(model, &decision);
}

static void decide_commit(struct model *model)
{
	const struct ballot *own = &model->ballots[model->group->config.rank];
	uint8_t bits[PEER_BITS_MAX] = { 0 }, bad[PEER_BITS_MAX] = { 0 };
	double weights = 0;
	bool finite = true;

	for (uint32_t rank = 0; rank < model->group->config.world_size; rank++) {
		const struct ballot *ballot = &model->ballots[rank];
		if (!ballot->cast) /* only where that bug was planted */
			continue;
		if (!own->cast)
			own = ballot;
		finite = finite && ballot->finite;
		weights += ballot->weights;
		for (size_t i = 0; i < model->bits_size; i++)
			bits[i] = (uint8_t)(bits[i] | ballot->bits[i]);
		for (size_t i = 0; i < model->bits_size && ballot->bad && ballot->commit == COMMIT_OPTIMIZER; i++)
			bad[i] = (uint8_t)(bad[i] | ballot->bad[i]);
	}
	bool apply = (finite && weights > 0) || own->commit == COMMIT_STAGING;
	struct decision decision = { .step = model->step,
				     .attempt = model->attempt,
				     .outcome = apply ? PEER_APPLY : PEER_SKIP,
				     .commit = own->commit,
				     .options = own->options,
				     .groups = own->groups,
				     .rules = own->rules,
				     .finite = finite,
				     .bits = bits,
				     .bad = bad };
	rules_decide(model, &decision);
	decide(model, &decision);
}

static void consider(struct model *model)
{
	uint32_t world_size = model->group->config.world_size;
	uint32_t wanted = PLANTED(PLANTED_DECIDE_EARLY) && world_size > 1 ? world_size - 1 : world_size;
	uint32_t first = UINT32_MAX, count = 0;
	char difference[CALL_TEXT_MAX / 2], text[CALL_TEXT_MAX];

	for (uint32_t rank = 0; rank < world_size; rank++) {
		if (!model->ballots[rank].cast)
			continue;
		count++;
		if (first == UINT32_MAX) {
			first = rank;
		} else if (options_differ(model, first, rank, difference, sizeof(difference))) {
			snprintf(text, sizeof(text), "model \"%s\" %s", model->name, difference);
			votes_abort(model, FSDP_E_MISMATCH, text);
			return;
		}
	}
	if (count >= wanted)
		decide_commit(model);
}

/* ---- Hearing ---- */

bool votes_catch_up(struct model *model, uint32_t rank, uint64_t step, uint32_t attempt)
{
	bool behind = step < model->step || (step == model->step && attempt < model->attempt);
	bool lacks_commit = behind && model->committed.known && model->committed.step == step;

	if (lacks_commit && PLANTED(PLANTED_ABORT_AFTER_COMMIT) && group_coordinates(model->group))
		abort_after_commit(model, rank, &model->committed);
	else if (lacks_commit)
		step_tell(model, rank, &model->committed);
	else if (behind && model->aborted.known && model->aborted.step == step && step == model->step)
		step_tell(model, rank, &model->aborted);
	return behind;
}

static void say_waiting(struct model *model, uint32_t rank)
{
	struct rank_list ranks = { 0 };
	uint64_t sums[RANK_LIST_MAX];
	struct peer_message message;

	votes_lacking(model, &ranks);
	group_message_init(&message, PEER_WAITING);
	group_message_name(&message, model->name);
	message.model = model->number;
	message.step = model->step;
	message.attempt = model->attempt;
	message.awaited = PEER_VOTE;
	for (uint32_t i = 0; i < ranks.count; i++)
		sums[i] = ranks.ranks[i];
	message.sums = sums;
	message.sum_count = ranks.count;
	group_send(model->group, rank, &message);
}

void votes_hear_vote(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	struct model *model = model_find(group, message->model);
	(void)payload;

	if (!model || !model_is_live(model) || message->commit > COMMIT_STAGING ||
	    message->bits_size != model->bits_size ||
	    (message->bad_size != 0 && message->bad_size != model->bits_size) || !isfinite(message->weight) ||
	    message->weight < 0 || votes_catch_up(model, rank, message->step, message->attempt) ||
	    message->step != model->step || message->attempt != model->attempt)
		return;
	struct ballot *ballot = &model->ballots[rank];
	if (ballot->cast) {
		say_waiting(model, rank);
		return;
	}
	ballot->cast = true;
	ballot->finite = message->finite;
	ballot->weights = message->weight;
	ballot->norm = message->norm;
	ballot->rules = rules_read(&message->rules);
	if (message->bad_size > 0) {
		ballot->bad = group_allocate(model->bits_size, 1);
		memcpy(ballot->bad, message->bad, model->bits_size);
	}
	ballot->commit = (enum step_commit)message->commit;
	ballot->options = step_options_read(&message->options);
	step_groups_read(message, &ballot->groups);
	ballot->bits = group_allocate(model->bits_size, 1);
	if (model->bits_size)
		memcpy(ballot->bits, message->bits, model->bits_size);
	int64_t gone = membership_gone(group);
	if (gone >= 0)
		step_peer_gone(model, (uint32_t)gone);
	else
		consider(model);
}

void votes_hear_abort(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	static const int reasons[] = { FSDP_E_TIMEOUT, FSDP_E_MISMATCH, FSDP_E_PEER_LOST, FSDP_E_ABORTED };
	struct model *model = model_find(group, message->model);
	int code = FSDP_E_ABORTED;
	(void)payload;

	if (!model || !model_is_live(model))
		return;
	if (votes_catch_up(model, rank, message->step, message->attempt) || message->step != model->step ||
	    message->attempt != model->attempt)
		return;
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (message->code == reasons[i])
			code = message->code;
	votes_abort(model, code, message->text);
}
