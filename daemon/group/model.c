/*
 * A model's life on this rank: made when a worker wants to seal it, sealed, lost, dropped. Owns struct model and
 * everything in it. The loop thread runs it. What its units, gradients and steps do is in the files of those names.
 */
#include "daemon/group/model.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"

const char *model_state_name(enum model_state state)
{
	static const char *const names[] = { [MODEL_SEALING] = "sealing",
					     [MODEL_LOADING] = "loading",
					     [MODEL_READY] = "ready",
					     [MODEL_LOST] = "lost",
					     [MODEL_DROPPING] = "dropping" };
	return (size_t)state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

#define TO(state) (1u << (state))
static const unsigned MODEL_MOVES[] = {
	[MODEL_SEALING] = TO(MODEL_LOADING),
	[MODEL_LOADING] = TO(MODEL_READY) | TO(MODEL_LOST) | TO(MODEL_DROPPING),
	[MODEL_READY] = TO(MODEL_LOST) | TO(MODEL_DROPPING),
	[MODEL_LOST] = TO(MODEL_DROPPING),
	[MODEL_DROPPING] = 0,
};

void model_move(struct model *model, enum model_state state)
{
	assert(MODEL_MOVES[model->state] & TO(state));
	model->state = state;
}

struct model *model_find(const struct group *group, uint64_t number)
{
	if (number == 0)
		return NULL;
	for (struct model *model = group->models; model; model = model->next)
		if (model->number == number)
			return model;
	return NULL;
}

struct model *model_named(const struct group *group, const char *name)
{
	for (struct model *model = group->models; model; model = model->next)
		if (strcmp(model->name, name) == 0)
			return model;
	return NULL;
}

const char *model_unit_name(const struct model *model, uint32_t unit)
{
	return unit < model->unit_count ? manifest_unit(model->manifest, unit)->name : "?";
}

/* ---- Making and freeing ---- */

static int model_allocate(struct model *model, struct manifest *manifest, struct plan *plan)
{
	uint32_t world_size = model->group->config.world_size;

	model->name = strdup(manifest_name(manifest));
	model->unit_count = manifest_unit_count(manifest);
	model->bits_size = ((size_t)model->unit_count + 7) / 8;
	model->units = calloc((size_t)model->unit_count + 1, sizeof(*model->units));
	model->bad = calloc(model->bits_size + 1, 1);
	model->committed.bits = calloc(model->bits_size + 1, 1);
	model->committed.bad = calloc(model->bits_size + 1, 1);
	model->aborted.bits = NULL;
	if (!model->name || !model->units || !model->bad || !model->committed.bits || !model->committed.bad)
		return -ENOMEM;
	if (plan) {
		const struct plan_memory *memory = plan_memory(plan);
		int code = pool_new(memory->gathers.bytes, &model->gather_pool);
		if (code == 0)
			code = pool_new(memory->grads.bytes, &model->grad_pool);
		if (code < 0)
			return code;
		model->plan = plan_ref(plan);
	}
	if (!group_coordinates(model->group))
		return 0;
	model->ballots = calloc(world_size, sizeof(*model->ballots));
	model->questions = calloc(world_size, sizeof(*model->questions));
	model->norm_parts = calloc(world_size, sizeof(*model->norm_parts));
	model->seal_numbers = calloc(world_size, sizeof(*model->seal_numbers));
	model->closed_by = calloc(world_size, sizeof(*model->closed_by));
	return model->ballots && model->questions && model->norm_parts && model->seal_numbers && model->closed_by
		       ? 0
		       : -ENOMEM;
}

int model_new(struct group *group, struct manifest *manifest, struct plan *plan, struct model **ret_model)
{
	struct model *model = calloc(1, sizeof(*model));
	if (!model)
		return -ENOMEM;
	model->group = group;
	model->state = MODEL_SEALING;
	model->weight = 1;
	model->manifest = manifest_ref(manifest);
	int code = model_allocate(model, manifest, plan);
	struct model **end = &group->models;
	while (*end)
		end = &(*end)->next;
	*end = model;
	if (code < 0) {
		model_free(model);
		return code;
	}
	*ret_model = model;
	return 0;
}

static void units_free(struct model *model)
{
	for (uint32_t i = 0; model->units && i < model->unit_count; i++) {
		struct unit *unit = &model->units[i];
		free(unit->sums);
		free(unit->trouble);
		free(unit->verdict);
		initial_offers_free(model, unit);
	}
	free(model->units);
}

void model_free(struct model *model)
{
	struct group *group = model->group;

	assert(!model->worker);
	for (struct model **at = &group->models; *at; at = &(*at)->next)
		if (*at == model) {
			*at = model->next;
			break;
		}
	if (model->units) {
		gather_free(model);
		gradient_free(model);
	}
	units_free(model);
	if (model->ballots)
		votes_clear(model);
	if (model->questions)
		all_reduces_clear(model);
	free(model->ballots);
	free(model->norm_parts);
	free(model->bad);
	free(model->committed.bad);
	free(model->questions);
	free(model->all_reduce.values);
	free(model->seal_numbers);
	free(model->closed_by);
	free(model->committed.bits);
	free(model->trouble);
	free(model->seal_text);
	buffer_unref(model->detail);
	buffer_unref(model->offered);
	buffer_unref(model->kept);
	if (model->gather_pool)
		pool_free(model->gather_pool);
	if (model->grad_pool)
		pool_free(model->grad_pool);
	plan_unref(model->plan);
	manifest_unref(model->manifest);
	free(model->name);
	free(model);
}

/* ---- Sealed, lost, dropped ---- */

void model_sealed(struct model *model, uint64_t number)
{
	assert(model->plan && number != 0);
	model->number = number;
	model_move(model, MODEL_LOADING);
	buffer_unref(model->detail);
	model->detail = NULL;
	struct command *command = command_new(COMMAND_ADD);
	command->model = number;
	command->plan = plan_ref(model->plan);
	group_command(model->group, command);
	if (model->unit_count == 0)
		model_move(model, MODEL_READY);
	group_notice(model->group, NOTICE_MODEL_SEALED, model, NULL, -1, "%" PRIu32 " units, number %016" PRIx64,
		     model->unit_count, number);
	initial_sealed(model);
}

void model_lose(struct model *model, const char *text)
{
	assert(model_is_live(model));
	model_move(model, MODEL_LOST);
	model->trouble = group_duplicate(text);
	group_notice(model->group, NOTICE_MODEL_LOST, model, NULL, -1, "%s", text);
	struct worker *worker = model->worker;
	if (worker && worker->state == WORKER_WAITS_DECISION)
		worker_refuse(worker, FSDP_E_LOST, text);
	call_fail_all(model->group, model, CALL_ALL, FSDP_E_LOST, text);
}

void models_lose(struct group *group, uint32_t rank)
{
	for (struct model *model = group->models; model; model = model->next) {
		char text[CALL_TEXT_MAX];
		if (!model_is_live(model))
			continue;
		snprintf(text, sizeof(text),
			 "model \"%s\" is lost: rank %" PRIu32
			 " came back without its shards: drop the model and seal it anew",
			 model->name, rank);
		model_lose(model, text);
	}
}

void model_drop(struct model *model, const char *text)
{
	struct group *group = model->group;
	struct worker *worker = model->worker;

	assert(model_is_live(model) || model->state == MODEL_LOST);
	model_move(model, MODEL_DROPPING);
	if (worker) {
		if (worker->state == WORKER_WAITS_DECISION) {
			worker_refuse(worker, FSDP_E_DROPPED, text);
		} else {
			call_fail_all(group, model, CALL_ALL, FSDP_E_DROPPED, text);
			worker_move(worker, WORKER_DROPPED);
			worker->model = NULL;
			model->worker = NULL;
		}
	}
	call_fail_all(group, model, CALL_ALL, FSDP_E_DROPPED, text);
	struct command *command = command_new(COMMAND_DROP);
	command->model = model->number;
	group_command(group, command);
	group_notice(group, NOTICE_MODEL_DROPPED, model, NULL, -1, "%s", text);
}

static void model_dropped(struct model *model)
{
	struct group *group = model->group;
	if (model->state != MODEL_DROPPING)
		return;
	char *name = group_duplicate(model->name);
	model_free(model);
	worker_name_gone(group, name);
	free(name);
}

void models_peer_gone(struct group *group, uint32_t rank)
{
	char text[CALL_TEXT_MAX];

	membership_lost_text(group, rank, text, sizeof(text));
	for (struct model *model = group->models, *next; model; model = next) {
		next = model->next;
		if (model->state == MODEL_SEALING && model->worker) {
			char whole[CALL_TEXT_MAX + FSDP_NAME_MAX];
			snprintf(whole, sizeof(whole), "model \"%s\": %s", model->name, text);
			worker_refuse(model->worker, FSDP_E_PEER_LOST, whole);
		} else if (model_is_live(model)) {
			gather_peer_gone(model, rank);
			step_peer_gone(model, rank);
		}
	}
	if (rank == GROUP_COORDINATOR)
		drop_coordinator_gone(group, text);
}

/* ---- What the engine tells ---- */

static void hear_waiting(struct model *model, const struct report *report)
{
	model->wait_count = report->wait_count < REPORT_WAITS_MAX ? report->wait_count : REPORT_WAITS_MAX;
	memcpy(model->waits, report->waits, model->wait_count * sizeof(model->waits[0]));
}

void model_report(struct model *model, struct report *report)
{
	switch (report->kind) {
	case REPORT_LOADED:
		initial_loaded(model, report);
		break;
	case REPORT_FETCHED:
		initial_fetched(model, report->unit);
		break;
	case REPORT_GATHERED:
		gather_gathered(model, report);
		break;
	case REPORT_RETURNED:
		gradient_returned(model, report->slot);
		break;
	case REPORT_REDUCED:
		step_reduced(model, report);
		break;
	case REPORT_MEASURED:
		step_measured(model, report);
		break;
	case REPORT_APPLIED:
		step_applied(model, report);
		break;
	case REPORT_PROGRESS:
		gather_progress(model, report);
		break;
	case REPORT_DROPPED:
		model_dropped(model);
		break;
	case REPORT_WAITING:
		hear_waiting(model, report);
		break;
	case REPORT_BULK:
		break;
	}
}
