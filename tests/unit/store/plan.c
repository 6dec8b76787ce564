/* Where everything of a model lies on one rank. */
#include "daemon/store/plan.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "fsdp/error.h"
#include "tests/unit/store/manifest_text.h"

static const struct manifest_options adamw = { .optimizer = { .kind = OPTIMIZER_ADAMW } };

static struct plan *make(const char *text, const struct manifest_options *options, uint32_t rank, uint32_t world)
{
	struct manifest *manifest = manifest_text("m", options, text);
	struct plan *plan;
	cr_assert_eq(plan_new(manifest, rank, world, &plan), 0);
	manifest_unref(manifest);
	return plan;
}

Test(plan, knows_its_shard_and_everybody_elses)
{
	struct plan *plan = make("b: w f32[32001] | a: s f32[]", NULL, 7, 8);
	cr_assert_eq(plan_rank(plan), 7);
	cr_assert_eq(plan_world_size(plan), 8);
	cr_assert_eq(plan_unit_count(plan), 2);
	cr_assert_str_eq(manifest_unit(plan_manifest(plan), 1)->name, "b");
	cr_assert_eq(plan_unit(plan, 1)->shard.offset, 28007);
	cr_assert_eq(plan_unit(plan, 1)->shard.count, 3994);
	cr_assert_eq(plan_unit(plan, 1)->shard_bytes, 15976);
	cr_assert_eq(plan_unit(plan, 0)->shard.count, 0);
	cr_assert_eq(plan_shard_of(plan, 0, 0).count, 1);
	cr_assert_eq(plan_shard_of(plan, 1, 3).offset, 12003);
	cr_assert_eq(plan_shard_of(plan, 1, 3).count, 4001);
	plan_unref(plan);
	plan_unref(NULL);
}

Test(plan, gives_every_unit_memory_of_its_own)
{
	struct plan *plan = make("a: w f32[100] | b: w f32[7] | c: w f32[0,8] | d: w f32[2048]", &adamw, 0, 2);
	cr_assert_eq(plan_allocate(plan, 65536, 32768, true), 0);
	cr_assert_eq(plan_memory(plan)->gathers.bytes, 65536);
	cr_assert_eq(plan_memory(plan)->grads.bytes, 32768);
	float *(*const places[])(const struct plan *, uint32_t) = { plan_master, plan_gradient, plan_staging };
	for (uint32_t u = 0; u < 4; u++) {
		size_t bytes = plan_unit(plan, u)->shard_bytes;
		cr_assert_eq(plan_unit(plan, u)->shard_offset % 64, 0);
		for (size_t k = 0; k < 3; k++) {
			memset(places[k](plan, u), (int)(16 * u + k + 1), bytes);
		}
		memset(plan_moment(plan, u, 0), (int)(16 * u + 4), bytes);
		memset(plan_moment(plan, u, 1), (int)(16 * u + 5), bytes);
		cr_assert_null(plan_moment(plan, u, 2));
	}
	for (uint32_t u = 0; u < 4; u++) {
		const unsigned char *all[] = { (void *)plan_master(plan, u), (void *)plan_gradient(plan, u),
					       (void *)plan_staging(plan, u), (void *)plan_moment(plan, u, 0),
					       (void *)plan_moment(plan, u, 1) };
		for (size_t k = 0; k < 5; k++) {
			for (size_t i = 0; i < plan_unit(plan, u)->shard_bytes; i++) {
				cr_assert_eq(all[k][i], 16 * u + k + 1, "unit %u, place %zu, byte %zu", u, k, i);
			}
		}
	}
	plan_unref(plan);
}

Test(plan, with_shared_memory_has_descriptors_that_workers_can_map)
{
	struct plan *plan = make("a: w f32[100]", NULL, 0, 1);
	cr_assert_eq(plan_allocate(plan, 4096, 4096, false), 0);
	const struct plan_memory *memory = plan_memory(plan);
	cr_assert_geq(memory->masters.fd, 0);
	cr_assert_geq(memory->grads.fd, 0);
	cr_assert_eq(memory->moments.fd, -1, "without an optimizer there are no moments");
	cr_assert_null(plan_moment(plan, 0, 0));
	plan_unref(plan);
}

