/*
 * Calls: the list of those that wait, their deadlines and half-way notices, and the queue of answers that are given
 * when the group is at rest. Owns struct finished; a call itself belongs to its caller. The loop thread runs it.
 */
#include "daemon/group/state.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/group/model.h"
#include "fsdp/error.h"

void call_init(struct call *call, enum call_kind kind, struct worker *worker, uint32_t unit)
{
	call->next = NULL;
	call->started_ms = call->ends_ms = 0;
	call->warned = false;
	call->unit = unit;
	call->kind = kind;
	call->token = 0;
	call->worker = worker;
}

void call_wait(struct group *group, struct call *call)
{
	struct call **end = &group->calls;
	while (*end) {
		assert(*end != call);
		end = &(*end)->next;
	}
	if (call->deadline_ms == 0)
		call->deadline_ms = group->config.operation_ms;
	call->started_ms = group->now_ms;
	call->ends_ms = group->now_ms + call->deadline_ms;
	if (call->ends_ms < call->started_ms)
		call->ends_ms = UINT64_MAX;
	call->next = NULL;
	*end = call;
}

static void call_unlink(struct group *group, const struct call *call)
{
	for (struct call **at = &group->calls; *at; at = &(*at)->next)
		if (*at == call) {
			*at = call->next;
			return;
		}
}

/* A worker's calls belong to its model; an operator's, and those that outlive their worker, name theirs in token. */
struct model *call_model(const struct group *group, const struct call *call)
{
	if (call->worker)
		return call->worker->model;
	return call->kind == CALL_ABORT ? model_find(group, call->token) : NULL;
}

void call_answer(struct group *group, struct call *call, const struct answer *answer)
{
	struct finished *finished = group_allocate(1, sizeof(*finished));
	const struct model *model = call_model(group, call);

	call_unlink(group, call);
	if (call->kind == CALL_DROP)
		drop_forget(group, call);
	finished->call = call;
	finished->answer = *answer;
	if (answer->value_count > 0) {
		finished->values = group_allocate(answer->value_count, sizeof(*finished->values));
		memcpy(finished->values, answer->values, answer->value_count * sizeof(*finished->values));
	}
	finished->answer.values = finished->values;
	snprintf(finished->text, sizeof(finished->text), "%s", answer->text ? answer->text : "");
	if (model) {
		finished->answer.step = model->step;
		finished->answer.attempt = model->attempt;
		finished->answer.micro_batch = model->micro_batch;
	}
	*group->finished_end = finished;
	group->finished_end = &finished->next;
}

void call_succeed(struct group *group, struct call *call)
{
	call_answer(group, call, &(struct answer){ 0 });
}

void call_fail(struct group *group, struct call *call, int code, const char *format, ...)
{
	char text[CALL_TEXT_MAX];
	va_list arguments;

	assert(code < 0);
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	call_answer(group, call, &(struct answer){ .code = code, .text = text });
}

struct call *call_find(const struct group *group, const struct model *model, uint32_t kinds)
{
	for (struct call *call = group->calls; call; call = call->next)
		if ((kinds & CALL_BIT(call->kind)) && call_model(group, call) == model)
			return call;
	return NULL;
}

void call_fail_all(struct group *group, const struct model *model, uint32_t kinds, int code, const char *text)
{
	for (struct call *call = group->calls, *next; call; call = next) {
		next = call->next;
		if ((kinds & CALL_BIT(call->kind)) && call_model(group, call) == model)
			call_fail(group, call, code, "%s", text);
	}
}

static void finished_free(struct finished *finished)
{
	free(finished->values);
	free(finished);
}

/* Takes answers out of the queue: of a call, or of all calls of a worker. */
static void unfinish(struct group *group, const struct call *call, const struct worker *worker)
{
	struct finished **at = &group->finished;
	while (*at) {
		struct finished *finished = *at;
		if (finished->call == call || (worker && finished->call->worker == worker)) {
			*at = finished->next;
			finished_free(finished);
		} else {
			at = &finished->next;
		}
	}
	group->finished_end = at;
}

void call_drop_worker(struct group *group, const struct worker *worker)
{
	for (struct call **at = &group->calls; *at;) {
		if ((*at)->worker == worker)
			*at = (*at)->next;
		else
			at = &(*at)->next;
	}
	unfinish(group, NULL, worker);
}

void call_cancel(struct group *group, struct call *call)
{
	call_unlink(group, call);
	unfinish(group, call, NULL);
	drop_forget(group, call);
}

void calls_flush(struct group *group)
{
	while (group->finished) {
		struct finished *finished = group->finished;
		group->finished = finished->next;
		if (!group->finished)
			group->finished_end = &group->finished;
		finished->answer.text = finished->text;
		finished->call->done(finished->call, &finished->answer);
		finished_free(finished);
	}
}

/* ---- Time ---- */

static void warn(struct group *group, struct call *call)
{
	const struct model *model = call_model(group, call);
	struct story story;
	char what[CALL_TEXT_MAX / 2];

	call->warned = true;
	story_of(group, call, &story);
	story_write(&story, what, sizeof(what));
	group_notice(group, NOTICE_CALL_SLOW, model, story.unit, story.ranks.count ? (int32_t)story.ranks.ranks[0] : -1,
		     "%.1f s of %.1f s passed: %s", (double)(group->now_ms - call->started_ms) / 1000.0,
		     (double)call->deadline_ms / 1000.0, what);
}

/* Calls whose deadline fails them alone. */
static void expire_alone(struct group *group, struct call *call)
{
	char text[CALL_TEXT_MAX];
	struct model *model = call_model(group, call);

	story_deadline(group, call, text, sizeof(text));
	group_notice(group, NOTICE_CALL_TIMEOUT, model, NULL, -1, "%s", text);
	call_fail(group, call, FSDP_E_TIMEOUT, "%s", text);
}

static void expire_attach(struct group *group, struct call *call)
{
	char text[CALL_TEXT_MAX];

	story_deadline(group, call, text, sizeof(text));
	group_notice(group, NOTICE_CALL_TIMEOUT, call->worker->model, NULL, -1, "%s", text);
	if (call->worker->state == WORKER_SEALING)
		seal_expired(call->worker->model, text);
	worker_refuse(call->worker, FSDP_E_TIMEOUT, text);
}

static void (*const EXPIRES[CALL_KINDS])(struct group *group, struct call *call) = {
	[CALL_ATTACH] = expire_attach, [CALL_LOAD] = expire_alone,       [CALL_UNSHARD] = expire_alone,
	[CALL_SHARD] = expire_alone,   [CALL_GRAD] = step_expired,       [CALL_SYNC] = step_expired,
	[CALL_STEP] = step_expired,    [CALL_PUBLISH] = expire_alone,    [CALL_ABORT] = expire_alone,
	[CALL_DROP] = expire_alone,    [CALL_ALL_REDUCE] = step_expired, [CALL_NORM] = step_expired,
};

static bool is_half_way(const struct group *group, const struct call *call)
{
	return !call->warned && group->now_ms - call->started_ms >= call->deadline_ms - call->deadline_ms / 2;
}

void calls_tick(struct group *group)
{
	for (struct call *call = group->calls; call; call = call->next)
		if (is_half_way(group, call))
			warn(group, call);
	/* An expiry may end other calls too: begin again until nothing is due. Each one ends its call or moves its
	 * end. */
	for (;;) {
		struct call *due = group->calls;
		while (due && due->ends_ms > group->now_ms)
			due = due->next;
		if (!due)
			return;
		EXPIRES[due->kind](group, due);
	}
}
