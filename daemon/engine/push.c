/*
 * Sends this node's gradients to their owners. The engine's thread. It adds nothing itself: our own range of a slot is
 * given to sum.c as a contribution like any other.
 */
#include "daemon/engine/push.h"

#include "daemon/engine/lease.h"
#include "daemon/engine/shards.h"
#include "daemon/runtime/planted.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The range of one owner. */
struct outgoing_part {
	uint64_t place, length;               /* bytes in the slot */
	uint64_t sent, acknowledged, highest; /* highest: ever sent */
	struct lease *lease;
};

struct outgoing {
	struct outgoing *next, *prev;  /* of the model */
	struct outgoing *next_of_unit; /* oldest first */
	struct unit *unit;
	uint32_t micro_batch;
	uint64_t slot;
	double weight;
	uint32_t waiting; /* owners that have not added all of it */
	uint32_t leases;  /* out */
	uint32_t tasks;   /* that read it */
	bool own_added;
	bool hurried; /* our own range is to be added though nothing else is ready to be added with it */
	bool over;    /* its step or attempt is; among the leaving ones */
	struct outgoing_part parts[]; /* [world_size] */
};

static void push_return_slot(struct model *model, uint32_t unit, uint64_t slot)
{
	struct report *report = report_new(REPORT_RETURNED);

	report->model = model->id;
	report->unit = unit;
	report->slot = slot;
	engine_report(model->engine, report);
}

static void push_unlink(struct outgoing *outgoing)
{
	struct model *model = outgoing->unit->model;
	struct push *push = &model->push;

	for (uint32_t rank = 0; rank < model->world_size; rank++) {
		if (model->targets[rank].next == outgoing)
			model->targets[rank].next = outgoing->next;
	}
	if (outgoing->next)
		outgoing->next->prev = outgoing->prev;
	else if (!outgoing->over)
		push->last = outgoing->prev;
	if (outgoing->prev)
		outgoing->prev->next = outgoing->next;
	else if (outgoing->over)
		push->leaving = outgoing->next;
	else
		push->first = outgoing->next;
	for (struct outgoing **link = &outgoing->unit->outgoings; *link; link = &(*link)->next_of_unit) {
		if (*link == outgoing) {
			*link = outgoing->next_of_unit;
			break;
		}
	}
}

/* Gives the slot back where nothing needs it any more, and ends it. */
static void push_settle(struct outgoing *outgoing)
{
	struct model *model = outgoing->unit->model;

	if (!outgoing->over && (outgoing->waiting > 0 || !outgoing->own_added))
		return;
	if (outgoing->leases > 0 || outgoing->tasks > 0)
		return;
	push_unlink(outgoing);
	if (!model->dropping)
		push_return_slot(model, outgoing->unit->index, outgoing->slot);
	free(outgoing);
}

static void push_returned(void *owner)
{
	struct outgoing *outgoing = owner;

	outgoing->leases--;
	push_settle(outgoing);
}

/* An owner has added `offset` bytes. Does not free. */
static void push_acknowledge(struct outgoing *outgoing, uint32_t rank, uint64_t offset)
{
	struct outgoing_part *part = &outgoing->parts[rank];

	if (offset <= part->acknowledged)
		return;
	part->acknowledged = offset;
	part->sent = engine_max(part->sent, offset);
	if (offset < part->length)
		return;
	outgoing->waiting--;
	if (part->lease)
		lease_end(part->lease);
	part->lease = NULL;
}

