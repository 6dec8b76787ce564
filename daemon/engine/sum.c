/*
 * The order of a sum, and its division. The engine's thread; the arithmetic runs in tasks, at most one a unit, which
 * hold what they read whatever becomes of the step meanwhile. A unit that a decision is still going to change is not
 * touched.
 */
#include "daemon/engine/sum.h"

#include "daemon/engine/shards.h"
#include "daemon/engine/task.h"
#include "daemon/math/reduce.h"
#include "daemon/runtime/planted.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>

struct sum_source {
	struct contribution *contribution; /* valid while the epoch is the same */
	struct buffer *buffer;             /* a peer's, or */
	struct outgoing *outgoing;         /* our own */
	const float *data;
	float weight;
};

struct sum_task {
	struct task task;
	struct unit *unit;
	uint64_t epoch;
	uint64_t from, to; /* bytes */
	struct sum_source sources[REDUCE_SOURCES_MAX];
	size_t source_count;
	bool fresh, finite;
	bool pass; /* over a whole unit, without sources: divides, or zeroes where fresh */
	enum reduce_finish finish;
	float factor;
};

static enum reduce_finish sum_finish_of(const struct model *model, float *ret_factor)
{
	bool mean = model->options->op == REDUCE_MEAN;
	float divisor = model->collect.divisor;
	int exponent;

	if (PLANTED(PLANTED_DIVIDE_FIRST))
		divisor /= (float)model->world_size;
	/* To divide by a power of two is to multiply by its inverse, to the bit, and takes half the time. */
	if (mean && frexpf(divisor, &exponent) == 0.5f && isnormal(1 / divisor)) {
		*ret_factor = 1 / divisor;
		return REDUCE_FINISH_MULTIPLY;
	}
	*ret_factor = mean ? divisor : (float)model->options->scale;
	return mean ? REDUCE_FINISH_DIVIDE : REDUCE_FINISH_MULTIPLY;
}

/* ---- The task ---- */

static void sum_run(struct task *task)
{
	struct sum_task *sum = (struct sum_task *)task;
	float *to = plan_gradient(task->model->plan, sum->unit->index) + sum->from / sizeof(float);
	struct reduce_source sources[REDUCE_SOURCES_MAX];

	for (size_t i = 0; i < sum->source_count; i++)
		sources[i] = (struct reduce_source){ .data = sum->sources[i].data,
						     .dtype = FSDP_F32,
						     .weight = (double)sum->sources[i].weight };
	sum->finite = reduce_add(to, FSDP_F32, sources, sum->source_count, (sum->to - sum->from) / sizeof(float),
				 sum->fresh, sum->finish, (double)sum->factor);
}

static void sum_account(struct sum_task *sum)
{
	struct unit *unit = sum->unit;
	struct model *model = unit->model;

	if (!sum->finite)
		unit->collect.finite = model->collect.finite = false;
	if (sum->pass)
		unit->collect.finished = sum->to;
	for (size_t i = 0; i < sum->source_count; i++) {
		struct contribution *c = sum->sources[i].contribution;
		struct source *source = &model->sources[c->rank];

		c->added = c->claimed = sum->to;
		if (c->outgoing)
			continue;
		ENGINE_COUNT(model->engine, added_bytes, sum->to - sum->from);
		collect_consume(source, c);
		progress_note(source, unit->index);
		progress_check_credit(source);
	}
}

static void sum_done(struct task *task)
{
	struct sum_task *sum = (struct sum_task *)task;
	struct unit *unit = sum->unit;
	struct model *model = task->model;

	unit->collect.adding = false;
	if (sum->epoch == model->collect.epoch)
		sum_account(sum);
	for (size_t i = 0; i < sum->source_count; i++) {
		buffer_unref(sum->sources[i].buffer);
		if (sum->sources[i].outgoing)
			push_let_go(sum->sources[i].outgoing);
	}
	free(sum);
	if (model->dropping)
		return;
	sum_continue(unit);
	apply_continue(model);
}

static void sum_start(struct unit *unit, struct sum_task *sum)
{
	sum->task.run = sum_run;
	sum->task.done = sum_done;
	sum->unit = unit;
	sum->epoch = unit->model->collect.epoch;
	unit->collect.adding = true;
	task_start(&sum->task, unit->model, sum->to - sum->from);
}

/* ---- The order ---- */

/* Takes away contributions at the front that are added whole, and steps over what is absent. */
static void sum_retire(struct unit *unit)
{
	struct collect_unit *collect = &unit->collect;
	struct model *model = unit->model;

	collect->cursor = collect_skip(unit, collect->cursor);
	while (collect->first && collect->first->position == collect->cursor && collect->first->added == unit->bytes) {
		struct contribution *c = collect->first;
		struct source *source = &model->sources[c->rank];
		struct outgoing *outgoing = c->outgoing;

		collect->cursor = collect_skip(unit, c->following);
		collect->completed++;
		collect_forget_contribution(unit, c);
		if (outgoing) {
			push_own_added(outgoing);
		} else {
			progress_note(source, unit->index);
			progress_want(source);
		}
	}
}

/* Whether next comes right after c in the order, as far as is known, and can be added in one go with it. */
static bool sum_goes_with(const struct unit *unit, struct contribution *c)
{
	const struct contribution *next = c->next;

	c->following = collect_skip(unit, c->following);
	return next && next->position == c->following && next->added == c->added && next->received > next->added;
}

/* The one before it came earlier and is still being added: behind it, ours would need a pass of its own to the end. */
static bool sum_is_left_behind(const struct unit *unit, const struct contribution *c)
{
	return c->prev && c->prev->added < unit->bytes;
}

/* Our own contribution costs a pass over memory of its own unless it waits for the next one: it may, as nobody's credit
 * is bound by it, until it is all that its slot waits for. */
