/*
 * Gathers units: reads the owners' ranges into a slot. The engine's thread; the copies are made in part.c. It
 * knows nothing of who holds a slot; what it reports as gathered it never touches again.
 */
#include "daemon/engine/reader.h"

#include "daemon/engine/shards.h"
#include "daemon/runtime/planted.h"
#include <assert.h>
#include <stdlib.h>

#define READER_AHEAD_MAX 2 /* versions that an owner may be ahead of us: one that is, one that is to be */

enum gather_state {
	GATHER_WAITING, /* for our own shard to have `wanted` */
	GATHER_READY,   /* for a place among the reading ones */
	GATHER_READING,
	GATHER_STALE /* an owner was ahead: for running copies to end, then waiting */
};

struct gather {
	struct gather *next;       /* of the unit */
	struct gather *next_ready; /* of the model */
	struct unit *unit;
	enum gather_state state;
	uint64_t slot, wanted, version, read;
	uint32_t copies; /* tasks that run */
	uint32_t next_part, asked, left;
	bool copying_own;
	bool initial; /* our range of the initial values, into the masters; version 0 */
	uint32_t part_count;
	struct part parts[]; /* non-empty ranges; ours first, then from rank r+1 on round */
};

static void gather_ask_more(struct gather *gather);
static void gather_fill(struct model *model);

static bool gather_is_own(const struct gather *gather, const struct part *part)
{
	return part->rank == gather->unit->model->rank;
}

/* ---- The end of a gather, or of an attempt at one ---- */

static void gather_free(struct gather *gather)
{
	for (uint32_t i = 0; i < gather->part_count; i++)
		part_forget(&gather->parts[i]);
	free(gather);
}

static void gather_unlink(struct gather *gather)
{
	struct gathers *gathers = &gather->unit->model->gathers;

	for (struct gather **link = &gather->unit->gathers; *link; link = &(*link)->next) {
		if (*link == gather) {
			*link = gather->next;
			break;
		}
	}
	for (uint32_t i = 0; i < gathers->reading_count; i++) {
		if (gathers->reading[i] == gather) {
			gathers->reading[i] = gathers->reading[--gathers->reading_count];
			break;
		}
	}
}

/* Our own range is wanted no more: a step may write it. */
static void gather_release_own(struct gather *gather)
{
	if (!gather->copying_own)
		return;
	gather->copying_own = false;
	gather->unit->copies--;
	apply_continue(gather->unit->model);
}

static void gather_finish(struct gather *gather)
{
	struct unit *unit = gather->unit;
	struct engine *engine = unit->model->engine;
	struct report *report = report_new(gather->initial ? REPORT_FETCHED : REPORT_GATHERED);

	report->model = unit->model->id;
	report->unit = unit->index;
	report->slot = gather->slot;
	report->version = gather->version;
	ENGINE_COUNT(engine, gathers, 1);
	gather_unlink(gather);
	gather_free(gather);
	engine_report(engine, report);
}

static void gather_queue(struct gather *gather)
{
	struct gathers *gathers = &gather->unit->model->gathers;

	gather->state = GATHER_READY;
	gather->next_ready = NULL;
	*gathers->ready_tail = gather;
	gathers->ready_tail = &gather->next_ready;
}

static void gather_requeue(struct gather *gather)
{
	const struct unit *unit = gather->unit;

	gather->state = GATHER_WAITING;
	if (!unit->changing && unit->version >= gather->wanted && unit->version > 0)
		gather_queue(gather);
}

