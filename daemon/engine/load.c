/*
 * Loads initial values. The engine's thread; one task a unit at a time, in the order of the commands: the loop compares
 * a load with the one before it. Until a unit is published nobody reads its masters, so they need no guard here;
 * afterwards a load only compares.
 */
#include "daemon/engine/load.h"

#include "daemon/engine/shards.h"
#include "daemon/engine/task.h"
#include "daemon/runtime/planted.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct load_task {
	struct task task;
	struct load_task *next; /* of the unit; the first one runs */
	struct unit *unit;
	uint64_t slot;
	bool compare, offer;
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

static void load_free(struct load_task *load)
{
	free(load->sums);
	free(load);
}

static void load_report(struct load_task *load)
{
	struct model *model = load->unit->model;
	struct report *report = report_new(REPORT_LOADED);

	report->model = model->id;
	report->unit = load->unit->index;
	report->slot = load->slot;
	report->offered = load->offer && !PLANTED(PLANTED_OFFER_TOO_EARLY);
	report->sums = load->sums;
	report->sum_count = plan_unit(model->plan, load->unit->index)->layout.param_count;
	load->sums = NULL;
	engine_report(model->engine, report);
}

/* The masters of the others come from here. */
static void load_offer(struct unit *unit, uint64_t slot)
{
	unit->offer = (struct load_offer){ .here = true, .slot = slot };
	serve_offered(unit);
}

void load_offer_over(struct unit *unit)
{
	struct report *report;

	if (!unit->offer.here || unit->version == 0 || unit->model->dropping || serve_is_offering(unit))
		return;
	unit->offer.here = false;
	report = report_new(REPORT_RETURNED);
	report->model = unit->model->id;
	report->unit = unit->index;
	report->slot = unit->offer.slot;
	engine_report(unit->model->engine, report);
}

static void load_run_first(struct unit *unit)
{
	task_start(&unit->loads->task, unit->model, plan_unit(unit->model->plan, unit->index)->layout.full_bytes);
}

static void load_done(struct task *task)
{
	struct load_task *load = (struct load_task *)task;
	struct unit *unit = load->unit;
	struct load_task *next;

	unit->loads = load->next;
	if (!unit->model->dropping) {
		load_report(load);
		if (load->offer)
			load_offer(unit, load->slot);
	}
	load_free(load);
	for (; unit->model->dropping && unit->loads; unit->loads = next) {
		next = unit->loads->next;
		load_free(unit->loads);
	}
	if (unit->loads)
		load_run_first(unit);
}

void load_start(struct unit *unit, uint64_t slot, bool compare, bool offer)
{
	const struct layout_unit *layout = &plan_unit(unit->model->plan, unit->index)->layout;
	struct load_task *load = engine_alloc(1, sizeof(*load));
	struct load_task **end = &unit->loads;

	*load = (struct load_task){ .task = { .run = load_run, .done = load_done },
				    .unit = unit,
				    .slot = slot,
				    .compare = compare || unit->version > 0,
				    .offer = offer,
				    .sums = engine_alloc(layout->param_count, sizeof(uint64_t)) };
	while (*end)
		end = &(*end)->next;
	*end = load;
	if (unit->loads == load)
		load_run_first(unit);
}

void load_publish(struct unit *unit)
{
	if (unit->version > 0)
		return;
	unit->version = 1;
	shards_version_changed(unit);
	load_offer_over(unit);
}
