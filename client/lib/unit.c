/*
 * A unit's handle: adding one with its parameters, in parts where there are many, its options, and what it is. Owns
 * copies of names and shapes, and the place of every parameter in the full copy. Nothing here waits for another rank.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/fault.h"
#include "client/lib/model.h"
#include "client/lib/name.h"

static const struct {
	const char *text;
	uint64_t bytes;
} unit_dtypes[] = {
#define UNIT_DTYPE(name, number, bytes, text) [number] = { text, bytes },
	FSDP_DTYPES(UNIT_DTYPE)
#undef UNIT_DTYPE
};

#define UNIT_DTYPE_COUNT (sizeof(unit_dtypes) / sizeof(unit_dtypes[0]))

/* ---- Describing parameters ---- */

/* The product of the shape: 1 for a scalar, 0 where any dimension is 0. False where its bytes exceed 63 bits. */
static bool unit_param_elements(const struct fsdp_param *param, uint64_t *ret_elements)
{
	uint64_t elements = 1;
	for (uint32_t k = 0; k < param->ndim; k++) {
		if (param->shape[k] == 0) {
			*ret_elements = 0;
			return true;
		}
	}
	uint64_t most = INT64_MAX / unit_dtypes[param->dtype].bytes;
	for (uint32_t k = 0; k < param->ndim; k++)
		if (__builtin_mul_overflow(elements, param->shape[k], &elements) || elements > most)
			return false;
	*ret_elements = elements;
	return true;
}

static int unit_check_param(const char *unit, const struct fsdp_param *param, size_t index)
{
	const char *wrong = name_reject(param->name);
	if (wrong)
		return fault_set(FSDP_E_INVALID, "fsdp_unit_add: unit \"%s\": the name of parameter %zu %s", unit,
				 index, wrong);
	if (param->dtype == 0 || param->dtype >= UNIT_DTYPE_COUNT)
		return fault_set(FSDP_E_INVALID, "fsdp_unit_add: unit \"%s\", parameter \"%s\": there is no dtype %u",
				 unit, param->name, param->dtype);
	if (param->ndim > FSDP_DIMS_MAX)
		return fault_set(FSDP_E_INVALID,
				 "fsdp_unit_add: unit \"%s\", parameter \"%s\" has %u dimensions; %d are the most",
				 unit, param->name, param->ndim, FSDP_DIMS_MAX);
	if (param->flags != 0)
		return fault_set(FSDP_E_INVALID, "fsdp_unit_add: unit \"%s\", parameter \"%s\": flags must be 0", unit,
				 param->name);
	return 0;
}

static int unit_copy_params(struct fsdp_unit *unit, const struct fsdp_param *params, size_t count)
{
	uint64_t offset = 0;
	unit->f32 = true;
	for (size_t i = 0; i < count; i++) {
		int code = unit_check_param(unit->name, &params[i], i);
		if (code < 0)
			return code;
		uint64_t elements;
		if (!unit_param_elements(&params[i], &elements) ||
		    elements * unit_dtypes[params[i].dtype].bytes > INT64_MAX - offset)
			return fault_set(FSDP_E_OVERFLOW,
					 "fsdp_unit_add: unit \"%s\": with parameter \"%s\" it has more bytes than 63 "
					 "bits can count",
					 unit->name, params[i].name);
		unit->params[i] = params[i];
		unit->params[i].name = strdup(params[i].name);
		unit->param_count = i + 1; /* what unit_free frees */
		if (!unit->params[i].name)
			return fault_set(-ENOMEM, "fsdp_unit_add: out of memory");
		unit->offsets[i] = offset;
		unit->elements += elements;
		offset += elements * unit_dtypes[params[i].dtype].bytes;
		unit->f32 = unit->f32 && params[i].dtype == FSDP_F32;
	}
	unit->offsets[count] = offset;
	return 0;
}

void unit_free(struct fsdp_unit *unit, bool forked)
{
	if (!unit)
		return;
	for (size_t i = 0; i < unit->param_count; i++)
		free((char *)(uintptr_t)unit->params[i].name);
	free(unit->params);
	free(unit->offsets);
	free(unit->handed);
	free(unit->name);
	if (!forked)
		pthread_mutex_destroy(&unit->lock);
	free(unit);
}

