/* A message by hand, byte by byte: what no writer of ours would make. */
#ifndef FSDP_TESTS_PROTO_WIRE_BYTES_H
#define FSDP_TESTS_PROTO_WIRE_BYTES_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define WIRE_BYTES_MAX (1u << 20)

struct wire_bytes {
	size_t size;
	uint8_t data[WIRE_BYTES_MAX];
};

static inline void wire_bytes_varint(struct wire_bytes *bytes, uint64_t value)
{
	assert(bytes->size + 10 <= WIRE_BYTES_MAX);
	for (; value >= 0x80; value >>= 7)
		bytes->data[bytes->size++] = (uint8_t)(value | 0x80);
	bytes->data[bytes->size++] = (uint8_t)value;
}

/* A number (wire type 0). */
static inline void wire_bytes_number(struct wire_bytes *bytes, uint32_t field, uint64_t value)
{
	wire_bytes_varint(bytes, field << 3);
	wire_bytes_varint(bytes, value);
}

/* Bytes (wire type 2); NULL stands for that many 'a's. */
static inline void wire_bytes_block(struct wire_bytes *bytes, uint32_t field, const void *data, size_t size)
{
	wire_bytes_varint(bytes, field << 3 | 2);
	wire_bytes_varint(bytes, size);
	assert(bytes->size + size <= WIRE_BYTES_MAX);
	if (size > 0 && data)
		memcpy(bytes->data + bytes->size, data, size);
	else
		memset(bytes->data + bytes->size, 'a', size);
	bytes->size += size;
}

#endif
