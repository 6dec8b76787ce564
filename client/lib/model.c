/*
 * A model's handle: opening with options, closing, the checks and the questions that the other files share, and the
 * order of gathers. Owns units, mappings and the pools' descriptors. What happens at the seal is in seal.c.
 */
#include "client/lib/model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/lib/fault.h"
#include "client/lib/name.h"

/* ---- What the other files share ---- */

int model_check(const struct fsdp_model *model, const char *what)
{
	if (!model)
		return fault_set(FSDP_E_INVALID, "%s: the model is NULL", what);
	return client_check(model->client, what);
}

int model_check_sealed(const struct fsdp_model *model, const char *what)
{
	int code = model_check(model, what);
	if (code < 0 || model->state == MODEL_SEALED)
		return code;
	return fault_set(FSDP_E_STATE, "%s: model \"%s\" is not sealed; call fsdp_model_seal first", what, model->name);
}

int unit_check(const struct fsdp_unit *unit, const char *what)
{
	if (!unit)
		return fault_set(FSDP_E_INVALID, "%s: the unit is NULL", what);
	return model_check(unit->model, what);
}

int unit_check_sealed(const struct fsdp_unit *unit, const char *what)
{
	int code = unit_check(unit, what);
	return code < 0 ? code : model_check_sealed(unit->model, what);
}

struct worker_message model_request(const struct fsdp_model *model, const struct fsdp_unit *unit, enum worker_op op)
{
	return (struct worker_message){
		.op = op,
		.handle = model->handle,
		.unit = unit ? (uint32_t)unit->index : 0,
		.deadline_ms = model->deadline_ms,
	};
}

/* Whose answers tell where the model is. */
static bool model_op_tells(enum worker_op op)
{
	switch (op) {
	case WORKER_GRAD:
	case WORKER_REDUCE:
	case WORKER_NEXT_MICRO_BATCH:
	case WORKER_SYNC:
	case WORKER_STEP:
	case WORKER_ABORT:
	case WORKER_ALL_REDUCE:
		return true;
	default:
		return false;
	}
}

int model_ask(struct fsdp_model *model, const struct fsdp_unit *unit, struct worker_message *request,
	      struct wire_call *call, const char *what)
{
	struct wire *wire = model->client->wire;
	int code = wire_begin(wire, request, call);
	if (code == 0)
		code = wire_finish(wire, call);
	if (call->answered && model_op_tells(request->op))
		gradient_observe(model, (struct epoch){ call->answer.step, call->answer.attempt });
	return code < 0 ? wire_fault(wire, call, code, what, unit ? unit->name : NULL) : 0;
}

/* ---- Opening ---- */

/* The value of an environment variable that is a number up to most; absent where it is unset or empty. */
static int model_environment(const char *variable, uint32_t absent, uint32_t most, uint32_t *ret_value)
{
	const char *text = getenv(variable);
	if (!text || !*text) {
		*ret_value = absent;
		return 0;
	}
	uint64_t value = 0;
	for (const char *at = text; *at; at++) {
		if (*at < '0' || *at > '9' || value > most)
			return fault_set(FSDP_E_INVALID, "fsdp_model_open: $%s is \"%.64s\", not a number up to %u",
					 variable, text, most);
		value = value * 10 + (uint64_t)(*at - '0');
	}
	if (value > most)
		return fault_set(FSDP_E_INVALID, "fsdp_model_open: $%s is \"%.64s\", not a number up to %u", variable,
				 text, most);
	*ret_value = (uint32_t)value;
	return 0;
}

static int model_find_workers(struct fsdp_options *options)
{
	int code = 0;
	if (options->local_workers == 0) {
		code = model_environment("LOCAL_RANK", 0, MODEL_WORKERS_MAX - 1, &options->local_worker);
		if (code == 0)
			code = model_environment("LOCAL_WORLD_SIZE", 1, MODEL_WORKERS_MAX, &options->local_workers);
	}
	if (code == 0 &&
	    (options->local_workers > MODEL_WORKERS_MAX || options->local_worker >= options->local_workers))
		code = fault_set(FSDP_E_INVALID,
				 "fsdp_model_open: local worker %u of %u (options, else $LOCAL_RANK of "
				 "$LOCAL_WORLD_SIZE): it must be below it, and that %u at most",
				 options->local_worker, options->local_workers, MODEL_WORKERS_MAX);
	return code;
}