static bool push_chunk(struct outgoing *outgoing, uint32_t rank, uint64_t size)
{
	struct outgoing_part *part = &outgoing->parts[rank];
	struct unit *unit = outgoing->unit;
	struct model *model = unit->model;
	struct peer_message push = { .op = PEER_PUSH,
				     .unit = unit->index,
				     .step = model->step,
				     .attempt = model->attempt,
				     .micro_batch = outgoing->micro_batch,
				     .weight = outgoing->weight == 1 ? 0 : outgoing->weight,
				     .offset = part->sent,
				     .length = size };
	struct transport_piece piece = { .offset = part->sent, .size = size };

	if (!part->lease) {
		char *slot = (char *)plan_memory(model->plan)->grads.base + outgoing->slot;

		part->lease = lease_new(model, rank, slot + part->place, part->length, push_returned, outgoing);
		outgoing->leases++;
	}
	piece.buffer = lease_buffer(part->lease);
	if (engine_send(model, rank, &push, piece))
		return false;
	if (part->sent < part->highest)
		ENGINE_COUNT(model->engine, resent_bytes, engine_min(size, part->highest - part->sent));
	part->sent += size;
	part->highest = engine_max(part->highest, part->sent);
	model->targets[rank].sent += size;
	ENGINE_COUNT(model->engine, pushed_bytes, size);
	if (PLANTED(PLANTED_SLOT_TOO_EARLY) && part->sent == part->length)
		push_return_slot(model, unit->index, outgoing->slot);
	return true;
}

/* Sends to rank what its credit allows, oldest first. */
static void push_pump(struct model *model, uint32_t rank)
{
	struct target *target = &model->targets[rank];

	while (target->next) {
		struct outgoing *outgoing = target->next;
		const struct outgoing_part *part = &outgoing->parts[rank];
		uint64_t size = engine_min(model->engine->chunk_bytes, part->length - part->sent);

		if (size == 0) {
			target->next = outgoing->next;
			continue;
		}
		if (target->sent + size > target->credit && !PLANTED(PLANTED_IGNORE_CREDIT))
			return;
		if (!push_chunk(outgoing, rank, size))
			return;
	}
}

static void push_pump_all(struct model *model)
{
	for (uint32_t i = 1; i < model->world_size; i++)
		push_pump(model, (model->rank + i) % model->world_size);
}

void push_reduce(struct unit *unit, const struct command *command)
{
	struct model *model = unit->model;
	struct outgoing **link = &unit->outgoings;
	struct outgoing *outgoing;

	if (shards_compare(model, command->step, command->attempt) ||
	    command->micro_batch >= ENGINE_MICRO_BATCHES_MAX || command->weight == 0) {
		push_return_slot(model, unit->index, command->slot);
		return;
	}
	outgoing = engine_alloc(1, sizeof(*outgoing) + model->world_size * sizeof(outgoing->parts[0]));
	outgoing->unit = unit;
	outgoing->micro_batch = command->micro_batch;
	outgoing->slot = command->slot;
	outgoing->weight = command->weight;
	for (uint32_t rank = 0; rank < model->world_size; rank++) {
		struct range range = plan_shard_of(model->plan, unit->index, rank);

		outgoing->parts[rank].place = range.offset * sizeof(float);
		outgoing->parts[rank].length = range.count * sizeof(float);
		if (rank == model->rank)
			continue;
		if (range.count > 0)
			outgoing->waiting++;
		if (!model->targets[rank].next)
			model->targets[rank].next = outgoing;
	}
	outgoing->prev = model->push.last;
	*(outgoing->prev ? &outgoing->prev->next : &model->push.first) = outgoing;
	model->push.last = outgoing;
	while (*link)
		link = &(*link)->next_of_unit;
	*link = outgoing;
	push_pump_all(model);
	collect_own(unit, command->micro_batch, outgoing);
}

/* ---- CLOSE ---- */

static void push_send_close(struct model *model, uint32_t rank, uint32_t micro_batch)
{
	const struct push_close *own = &model->push.closes[micro_batch];
	struct peer_message close = { .op = PEER_CLOSE,
				      .step = model->step,
				      .attempt = model->attempt,
				      .micro_batch = micro_batch,
				      .bits = own->bits,
				      .bits_size = own->bits ? ((size_t)model->unit_count + 7) / 8 : 0,
				      .last = own->last,
				      .weight = own->weight };

	engine_send(model, rank, &close, (struct transport_piece){ 0 });
}

