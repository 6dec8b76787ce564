/*
 * Registrations. Owns the manifest under construction and, while a unit comes in parts, a manifest of that unit alone,
 * in which its parameters are checked; the whole unit is copied when its last part was good.
 */
#include "daemon/serve/registration.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "daemon/serve/text.h"
#include "fsdp/error.h"

static int fail(struct registration *registration, int code, const char *text)
{
	text_copy(registration->text, sizeof(registration->text), text);
	return code;
}

int registration_init(struct registration *registration, const struct worker_message *open)
{
	struct manifest_options options = {
		.gather_dtype = (enum fsdp_dtype)open->gather_dtype,
		.reduce_dtype = (enum fsdp_dtype)open->reduce_dtype,
		.op = (enum reduce_op)open->reduce_op,
		.scale = open->scale,
		.init = (enum init_policy)open->init,
		.init_rank = open->init_rank,
		.optimizer = { .kind = (enum optimizer_kind)open->optimizer,
			       .momentum = open->momentum,
			       .nesterov = open->nesterov,
			       .centered = open->centered },
	};
	int code;

	*registration = (struct registration){ 0 };
	if (open->local_workers != 1 || open->local_worker != 0) {
		text_print(registration->text, sizeof(registration->text),
			   "local worker %u of %u: this daemon takes one worker a node, local worker 0 of 1; several "
			   "workers a "
			   "node come later",
			   open->local_worker, open->local_workers);
		return FSDP_E_INVALID;
	}
	code = manifest_new(open->name, &options, &registration->manifest);
	if (code == -ENOMEM)
		return fail(registration, code, "out of memory");
	if (code < 0)
		return fail(registration, code,
			    "the model's name or one of its options is not valid (the name is 1 to 255 bytes "
			    "of UTF-8 without control characters; gather and reduce dtypes are f32, f64, bf16 or f16; "
			    "reduce is mean "
			    "or sum; the scale is finite; init is verify, from rank or zeros; momentum is SGD's or "
			    "RMSprop's, "
			    "nesterov, "
			    "which needs it, SGD's, centered RMSprop's)");
	return 0;
}

void registration_fini(struct registration *registration)
{
	manifest_unref(registration->manifest);
	manifest_unref(registration->part);
	registration->manifest = registration->part = NULL;
}

static void drop_part(struct registration *registration)
{
	manifest_unref(registration->part);
	registration->part = NULL;
}

/* The first part of a unit. */
static int begin_unit(struct registration *registration, const struct worker_message *unit)
{
	struct manifest_options options = *manifest_get_options(registration->manifest);
	int code = manifest_new("part", &options, &registration->part);

	if (code < 0)
		return fail(registration, code, "out of memory");
	code = manifest_add_unit(registration->part, unit->name);
	return code < 0 ? fail(registration, code, manifest_error(registration->part)) : 0;
}

static int add_params(struct registration *registration, const struct worker_message *unit)
{
	for (size_t i = 0; i < unit->param_count; i++) {
		const struct worker_param *given = &unit->params[i];
		struct manifest_param param = { .dtype = (enum fsdp_dtype)given->dtype,
						.ndim = given->ndim,
						.flags = given->flags,
						.group = given->group };
		char name[sizeof(given->name)];
		int code;

		memcpy(name, given->name, sizeof(name));
		param.name = name;
		memcpy(param.shape, given->shape, sizeof(param.shape));
		code = manifest_add_param(registration->part, &param);
		if (code < 0)
			return fail(registration, code, manifest_error(registration->part));
	}
	return 0;
}

/* The unit is whole and good in itself: into the model with it. Limits of the whole model can still refuse it. */
static int end_unit(struct registration *registration)
{
	struct manifest *manifest = registration->manifest;
	const struct manifest_unit *unit;
	int code = manifest_seal(registration->part);

	if (code < 0)
		return fail(registration, code, manifest_error(registration->part));
	unit = manifest_unit(registration->part, 0);
	code = manifest_add_unit(manifest, unit->name);
	if (code < 0)
		return fail(registration, code, manifest_error(manifest));
	for (uint32_t i = 0; i < unit->param_count && code == 0; i++)
		code = manifest_add_param(manifest, &unit->params[i]);
	/* Half a unit cannot be taken back. It is counted, so that the seal finds one more than the worker does. */
	if (code < 0) {
		registration->unit_count = UINT32_MAX;
		return fail(registration, code, manifest_error(manifest));
	}
	registration->unit_count++;
	return 0;
}

static int check_order(struct registration *registration, const struct worker_message *unit)
{
	if (registration->unit_count == UINT32_MAX)
		return fail(registration, FSDP_E_STATE,
			    "an earlier unit exceeded a limit of the whole model: close it and open it "
			    "again");
	if (unit->unit != registration->unit_count) {
		text_print(registration->text, sizeof(registration->text), "unit %u was sent where unit %u belongs",
			   unit->unit, registration->unit_count);
		return FSDP_E_STATE;
	}
	return 0;
}

int registration_add(struct registration *registration, const struct worker_message *unit)
{
	int code = check_order(registration, unit);

	if (code == 0 && !registration->part)
		code = begin_unit(registration, unit);
	if (code == 0)
		code = add_params(registration, unit);
	if (code == 0 && unit->more)
		return 0;
	if (code == 0)
		code = end_unit(registration);
	drop_part(registration);
	return code;
}

int registration_set(struct registration *registration, const struct worker_message *set)
{
	int code = registration_check_whole(registration);

	if (code == 0)
		code = manifest_set_unit_options(registration->manifest, set->unit, (enum fsdp_dtype)set->gather_dtype,
						 (enum fsdp_dtype)set->reduce_dtype);
	else
		return code;
	return code < 0 ? fail(registration, code, manifest_error(registration->manifest)) : 0;
}

int registration_check_whole(struct registration *registration)
{
	if (registration->unit_count == UINT32_MAX)
		return fail(registration, FSDP_E_STATE,
			    "a unit exceeded a limit of the whole model: close it and open it again");
	if (registration->part)
		return fail(registration, FSDP_E_STATE, "the last unit lacks parts that were announced");
	return 0;
}
