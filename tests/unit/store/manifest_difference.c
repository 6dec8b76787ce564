/* What people read when ranks disagree, word by word. */
#include "daemon/store/manifest.h"

#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/store/manifest_text.h"

static void compare(struct manifest *a, struct manifest *b, const char *expected)
{
	char text[1024] = "before";
	cr_assert_eq(manifest_difference(a, 0, b, 1, text, sizeof(text)), expected[0] ? 1 : 0);
	cr_assert_str_eq(text, expected);
	cr_assert_eq(manifest_hash(a) == manifest_hash(b), !expected[0]);
	manifest_unref(a);
	manifest_unref(b);
}

static void expect(const char *a, const char *b, const char *expected)
{
	compare(manifest_text("m", NULL, a), manifest_text("m", NULL, b), expected);
}

static void expect_options(struct manifest_options a, struct manifest_options b, const char *expected)
{
	compare(manifest_text("m", &a, "u0: a f32[4]"), manifest_text("m", &b, "u0: a f32[4]"), expected);
}

Test(difference, of_equal_manifests_is_empty)
{
	expect("u0: a f32[4]; b f32[6] | u1: c f32[]", "u1: c f32[] | u0: a f32[4]; b f32[6]", "");
	expect("u0:", "u0:", "");
}

Test(difference, names_unit_entry_and_both_sides)
{
	expect("u0: a f32[4]; b f32[6]", "u0: b f32[6]; a f32[4]",
	       "unit \"u0\" entry 0: rank 0 has a f32[4], rank 1 has b f32[6]");
	expect("u0: a f32[4]", "u0: a f32[5]", "unit \"u0\" entry 0: rank 0 has a f32[4], rank 1 has a f32[5]");
	expect("u0: a f32[4]", "u0: a bf16[4]", "unit \"u0\" entry 0: rank 0 has a f32[4], rank 1 has a bf16[4]");
	expect("u0: a f32[4,8]", "u0: a f32[32]", "unit \"u0\" entry 0: rank 0 has a f32[4,8], rank 1 has a f32[32]");
	expect("u0: a f32[1]", "u0: a f32[]", "unit \"u0\" entry 0: rank 0 has a f32[1], rank 1 has a f32[]");
	expect("u0: a f32[4] | u1: b f32[2]; c f32[3]", "u1: b f32[2]; d f32[3] | u0: a f32[4]",
	       "unit \"u1\" entry 1: rank 0 has c f32[3], rank 1 has d f32[3]");
}

Test(difference, tells_where_one_unit_is_longer)
{
	expect("u0: a f32[4]; b f32[6]", "u0: a f32[4]",
	       "unit \"u0\" entry 1: rank 0 has b f32[6], rank 1 has nothing");
	expect("u0:", "u0: a f32[4]", "unit \"u0\" entry 0: rank 0 has nothing, rank 1 has a f32[4]");
}

Test(difference, names_a_unit_that_one_side_lacks)
{
	expect("model_1: a f32[4]", "model: a f32[4]",
	       "unit \"model\": rank 0 has no such unit, but \"model_1\", rank 1 has it");
	expect("a: | b: | c:", "a: | c:", "unit \"b\": rank 0 has it, rank 1 has no such unit, but \"c\"");
	expect("a:", "a: | b:", "unit \"b\": rank 0 has no such unit, rank 1 has it");
	expect("a: | b:", "a:", "unit \"b\": rank 0 has it, rank 1 has no such unit");
}

