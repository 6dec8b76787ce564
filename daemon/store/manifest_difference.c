/*
 * How two manifests differ, in words for people: the first difference only, with both sides. Two manifests are equal
 * here exactly when their blobs, and so their hashes, are. Pure.
 */
#include "daemon/store/manifest.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "daemon/math/dtype.h"

#define DIFFERENCE_VALUE_MAX 384 /* one side: a name and a shape */

struct difference {
	const struct manifest *a, *b;
	uint32_t rank_a, rank_b;
	char *text;
	size_t text_size;
};

void manifest_param_describe(const struct manifest_param *param, char *text, size_t text_size)
{
	char shape[FSDP_DIMS_MAX * 21 + 1] = "";
	size_t used = 0;
	for (uint32_t i = 0; i < param->ndim; i++) {
		used += (size_t)snprintf(shape + used, sizeof(shape) - used, "%s%" PRIu64, i ? "," : "",
					 param->shape[i]);
	}
	snprintf(text, text_size, "%s[%s]", dtype_name(param->dtype), shape);
}

/* `WHERE: rank 0 has X, rank 1 has Y`. Gives 1. */
static int difference_say(const struct difference *difference, const char *where, const char *value_a,
			  const char *value_b)
{
	snprintf(difference->text, difference->text_size, "%s: rank %" PRIu32 " has %s, rank %" PRIu32 " has %s", where,
		 difference->rank_a, value_a, difference->rank_b, value_b);
	return 1;
}

static const char *difference_dtype(enum fsdp_dtype dtype)
{
	return dtype == 0 ? "none set" : dtype_name(dtype);
}

static const char *difference_bool(bool value)
{
	return value ? "on" : "off";
}

static const char *difference_op(enum reduce_op op)
{
	static const char *const names[] = { [REDUCE_MEAN] = "mean", [REDUCE_SUM] = "sum" };
	return names[op];
}

static void difference_init(const struct manifest_options *options, char *text, size_t text_size)
{
	static const char *const names[] = {
		[INIT_VERIFY] = "verify", [INIT_FROM_RANK] = "from rank", [INIT_ZEROS] = "zeros"
	};
	if (options->init == INIT_FROM_RANK) {
		snprintf(text, text_size, "%s %" PRIu32, names[options->init], options->init_rank);
	} else {
		snprintf(text, text_size, "%s", names[options->init]);
	}
}

static int difference_of_options(const struct difference *difference)
{
	const struct manifest_options *a = manifest_get_options(difference->a);
	const struct manifest_options *b = manifest_get_options(difference->b);
	char scales[2][32];
	/* Seventeen digits: two doubles that differ look different. */
	snprintf(scales[0], sizeof(scales[0]), "%.17g", a->scale);
	snprintf(scales[1], sizeof(scales[1]), "%.17g", b->scale);
	char inits[2][32];
	difference_init(a, inits[0], sizeof(inits[0]));
	difference_init(b, inits[1], sizeof(inits[1]));
	const struct {
		const char *name, *value_a, *value_b;
	} rows[] = {
		{ "gather dtype", difference_dtype(a->gather_dtype), difference_dtype(b->gather_dtype) },
		{ "reduce dtype", difference_dtype(a->reduce_dtype), difference_dtype(b->reduce_dtype) },
		{ "reduce op", difference_op(a->op), difference_op(b->op) },
		{ "scale", scales[0], scales[1] },
		{ "optimizer", optimizer_name(a->optimizer.kind), optimizer_name(b->optimizer.kind) },
		{ "momentum", difference_bool(a->optimizer.momentum), difference_bool(b->optimizer.momentum) },
		{ "nesterov", difference_bool(a->optimizer.nesterov), difference_bool(b->optimizer.nesterov) },
		{ "centered", difference_bool(a->optimizer.centered), difference_bool(b->optimizer.centered) },
		{ "init", inits[0], inits[1] },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (strcmp(rows[i].value_a, rows[i].value_b) != 0) {
			char where[64];
			snprintf(where, sizeof(where), "option %s", rows[i].name);
			return difference_say(difference, where, rows[i].value_a, rows[i].value_b);
		}
	}
	return 0;
}

static bool difference_is_same_param(const struct manifest_param *a, const struct manifest_param *b)
{
	return strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->ndim == b->ndim && a->flags == b->flags &&
	       a->group == b->group && memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0])) == 0;
}

