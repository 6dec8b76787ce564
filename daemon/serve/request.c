/*
 * The requests of workers: one table says what each is called, what it needs and who does it. A request that waits is
 * in its session's list with its call in the group; whatever ends it, it is answered once, with its own number.
 */
#include "daemon/serve/session.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/runtime/log.h"
#include "daemon/serve/hyper.h"
#include "daemon/serve/places.h"
#include "daemon/serve/seal.h"
#include "daemon/serve/serve_state.h"
#include "daemon/serve/text.h"
#include "fsdp/error.h"

enum request_needs {
	NEEDS_NOTHING,
	NEEDS_GREETING, /* HELLO was said */
	NEEDS_OPENED,   /* a model by its handle */
	NEEDS_SEALED,   /* which is sealed */
	NEEDS_UNIT      /* and a unit of it */
};

struct request_row {
	enum worker_op op;
	const char *name; /* what an operator sees */
	enum request_needs needs;
	void (*serve)(struct request *request, const struct worker_message *message);
	/* For those that only pass the call on: which of the group's functions. */
	void (*unit_call)(struct worker *worker, uint32_t unit, struct call *call);
	int (*unit_now)(struct worker *worker, uint32_t unit);
	void (*worker_call)(struct worker *worker, struct call *call);
};

/* ---- Answers ---- */

static void request_free(struct request *request)
{
	TAILQ_REMOVE(&request->session->requests, request, link);
	request->session->request_count--;
	free(request);
}

void request_answer(struct request *request, struct worker_message *answer, const int *fds, size_t fd_count)
{
	answer->op = request->row->op;
	answer->request = request->number;
	session_send(request->session, answer, fds, fd_count);
	request_free(request);
}

static void take_from_group(struct request *request)
{
	if (request->in_group)
		call_cancel(request->session->serve->config.group, &request->call);
	request->in_group = false;
}

void request_fail(struct request *request, int code, const char *format, ...)
{
	struct worker_message answer = { .code = code };
	char text[WORKER_TEXT_MAX + 1];
	va_list arguments;

	take_from_group(request);
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	text_copy(answer.text, sizeof(answer.text), text);
	request_answer(request, &answer, NULL, 0);
}

void request_cancel(struct request *request)
{
	take_from_group(request);
	request_free(request);
}

struct worker_message request_message(const struct request *request, const struct answer *answer)
{
	struct worker_message message = {
		.code = answer->code,
		.unit = request->unit,
		.slot = answer->slot,
		.version = answer->version,
		.outcome = (uint32_t)answer->outcome,
		.step = answer->step,
		.attempt = answer->attempt,
		.micro_batch = answer->micro_batch,
		.resumed = answer->resumed,
		.norm = answer->norm,
		.next_scale = answer->next_scale,
		.finite = answer->finite,
		.bad_count = answer->bad_count,
	};

	_Static_assert(ANSWER_UNITS_MAX == WORKER_BAD_MAX, "an answer names as many units as a message");
	message.bad_named = answer->bad_count < ANSWER_UNITS_MAX ? answer->bad_count : ANSWER_UNITS_MAX;
	memcpy(message.bad, answer->bad, sizeof(message.bad));

	message.values =
		(double *)(uintptr_t)answer->values; /* borrowed: the message is written before the group goes on */
	message.value_count = answer->value_count;
	text_copy(message.text, sizeof(message.text), answer->code < 0 ? answer->text : "");
	return message;
}

void request_finish(struct request *request, const struct answer *answer)
{
	struct worker_message message = request_message(request, answer);

	request_answer(request, &message, NULL, 0);
}

static void handle_done(struct call *call, const struct answer *answer)
{
	struct request *request = (struct request *)call;

	request->in_group = false;
	request_finish(request, answer);
}

const char *request_name(const struct request *request)
{
	return request->row->name;
}

/* From here on the request may be gone as soon as the group has it. */
static struct call *give_to_group(struct request *request)
{
	request->in_group = true;
	request->call.done = handle_done;
	return &request->call;
}

/* ---- What needs no model ---- */

static void answer_group(struct request *request)
{
	const struct serve *serve = request->session->serve;
	struct worker_message answer = {
		.protocol = WORKER_PROTOCOL,
		.rank = serve->config.rank,
		.world_size = serve->config.world_size,
		.generation = group_generation(serve->config.group),
		.bytes_in = atomic_load(&serve->config.control_links->bytes_in) +
			    atomic_load(&serve->config.bulk_links->bytes_in),
		.bytes_out = atomic_load(&serve->config.control_links->bytes_out) +
			     atomic_load(&serve->config.bulk_links->bytes_out),
	};

	request_answer(request, &answer, NULL, 0);
}

