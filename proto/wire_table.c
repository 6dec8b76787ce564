/*
 * Walks the tables of the codecs in both directions. Owns the blocks of rows that it makes and frees; no state besides,
 * any thread. It neither packs nor unpacks, and knows no message by name.
 */
#include "proto/wire_table.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"
#include "proto/wire_text.h"

static const void *at_const(const void *base, size_t offset)
{
	return (const char *)base + offset;
}
static void *at(void *base, size_t offset)
{
	return (char *)base + offset;
}

static int text_write(const struct wire_field *field, const char *text, void *wire)
{
	size_t size = strnlen(text, field->size);
	size_t sound = wire_text_prefix(text, size);
	ProtobufCBinaryData bytes = { 0 };

	if (size == field->size) {
		if (field->kind == WIRE_NAME)
			return FSDP_E_OVERFLOW;
		sound = wire_text_prefix(text, field->size - 1);
	} else if (sound != size && field->kind == WIRE_NAME) {
		return FSDP_E_INVALID;
	}
	bytes.len = sound;
	bytes.data = (uint8_t *)(uintptr_t)text; /* packing only reads it */
	memcpy(wire, &bytes, sizeof bytes);
	return 0;
}

static int field_write(const struct wire_field *field, const void *plain, void *wire)
{
	switch (field->kind) {
	case WIRE_BOOL: {
		protobuf_c_boolean value = *(const bool *)plain;
		memcpy(wire, &value, sizeof value);
		return 0;
	}
	case WIRE_U32: {
		uint32_t small;
		memcpy(&small, plain, sizeof small);
		uint64_t value = small;
		if (value > field->max)
			return FSDP_E_INVALID;
		memcpy(wire, &value, sizeof value);
		return 0;
	}
	case WIRE_CODE: {
		int32_t code = *(const int32_t *)plain;
		int64_t value = code;
		if (code > 0 || code < WIRE_CODE_MIN)
			return FSDP_E_INVALID;
		memcpy(wire, &value, sizeof value);
		return 0;
	}
	case WIRE_U64:
	case WIRE_I64:
	case WIRE_DOUBLE:
		memcpy(wire, plain, 8);
		return 0;
	case WIRE_TEXT:
	case WIRE_NAME:
		return text_write(field, plain, wire);
	}
	abort();
}

static int field_read(const struct wire_field *field, const void *wire, void *plain)
{
	switch (field->kind) {
	case WIRE_BOOL: {
		bool value = *(const protobuf_c_boolean *)wire != 0;
		memcpy(plain, &value, sizeof value);
		return 0;
	}
	case WIRE_U32: {
		uint64_t value = *(const uint64_t *)wire;
		if (value > field->max)
			return FSDP_E_PROTOCOL;
		uint32_t small = (uint32_t)value;
		memcpy(plain, &small, sizeof small);
		return 0;
	}
	case WIRE_CODE: {
		int64_t value = *(const int64_t *)wire;
		if (value > 0 || value < WIRE_CODE_MIN)
			return FSDP_E_PROTOCOL;
		int32_t code = (int32_t)value;
		memcpy(plain, &code, sizeof code);
		return 0;
	}
	case WIRE_U64:
	case WIRE_I64:
	case WIRE_DOUBLE:
		memcpy(plain, wire, 8);
		return 0;
	case WIRE_TEXT:
	case WIRE_NAME: {
		const ProtobufCBinaryData *bytes = wire;
		return wire_text_read(bytes->data, bytes->len, plain, field->size);
	}
	}
	abort();
}

static int fields_write(const struct wire_table *table, const void *plain, void *wire)
{
	for (size_t i = 0; i < table->field_count; i++) {
		const struct wire_field *field = &table->fields[i];
		int rc = field_write(field, at_const(plain, field->plain), at(wire, field->wire));
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int fields_read(const struct wire_table *table, const void *wire, void *plain)
{
	for (size_t i = 0; i < table->field_count; i++) {
		const struct wire_field *field = &table->fields[i];
		int rc = field_read(field, at_const(wire, field->wire), at(plain, field->plain));
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* One block: the pointers that the generated code wants, and behind them what they point to. */
static int list_write(const struct wire_list *list, const void *plain, void *wire)
{
	const struct wire_table *table = list->rows;
	size_t row_size = table->descriptor->sizeof_message;
	const char *rows;
	size_t count;

	assert(table->list_count == 0);
	memcpy(&rows, at_const(plain, list->plain_rows), sizeof rows);
	memcpy(&count, at_const(plain, list->plain_count), sizeof count);
	if (count > list->max)
		return FSDP_E_OVERFLOW;
	if (count == 0)
		return 0;
	assert(rows);

	void **block = malloc(count * (sizeof *block + row_size));
	if (!block)
		return -ENOMEM;
	char *wire_rows = (char *)(block + count);
	for (size_t i = 0; i < count; i++) {
		block[i] = wire_rows + i * row_size;
		protobuf_c_message_init(table->descriptor, block[i]);
		int rc = fields_write(table, rows + i * table->plain_size, block[i]);
		if (rc < 0) {
			free(block);
			return rc;
		}
	}
	memcpy(at(wire, list->wire_rows), &block, sizeof block);
	memcpy(at(wire, list->wire_count), &count, sizeof count);
	return 0;
}

static int list_read(const struct wire_list *list, const void *wire, void *plain)
{
	const struct wire_table *table = list->rows;
	void **wire_rows;
	size_t count;

	memcpy(&wire_rows, at_const(wire, list->wire_rows), sizeof wire_rows);
	memcpy(&count, at_const(wire, list->wire_count), sizeof count);
	if (count > list->max)
		return FSDP_E_PROTOCOL;
	if (count == 0)
		return 0;

	char *rows = calloc(count, table->plain_size);
	if (!rows)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		int rc = fields_read(table, wire_rows[i], rows + i * table->plain_size);
		if (rc < 0) {
			free(rows);
			return rc;
		}
	}
	memcpy(at(plain, list->plain_rows), &rows, sizeof rows);
	memcpy(at(plain, list->plain_count), &count, sizeof count);
	return 0;
}

/* Frees the block that the pointer at `rows` names, and leaves an empty list. */
static void list_free(void *rows, void *count)
{
	const size_t zero = 0;
	void *block;

	memcpy(&block, rows, sizeof block);
	free(block);
	block = NULL;
	memcpy(rows, &block, sizeof block);
	memcpy(count, &zero, sizeof zero);
}

void wire_table_release(const struct wire_table *table, void *wire)
{
	for (size_t i = 0; i < table->list_count; i++)
		list_free(at(wire, table->lists[i].wire_rows), at(wire, table->lists[i].wire_count));
}

void wire_table_fini(const struct wire_table *table, void *plain)
{
	for (size_t i = 0; i < table->list_count; i++)
		list_free(at(plain, table->lists[i].plain_rows), at(plain, table->lists[i].plain_count));
}

int wire_table_write(const struct wire_table *table, const void *plain, void *wire)
{
	int rc = fields_write(table, plain, wire);

	for (size_t i = 0; rc == 0 && i < table->list_count; i++)
		rc = list_write(&table->lists[i], plain, wire);
	if (rc < 0)
		wire_table_release(table, wire);
	return rc;
}

int wire_table_read(const struct wire_table *table, const void *wire, void *plain)
{
	int rc = fields_read(table, wire, plain);

	for (size_t i = 0; rc == 0 && i < table->list_count; i++)
		rc = list_read(&table->lists[i], wire, plain);
	if (rc < 0)
		wire_table_fini(table, plain);
	return rc;
}
