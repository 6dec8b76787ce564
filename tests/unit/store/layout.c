/* The sharding rule, by the numbers. */
#include "daemon/store/layout.h"

#include <criterion/criterion.h>

#include "fsdp/error.h"
#include "tests/unit/store/manifest_text.h"

static void expect_shards(uint64_t total, uint64_t element_bytes, uint32_t world, const uint64_t *counts)
{
	uint64_t next = 0;
	for (uint32_t rank = 0; rank < world; rank++) {
		struct range range;
		cr_assert_eq(layout_shard(total, element_bytes, rank, world, &range), 0);
		cr_assert_eq(range.offset, next, "%lu over %u, rank %u", total, world, rank);
		cr_assert_eq(range.count, counts[rank], "%lu over %u, rank %u", total, world, rank);
		next += range.count;
	}
	cr_assert_eq(next, total);
}

Test(layout, divides_32001_over_8_into_4001_and_a_shorter_last)
{
	expect_shards(32001, 4, 8, (uint64_t[]){ 4001, 4001, 4001, 4001, 4001, 4001, 4001, 3994 });
}

Test(layout, leaves_ranks_empty_where_there_are_too_few_elements)
{
	expect_shards(5, 4, 4, (uint64_t[]){ 2, 2, 1, 0 });
	expect_shards(3, 4, 4, (uint64_t[]){ 1, 1, 1, 0 });
	expect_shards(1, 4, 3, (uint64_t[]){ 1, 0, 0 });
	expect_shards(0, 4, 3, (uint64_t[]){ 0, 0, 0 });
	expect_shards(1, 4, 1, (uint64_t[]){ 1 });
	expect_shards(4, 4, 2, (uint64_t[]){ 2, 2 });
	expect_shards(9, 4, 8, (uint64_t[]){ 2, 2, 2, 2, 1, 0, 0, 0 });
}

Test(layout, counts_beyond_32_bits)
{
	static const uint64_t offsets[] = { 0, 1666666667, 3333333334 };
	for (uint32_t rank = 0; rank < 3; rank++) {
		struct range range;
		cr_assert_eq(layout_shard(5000000000, 2, rank, 3, &range), 0);
		cr_assert_eq(range.offset, offsets[rank]);
	}
}

Test(layout, is_right_up_to_the_largest_total)
{
	struct range range;
	cr_assert_eq(layout_shard(INT64_MAX, 1, UINT32_MAX - 1, UINT32_MAX, &range), 0);
	cr_assert_leq(range.offset + range.count, INT64_MAX);
	cr_assert_eq(layout_shard(INT64_MAX, 1, 1, 2, &range), 0);
	cr_assert_eq(range.offset, UINT64_C(1) << 62);
	cr_assert_eq(range.count, (UINT64_C(1) << 62) - 1);
}

Test(layout, refuses_what_does_not_fit_63_bits)
{
	struct range range;
	cr_assert_eq(layout_shard(UINT64_C(1) << 63, 8, 0, 3, &range), FSDP_E_OVERFLOW);
	cr_assert_eq(layout_shard(UINT64_C(1) << 63, 1, 0, 3, &range), FSDP_E_OVERFLOW);
	cr_assert_eq(layout_shard(UINT64_C(1) << 61, 4, 0, 3, &range), FSDP_E_OVERFLOW);
	cr_assert_eq(layout_shard((UINT64_C(1) << 61) - 1, 4, 0, 3, &range), 0);
}

Test(layout, refuses_a_rank_that_is_none)
{
	struct range range;
	cr_assert_eq(layout_shard(4, 4, 0, 0, &range), FSDP_E_INVALID);
	cr_assert_eq(layout_shard(4, 4, 2, 2, &range), FSDP_E_INVALID);
}

Test(layout, puts_parameters_one_after_another)
{
	struct manifest *manifest = manifest_text("m", NULL, "u: a f32[3]; b f32[]; e f32[0,8]; c f32[5]");
	struct layout_unit layout;
	cr_assert_eq(layout_unit_init(&layout, manifest_unit(manifest, 0)), 0);
	static const uint64_t offsets[] = { 0, 3, 4, 4 }, counts[] = { 3, 1, 0, 5 };
	for (int i = 0; i < 4; i++) {
		cr_assert_eq(layout.params[i].segment, 0);
		cr_assert_eq(layout.params[i].offset, offsets[i]);
		cr_assert_eq(layout.params[i].count, counts[i]);
	}
	cr_assert_eq(layout.segment_count, 1);
	cr_assert_eq(layout.segments[0].total, 9);
	cr_assert_eq(layout.full_bytes, 36);
	layout_unit_fini(&layout);
	manifest_unref(manifest);
}

Test(layout, makes_a_segment_of_every_master_dtype_in_order_of_appearance)
{
	struct manifest *manifest =
		manifest_text("m", NULL, "u: a i64[3]; b bf16[2]; c f32[5]; d i64[]; e f64[1]; f f16[4]");
	struct layout_unit layout;
	cr_assert_eq(layout_unit_init(&layout, manifest_unit(manifest, 0)), 0);
	static const struct layout_param expected[] = { { 0, 0, 3 }, { 1, 0, 2 }, { 1, 2, 5 },
							{ 0, 3, 1 }, { 2, 0, 1 }, { 1, 7, 4 } };
	for (int i = 0; i < 6; i++) {
		cr_assert_eq(layout.params[i].segment, expected[i].segment);
		cr_assert_eq(layout.params[i].offset, expected[i].offset);
		cr_assert_eq(layout.params[i].count, expected[i].count);
	}
	cr_assert_eq(layout.segment_count, 3);
	cr_assert_eq(layout.segments[0].master, FSDP_I64);
	cr_assert_eq(layout.segments[1].master, FSDP_F32);
	cr_assert_eq(layout.segments[1].total, 11);
	cr_assert_eq(layout.segments[2].master, FSDP_F64);
	cr_assert_eq(layout.full_bytes, 128 + 8); /* 32 bytes, 44 from 64 on, 8 from 128 on */
	layout_unit_fini(&layout);
	manifest_unref(manifest);
}

Test(layout, of_a_unit_without_parameters_is_empty)
{
	struct manifest *manifest = manifest_text("m", NULL, "u:");
	struct layout_unit layout;
	cr_assert_eq(layout_unit_init(&layout, manifest_unit(manifest, 0)), 0);
	cr_assert_eq(layout.segment_count, 0);
	cr_assert_eq(layout.full_bytes, 0);
	layout_unit_fini(&layout);
	manifest_unref(manifest);
}