static void serve_hello(struct request *request, const struct worker_message *message)
{
	if (message->protocol != WORKER_PROTOCOL) {
		request_fail(request, FSDP_E_PROTOCOL,
			     "the library speaks version %u of the protocol, the daemon (%s) version %d: install the "
			     "same release of "
			     "both",
			     message->protocol, FSDP_VERSION, WORKER_PROTOCOL);
		return;
	}
	request->session->greeted = true;
	answer_group(request);
}

static void serve_group(struct request *request, const struct worker_message *message)
{
	(void)message;
	answer_group(request);
}

static void serve_open(struct request *request, const struct worker_message *message)
{
	struct worker_message answer = { 0 };
	struct opened *opened;

	if (message->init == INIT_FROM_RANK && message->init_rank >= request->session->serve->config.world_size) {
		request_fail(request, FSDP_E_INVALID,
			     "initial values from rank %u: the group has %u ranks, counted from 0", message->init_rank,
			     request->session->serve->config.world_size);
		return;
	}
	int code = session_open(request->session, message, &opened, answer.text, sizeof(answer.text));

	answer.code = code;
	if (code == 0)
		answer.handle = opened->handle;
	request_answer(request, &answer, NULL, 0);
}

/* ---- Before the seal ---- */

static bool check_registering(struct request *request)
{
	if (request->opened->state == OPENED_REGISTERING)
		return true;
	request_fail(request, FSDP_E_STATE, "model \"%s\" is sealed, or being sealed: units are described before that",
		     manifest_name(request->opened->registration.manifest));
	return false;
}

static void answer_registration(struct request *request, int code)
{
	if (code < 0) {
		request_fail(request, code, "%s", request->opened->registration.text);
		return;
	}
	request_answer(request, &(struct worker_message){ .unit = request->unit }, NULL, 0);
}

static void serve_unit(struct request *request, const struct worker_message *message)
{
	if (check_registering(request))
		answer_registration(request, registration_add(&request->opened->registration, message));
}

static void serve_set_unit(struct request *request, const struct worker_message *message)
{
	if (check_registering(request))
		answer_registration(request, registration_set(&request->opened->registration, message));
}

static void serve_seal(struct request *request, const struct worker_message *message)
{
	struct opened *opened = request->opened;
	int code;

	(void)message;
	if (opened->state == OPENED_SEALING || opened->state == OPENED_SEALED) {
		request_fail(request, FSDP_E_STATE, "model \"%s\" is %s already",
			     manifest_name(opened->registration.manifest),
			     opened->state == OPENED_SEALED ? "sealed" : "being sealed");
		return;
	}
	code = registration_check_whole(&opened->registration);
	if (code < 0) {
		request_fail(request, code, "%s", opened->registration.text);
		return;
	}
	opened_retire(opened);
	seal_begin(request);
}

/* ---- A sealed model's calls ---- */

static void serve_unit_call(struct request *request, const struct worker_message *message)
{
	request->row->unit_call(request->opened->worker, message->unit, give_to_group(request));
}

static void serve_worker_call(struct request *request, const struct worker_message *message)
{
	(void)message;
	request->row->worker_call(request->opened->worker, give_to_group(request));
}

static void serve_unit_now(struct request *request, const struct worker_message *message)
{
	int code = request->row->unit_now(request->opened->worker, message->unit);

	if (code < 0)
		request_fail(request, code, "%s", worker_error(request->opened->worker));
	else
		request_answer(request, &(struct worker_message){ .unit = message->unit }, NULL, 0);
}

static void serve_weight(struct request *request, const struct worker_message *message)
{
	worker_weight(request->opened->worker, message->weight, give_to_group(request));
}

static void serve_norm(struct request *request, const struct worker_message *message)
{
	worker_norm(request->opened->worker, (enum norm_kind)message->norm_kind, give_to_group(request));
}

static void serve_load(struct request *request, const struct worker_message *message)
{
	worker_load(request->opened->worker, message->unit, message->slot, give_to_group(request));
}

