/* A manifest goes through its blob unchanged, and no blob, however bad, does harm. */
#include "daemon/store/manifest.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"
#include "tests/unit/store/manifest_text.h"

static const struct manifest_options options = {
	.gather_dtype = FSDP_BF16,
	.reduce_dtype = FSDP_F32,
	.op = REDUCE_SUM,
	.scale = 0.25,
	.init = INIT_FROM_RANK,
	.init_rank = 70000,
	.optimizer = { .kind = OPTIMIZER_RMSPROP, .momentum = true, .centered = true }
};

static struct manifest *sample(void)
{
	return manifest_text("model", &options, "z: a f32[2,3]; b bf16[] | a: c i64[0,8] | empty:");
}

static struct blob {
	void *data;
	size_t size;
} write_sample(void)
{
	struct blob blob;
	struct manifest *manifest = sample();
	cr_assert_eq(manifest_write(manifest, &blob.data, &blob.size), 0);
	manifest_unref(manifest);
	return blob;
}

/* A copy of exactly that size on the heap, so that the address sanitizer sees a byte that is read too far. */
static int read_copy(const void *data, size_t size, struct manifest **ret_manifest)
{
	void *copy = malloc(size ? size : 1);
	memcpy(copy, data, size);
	int code = manifest_read(copy, size, ret_manifest);
	free(copy);
	return code;
}

Test(manifest_blob, gives_the_same_manifest_back)
{
	struct manifest *manifest = sample(), *back;
	struct blob blob = write_sample();
	char text[1024];
	cr_assert_eq(read_copy(blob.data, blob.size, &back), 0);
	cr_assert_eq(manifest_difference(manifest, 0, back, 1, text, sizeof(text)), 0, "%s", text);
	cr_assert_eq(manifest_hash(manifest), manifest_hash(back));
	cr_assert_eq(manifest_get_options(back)->scale, 0.25);
	cr_assert_eq(manifest_get_options(back)->init, INIT_FROM_RANK);
	cr_assert_eq(manifest_get_options(back)->init_rank, 70000);
	cr_assert(manifest_get_options(back)->optimizer.centered && !manifest_get_options(back)->optimizer.nesterov);
	cr_assert_eq(manifest_registered(back, 0), 0, "its order of registration is the canonical one");
	manifest_unref(manifest);
	manifest_unref(back);
	free(blob.data);
}

Test(manifest_blob, that_is_cut_anywhere_is_refused)
{
	struct blob blob = write_sample();
	for (size_t size = 0; size < blob.size; size++) {
		struct manifest *manifest = NULL;
		cr_assert_eq(read_copy(blob.data, size, &manifest), FSDP_E_PROTOCOL, "%zu bytes", size);
		cr_assert_null(manifest);
	}
	free(blob.data);
}

Test(manifest_blob, with_something_behind_its_end_is_refused)
{
	struct blob blob = write_sample();
	struct manifest *manifest;
	char *longer = calloc(1, blob.size + 1);
	memcpy(longer, blob.data, blob.size);
	cr_assert_eq(manifest_read(longer, blob.size + 1, &manifest), FSDP_E_PROTOCOL);
	free(longer);
	free(blob.data);
}

/* With any bit flipped it is refused, or it is the one blob of another manifest. */
Test(manifest_blob, with_a_bit_flipped_is_refused_or_is_another_manifest)
{
	struct blob blob = write_sample();
	struct manifest *original = sample();
	unsigned char *bytes = blob.data;
	unsigned refused = 0;
	for (size_t bit = 0; bit < blob.size * 8; bit++) {
		struct manifest *manifest;
		char text[1024];
		bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
		int code = read_copy(bytes, blob.size, &manifest);
		if (code == 0) {
			struct blob again;
			cr_assert_eq(manifest_write(manifest, &again.data, &again.size), 0);
			cr_assert_eq(again.size, blob.size);
			cr_assert_arr_eq(again.data, bytes, blob.size);
			cr_assert_neq(manifest_hash(manifest), manifest_hash(original));
			cr_assert_eq(manifest_difference(original, 0, manifest, 1, text, sizeof(text)), 1, "bit %zu",
				     bit);
			free(again.data);
			manifest_unref(manifest);
		} else {
			cr_assert_eq(code, FSDP_E_PROTOCOL);
			refused++;
		}
		bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
	}
	cr_assert_gt(refused, blob.size);
	manifest_unref(original);
	free(blob.data);
}

Test(manifest_blob, with_any_byte_overwritten_is_refused_or_is_another_manifest)
{
	static const unsigned char values[] = { 0x00, 0x01, 0x7f, 0x80, 0xff };
	struct blob blob = write_sample();
	unsigned char *bytes = blob.data;
	for (size_t i = 0; i < blob.size; i++) {
		unsigned char before = bytes[i];
		for (size_t k = 0; k < sizeof(values); k++) {
			struct manifest *manifest = NULL;
			bytes[i] = values[k];
			int code = read_copy(bytes, blob.size, &manifest);
			cr_assert(code == 0 || code == FSDP_E_PROTOCOL);
			manifest_unref(manifest);
		}
		bytes[i] = before;
	}
	free(blob.data);
}

Test(manifest_blob, that_claims_four_billion_units_takes_no_memory_for_them)
{
	struct blob blob = write_sample();
	struct manifest *manifest;
	memset((char *)blob.data + 8, 0xff, 4);
	cr_assert_eq(read_copy(blob.data, blob.size, &manifest), FSDP_E_PROTOCOL);
	free(blob.data);
}
