/*
 * Texts from the wire: the one place that says which bytes are a text, and that brings them into a fixed array. A text
 * is UTF-8 (no overlong form, no surrogate, nothing beyond U+10FFFF) without NUL and without control characters:
 * neither C0, DEL nor C1.
 */
#ifndef FSDP_PROTO_WIRE_TEXT_H
#define FSDP_PROTO_WIRE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the longest text that data begins with; size where all of it is one. It never ends within a character. */
size_t wire_text_prefix(const void *data, size_t size);

/* Into an array of `capacity` bytes, with a NUL behind it. FSDP_E_PROTOCOL where it does not fit or is not a text. data
 * may be NULL where size is 0. */
int wire_text_read(const void *data, size_t size, char *ret_text, size_t capacity);

#endif