static bool sum_may_wait(const struct unit *unit, struct contribution *c)
{
	return c->outgoing && !push_is_hurried(c->outgoing) && !sum_goes_with(unit, c) &&
	       !sum_is_left_behind(unit, c) && c->following < unit->model->collect.end;
}

/* The last contribution of which something can be added: up to *ret_limit, where the one before it is. The last,
 * because those that are equally far are added in one pass, and so who is behind catches up first. */
static struct contribution *sum_choose(struct unit *unit, uint64_t *ret_limit)
{
	uint64_t position = unit->collect.cursor;
	uint64_t limit = unit->bytes;
	struct contribution *last = NULL;

	for (struct contribution *c = unit->collect.first; c && limit > 0 && c->position == position; c = c->next) {
		if (engine_min(c->received, limit) > c->added && !sum_may_wait(unit, c)) {
			*ret_limit = limit;
			last = c;
		}
		limit = c->added;
		c->following = collect_skip(unit, c->following);
		position = c->following;
	}
	return last;
}

static void sum_take(const struct model *model, struct sum_task *sum, struct contribution *c)
{
	struct sum_source *source = &sum->sources[sum->source_count++];

	source->contribution = c;
	source->weight = c->weight;
	if (PLANTED(PLANTED_DIVIDE_FIRST) && model->options->op == REDUCE_MEAN)
		source->weight /= (float)model->world_size;
	if (c->outgoing) {
		source->data = push_own_range(c->outgoing) + sum->from / sizeof(float);
		source->outgoing = c->outgoing;
		push_hold(c->outgoing);
		return;
	}
	assert(c->pieces && c->pieces->offset <= sum->from && c->pieces->offset + c->pieces->size > sum->from);
	source->data = (const float *)(const void *)(c->pieces->data + (sum->from - c->pieces->offset));
	source->buffer = buffer_ref(c->pieces->buffer);
	sum->to = engine_min(sum->to, c->pieces->offset + c->pieces->size);
}

static bool sum_start_adding(struct unit *unit)
{
	struct model *model = unit->model;
	uint64_t limit = 0;
	struct contribution *c = sum_choose(unit, &limit);
	struct sum_task *sum;

	if (!c)
		return false;
	sum = engine_alloc(1, sizeof(*sum));
	sum->from = c->added;
	sum->to = engine_min(limit, sum->from + SUM_BYTES_MAX);
	sum->fresh = !c->prev && unit->collect.completed == 0;
	sum_take(model, sum, c);
	while (sum->source_count < REDUCE_SOURCES_MAX && sum_goes_with(unit, c)) {
		c = c->next;
		sum_take(model, sum, c);
	}
	for (size_t i = 0; i < sum->source_count; i++)
		sum->sources[i].contribution->claimed = sum->to;
	c->following = collect_skip(unit, c->following);
	if (!c->next && c->following >= model->collect.end) {
		sum->finish = sum_finish_of(model, &sum->factor);
		unit->collect.divided_from = engine_min(unit->collect.divided_from, sum->from);
	}
	sum_start(unit, sum);
	return true;
}

/* ---- The end of a unit, and of all ---- */

/* What no addition divided is divided in a pass of its own; what nobody contributed to is zero. */
static bool sum_start_pass(struct unit *unit)
{
	struct collect_unit *collect = &unit->collect;
	uint64_t end = engine_min(unit->bytes, collect->divided_from);
	struct sum_task *sum;

	if (PLANTED(PLANTED_DIVIDE_TWICE))
		end = unit->bytes;
	if (collect->finished >= end)
		return false;
	sum = engine_alloc(1, sizeof(*sum));
	sum->pass = true;
	sum->from = collect->finished;
	sum->to = engine_min(end, sum->from + SUM_FINISH_BYTES);
	sum->fresh = collect->completed == 0;
	if (!sum->fresh)
		sum->finish = sum_finish_of(unit->model, &sum->factor);
	sum_start(unit, sum);
	return true;
}

/* Starts the next task. Returns whether one was started. */
static bool sum_advance(struct unit *unit)
{
	struct collect_unit *collect = &unit->collect;
	struct model *model = unit->model;

	sum_retire(unit);
	if (collect->first || collect->cursor < model->collect.end)
		return sum_start_adding(unit);
	if (sum_start_pass(unit))
		return true;
	collect->complete = true;
	model->collect.units_left--;
	sum_check(model);
	return false;
}

void sum_continue(struct unit *unit)
{
	struct collect_unit *collect = &unit->collect;

	if (collect->complete || collect->adding || unit->changing)
		return;
	/* Small tasks end inside of the call that starts them: no deeper than one level, whatever their number. */
	collect->again = true;
	if (collect->running)
		return;
	collect->running = true;
	while (collect->again && !collect->complete && !collect->adding) {
		collect->again = false;
		sum_advance(unit);
	}
	collect->running = false;
}

uint8_t *sum_bad(const struct model *model)
{
	uint8_t *bad;

	if (model->collect.finite)
		return NULL;
	bad = engine_alloc(model->unit_count, 1);
	for (uint32_t i = 0; i < model->unit_count; i++)
		bad[i] = !model->units[i].collect.finite;
	return bad;
}

void sum_check(struct model *model)
{
	struct collect *collect = &model->collect;
	struct report *report;

	if (collect->reported || collect->lasts < model->world_size || collect->units_left > 0 || model->apply.active)
		return;
	collect->reported = true;
	ENGINE_COUNT(model->engine, reductions, 1);
	report = report_new(REPORT_REDUCED);
	report->model = model->id;
	report->step = model->step;
	report->attempt = model->attempt;
	report->finite = collect->finite;
	report->bits = sum_bad(model);
	engine_report(model->engine, report);
}
