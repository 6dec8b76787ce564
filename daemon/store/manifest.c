/*
 * Manifests: what the ranks compare. Owns copies of all names and shapes. One thread adds and seals; a sealed
 * manifest never changes and is shared by count. It is where every limit on names, dimensions and sizes is checked,
 * whoever they come from: a worker, or a peer's blob (manifest_blob.c). It does not know of ranks, shards or memory.
 */
#include "daemon/store/manifest.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "daemon/math/dtype.h"
#include "daemon/store/manifest_blob.h"
#include "daemon/store/name.h"
#include "fsdp/error.h"

#define MANIFEST_ERROR_MAX 640 /* two names and a sentence */

struct manifest {
	atomic_size_t references;
	char *name;
	struct manifest_options options;
	struct manifest_unit *units; /* in order of registration */
	uint32_t unit_count;
	uint32_t unit_room;
	uint32_t param_room; /* of the unit added last */
	uint32_t param_count;
	uint64_t master_bytes; /* of the whole model */
	uint64_t blob_bytes;   /* what manifest_write will give */
	struct name_set unit_names;
	struct name_set param_names; /* of the unit added last */
	bool sealed;
	uint32_t *canonical;  /* [registered] */
	uint32_t *registered; /* [canonical] */
	uint64_t hash;
	char error[MANIFEST_ERROR_MAX];
};

static int __attribute__((format(printf, 3, 4)))
manifest_fail(struct manifest *manifest, int code, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(manifest->error, sizeof(manifest->error), format, arguments);
	va_end(arguments);
	return code;
}

/* What values may be gathered or added as: numbers with a fraction; 0 leaves it to who asks. */
static bool manifest_is_float_or_unset(enum fsdp_dtype dtype)
{
	return dtype == 0 || dtype == FSDP_F32 || dtype == FSDP_F64 || dtype == FSDP_BF16 || dtype == FSDP_F16;
}

static int manifest_check_options(const struct manifest_options *options)
{
	bool good = manifest_is_float_or_unset(options->gather_dtype) &&
		    manifest_is_float_or_unset(options->reduce_dtype) &&
		    (options->op == REDUCE_MEAN || options->op == REDUCE_SUM) && isfinite(options->scale) &&
		    ((uint32_t)options->init <= INIT_ZEROS) &&
		    (options->init == INIT_FROM_RANK || options->init_rank == 0);
	return good ? optimizer_check_spec(&options->optimizer, NULL) : FSDP_E_INVALID;
}

int manifest_new(const char *name, const struct manifest_options *options, struct manifest **ret_manifest)
{
	if (name_check(name) || manifest_check_options(options) < 0) {
		return FSDP_E_INVALID;
	}
	struct manifest *manifest = calloc(1, sizeof(*manifest));
	if (!manifest) {
		return -ENOMEM;
	}
	atomic_init(&manifest->references, 1);
	manifest->options = *options;
	if (options->op == REDUCE_MEAN || options->scale == 0) {
		manifest->options.scale = 1;
	}
	manifest->blob_bytes = manifest_blob_head_bytes(name);
	manifest->name = strdup(name);
	if (!manifest->name) {
		manifest_unref(manifest);
		return -ENOMEM;
	}
	*ret_manifest = manifest;
	return 0;
}

struct manifest *manifest_ref(struct manifest *manifest)
{
	size_t before = atomic_fetch_add_explicit(&manifest->references, 1, memory_order_relaxed);
	assert(before > 0);
	return manifest;
}

void manifest_unref(struct manifest *manifest)
{
	if (!manifest) {
		return;
	}
	size_t before = atomic_fetch_sub_explicit(&manifest->references, 1, memory_order_acq_rel);
	assert(before > 0);
	if (before > 1) {
		return;
	}
	for (uint32_t u = 0; u < manifest->unit_count; u++) {
		struct manifest_unit *unit = &manifest->units[u];
		for (uint32_t p = 0; p < unit->param_count; p++) {
			free(unit->params[p].name);
		}
		free(unit->params);
		free(unit->name);
	}
	name_set_fini(&manifest->unit_names);
	name_set_fini(&manifest->param_names);
	free(manifest->units);
	free(manifest->canonical);
	free(manifest->registered);
	free(manifest->name);
	free(manifest);
}

/* Room for one more; what is there stays where it is when there is no memory. */
static int manifest_grow(void **array, uint32_t count, uint32_t *room, size_t element_bytes)
{
	if (count < *room) {
		return 0;
	}
	uint32_t bigger = *room ? *room * 2 : 4;
	void *moved = reallocarray(*array, bigger, element_bytes);
	if (!moved) {
		return -ENOMEM;
	}
	*array = moved;
	*room = bigger;
	return 0;
}