/* `a f32[4]`, with its flags and its group where it has any; `nothing` where the unit ends before. */
static void difference_describe(const struct manifest_unit *unit, uint32_t entry, char *text, size_t text_size)
{
	if (entry >= unit->param_count) {
		snprintf(text, text_size, "nothing");
		return;
	}
	const struct manifest_param *param = &unit->params[entry];
	char shape[256];
	char flags[32] = "";
	char group[32] = "";
	manifest_param_describe(param, shape, sizeof(shape));
	if (param->flags) {
		snprintf(flags, sizeof(flags), " flags 0x%" PRIx32, param->flags);
	}
	if (param->group) {
		snprintf(group, sizeof(group), " group %" PRIu32, param->group);
	}
	snprintf(text, text_size, "%s %s%s%s", param->name, shape, flags, group);
}

static int difference_of_unit(const struct difference *difference, const struct manifest_unit *a,
			      const struct manifest_unit *b)
{
	char where[FSDP_NAME_MAX + 64];
	uint32_t longest = a->param_count > b->param_count ? a->param_count : b->param_count;
	for (uint32_t i = 0; i < longest; i++) {
		if (i < a->param_count && i < b->param_count &&
		    difference_is_same_param(&a->params[i], &b->params[i])) {
			continue;
		}
		char value_a[2 * DIFFERENCE_VALUE_MAX], value_b[2 * DIFFERENCE_VALUE_MAX];
		difference_describe(a, i, value_a, sizeof(value_a));
		difference_describe(b, i, value_b, sizeof(value_b));
		snprintf(where, sizeof(where), "unit \"%s\" entry %" PRIu32, a->name, i);
		return difference_say(difference, where, value_a, value_b);
	}
	if (a->gather_dtype != b->gather_dtype) {
		snprintf(where, sizeof(where), "unit \"%s\" gather dtype", a->name);
		return difference_say(difference, where, difference_dtype(a->gather_dtype),
				      difference_dtype(b->gather_dtype));
	}
	if (a->reduce_dtype != b->reduce_dtype) {
		snprintf(where, sizeof(where), "unit \"%s\" reduce dtype", a->name);
		return difference_say(difference, where, difference_dtype(a->reduce_dtype),
				      difference_dtype(b->reduce_dtype));
	}
	return 0;
}

/* At the same place of the canonical order one side has one name and the other another, or nothing: the smaller name
 * is what the other side lacks. What the other has instead is told too, since it is mostly the same unit under
 * another name. */
static int difference_of_names(const struct difference *difference, const struct manifest_unit *a,
			       const struct manifest_unit *b)
{
	bool a_has = !b || (a && strcmp(a->name, b->name) < 0);
	const struct manifest_unit *present = a_has ? a : b;
	const struct manifest_unit *instead = a_has ? b : a;
	char has[32];
	char lacks[FSDP_NAME_MAX + 64];
	char where[FSDP_NAME_MAX + 64];
	snprintf(has, sizeof(has), "it");
	if (instead) {
		snprintf(lacks, sizeof(lacks), "no such unit, but \"%s\"", instead->name);
	} else {
		snprintf(lacks, sizeof(lacks), "no such unit");
	}
	snprintf(where, sizeof(where), "unit \"%s\"", present->name);
	return difference_say(difference, where, a_has ? has : lacks, a_has ? lacks : has);
}

int manifest_difference(const struct manifest *a, uint32_t rank_a, const struct manifest *b, uint32_t rank_b,
			char *text, size_t text_size)
{
	const struct difference difference = { a, b, rank_a, rank_b, text, text_size };
	if (text_size > 0) {
		text[0] = 0;
	}
	if (strcmp(manifest_name(a), manifest_name(b)) != 0) {
		char value_a[FSDP_NAME_MAX + 3], value_b[FSDP_NAME_MAX + 3];
		snprintf(value_a, sizeof(value_a), "\"%s\"", manifest_name(a));
		snprintf(value_b, sizeof(value_b), "\"%s\"", manifest_name(b));
		return difference_say(&difference, "model name", value_a, value_b);
	}
	if (difference_of_options(&difference)) {
		return 1;
	}
	uint32_t count_a = manifest_unit_count(a), count_b = manifest_unit_count(b);
	for (uint32_t i = 0; i < count_a || i < count_b; i++) {
		const struct manifest_unit *unit_a = i < count_a ? manifest_unit(a, i) : NULL;
		const struct manifest_unit *unit_b = i < count_b ? manifest_unit(b, i) : NULL;
		if (!unit_a || !unit_b || strcmp(unit_a->name, unit_b->name) != 0) {
			return difference_of_names(&difference, unit_a, unit_b);
		}
		if (difference_of_unit(&difference, unit_a, unit_b)) {
			return 1;
		}
	}
	return 0;
}
