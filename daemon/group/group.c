/*
 * The group as its owner sees it: making one, what goes to peers and what comes from them, heartbeats and the
 * repetition of questions. Owns the links of the control plane and everything that hangs on struct group. The loop
 * thread runs it. What a message means is the business of the other files.
 */
#include "daemon/group/state.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/group/model.h"
#include "fsdp/error.h"
#include "proto/wire_text.h"

/* ---- Memory ---- */

void *group_allocate(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size);
	if (!memory)
		abort();
	return memory;
}

char *group_duplicate(const char *text)
{
	char *copy = strdup(text);
	if (!copy)
		abort();
	return copy;
}

/* ---- Entering and leaving ---- */

void group_enter(struct group *group)
{
	group->depth++;
}

void group_leave(struct group *group)
{
	assert(group->depth > 0);
	if (group->depth == 1)
		calls_flush(group);
	group->depth--;
}

/* ---- What is heard ---- */

static void hear_heartbeat(struct group *group, uint32_t rank, const struct peer_message *message,
			   struct buffer *payload);
static void hear_waiting(struct group *group, uint32_t rank, const struct peer_message *message,
			 struct buffer *payload);

enum group_party { PARTY_ANYBODY, PARTY_COORDINATOR };

static const struct group_hearing {
	void (*hear)(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload);
	enum group_party from, to;
} HEARINGS[] = {
	[PEER_HEARTBEAT] = { hear_heartbeat, PARTY_ANYBODY, PARTY_ANYBODY },
	[PEER_MANIFEST] = { seals_hear_manifest, PARTY_ANYBODY, PARTY_COORDINATOR },
	[PEER_DETAIL_WANTED] = { seal_hear_detail_wanted, PARTY_COORDINATOR, PARTY_ANYBODY },
	[PEER_DETAIL] = { seals_hear_detail, PARTY_ANYBODY, PARTY_COORDINATOR },
	[PEER_SEALED] = { seal_hear_sealed, PARTY_COORDINATOR, PARTY_ANYBODY },
	[PEER_UNSEALED] = { seal_hear_unsealed, PARTY_COORDINATOR, PARTY_ANYBODY },
	[PEER_LOADED] = { initial_hear_loaded, PARTY_ANYBODY, PARTY_COORDINATOR },
	[PEER_OFFERED] = { initial_hear_offered, PARTY_ANYBODY, PARTY_ANYBODY },
	[PEER_VERIFIED] = { initial_hear_verified, PARTY_COORDINATOR, PARTY_ANYBODY },
	[PEER_VOTE] = { votes_hear_vote, PARTY_ANYBODY, PARTY_COORDINATOR },
	[PEER_DECISION] = { step_hear_decision, PARTY_ANYBODY, PARTY_ANYBODY },
	[PEER_ABORT] = { votes_hear_abort, PARTY_ANYBODY, PARTY_COORDINATOR },
	[PEER_CLOSED] = { drop_hear_closed, PARTY_ANYBODY, PARTY_COORDINATOR },
	[PEER_DROP] = { drop_hear_drop, PARTY_ANYBODY, PARTY_ANYBODY },
	[PEER_DROP_REFUSED] = { drop_hear_refused, PARTY_COORDINATOR, PARTY_ANYBODY },
	[PEER_WAITING] = { hear_waiting, PARTY_COORDINATOR, PARTY_ANYBODY },
	[PEER_LOST] = { drop_hear_lost, PARTY_ANYBODY, PARTY_ANYBODY },
	[PEER_WITHDRAW] = { seals_hear_withdraw, PARTY_ANYBODY, PARTY_COORDINATOR },
	[PEER_NORM] = { norm_hear_part, PARTY_ANYBODY, PARTY_COORDINATOR },
	[PEER_NORMED] = { norm_hear_whole, PARTY_COORDINATOR, PARTY_ANYBODY },
	[PEER_ALL_REDUCE] = { all_reduces_hear, PARTY_ANYBODY, PARTY_COORDINATOR },
	[PEER_ALL_REDUCED] = { all_reduce_hear_reduced, PARTY_COORDINATOR, PARTY_ANYBODY },
};

static void group_hear(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	if ((size_t)message->op >= sizeof(HEARINGS) / sizeof(HEARINGS[0]))
		return;
	const struct group_hearing *hearing = &HEARINGS[message->op];
	if (!hearing->hear || (hearing->to == PARTY_COORDINATOR && !group_coordinates(group)) ||
	    (hearing->from == PARTY_COORDINATOR && rank != GROUP_COORDINATOR))
		return;
	hearing->hear(group, rank, message, payload);
}

void group_message(void *context, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	struct group *group = context;

	group_enter(group);
	membership_heard(group, rank);
	group_hear(group, rank, message, payload);
	group_leave(group);
}

