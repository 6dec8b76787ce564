/*
 * The end of a model: closed by every rank's worker, dropped by an operator, or lost with a rank's shards and announced
 * until it is dropped. Owns the numbers of what was dropped, the names of what others have lost, and the operators'
 * requests. The loop thread runs it.
 */
#include "daemon/group/model.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"

/* ---- What is remembered ---- */

bool drop_is_remembered(const struct group *group, uint64_t number)
{
	uint32_t count = group->dropped_count < GROUP_DROPPED_KEPT ? group->dropped_count : GROUP_DROPPED_KEPT;
	for (uint32_t i = 0; i < count; i++)
		if (group->dropped[i] == number)
			return true;
	return false;
}

void drop_remember(struct group *group, uint64_t number)
{
	if (number == 0 || drop_is_remembered(group, number))
		return;
	group->dropped[group->dropped_count % GROUP_DROPPED_KEPT] = number;
	group->dropped_count++;
	if (group->dropped_count == 2 * GROUP_DROPPED_KEPT) /* never overflows, and stays full */
		group->dropped_count = GROUP_DROPPED_KEPT;
}

static void lost_forget(struct group *group, uint32_t index)
{
	free(group->lost[index].text);
	group->lost[index] = group->lost[--group->lost_count];
}

/* Whoever holds it says so with every heartbeat; silence means that it was dropped. */
static bool lost_is_fresh(const struct group *group, const struct lost_name *lost)
{
	return group->now_ms - lost->heard_ms < 4 * group->config.heartbeat_ms;
}

const struct lost_name *drop_lost_name(const struct group *group, const char *name)
{
	for (uint32_t i = 0; i < group->lost_count; i++)
		if (strcmp(group->lost[i].name, name) == 0 && lost_is_fresh(group, &group->lost[i]))
			return &group->lost[i];
	return NULL;
}

static void lost_remember(struct group *group, uint64_t number, const char *name, const char *text)
{
	uint32_t index = 0;

	while (index < group->lost_count && group->lost[index].model != number)
		index++;
	if (index == group->lost_count) {
		for (uint32_t i = 0; i < group->lost_count && index == GROUP_LOST_KEPT; i++)
			if (!lost_is_fresh(group, &group->lost[i])) {
				lost_forget(group, i);
				index = group->lost_count;
			}
		if (index == GROUP_LOST_KEPT)
			return;
		group->lost_count++;
		group->lost[index] = (struct lost_name){ .model = number };
	}
	free(group->lost[index].text);
	group->lost[index].text = group_duplicate(text);
	group->lost[index].heard_ms = group->now_ms;
	snprintf(group->lost[index].name, sizeof(group->lost[index].name), "%s", name);
}

void drop_announce_lost(struct model *model)
{
	struct peer_message message;

	if (model->state != MODEL_LOST)
		return;
	group_message_init(&message, PEER_LOST);
	group_message_name(&message, model->name);
	group_message_text(&message, model->trouble);
	message.model = model->number;
	group_tell_others(model->group, &message);
}

void drop_hear_lost(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	struct model *model = model_named(group, message->name);
	(void)rank;
	(void)payload;

	if (message->model == 0 || message->name[0] == '\0' || drop_is_remembered(group, message->model))
		return;
	if (model && model->number == message->model) {
		if (model_is_live(model))
			model_lose(model, message->text);
		return;
	}
	lost_remember(group, message->model, message->name, message->text);
	if (model && model->state == MODEL_SEALING && model->worker)
		seal_fail(model, FSDP_E_LOST, message->text);
}

/* ---- Operators' requests ---- */

void drop_forget(struct group *group, const struct call *call)
{
	for (struct request **at = &group->requests; *at; at = &(*at)->next)
		if ((*at)->call == call) {
			struct request *request = *at;
			*at = request->next;
			free(request);
			return;
		}
}

static bool request_matches(const struct request *request, uint64_t number, const char *name)
{
	return (request->model != 0 && request->model == number) || (name[0] && strcmp(request->name, name) == 0);
}

/* Ends the requests for a model: code 0 where it was dropped. */
static void requests_end(struct group *group, uint64_t number, const char *name, int code, const char *text)
{
	for (struct request *request = group->requests, *next; request; request = next) {
		next = request->next;
		if (!request_matches(request, number, name))
			continue;
		if (code < 0)
			call_fail(group, request->call, code, "%s", text);
		else
			call_succeed(group, request->call);
	}
}

void drop_coordinator_gone(struct group *group, const char *text)
{
	while (group->requests)
		call_fail(group, group->requests->call, FSDP_E_PEER_LOST, "%s", text);
}

void drop_ask(struct group *group, uint64_t number, const char *name, const char *reason)
{
	struct peer_message message;

	if (group_coordinates(group)) {
		drop_requested(group, group->config.rank, number, name, reason);
		return;
	}
	group_message_init(&message, PEER_DROP);
	group_message_name(&message, name);
	group_message_text(&message, reason);
	message.model = number;
	group_send(group, GROUP_COORDINATOR, &message);
}

void group_drop_model(struct group *group, const char *name, struct call *call)
{
	struct model *model = model_named(group, name);
	char text[CALL_TEXT_MAX];

	group_enter(group);
	call_init(call, CALL_DROP, NULL, 0);
	if (model && model->worker) {
		call_fail(group, call, FSDP_E_BUSY, "model \"%s\" has a worker on rank %" PRIu32 ": close it first",
			  name, group->config.rank);
	} else if (strlen(name) > FSDP_NAME_MAX || name[0] == '\0') {
		call_fail(group, call, FSDP_E_INVALID, "a model's name has 1 to %d bytes", FSDP_NAME_MAX);
	} else if (group->peers[GROUP_COORDINATOR].state == PEER_GONE) {
		membership_lost_text(group, GROUP_COORDINATOR, text, sizeof(text));
		call_fail(group, call, FSDP_E_PEER_LOST, "%s", text);
	} else {
		struct request *request = group_allocate(1, sizeof(*request));
		request->call = call;
		request->model = model ? model->number : 0;
		snprintf(request->name, sizeof(request->name), "%s", name);
		request->next = group->requests;
		group->requests = request;
		call_wait(group, call);
		if (group->generation != 0)
			drop_ask(group, request->model, name, "");
	}
	group_leave(group);
}