static void refuse_blob(struct request *request, const struct worker_message *message, int code)
{
	if (code == -ENOMEM)
		request_fail(request, code, "out of memory");
	else if (code == FSDP_E_OVERFLOW)
		request_fail(request, code, "the state has %llu bytes, %u are the most",
			     (unsigned long long)message->blob_bytes, WORKER_BLOB_MAX);
	else
		request_fail(request, code,
			     "the part at byte %llu of the state does not follow the one before it: is another thread "
			     "in step?",
			     (unsigned long long)message->blob_offset);
}

static void serve_blob(struct request *request, const struct worker_message *message)
{
	int code = blob_take(&request->opened->blob, message);

	if (code < 0)
		refuse_blob(request, message, code);
	else
		request_answer(request, &(struct worker_message){ 0 }, NULL, 0);
}

static void serve_state(struct request *request, const struct worker_message *message)
{
	struct worker_message answer = { .blob_offset = message->blob_offset };
	struct buffer *state;
	char text[CALL_TEXT_MAX];
	int code = worker_state(request->opened->worker, &state, &answer.step, text);

	if (code < 0) {
		request_fail(request, code, "%s", text);
		return;
	}
	blob_part(state, message->blob_offset, &answer);
	request_answer(request, &answer, NULL, 0);
}

static void serve_step(struct request *request, const struct worker_message *message)
{
	const struct optimizer_spec *spec = &manifest_get_options(request->opened->registration.manifest)->optimizer;
	struct hyper hyper;
	char text[WORKER_TEXT_MAX + 1];

	if (message->commit != COMMIT_OPTIMIZER && message->commit != COMMIT_STAGING) {
		request_fail(request, FSDP_E_INVALID, "there is no commit of kind %u", message->commit);
		return;
	}
	int code = hyper_read(message, message->commit == COMMIT_OPTIMIZER ? spec : NULL, &hyper, text);
	if (code < 0) {
		request_fail(request, code, "%s", text);
		return;
	}
	struct buffer *state = NULL;
	int taken = blob_finish(&request->opened->blob, message, &state);
	if (taken < 0) {
		refuse_blob(request, message, taken);
		return;
	}
	worker_step(request->opened->worker, (enum step_commit)message->commit, &hyper.options, &hyper.groups,
		    &hyper.rules, state, give_to_group(request));
	buffer_unref(state);
}

static void serve_all_reduce(struct request *request, const struct worker_message *message)
{
	if (message->combine < WORKER_SUM || message->combine > WORKER_MIN) {
		request_fail(request, FSDP_E_INVALID, "there is no all-reduce of kind %u", message->combine);
		return;
	}
	worker_all_reduce(request->opened->worker, (enum all_reduce_op)message->combine, message->values,
			  (uint32_t)message->value_count, give_to_group(request));
}

static void serve_close(struct request *request, const struct worker_message *message)
{
	struct opened *opened = request->opened;
	bool retiring = opened->retiring;
	struct worker *worker;

	request->opened = NULL;
	worker = session_close(opened, request, FSDP_E_STATE, "the model was closed");
	if (worker && message->drop && !retiring) {
		worker_close(worker, give_to_group(request));
		return;
	}
	if (worker)
		worker_detach(worker);
	request_answer(request, &(struct worker_message){ 0 }, NULL, 0);
}

/* ---- The table ---- */