/* A heartbeat tells where its sender stands in every model: whoever knows more tells it. */
static void hear_heartbeat(struct group *group, uint32_t rank, const struct peer_message *message,
			   struct buffer *payload)
{
	struct peer *peer = &group->peers[rank];
	(void)payload;

	peer->models = realloc(peer->models, (message->model_count + 1) * sizeof(*peer->models));
	if (!peer->models)
		abort();
	if (message->model_count)
		memcpy(peer->models, message->models, message->model_count * sizeof(*peer->models));
	peer->model_count = message->model_count;
	if (group->generation == 0 || rank == group->config.rank)
		return;
	for (size_t i = 0; i < peer->model_count; i++) {
		const struct peer_model *entry = &peer->models[i];
		struct model *model = model_find(group, entry->model);
		if (model && model_is_live(model)) {
			votes_catch_up(model, rank, entry->step, entry->attempt);
		} else if (!model && group_coordinates(group) && drop_is_remembered(group, entry->model)) {
			struct peer_message drop;
			group_message_init(&drop, PEER_DROP);
			drop.model = entry->model;
			group_send(group, rank, &drop);
		}
	}
	if (!group_coordinates(group))
		return;
	for (struct model *model = group->models; model; model = model->next) {
		bool listed = !model_is_live(model);
		for (size_t i = 0; i < peer->model_count && !listed; i++)
			listed = peer->models[i].model == model->number;
		if (!listed)
			seals_remind(model, rank);
	}
}

static void awaited_read(const struct group *group, const struct peer_message *message, struct rank_list *ret_ranks)
{
	struct rank_list ranks = { 0 };
	for (size_t i = 0; i < message->sum_count; i++)
		if (message->sums[i] < group->config.world_size)
			rank_list_add(&ranks, (uint32_t)message->sums[i]);
	*ret_ranks = ranks;
}

static void hear_waiting(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	struct model *model;
	(void)rank;
	(void)payload;

	switch (message->awaited) {
	case PEER_MANIFEST:
		model = model_named(group, message->name);
		if (model && model->state == MODEL_SEALING)
			awaited_read(group, message, &model->seal_awaited);
		break;
	case PEER_LOADED:
		model = model_find(group, message->model);
		if (model)
			awaited_read(group, message, &model->load_awaited);
		break;
	case PEER_NORM:
		model = model_find(group, message->model);
		if (model && model->step == message->step && model->attempt == message->attempt)
			awaited_read(group, message, &model->norm.awaited);
		break;
	case PEER_VOTE:
		model = model_find(group, message->model);
		if (model && model->step == message->step && model->attempt == message->attempt)
			awaited_read(group, message, &model->vote_awaited);
		break;
	case PEER_ALL_REDUCE:
		model = model_find(group, message->model);
		if (model && model->step == message->step && model->attempt == message->attempt &&
		    model->all_reduce.number == message->number)
			awaited_read(group, message, &model->all_reduce_awaited);
		break;
	default:
		break;
	}
}

/* ---- What is said ---- */

void group_message_init(struct peer_message *message, enum peer_op op)
{
	memset(message, 0, sizeof(*message));
	message->op = op;
}

void group_message_name(struct peer_message *message, const char *name)
{
	snprintf(message->name, sizeof(message->name), "%s", name);
}

/* A text that is cut must not end within a character: its reader would drop the connection. */
void group_message_text(struct peer_message *message, const char *text)
{
	size_t size = wire_text_prefix(text, strnlen(text, PEER_TEXT_MAX));
	memcpy(message->text, text, size);
	message->text[size] = '\0';
}

int group_send_piece(struct group *group, uint32_t rank, struct peer_message *message, struct transport_piece piece)
{
	assert(rank < group->config.world_size && rank != group->config.rank);
	if (!links_is_up(group->links, rank) || (group->generation == 0 && message->op != PEER_HEARTBEAT))
		return -ENOTCONN;
	return links_send(group->links, rank, message, piece);
}

void group_send(struct group *group, uint32_t rank, struct peer_message *message)
{
	if (rank == group->config.rank)
		group_hear(group, rank, message, NULL);
	else
		(void)group_send_piece(group, rank, message, (struct transport_piece){ 0 });
}

void group_tell_others(struct group *group, struct peer_message *message)
{
	for (uint32_t rank = 0; rank < group->config.world_size; rank++)
		if (rank != group->config.rank)
			group_send(group, rank, message);
}

void group_command(struct group *group, struct command *command)
{
	group->config.command(group->config.context, command);
}

void group_notice(struct group *group, enum notice_kind kind, const struct model *model, const char *unit, int32_t peer,
		  const char *format, ...)
{
	char text[CALL_TEXT_MAX];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	struct notice notice = { .kind = kind,
				 .model = model ? model->name : NULL,
				 .step = model ? model->step : 0,
				 .unit = unit,
				 .peer = peer,
				 .text = text };
	group->config.notice(group->config.context, &notice);
}

