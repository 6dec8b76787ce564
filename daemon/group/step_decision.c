/*
 * Steps: a decision, and what follows from it on this rank: versions, answers, slots, the next attempt. Every rank
 * keeps the last commit and the last abort, to tell them again. The loop thread runs it.
 */
#include "daemon/group/model.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/runtime/planted.h"
#include "fsdp/error.h"

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
	model->has_part = false;
	model->measuring = 0;
	model->part = 0;
	norm_reset(model);
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
	uint8_t *bits = kept->bits, *bad = kept->bad;
	*kept = *decision;
	kept->bits = bits;
	kept->bad = bad;
	kept->known = true;
	if (bits && model->bits_size > 0) {
		memcpy(bits, decision->bits, model->bits_size);
		memset(bad, 0, model->bits_size);
		if (decision->bad)
			memcpy(bad, decision->bad, model->bits_size);
	}
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
	if (decision->groups.count > 0) {
		command->groups = group_allocate(1, sizeof(*command->groups));
		*command->groups = decision->groups;
	}
	command->loss_scale = decision->rules.loss_scale;
	command->clip = decision->clip;
	command->bits = group_allocate(model->unit_count, 1);
	for (uint32_t i = 0; i < model->unit_count; i++)
		command->bits[i] = bits_get(decision->bits, i);
	group_command(model->group, command);
}

/* What a commit says to this rank's worker. */
static struct answer commit_answer(const struct model *model, const struct decision *decision)
{
	struct answer answer = { .code = decision->code,
				 .text = decision->text,
				 .outcome = decision->outcome == PEER_APPLY ? STEP_APPLIED : STEP_SKIPPED,
				 .norm = decision->norm,
				 .next_scale = decision->next_scale };

	for (uint32_t i = 0; i < model->unit_count && decision->bad && model->worker; i++)
		if (bits_get(decision->bad, manifest_canonical(model->worker->manifest, i))) {
			if (answer.bad_count < ANSWER_UNITS_MAX)
				answer.bad[answer.bad_count] = i;
			answer.bad_count++;
		}
	return answer;
}

/* The step call, or, where nobody waits in one, what the next is owed. */
static void answer_step(struct model *model, const struct decision *decision)
{
	struct group *group = model->group;
	struct answer answer = commit_answer(model, decision);
	struct call *call = call_find(group, model, CALL_BIT(CALL_STEP));
	struct worker *worker = model->worker;

	if (call && answer.outcome == STEP_APPLIED && decision->commit == COMMIT_STAGING) {
		call->kind = CALL_PUBLISH; /* the staging copy is not free yet */
		call->token = decision->step;
	} else if (call) {
		call_answer(group, call, &answer);
	} else if (worker && worker->state == WORKER_ATTACHED) {
		worker->step_owed = true;
		snprintf(worker->owed_text, sizeof(worker->owed_text), "%s", decision->text);
		worker->owed = answer;
		worker->owed.text = worker->owed_text;
	}
}

static void notice_commit(struct model *model, const struct decision *decision)
{
	char units[CALL_TEXT_MAX / 2];

	if (decision->outcome == PEER_APPLY) {
		group_notice(model->group, NOTICE_STEP_COMMITTED, model, NULL, -1, "step %" PRIu64 " was applied",
			     decision->step);
	} else if (decision->finite) {
		group_notice(model->group, NOTICE_STEP_COMMITTED, model, NULL, -1,
			     "step %" PRIu64 " was skipped: its weights sum to 0", decision->step);
	} else {
		rules_name_units(model, decision->bad, units, sizeof(units));
		group_notice(model->group, NOTICE_STEP_COMMITTED, model, NULL, -1,
			     "step %" PRIu64 " was skipped: the gradient was not finite of %s", decision->step, units);
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
		if (decision->commit == COMMIT_STAGING || bits_get(decision->bits, i))
			model->units[i].version++;
	buffer_unref(model->kept);
	model->kept = model->offered;
	model->offered = NULL;
	begin_attempt(model, decision->step + 1, 0);
	model->good_steps = decision->good_steps;
	model->steps_applied += applied;
	model->steps_skipped += !applied;
	gradient_release(model);
	notice_commit(model, decision);
	answer_step(model, decision);
	call_fail_all(group, model, CALL_BIT(CALL_NORM), FSDP_E_STATE,
		      "the step was committed while the norm of its gradient was awaited");
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
					   memcmp(&decision->options, &model->options, sizeof(model->options)) != 0 ||
					   memcmp(&decision->groups, &model->groups, sizeof(model->groups)) != 0 ||
					   memcmp(&decision->rules, &model->rules, sizeof(model->rules)) != 0))
		return; /* not what was voted on */
	committed(model, decision);
}

/* Of a commit. */
static bool is_sane(const struct model *model, const struct peer_message *message)
{
	bool fails = message->code == FSDP_E_STATE && message->outcome == PEER_SKIP;

	return message->bits_size == model->bits_size &&
	       (message->bad_size == 0 || message->bad_size == model->bits_size) && message->clip >= 0 &&
	       message->clip <= 1 && isfinite(message->next_scale) && message->next_scale >= 0 &&
	       (message->code == 0 || fails);
}

void step_hear_decision(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	struct model *model = model_find(group, message->model);
	bool commits = message->outcome == PEER_APPLY || message->outcome == PEER_SKIP;
	(void)rank;
	(void)payload;

	if (!model || !model_is_live(model) || message->outcome > PEER_ABORT_STEP || message->commit > COMMIT_STAGING ||
	    (commits && !is_sane(model, message)))
		return;
	struct decision decision = { .step = message->step,
				     .attempt = message->attempt,
				     .outcome = (enum peer_outcome)message->outcome,
				     .commit = (enum step_commit)message->commit,
				     .options = step_options_read(&message->options),
				     .rules = rules_read(&message->rules),
				     .finite = message->finite,
				     .norm = message->norm,
				     .clip = message->clip,
				     .next_scale = message->next_scale,
				     .good_steps = message->good_steps,
				     .bits = message->bits,
				     .bad = message->bad,
				     .code = message->code };
	snprintf(decision.text, sizeof(decision.text), "%s", message->text);
	step_groups_read(message, &decision.groups);
	step_decided(model, &decision);
}

void step_tell(struct model *model, uint32_t rank, const struct decision *decision)
{
	struct peer_group groups[OPTIMIZER_GROUPS_MAX];
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
		step_groups_write(&decision->groups, groups, &message);
		message.has_rules = true;
		message.rules = rules_write(&decision->rules);
		message.norm = decision->norm;
		message.clip = decision->clip;
		message.next_scale = decision->next_scale;
		message.good_steps = decision->good_steps;
		message.bad = decision->bad;
		message.bad_size = decision->finite || !decision->bad ? 0 : model->bits_size;
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