Test(difference, names_the_option)
{
	struct manifest_options base = { 0 };
	struct manifest_options other = { .gather_dtype = FSDP_BF16 };
	expect_options(base, other, "option gather dtype: rank 0 has none set, rank 1 has bf16");
	expect_options((struct manifest_options){ .reduce_dtype = FSDP_F16 },
		       (struct manifest_options){ .reduce_dtype = FSDP_BF16 },
		       "option reduce dtype: rank 0 has f16, rank 1 has bf16");
	expect_options(base, (struct manifest_options){ .op = REDUCE_SUM },
		       "option reduce op: rank 0 has mean, rank 1 has sum");
	expect_options((struct manifest_options){ .op = REDUCE_SUM, .scale = 0.5 },
		       (struct manifest_options){ .op = REDUCE_SUM, .scale = 2 },
		       "option scale: rank 0 has 0.5, rank 1 has 2");
	expect_options((struct manifest_options){ .optimizer = { .kind = OPTIMIZER_SGD } },
		       (struct manifest_options){ .optimizer = { .kind = OPTIMIZER_ADAMW } },
		       "option optimizer: rank 0 has sgd, rank 1 has adamw");
	expect_options((struct manifest_options){ .optimizer = { .kind = OPTIMIZER_SGD } },
		       (struct manifest_options){ .optimizer = { .kind = OPTIMIZER_SGD, .momentum = true } },
		       "option momentum: rank 0 has off, rank 1 has on");
	expect_options(
		(struct manifest_options){ .optimizer = { .kind = OPTIMIZER_SGD, .momentum = true, .nesterov = true } },
		(struct manifest_options){ .optimizer = { .kind = OPTIMIZER_SGD, .momentum = true } },
		"option nesterov: rank 0 has on, rank 1 has off");
	expect_options((struct manifest_options){ .optimizer = { .kind = OPTIMIZER_RMSPROP } },
		       (struct manifest_options){ .optimizer = { .kind = OPTIMIZER_LION } },
		       "option optimizer: rank 0 has rmsprop, rank 1 has lion");
	expect_options((struct manifest_options){ .optimizer = { .kind = OPTIMIZER_RMSPROP, .centered = true } },
		       (struct manifest_options){ .optimizer = { .kind = OPTIMIZER_RMSPROP } },
		       "option centered: rank 0 has on, rank 1 has off");
	expect_options(base, (struct manifest_options){ .init = INIT_ZEROS },
		       "option init: rank 0 has verify, rank 1 has zeros");
	expect_options((struct manifest_options){ .init = INIT_FROM_RANK },
		       (struct manifest_options){ .init = INIT_FROM_RANK, .init_rank = 3 },
		       "option init: rank 0 has from rank 0, rank 1 has from rank 3");
}

Test(difference, names_the_model_and_the_ranks_that_it_was_given)
{
	struct manifest *a = manifest_text("m", NULL, "u0:"), *b = manifest_text("n", NULL, "u0:");
	char text[1024];
	cr_assert_eq(manifest_difference(a, 3, b, 7, text, sizeof(text)), 1);
	cr_assert_str_eq(text, "model name: rank 3 has \"m\", rank 7 has \"n\"");
	manifest_unref(a);
	manifest_unref(b);
}

Test(difference, names_the_group_of_a_parameter)
{
	struct manifest *sides[2];
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(manifest_new("m", &(struct manifest_options){ 0 }, &sides[i]), 0);
		cr_assert_eq(manifest_add_unit(sides[i], "u0"), 0);
		cr_assert_eq(
			manifest_add_param(sides[i],
					   &(struct manifest_param){ .name = "a", .dtype = FSDP_F32, .group = 7 * i }),
			0);
		cr_assert_eq(manifest_seal(sides[i]), 0);
	}
	compare(sides[0], sides[1], "unit \"u0\" entry 0: rank 0 has a f32[], rank 1 has a f32[] group 7");
}

Test(difference, names_an_option_of_a_unit)
{
	struct manifest *sides[2];
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(manifest_new("m", &(struct manifest_options){ 0 }, &sides[i]), 0);
		cr_assert_eq(manifest_add_unit(sides[i], "u0"), 0);
		cr_assert_eq(manifest_set_unit_options(sides[i], 0, i ? FSDP_F16 : 0, FSDP_F32), 0);
		cr_assert_eq(manifest_seal(sides[i]), 0);
	}
	compare(sides[0], sides[1], "unit \"u0\" gather dtype: rank 0 has none set, rank 1 has f16");
}

Test(difference, is_cut_to_the_room_there_is)
{
	struct manifest *a = manifest_text("m", NULL, "u0: a f32[4]"), *b = manifest_text("m", NULL, "u0: b f32[6]");
	char text[10];
	cr_assert_eq(manifest_difference(a, 0, b, 1, text, sizeof(text)), 1);
	cr_assert_str_eq(text, "unit \"u0\"");
	manifest_unref(a);
	manifest_unref(b);
}
