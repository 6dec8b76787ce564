/* What a manifest takes, refuses and orders. */
#include "daemon/store/manifest.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fsdp/error.h"
#include "tests/unit/store/manifest_text.h"

static struct manifest *open_manifest(void)
{
	struct manifest *manifest;
	cr_assert_eq(manifest_new("m", &(struct manifest_options){ 0 }, &manifest), 0);
	return manifest;
}

static int add(struct manifest *manifest, char *name, uint32_t dtype, uint32_t ndim, uint64_t d0, uint64_t d1)
{
	const struct manifest_param param = {
		.name = name, .dtype = (enum fsdp_dtype)dtype, .ndim = ndim, .shape = { d0, d1 }
	};
	return manifest_add_param(manifest, &param);
}

Test(manifest, keeps_what_it_was_told_and_two_orders)
{
	struct manifest *manifest = manifest_text("m", NULL, "z: a f32[2,3]; b bf16[] | a: c i64[0,8]");
	cr_assert_str_eq(manifest_name(manifest), "m");
	cr_assert_eq(manifest_unit_count(manifest), 2);
	cr_assert_eq(manifest_canonical(manifest, 0), 1);
	cr_assert_eq(manifest_canonical(manifest, 1), 0);
	cr_assert_eq(manifest_registered(manifest, 0), 1);
	cr_assert_str_eq(manifest_unit(manifest, 0)->name, "a");
	const struct manifest_unit *z = manifest_unit(manifest, 1);
	cr_assert_str_eq(z->name, "z");
	cr_assert_eq(z->param_count, 2);
	cr_assert_str_eq(z->params[0].name, "a");
	cr_assert_eq(manifest_param_count(&z->params[0]), 6);
	cr_assert_eq(manifest_param_count(&z->params[1]), 1);
	cr_assert_eq(manifest_param_count(&manifest_unit(manifest, 0)->params[0]), 0);
	manifest_unref(manifest);
}

Test(manifest, orders_names_by_bytes_and_not_by_sign)
{
	struct manifest *manifest = manifest_text("m", NULL, "\xc3\xa4: | z: | Z: | model_1: | model:");
	const char *const expected[] = { "Z", "model", "model_1", "z", "\xc3\xa4" };
	for (uint32_t i = 0; i < 5; i++) {
		cr_assert_str_eq(manifest_unit(manifest, i)->name, expected[i]);
	}
	manifest_unref(manifest);
}

Test(manifest, hash_does_not_depend_on_the_order_of_units_but_on_everything_else)
{
	const struct manifest_options sum = { .op = REDUCE_SUM, .scale = 2 };
	struct manifest *base = manifest_text("m", NULL, "u0: a f32[4]; b f32[6] | u1: c f32[]");
	struct manifest *same = manifest_text("m", NULL, "u1: c f32[] | u0: a f32[4]; b f32[6]");
	cr_assert_eq(manifest_hash(base), manifest_hash(same));
	struct manifest *others[] = {
		manifest_text("n", NULL, "u0: a f32[4]; b f32[6] | u1: c f32[]"),
		manifest_text("m", &sum, "u0: a f32[4]; b f32[6] | u1: c f32[]"),
		manifest_text("m", NULL, "u0: b f32[6]; a f32[4] | u1: c f32[]"),
		manifest_text("m", NULL, "u0: a f32[4]; b f32[6] | u2: c f32[]"),
		manifest_text("m", NULL, "u0: a f32[4]; b f32[6]; c f32[] | u1:"),
		manifest_text("m", NULL, "u0: a f32[5]; b f32[6] | u1: c f32[]"),
		manifest_text("m", NULL, "u0: a f64[4]; b f32[6] | u1: c f32[]"),
		manifest_text("m", NULL, "u0: a f32[4]; b f32[6] | u1: c f32[1]"),
		manifest_text("m", NULL, "u0: a f32[4]; b f32[6]"),
	};
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		cr_assert_neq(manifest_hash(base), manifest_hash(others[i]), "case %zu", i);
		manifest_unref(others[i]);
	}
	manifest_unref(base);
	manifest_unref(same);
}

