/*
 * Steps: a decision, and what follows from it on this rank: versions, answers, slots, the next attempt. Every rank keeps the last
 * commit and the last abort, to tell them again. The loop thread runs it.
 */
#include "daemon/group/model.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/runtime/planted.h"
#include "fsdp/error.h"

/* ---- Options on the wire ---- */

struct peer_options step_options_write(const struct optimizer_options *options)
{
	return (struct peer_options){ .learning_rate = options->learning_rate,
				      .momentum = options->momentum,
				      .dampening = options->dampening,
				      .weight_decay = options->weight_decay,
				      .beta1 = options->beta1,
				      .beta2 = options->beta2,
				      .epsilon = options->epsilon };
}

struct optimizer_options step_options_read(const struct peer_options *options)
{
	return (struct optimizer_options){ .learning_rate = options->learning_rate,
					   .momentum = options->momentum,
					   .dampening = options->dampening,
					   .weight_decay = options->weight_decay,
					   .beta1 = options->beta1,
					   .beta2 = options->beta2,
					   .epsilon = options->epsilon };
}

/* ---- What follows ---- */

static void begin_attempt(struct model *model, uint64_t step, uint32_t attempt)
{
	step_move(model, STEP_COLLECTING);
	model->step = step;
	model->attempt = attempt;
	model->micro_batch = model->reduced_count = 0;
	model->weight = 1;
	model->weights = 0;
	model->abort_wanted = false;
	buffer_unref(model->offered);
	model->offered = NULL;
	model->finite = false;
	model->wait_count = 0;
	memset(&model->vote_awaited, 0, sizeof(model->vote_awaited));
	for (uint32_t i = 0; i < model->unit_count; i++)
		model->units[i].reduced = model->units[i].present = false;
	all_reduce_restart(model);
	if (model->ballots) {
		votes_clear(model);
		all_reduces_clear(model);
	}
}

static void keep(struct model *model, struct decision *kept, const struct decision *decision)
{
	uint8_t *bits = kept->bits;
	*kept = *decision;
	kept->bits = bits;
	kept->known = true;
	if (bits && model->bits_size > 0)
		memcpy(bits, decision->bits, model->bits_size);
}

static bool bit(const uint8_t *bits, uint32_t index)
{
	return bits[index / 8] >> index % 8 & 1;
}

static void command_apply(struct model *model, const struct decision *decision)
{
	struct command *command = command_new(COMMAND_APPLY);

	command->model = model->number;
	command->step = decision->step;
	command->attempt = decision->attempt;
	command->outcome = decision->outcome == PEER_APPLY ? STEP_APPLIED : STEP_SKIPPED;
	command->commit = decision->commit;
	command->options = decision->options;
	command->bits = group_allocate(model->unit_count, 1);
	for (uint32_t i = 0; i < model->unit_count; i++)
		command->bits[i] = bit(decision->bits, i);
	group_command(model->group, command);
}

/* The step call, or, where nobody waits in one, what the next is owed. */
static void answer_step(struct model *model, const struct decision *decision)
{
	struct group *group = model->group;
	enum step_outcome outcome = decision->outcome == PEER_APPLY ? STEP_APPLIED : STEP_SKIPPED;
	struct call *call = call_find(group, model, CALL_BIT(CALL_STEP));

	if (call && outcome == STEP_APPLIED && decision->commit == COMMIT_STAGING) {
		call->kind = CALL_PUBLISH; /* the staging copy is not free yet */
		call->token = decision->step;
	} else if (call) {
		call_answer(group, call, &(struct answer){ .outcome = outcome });
	} else if (model->worker && model->worker->state == WORKER_ATTACHED) {
		model->worker->step_owed = true;
		model->worker->outcome = outcome;
	}
}

static void let_attach(struct model *model)
{
	if (model->worker && model->worker->state == WORKER_WAITS_DECISION)
		worker_attached(model->worker, true);
}

static void committed(struct model *model, const struct decision *decision)
{
	struct group *group = model->group;
	bool applied = decision->outcome == PEER_APPLY;

	keep(model, &model->committed, decision);
	command_apply(model, decision);
	for (uint32_t i = 0; i < model->unit_count && applied; i++)
		if (decision->commit == COMMIT_STAGING || bit(decision->bits, i))
			model->units[i].version++;
	buffer_unref(model->kept);
	model->kept = model->offered;
	model->offered = NULL;
	begin_attempt(model, decision->step + 1, 0);
	model->steps_applied += applied;
	model->steps_skipped += !applied;
	gradient_release(model);
	group_notice(group, NOTICE_STEP_COMMITTED, model, NULL, -1, "step %" PRIu64 " was %s", decision->step,
		     applied            ? "applied"
		     : decision->finite ? "skipped: its weights sum to 0"
					: "skipped: a gradient was not finite");
	answer_step(model, decision);
	call_fail_all(group, model, CALL_BIT(CALL_ABORT), FSDP_E_STATE,
		      "the step was committed before it could be aborted");
	call_fail_all(group, model, CALL_BIT(CALL_ALL_REDUCE), FSDP_E_STATE,
		      "the step was committed while this call waited: no thread may step meanwhile");
	let_attach(model);
	gather_prune(model);
	gather_pump(model);
}

