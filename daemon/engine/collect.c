/*
 * Keeps what arrives from the sources of a reduction, in order. The engine's thread. It adds nothing (sum.c) and sends
 * nothing (progress.c). Everything that comes in here but our own contributions is a peer's: what no peer of ours would
 * send is counted, and its source gets no more credit.
 */
#include "daemon/engine/collect.h"

#include "daemon/engine/held.h"
#include "daemon/engine/shards.h"
#include "daemon/math/reduce.h"
#include "daemon/runtime/planted.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t collect_bits_size(const struct model *model)
{
	return ((size_t)model->unit_count + 7) / 8;
}

static void collect_bar(struct source *source)
{
	source->barred = true;
	shards_count_violation(source->model);
}

/* ---- What is known of positions ---- */

static bool collect_marks_absent(const struct source *source, uint64_t micro_batch, uint32_t unit)
{
	const uint8_t *bits;

	if (source->has_last && micro_batch > source->last)
		return true;
	if (micro_batch >= source->closed)
		return false;
	bits = source->absent[micro_batch];
	return bits && bits[unit / 8] >> unit % 8 & 1;
}

bool collect_is_absent(const struct unit *unit, uint64_t position)
{
	const struct model *model = unit->model;

	return collect_marks_absent(&model->sources[position % model->world_size], position / model->world_size,
				    unit->index);
}

uint64_t collect_skip(const struct unit *unit, uint64_t position)
{
	const uint64_t end = unit->model->collect.end;

	while (position < end && collect_is_absent(unit, position))
		position++;
	/* What is beyond a source's last micro-batch is absent, and may be stepped over before the end is known. */
	return engine_min(position, end);
}

/* ---- Contributions ---- */

static struct contribution *collect_find(const struct unit *unit, uint32_t micro_batch, uint32_t rank)
{
	struct contribution *c = unit->collect.last;

	while (c && (c->micro_batch != micro_batch || c->rank != rank))
		c = c->prev;
	return c;
}

static uint64_t collect_position(const struct unit *unit, uint32_t micro_batch, uint32_t rank)
{
	const struct contribution *last = unit->collect.last;
	uint64_t first = (uint64_t)micro_batch * unit->model->world_size;

	if (PLANTED(PLANTED_ARRIVAL_ORDER))
		return last && last->micro_batch == micro_batch ? last->position + 1
								: engine_max(first, unit->collect.cursor);
	return first + rank;
}

static struct contribution *collect_add(struct unit *unit, uint32_t micro_batch, uint32_t rank, float weight)
{
	struct contribution *c = engine_alloc(1, sizeof(*c));
	struct contribution *before = unit->collect.last;

	c->position = collect_position(unit, micro_batch, rank);
	c->following = c->position + 1;
	c->micro_batch = micro_batch;
	c->rank = rank;
	c->weight = weight;
	c->pieces_tail = &c->pieces;
	while (before && before->position > c->position)
		before = before->prev;
	c->prev = before;
	c->next = before ? before->next : unit->collect.first;
	*(c->next ? &c->next->prev : &unit->collect.last) = c;
	*(c->prev ? &c->prev->next : &unit->collect.first) = c;
	return c;
}

static void collect_free_piece(struct source *source, struct piece *piece)
{
	source->buffered -= piece->size;
	source->pieces--;
	buffer_unref(piece->buffer);
	free(piece);
}

/* Frees the pieces from *link on. */
static void collect_cut_pieces(struct source *source, struct contribution *c, struct piece **link)
{
	struct piece *next;

	for (struct piece *piece = *link; piece; piece = next) {
		next = piece->next;
		collect_free_piece(source, piece);
	}
	*link = NULL;
	c->pieces_tail = link;
}

void collect_consume(struct source *source, struct contribution *c)
{
	while (c->pieces && c->pieces->offset + c->pieces->size <= c->added) {
		struct piece *piece = c->pieces;

		c->pieces = piece->next;
		if (!c->pieces)
			c->pieces_tail = &c->pieces;
		collect_free_piece(source, piece);
	}
}

void collect_forget_contribution(struct unit *unit, struct contribution *c)
{
	collect_cut_pieces(&unit->model->sources[c->rank], c, &c->pieces);
	*(c->next ? &c->next->prev : &unit->collect.last) = c->prev;
	*(c->prev ? &c->prev->next : &unit->collect.first) = c->next;
	free(c);
}

