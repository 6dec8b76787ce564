/*
 * The rows of the control socket's answers, copied from what the group, the engine's counters and the sessions say at
 * the moment. Owns the lists until control_rows_fini.
 */
#include "daemon/serve/control_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/serve/phase.h"
#include "daemon/serve/serve_state.h"
#include "daemon/serve/text.h"
#include "fsdp/error.h"

#define CONTROL_WAITS_MAX 64u

void control_rows_fini(struct control_rows *rows)
{
	free(rows->message.peers);
	free(rows->message.models);
	free(rows->message.units);
	free(rows->message.workers);
	free(rows->message.waits);
	*rows = (struct control_rows){ 0 };
}

/* Which of `total` rows this part has: from position on, at most `most`. Sets more and next. */
static size_t page(uint32_t total, uint32_t position, uint32_t most, struct control_rows *rows)
{
	uint32_t left = position < total ? total - position : 0;
	uint32_t count = left < most ? left : most;

	rows->next = position + count;
	rows->message.more = left > count;
	return count;
}

static uint64_t load(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void fill_links(struct control_status *status, const struct link_counters *links)
{
	status->bytes_in += load(&links->bytes_in);
	status->bytes_out += load(&links->bytes_out);
	status->malformed += load(&links->malformed) + load(&links->before_hello);
	status->refused += load(&links->refused);
	status->stale += load(&links->stale_link) + load(&links->stale_generation);
}

static void fill_status(const struct serve *serve, struct control_status *status)
{
	const struct serve_config *config = &serve->config;
	const struct engine_counters *engine = config->engine;
	char ranks[PHASE_TEXT_MAX];

	text_copy(status->cluster, sizeof(status->cluster), config->cluster);
	text_copy(status->version, sizeof(status->version), FSDP_VERSION);
	phase_describe(config->group, config->rank, config->world_size, status->phase);
	status->rank = config->rank;
	status->world_size = config->world_size;
	status->joined = config->world_size -
			 phase_missing(config->group, config->rank, config->world_size, ranks, sizeof(ranks));
	status->degraded = phase_is_degraded(config->group, config->rank, config->world_size);
	status->generation = group_generation(config->group);
	status->incarnation = config->incarnation;
	status->uptime_ms = serve_now_ms(serve) - serve->started_ms;
	fill_links(status, config->control_links);
	fill_links(status, config->bulk_links);
	status->gather_bytes = load(&engine->gather_bytes);
	status->served_bytes = load(&engine->served_bytes);
	status->pushed_bytes = load(&engine->pushed_bytes);
	status->added_bytes = load(&engine->added_bytes);
	status->resent_bytes = load(&engine->resent_bytes);
	status->duplicates = load(&engine->duplicates);
	status->violations = load(&engine->violations);
	status->stale += load(&engine->stale_attempts) + load(&engine->stale_reads);
	status->malformed += serve->malformed;
	status->refused += serve->refused;
}

static void fill_model(struct control_model *row, const struct model_status *model)
{
	text_copy(row->name, sizeof(row->name), model->name);
	text_copy(row->state, sizeof(row->state), model_state_name(model->state));
	text_copy(row->phase, sizeof(row->phase), model->phase);
	text_copy(row->trouble, sizeof(row->trouble), model->trouble);
	row->step = model->step;
	row->attempt = model->attempt;
	row->micro_batch = model->micro_batch;
	row->workers = model->workers;
	row->applied = model->steps_applied;
	row->skipped = model->steps_skipped;
	row->aborted = model->steps_aborted;
	row->gather_used = model->gather_used;
	row->gather_bytes = model->gather_bytes;
	row->grad_used = model->grad_used;
	row->grad_bytes = model->grad_bytes;
	if (!model->plan)
		return;
	row->units = plan_unit_count(model->plan);
	for (uint32_t i = 0; i < row->units; i++) {
		const struct plan_unit *unit = plan_unit(model->plan, i);

		for (uint32_t s = 0; s < unit->layout.segment_count; s++)
			row->parameters += unit->layout.segments[s].total;
		row->shard_bytes += unit->shard_bytes;
	}
}

int control_rows_models(struct serve *serve, const char *name, uint32_t position, uint32_t most,
			struct control_rows *ret_rows)
{
	struct group *group = serve->config.group;
	size_t count = page(group_model_count(group), position, most, ret_rows);

	(void)name;
	ret_rows->message.models = calloc(count + 1, sizeof(*ret_rows->message.models));
	if (!ret_rows->message.models)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		struct model_status model = group_model(group, position + (uint32_t)i);

		fill_model(&ret_rows->message.models[i], &model);
	}
	ret_rows->message.model_count = count;
	return 0;
}

static int fill_waits(struct serve *serve, struct control_message *message)
{
	struct wait_status waits[CONTROL_WAITS_MAX];
	uint32_t count = group_waits(serve->config.group, waits, CONTROL_WAITS_MAX);

	message->waits = calloc(count + 1, sizeof(*message->waits));
	if (!message->waits)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		struct control_wait *row = &message->waits[i];

		text_copy(row->model, sizeof(row->model), waits[i].model);
		text_copy(row->unit, sizeof(row->unit), waits[i].unit);
		text_copy(row->op, sizeof(row->op), waits[i].op);
		row->waiting_ms = waits[i].waiting_ms;
		row->deadline_ms = waits[i].deadline_ms;
		for (; row->rank_count < waits[i].rank_count && row->rank_count < CONTROL_RANKS_MAX; row->rank_count++)
			row->ranks[row->rank_count] = waits[i].ranks[row->rank_count];
	}
	message->wait_count = count;
	return 0;
}

