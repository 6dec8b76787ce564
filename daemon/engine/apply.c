/*
 * Applies decisions to this rank's shards: the optimizer, or the copy from staging. The engine's thread; the arithmetic
 * runs in tasks. A unit's masters are written only while nobody reads them: serve.c's readers are waited for up to
 * read_drain_ms and then given up, our own gathers' copies are always waited for.
 */
#include "daemon/engine/apply.h"

#include "daemon/engine/shards.h"
#include "daemon/engine/task.h"
#include "daemon/math/norm.h"
#include "daemon/math/reduce.h"
#include "daemon/runtime/planted.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct apply_task {
	struct task task;
	struct unit *unit;
	enum step_commit commit;
	const struct optimizer_options *options; /* of the decision, which lives as long as a job of it runs */
	const struct optimizer_groups *groups;
	double loss_scale, clip;
	uint64_t from, count; /* elements of the shard */
};

/* Of one parameter, from element `from` of the shard on. */
struct apply_range {
	uint32_t param;
	uint64_t from;
	size_t count;
};

/* The first parameter that reaches beyond element `at` of the segment. */
static uint32_t apply_param_at(const struct layout_unit *layout, uint64_t at)
{
	uint32_t low = 0, high = layout->param_count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (layout->params[middle].offset + layout->params[middle].count > at)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static void apply_optimize(const struct apply_task *apply, struct apply_range range, const float *gradient)
{
	const struct unit *unit = apply->unit;
	const struct plan *plan = unit->model->plan;
	const struct manifest_unit *source = manifest_unit(plan_manifest(plan), unit->index);
	const struct optimizer_options *options =
		optimizer_groups_of(apply->groups, apply->options, source->params[range.param].group);
	float *moments[OPTIMIZER_MOMENTS_MAX];

	for (unsigned k = 0; k < OPTIMIZER_MOMENTS_MAX; k++) {
		float *moment = plan_moment(plan, unit->index, k);

		moments[k] = moment ? moment + range.from : NULL;
	}
	optimizer_step_f32(&unit->model->options->optimizer, options, unit->apply.updates[range.param],
			   plan_master(plan, unit->index) + range.from, gradient, moments, range.count);
}

/* The sum stays as it is: what the optimizer sees of it is divided by the loss scale, then clipped. */
static void apply_scaled(const struct apply_task *apply, struct apply_range range, const float *gradient)
{
	float block[APPLY_BLOCK];

	for (uint64_t end = range.from + range.count; range.from < end; range.from += range.count) {
		const float *values = gradient;
		const bool late = PLANTED(PLANTED_CLIP_FIRST) && apply->loss_scale != 0;

		range.count = (size_t)engine_min(APPLY_BLOCK, end - range.from);
		reduce_add_f32(block, &values, 1, range.count, true,
			       apply->loss_scale != 0 && !late ? REDUCE_FINISH_DIVIDE : REDUCE_FINISH_NOT,
			       (float)apply->loss_scale);
		norm_scale_f32(block, range.count, apply->clip);
		if (late)
			norm_scale_f32(block, range.count, 1 / apply->loss_scale);
		apply_optimize(apply, range, block);
		gradient += range.count;
	}
}

static void apply_update(const struct apply_task *apply)
{
	const struct unit *unit = apply->unit;
	const struct plan *plan = unit->model->plan;
	const struct plan_unit *place = plan_unit(plan, unit->index);
	const bool as_it_is = apply->loss_scale == 0 && apply->clip == 1;
	uint64_t at = place->shard.offset + apply->from;
	const uint64_t end = at + apply->count;

	for (uint32_t p = apply_param_at(&place->layout, at); at < end; p++) {
		const struct layout_param *param = &place->layout.params[p];
		uint64_t count = engine_min(end, param->offset + param->count) - at;
		struct apply_range range = { p, at - place->shard.offset, (size_t)count };
		const float *gradient = plan_gradient(plan, unit->index) + range.from;

		if (count > 0 && as_it_is)
			apply_optimize(apply, range, gradient);
		else if (count > 0)
			apply_scaled(apply, range, gradient);
		at += count;
	}
}

static void apply_run(struct task *task)
{
	const struct apply_task *apply = (struct apply_task *)task;
	const struct unit *unit = apply->unit;
	const struct plan *plan = unit->model->plan;

	if (apply->commit == COMMIT_STAGING)
		memcpy(plan_master(plan, unit->index) + apply->from, plan_staging(plan, unit->index) + apply->from,
		       apply->count * sizeof(float));
	else if (unit->model->options->optimizer.kind != OPTIMIZER_NONE)
		apply_update(apply);
}

static void apply_finish_unit(struct unit *unit)
{
	struct apply *apply = &unit->model->apply;

	unit->changing = false;
	unit->apply.begun = unit->apply.whole = false;
	unit->version++;
	apply->left--;
	apply->last_unit = unit->index;
	shards_version_changed(unit);
}

static void apply_done(struct task *task)
{
	struct apply_task *apply = (struct apply_task *)task;
	struct unit *unit = apply->unit;
	struct model *model = task->model;

	free(apply);
	model->apply.jobs--;
	unit->apply.jobs--;
	if (model->dropping)
		return;
	if (unit->apply.whole && unit->apply.jobs == 0)
		apply_finish_unit(unit);
	apply_continue(model);
}

static bool apply_may_write(struct unit *unit)
{
	struct model *model = unit->model;
	const struct engine *engine = model->engine;

	if (PLANTED(PLANTED_STEP_UNDER_READER))
		return true;
	if (serve_is_reading(unit) && engine->now_ms - model->apply.started_ms >= engine->config.read_drain_ms)
		serve_give_up(unit);
	return unit->copies == 0 && !unit->collect.adding && !serve_is_reading(unit);
}

/* Gives the next piece of unit to a job, or finishes it where there is none. */
static void apply_cut(struct unit *unit)
{
	struct model *model = unit->model;
	uint64_t elements = unit->bytes / sizeof(float);
	uint64_t count = engine_min(APPLY_JOB_ELEMENTS, elements - unit->apply.cut);
	struct apply_task *apply;

	if (count == 0) {
		unit->apply.whole = true;
		model->apply.next++;
		if (unit->apply.jobs == 0)
			apply_finish_unit(unit);
		return;
	}
	apply = engine_alloc(1, sizeof(*apply));
	*apply = (struct apply_task){ .task = { .run = apply_run, .done = apply_done },
				      .unit = unit,
				      .commit = model->apply.commit,
				      .options = &model->apply.options,
				      .groups = model->apply.groups,
				      .loss_scale = model->apply.loss_scale,
				      .clip = model->apply.clip,
				      .from = unit->apply.cut,
				      .count = count };
	unit->apply.cut += count;
	unit->apply.jobs++;
	model->apply.jobs++;
	task_start(&apply->task, model, count * sizeof(float));
}

static void apply_begin_unit(struct unit *unit)
{
	const struct model *model = unit->model;
	uint32_t params = plan_unit(model->plan, unit->index)->layout.param_count;

	unit->apply.begun = true;
	unit->apply.cut = 0;
	if (model->apply.commit == COMMIT_OPTIMIZER) {
		for (uint32_t p = 0; p < params; p++)
			unit->apply.updates[p]++;
	}
}

static void apply_advance(struct model *model)
{
	struct apply *apply = &model->apply;

	while (apply->next < model->unit_count && apply->jobs < APPLY_JOBS_AT_ONCE) {
		struct unit *unit = &model->units[manifest_canonical(plan_manifest(model->plan), apply->next)];

		if (!unit->changing) {
			apply->next++;
			continue;
		}
		if (!unit->apply.begun) {
			if (!apply_may_write(unit))
				return;
			apply_begin_unit(unit);
		}
		apply_cut(unit);
	}
}

void apply_continue(struct model *model)
{
	struct apply *apply = &model->apply;
	struct report *report;

	if (!apply->active || model->dropping)
		return;
	/* Small jobs end inside of the call that starts them: no deeper than one level, whatever the number of jobs. */
	apply->again = true;
	if (apply->continuing)
		return;
	apply->continuing = true;
	while (apply->again) {
		apply->again = false;
		apply_advance(model);
	}
	apply->continuing = false;
	if (apply->left > 0)
		return;
	apply->active = false;
	report = report_new(REPORT_APPLIED);
	report->model = model->id;
	report->step = apply->step;
	report->unit = apply->last_unit;
	report->version = model->units ? model->units[apply->last_unit].version : 0;
	engine_report(model->engine, report);
	sum_check(model);
}

void apply_tick(struct model *model)
{
	apply_continue(model);
}

void apply_command(struct model *model, const struct command *command)
{
	struct apply *apply = &model->apply;
	bool all = command->commit == COMMIT_STAGING;

	if (command->step != model->step || apply->active)
		return;
	free(apply->groups);
	*apply = (struct apply){ .active = true,
				 .step = command->step,
				 .commit = command->commit,
				 .options = command->options,
				 .loss_scale = command->loss_scale,
				 .clip = command->clip,
				 .started_ms = model->engine->now_ms };
	if (command->groups) {
		apply->groups = engine_alloc(1, sizeof(*apply->groups));
		*apply->groups = *command->groups;
	}
	for (uint32_t i = 0; i < model->unit_count && command->outcome == STEP_APPLIED; i++) {
		if (!all && !(command->bits && command->bits[i]))
			continue;
		model->units[i].changing = true;
		apply->left++;
	}
	apply->continuing = true; /* what the restart sets off finds the new step, not a decision half begun */
	shards_restart(model, command->step + 1, 0);
	apply->continuing = false;
	apply_continue(model);
}