static int manifest_check_add(struct manifest *manifest, const char *what, const char *name, uint64_t more_bytes)
{
	if (manifest->sealed) {
		return manifest_fail(manifest, FSDP_E_STATE, "the model is sealed: no %s can be added", what);
	}
	const char *reason = name_check(name);
	if (reason) {
		return manifest_fail(manifest, FSDP_E_INVALID, "%s: %s", what, reason);
	}
	if (manifest->blob_bytes + more_bytes > MANIFEST_BYTES_MAX) {
		return manifest_fail(manifest, FSDP_E_OVERFLOW, "%s \"%s\": the model's description exceeds %u bytes",
				     what, name, MANIFEST_BYTES_MAX);
	}
	return 0;
}

int manifest_add_unit(struct manifest *manifest, const char *name)
{
	int code = manifest_check_add(manifest, "unit", name, manifest_blob_unit_bytes(name));
	if (code < 0) {
		return code;
	}
	if (manifest->unit_count == MANIFEST_UNITS_MAX) {
		return manifest_fail(manifest, FSDP_E_OVERFLOW, "unit \"%s\": a model has at most %d units", name,
				     MANIFEST_UNITS_MAX);
	}
	void *units = manifest->units;
	code = manifest_grow(&units, manifest->unit_count, &manifest->unit_room, sizeof(*manifest->units));
	manifest->units = units;
	char *copy = code < 0 ? NULL : strdup(name);
	if (!copy) {
		return manifest_fail(manifest, -ENOMEM, "unit \"%s\": out of memory", name);
	}
	code = name_set_add(&manifest->unit_names, copy);
	if (code <= 0) {
		free(copy);
		return code < 0 ? manifest_fail(manifest, code, "unit \"%s\": out of memory", name)
				: manifest_fail(manifest, FSDP_E_INVALID, "unit \"%s\" is there already", name);
	}
	manifest->units[manifest->unit_count++] = (struct manifest_unit){ .name = copy };
	manifest->blob_bytes += manifest_blob_unit_bytes(name);
	manifest->param_room = 0;
	name_set_clear(&manifest->param_names);
	return 0;
}

/* Elements of a shape, or FSDP_E_OVERFLOW. A dimension of 0 makes it empty, however large the others are. */
static int manifest_count_elements(const struct manifest_param *param, uint64_t *ret_count)
{
	uint64_t count = 1;
	bool overflow = false;
	for (uint32_t i = 0; i < param->ndim; i++) {
		if (param->shape[i] == 0) {
			*ret_count = 0;
			return 0;
		}
		overflow |= __builtin_mul_overflow(count, param->shape[i], &count);
	}
	if (overflow || count > (uint64_t)INT64_MAX) {
		return FSDP_E_OVERFLOW;
	}
	*ret_count = count;
	return 0;
}

/* The unit is the one added last. Gives the bytes of the parameter's master. */
static int manifest_check_param(struct manifest *manifest, const char *unit, const struct manifest_param *param,
				uint64_t *ret_bytes)
{
	if (!dtype_is_valid((uint32_t)param->dtype)) {
		return manifest_fail(manifest, FSDP_E_INVALID, "unit \"%s\": %s: there is no dtype %u", unit,
				     param->name, (unsigned)param->dtype);
	}
	if (param->ndim > FSDP_DIMS_MAX) {
		return manifest_fail(manifest, FSDP_E_INVALID,
				     "unit \"%s\": %s has %u dimensions, at most %d are possible", unit, param->name,
				     param->ndim, FSDP_DIMS_MAX);
	}
	if (param->flags & ~MANIFEST_PARAM_FLAGS) {
		return manifest_fail(manifest, FSDP_E_INVALID, "unit \"%s\": %s has unknown flags 0x%x", unit,
				     param->name, param->flags & ~MANIFEST_PARAM_FLAGS);
	}
	uint64_t count, bytes, total;
	if (manifest_count_elements(param, &count) < 0 ||
	    __builtin_mul_overflow(count, dtype_bytes(dtype_master(param->dtype)), &bytes) ||
	    __builtin_add_overflow(manifest->master_bytes, bytes, &total) || total > (uint64_t)INT64_MAX) {
		return manifest_fail(manifest, FSDP_E_OVERFLOW, "unit \"%s\": %s makes the model exceed 2^63 bytes",
				     unit, param->name);
	}
	if (manifest->param_count == MANIFEST_PARAMS_MAX) {
		return manifest_fail(manifest, FSDP_E_OVERFLOW, "unit \"%s\": %s: a model has at most %d parameters",
				     unit, param->name, MANIFEST_PARAMS_MAX);
	}
	*ret_bytes = bytes;
	return 0;
}