void collect_own(struct unit *unit, uint32_t micro_batch, struct outgoing *outgoing)
{
	const struct model *model = unit->model;
	uint64_t position = (uint64_t)micro_batch * model->world_size + model->rank;
	struct contribution *c;

	if (unit->bytes == 0) {
		push_own_added(outgoing);
		return;
	}
	/* The loop neither hands over a unit twice in a micro-batch nor after the micro-batch has ended. */
	assert(position >= unit->collect.cursor && !unit->collect.complete &&
	       !collect_find(unit, micro_batch, model->rank));
	c = collect_add(unit, micro_batch, model->rank, push_weight(outgoing));
	c->outgoing = outgoing;
	c->received = unit->bytes;
	sum_continue(unit);
}

/* ---- PUSH ---- */

/* In a PUSH a weight of 1 is left out, and one of 0 sends none. */
static float collect_weight(const struct peer_message *message)
{
	return message->weight == 0 ? 1.0f : (float)message->weight;
}

static bool collect_push_is_sane(const struct unit *unit, const struct peer_message *message,
				 const struct buffer *payload)
{
	return payload && message->length > 0 && message->length <= buffer_size(payload) &&
	       message->length % sizeof(float) == 0 && message->offset % sizeof(float) == 0 &&
	       message->length <= unit->bytes && message->offset <= unit->bytes - message->length &&
	       message->micro_batch < ENGINE_MICRO_BATCHES_MAX && message->step <= unit->model->step + 1 &&
	       isfinite(collect_weight(message)) && collect_weight(message) > 0;
}

static void collect_duplicate(struct source *source, struct unit *unit, const struct peer_message *message,
			      const struct buffer *payload)
{
	const float *data = buffer_data(payload);

	ENGINE_COUNT(source->model->engine, duplicates, 1);
	if (PLANTED(PLANTED_NO_DEDUPLICATION) && !unit->changing)
		reduce_add_f32(plan_gradient(source->model->plan, unit->index) + message->offset / sizeof(float), &data,
			       1, message->length / sizeof(float), false, REDUCE_FINISH_NOT, 1);
}

/* A reference to the payload where floats can be read from it in place. ZeroMQ gives small messages at any address. */
static struct buffer *collect_align(struct buffer *payload)
{
	struct buffer *copy;

	if ((uintptr_t)buffer_data(payload) % sizeof(float) == 0)
		return buffer_ref(payload);
	if (buffer_new_heap(buffer_size(payload), &copy))
		abort();
	memcpy(buffer_data(copy), buffer_data(payload), buffer_size(payload));
	return copy;
}

/* A PUSH of the present step and attempt that is sane and was accounted for. */
void collect_take(struct source *source, const struct peer_message *message, struct buffer *payload)
{
	struct model *model = source->model;
	struct unit *unit = &model->units[message->unit];
	uint64_t position = (uint64_t)message->micro_batch * model->world_size + source->rank;
	struct contribution *c = collect_find(unit, message->micro_batch, source->rank);
	float weight = collect_weight(message);
	struct piece *piece;
	uint64_t known;

	if (!c && (unit->collect.complete || position < unit->collect.cursor)) {
		collect_duplicate(source, unit, message, payload);
		return;
	}
	if ((!c && collect_is_absent(unit, position)) || source->pieces >= COLLECT_PIECES_MAX) {
		collect_bar(source);
		return;
	}
	known = c ? c->received : 0;
	if (message->offset > known ||
	    (c &&
	     c->weight != weight)) { /* one life of a link has no gaps, and a new one begins with what is not added */
		collect_bar(source);
		return;
	}
	if (message->offset + message->length <= known) {
		collect_duplicate(source, unit, message, payload);
		return;
	}
	if (!c)
		c = collect_add(unit, message->micro_batch, source->rank, weight);
	piece = engine_alloc(1, sizeof(*piece));
	piece->buffer = collect_align(payload);
	piece->data = (const char *)buffer_data(piece->buffer) + (known - message->offset);
	piece->offset = known;
	piece->size = message->offset + message->length - known;
	*c->pieces_tail = piece;
	c->pieces_tail = &piece->next;
	c->received += piece->size;
	source->buffered += piece->size;
	source->pieces++;
	if (PLANTED(PLANTED_ACK_BEFORE_ADD))
		progress_note(source, unit->index), progress_want(source);
	sum_continue(unit);
}

