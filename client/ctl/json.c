/* Prints answers for programs, with jansson. The names are those of the fields in proto/control_message.h. */
#include "client/ctl/print.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static json_t *number(uint64_t value)
{
	return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static json_t *hexadecimal(uint64_t value)
{
	char text[17];
	snprintf(text, sizeof(text), "%016" PRIx64, value);
	return json_string(text);
}

static json_t *begin(const struct control_message *answer)
{
	json_t *object = json_object();
	json_object_set_new(object, "code", json_integer(answer->code));
	json_object_set_new(object, "text", json_string(answer->text));
	return object;
}

static void finish(json_t *object)
{
	if (!object || json_dumpf(object, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER) != 0) {
		fprintf(stderr, "fsdpctl: out of memory\n");
		exit(1);
	}
	putchar('\n');
	json_decref(object);
}

#define NUMBER(object, from, field) json_object_set_new(object, #field, number((from)->field))
#define STRING(object, from, field) json_object_set_new(object, #field, json_string((from)->field))
#define BOOLEAN(object, from, field) json_object_set_new(object, #field, json_boolean((from)->field))
#define HEXADECIMAL(object, from, field) json_object_set_new(object, #field, hexadecimal((from)->field))

static json_t *model_object(const struct control_model *model)
{
	json_t *object = json_object();
	STRING(object, model, name);
	STRING(object, model, state);
	STRING(object, model, phase);
	NUMBER(object, model, step);
	NUMBER(object, model, attempt);
	NUMBER(object, model, micro_batch);
	NUMBER(object, model, units);
	NUMBER(object, model, workers);
	NUMBER(object, model, applied);
	NUMBER(object, model, skipped);
	NUMBER(object, model, aborted);
	NUMBER(object, model, parameters);
	NUMBER(object, model, shard_bytes);
	NUMBER(object, model, gather_used);
	NUMBER(object, model, gather_bytes);
	NUMBER(object, model, grad_used);
	NUMBER(object, model, grad_bytes);
	STRING(object, model, trouble);
	return object;
}

static json_t *models_array(const struct control_message *answer)
{
	json_t *array = json_array();
	for (size_t i = 0; i < answer->model_count; i++)
		json_array_append_new(array, model_object(&answer->models[i]));
	return array;
}

static json_t *waits_array(const struct control_message *answer)
{
	json_t *array = json_array();
	for (size_t i = 0; i < answer->wait_count; i++) {
		const struct control_wait *wait = &answer->waits[i];
		json_t *object = json_object(), *ranks = json_array();
		STRING(object, wait, model);
		STRING(object, wait, op);
		STRING(object, wait, unit);
		NUMBER(object, wait, waiting_ms);
		NUMBER(object, wait, deadline_ms);
		for (size_t k = 0; k < wait->rank_count; k++)
			json_array_append_new(ranks, number(wait->ranks[k]));
		json_object_set_new(object, "ranks", ranks);
		json_array_append_new(array, object);
	}
	return array;
}

void json_status(const struct control_message *answer)
{
	const struct control_status *status = &answer->status;
	json_t *object = begin(answer);
	STRING(object, status, cluster);
	STRING(object, status, version);
	STRING(object, status, phase);
	NUMBER(object, status, rank);
	NUMBER(object, status, world_size);
	NUMBER(object, status, joined);
	HEXADECIMAL(object, status, generation);
	HEXADECIMAL(object, status, incarnation);
	NUMBER(object, status, uptime_ms);
	BOOLEAN(object, status, degraded);
	NUMBER(object, status, bytes_in);
	NUMBER(object, status, bytes_out);
	NUMBER(object, status, gather_bytes);
	NUMBER(object, status, served_bytes);
	NUMBER(object, status, pushed_bytes);
	NUMBER(object, status, added_bytes);
	NUMBER(object, status, resent_bytes);
	NUMBER(object, status, malformed);
	NUMBER(object, status, refused);
	NUMBER(object, status, stale);
	NUMBER(object, status, duplicates);
	NUMBER(object, status, violations);
	json_object_set_new(object, "models", models_array(answer));
	json_object_set_new(object, "waits", waits_array(answer));
	finish(object);
}

void json_peers(const struct control_message *answer)
{
	json_t *array = json_array(), *whole = begin(answer);
	for (size_t i = 0; i < answer->peer_count; i++) {
		const struct control_peer *peer = &answer->peers[i];
		json_t *object = json_object();
		NUMBER(object, peer, rank);
		STRING(object, peer, state);
		BOOLEAN(object, peer, bulk_up);
		HEXADECIMAL(object, peer, incarnation);
		json_object_set_new(object, "heard_ms_ago",
				    peer->heard_ms_ago == UINT64_MAX ? json_null() : number(peer->heard_ms_ago));
		STRING(object, peer, endpoint);
		STRING(object, peer, refusal);
		json_array_append_new(array, object);
	}
	json_object_set_new(whole, "peers", array);
	finish(whole);
}

void json_models(const struct control_message *answer)
{
	json_t *whole = begin(answer);
	json_object_set_new(whole, "models", models_array(answer));
	finish(whole);
}

void json_units(const struct control_message *answer)
{
	json_t *array = json_array(), *whole = begin(answer);
	for (size_t i = 0; i < answer->unit_count; i++) {
		const struct control_unit *unit = &answer->units[i];
		json_t *object = json_object();
		STRING(object, unit, name);
		NUMBER(object, unit, version);
		NUMBER(object, unit, full_bytes);
		NUMBER(object, unit, shard_elements);
		NUMBER(object, unit, held);
		BOOLEAN(object, unit, gathered);
		BOOLEAN(object, unit, reduced);
		json_array_append_new(array, object);
	}
	json_object_set_new(whole, "units", array);
	finish(whole);
}

void json_workers(const struct control_message *answer)
{
	json_t *array = json_array(), *whole = begin(answer);
	for (size_t i = 0; i < answer->worker_count; i++) {
		const struct control_worker *worker = &answer->workers[i];
		json_t *object = json_object();
		json_object_set_new(object, "pid", json_integer(worker->pid));
		NUMBER(object, worker, uid);
		STRING(object, worker, model);
		NUMBER(object, worker, local_worker);
		STRING(object, worker, call);
		NUMBER(object, worker, waiting_ms);
		NUMBER(object, worker, attached_ms);
		json_array_append_new(array, object);
	}
	json_object_set_new(whole, "workers", array);
	finish(whole);
}

void json_done(const struct control_message *answer)
{
	finish(begin(answer));
}