static int unit_new(struct fsdp_model *model, const char *name, const struct fsdp_param *params, size_t count,
		    struct fsdp_unit **ret_unit)
{
	struct fsdp_unit *unit = calloc(1, sizeof(*unit));
	if (!unit)
		return fault_set(-ENOMEM, "fsdp_unit_add: out of memory");
	pthread_mutex_init(&unit->lock, NULL);
	unit->model = model;
	unit->name = strdup(name);
	unit->params = calloc(count + 1, sizeof(unit->params[0]));
	unit->offsets = calloc(count + 1, sizeof(unit->offsets[0]));
	unit->handed = calloc(count + 1, 1);
	int code;
	if (unit->name && unit->params && unit->offsets && unit->handed)
		code = unit_copy_params(unit, params, count);
	else
		code = fault_set(-ENOMEM, "fsdp_unit_add: out of memory");
	if (code < 0) {
		unit_free(unit, false);
		return code;
	}
	*ret_unit = unit;
	return 0;
}

/* ---- Telling the daemon ---- */

/* Tells the daemon of all parameters, WORKER_PARAMS_MAX at a time. With registering held. */
static int unit_register(struct fsdp_model *model, const struct fsdp_unit *unit)
{
	struct worker_param *part = calloc(WORKER_PARAMS_MAX, sizeof(*part));
	if (!part)
		return fault_set(-ENOMEM, "fsdp_unit_add: out of memory");
	size_t from = 0;
	int code;
	do {
		size_t count = unit->param_count - from;
		if (count > WORKER_PARAMS_MAX)
			count = WORKER_PARAMS_MAX;
		for (size_t i = 0; i < count; i++) {
			const struct fsdp_param *param = &unit->params[from + i];
			part[i] = (struct worker_param){
				.dtype = param->dtype,
				.ndim = param->ndim,
				.flags = param->flags,
				.group = param->group,
			};
			strcpy(part[i].name, param->name);
			memcpy(part[i].shape, param->shape, param->ndim * sizeof(param->shape[0]));
		}
		WIRE_CALL_AUTO call = { 0 };
		struct worker_message request = model_request(model, unit, WORKER_UNIT);
		strcpy(request.name, unit->name);
		request.params = part;
		request.param_count = count;
		from += count;
		request.more = from < unit->param_count;
		code = model_ask(model, unit, &request, &call, "fsdp_unit_add");
		/* A refusal makes the daemon forget the parts that it has; where none was heard it may wait for
		 * more. */
		if (code < 0 && !call.answered)
			model->state = MODEL_BROKEN;
	} while (code == 0 && from < unit->param_count);
	free(part);
	return code;
}

/* With registering held. */
static int unit_make_room(struct fsdp_model *model)
{
	if (model->unit_count == MODEL_UNITS_MAX)
		return fault_set(FSDP_E_OVERFLOW, "fsdp_unit_add: model \"%s\" has %u units, which are the most",
				 model->name, MODEL_UNITS_MAX);
	if (model->unit_count < model->unit_capacity)
		return 0;
	size_t capacity = model->unit_capacity ? 2 * model->unit_capacity : 16;
	struct fsdp_unit **units = realloc(model->units, capacity * sizeof(struct fsdp_unit *));
	if (!units)
		return fault_set(-ENOMEM, "fsdp_unit_add: out of memory");
	model->units = units;
	model->unit_capacity = capacity;
	return 0;
}

/* 0 while units may be described; with registering held. */
static int unit_check_open(const struct fsdp_model *model, const char *what)
{
	switch ((enum model_state)model->state) {
	case MODEL_OPEN:
		return 0;
	case MODEL_SEALING:
	case MODEL_SEALED:
		return fault_set(FSDP_E_STATE, "%s: model \"%s\" is sealed; units are described before that", what,
				 model->name);
	case MODEL_BROKEN:
		break;
	}
	return fault_set(FSDP_E_STATE,
			 "%s: an earlier call on model \"%s\" failed half-way; close it and open it again", what,
			 model->name);
}