void collect_push(struct model *model, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	struct source *source = &model->sources[rank];
	struct unit *unit;
	int order;

	if (source->barred)
		return;
	unit = message->unit < model->unit_count ? &model->units[message->unit] : NULL;
	if (!unit || !collect_push_is_sane(unit, message, payload) || source->granted < source->arrived ||
	    message->length > source->granted - source->arrived) {
		collect_bar(source);
		return;
	}
	source->arrived += message->length;
	order = shards_compare(model, message->step, message->attempt);
	if (PLANTED(PLANTED_STALE_ATTEMPT) && message->step == model->step && order < 0)
		order = 0;
	if (order < 0)
		ENGINE_COUNT(model->engine, stale_attempts, 1);
	else if (order > 0)
		held_push(source, message, payload);
	else
		collect_take(source, message, payload);
	progress_check_credit(source);
}

/* ---- CLOSE ---- */

void collect_close_message(struct model *model, uint32_t rank, const struct peer_message *message)
{
	struct source *source = &model->sources[rank];
	bool sane = (message->bits_size == 0 || message->bits_size == collect_bits_size(model)) &&
		    message->micro_batch < ENGINE_MICRO_BATCHES_MAX && message->step <= model->step + 1 &&
		    isfinite(message->weight) && message->weight >= 0;
	int order = shards_compare(model, message->step, message->attempt);

	if (source->barred)
		return;
	if (!sane || (order == 0 && source->has_last && message->micro_batch > source->last)) {
		collect_bar(source);
		return;
	}
	if (order > 0) {
		held_close(source, message);
		return;
	}
	/* One that is ahead of its predecessors is repeated after them. One that is new is acknowledged with whatever
	 * is told next, or with the tick: nobody waits for it. */
	if (order < 0 || message->micro_batch > source->closed)
		return;
	if (message->micro_batch < source->closed)
		progress_want(source);
	else
		collect_close(model, rank, message->micro_batch, message->bits_size ? message->bits : NULL,
			      message->last, message->weight);
}

static void collect_note_last(struct model *model, struct source *source, uint32_t micro_batch, double weight)
{
	struct collect *collect = &model->collect;
	uint64_t beyond = 0;
	double weights = 0;

	source->has_last = true;
	source->last = micro_batch;
	source->weight = weight;
	if (++collect->lasts < model->world_size)
		return;
	for (uint32_t rank = 0; rank < model->world_size; rank++) {
		beyond = engine_max(beyond, (uint64_t)model->sources[rank].last + 1);
		weights += model->sources[rank].weight;
	}
	collect->end = beyond * model->world_size;
	collect->divisor = (float)weights;
}

static void collect_keep_bits(struct source *source, uint32_t micro_batch, const uint8_t *bits)
{
	const struct model *model = source->model;
	size_t size = collect_bits_size(model);

	if (micro_batch >= source->absent_room) {
		uint32_t room = source->absent_room ? 2 * source->absent_room : 16;
		uint8_t **absent = engine_alloc(room, sizeof(*absent));

		if (source->closed)
			memcpy(absent, source->absent, source->closed * sizeof(*absent));
		free(source->absent);
		source->absent = absent;
		source->absent_room = room;
	}
	source->absent[micro_batch] = NULL;
	if (!bits || PLANTED(PLANTED_FORGET_ABSENT))
		return;
	source->absent[micro_batch] = engine_alloc(size, 1);
	memcpy(source->absent[micro_batch], bits, size);
	source->absent_bytes += size;
}

void collect_close(struct model *model, uint32_t rank, uint32_t micro_batch, const uint8_t *bits, bool last,
		   double weight)
{
	struct source *source = &model->sources[rank];

	assert(micro_batch == source->closed);
	if (bits && source->absent_bytes + collect_bits_size(model) > STEP_CLOSE_BYTES_MAX) {
		collect_bar(source);
		return;
	}
	/* What came of a unit is not absent, whatever a CLOSE says later. */
	for (uint32_t i = 0; i < model->unit_count && bits && rank != model->rank; i++) {
		if ((bits[i / 8] >> i % 8 & 1) && collect_find(&model->units[i], micro_batch, rank)) {
			collect_bar(source);
			return;
		}
	}
	collect_keep_bits(source, micro_batch, bits);
	source->closed++;
	if (last)
		collect_note_last(model, source, micro_batch, weight);
	for (uint32_t i = 0; i < model->unit_count; i++)
		sum_continue(&model->units[i]);
	sum_check(model);
}