/* Where a part stands after something was copied: asks for more of it, or for the next owner's, or ends the gather. */
static void gather_look_at_part(struct gather *gather, struct part *part)
{
	struct model *model = gather->unit->model;
	uint64_t window = model->engine->config.window_bytes;

	if (part->copied < part->length) {
		uint64_t limit = engine_min(part->length, part->copied + window);

		if (!gather_is_own(gather, part) && limit > part->limit &&
		    (limit == part->length || limit - part->limit >= window / 4)) {
			struct peer_message read = { .op = PEER_READ,
						     .unit = gather->unit->index,
						     .version = gather->version,
						     .read = gather->read,
						     .offset = part->received,
						     .limit = limit & ~(uint64_t)3,
						     .length = part->length };

			part->limit = read.limit;
			engine_send(model, part->rank, &read, (struct transport_piece){ 0 });
		}
		return;
	}
	gather->left--;
	if (gather_is_own(gather, part))
		gather_release_own(gather);
	else
		gather->asked--;
	if (gather->left == 0) {
		gather_finish(gather);
		gather_fill(model);
	} else {
		gather_ask_more(gather);
	}
}

static char *gather_target(const struct gather *gather)
{
	const struct unit *unit = gather->unit;
	const struct plan *plan = unit->model->plan;

	if (gather->initial)
		return (char *)plan_master(plan, unit->index);
	return (char *)plan_memory(plan)->gathers.base + gather->slot;
}

/* Copies what is here of a part, or looks where it stands. May end the gather. */
static void gather_copy_part(struct gather *gather, struct part *part)
{
	if (part->copying)
		return;
	gather->copies++;
	if (part_copy(part, gather, gather->unit, gather_target(gather)))
		return;
	gather->copies--;
	gather_look_at_part(gather, part);
}

/* What an owner that was ahead has interrupted begins again when our own shard is there. */
static void gather_start_again(struct gather *gather)
{
	struct unit *unit = gather->unit;

	gather_unlink(gather);
	gather->next = unit->gathers;
	unit->gathers = gather;
	gather_release_own(gather);
	gather_requeue(gather);
	gather_fill(unit->model);
}

/* A small copy ends inside of part_copy and leads here again: no deeper than the tasks that one part's waiting chunks
 * need. */
void reader_copied(struct gather *gather, struct part *part)
{
	gather->copies--;
	if (gather->unit->model->dropping) {
		if (gather->copies == 0)
			gather_free(gather);
	} else if (gather->state != GATHER_STALE) {
		gather_copy_part(gather, part);
	} else if (gather->copies == 0) {
		gather_start_again(gather);
	}
}

/* ---- Asking ---- */

static void gather_ask(struct gather *gather, struct part *part)
{
	struct model *model = gather->unit->model;
	struct peer_message read = { .op = PEER_READ,
				     .unit = gather->unit->index,
				     .version = gather->version,
				     .read = gather->read,
				     .offset = part->received,
				     .length = part->length };

	part->limit =
		engine_max(part->limit, engine_min(part->length, part->copied + model->engine->config.window_bytes));
	part->limit &= ~(uint64_t)3;
	read.limit = part->limit;
	if (read.limit > part->received)
		engine_send(model, part->rank, &read, (struct transport_piece){ 0 });
}

static void gather_ask_more(struct gather *gather)
{
	while (gather->next_part < gather->part_count && gather->asked < READ_OWNERS_AT_ONCE) {
		struct part *part = &gather->parts[gather->next_part++];

		part->asked = part->heard = true;
		gather->asked++;
		gather_ask(gather, part);
	}
}

/* Tells the owners that were asked that nobody reads any more. */
static void gather_call_off(struct gather *gather)
{
	for (uint32_t i = 0; i < gather->part_count; i++) {
		struct part *part = &gather->parts[i];
		struct peer_message read = { .op = PEER_READ,
					     .unit = gather->unit->index,
					     .version = gather->version,
					     .read = gather->read,
					     .offset = 0,
					     .limit = 0,
					     .length = part->length };

		part_forget(part);
		if (part->asked && part->received < part->length)
			engine_send(gather->unit->model, part->rank, &read, (struct transport_piece){ 0 });
		part->asked = false;
	}
}