int manifest_add_param(struct manifest *manifest, const struct manifest_param *param)
{
	if (manifest->unit_count == 0) {
		return manifest_fail(manifest, FSDP_E_STATE, "a parameter needs a unit");
	}
	struct manifest_unit *unit = &manifest->units[manifest->unit_count - 1];
	uint64_t bytes = 0;
	int code = manifest_check_add(manifest, "parameter", param->name, 0);
	if (code == 0) {
		code = manifest_check_param(manifest, unit->name, param, &bytes);
	}
	if (code == 0) {
		code = manifest_check_add(manifest, "parameter", param->name, manifest_blob_param_bytes(param));
	}
	if (code < 0) {
		return code;
	}
	void *params = unit->params;
	code = manifest_grow(&params, unit->param_count, &manifest->param_room, sizeof(*unit->params));
	unit->params = params;
	char *copy = code < 0 ? NULL : strdup(param->name);
	if (!copy) {
		return manifest_fail(manifest, -ENOMEM, "unit \"%s\": out of memory", unit->name);
	}
	code = name_set_add(&manifest->param_names, copy);
	if (code <= 0) {
		free(copy);
		return code < 0 ? manifest_fail(manifest, code, "unit \"%s\": out of memory", unit->name)
				: manifest_fail(manifest, FSDP_E_INVALID, "unit \"%s\": %s is there already",
						unit->name, param->name);
	}
	struct manifest_param *added = &unit->params[unit->param_count++];
	*added = (struct manifest_param){
		.name = copy, .dtype = param->dtype, .ndim = param->ndim, .flags = param->flags, .group = param->group
	};
	memcpy(added->shape, param->shape, param->ndim * sizeof(param->shape[0]));
	manifest->param_count++;
	manifest->master_bytes += bytes;
	manifest->blob_bytes += manifest_blob_param_bytes(param);
	return 0;
}

int manifest_set_unit_options(struct manifest *manifest, uint32_t registered, enum fsdp_dtype gather,
			      enum fsdp_dtype reduce)
{
	if (manifest->sealed) {
		return manifest_fail(manifest, FSDP_E_STATE, "the model is sealed: no option can be set");
	}
	if (registered >= manifest->unit_count) {
		return manifest_fail(manifest, FSDP_E_INVALID, "there is no unit %u", registered);
	}
	struct manifest_unit *unit = &manifest->units[registered];
	if (!manifest_is_float_or_unset(gather) || !manifest_is_float_or_unset(reduce)) {
		return manifest_fail(manifest, FSDP_E_INVALID,
				     "unit \"%s\": gather and reduce dtypes are f32, f64, bf16 or f16", unit->name);
	}
	unit->gather_dtype = gather;
	unit->reduce_dtype = reduce;
	return 0;
}

const char *manifest_error(const struct manifest *manifest)
{
	return manifest->error;
}

static int manifest_compare_units(const void *a, const void *b, void *context)
{
	const struct manifest_unit *units = context;
	return strcmp(units[*(const uint32_t *)a].name, units[*(const uint32_t *)b].name);
}

int manifest_seal(struct manifest *manifest)
{
	if (manifest->sealed) {
		return manifest_fail(manifest, FSDP_E_STATE, "the model is sealed already");
	}
	size_t count = manifest->unit_count;
	uint32_t *canonical = calloc(count ? count : 1, sizeof(*canonical));
	uint32_t *registered = calloc(count ? count : 1, sizeof(*registered));
	if (!canonical || !registered) {
		free(canonical);
		free(registered);
		return manifest_fail(manifest, -ENOMEM, "out of memory");
	}
	for (uint32_t i = 0; i < count; i++) {
		registered[i] = i;
	}
	qsort_r(registered, count, sizeof(*registered), manifest_compare_units, manifest->units);
	for (uint32_t i = 0; i < count; i++) {
		canonical[registered[i]] = i;
	}
	manifest->canonical = canonical;
	manifest->registered = registered;
	manifest->sealed = true;

	void *data;
	size_t size;
	int code = manifest_write(manifest, &data, &size);
	if (code < 0) {
		manifest->sealed = false;
		manifest->canonical = NULL;
		manifest->registered = NULL;
		free(canonical);
		free(registered);
		return manifest_fail(manifest, code, "out of memory");
	}
	assert(size == manifest->blob_bytes);
	manifest->hash = XXH3_64bits(data, size);
	free(data);
	name_set_fini(&manifest->unit_names);
	name_set_fini(&manifest->param_names);
	return 0;
}

const char *manifest_name(const struct manifest *manifest)
{
	return manifest->name;
}

const struct manifest_options *manifest_get_options(const struct manifest *manifest)
{
	return &manifest->options;
}

uint32_t manifest_unit_count(const struct manifest *manifest)
{
	return manifest->unit_count;
}

uint32_t manifest_canonical(const struct manifest *manifest, uint32_t registered)
{
	assert(manifest->sealed && registered < manifest->unit_count);
	return manifest->canonical[registered];
}

uint32_t manifest_registered(const struct manifest *manifest, uint32_t canonical)
{
	assert(manifest->sealed && canonical < manifest->unit_count);
	return manifest->registered[canonical];
}

const struct manifest_unit *manifest_unit(const struct manifest *manifest, uint32_t canonical)
{
	return &manifest->units[manifest_registered(manifest, canonical)];
}

uint64_t manifest_hash(const struct manifest *manifest)
{
	assert(manifest->sealed);
	return manifest->hash;
}

uint64_t manifest_blob_bytes(const struct manifest *manifest)
{
	return manifest->blob_bytes;
}

uint64_t manifest_param_count(const struct manifest_param *param)
{
	uint64_t count = 0;
	int code = manifest_count_elements(param, &count);
	assert(code == 0); /* checked when it was added */
	return count;
}