/* ---- Links, the end ---- */

void collect_init(struct model *model)
{
	for (uint32_t rank = 0; rank < model->world_size; rank++) {
		model->sources[rank].model = model;
		model->sources[rank].rank = rank;
		held_init(&model->sources[rank]);
	}
	collect_restart(model);
}

/* Lets go of the pieces of contributions of which nothing is added yet. */
static void collect_forget_waiting(struct source *source, struct unit *unit)
{
	for (struct contribution *c = unit->collect.first; c; c = c->next) {
		if (c->rank != source->rank || c->outgoing || c->added > 0 || c->claimed > 0)
			continue;
		collect_cut_pieces(source, c, &c->pieces);
		c->received = 0;
	}
}

void collect_inbound(struct model *model, uint32_t rank)
{
	struct source *source = &model->sources[rank];
	uint64_t window = model->engine->config.window_bytes;

	held_forget_pushes(source);
	/* What is here stays, and is known when it comes again, unless it takes so much of the window that the source
	 * could not send what is awaited before it. */
	for (uint32_t i = 0; i < model->unit_count && source->buffered > window / 2; i++)
		collect_forget_waiting(source, &model->units[i]);
	source->arrived = source->granted = 0;
	source->barred = false;
	progress_want_all(source, false);
}

static void collect_restart_unit(struct unit *unit)
{
	struct collect_unit *collect = &unit->collect;

	while (collect->first)
		collect_forget_contribution(unit, collect->first);
	collect->cursor = collect->completed = collect->finished = 0;
	collect->divided_from = UINT64_MAX;
	collect->finite = true;
	collect->complete = unit->bytes == 0;
	if (!collect->complete)
		unit->model->collect.units_left++;
}

void collect_restart(struct model *model)
{
	struct collect *collect = &model->collect;

	*collect = (struct collect){ .end = UINT64_MAX, .epoch = collect->epoch + 1, .finite = true };
	for (uint32_t i = 0; i < model->unit_count; i++)
		collect_restart_unit(&model->units[i]);
	for (uint32_t rank = 0; rank < model->world_size; rank++) {
		struct source *source = &model->sources[rank];

		for (uint32_t i = 0; i < source->closed; i++)
			free(source->absent[i]);
		source->closed = 0;
		source->has_last = false;
		source->weight = 0;
		source->absent_bytes = 0;
		source->tell.unit_count = 0;
	}
}

void collect_drop(struct model *model)
{
	for (uint32_t rank = 0; rank < model->world_size; rank++) {
		held_drop(&model->sources[rank]);
		progress_forget(&model->sources[rank]);
	}
	collect_restart(model);
	for (uint32_t rank = 0; rank < model->world_size; rank++) {
		free(model->sources[rank].absent);
		model->sources[rank].absent = NULL;
		model->sources[rank].absent_room = 0;
	}
}

/* ---- Who is waited for ---- */

/* Whether everything of rank's for this unit is here, or known not to come. */
static bool collect_has_all(const struct unit *unit, const struct source *source)
{
	const struct model *model = unit->model;
	uint64_t from = unit->collect.cursor / model->world_size;

	if (!source->has_last)
		return false;
	for (uint64_t micro_batch = from; micro_batch <= source->last; micro_batch++) {
		const struct contribution *c;

		if (micro_batch * model->world_size + source->rank < unit->collect.cursor ||
		    collect_marks_absent(source, micro_batch, unit->index))
			continue;
		c = collect_find(unit, (uint32_t)micro_batch, source->rank);
		if (!c || c->received < unit->bytes)
			return false;
	}
	return true;
}

void collect_waits(const struct model *model, bool (*tell)(void *context, uint32_t unit, uint32_t rank), void *context)
{
	for (uint32_t i = 0; i < model->unit_count; i++) {
		const struct unit *unit = &model->units[i];

		/* An empty shard waits for nothing but the CLOSEs, as every other does besides. */
		if (unit->collect.complete && model->collect.lasts == model->world_size)
			continue;
		for (uint32_t rank = 0; rank < model->world_size; rank++) {
			const struct source *source = &model->sources[rank];
			bool has_all = unit->collect.complete ? source->has_last : collect_has_all(unit, source);

			if (!has_all && !tell(context, i, rank))
				return;
		}
	}
}
