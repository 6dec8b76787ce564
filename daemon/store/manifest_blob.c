/*
 * A sealed manifest as one block of bytes, and back. The block travels between peers and is what the hash is taken
 * of, so there is exactly one block for a manifest: little-endian, units in canonical order, no padding, nothing
 * behind the end.
 *
 *     "FSDPMAN1" | u32 units | name | u8 gather, reduce, op | f64 scale | u8 optimizer, momentum, nesterov, centered | u8 init | u32 init rank
 *     a unit:      name | u8 gather, reduce | u32 parameters
 *     a parameter: name | u8 dtype, ndim | u32 flags, group | u64 dimension (ndim times)
 *     a name:      u8 length | bytes
 *
 * The reader trusts nothing: it takes memory only for what it has seen, and hands every part to the same functions
 * that check a worker's registration. Pure.
 */
#include "daemon/store/manifest_blob.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"

#define BLOB_MAGIC "FSDPMAN1"
#define BLOB_MAGIC_BYTES 8u

static uint64_t blob_name_bytes(const char *name)
{
	return 1 + strlen(name);
}

uint64_t manifest_blob_head_bytes(const char *name)
{
	return BLOB_MAGIC_BYTES + 4 + blob_name_bytes(name) + 3 + 8 + 4 + 1 + 4;
}

uint64_t manifest_blob_unit_bytes(const char *name)
{
	return blob_name_bytes(name) + 2 + 4;
}

uint64_t manifest_blob_param_bytes(const struct manifest_param *param)
{
	return blob_name_bytes(param->name) + 2 + 4 + 4 + 8 * (uint64_t)param->ndim;
}

struct blob_writer {
	unsigned char *next;
};

static void blob_put(struct blob_writer *writer, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++) {
		*writer->next++ = (unsigned char)(value >> 8 * i);
	}
}

static void blob_put_bytes(struct blob_writer *writer, const void *data, size_t size)
{
	memcpy(writer->next, data, size);
	writer->next += size;
}

static void blob_put_name(struct blob_writer *writer, const char *name)
{
	size_t length = strlen(name);
	assert(length <= FSDP_NAME_MAX);
	blob_put(writer, length, 1);
	blob_put_bytes(writer, name, length);
}

static void blob_put_head(struct blob_writer *writer, const struct manifest *manifest)
{
	const struct manifest_options *options = manifest_get_options(manifest);
	uint64_t scale;
	memcpy(&scale, &options->scale, sizeof(scale));
	blob_put_bytes(writer, BLOB_MAGIC, BLOB_MAGIC_BYTES);
	blob_put(writer, manifest_unit_count(manifest), 4);
	blob_put_name(writer, manifest_name(manifest));
	blob_put(writer, options->gather_dtype, 1);
	blob_put(writer, options->reduce_dtype, 1);
	blob_put(writer, options->op, 1);
	blob_put(writer, scale, 8);
	blob_put(writer, options->optimizer.kind, 1);
	blob_put(writer, options->optimizer.momentum, 1);
	blob_put(writer, options->optimizer.nesterov, 1);
	blob_put(writer, options->optimizer.centered, 1);
	blob_put(writer, options->init, 1);
	blob_put(writer, options->init_rank, 4);
}

static void blob_put_unit(struct blob_writer *writer, const struct manifest_unit *unit)
{
	blob_put_name(writer, unit->name);
	blob_put(writer, unit->gather_dtype, 1);
	blob_put(writer, unit->reduce_dtype, 1);
	blob_put(writer, unit->param_count, 4);
	for (uint32_t p = 0; p < unit->param_count; p++) {
		const struct manifest_param *param = &unit->params[p];
		blob_put_name(writer, param->name);
		blob_put(writer, param->dtype, 1);
		blob_put(writer, param->ndim, 1);
		blob_put(writer, param->flags, 4);
		blob_put(writer, param->group, 4);
		for (uint32_t i = 0; i < param->ndim; i++) {
			blob_put(writer, param->shape[i], 8);
		}
	}
}

int manifest_write(const struct manifest *manifest, void **ret_data, size_t *ret_size)
{
	size_t size = manifest_blob_bytes(manifest);
	unsigned char *data = malloc(size);
	if (!data) {
		return -ENOMEM;
	}
	struct blob_writer writer = { .next = data };
	blob_put_head(&writer, manifest);
	for (uint32_t u = 0; u < manifest_unit_count(manifest); u++) {
		blob_put_unit(&writer, manifest_unit(manifest, u));
	}
	assert(writer.next == data + size);
	*ret_data = data;
	*ret_size = size;
	return 0;
}

/* What is left to read. After the first part that is not there, everything reads as 0 and `bad` stays set. */
struct blob_reader {
	const unsigned char *next;
	size_t left;
	bool bad;
};

static const unsigned char *blob_get_bytes(struct blob_reader *reader, size_t size)
{
	if (reader->bad || size > reader->left) {
		reader->bad = true;
		return NULL;
	}
	const unsigned char *data = reader->next;
	reader->next += size;
	reader->left -= size;
	return data;
}

static uint64_t blob_get(struct blob_reader *reader, unsigned bytes)
{
	const unsigned char *data = blob_get_bytes(reader, bytes);
	uint64_t value = 0;
	for (unsigned i = 0; data && i < bytes; i++) {
		value |= (uint64_t)data[i] << 8 * i;
	}
	return value;
}