static const struct request_row rows[] = {
	{ WORKER_HELLO, "hello", NEEDS_NOTHING, serve_hello, NULL, NULL, NULL },
	{ WORKER_GROUP, "group", NEEDS_GREETING, serve_group, NULL, NULL, NULL },
	{ WORKER_OPEN, "open", NEEDS_GREETING, serve_open, NULL, NULL, NULL },
	{ WORKER_UNIT, "unit", NEEDS_OPENED, serve_unit, NULL, NULL, NULL },
	{ WORKER_SET_UNIT, "set unit", NEEDS_OPENED, serve_set_unit, NULL, NULL, NULL },
	{ WORKER_SEAL, "seal", NEEDS_OPENED, serve_seal, NULL, NULL, NULL },
	{ WORKER_CLOSE, "close", NEEDS_OPENED, serve_close, NULL, NULL, NULL },
	{ WORKER_PLACES, "places", NEEDS_UNIT, places_serve, NULL, NULL, NULL },
	{ WORKER_UNITS, "units", NEEDS_UNIT, places_serve_unit, NULL, NULL, NULL },
	{ WORKER_LOAD, "load", NEEDS_UNIT, serve_load, NULL, NULL, NULL },
	{ WORKER_UNSHARD, "unshard", NEEDS_UNIT, serve_unit_call, worker_unshard, NULL, NULL },
	{ WORKER_UNSHARD_START, "unshard start", NEEDS_UNIT, serve_unit_now, NULL, worker_unshard_start, NULL },
	{ WORKER_RESHARD, "reshard", NEEDS_UNIT, serve_unit_now, NULL, worker_reshard, NULL },
	{ WORKER_SHARD, "shard", NEEDS_UNIT, serve_unit_call, worker_shard, NULL, NULL },
	{ WORKER_GRAD, "grad", NEEDS_UNIT, serve_unit_call, worker_grad, NULL, NULL },
	{ WORKER_REDUCE, "reduce", NEEDS_UNIT, serve_unit_call, worker_reduce, NULL, NULL },
	{ WORKER_WEIGHT, "weight", NEEDS_SEALED, serve_weight, NULL, NULL, NULL },
	{ WORKER_NEXT_MICRO_BATCH, "next micro-batch", NEEDS_SEALED, serve_worker_call, NULL, NULL,
	  worker_next_micro_batch },
	{ WORKER_SYNC, "sync", NEEDS_SEALED, serve_worker_call, NULL, NULL, worker_sync },
	{ WORKER_NORM, "norm", NEEDS_SEALED, serve_norm, NULL, NULL, NULL },
	{ WORKER_STEP, "step", NEEDS_SEALED, serve_step, NULL, NULL, NULL },
	{ WORKER_ABORT, "abort", NEEDS_SEALED, serve_worker_call, NULL, NULL, worker_abort },
	{ WORKER_BLOB, "state of a step", NEEDS_SEALED, serve_blob, NULL, NULL, NULL },
	{ WORKER_STATE, "state", NEEDS_SEALED, serve_state, NULL, NULL, NULL },
	{ WORKER_ALL_REDUCE, "all-reduce", NEEDS_SEALED, serve_all_reduce, NULL, NULL, NULL },
};

static const struct request_row *find_row(enum worker_op op)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (rows[i].op == op)
			return &rows[i];
	}
	return NULL;
}

/* Finds what the request needs; answers it where that is missing. */
static bool check_needs(struct request *request, const struct worker_message *message)
{
	enum request_needs needs = request->row->needs;
	struct opened *opened;

	if (needs == NEEDS_NOTHING)
		return true;
	if (!request->session->greeted) {
		request_fail(request, FSDP_E_PROTOCOL, "%s came before HELLO", request->row->name);
		return false;
	}
	if (request->session->serve->stopped) {
		request_fail(request, FSDP_E_STOPPED, "the daemon is leaving");
		return false;
	}
	if (needs == NEEDS_GREETING)
		return true;
	opened = session_find(request->session, message->handle);
	if (!opened) {
		request_fail(request, FSDP_E_NOT_FOUND, "no model is open as handle %u on this connection",
			     message->handle);
		return false;
	}
	request->opened = opened;
	if (needs >= NEEDS_SEALED && opened->state != OPENED_SEALED) {
		request_fail(request, FSDP_E_STATE, "%s: model \"%s\" is not sealed", request->row->name,
			     manifest_name(opened->registration.manifest));
		return false;
	}
	if (needs == NEEDS_UNIT && message->unit >= manifest_unit_count(opened->registration.manifest)) {
		request_fail(request, FSDP_E_NOT_FOUND, "%s: model \"%s\" has %u units, there is no unit %u",
			     request->row->name, manifest_name(opened->registration.manifest),
			     manifest_unit_count(opened->registration.manifest), message->unit);
		return false;
	}
	return true;
}

bool request_receive(struct session *session, const struct worker_message *message)
{
	const struct request_row *row = find_row(message->op);
	struct request *request;

	if (!row)
		return false;
	request = calloc(1, sizeof(*request));
	if (!request) {
		connection_break(session->connection, CONNECTION_FAULT);
		return true;
	}
	request->session = session;
	request->row = row;
	request->number = message->request;
	request->unit = message->unit;
	request->started_ms = serve_now_ms(session->serve);
	request->call.deadline_ms = message->deadline_ms;
	TAILQ_INSERT_TAIL(&session->requests, request, link);
	session->request_count++;
	if (session->request_count > SESSION_REQUESTS_MAX)
		request_fail(request, FSDP_E_OVERFLOW, "%u calls wait on this connection, which are the most",
			     SESSION_REQUESTS_MAX);
	else if (check_needs(request, message))
		row->serve(request, message);
	return true;
}
