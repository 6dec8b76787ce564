/*
 * Looks at the sums of a step once they are whole. The engine's thread; the arithmetic runs in tasks. While a task
 * reads a unit's sum, that counts as adding to it: whatever becomes of the step meanwhile, nobody writes there.
 */
#include "daemon/engine/measure.h"

#include "daemon/engine/shards.h"
#include "daemon/engine/task.h"
#include "daemon/math/norm.h"
#include "daemon/math/reduce.h"
#include <assert.h>
#include <stdlib.h>

#define MEASURE_BLOCK 2048 /* elements: they stay in the first cache from the squares to the maximum */

struct measure_task {
	struct task task;
	struct unit *unit;
	uint64_t epoch;
	uint64_t from, count; /* elements */
	double loss_scale;
	double squares, largest;
	bool finite;
};

/* ---- The task ---- */

static void measure_run(struct task *task)
{
	struct measure_task *piece = (struct measure_task *)task;
	const float *gradient = plan_gradient(task->model->plan, piece->unit->index) + piece->from;
	float block[MEASURE_BLOCK];

	for (uint64_t from = 0; from < piece->count; from += MEASURE_BLOCK) {
		size_t count = (size_t)engine_min(MEASURE_BLOCK, piece->count - from);
		const float *values = gradient + from;

		if (piece->loss_scale != 0) {
			piece->finite &= reduce_add_f32(block, &values, 1, count, true, REDUCE_FINISH_DIVIDE,
							(float)piece->loss_scale);
			values = block;
		}
		piece->squares = norm_squares_f32(values, count, piece->squares);
		piece->largest = norm_max_f32(values, count, piece->largest);
	}
}

static void measure_continue(struct model *model);

static void measure_done(struct task *task)
{
	struct measure_task *piece = (struct measure_task *)task;
	struct unit *unit = piece->unit;
	struct model *model = task->model;
	struct measure *measure = model->measures.first;

	unit->collect.adding = false;
	model->measures.running = false;
	if (!model->dropping && piece->epoch == model->collect.epoch) {
		measure->squares = piece->squares;
		measure->largest = piece->largest;
		measure->at = piece->from + piece->count;
		if (!piece->finite) {
			measure->finite = false;
			if (!measure->bad)
				measure->bad = engine_alloc(model->unit_count, 1);
			measure->bad[unit->index] = 1;
		}
	}
	free(piece);
	if (model->dropping)
		return;
	sum_continue(unit);
	apply_continue(model);
	measure_continue(model);
}

static void measure_start(struct unit *unit, const struct measure *measure)
{
	struct measure_task *piece = engine_alloc(1, sizeof(*piece));

	assert(!unit->collect.adding);
	piece->task.run = measure_run;
	piece->task.done = measure_done;
	piece->unit = unit;
	piece->epoch = measure->epoch;
	piece->from = measure->at;
	piece->count = engine_min(MEASURE_ELEMENTS, unit->bytes / sizeof(float) - measure->at);
	piece->loss_scale = measure->loss_scale;
	piece->squares = measure->squares;
	piece->largest = measure->largest;
	piece->finite = true;
	unit->collect.adding = true;
	unit->model->measures.running = true;
	task_start(&piece->task, unit->model, piece->count * sizeof(float));
}

/* ---- Question after question ---- */

static void measure_pop(struct model *model)
{
	struct measure *measure = model->measures.first;

	model->measures.first = measure->next;
	free(measure->bad);
	free(measure);
}

static void measure_report(struct model *model, struct measure *measure)
{
	struct report *report = report_new(REPORT_MEASURED);

	report->model = model->id;
	report->step = model->step;
	report->attempt = model->attempt;
	report->token = measure->token;
	report->squares = measure->squares;
	report->largest = measure->largest;
	report->finite = measure->finite;
	report->bits = measure->bad;
	measure->bad = NULL;
	engine_report(model->engine, report);
}

/* Starts the next piece, or ends the question. A unit that nobody contributed to is zero. */
static void measure_advance(struct model *model)
{
	struct measure *measure = model->measures.first;

	if (measure->epoch != model->collect.epoch) {
		measure_pop(model);
		return;
	}
	for (; measure->unit < model->unit_count; measure->unit++, measure->at = 0) {
		struct unit *unit = &model->units[measure->unit];

		if (unit->collect.completed == 0 || measure->at >= unit->bytes / sizeof(float))
			continue;
		measure_start(unit, measure);
		return;
	}
	measure_report(model, measure);
	measure_pop(model);
}

static void measure_continue(struct model *model)
{
	struct measures *measures = &model->measures;

	/* Small tasks end inside of the call that starts them: no deeper than one level, whatever their number. */
	if (measures->continuing)
		return;
	measures->continuing = true;
	while (measures->first && !measures->running)
		measure_advance(model);
	measures->continuing = false;
}

void measure_command(struct model *model, const struct command *command)
{
	struct measure **link = &model->measures.first;
	struct measure *measure;

	if (shards_compare(model, command->step, command->attempt))
		return;
	assert(model->collect.reported);
	measure = engine_alloc(1, sizeof(*measure));
	measure->token = command->token;
	measure->epoch = model->collect.epoch;
	measure->loss_scale = command->loss_scale;
	measure->bad = sum_bad(model);
	measure->finite = !measure->bad;
	while (*link)
		link = &(*link)->next;
	*link = measure;
	measure_continue(model);
}

void measure_drop(struct model *model)
{
	while (model->measures.first)
		measure_pop(model);
}
