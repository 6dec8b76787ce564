/*
 * Loads initial values. The engine's thread; one task a unit. Until a unit is published nobody reads its masters, so they need no
 * guard here; afterwards a load only compares.
 */
#include "daemon/engine/load.h"

#include "daemon/engine/shards.h"
#include "daemon/engine/task.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct load_task {
	struct task task;
	struct unit *unit;
	uint64_t slot;
	bool compare;
	uint64_t *sums;
};

static void load_run(struct task *task)
{
	const struct load_task *load = (struct load_task *)task;
	const struct plan *plan = task->model->plan;
	const struct plan_unit *place = plan_unit(plan, load->unit->index);
	const char *slot = (const char *)plan_memory(plan)->grads.base + load->slot;

	if (!load->compare && place->shard_bytes > 0)
		memcpy(plan_master(plan, load->unit->index), slot + place->shard.offset * sizeof(float),
		       place->shard_bytes);
	for (uint32_t p = 0; p < place->layout.param_count; p++) {
		const struct layout_param *param = &place->layout.params[p];

		load->sums[p] = XXH3_64bits(slot + param->offset * sizeof(float), param->count * sizeof(float));
	}
}

static void load_done(struct task *task)
{
	struct load_task *load = (struct load_task *)task;
	struct model *model = task->model;
	struct report *report;

	if (model->dropping) {
		free(load->sums);
		free(load);
		return;
	}
	report = report_new(REPORT_LOADED);
	report->model = model->id;
	report->unit = load->unit->index;
	report->slot = load->slot;
	report->sums = load->sums;
	report->sum_count = plan_unit(model->plan, load->unit->index)->layout.param_count;
	free(load);
	engine_report(model->engine, report);
}

void load_start(struct unit *unit, uint64_t slot, bool compare)
{
	const struct layout_unit *layout = &plan_unit(unit->model->plan, unit->index)->layout;
	struct load_task *load = engine_alloc(1, sizeof(*load));

	*load = (struct load_task){ .task = { .run = load_run, .done = load_done },
				    .unit = unit,
				    .slot = slot,
				    .compare = compare || unit->version > 0,
				    .sums = engine_alloc(layout->param_count, sizeof(uint64_t)) };
	task_start(&load->task, unit->model, layout->full_bytes);
}

void load_publish(struct unit *unit)
{
	if (unit->version > 0)
		return;
	unit->version = 1;
	shards_version_changed(unit);
}