Test(manifest, refuses_options_that_make_no_sense)
{
	const struct manifest_options bad[] = {
		{ .gather_dtype = FSDP_I32 },
		{ .reduce_dtype = (enum fsdp_dtype)77 },
		{ .op = (enum reduce_op)2 },
		{ .op = REDUCE_SUM, .scale = NAN },
		{ .optimizer = { .kind = (enum optimizer_kind)9 } },
		{ .optimizer = { .kind = OPTIMIZER_SGD, .nesterov = true } },
		{ .init = (enum init_policy)3 },
		{ .init_rank = 1 },
		{ .init = INIT_ZEROS, .init_rank = 1 },
	};
	struct manifest *manifest = NULL;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		cr_assert_eq(manifest_new("m", &bad[i], &manifest), FSDP_E_INVALID, "case %zu", i);
	}
	cr_assert_eq(manifest_new("", &(struct manifest_options){ 0 }, &manifest), FSDP_E_INVALID);
	cr_assert_null(manifest);
}

Test(manifest, of_a_mean_has_no_scale_and_that_of_a_sum_is_1_by_default)
{
	const struct manifest_options given[] = { { .scale = 5 },
						  { .op = REDUCE_SUM },
						  { .op = REDUCE_SUM, .scale = 0.5 } };
	const double expected[] = { 1, 1, 0.5 };
	for (size_t i = 0; i < 3; i++) {
		struct manifest *manifest;
		cr_assert_eq(manifest_new("m", &given[i], &manifest), 0);
		cr_assert_eq(manifest_get_options(manifest)->scale, expected[i]);
		manifest_unref(manifest);
	}
}

Test(manifest, says_why_it_refuses_a_unit_or_a_parameter)
{
	struct manifest *manifest = open_manifest();
	cr_assert_eq(add(manifest, "a", FSDP_F32, 0, 0, 0), FSDP_E_STATE);
	cr_assert_eq(manifest_add_unit(manifest, ""), FSDP_E_INVALID);
	cr_assert_str_eq(manifest_error(manifest), "unit: the name is empty");
	cr_assert_eq(manifest_add_unit(manifest, "a\tb"), FSDP_E_INVALID);
	cr_assert_str_eq(manifest_error(manifest), "unit: the name has a control character");
	cr_assert_eq(manifest_add_unit(manifest, "u0"), 0);
	cr_assert_eq(manifest_add_unit(manifest, "u0"), FSDP_E_INVALID);
	cr_assert_str_eq(manifest_error(manifest), "unit \"u0\" is there already");
	cr_assert_eq(add(manifest, "a", FSDP_F32, 1, 4, 0), 0);
	cr_assert_eq(add(manifest, "a", FSDP_F32, 1, 5, 0), FSDP_E_INVALID);
	cr_assert_str_eq(manifest_error(manifest), "unit \"u0\": a is there already");
	cr_assert_eq(add(manifest, "b", 99, 0, 0, 0), FSDP_E_INVALID);
	cr_assert_str_eq(manifest_error(manifest), "unit \"u0\": b: there is no dtype 99");
	cr_assert_eq(add(manifest, "b", FSDP_F32, 9, 1, 1), FSDP_E_INVALID);
	cr_assert_str_eq(manifest_error(manifest), "unit \"u0\": b has 9 dimensions, at most 8 are possible");
	cr_assert_eq(
		manifest_add_param(manifest, &(struct manifest_param){ .name = "b", .dtype = FSDP_F32, .flags = 0x80 }),
		FSDP_E_INVALID);
	cr_assert_str_eq(manifest_error(manifest), "unit \"u0\": b has unknown flags 0x80");
	cr_assert_eq(manifest_set_unit_options(manifest, 0, FSDP_BOOL, 0), FSDP_E_INVALID);
	cr_assert_eq(manifest_set_unit_options(manifest, 1, 0, 0), FSDP_E_INVALID);
	cr_assert_eq(manifest_set_unit_options(manifest, 0, FSDP_BF16, FSDP_F16), 0);
	/* What was refused left nothing behind. */
	cr_assert_eq(manifest_seal(manifest), 0);
	cr_assert_eq(manifest_unit_count(manifest), 1);
	cr_assert_eq(manifest_unit(manifest, 0)->param_count, 1);
	cr_assert_eq(manifest_unit(manifest, 0)->gather_dtype, FSDP_BF16);
	manifest_unref(manifest);
}