static void push_send_closes(struct model *model, uint32_t rank)
{
	uint32_t from = model->targets[rank].closed;
	uint32_t end = model->push.close_count;

	if (end - from > PUSH_CLOSES_AT_ONCE)
		end = from + PUSH_CLOSES_AT_ONCE;
	for (uint32_t micro_batch = from; micro_batch < end; micro_batch++)
		push_send_close(model, rank, micro_batch);
}

static uint8_t *push_absent_bits(const struct model *model, const uint8_t *absent)
{
	uint8_t *bits = NULL;

	for (uint32_t i = 0; i < model->unit_count && absent; i++) {
		if (!absent[i])
			continue;
		if (!bits)
			bits = engine_alloc(((size_t)model->unit_count + 7) / 8, 1);
		bits[i / 8] = (uint8_t)(bits[i / 8] | 1u << i % 8);
	}
	return bits;
}

void push_close_command(struct model *model, const struct command *command)
{
	struct push *push = &model->push;
	struct push_close *own;

	if (shards_compare(model, command->step, command->attempt) || command->micro_batch != push->close_count ||
	    command->micro_batch >= ENGINE_MICRO_BATCHES_MAX)
		return;
	if (push->close_count == push->close_room) {
		uint32_t room = push->close_room ? 2 * push->close_room : 16;
		struct push_close *closes = engine_alloc(room, sizeof(*closes));

		if (push->close_count)
			memcpy(closes, push->closes, push->close_count * sizeof(*closes));
		free(push->closes);
		push->closes = closes;
		push->close_room = room;
	}
	own = &push->closes[push->close_count++];
	own->bits = push_absent_bits(model, command->bits);
	own->last = command->last;
	own->weight = command->last ? command->weight : 0;
	for (uint32_t i = 1; i < model->world_size; i++)
		push_send_close(model, (model->rank + i) % model->world_size, command->micro_batch);
	collect_close(model, model->rank, command->micro_batch, own->bits, own->last, own->weight);
}

/* ---- What owners tell ---- */

/* Takes one acknowledgement. Returns whether a contribution came to its end elsewhere: then the list may have
 * changed. */
static bool push_take_entry(struct unit *unit, uint32_t rank, const struct peer_progress *entry)
{
	/* What of a unit is added up to an offset, all of it in earlier micro-batches is. */
	for (struct outgoing *outgoing = unit->outgoings; outgoing && outgoing->micro_batch <= entry->micro_batch;
	     outgoing = outgoing->next_of_unit) {
		const struct outgoing_part *part = &outgoing->parts[rank];
		uint32_t waiting = outgoing->waiting;

		if (entry->offset > part->length || entry->offset % sizeof(float)) {
			shards_count_violation(unit->model);
			return false;
		}
		push_acknowledge(outgoing, rank, entry->offset);
		if (outgoing->waiting > 0 || waiting == 0)
			continue;
		if (outgoing->own_added)
			push_settle(outgoing);
		else
			sum_continue(unit);
		return true;
	}
	return false;
}

void push_progress(struct model *model, uint32_t rank, const struct peer_message *message)
{
	struct target *target = &model->targets[rank];

	target->heard = true;
	if (message->credit_link == model->engine->peers[rank].link_out)
		target->credit = engine_max(target->credit, message->credit);
	if (shards_compare(model, message->step, message->attempt) == 0) {
		if (message->closed > target->closed)
			target->closed =
				message->closed < model->push.close_count ? message->closed : model->push.close_count;
		for (size_t i = 0; i < message->progress_count; i++) {
			struct unit *unit = shards_unit_of(model, message->progress[i].unit);

			while (unit && push_take_entry(unit, rank, &message->progress[i]))
				;
		}
	}
	push_pump(model, rank);
}

/* ---- Links, time, the end ---- */

