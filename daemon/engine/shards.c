/*
 * Makes and drops models, and moves them from step to step. The engine's thread. A model that is dropped lives on,
 * deaf, until no task runs for it and the transport holds nothing of it.
 */
#include "daemon/engine/shards.h"

#include "daemon/engine/held.h"
#include "daemon/engine/lease.h"
#include <assert.h>
#include <stdlib.h>

static void shards_init_unit(struct model *model, uint32_t index)
{
	const struct plan_unit *place = plan_unit(model->plan, index);
	struct unit *unit = &model->units[index];

	unit->model = model;
	unit->index = index;
	unit->bytes = place->shard_bytes;
	unit->apply.updates = engine_alloc(place->layout.param_count, sizeof(*unit->apply.updates));
}

struct model *shards_new(struct engine *engine, uint64_t id, struct plan *plan)
{
	struct model *model = engine_alloc(1, sizeof(*model));

	assert(plan_world_size(plan) == engine->config.world_size && plan_rank(plan) == engine->config.rank);
	model->engine = engine;
	model->id = id;
	model->plan = plan_ref(plan);
	model->options = manifest_get_options(plan_manifest(plan));
	model->unit_count = plan_unit_count(plan);
	model->world_size = engine->config.world_size;
	model->rank = engine->config.rank;
	model->units = engine_alloc(model->unit_count, sizeof(*model->units));
	model->sources = engine_alloc(model->world_size, sizeof(*model->sources));
	model->targets = engine_alloc(model->world_size, sizeof(*model->targets));
	for (uint32_t i = 0; i < model->unit_count; i++)
		shards_init_unit(model, i);
	reader_init(model);
	collect_init(model);
	model->next = engine->models;
	engine->models = model;
	/* The others may have had it for a while: what they said of it so far went past us. */
	for (uint32_t rank = 0; rank < model->world_size; rank++)
		progress_want_all(&model->sources[rank], true);
	return model;
}

void shards_drop(struct model *model)
{
	struct engine *engine = model->engine;
	struct model **link = &engine->models;

	while (*link != model)
		link = &(*link)->next;
	*link = model->next;
	model->next = engine->dropping;
	engine->dropping = model;
	model->dropping = true;
	model->apply.active = false;
	reader_drop(model);
	serve_drop(model);
	push_drop(model);
	collect_drop(model);
	measure_drop(model);
	lease_hurry_all(model, engine->now_ms + engine->config.read_drain_ms);
}

bool shards_free_if_over(struct model *model)
{
	struct engine *engine = model->engine;
	struct report *report;

	assert(model->dropping);
	if (model->refs > 0)
		return false;
	assert(!model->leases && !model->push.leaving && !model->push.first);
	report = report_new(REPORT_DROPPED);
	report->model = model->id;
	for (uint32_t i = 0; i < model->unit_count; i++) {
		assert(!model->units[i].serves && !model->units[i].gathers && !model->units[i].outgoings);
		free(model->units[i].apply.updates);
	}
	free(model->apply.groups);
	free(model->units);
	free(model->sources);
	free(model->targets);
	plan_unref(model->plan);
	free(model);
	engine_report(engine, report);
	return true;
}

struct model *shards_find(const struct engine *engine, uint64_t id)
{
	struct model *model = engine->models;

	while (model && model->id != id)
		model = model->next;
	return model;
}

void shards_restart(struct model *model, uint64_t step, uint32_t attempt)
{
	push_restart(model);
	model->step = step;
	model->attempt = attempt;
	collect_restart(model);
	held_replay(model);
}

int shards_compare(const struct model *model, uint64_t step, uint32_t attempt)
{
	if (step != model->step)
		return step < model->step ? -1 : 1;
	if (attempt != model->attempt)
		return attempt < model->attempt ? -1 : 1;
	return 0;
}

struct unit *shards_unit_of(struct model *model, uint32_t index)
{
	if (index < model->unit_count)
		return &model->units[index];
	shards_count_violation(model);
	return NULL;
}

void shards_count_violation(struct model *model)
{
	ENGINE_COUNT(model->engine, violations, 1);
}

void shards_version_changed(struct unit *unit)
{
	struct model *model = unit->model;
	struct report *report = report_new(REPORT_PROGRESS);

	report->model = model->id;
	report->unit = unit->index;
	report->version = unit->version;
	engine_report(model->engine, report);
	serve_version_changed(unit);
	reader_version_changed(unit);
	sum_continue(unit);
}