int control_rows_status(struct serve *serve, const char *name, uint32_t position, uint32_t most,
			struct control_rows *ret_rows)
{
	int code = control_rows_models(serve, name, position, most, ret_rows);

	if (code < 0 || position > 0)
		return code;
	ret_rows->message.has_status = true;
	fill_status(serve, &ret_rows->message.status);
	return fill_waits(serve, &ret_rows->message);
}

int control_rows_peers(struct serve *serve, const char *name, uint32_t position, uint32_t most,
		       struct control_rows *ret_rows)
{
	size_t count = page(serve->config.world_size, position, most, ret_rows);

	(void)name;
	ret_rows->message.peers = calloc(count + 1, sizeof(*ret_rows->message.peers));
	if (!ret_rows->message.peers)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		struct control_peer *row = &ret_rows->message.peers[i];
		struct peer_status peer = group_peer(serve->config.group, position + (uint32_t)i);

		row->rank = peer.rank;
		row->bulk_up = peer.bulk_up;
		row->incarnation = peer.incarnation;
		row->heard_ms_ago = peer.heard_ms_ago;
		text_copy(row->state, sizeof(row->state), peer_state_name(peer.state));
		text_copy(row->endpoint, sizeof(row->endpoint), serve->config.endpoints[peer.rank]);
		text_copy(row->refusal, sizeof(row->refusal), peer.refusal);
	}
	ret_rows->message.peer_count = count;
	return 0;
}

/* The index of a model, or -1. */
static int64_t find_model(const struct group *group, const char *name)
{
	for (uint32_t i = 0; i < group_model_count(group); i++) {
		const char *other = group_model(group, i).name;

		if (other && strcmp(other, name) == 0)
			return i;
	}
	return -1;
}

int control_rows_units(struct serve *serve, const char *name, uint32_t position, uint32_t most,
		       struct control_rows *ret_rows)
{
	struct group *group = serve->config.group;
	int64_t index = find_model(group, name);
	const struct plan *plan = index >= 0 ? group_model(group, (uint32_t)index).plan : NULL;
	size_t count;

	if (index < 0) {
		text_print(ret_rows->message.text, sizeof(ret_rows->message.text), "there is no model \"%s\" here",
			   name);
		return FSDP_E_NOT_FOUND;
	}
	count = page(plan ? plan_unit_count(plan) : 0, position, most, ret_rows);
	ret_rows->message.units = calloc(count + 1, sizeof(*ret_rows->message.units));
	if (!ret_rows->message.units)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		struct control_unit *row = &ret_rows->message.units[i];
		struct unit_status unit = group_unit(group, (uint32_t)index, position + (uint32_t)i);

		text_copy(row->name, sizeof(row->name), unit.name);
		row->version = unit.version;
		row->full_bytes = unit.full_bytes;
		row->shard_elements = unit.shard_elements;
		row->held = unit.held;
		row->gathered = unit.gathered;
		row->reduced = unit.reduced;
	}
	ret_rows->message.unit_count = count;
	return 0;
}

static void fill_worker(const struct session *session, const struct opened *opened, struct control_worker *row)
{
	const struct request *request;

	row->pid = connection_pid(session->connection);
	row->uid = (uint32_t)connection_uid(session->connection);
	if (opened) {
		text_copy(row->model, sizeof(row->model), manifest_name(opened->registration.manifest));
		row->attached_ms = serve_now_ms(session->serve) - opened->opened_ms;
	}
	TAILQ_FOREACH(request, &session->requests, link)
	{
		if (request->opened != opened)
			continue;
		text_copy(row->call, sizeof(row->call), request_name(request));
		row->waiting_ms = serve_now_ms(session->serve) - request->started_ms;
		break;
	}
}

/* A row for every model of a session, or one where it has none. */
int control_rows_workers(struct serve *serve, const char *name, uint32_t position, uint32_t most,
			 struct control_rows *ret_rows)
{
	struct control_message *message = &ret_rows->message;
	const struct session *session;
	uint32_t total = 0, at = 0;
	size_t count;

	(void)name;
	TAILQ_FOREACH(session, &serve->sessions, link)
	total += session->opened_count > 0 ? session->opened_count : 1;
	count = page(total, position, most, ret_rows);
	message->workers = calloc(count + 1, sizeof(*message->workers));
	if (!message->workers)
		return -ENOMEM;
	TAILQ_FOREACH(session, &serve->sessions, link)
	{
		const struct opened *opened = TAILQ_FIRST(&session->opened);

		do {
			if (at >= position && message->worker_count < count)
				fill_worker(session, opened, &message->workers[message->worker_count++]);
			at++;
			opened = opened ? TAILQ_NEXT(opened, link) : NULL;
		} while (opened);
	}
	return 0;
}
