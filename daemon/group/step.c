/*
 * Steps, this rank's part: the worker's calls of a step, its micro-batches and the vote. Owns the step's fields of
 * struct model. The loop thread runs it. Who decides is in step_coordinator.c, what follows from it in step_decision.c,
 * giving up in step_abort.c.
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

#define TO(phase) (1u << (phase))
static const unsigned STEP_MOVES[] = {
	[STEP_COLLECTING] = TO(STEP_COLLECTING) | TO(STEP_REDUCING) | TO(STEP_GIVEN_UP),
	[STEP_REDUCING] = TO(STEP_COLLECTING) | TO(STEP_REDUCED) | TO(STEP_GIVEN_UP),
	[STEP_REDUCED] = TO(STEP_COLLECTING) | TO(STEP_VOTED) | TO(STEP_GIVEN_UP),
	[STEP_VOTED] = TO(STEP_COLLECTING),
	[STEP_GIVEN_UP] = TO(STEP_COLLECTING),
};

void step_move(struct model *model, enum step_phase phase)
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

	if (model->micro_batch == 0 || model->reduced_count > 0)
		model->weights += model->weight;
	command->model = model->number;
	command->step = model->step;
	command->attempt = model->attempt;
	command->micro_batch = model->micro_batch;
	command->last = last;
	command->weight = last ? model->weights : 0.0;
	command->bits = group_allocate(model->unit_count, 1);
	for (uint32_t i = 0; i < model->unit_count; i++)
		command->bits[i] = model->units[i].reduced && model->weight > 0 ? 0 : 1;
	if (last) {
		step_move(model, STEP_REDUCING);
	} else {
		model->micro_batch++;
		model->reduced_count = 0;
		if (!PLANTED(PLANTED_WEIGHT_KEPT))
			model->weight = 1;
		for (uint32_t i = 0; i < model->unit_count; i++)
			model->units[i].reduced = false;
	}
	group_command(model->group, command);
	if (last)
		call_fail_all(model->group, model, CALL_BIT(CALL_GRAD), FSDP_E_STATE,
			      "the gradients were synchronised while this call waited");
}

void worker_weight(struct worker *worker, double weight, struct call *call)
{
	struct group *group = worker->group;

	group_enter(group);
	call_init(call, CALL_WEIGHT, worker, 0);
	if (step_admits(worker, call)) {
		struct model *model = worker->model;
		if (!isfinite((float)weight) || weight < 0) {
			call_fail(group, call, FSDP_E_INVALID,
				  "a weight is a number that f32 can hold and not negative, and not %g", weight);
		} else if (model->phase != STEP_COLLECTING) {
			call_fail(group, call, FSDP_E_STATE,
				  "step %" PRIu64 ": the gradients were synchronised: call step first", model->step);
		} else if (model->reduced_count > 0) {
			call_fail(group, call, FSDP_E_STATE,
				  "step %" PRIu64 " micro-batch %" PRIu32
				  ": a unit was reduced already: the weight is set before the first reduce",
				  model->step, model->micro_batch);
		} else {
			model->weight = (float)weight == 0 ? 0 : weight;
			worker->step_owed = false; /* it goes on, so it knows */
			call_succeed(group, call);
		}
	}
	group_leave(group);
}

/* What every rank keeps of their ends is bounded, so of a model of very many units there are fewer. */
static uint32_t micro_batches_max(const struct model *model)
{
	size_t most = model->bits_size > 0 ? STEP_CLOSE_BYTES_MAX / model->bits_size : GROUP_MICRO_BATCHES_MAX;
	return most < GROUP_MICRO_BATCHES_MAX ? (uint32_t)most : GROUP_MICRO_BATCHES_MAX;
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
		} else if (model->micro_batch + 1 >= micro_batches_max(model)) {
			call_fail(group, call, FSDP_E_OVERFLOW,
				  "a step of model \"%s\", which has %" PRIu32 " units, has at most %" PRIu32
				  " micro-batches",
				  model->name, model->unit_count, micro_batches_max(model));
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

/* The call waits for all ranks. Where one is gone it fails as if it had waited before: the attempt ends with it, on
 * every rank. */
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

/* What a report says of units that are not finite. */
static void take_bad(struct model *model, const struct report *report)
{
	model->finite = report->finite;
	memset(model->bad, 0, model->bits_size);
	for (uint32_t i = 0; i < model->unit_count && report->bits; i++)
		if (report->bits[i])
			model->bad[i / 8] = (uint8_t)(model->bad[i / 8] | 1u << i % 8);
}

void step_reduced(struct model *model, const struct report *report)
{
	struct group *group = model->group;
	struct call *call;

	if (!model_is_live(model) || model->phase != STEP_REDUCING || report->step != model->step ||
	    report->attempt != model->attempt)
		return;
	step_move(model, STEP_REDUCED);
	take_bad(model, report);
	while ((call = call_find(group, model, CALL_BIT(CALL_SYNC))) != NULL)
		call_succeed(group, call);
	step_try_vote(model);
}

/* ---- The vote ---- */

static int check_options(const struct model *model, enum step_commit commit, const struct optimizer_options *options,
			 const struct optimizer_groups *groups, const struct step_rules *rules, char *text)
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
	uint32_t group = 0;
	if (commit == COMMIT_OPTIMIZER && groups && optimizer_groups_check(spec, groups, &group, &why) < 0) {
		snprintf(text, CALL_TEXT_MAX, "model \"%s\" step %" PRIu64 ": group %" PRIu32 ": %s", model->name,
			 model->step, group, why);
		return FSDP_E_INVALID;
	}
	int code = rules ? rules_check(rules, text) : 0;
	if (code == 0)
		code = check_loaded(model, text);
	if (code < 0)
		return code;
	bool ours = initial_is_ours(model) && model->verified < model->unit_count;
	for (uint32_t i = 0; i < model->unit_count && ours; i++)
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
		 const struct optimizer_groups *groups, const struct step_rules *rules, struct buffer *state,
		 struct call *call)
{
	struct group *group = worker->group;
	char text[CALL_TEXT_MAX];