/* ---- This rank ---- */

static void ask_closed(struct model *model)
{
	struct peer_message message;

	group_message_init(&message, PEER_CLOSED);
	message.model = model->number;
	group_send(model->group, GROUP_COORDINATOR, &message);
}

void drop_closed(struct model *model)
{
	model->closed = true;
	ask_closed(model);
}

void drop_repeat(struct group *group)
{
	for (struct model *model = group->models, *next; model; model = next) {
		next = model->next;
		if (model->closed && model_is_live(model))
			ask_closed(model);
	}
	/* The coordinator answers itself at once, which ends the request and any other for the same model. */
	while (group_coordinates(group) && group->requests)
		drop_ask(group, group->requests->model, group->requests->name, "");
	for (const struct request *request = group->requests; request; request = request->next)
		drop_ask(group, request->model, request->name, "");
}

static void drop_here(struct group *group, uint64_t number, const char *name, const char *text)
{
	struct model *model = model_find(group, number);

	drop_remember(group, number);
	for (uint32_t i = group->lost_count; i-- > 0;)
		if (group->lost[i].model == number)
			lost_forget(group, i);
	requests_end(group, number, name, 0, "");
	if (model && model->state != MODEL_DROPPING)
		model_drop(model, text[0] ? text : "it was dropped");
}

/* ---- The coordinator ---- */

static void decide_drop(struct group *group, uint64_t number, const char *name, const char *text)
{
	char name_copy[FSDP_NAME_MAX + 1], text_copy[PEER_TEXT_MAX + 1];
	struct peer_message message;

	snprintf(name_copy, sizeof(name_copy), "%s", name); /* it may be the model's own */
	snprintf(text_copy, sizeof(text_copy), "%s", text);
	group_message_init(&message, PEER_DROP);
	group_message_name(&message, name_copy);
	group_message_text(&message, text_copy);
	message.model = number;
	group_tell_others(group, &message);
	drop_here(group, number, name_copy, text_copy);
}

static void say_refused(struct group *group, uint32_t rank, uint64_t number, const char *name, int code,
			const char *text)
{
	struct peer_message message;

	group_message_init(&message, PEER_DROP_REFUSED);
	group_message_name(&message, name);
	group_message_text(&message, text);
	message.model = number;
	message.code = code;
	group_send(group, rank, &message);
}

/* The lowest rank where a worker is attached, as far as is known, or -1. */
static int64_t attached_rank(const struct group *group, const struct model *model, uint64_t number)
{
	for (uint32_t rank = 0; rank < group->config.world_size; rank++) {
		const struct peer *peer = &group->peers[rank];
		if (rank == group->config.rank && model && model->worker)
			return rank;
		for (size_t i = 0; i < peer->model_count; i++)
			if (peer->models[i].model == number && peer->models[i].workers > 0)
				return rank;
	}
	return -1;
}

void drop_requested(struct group *group, uint32_t rank, uint64_t number, const char *name, const char *reason)
{
	struct model *model = number ? model_find(group, number) : model_named(group, name);
	const struct lost_name *lost = drop_lost_name(group, name);
	char text[CALL_TEXT_MAX];

	if (model)
		number = model->number;
	else if (number == 0 && lost)
		number = lost->model;
	if (number == 0) {
		snprintf(text, sizeof(text), model ? "model \"%s\" is being sealed" : "no model \"%s\" is known", name);
		say_refused(group, rank, number, name, model ? FSDP_E_BUSY : FSDP_E_NOT_FOUND, text);
		return;
	}
	int64_t attached = reason[0] ? -1 : attached_rank(group, model, number);
	if (attached >= 0) {
		snprintf(text, sizeof(text), "model \"%s\" has a worker on rank %" PRIi64 ": close it first", name,
			 attached);
		say_refused(group, rank, number, name, FSDP_E_BUSY, text);
		return;
	}
	decide_drop(group, number, name, reason[0] ? reason : "an operator dropped it");
}

void drop_hear_closed(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	struct model *model = model_find(group, message->model);
	(void)payload;

	if (!model || !model_is_live(model)) {
		if (drop_is_remembered(group, message->model) && rank != group->config.rank) {
			struct peer_message answer;
			group_message_init(&answer, PEER_DROP);
			answer.model = message->model;
			group_send(group, rank, &answer);
		}
		return;
	}
	model->closed_by[rank] = true;
	for (uint32_t i = 0; i < group->config.world_size; i++)
		if (!model->closed_by[i])
			return;
	decide_drop(group, model->number, model->name, "every rank's worker closed it");
}

/* ---- Hearing ---- */

void drop_hear_drop(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	(void)payload;
	if (group_coordinates(group))
		drop_requested(group, rank, message->model, message->name, message->text);
	else if (rank == GROUP_COORDINATOR && message->model != 0)
		drop_here(group, message->model, message->name, message->text);
}

void drop_hear_refused(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	(void)rank;
	(void)payload;
	requests_end(group, message->model, message->name, message->code < 0 ? message->code : FSDP_E_BUSY,
		     message->text);
}
