/* The check of names of models, units and parameters. Pure. */
#include "client/lib/name.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "fsdp/dtype.h"

/* Bytes of the UTF-8 character at text (terminated by 0), or 0 where it is malformed, overlong, a surrogate or above
 * U+10FFFF. */
static size_t name_character(const unsigned char *text)
{
	static const struct {
		uint8_t mask, lead;
		size_t bytes;
		uint32_t least;
	} forms[] = {
		{ 0x80, 0x00, 1, 0 },
		{ 0xe0, 0xc0, 2, 0x80 },
		{ 0xf0, 0xe0, 3, 0x800 },
		{ 0xf8, 0xf0, 4, 0x10000 },
	};
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if ((text[0] & forms[i].mask) != forms[i].lead)
			continue;
		uint32_t point = text[0] & (uint8_t)~forms[i].mask;
		for (size_t k = 1; k < forms[i].bytes; k++) {
			if ((text[k] & 0xc0) != 0x80)
				return 0;
			point = point << 6 | (text[k] & 0x3f);
		}
		bool bad = point < forms[i].least || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff);
		return bad ? 0 : forms[i].bytes;
	}
	return 0;
}

const char *name_reject(const char *name)
{
	if (!name)
		return "is NULL";
	if (!*name)
		return "is empty";
	if (strnlen(name, FSDP_NAME_MAX + 1) > FSDP_NAME_MAX)
		return "is longer than 255 bytes";
	for (const unsigned char *at = (const unsigned char *)name; *at;) {
		if (*at < 0x20 || *at == 0x7f)
			return "has a control character";
		size_t bytes = name_character(at);
		if (bytes == 0)
			return "is not UTF-8";
		at += bytes;
	}
	return NULL;
}
