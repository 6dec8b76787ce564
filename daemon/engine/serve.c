/*
 * Serves reads of this rank's shards. The engine's thread. It does not change a version; apply.c asks it before it
 * writes.
 */
#include "daemon/engine/serve.h"

#include "daemon/engine/lease.h"
#include "daemon/engine/shards.h"
#include "daemon/runtime/planted.h"
#include <stdlib.h>

enum serve_state {
	SERVE_HELD,    /* of a later version */
	SERVE_SENDING, /* up to the reader's limit */
	SERVE_SENT,    /* all of it; chunks lie in the transport */
	SERVE_ENDED    /* forgotten; chunks lie in the transport */
};

struct serve {
	struct serve *next, *prev; /* of the unit */
	struct unit *unit;
	enum serve_state state;
	uint32_t reader;
	uint64_t read, version;
	uint64_t length; /* of the range */
	uint64_t sent, limit;
	struct lease *lease; /* from SENDING on */
};

static void serve_unlink(struct serve *serve)
{
	if (serve->next)
		serve->next->prev = serve->prev;
	if (serve->prev)
		serve->prev->next = serve->next;
	else
		serve->unit->serves = serve->next;
	free(serve);
}

/* The transport let go of the last chunk. */
static void serve_returned(void *owner)
{
	struct serve *serve = owner;
	struct unit *unit = serve->unit;

	serve_unlink(serve);
	load_offer_over(unit);
	apply_continue(unit->model);
}

static void serve_end(struct serve *serve)
{
	enum serve_state state = serve->state;

	serve->state = SERVE_ENDED;
	if (state == SERVE_HELD)
		serve_unlink(serve);
	else if (state == SERVE_SENDING)
		lease_end(serve->lease);
}

static void serve_send_stale(struct unit *unit, uint32_t reader, uint64_t read)
{
	struct peer_message stale = {
		.op = PEER_STALE, .unit = unit->index, .version = unit->version + (unit->changing ? 1 : 0), .read = read
	};

	ENGINE_COUNT(unit->model->engine, stale_reads, 1);
	engine_send(unit->model, reader, &stale, (struct transport_piece){ 0 });
}

static void serve_pump(struct serve *serve)
{
	struct unit *unit = serve->unit;
	struct engine *engine = unit->model->engine;

	while (serve->sent < serve->limit) {
		uint64_t size = engine_min(engine->chunk_bytes, serve->limit - serve->sent);
		struct peer_message chunk = { .op = PEER_CHUNK,
					      .unit = unit->index,
					      .version = serve->version,
					      .read = serve->read,
					      .offset = serve->sent,
					      .length = size };
		struct transport_piece piece = { .buffer = lease_buffer(serve->lease),
						 .offset = serve->sent,
						 .size = size };

		if (engine_send(unit->model, serve->reader, &chunk, piece))
			return;
		serve->sent += size;
		ENGINE_COUNT(engine, served_bytes, size);
	}
	if (serve->sent == serve->length) {
		serve->state = SERVE_SENT;
		lease_end(serve->lease);
	}
}

/* Version 0 are the initial values that this rank offers: the reader's own range of them. */
static void *serve_source(const struct serve *serve)
{
	const struct unit *unit = serve->unit;
	const struct plan *plan = unit->model->plan;

	if (serve->version > 0)
		return plan_master(plan, unit->index);
	return (char *)plan_memory(plan)->grads.base + unit->offer.slot +
	       plan_shard_of(plan, unit->index, serve->reader).offset * sizeof(float);
}

static void serve_begin(struct serve *serve)
{
	struct unit *unit = serve->unit;

	serve->state = SERVE_SENDING;
	serve->lease = lease_new(unit->model, serve->reader, serve_source(serve), serve->length, serve_returned, serve);
	serve_pump(serve);
}

static struct serve *serve_find(struct unit *unit, uint32_t reader)
{
	for (struct serve *serve = unit->serves; serve; serve = serve->next) {
		if (serve->reader == reader && serve->state != SERVE_ENDED)
			return serve;
	}
	return NULL;
}

/* Bytes of the range that is read: our shard, or, where we offer initial values, the reader's. 0: there is nothing to
 * read. */
static uint64_t serve_length(const struct unit *unit, uint32_t reader, uint64_t version)
{
	const struct model *model = unit->model;

	if (version > 0)
		return unit->bytes;
	if (model->options->init != INIT_FROM_RANK || model->options->init_rank != model->rank)
		return 0;
	return plan_shard_of(model->plan, unit->index, reader).count * sizeof(float);
}