static bool asked_itself(const struct model *model)
{
	for (const struct call *call = model->group->calls; call; call = call->next)
		if (call->kind == CALL_ABORT && call->worker && call->worker->model == model)
			return true;
	return false;
}

static void aborted(struct model *model, const struct decision *decision)
{
	struct group *group = model->group;
	struct worker *worker = model->worker;
	/* Nor is there anything to tell to one that does not know yet that the step before was committed. */
	bool told = model->phase == STEP_GIVEN_UP || call_find(group, model, CALL_OF_STEP) || asked_itself(model) ||
		    (worker && worker->step_owed);
	struct command *command = command_new(COMMAND_ABORT);
	struct call *call;

	keep(model, &model->aborted, decision);
	command->model = model->number;
	command->step = decision->step;
	command->attempt = decision->attempt;
	group_command(group, command);
	begin_attempt(model, decision->step, decision->attempt);
	model->steps_aborted++;
	group_notice(group, NOTICE_STEP_ABORTED, model, NULL, -1, "%s", decision->text);
	call_fail_all(group, model, CALL_OF_STEP, decision->code < 0 ? decision->code : FSDP_E_ABORTED, decision->text);
	if (worker && worker->state == WORKER_ATTACHED && !told) {
		worker->abort_owed = true;
		snprintf(worker->abort_text, sizeof(worker->abort_text), "%s", decision->text);
	} else {
		gradient_release(model);
	}
	while ((call = call_find(group, model, CALL_BIT(CALL_ABORT))) != NULL)
		call_succeed(group, call);
	let_attach(model);
}

void step_decided(struct model *model, const struct decision *decision)
{
	if (decision->step != model->step)
		return; /* heard before, or too early: told again when we got there */
	if (decision->outcome == PEER_ABORT_STEP) {
		if (decision->attempt > model->attempt)
			aborted(model, decision);
		return;
	}
	if (decision->attempt != model->attempt || (model->phase != STEP_VOTED && !PLANTED(PLANTED_DECIDE_EARLY)))
		return;
	if (model->phase == STEP_VOTED && (decision->commit != model->commit ||
					   memcmp(&decision->options, &model->options, sizeof(model->options)) != 0))
		return; /* not what was voted on */
	committed(model, decision);
}

void step_hear_decision(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	struct model *model = model_find(group, message->model);
	bool commits = message->outcome == PEER_APPLY || message->outcome == PEER_SKIP;
	(void)rank;
	(void)payload;

	if (!model || !model_is_live(model) || message->outcome > PEER_ABORT_STEP || message->commit > COMMIT_STAGING ||
	    (commits && message->bits_size != model->bits_size))
		return;
	struct decision decision = { .step = message->step,
				     .attempt = message->attempt,
				     .outcome = (enum peer_outcome)message->outcome,
				     .commit = (enum step_commit)message->commit,
				     .options = step_options_read(&message->options),
				     .finite = message->finite,
				     .bits = message->bits,
				     .code = message->code };
	snprintf(decision.text, sizeof(decision.text), "%s", message->text);
	step_decided(model, &decision);
}

void step_tell(struct model *model, uint32_t rank, const struct decision *decision)
{
	struct peer_message message;

	group_message_init(&message, PEER_DECISION);
	group_message_text(&message, decision->text);
	message.model = model->number;
	message.step = decision->step;
	message.attempt = decision->attempt;
	message.outcome = decision->outcome;
	message.commit = decision->commit;
	message.code = decision->code;
	message.finite = decision->finite;
	message.has_options = decision->outcome != PEER_ABORT_STEP;
	message.options = step_options_write(&decision->options);
	if (decision->outcome != PEER_ABORT_STEP) {
		message.bits = decision->bits;
		message.bits_size = model->bits_size;
	}
	group_send(model->group, rank, &message);
}

void step_applied(struct model *model, const struct report *report)
{
	struct group *group = model->group;

	if (report->step + 1 > model->applied)
		model->applied = report->step + 1;
	for (struct call *call = group->calls, *next; call; call = next) {
		next = call->next;
		if (call->kind == CALL_PUBLISH && call->worker->model == model && call->token <= report->step)
			call_answer(group, call, &(struct answer){ .outcome = STEP_APPLIED });
	}
}
