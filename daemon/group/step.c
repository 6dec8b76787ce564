/*
 * Steps, this rank's part: micro-batches, the vote, the decision and what follows from it, deadlines and lost peers. Owns the step's
 * fields of struct model. The loop thread runs it. Who decides is in step_coordinator.c.
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

#define TO(phase) (1u << (phase))
static const unsigned STEP_MOVES[] = {
	[STEP_COLLECTING] = TO(STEP_COLLECTING) | TO(STEP_REDUCING) | TO(STEP_GIVEN_UP),
	[STEP_REDUCING] = TO(STEP_COLLECTING) | TO(STEP_REDUCED) | TO(STEP_GIVEN_UP),
	[STEP_REDUCED] = TO(STEP_COLLECTING) | TO(STEP_VOTED) | TO(STEP_GIVEN_UP),
	[STEP_VOTED] = TO(STEP_COLLECTING),
	[STEP_GIVEN_UP] = TO(STEP_COLLECTING),
};

static void step_move(struct model *model, enum step_phase phase)
{
	assert(STEP_MOVES[model->phase] & TO(phase));
	model->phase = phase;
}

bool step_has_contributions(const struct model *model)
{
	if (model->phase != STEP_COLLECTING || model->micro_batch > 0)
		return true;
	return model->reduced_count > 0;
}

/* ---- Asking for an abort ---- */

static void ask_abort(struct model *model)
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
	ask_abort(model);
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
		if (waits || step_has_contributions(model) || votes_any(model))
			votes_abort(model, FSDP_E_PEER_LOST, text);
	} else if (waits) {
		for (struct call *call = group->calls; call; call = call->next)
			if ((CALL_OF_STEP & CALL_BIT(call->kind)) && call->worker->model == model)
				hurry(group, call);
		step_want_abort(model, FSDP_E_PEER_LOST, text);
	}
}

/* ---- Micro-batches ---- */

bool step_admits(struct worker *worker, struct call *call)
{
	struct group *group = worker->group;
	struct model *model = worker->model;
	char text[CALL_TEXT_MAX];
	int code = worker_check(worker, text);

	if (code < 0) {
		call_fail(group, call, code, "%s", text);
		return false;
	}
	if (worker->abort_owed) {
		worker->abort_owed = false;
		gradient_release(model);
		call_fail(group, call, FSDP_E_ABORTED, "%s", worker->abort_text);
		return false;
	}
	if (model->phase == STEP_GIVEN_UP) {
		call_fail(group, call, model->abort_code, "%s", model->abort_text);
		return false;
	}
	return true;
}

static void end_micro_batch(struct model *model, bool last)
{
	struct command *command = command_new(COMMAND_CLOSE);

	if (model->micro_batch > 0 && model->reduced_count > 0)
		model->later_weight++;
	command->model = model->number;
	command->step = model->step;
	command->attempt = model->attempt;
	command->micro_batch = model->micro_batch;
	command->last = last;
	command->weight = last ? 1.0 + model->later_weight : 0.0;
	command->bits = group_allocate(model->unit_count, 1);
	for (uint32_t i = 0; i < model->unit_count; i++)
		command->bits[i] = model->units[i].reduced ? 0 : 1;
	if (last) {
		step_move(model, STEP_REDUCING);
	} else {
		model->micro_batch++;
		model->reduced_count = 0;
		for (uint32_t i = 0; i < model->unit_count; i++)
			model->units[i].reduced = false;
	}
	group_command(model->group, command);
	if (last)
		call_fail_all(model->group, model, CALL_BIT(CALL_GRAD), FSDP_E_STATE,
			      "the gradients were synchronised while this call waited");
}

void worker_next_micro_batch(struct worker *worker, struct call *call)
{
	struct group *group = worker->group;

	group_enter(group);
	call_init(call, CALL_MICRO_BATCH, worker, 0);
	if (step_admits(worker, call)) {
		struct model *model = worker->model;
		if (model->phase != STEP_COLLECTING) {
			call_fail(group, call, FSDP_E_STATE,
				  "step %" PRIu64 ": the gradients were synchronised: call step first", model->step);
		} else if (model->micro_batch + 1 >= GROUP_MICRO_BATCHES_MAX) {
			call_fail(group, call, FSDP_E_OVERFLOW, "a step has at most %u micro-batches",
				  GROUP_MICRO_BATCHES_MAX);
		} else {
			end_micro_batch(model, false);
			gradient_release(model);
			call_succeed(group, call);
		}
	}
	group_leave(group);
}