	group_enter(group);
	call_init(call, CALL_STEP, worker, 0);
	if (worker->step_owed && worker_check(worker, text) == 0) { /* before an abort of the step after it */
		worker->step_owed = false;
		call_answer(group, call, &worker->owed);
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
	} else if ((code = check_options(model, commit, options, groups, rules, text)) < 0) {
		call_fail(group, call, code, "%s", text);
	} else {
		model->commit = commit;
		memset(&model->options, 0, sizeof(model->options));
		memset(&model->rules, 0, sizeof(model->rules));
		memset(&model->groups, 0, sizeof(model->groups));
		if (commit == COMMIT_OPTIMIZER)
			model->options = *options;
		if (commit == COMMIT_OPTIMIZER && groups) {
			model->groups = *groups;
			optimizer_groups_reduce(&model->groups, options);
		}
		if (commit == COMMIT_OPTIMIZER && rules)
			model->rules = *rules;
		model->has_part = false;
		model->measuring = 0;
		buffer_unref(model->offered);
		model->offered = state ? buffer_ref(state) : NULL;
		if (PLANTED(PLANTED_STATE_TOO_EARLY)) {
			buffer_unref(model->kept);
			model->kept = state ? buffer_ref(state) : NULL;
		}
		wait_for_all(model, call);
		step_try_vote(model);
	}
	group_leave(group);
}

int worker_state(const struct worker *worker, struct buffer **ret_state, uint64_t *ret_step, char *text)
{
	int code = worker_check(worker, text);

	if (code < 0)
		return code;
	*ret_state = worker->model->kept;
	*ret_step = worker->model->step;
	return 0;
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
	struct peer_group groups[OPTIMIZER_GROUPS_MAX];
	struct peer_message message;

	present_bits(model, bits);
	group_message_init(&message, PEER_VOTE);
	message.model = model->number;
	message.step = model->step;
	message.attempt = model->attempt;
	message.commit = model->commit;
	message.has_rules = true;
	message.rules = rules_write(&model->rules);
	message.finite = model->finite;
	message.bad = model->bad;
	message.bad_size = model->finite ? 0 : model->bits_size;
	message.weight = model->weights;
	message.norm = model->part;
	message.has_options = true;
	message.options = step_options_write(&model->options);
	step_groups_write(&model->groups, groups, &message);
	message.bits = bits;
	message.bits_size = model->bits_size;
	group_send(model->group, GROUP_COORDINATOR, &message);
}

/* Whether the engine has to look at the sums again before a vote: for the norm, or because a scale below 1 makes them
 * larger. */
static bool must_measure(const struct model *model)
{
	const struct step_rules *rules = &model->rules;
	return rules->norm_kind != NORM_NONE || (rules->loss_scale != 0 && rules->loss_scale < 1);
}

void step_measured(struct model *model, const struct report *report)
{
	if (!model_is_live(model) || report->step != model->step || report->attempt != model->attempt ||
	    model->phase != STEP_REDUCED)
		return;
	if (report->token != model->measuring) {
		norm_measured(model, report);
		return;
	}
	model->measuring = 0;
	model->has_part = true;
	model->part = model->rules.norm_kind == NORM_INF ? report->largest : report->squares;
	take_bad(model, report);
	step_try_vote(model);
}

void step_try_vote(struct model *model)
{
	if (!model_is_live(model) || model->phase != STEP_REDUCED || model->verified < model->unit_count ||
	    !call_find(model->group, model, CALL_BIT(CALL_STEP)))
		return;
	if (must_measure(model) && !model->has_part) {
		if (!model->measuring)
			model->measuring = norm_measure(model, model->rules.loss_scale);
		return;
	}
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
							.groups = model->groups,
							.rules = model->rules,
							.clip = 1,
							.bad = model->bad,
							.bits = bits });
	}
}

void step_repeat(struct model *model)
{
	if (!model_is_live(model))
		return;
	if (model->phase == STEP_VOTED)
		say_vote(model);
	norm_repeat(model);
	if (model->abort_wanted)
		step_ask_abort(model);
}