static int model_check_options(struct fsdp_options *options)
{
	const char *wrong = NULL;
	if (options->size != sizeof(*options))
		wrong = "size is not that of this version's struct (begin with FSDP_OPTIONS_INIT)";
	else if (options->gather_dtype > FSDP_BOOL || options->reduce_dtype > FSDP_BOOL)
		wrong = "there is no such dtype";
	else if (options->reduce_op > FSDP_SUM)
		wrong = "there is no such reduce_op";
	else if (options->optimizer > FSDP_OPTIMIZER_LION)
		wrong = "there is no such optimizer";
	else if (options->init > FSDP_INIT_ZEROS)
		wrong = "there is no such init";
	else if (options->init != FSDP_INIT_FROM_RANK && options->init_rank != 0)
		wrong = "init_rank is of FSDP_INIT_FROM_RANK alone";
	else if (!isfinite(options->scale))
		wrong = "scale is not finite";
	else if (options->momentum > 1 || options->nesterov > 1 || options->centered > 1)
		wrong = "momentum, nesterov and centered are 0 or 1 (the coefficient is in struct fsdp_step)";
	else if (options->flags != 0 || options->reserved != 0)
		wrong = "flags and reserved must be 0";
	if (wrong)
		return fault_set(FSDP_E_INVALID, "fsdp_model_open: options: %s", wrong);
	if (options->scale == 0.0)
		options->scale = 1.0;
	return model_find_workers(options);
}

static struct fsdp_model *model_new(struct fsdp_client *client, const char *name, const struct fsdp_options *options)
{
	struct fsdp_model *model = calloc(1, sizeof(*model));
	if (!model)
		return NULL;
	model->name = strdup(name);
	if (!model->name) {
		free(model);
		return NULL;
	}
	model->client = client;
	model->deadline_ms = options->deadline_ms;
	model->optimizer = (enum fsdp_optimizer)options->optimizer;
	model->local_worker = options->local_worker;
	model->local_workers = options->local_workers;
	model->init = (enum fsdp_init)options->init;
	model->init_rank = options->init_rank;
	model->gathers.fd = -1;
	model->grads.fd = -1;
	pthread_mutex_init(&model->registering, NULL);
	pthread_mutex_init(&model->lock, NULL);
	pthread_mutex_init(&model->stepping, NULL);
	pthread_mutex_lock(&client->lock);
	model->next = client->models;
	if (model->next)
		model->next->previous = model;
	client->models = model;
	pthread_mutex_unlock(&client->lock);
	return model;
}

int fsdp_model_open(struct fsdp_client *client, const char *name, const struct fsdp_options *options,
		    struct fsdp_model **ret_model)
{
	int code = client_check(client, "fsdp_model_open");
	if (code < 0)
		return code;
	const char *bad = name_reject(name);
	if (bad)
		return fault_set(FSDP_E_INVALID, "fsdp_model_open: the model's name %s", bad);
	if (!ret_model)
		return fault_set(FSDP_E_INVALID, "fsdp_model_open: ret_model is NULL");
	struct fsdp_options own = FSDP_OPTIONS_INIT;
	if (options && options->size != sizeof(own))
		own.size = options->size; /* refused below; the rest of it is not looked at */
	else if (options)
		own = *options;
	code = model_check_options(&own);
	if (code == 0 && own.init == FSDP_INIT_FROM_RANK && own.init_rank >= client->world_size)
		code = fault_set(
			FSDP_E_INVALID,
			"fsdp_model_open: options: init_rank is %u, and the group has %u ranks, counted from 0",
			own.init_rank, client->world_size);
	if (code < 0)
		return code;
	struct fsdp_model *model = model_new(client, name, &own);
	if (!model)
		return fault_set(-ENOMEM, "fsdp_model_open: out of memory");
	WIRE_CALL_AUTO call = { 0 };
	struct worker_message request = model_request(model, NULL, WORKER_OPEN);
	strcpy(request.name, name);
	request.gather_dtype = own.gather_dtype;
	request.reduce_dtype = own.reduce_dtype;
	request.reduce_op = own.reduce_op;
	request.scale = own.scale;
	request.optimizer = own.optimizer;
	request.momentum = own.momentum != 0;
	request.nesterov = own.nesterov != 0;
	request.centered = own.centered != 0;
	request.local_worker = own.local_worker;
	request.local_workers = own.local_workers;
	request.init = own.init;
	request.init_rank = own.init_rank;
	code = model_ask(model, NULL, &request, &call, "fsdp_model_open");
	if (code < 0) {
		model_free(model, false);
		return code;
	}
	model->handle = call.answer.handle;
	*ret_model = model;
	return 0;
}

