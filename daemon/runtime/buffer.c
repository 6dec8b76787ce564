/*
 * Counted buffers. Owns its own small struct and, for heap buffers, the bytes behind it in the same allocation. Any
 * thread; the count is the only thing that changes. Whether the bytes may be written is a matter between those who
 * hold it.
 */
#include "daemon/runtime/buffer.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#define BUFFER_ALIGN 64u /* of heap bytes: a cache line, and what every vector load likes */

struct buffer {
	atomic_size_t references;
	void *data;
	size_t size;
	void (*release)(void *context);
	void *context;
};

#define BUFFER_HEADER ((sizeof(struct buffer) + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN)

static void buffer_init(struct buffer *buffer, void *data, size_t size, void (*release)(void *context), void *context)
{
	atomic_init(&buffer->references, 1);
	buffer->data = data;
	buffer->size = size;
	buffer->release = release;
	buffer->context = context;
}

int buffer_new(void *data, size_t size, void (*release)(void *context), void *context, struct buffer **ret_buffer)
{
	struct buffer *buffer = malloc(sizeof(*buffer));
	if (!buffer) {
		return -ENOMEM;
	}
	buffer_init(buffer, data, size, release, context);
	*ret_buffer = buffer;
	return 0;
}

int buffer_new_heap(size_t size, struct buffer **ret_buffer)
{
	if (size > SIZE_MAX - BUFFER_HEADER - BUFFER_ALIGN) {
		return -ENOMEM;
	}
	size_t whole = (BUFFER_HEADER + size + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN;
	struct buffer *buffer = aligned_alloc(BUFFER_ALIGN, whole);
	if (!buffer) {
		return -ENOMEM;
	}
	buffer_init(buffer, (char *)buffer + BUFFER_HEADER, size, NULL, NULL);
	*ret_buffer = buffer;
	return 0;
}

struct buffer *buffer_ref(struct buffer *buffer)
{
	size_t before = atomic_fetch_add_explicit(&buffer->references, 1, memory_order_relaxed);
	assert(before > 0);
	return buffer;
}

void buffer_unref(struct buffer *buffer)
{
	if (!buffer) {
		return;
	}
	/* Release: what this thread read, it read before. Acquire: the last one sees that of all others. */
	size_t before = atomic_fetch_sub_explicit(&buffer->references, 1, memory_order_acq_rel);
	assert(before > 0);
	if (before > 1) {
		return;
	}
	if (buffer->release) {
		buffer->release(buffer->context);
	}
	free(buffer);
}

void *buffer_data(const struct buffer *buffer)
{
	return buffer->data;
}

size_t buffer_size(const struct buffer *buffer)
{
	return buffer->size;
}
