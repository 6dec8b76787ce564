/* See text.h. Owns nothing; any thread. */
#include "daemon/serve/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/wire_text.h"

/* The text has at most `size - 1` bytes, and was perhaps cut there. */
static void repair(char *text, size_t length, int cut)
{
	size_t good = 0;

	while (good < length) {
		good += wire_text_prefix(text + good, length - good);
		if (good == length)
			break;
		/* The end of a text that was cut may be the beginning of a character. */
		if (cut && length - good < 4) {
			text[good] = '\0';
			return;
		}
		text[good++] = '?';
	}
}

void text_copy(char *ret_text, size_t size, const char *source)
{
	size_t length = source ? strlen(source) : 0;
	int cut = length >= size;

	if (cut)
		length = size - 1;
	if (length > 0)
		memcpy(ret_text, source, length);
	ret_text[length] = '\0';
	repair(ret_text, length, cut);
}

void text_print(char *ret_text, size_t size, const char *format, ...)
{
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(ret_text, size, format, arguments);
	va_end(arguments);
	if (length < 0)
		ret_text[0] = '\0';
	else
		repair(ret_text, strlen(ret_text), (size_t)length >= size);
}