static bool serve_is_sane(const struct unit *unit, uint32_t reader, const struct peer_message *message)
{
	uint64_t length = serve_length(unit, reader, message->version);

	return length > 0 && message->length == length && message->offset <= length &&
	       message->offset % sizeof(float) == 0 && message->limit <= length &&
	       message->limit % sizeof(float) == 0 && (message->limit == 0 || message->limit >= message->offset);
}

/* Whether it can go out now. */
static bool serve_is_here(const struct serve *serve)
{
	const struct unit *unit = serve->unit;
	return serve->version > 0 ? serve->version == unit->version : unit->offer.here;
}

static void serve_new(struct unit *unit, uint32_t reader, const struct peer_message *message)
{
	uint64_t future = unit->version + (unit->changing ? 1 : 0);
	struct serve *serve;

	if (message->version == 0 && unit->version > 0)
		return; /* published: the reader has it */
	if (message->version > 0 && message->version < future) {
		serve_send_stale(unit, reader, message->read);
		return;
	}
	serve = engine_alloc(1, sizeof(*serve));
	*serve = (struct serve){ .next = unit->serves,
				 .unit = unit,
				 .state = SERVE_HELD,
				 .reader = reader,
				 .read = message->read,
				 .version = message->version,
				 .length = message->length,
				 .sent = message->offset,
				 .limit = message->limit };
	if (serve->next)
		serve->next->prev = serve;
	unit->serves = serve;
	if (serve_is_here(serve))
		serve_begin(serve);
}

void serve_read(struct model *model, uint32_t reader, const struct peer_message *message)
{
	struct unit *unit = shards_unit_of(model, message->unit);
	struct serve *serve;

	if (!unit)
		return;
	if (!serve_is_sane(unit, reader, message)) {
		shards_count_violation(model);
		return;
	}
	serve = serve_find(unit, reader);
	if (serve && serve->read > message->read)
		return;
	if (serve && (serve->read < message->read || message->limit == 0)) {
		serve_end(serve);
		serve = NULL;
		apply_continue(model);
	}
	if (message->limit == 0)
		return;
	if (!serve) {
		serve_new(unit, reader, message);
	} else if (serve->state != SERVE_SENT && serve->version == message->version) {
		serve->limit = engine_max(serve->limit, message->limit);
		if (serve->state == SERVE_SENDING)
			serve_pump(serve);
	}
}

void serve_version_changed(struct unit *unit)
{
	struct serve *next;

	for (struct serve *serve = unit->serves; serve; serve = next) {
		next = serve->next;
		if (serve->version == 0) {
			if (serve->state != SERVE_ENDED)
				serve_end(serve);
			continue;
		}
		if (serve->state != SERVE_HELD || serve->version > unit->version)
			continue;
		if (serve->version == unit->version) {
			serve_begin(serve);
		} else {
			serve_send_stale(unit, serve->reader, serve->read);
			serve_end(serve);
		}
	}
}

static void serve_forget_where(struct model *model, bool all, uint32_t reader)
{
	for (uint32_t i = 0; i < model->unit_count; i++) {
		struct serve *next;

		for (struct serve *serve = model->units[i].serves; serve; serve = next) {
			next = serve->next;
			if ((all || serve->reader == reader) && serve->state != SERVE_ENDED)
				serve_end(serve);
		}
	}
}

void serve_forget(struct model *model, uint32_t reader)
{
	serve_forget_where(model, false, reader);
	apply_continue(model);
}

void serve_drop(struct model *model)
{
	serve_forget_where(model, true, 0);
}

void serve_resume(struct model *model)
{
	for (uint32_t i = 0; i < model->unit_count; i++) {
		for (struct serve *serve = model->units[i].serves; serve; serve = serve->next) {
			if (serve->state == SERVE_SENDING)
				serve_pump(serve);
		}
	}
}

void serve_offered(struct unit *unit)
{
	for (struct serve *serve = unit->serves; serve; serve = serve->next) {
		if (serve->state == SERVE_HELD && serve_is_here(serve))
			serve_begin(serve);
	}
}

bool serve_is_offering(const struct unit *unit)
{
	for (const struct serve *serve = unit->serves; serve; serve = serve->next) {
		if (serve->version == 0)
			return true;
	}
	return false;
}

bool serve_is_reading(const struct unit *unit)
{
	for (const struct serve *serve = unit->serves; serve; serve = serve->next) {
		if (serve->state != SERVE_HELD && serve->version > 0)
			return true;
	}
	return false;
}

void serve_give_up(struct unit *unit)
{
	for (struct serve *serve = unit->serves; serve; serve = serve->next) {
		if (serve->state == SERVE_HELD || serve->version == 0)
			continue;
		lease_hurry(serve->lease, unit->model->engine->now_ms);
		if (serve->state == SERVE_SENDING) {
			serve_send_stale(unit, serve->reader, serve->read);
			serve_end(serve);
		}
	}
}