void push_up(struct model *model, uint32_t rank)
{
	struct target *target = &model->targets[rank];

	target->credit = target->sent = 0;
	if (!PLANTED(PLANTED_NO_RESEND)) {
		for (struct outgoing *outgoing = model->push.first; outgoing; outgoing = outgoing->next)
			outgoing->parts[rank].sent = outgoing->parts[rank].acknowledged;
		target->next = model->push.first;
	}
	push_send_closes(model, rank);
}

void push_resume(struct model *model)
{
	push_pump_all(model);
}

void push_tick(struct model *model)
{
	for (uint32_t i = 1; i < model->world_size; i++) {
		uint32_t rank = (model->rank + i) % model->world_size;

		if (!links_is_up(model->engine->links, rank))
			continue;
		push_send_closes(model, rank);
		/* Nothing is lost on a link that holds; who waits in silence asks all the same. */
		if (!model->targets[rank].heard &&
		    (model->push.first || model->targets[rank].closed < model->push.close_count))
			progress_want_all(&model->sources[rank], true);
		model->targets[rank].heard = false;
	}
	/* In two passes: adding one may free others. */
	for (struct outgoing *outgoing = model->push.first; outgoing; outgoing = outgoing->next)
		outgoing->hurried = true;
	for (uint32_t i = 0; i < model->unit_count && model->push.first; i++) {
		if (model->units[i].outgoings)
			sum_continue(&model->units[i]);
	}
}

void push_restart(struct model *model)
{
	struct push *push = &model->push;
	struct outgoing *next;

	for (uint32_t rank = 0; rank < model->world_size; rank++) {
		model->targets[rank].next = NULL;
		model->targets[rank].closed = 0;
	}
	for (struct outgoing *outgoing = push->first; outgoing; outgoing = next) {
		next = outgoing->next;
		for (uint32_t rank = 0; rank < model->world_size; rank++) {
			struct outgoing_part *part = &outgoing->parts[rank];

			if (!part->lease)
				continue;
			lease_hurry(part->lease, model->engine->now_ms + model->engine->config.read_drain_ms);
			lease_end(part->lease);
			part->lease = NULL;
		}
		push_unlink(outgoing);
		outgoing->over = true;
		outgoing->prev = NULL;
		outgoing->next = push->leaving;
		if (outgoing->next)
			outgoing->next->prev = outgoing;
		push->leaving = outgoing;
		push_settle(outgoing);
	}
	for (uint32_t i = 0; i < push->close_count; i++)
		free(push->closes[i].bits);
	push->close_count = 0;
}

void push_drop(struct model *model)
{
	push_restart(model);
	free(model->push.closes);
	model->push.closes = NULL;
	model->push.close_room = 0;
}

/* ---- Our own range ---- */

const float *push_own_range(const struct outgoing *outgoing)
{
	const struct model *model = outgoing->unit->model;
	const char *slot = (const char *)plan_memory(model->plan)->grads.base + outgoing->slot;

	return (const float *)(const void *)(slot + outgoing->parts[model->rank].place);
}

float push_weight(const struct outgoing *outgoing)
{
	return (float)outgoing->weight;
}

bool push_is_hurried(const struct outgoing *outgoing)
{
	return outgoing->hurried || outgoing->waiting == 0;
}

void push_hold(struct outgoing *outgoing)
{
	outgoing->tasks++;
}

void push_let_go(struct outgoing *outgoing)
{
	assert(outgoing->tasks > 0);
	outgoing->tasks--;
	push_settle(outgoing);
}

void push_own_added(struct outgoing *outgoing)
{
	outgoing->own_added = true;
	push_settle(outgoing);
}

void push_waits(const struct model *model, bool (*tell)(void *context, uint32_t unit, uint32_t rank), void *context)
{
	for (const struct outgoing *outgoing = model->push.first; outgoing; outgoing = outgoing->next) {
		for (uint32_t rank = 0; rank < model->world_size; rank++) {
			const struct outgoing_part *part = &outgoing->parts[rank];

			if (rank != model->rank && part->acknowledged < part->length &&
			    !tell(context, outgoing->unit->index, rank))
				return;
		}
	}
}
