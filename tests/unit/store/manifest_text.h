/* Manifests from short texts, so that a test shows the whole model in one line. */
#ifndef TESTS_UNIT_STORE_MANIFEST_TEXT_H
#define TESTS_UNIT_STORE_MANIFEST_TEXT_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/math/dtype.h"
#include "daemon/store/manifest.h"

static inline enum fsdp_dtype manifest_text_dtype(const char *name)
{
	for (uint32_t number = 1; dtype_is_valid(number); number++) {
		if (strcmp(dtype_name((enum fsdp_dtype)number), name) == 0) {
			return (enum fsdp_dtype)number;
		}
	}
	fprintf(stderr, "manifest_text: no dtype %s\n", name);
	abort();
}

/* "a f32[4,8]" */
static inline void manifest_text_param(struct manifest *manifest, const char *text)
{
	char name[64], dtype[8], shape[128] = "";
	struct manifest_param param = { .name = name };
	cr_assert_geq(sscanf(text, " %63s %7[^[][%127[0-9,]", name, dtype, shape), 2, "%s", text);
	param.dtype = manifest_text_dtype(dtype);
	char *state;
	for (char *at = strtok_r(shape, ",", &state); at; at = strtok_r(NULL, ",", &state)) {
		param.shape[param.ndim++] = strtoull(at, NULL, 10);
	}
	cr_assert_eq(manifest_add_param(manifest, &param), 0, "%s", manifest_error(manifest));
}

/* "u0: a f32[4]; b f32[6] | u1: c f32[]", sealed. options may be NULL. */
static inline struct manifest *manifest_text(const char *name, const struct manifest_options *options, const char *text)
{
	static const struct manifest_options none;
	struct manifest *manifest;
	cr_assert_eq(manifest_new(name, options ? options : &none, &manifest), 0);
	char *copy = strdup(text);
	char *unit_state, *param_state;
	for (char *unit = strtok_r(copy, "|", &unit_state); unit; unit = strtok_r(NULL, "|", &unit_state)) {
		char *colon = strchr(unit, ':');
		*colon = 0;
		unit += strspn(unit, " ");
		cr_assert_eq(manifest_add_unit(manifest, unit), 0, "%s", manifest_error(manifest));
		for (char *param = strtok_r(colon + 1, ";", &param_state); param;
		     param = strtok_r(NULL, ";", &param_state)) {
			if (param[strspn(param, " ")]) {
				manifest_text_param(manifest, param);
			}
		}
	}
	free(copy);
	cr_assert_eq(manifest_seal(manifest), 0);
	return manifest;
}

#endif