/* Where the ranks loaded different values neither sync nor step goes on: 0, or a code with its text. */
static int check_loaded(const struct model *model, char *text)
{
	for (uint32_t i = 0; i < model->unit_count && model->troubled > 0; i++)
		if (model->units[i].trouble) {
			snprintf(text, CALL_TEXT_MAX, "%s", model->units[i].trouble);
			return FSDP_E_MISMATCH;
		}
	return 0;
}

/* The call waits for all ranks. Where one is gone it fails as if it had waited before: the attempt ends with it, on every rank. */
static void wait_for_all(struct model *model, struct call *call)
{
	int64_t gone = membership_gone(model->group);

	call_wait(model->group, call);
	if (gone >= 0)
		step_peer_gone(model, (uint32_t)gone);
	else if (model->phase == STEP_COLLECTING)
		end_micro_batch(model, true);
}

void worker_sync(struct worker *worker, struct call *call)
{
	struct group *group = worker->group;
	char text[CALL_TEXT_MAX];

	group_enter(group);
	call_init(call, CALL_SYNC, worker, 0);
	if (step_admits(worker, call)) {
		struct model *model = worker->model;
		int code = check_loaded(model, text);
		if (model->phase == STEP_REDUCED || model->phase == STEP_VOTED)
			call_succeed(group, call);
		else if (code < 0)
			call_fail(group, call, code, "%s", text);
		else
			wait_for_all(model, call);
	}
	group_leave(group);
}

void step_reduced(struct model *model, const struct report *report)
{
	struct group *group = model->group;
	struct call *call;

	if (!model_is_live(model) || model->phase != STEP_REDUCING || report->step != model->step ||
	    report->attempt != model->attempt)
		return;
	step_move(model, STEP_REDUCED);
	model->finite = report->finite;
	while ((call = call_find(group, model, CALL_BIT(CALL_SYNC))) != NULL)
		call_succeed(group, call);
	step_try_vote(model);
}

/* ---- The vote ---- */

static int check_options(const struct model *model, enum step_commit commit, const struct optimizer_options *options,
			 char *text)
{
	const struct optimizer_spec *spec = &manifest_get_options(model->manifest)->optimizer;
	const char *why = "no options";

	if (commit != COMMIT_OPTIMIZER && commit != COMMIT_STAGING) {
		snprintf(text, CALL_TEXT_MAX, "%d is no kind of commit", (int)commit);
		return FSDP_E_INVALID;
	}
	if (commit == COMMIT_OPTIMIZER && spec->kind == OPTIMIZER_NONE) {
		snprintf(text, CALL_TEXT_MAX, "model \"%s\" has no optimizer: publish its staging copy instead",
			 model->name);
		return FSDP_E_STATE;
	}
	if (commit == COMMIT_OPTIMIZER && (!options || optimizer_check(spec, options, &why) < 0)) {
		snprintf(text, CALL_TEXT_MAX, "model \"%s\" step %" PRIu64 ": %s", model->name, model->step, why);
		return FSDP_E_INVALID;
	}
	int code = check_loaded(model, text);
	if (code < 0)
		return code;
	for (uint32_t i = 0; i < model->unit_count && model->verified < model->unit_count; i++)
		if (model->units[i].state == UNIT_EMPTY || model->units[i].state == UNIT_LOADING) {
			snprintf(text, CALL_TEXT_MAX, "unit \"%s\" was not loaded: load it first",
				 model_unit_name(model, i));
			return FSDP_E_STATE;
		}
	return 0;
}

/* A step call of a rank that has voted already: it was in doubt, and asks for the answer. */
static void step_again(struct model *model, struct call *call)
{
	struct group *group = model->group;

	if (group->peers[GROUP_COORDINATOR].state == PEER_GONE)
		call_fail(group, call, FSDP_E_IN_DOUBT,
			  "model \"%s\" step %" PRIu64 ": this rank voted, and rank %u, which decides, is lost",
			  model->name, model->step, GROUP_COORDINATOR);
	else
		call_wait(group, call);
}

void worker_step(struct worker *worker, enum step_commit commit, const struct optimizer_options *options,
		 struct call *call)
{
	struct group *group = worker->group;
	char text[CALL_TEXT_MAX];

	group_enter(group);
	call_init(call, CALL_STEP, worker, 0);
	if (worker->step_owed && worker_check(worker, text) == 0) { /* before an abort of the step after it */
		worker->step_owed = false;
		call_answer(group, call, &(struct answer){ .outcome = worker->outcome });
		group_leave(group);
		return;
	}
	if (!step_admits(worker, call)) {
		group_leave(group);
		return;
	}
	struct model *model = worker->model;
	int code;
	if (call_find(group, model, CALL_BIT(CALL_STEP))) {
		call_fail(group, call, FSDP_E_STATE, "model \"%s\" step %" PRIu64 ": another thread is in step",
			  model->name, model->step);
	} else if (model->phase == STEP_VOTED) {
		step_again(model, call);
	} else if ((code = check_options(model, commit, options, text)) < 0) {
		call_fail(group, call, code, "%s", text);
	} else {
		model->commit = commit;
		memset(&model->options, 0, sizeof(model->options));
		if (commit == COMMIT_OPTIMIZER)
			model->options = *options;
		wait_for_all(model, call);
		step_try_vote(model);
	}
	group_leave(group);
}