Test(plan, sizes_its_pools_in_pages)
{
	struct plan *plan = make("a: w f32[1025] | b: w f32[1024] | c: w f32[0]", &adamw, 0, 4);
	struct plan_sizes sizes = plan_get_sizes(plan);
	cr_assert_eq(sizes.largest_unit, 8192);
	cr_assert_eq(sizes.all_units, 8192 + 4096 + 4096, "a slot of nothing is a page too");
	cr_assert_geq(sizes.shards, 257 * 4 + 256 * 4);
	cr_assert_geq(sizes.moments, 2 * (257 * 4 + 256 * 4));
	plan_unref(plan);
}

Test(plan, does_not_let_large_buffers_share_their_place_in_2_mib)
{
	struct plan *plan = make("a: w f32[1048576] | b: w f32[1048576] | c: w f32[1048576]", &adamw, 1, 2);
	for (uint32_t u = 0; u < 2; u++) {
		uint64_t apart = plan_unit(plan, u + 1)->shard_offset - plan_unit(plan, u)->shard_offset;
		cr_assert_neq(apart % (2u << 20), 0);
		cr_assert_neq(apart % 4096, 0);
	}
	cr_assert_eq(plan_allocate(plan, 0, 0, true), 0);
	for (uint32_t u = 0; u < 3; u++) {
		uintptr_t p = (uintptr_t)plan_master(plan, u), m = (uintptr_t)plan_moment(plan, u, 0),
			  v = (uintptr_t)plan_moment(plan, u, 1);
		cr_assert_neq(m % 4096, v % 4096);
		cr_assert_neq(p % 4096, m % 4096);
	}
	plan_unref(plan);
}

Test(plan, refuses_what_the_engine_cannot_move)
{
	static const char *const texts[] = { "u: a f64[2]", "u: a bf16[2]", "u: a f32[2]; b i64[2]", "u: a i8[0]" };
	struct plan *plan = NULL;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct manifest *manifest = manifest_text("m", NULL, texts[i]);
		cr_assert_eq(plan_new(manifest, 0, 2, &plan), FSDP_E_DTYPE, "%s", texts[i]);
		manifest_unref(manifest);
	}
	const struct manifest_options half = { .gather_dtype = FSDP_BF16 };
	struct manifest *manifest = manifest_text("m", &half, "u: a f32[2]");
	cr_assert_eq(plan_new(manifest, 0, 2, &plan), FSDP_E_DTYPE);
	manifest_unref(manifest);
	cr_assert_null(plan);
}

Test(plan, refuses_a_rank_that_is_none)
{
	struct manifest *manifest = manifest_text("m", NULL, "u: a f32[2]");
	struct plan *plan;
	cr_assert_eq(plan_new(manifest, 2, 2, &plan), FSDP_E_INVALID);
	cr_assert_eq(plan_new(manifest, 0, 0, &plan), FSDP_E_INVALID);
	manifest_unref(manifest);
}

Test(plan, without_units_is_a_plan)
{
	struct plan *plan = make("", NULL, 0, 2);
	cr_assert_eq(plan_unit_count(plan), 0);
	cr_assert_eq(plan_allocate(plan, 0, 0, false), 0);
	plan_unref(plan_ref(plan));
	plan_unref(plan);
}

Test(plan, that_finds_no_memory_keeps_none)
{
	struct plan *plan = make("a: w f32[100]", &adamw, 0, 1);
	cr_assert_eq(plan_allocate(plan, UINT64_C(1) << 46, 4096, false), -ENOMEM);
	cr_assert_null(plan_memory(plan)->masters.base);
	cr_assert_eq(plan_allocate(plan, 4096, 4096, false), 0, "and can be tried again with less");
	plan_unref(plan);
}