Test(manifest, lets_the_same_parameter_name_be_in_two_units)
{
	struct manifest *manifest = manifest_text("m", NULL, "u0: w f32[2] | u1: w f32[2]");
	cr_assert_eq(manifest_unit_count(manifest), 2);
	manifest_unref(manifest);
}

Test(manifest, that_is_sealed_takes_nothing_more)
{
	struct manifest *manifest = manifest_text("m", NULL, "u0: w f32[2]");
	cr_assert_eq(manifest_add_unit(manifest, "u1"), FSDP_E_STATE);
	cr_assert_eq(add(manifest, "b", FSDP_F32, 0, 0, 0), FSDP_E_STATE);
	cr_assert_eq(manifest_set_unit_options(manifest, 0, FSDP_F32, FSDP_F32), FSDP_E_STATE);
	cr_assert_eq(manifest_seal(manifest), FSDP_E_STATE);
	manifest_unref(manifest);
}

Test(manifest, checks_every_product)
{
	struct manifest *manifest = open_manifest();
	cr_assert_eq(manifest_add_unit(manifest, "u0"), 0);
	cr_assert_eq(add(manifest, "a", FSDP_F64, 1, UINT64_C(1) << 63, 0), FSDP_E_OVERFLOW);
	cr_assert_eq(add(manifest, "a", FSDP_I8, 1, UINT64_C(1) << 63, 0), FSDP_E_OVERFLOW);
	cr_assert_eq(add(manifest, "a", FSDP_F32, 2, UINT64_C(1) << 32, UINT64_C(1) << 32), FSDP_E_OVERFLOW);
	cr_assert_eq(add(manifest, "a", FSDP_F32, 1, UINT64_C(1) << 61, 0), FSDP_E_OVERFLOW);
	cr_assert_eq(add(manifest, "a", FSDP_BF16, 1, UINT64_C(1) << 61, 0), FSDP_E_OVERFLOW, "its master is f32");
	cr_assert_eq(add(manifest, "a", FSDP_F32, 1, UINT64_C(1) << 60, 0), 0);
	cr_assert_eq(add(manifest, "b", FSDP_F32, 1, UINT64_C(1) << 60, 0), FSDP_E_OVERFLOW,
		     "together they do not fit");
	cr_assert_str_eq(manifest_error(manifest), "unit \"u0\": b makes the model exceed 2^63 bytes");
	cr_assert_eq(add(manifest, "c", FSDP_F32, 2, UINT64_MAX, 0), 0, "no elements, whatever the other dimension");
	manifest_unref(manifest);
}

Test(manifest, has_a_limit_on_units)
{
	struct manifest *manifest = open_manifest();
	char name[16];
	for (uint32_t i = 0; i < MANIFEST_UNITS_MAX; i++) {
		snprintf(name, sizeof(name), "u%u", i);
		cr_assert_eq(manifest_add_unit(manifest, name), 0);
	}
	cr_assert_eq(manifest_add_unit(manifest, "one more"), FSDP_E_OVERFLOW);
	cr_assert_eq(manifest_seal(manifest), 0);
	manifest_unref(manifest);
}

Test(manifest, has_a_limit_on_the_size_of_its_description)
{
	struct manifest *manifest = open_manifest();
	char name[256];
	cr_assert_eq(manifest_add_unit(manifest, "u0"), 0);
	int code = 0;
	for (uint32_t i = 0; code == 0 && i < MANIFEST_PARAMS_MAX; i++) {
		snprintf(name, sizeof(name), "%0255u", i);
		code = add(manifest, name, FSDP_F32, 0, 0, 0);
	}
	cr_assert_eq(code, FSDP_E_OVERFLOW);
	manifest_unref(manifest);
}

Test(manifest, describes_a_parameter)
{
	char text[64];
	manifest_param_describe(&(struct manifest_param){ .dtype = FSDP_F32, .ndim = 2, .shape = { 4, 8 } }, text,
				sizeof(text));
	cr_assert_str_eq(text, "f32[4,8]");
	manifest_param_describe(&(struct manifest_param){ .dtype = FSDP_BF16 }, text, sizeof(text));
	cr_assert_str_eq(text, "bf16[]");
	manifest_param_describe(&(struct manifest_param){ .dtype = FSDP_BF16 }, text, 3);
	cr_assert_str_eq(text, "bf");
}