/* ---- Closing ---- */

void model_unmap(struct fsdp_model *model)
{
	for (size_t i = 0; i < model->unit_count; i++) {
		window_fini(&model->units[i]->gather);
		window_fini(&model->units[i]->grad);
	}
	mapping_close(model->masters, model->shard_bytes);
	mapping_close(model->gradients, model->shard_bytes);
	mapping_close(model->staging, model->shard_bytes);
	model->masters = model->gradients = model->staging = NULL;
	if (model->gathers.fd >= 0)
		close(model->gathers.fd);
	if (model->grads.fd >= 0)
		close(model->grads.fd);
	model->gathers.fd = model->grads.fd = -1;
}

void model_free(struct fsdp_model *model, bool forked)
{
	if (!model)
		return;
	struct fsdp_client *client = model->client;
	if (!forked)
		pthread_mutex_lock(&client->lock);
	if (model->previous)
		model->previous->next = model->next;
	else
		client->models = model->next;
	if (model->next)
		model->next->previous = model->previous;
	if (!forked) {
		pthread_mutex_unlock(&client->lock);
		model_unmap(model);
		pthread_mutex_destroy(&model->registering);
		pthread_mutex_destroy(&model->lock);
		pthread_mutex_destroy(&model->stepping);
	} else {
		/* The mappings were not inherited, and something else may lie there by now. */
		if (model->gathers.fd >= 0)
			close(model->gathers.fd);
		if (model->grads.fd >= 0)
			close(model->grads.fd);
	}
	for (size_t i = 0; i < model->unit_count; i++)
		unit_free(model->units[i], forked);
	free(model->units);
	free(model->order);
	free(model->name);
	free(model);
}

int fsdp_model_close(struct fsdp_model *model, int keep)
{
	if (!model)
		return 0;
	int code = model_check(model, "fsdp_model_close");
	if (code < 0)
		return code;
	{
		WIRE_CALL_AUTO call = { 0 };
		struct worker_message request = model_request(model, NULL, WORKER_CLOSE);
		request.drop = keep == 0;
		code = model_ask(model, NULL, &request, &call, "fsdp_model_close");
	}
	model_free(model, false);
	return code;
}

/* ---- The order of gathers ---- */

int fsdp_model_prefetch_order(struct fsdp_model *model, struct fsdp_unit *const *units, size_t count)
{
	int code = model_check(model, "fsdp_model_prefetch_order");
	if (code < 0)
		return code;
	if (count > MODEL_ORDER_MAX)
		return fault_set(FSDP_E_OVERFLOW, "fsdp_model_prefetch_order: %zu units; %u are the most", count,
				 MODEL_ORDER_MAX);
	if (count > 0 && !units)
		return fault_set(FSDP_E_INVALID, "fsdp_model_prefetch_order: units is NULL");
	for (size_t i = 0; i < count; i++)
		if (!units[i] || units[i]->model != model)
			return fault_set(FSDP_E_INVALID,
					 "fsdp_model_prefetch_order: entry %zu is not a unit of model \"%s\"", i,
					 model->name);
	struct fsdp_unit **order = NULL;
	if (count > 0) {
		order = malloc(count * sizeof(struct fsdp_unit *));
		if (!order)
			return fault_set(-ENOMEM, "fsdp_model_prefetch_order: out of memory");
		memcpy(order, units, count * sizeof(struct fsdp_unit *));
	}
	pthread_mutex_lock(&model->lock);
	struct fsdp_unit **old = model->order;
	model->order = order;
	model->order_count = count;
	model->order_at = count > 0 ? count - 1 : 0; /* so that the first is looked for from the beginning */
	pthread_mutex_unlock(&model->lock);
	free(old);
	return 0;
}