int fsdp_unit_add(struct fsdp_model *model, const char *name, const struct fsdp_param *params, size_t count,
		  struct fsdp_unit **ret_unit)
{
	int code = model_check(model, "fsdp_unit_add");
	if (code < 0)
		return code;
	const char *bad = name_reject(name);
	if (bad)
		return fault_set(FSDP_E_INVALID, "fsdp_unit_add: the unit's name %s", bad);
	if (!ret_unit || (count > 0 && !params))
		return fault_set(FSDP_E_INVALID, "fsdp_unit_add: unit \"%s\": %s is NULL", name,
				 ret_unit ? "params" : "ret_unit");
	if (count > MODEL_PARAMS_MAX)
		return fault_set(FSDP_E_OVERFLOW, "fsdp_unit_add: unit \"%s\" has %zu parameters; %u are the most",
				 name, count, MODEL_PARAMS_MAX);
	struct fsdp_unit *unit = NULL;
	code = unit_new(model, name, params, count, &unit);
	if (code < 0)
		return code;
	pthread_mutex_lock(&model->registering);
	code = unit_check_open(model, "fsdp_unit_add");
	if (code == 0)
		code = unit_make_room(model);
	unit->index = model->unit_count;
	if (code == 0)
		code = unit_register(model, unit);
	if (code == 0)
		model->units[model->unit_count++] = unit;
	pthread_mutex_unlock(&model->registering);
	if (code < 0) {
		unit_free(unit, false);
		return code;
	}
	*ret_unit = unit;
	return 0;
}

int fsdp_unit_set_options(struct fsdp_unit *unit, const struct fsdp_unit_options *options)
{
	int code = unit_check(unit, "fsdp_unit_set_options");
	if (code < 0)
		return code;
	if (!options || options->size != sizeof(*options))
		return fault_set(FSDP_E_INVALID,
				 "fsdp_unit_set_options: unit \"%s\": options is NULL, or its size is not that of this "
				 "version's struct (begin with FSDP_UNIT_OPTIONS_INIT)",
				 unit->name);
	if (options->gather_dtype >= UNIT_DTYPE_COUNT || options->reduce_dtype >= UNIT_DTYPE_COUNT)
		return fault_set(FSDP_E_INVALID, "fsdp_unit_set_options: unit \"%s\": there is no such dtype",
				 unit->name);
	pthread_mutex_lock(&unit->model->registering);
	code = unit_check_open(unit->model, "fsdp_unit_set_options");
	if (code == 0) {
		WIRE_CALL_AUTO call = { 0 };
		struct worker_message request = model_request(unit->model, unit, WORKER_SET_UNIT);
		request.gather_dtype = options->gather_dtype;
		request.reduce_dtype = options->reduce_dtype;
		code = model_ask(unit->model, unit, &request, &call, "fsdp_unit_set_options");
	}
	pthread_mutex_unlock(&unit->model->registering);
	return code;
}

/* ---- What is there ---- */

int fsdp_model_unit(struct fsdp_model *model, size_t index, struct fsdp_unit **ret_unit)
{
	int code = model_check(model, "fsdp_model_unit");
	if (code < 0)
		return code;
	if (!ret_unit)
		return fault_set(FSDP_E_INVALID, "fsdp_model_unit: ret_unit is NULL");
	pthread_mutex_lock(&model->registering);
	size_t count = model->unit_count;
	struct fsdp_unit *unit = index < count ? model->units[index] : NULL;
	pthread_mutex_unlock(&model->registering);
	if (!unit)
		return fault_set(FSDP_E_NOT_FOUND,
				 "fsdp_model_unit: model \"%s\" has %zu units, there is no number %zu", model->name,
				 count, index);
	*ret_unit = unit;
	return 0;
}

int fsdp_unit_describe(struct fsdp_unit *unit, struct fsdp_unit_description *ret_description)
{
	int code = unit_check(unit, "fsdp_unit_describe");
	if (code < 0)
		return code;
	if (!ret_description)
		return fault_set(FSDP_E_INVALID, "fsdp_unit_describe: unit \"%s\": ret_description is NULL",
				 unit->name);
	struct fsdp_unit_description description = {
		.name = unit->name,
		.params = unit->params,
		.param_count = unit->param_count,
		.index = unit->index,
		.elements = unit->elements,
	};
	if (unit->model->state == MODEL_SEALED) {
		description.full_bytes = unit->place.full_bytes;
		description.shard_offset = unit->place.shard_offset;
		description.shard_count = unit->place.shard_count;
	}
	*ret_description = description;
	return 0;
}
