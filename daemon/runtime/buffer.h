/*
 * A counted buffer: bytes that several threads may hold for reading, released when the last one lets go.
 *
 * Whoever makes one says how its memory is returned. The release function runs in the thread that drops the last
 * reference, which may be one of ZeroMQ's: it must not block and must not take the lock of its caller.
 */
#ifndef FSDPD_RUNTIME_BUFFER_H
#define FSDPD_RUNTIME_BUFFER_H

#include <stddef.h>

struct buffer;

/* Wraps size bytes at data. release (may be NULL) is called once with context when the last reference is gone. Gives
 * one reference in ret_buffer. 0 or -ENOMEM (then release was not called). */
int buffer_new(void *data, size_t size, void (*release)(void *context), void *context, struct buffer **ret_buffer);

/* A heap buffer of size uninitialised bytes. 0 or -ENOMEM. */
int buffer_new_heap(size_t size, struct buffer **ret_buffer);

struct buffer *buffer_ref(struct buffer *buffer); /* returns its argument */
void buffer_unref(struct buffer *buffer);         /* takes NULL */

void *buffer_data(const struct buffer *buffer);
size_t buffer_size(const struct buffer *buffer);

#endif
