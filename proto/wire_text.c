/*
 * Checks what claims to be a text and copies it. Pure: no state, no memory, any thread. It knows nothing of messages
 * and does not repair: a text is right, or its message is refused.
 */
#include "proto/wire_text.h"

#include <stdint.h>
#include <string.h>

#include "fsdp/error.h"

/* The forms of UTF-8 by their first byte. The range of the second byte is what keeps out overlong forms, surrogates,
 * numbers beyond U+10FFFF and, for 0xc2, the C1 control characters. */
static const struct form {
	uint8_t first_low, first_high;
	uint8_t size;
	uint8_t second_low, second_high;
} forms[] = {
	{ 0x20, 0x7e, 1, 0, 0 },       { 0xc2, 0xc2, 2, 0xa0, 0xbf }, { 0xc3, 0xdf, 2, 0x80, 0xbf },
	{ 0xe0, 0xe0, 3, 0xa0, 0xbf }, { 0xe1, 0xec, 3, 0x80, 0xbf }, { 0xed, 0xed, 3, 0x80, 0x9f },
	{ 0xee, 0xef, 3, 0x80, 0xbf }, { 0xf0, 0xf0, 4, 0x90, 0xbf }, { 0xf1, 0xf3, 4, 0x80, 0xbf },
	{ 0xf4, 0xf4, 4, 0x80, 0x8f },
};

/* Bytes of the character at `at`, 0 where there is none within `left` bytes. */
static size_t character_size(const uint8_t *at, size_t left)
{
	for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
		const struct form *form = &forms[i];
		if (at[0] < form->first_low || at[0] > form->first_high)
			continue;
		if (form->size > left)
			return 0;
		if (form->size > 1 && (at[1] < form->second_low || at[1] > form->second_high))
			return 0;
		for (size_t k = 2; k < form->size; k++)
			if ((at[k] & 0xc0) != 0x80)
				return 0;
		return form->size;
	}
	return 0;
}

size_t wire_text_prefix(const void *data, size_t size)
{
	const uint8_t *bytes = data;
	size_t at = 0;

	while (at < size) {
		size_t step = character_size(bytes + at, size - at);
		if (step == 0)
			break;
		at += step;
	}
	return at;
}

int wire_text_read(const void *data, size_t size, char *ret_text, size_t capacity)
{
	if (size >= capacity || wire_text_prefix(data, size) != size)
		return FSDP_E_PROTOCOL;
	if (size > 0)
		memcpy(ret_text, data, size);
	ret_text[size] = '\0';
	return 0;
}