/* A truth value has one form, or two blobs would be one manifest. */
static bool blob_get_bool(struct blob_reader *reader)
{
	uint64_t value = blob_get(reader, 1);
	reader->bad |= value > 1;
	return value == 1;
}

/* name has FSDP_NAME_MAX + 1 bytes. A 0 inside would shorten it silently. */
static void blob_get_name(struct blob_reader *reader, char *name)
{
	size_t length = blob_get(reader, 1);
	const unsigned char *data = blob_get_bytes(reader, length);
	name[0] = 0;
	if (!data || memchr(data, 0, length)) {
		reader->bad = true;
		return;
	}
	memcpy(name, data, length);
	name[length] = 0;
}

static int blob_read_param(struct blob_reader *reader, struct manifest *manifest)
{
	char name[FSDP_NAME_MAX + 1];
	struct manifest_param param = { .name = name };
	blob_get_name(reader, name);
	param.dtype = (enum fsdp_dtype)blob_get(reader, 1);
	param.ndim = (uint32_t)blob_get(reader, 1);
	param.flags = (uint32_t)blob_get(reader, 4);
	param.group = (uint32_t)blob_get(reader, 4);
	reader->bad |= param.ndim > FSDP_DIMS_MAX;
	for (uint32_t i = 0; !reader->bad && i < param.ndim; i++) {
		param.shape[i] = blob_get(reader, 8);
	}
	return reader->bad ? FSDP_E_PROTOCOL : manifest_add_param(manifest, &param);
}

/* previous is the name of the unit before, and becomes this one's. */
static int blob_read_unit(struct blob_reader *reader, struct manifest *manifest, uint32_t index, char *previous)
{
	char name[FSDP_NAME_MAX + 1];
	blob_get_name(reader, name);
	enum fsdp_dtype gather = (enum fsdp_dtype)blob_get(reader, 1);
	enum fsdp_dtype reduce = (enum fsdp_dtype)blob_get(reader, 1);
	uint32_t count = (uint32_t)blob_get(reader, 4);
	if (reader->bad || (index > 0 && strcmp(previous, name) >= 0)) {
		return FSDP_E_PROTOCOL;
	}
	strcpy(previous, name);
	int code = manifest_add_unit(manifest, name);
	if (code == 0) {
		code = manifest_set_unit_options(manifest, index, gather, reduce);
	}
	for (uint32_t p = 0; code == 0 && p < count; p++) {
		code = blob_read_param(reader, manifest);
	}
	return code;
}

static int blob_read_head(struct blob_reader *reader, uint32_t *ret_unit_count, struct manifest **ret_manifest)
{
	const unsigned char *magic = blob_get_bytes(reader, BLOB_MAGIC_BYTES);
	if (!magic || memcmp(magic, BLOB_MAGIC, BLOB_MAGIC_BYTES) != 0) {
		return FSDP_E_PROTOCOL;
	}
	char name[FSDP_NAME_MAX + 1];
	struct manifest_options options = { 0 };
	uint32_t unit_count = (uint32_t)blob_get(reader, 4);
	blob_get_name(reader, name);
	options.gather_dtype = (enum fsdp_dtype)blob_get(reader, 1);
	options.reduce_dtype = (enum fsdp_dtype)blob_get(reader, 1);
	options.op = (enum reduce_op)blob_get(reader, 1);
	uint64_t scale = blob_get(reader, 8);
	memcpy(&options.scale, &scale, sizeof(scale));
	options.optimizer.kind = (enum optimizer_kind)blob_get(reader, 1);
	options.optimizer.momentum = blob_get_bool(reader);
	options.optimizer.nesterov = blob_get_bool(reader);
	options.optimizer.centered = blob_get_bool(reader);
	options.init = (enum init_policy)blob_get(reader, 1);
	options.init_rank = (uint32_t)blob_get(reader, 4);
	/* manifest_new would set these right; a writer never sends them. */
	if (reader->bad || options.scale == 0 || (options.op == REDUCE_MEAN && options.scale != 1)) {
		return FSDP_E_PROTOCOL;
	}
	*ret_unit_count = unit_count;
	return manifest_new(name, &options, ret_manifest);
}

int manifest_read(const void *data, size_t size, struct manifest **ret_manifest)
{
	if (size > MANIFEST_BYTES_MAX) {
		return FSDP_E_PROTOCOL;
	}
	struct blob_reader reader = { .next = data, .left = size };
	struct manifest *manifest = NULL;
	uint32_t unit_count = 0;
	char previous[FSDP_NAME_MAX + 1] = "";
	int code = blob_read_head(&reader, &unit_count, &manifest);
	for (uint32_t u = 0; code == 0 && u < unit_count; u++) {
		code = blob_read_unit(&reader, manifest, u, previous);
	}
	if (code == 0 && reader.left > 0) {
		code = FSDP_E_PROTOCOL;
	}
	if (code == 0) {
		code = manifest_seal(manifest);
	}
	if (code < 0) {
		manifest_unref(manifest);
		return code == -ENOMEM ? code : FSDP_E_PROTOCOL;
	}
	*ret_manifest = manifest;
	return 0;
}
