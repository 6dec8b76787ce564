/*
 * The engine's door: configuration, the commands of the loop, time, and the end. Everything happens in the one thread
 * that owns the engine. What commands do is in the files named after it: load, gather, push, collect, sum, apply,
 * serve.
 */
#include "daemon/engine/engine.h"

#include "daemon/engine/lease.h"
#include "daemon/engine/load.h"
#include "daemon/engine/shards.h"
#include "daemon/engine/peers.h"
#include "daemon/engine/waits.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define ENGINE_CHUNK_MIN 4096u

/* ---- For the other files of this folder ---- */

void *engine_alloc(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size);

	if (!memory)
		abort();
	return memory;
}

void engine_report(struct engine *engine, struct report *report)
{
	engine->config.report(engine->config.context, report);
}

void engine_reset_link(struct engine *engine, uint32_t rank)
{
	engine->peers[rank].reset = true;
	engine->resets = true;
}

int engine_send(struct model *model, uint32_t rank, struct peer_message *message, struct transport_piece payload)
{
	struct engine *engine = model->engine;
	int code;

	if (rank == model->rank || !engine->peers[rank].up)
		return -ENOTCONN;
	message->model = model->id;
	code = links_send(engine->links, rank, message, payload);
	if (code == -EAGAIN || code == -ENOMEM)
		engine->clogged = true;
	return code;
}

static bool engine_free_dropped(struct engine *engine)
{
	struct model **link = &engine->dropping;
	bool any = false;

	while (*link) {
		struct model *model = *link;
		struct model *next = model->next;

		if (shards_free_if_over(model)) {
			*link = next;
			any = true;
		} else {
			link = &model->next;
		}
	}
	return any;
}

void engine_settle(struct engine *engine)
{
	bool again = true;

	if (engine->settling)
		return;
	engine->settling = true;
	while (again) {
		again = lease_collect(engine);
		again |= progress_flush(engine);
		again |= peers_reset(engine);
		again |= engine_free_dropped(engine);
	}
	engine->settling = false;
}

/* ---- Commands ---- */

static void engine_command_drop(struct engine *engine, const struct command *command)
{
	struct model *model = shards_find(engine, command->model);
	struct report *report;

	if (model) {
		shards_drop(model);
		return;
	}
	for (model = engine->dropping; model; model = model->next) {
		if (model->id == command->model)
			return;
	}
	report = report_new(REPORT_DROPPED);
	report->model = command->model;
	engine_report(engine, report);
}

static void engine_command_add(struct engine *engine, const struct command *command)
{
	if (!shards_find(engine, command->model))
		shards_new(engine, command->model, command->plan);
}

static void engine_command_load(struct unit *unit, const struct command *command)
{
	load_start(unit, command->slot, command->compare, command->offer);
}

static void engine_command_fetch(struct unit *unit, const struct command *command)
{
	(void)command;
	reader_fetch(unit);
}

static void engine_command_publish(struct unit *unit, const struct command *command)
{
	(void)command;
	load_publish(unit);
}

static void engine_command_gather(struct unit *unit, const struct command *command)
{
	reader_start(unit, command->slot, command->version);
}

static void engine_command_reduce(struct unit *unit, const struct command *command)
{
	push_reduce(unit, command);
}

static void engine_command_abort(struct model *model, const struct command *command)
{
	if (command->step == model->step && command->attempt > model->attempt)
		shards_restart(model, command->step, command->attempt);
}

static void engine_command_inquire(struct model *model, const struct command *command)
{
	waits_report(model, command->token);
}