static struct peer_options options_write(const struct optimizer_options *options)
{
	return (struct peer_options){ .learning_rate = options->learning_rate,
				      .momentum = options->momentum,
				      .dampening = options->dampening,
				      .weight_decay = options->weight_decay,
				      .beta1 = options->beta1,
				      .beta2 = options->beta2,
				      .epsilon = options->epsilon };
}

static void present_bits(const struct model *model, uint8_t *bits)
{
	memset(bits, 0, model->bits_size);
	for (uint32_t i = 0; i < model->unit_count; i++)
		if (model->units[i].present)
			bits[i / 8] = (uint8_t)(bits[i / 8] | 1u << i % 8);
}

static void say_vote(struct model *model)
{
	uint8_t bits[PEER_BITS_MAX];
	struct peer_message message;

	present_bits(model, bits);
	group_message_init(&message, PEER_VOTE);
	message.model = model->number;
	message.step = model->step;
	message.attempt = model->attempt;
	message.commit = model->commit;
	message.finite = model->finite;
	message.has_options = true;
	message.options = options_write(&model->options);
	message.bits = bits;
	message.bits_size = model->bits_size;
	group_send(model->group, GROUP_COORDINATOR, &message);
}

void step_try_vote(struct model *model)
{
	if (!model_is_live(model) || model->phase != STEP_REDUCED || model->verified < model->unit_count ||
	    !call_find(model->group, model, CALL_BIT(CALL_STEP)))
		return;
	step_move(model, STEP_VOTED);
	say_vote(model);
	if (PLANTED(PLANTED_APPLY_BEFORE_DECISION) && model->phase == STEP_VOTED) {
		uint8_t bits[PEER_BITS_MAX];
		bool skip = !model->finite && model->commit == COMMIT_OPTIMIZER;
		present_bits(model, bits);
		step_decided(model, &(struct decision){ .step = model->step,
							.attempt = model->attempt,
							.outcome = skip ? PEER_SKIP : PEER_APPLY,
							.commit = model->commit,
							.options = model->options,
							.bits = bits });
	}
}

void step_repeat(struct model *model)
{
	if (!model_is_live(model))
		return;
	if (model->phase == STEP_VOTED)
		say_vote(model);
	if (model->abort_wanted)
		ask_abort(model);
}

/* ---- The decision ---- */

static void begin_attempt(struct model *model, uint64_t step, uint32_t attempt)
{
	step_move(model, STEP_COLLECTING);
	model->step = step;
	model->attempt = attempt;
	model->micro_batch = model->reduced_count = model->later_weight = 0;
	model->abort_wanted = false;
	model->finite = false;
	model->wait_count = 0;
	memset(&model->vote_awaited, 0, sizeof(model->vote_awaited));
	for (uint32_t i = 0; i < model->unit_count; i++)
		model->units[i].reduced = model->units[i].present = false;
	if (model->ballots)
		votes_clear(model);
}

static void keep(struct model *model, struct decision *kept, const struct decision *decision)
{
	uint8_t *bits = kept->bits;
	*kept = *decision;
	kept->bits = bits;
	kept->known = true;
	if (bits)
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
	begin_attempt(model, decision->step + 1, 0);
	model->steps_applied += applied;
	model->steps_skipped += !applied;
	gradient_release(model);
	group_notice(group, NOTICE_STEP_COMMITTED, model, NULL, -1, "step %" PRIu64 " was %s", decision->step,
		     applied ? "applied" : "skipped: a gradient was not finite");
	answer_step(model, decision);
	call_fail_all(group, model, CALL_BIT(CALL_ABORT), FSDP_E_STATE,
		      "the step was committed before it could be aborted");
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
	bool told = model->phase == STEP_GIVEN_UP || call_find(group, model, CALL_OF_STEP) || asked_itself(model);
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
	const struct peer_options *options = &message->options;
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
				     .options = { .learning_rate = options->learning_rate,
						  .momentum = options->momentum,
						  .dampening = options->dampening,
						  .weight_decay = options->weight_decay,
						  .beta1 = options->beta1,
						  .beta2 = options->beta2,
						  .epsilon = options->epsilon },
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
	message.has_options = decision->outcome != PEER_ABORT_STEP;
	message.options = options_write(&decision->options);
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