static void gather_begin(struct gather *gather)
{
	struct model *model = gather->unit->model;
	bool own = gather->part_count > 0 && gather->parts[0].rank == model->rank;

	gather->state = GATHER_READING;
	gather->version = gather->initial ? 0 : gather->unit->version;
	gather->read = ++model->engine->next_read;
	gather->left = gather->part_count;
	gather->asked = 0;
	gather->next_part = own ? 1 : 0;
	for (uint32_t i = 0; i < gather->part_count; i++)
		part_reset(&gather->parts[i]);
	model->gathers.reading[model->gathers.reading_count++] = gather;
	if (gather->left == 0) {
		gather_finish(gather);
		return;
	}
	if (own) {
		gather->copying_own = true;
		gather->unit->copies++;
	}
	gather_ask_more(gather); /* first, so that the copy of our own range overlaps with the journey */
	if (own)
		gather_copy_part(gather, &gather->parts[0]);
}

/* Lets ready gathers begin as places are free. Those whose unit began to change meanwhile wait again. */
static void gather_fill(struct model *model)
{
	struct gathers *gathers = &model->gathers;

	if (gathers->filling)
		return;
	gathers->filling = true;
	while (gathers->ready && gathers->reading_count < GATHERS_AT_ONCE) {
		struct gather *gather = gathers->ready;

		gathers->ready = gather->next_ready;
		if (!gathers->ready)
			gathers->ready_tail = &gathers->ready;
		if (gather->unit->changing)
			gather->state = GATHER_WAITING;
		else
			gather_begin(gather);
	}
	gathers->filling = false;
}

void reader_init(struct model *model)
{
	model->gathers.ready_tail = &model->gathers.ready;
}

void reader_start(struct unit *unit, uint64_t slot, uint64_t version)
{
	const struct model *model = unit->model;
	struct gather *gather = engine_alloc(1, sizeof(*gather) + model->world_size * sizeof(gather->parts[0]));

	gather->unit = unit;
	gather->slot = slot;
	gather->wanted = version;
	for (uint32_t i = 0; i < model->world_size; i++) {
		struct part *part = &gather->parts[gather->part_count];
		uint32_t rank = (model->rank + i) % model->world_size;
		struct range range = plan_shard_of(model->plan, unit->index, rank);

		if (range.count == 0)
			continue;
		part_reset(part);
		part->rank = rank;
		part->place = range.offset * sizeof(float);
		part->length = range.count * sizeof(float);
		gather->part_count++;
	}
	gather->next = unit->gathers;
	unit->gathers = gather;
	gather_requeue(gather);
	gather_fill(unit->model);
}

void reader_fetch(struct unit *unit)
{
	const struct model *model = unit->model;
	struct gather *gather = engine_alloc(1, sizeof(*gather) + sizeof(gather->parts[0]));

	assert(model->options->init == INIT_FROM_RANK && model->options->init_rank != model->rank);
	gather->unit = unit;
	gather->initial = true;
	if (unit->bytes > 0) {
		part_reset(&gather->parts[0]);
		gather->parts[0].rank = model->options->init_rank;
		gather->parts[0].length = unit->bytes;
		gather->part_count = 1;
	}
	gather->next = unit->gathers;
	unit->gathers = gather;
	gather_queue(gather);
	gather_fill(unit->model);
}

void reader_version_changed(struct unit *unit)
{
	for (struct gather *gather = unit->gathers; gather; gather = gather->next) {
		if (gather->state == GATHER_WAITING)
			gather_requeue(gather);
	}
	gather_fill(unit->model);
}

/* ---- What comes from the owners ---- */

static struct gather *gather_of(struct unit *unit, uint32_t owner, uint64_t read, struct part **ret_part)
{
	for (struct gather *gather = unit->gathers; gather; gather = gather->next) {
		if (gather->state != GATHER_READING || gather->read != read)
			continue;
		for (uint32_t i = 0; i < gather->part_count; i++) {
			struct part *part = &gather->parts[i];

			if (part->rank == owner && part->asked) {
				*ret_part = part;
				return gather;
			}
		}
	}
	return NULL;
}

