/*
 * How a plain struct and a generated one correspond, as a table: one line a field, from which both directions follow,
 * so that what is written is what is read. The field has the same name in both. Everything is checked on the way in,
 * and on the way out too: what the other side would refuse is not sent.
 */
#ifndef FSDP_PROTO_WIRE_TABLE_H
#define FSDP_PROTO_WIRE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "fsdp/dtype.h"

#define WIRE_CODE_MIN (-65535) /* the lowest result code: every code can be negated */

/* Dtypes are numbered from 1 without a gap; 0 is none. */
#define WIRE_DTYPE_ONE(name, number, bytes, text) +1
enum { WIRE_DTYPE_MAX = 0 FSDP_DTYPES(WIRE_DTYPE_ONE) };

enum wire_kind {
	WIRE_BOOL,
	WIRE_U32,
	WIRE_U64,
	WIRE_CODE, /* 0 or negative */
	WIRE_I64,
	WIRE_DOUBLE, /* any bits: what they mean is the receiver's to judge */
	WIRE_TEXT,   /* for people: sent as far as it is a text, for what was cut to fit its array may end within a
			character */
	WIRE_NAME    /* an identity: sent whole or not at all */
};

struct wire_field {
	enum wire_kind kind;
	size_t plain, wire; /* offsets */
	size_t size;        /* of the plain field */
	uint64_t max;       /* numbers of 32 bits: the largest that means something */
};

struct wire_table;
/* A list of rows: a pointer and a count on both sides; heap on the way in, and for the generated side on the way out.
 */
struct wire_list {
	const struct wire_table *rows; /* without lists of their own */
	size_t max;
	size_t plain_rows, plain_count, wire_rows, wire_count; /* offsets */
};

struct wire_table {
	const ProtobufCMessageDescriptor *descriptor;
	size_t plain_size;
	const struct wire_field *fields;
	size_t field_count;
	const struct wire_list *lists;
	size_t list_count;
};

/* Into a generated struct that was initialised; texts are borrowed, lists are freed by wire_table_release. 0, -ENOMEM,
 * FSDP_E_OVERFLOW (a list or an unterminated name), FSDP_E_INVALID (a value that no reader would take). Nothing is to
 * be released on failure. */
int wire_table_write(const struct wire_table *table, const void *plain, void *wire);
void wire_table_release(const struct wire_table *table, void *wire);

/* Into a plain struct of zeros; lists are freed by wire_table_fini. 0, -ENOMEM, FSDP_E_PROTOCOL; nothing to free on
 * failure. */
int wire_table_read(const struct wire_table *table, const void *wire, void *plain);
void wire_table_fini(const struct wire_table *table, void *plain);

/* The kind follows from the type of the plain field, and the type of the generated field must be one that carries it.
 */
#define WIRE_KIND_OF(plain) \
	_Generic((plain),                                                                                              \
		bool: WIRE_BOOL,                                                                                       \
		uint32_t: WIRE_U32,                                                                                    \
		uint64_t: WIRE_U64,                                                                                    \
		int32_t: WIRE_CODE,                                                                                    \
		int64_t: WIRE_I64,                                                                                     \
		double: WIRE_DOUBLE,                                                                                   \
		char *: WIRE_TEXT)
#define WIRE_CARRIES(wire)                                                                              \
	_Generic((wire), protobuf_c_boolean : 1 << WIRE_BOOL, uint64_t : 1 << WIRE_U32 | 1 << WIRE_U64, \
		 int64_t : 1 << WIRE_CODE | 1 << WIRE_I64, double : 1 << WIRE_DOUBLE,                   \
		 ProtobufCBinaryData : 1 << WIRE_TEXT | 1 << WIRE_NAME)
#define WIRE_MEMBER(type, field) (((type *)0)->field)
#define WIRE_ENTRY(plain_type, wire_type, field, field_kind, field_max)                                           \
	{                                                                                                         \
		.kind = (field_kind), .plain = offsetof(plain_type, field),                                       \
		.wire = offsetof(wire_type, field) +                                                              \
			0 * sizeof(char[WIRE_CARRIES(WIRE_MEMBER(wire_type, field)) >> (field_kind)&1 ? 1 : -1]), \
		.size = sizeof WIRE_MEMBER(plain_type, field), .max = (field_max)                                 \
	}
#define WIRE_FIELD(plain_type, wire_type, field) \
	WIRE_ENTRY(plain_type, wire_type, field, WIRE_KIND_OF(WIRE_MEMBER(plain_type, field)), UINT32_MAX)
#define WIRE_FIELD_TO(plain_type, wire_type, field, field_max) \
	WIRE_ENTRY(plain_type, wire_type, field, WIRE_KIND_OF(WIRE_MEMBER(plain_type, field)), field_max)
#define WIRE_FIELD_NAME(plain_type, wire_type, field) WIRE_ENTRY(plain_type, wire_type, field, WIRE_NAME, 0)
#define WIRE_LIST(plain_type, wire_type, field, singular, rows_table, rows_max)                                 \
	{                                                                                                       \
		.rows = (rows_table), .max = (rows_max), .plain_rows = offsetof(plain_type, field),             \
		.plain_count = offsetof(plain_type, singular##_count), .wire_rows = offsetof(wire_type, field), \
		.wire_count = offsetof(wire_type, n_##field)                                                    \
	}
#define WIRE_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