/* ---- Time ---- */

static void say_heartbeat(struct group *group)
{
	struct peer_model models[PEER_MODELS_MAX];
	struct peer_message message;
	size_t count = 0;

	for (struct model *model = group->models; model && count < PEER_MODELS_MAX; model = model->next) {
		if (!model_is_live(model) && model->state != MODEL_LOST)
			continue;
		models[count++] = (struct peer_model){ .model = model->number,
						       .step = model->step,
						       .attempt = model->attempt,
						       .voted = model->phase == STEP_VOTED,
						       .workers = model->worker ? 1 : 0 };
	}
	group_message_init(&message, PEER_HEARTBEAT);
	message.models = models;
	message.model_count = count;
	group_tell_others(group, &message);
}

static void inquire(struct model *model)
{
	if (!model_is_live(model) || !call_find(model->group, model, CALL_ALL))
		return;
	struct command *command = command_new(COMMAND_INQUIRE);
	command->model = model->number;
	command->token = ++model->group->inquiries;
	group_command(model->group, command);
}

static void beat(struct group *group)
{
	links_tick(group->links);
	say_heartbeat(group);
	for (struct model *model = group->models, *next; model; model = next) {
		next = model->next;
		inquire(model);
		if (group->generation == 0)
			continue;
		if (model->state == MODEL_SEALING) {
			seal_repeat(model); /* may end it */
			continue;
		}
		initial_repeat(model);
		step_repeat(model);
		all_reduce_repeat(model);
		drop_announce_lost(model);
	}
	if (group->generation == 0)
		return;
	drop_repeat(group);
	seals_repeat(group);
}

void group_tick(struct group *group, uint64_t now_ms)
{
	group_enter(group);
	if (!group->ticked || now_ms > group->now_ms)
		group->now_ms = now_ms;
	if (!group->ticked)
		group->heartbeat_ms = group->now_ms;
	membership_tick(group);
	group->ticked = true;
	if (group->now_ms >= group->heartbeat_ms) {
		group->heartbeat_ms = group->now_ms + group->config.heartbeat_ms;
		beat(group);
	}
	calls_tick(group);
	group_leave(group);
}

/* ---- Reports ---- */

static void hear_bulk(struct group *group, const struct report *report)
{
	for (uint32_t rank = 0; rank < group->config.world_size; rank++)
		group->peers[rank].bulk_up = rank == group->config.rank;
	for (uint32_t i = 0; i < report->rank_count; i++)
		if (report->ranks[i] < group->config.world_size)
			group->peers[report->ranks[i]].bulk_up = true;
}

void group_report(struct group *group, struct report *report)
{
	group_enter(group);
	if (report->kind == REPORT_BULK) {
		hear_bulk(group, report);
	} else {
		struct model *model = model_find(group, report->model);
		if (model)
			model_report(model, report);
	}
	report_free(report);
	group_leave(group);
}

/* ---- Making one ---- */

static int group_links(struct group *group)
{
	const struct links_config config = { .rank = group->config.rank,
					     .world_size = group->config.world_size,
					     .cluster = group->cluster,
					     .incarnation = group->config.incarnation,
					     .bulk = false,
					     .transport = group->config.transport,
					     .owner = &membership_links_owner,
					     .context = group,
					     .counters = group->config.link_counters };
	return links_new(&config, &group->links);
}

int group_new(const struct group_config *config, struct group **ret_group)
{
	assert(config->world_size > 0 && config->rank < config->world_size && config->incarnation != 0);
	assert(config->command && config->notice && config->heartbeat_ms > 0);
	struct group *group = calloc(1, sizeof(*group));
	if (!group)
		return -ENOMEM;
	group->config = *config;
	group->finished_end = &group->finished;
	group->cluster = strdup(config->cluster);
	int code = group->cluster ? membership_init(group) : -ENOMEM;
	if (code == 0)
		code = group_links(group);
	if (code < 0) {
		group_free(group);
		return code;
	}
	group->config.cluster = group->cluster;
	group_enter(group);
	membership_start(group);
	group_leave(group);
	*ret_group = group;
	return 0;
}

void group_free(struct group *group)
{
	if (!group)
		return;
	group_enter(group);
	while (group->calls)
		call_fail(group, group->calls, FSDP_E_STOPPED, "the daemon is leaving");
	group_leave(group);
	while (group->workers)
		worker_detach(group->workers);
	while (group->models)
		model_free(group->models);
	seals_reset(group);
	for (uint32_t i = 0; i < group->lost_count; i++)
		free(group->lost[i].text);
	links_free(group->links);
	membership_fini(group);
	free(group->cluster);
	free(group);
}

const struct transport_events *group_transport_events(void)
{
	return links_events();
}

void *group_transport_context(struct group *group)
{
	return group->links;
}

uint64_t group_generation(const struct group *group)
{
	return group->generation;
}