static const struct engine_door {
	void (*group)(struct engine *engine, const struct command *command);
	void (*model)(struct model *model, const struct command *command);
	void (*unit)(struct unit *unit, const struct command *command);
} engine_doors[] = {
	[COMMAND_PEERS] = { .group = peers_command },
	[COMMAND_ADD] = { .group = engine_command_add },
	[COMMAND_DROP] = { .group = engine_command_drop },
	[COMMAND_LOAD] = { .unit = engine_command_load },
	[COMMAND_FETCH] = { .unit = engine_command_fetch },
	[COMMAND_PUBLISH] = { .unit = engine_command_publish },
	[COMMAND_GATHER] = { .unit = engine_command_gather },
	[COMMAND_REDUCE] = { .unit = engine_command_reduce },
	[COMMAND_MEASURE] = { .model = measure_command },
	[COMMAND_CLOSE] = { .model = push_close_command },
	[COMMAND_APPLY] = { .model = apply_command },
	[COMMAND_ABORT] = { .model = engine_command_abort },
	[COMMAND_INQUIRE] = { .model = engine_command_inquire },
};

void engine_command(struct engine *engine, struct command *command)
{
	const struct engine_door *door;
	struct model *model;

	assert((size_t)command->kind < sizeof(engine_doors) / sizeof(engine_doors[0]));
	door = &engine_doors[command->kind];
	model = door->group ? NULL : shards_find(engine, command->model);
	if (door->group && !(engine->stopping && command->kind == COMMAND_ADD))
		door->group(engine, command);
	else if (model && door->model)
		door->model(model, command);
	else if (model && door->unit) {
		assert(command->unit < model->unit_count);
		door->unit(&model->units[command->unit], command);
	}
	command_free(command);
	engine_settle(engine);
}

/* ---- Time ---- */

void engine_run(struct engine *engine)
{
	engine_settle(engine);
}

void engine_tick(struct engine *engine, uint64_t now_ms)
{
	bool clogged = engine->clogged;

	engine->now_ms = now_ms;
	engine->clogged = false;
	links_tick(engine->links);
	for (struct model *model = engine->models; model; model = model->next) {
		if (clogged) {
			push_resume(model);
			serve_resume(model);
		}
		push_tick(model);
		progress_tick(model);
		reader_tick(model);
		apply_tick(model);
		lease_tick(model);
	}
	for (struct model *model = engine->dropping; model; model = model->next)
		lease_tick(model);
	peers_check_bulk(engine);
	engine_settle(engine);
}

/* ---- Making and ending one ---- */

int engine_new(const struct engine_config *config, struct engine **ret_engine)
{
	struct engine *engine;
	int code;

	assert(config->world_size > 0 && config->rank < config->world_size && config->window_bytes >= sizeof(float));
	engine = calloc(1, sizeof(*engine));
	if (!engine)
		return -ENOMEM;
	engine->config = *config;
	engine->chunk_bytes = engine_min(config->chunk_bytes, config->window_bytes / 2 / config->world_size);
	engine->chunk_bytes = engine_max(engine->chunk_bytes, ENGINE_CHUNK_MIN);
	engine->chunk_bytes = engine_min(engine_min(engine->chunk_bytes, config->window_bytes), PEER_PAYLOAD_MAX);
	engine->chunk_bytes -= engine->chunk_bytes % sizeof(float);
	code = peers_init(engine);
	if (code) {
		engine_free(engine);
		return code;
	}
	*ret_engine = engine;
	return 0;
}

void engine_free(struct engine *engine)
{
	if (!engine)
		return;
	assert(engine_is_idle(engine));
	peers_fini(engine);
	free(engine);
}

const struct transport_events *engine_transport_events(void)
{
	return links_events();
}

void *engine_transport_context(struct engine *engine)
{
	return engine->links;
}

void engine_stop(struct engine *engine)
{
	engine->stopping = true;
	while (engine->models)
		shards_drop(engine->models);
	for (struct model *model = engine->dropping; model; model = model->next) {
		lease_hurry_all(model, engine->now_ms);
		lease_tick(model);
	}
	engine_settle(engine);
}

bool engine_is_idle(const struct engine *engine)
{
	return !engine->models && !engine->dropping;
}
