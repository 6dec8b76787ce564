/*
 * Builds and sends PROGRESS. The engine's thread. An entry says up to where one contribution is added; because sums
 * have an order, it says as much of every earlier micro-batch of the unit, so that one entry covers all that are done.
 */
#include "daemon/engine/progress.h"

#include "daemon/engine/shards.h"
#include "daemon/runtime/planted.h"
#include <stdlib.h>

struct progress_list {
	struct peer_progress entries[PEER_PROGRESS_MAX];
	size_t count;
};

void progress_note(struct source *source, uint32_t unit)
{
	struct telling *tell = &source->tell;

	if (source->rank == source->model->rank)
		return;
	if (tell->unit_count > 0 && tell->units[tell->unit_count - 1] == unit)
		return;
	if (!tell->units)
		tell->units = engine_alloc(PROGRESS_UNITS_MAX, sizeof(*tell->units));
	if (tell->unit_count == PROGRESS_UNITS_MAX)
		tell->all = true;
	else
		tell->units[tell->unit_count++] = unit;
	if (tell->unit_count == PROGRESS_UNITS_MAX)
		progress_want(source);
}

void progress_want(struct source *source)
{
	struct engine *engine = source->model->engine;

	if (source->tell.due || source->rank == source->model->rank)
		return;
	source->tell.due = true;
	source->tell.next = engine->telling;
	engine->telling = source;
}

void progress_want_all(struct source *source, bool reply)
{
	source->tell.all = true;
	source->tell.reply |= reply;
	progress_want(source);
}

static uint64_t progress_credit(const struct source *source)
{
	uint64_t window = source->model->engine->config.window_bytes;

	if (source->barred)
		return source->granted;
	return source->arrived + (window > source->buffered ? window - source->buffered : 0);
}

void progress_check_credit(struct source *source)
{
	const struct engine *engine = source->model->engine;
	uint64_t credit = progress_credit(source);
	uint64_t left = source->granted > source->arrived ? source->granted - source->arrived : 0;

	if (source->rank == source->model->rank || credit <= source->granted)
		return;
	if (credit - source->granted >= engine->config.window_bytes / 4 || left < engine->chunk_bytes)
		progress_want(source);
}

static void progress_send(struct source *source, struct progress_list *list)
{
	struct model *model = source->model;
	struct peer_message progress = { .op = PEER_PROGRESS,
					 .step = model->step,
					 .attempt = model->attempt,
					 .credit = progress_credit(source),
					 .credit_link = model->engine->peers[source->rank].link_in,
					 .closed = source->closed,
					 .progress = list->entries,
					 .progress_count = list->count,
					 .reply = source->tell.reply };

	if (engine_send(model, source->rank, &progress, (struct transport_piece){ 0 }) == 0) {
		source->granted = engine_max(source->granted, progress.credit);
		source->tell.reply = false;
	}
	list->count = 0;
}

static void progress_add(struct source *source, struct progress_list *list, uint32_t unit, uint64_t micro_batch,
			 uint64_t offset)
{
	if (list->count == PEER_PROGRESS_MAX)
		progress_send(source, list);
	list->entries[list->count++] =
		(struct peer_progress){ .micro_batch = (uint32_t)micro_batch, .unit = unit, .offset = offset };
}

/* What there is to say of one unit. */
static void progress_add_unit(struct source *source, struct progress_list *list, uint32_t index)
{
	const struct model *model = source->model;
	const struct unit *unit = &model->units[index];
	uint64_t cursor = engine_min(unit->collect.cursor, (uint64_t)ENGINE_MICRO_BATCHES_MAX * model->world_size);
	/* Micro-batches of this source that lie before the cursor. */
	uint64_t done = cursor / model->world_size + (source->rank < cursor % model->world_size ? 1 : 0);

	if (unit->bytes == 0)
		return;
	if (done > 0)
		progress_add(source, list, index, done - 1, unit->bytes);
	for (const struct contribution *c = unit->collect.first; c; c = c->next) {
		uint64_t offset = PLANTED(PLANTED_ACK_BEFORE_ADD) ? c->received : c->added;

		if (c->rank == source->rank && offset > 0)
			progress_add(source, list, index, c->micro_batch, offset);
	}
}

static void progress_tell(struct source *source)
{
	struct telling *tell = &source->tell;
	struct model *model = source->model;
	struct progress_list list;
	bool all = tell->all;

	if (!links_is_up(model->engine->links, source->rank))
		return; /* everything is told when it is */
	list.count = 0;
	for (uint32_t i = 0; i < (all ? model->unit_count : tell->unit_count); i++)
		progress_add_unit(source, &list, all ? i : tell->units[i]);
	tell->unit_count = 0;
	tell->all = false;
	progress_send(source, &list);
}

bool progress_flush(struct engine *engine)
{
	struct source *source = engine->telling;
	bool any = source != NULL;

	engine->telling = NULL;
	while (source) {
		struct source *next = source->tell.next;

		source->tell.due = false;
		source->tell.next = NULL;
		progress_tell(source);
		source = next;
	}
	return any;
}

/* Repeats a part of everything, one message a source; the next tick goes on where this one ended. */
static void progress_repeat(struct source *source)
{
	struct telling *tell = &source->tell;
	struct model *model = source->model;
	struct progress_list list;
	uint32_t units = 0;

	list.count = 0;
	while (units < model->unit_count && units < PEER_PROGRESS_MAX && list.count < PEER_PROGRESS_MAX / 2) {
		if (tell->rotation >= model->unit_count)
			tell->rotation = 0;
		progress_add_unit(source, &list, tell->rotation++);
		units++;
	}
	progress_send(source, &list);
}

/* Between steps, when a source has sent nothing and knows its credit, there is nothing to repeat. */
static bool progress_is_live(struct source *source)
{
	bool arrived = source->arrived != source->tell.arrived;

	source->tell.arrived = source->arrived;
	return arrived || source->closed > 0 || source->buffered > 0 || progress_credit(source) > source->granted;
}

void progress_tick(struct model *model)
{
	for (uint32_t i = 1; i < model->world_size; i++) {
		uint32_t rank = (model->rank + i) % model->world_size;

		if (progress_is_live(&model->sources[rank]) && links_is_up(model->engine->links, rank))
			progress_repeat(&model->sources[rank]);
	}
}

void progress_forget(struct source *source)
{
	struct engine *engine = source->model->engine;

	for (struct source **link = &engine->telling; *link; link = &(*link)->tell.next) {
		if (*link == source) {
			*link = source->tell.next;
			break;
		}
	}
	free(source->tell.units);
	source->tell.units = NULL;
}