void reader_chunk(struct model *model, uint32_t owner, const struct peer_message *message, struct buffer *payload)
{
	struct unit *unit = shards_unit_of(model, message->unit);
	struct part *part;
	struct gather *gather;

	if (!unit)
		return;
	gather = gather_of(unit, owner, message->read, &part);
	if (!gather || message->offset < part->received) {
		ENGINE_COUNT(model->engine, duplicates, 1);
		return;
	}
	if (!payload || message->length == 0 || message->length % sizeof(float) ||
	    message->length > buffer_size(payload) || message->offset != part->received ||
	    message->length > part->limit - part->received ||
	    (message->version != gather->version && !PLANTED(PLANTED_MIXED_VERSIONS))) {
		shards_count_violation(model);
		return;
	}
	part_take(part, payload, message->length);
	ENGINE_COUNT(model->engine, gather_bytes, message->length);
	gather_copy_part(gather, part);
}

void reader_stale(struct model *model, uint32_t owner, const struct peer_message *message)
{
	struct unit *unit = shards_unit_of(model, message->unit);
	struct part *part;
	struct gather *gather;

	if (!unit)
		return;
	gather = gather_of(unit, owner, message->read, &part);
	if (!gather || gather->initial)
		return;
	/* The owner may be a step ahead of us, however many steps this gather has lasted. */
	if (message->version <= gather->version || message->version > unit->version + READER_AHEAD_MAX) {
		shards_count_violation(model);
		return;
	}
	if (PLANTED(PLANTED_MIXED_VERSIONS)) {
		gather->version = message->version;
		gather_ask(gather, part);
		return;
	}
	gather_call_off(gather);
	gather->wanted = engine_max(gather->wanted, message->version);
	gather->state = GATHER_STALE;
	if (gather->copies == 0)
		gather_start_again(gather);
}

void reader_repeat(struct model *model, uint32_t owner)
{
	for (uint32_t i = 0; i < model->gathers.reading_count; i++) {
		struct gather *gather = model->gathers.reading[i];

		for (uint32_t k = 0; gather->state == GATHER_READING && k < gather->part_count; k++) {
			struct part *part = &gather->parts[k];

			if (part->rank == owner && part->asked && part->received < part->length)
				gather_ask(gather, part);
		}
	}
}

void reader_tick(struct model *model)
{
	for (uint32_t i = 0; i < model->gathers.reading_count; i++) {
		struct gather *gather = model->gathers.reading[i];

		for (uint32_t k = 0; gather->state == GATHER_READING && k < gather->part_count; k++) {
			struct part *part = &gather->parts[k];

			if (part->asked && part->received < part->length && !part->heard)
				gather_ask(gather, part);
			part->heard = false;
		}
	}
}

void reader_drop(struct model *model)
{
	model->gathers.reading_count = 0;
	model->gathers.ready = NULL;
	for (uint32_t i = 0; i < model->unit_count; i++) {
		struct unit *unit = &model->units[i];

		while (unit->gathers) {
			struct gather *gather = unit->gathers;

			unit->gathers = gather->next;
			gather_call_off(gather);
			if (gather->copies == 0)
				gather_free(gather);
		}
	}
}

void reader_waits(const struct model *model, bool (*tell)(void *context, uint32_t unit, uint32_t rank), void *context)
{
	for (uint32_t i = 0; i < model->unit_count; i++) {
		for (const struct gather *gather = model->units[i].gathers; gather; gather = gather->next) {
			bool reading = gather->state == GATHER_READING;

			if (gather->state == GATHER_WAITING && !tell(context, i, model->rank))
				return;
			for (uint32_t k = 0; (reading || gather->state == GATHER_READY) && k < gather->part_count;
			     k++) {
				const struct part *part = &gather->parts[k];

				if ((!reading || part->copied < part->length) && !tell(context, i, part->rank))
					return;
			}
		}
	}
}
