/*
 * What a wire can do to a message, tried on a reader: every prefix, every flipped bit. Each is read from a block of
 * exactly its size, so that the address sanitizer sees a read beyond. A reader frees what it took.
 */
#ifndef FSDP_TESTS_PROTO_HOSTILE_H
#define FSDP_TESTS_PROTO_HOSTILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int hostile_read(const void *data, size_t size);

static inline int hostile_exact(const void *data, size_t size, hostile_read *read)
{
	void *block = malloc(size ? size : 1);
	if (!block)
		abort();
	memcpy(block, data, size);
	int rc = read(block, size);
	free(block);
	return rc;
}

/* How many of the prefixes shorter than the whole were taken. */
static inline size_t hostile_prefixes(const void *data, size_t size, hostile_read *read)
{
	size_t taken = 0;
	for (size_t cut = 0; cut < size; cut++)
		taken += hostile_exact(data, cut, read) == 0;
	return taken;
}

/* How many of the messages with one wrong bit were refused. */
static inline size_t hostile_flips(const void *data, size_t size, hostile_read *read)
{
	size_t refused = 0;
	uint8_t *copy = malloc(size);
	if (!copy)
		abort();
	memcpy(copy, data, size);
	for (size_t bit = 0; bit < size * 8; bit++) {
		copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
		refused += hostile_exact(copy, size, read) < 0;
		copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	free(copy);
	return refused;
}

#endif
