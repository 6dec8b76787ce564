/* Reads the text and cuts batches out of it. */
#include "client/examples/charlm/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_MAX (256u << 20)

uint64_t text_draw(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static void number_symbols(struct text *text)
{
	unsigned char seen[256] = { 0 };
	for (size_t i = 0; i < text->length; i++)
		seen[text->symbols[i]] = 1;
	text->vocabulary = 0;
	for (unsigned byte = 0; byte < 256; byte++) {
		if (!seen[byte])
			continue;
		text->byte_of[text->vocabulary] = (unsigned char)byte;
		text->symbol_of[byte] = (unsigned char)text->vocabulary++;
	}
	for (size_t i = 0; i < text->length; i++)
		text->symbols[i] = text->symbol_of[text->symbols[i]];
}

int text_read(struct text *text, const char *path)
{
	memset(text, 0, sizeof(*text));
	FILE *file = fopen(path, "rb");
	if (!file) {
		int code = -errno;
		fprintf(stderr, "charlm: cannot open %s: %s\n", path, strerror(errno));
		return code;
	}
	text->symbols = malloc(TEXT_BYTES_MAX);
	if (text->symbols)
		text->length = fread(text->symbols, 1, TEXT_BYTES_MAX, file);
	fclose(file);
	if (text->length < 100 * (TEXT_CONTEXT + 1)) {
		fprintf(stderr, "charlm: %s is too short to train on\n", path);
		text_free(text);
		return -EINVAL;
	}
	number_symbols(text);
	text->training = text->length / 20 * 19;
	return 0;
}

void text_free(struct text *text)
{
	free(text->symbols);
	text->symbols = NULL;
}

static void cut(const struct text *text, size_t at, unsigned char *context, unsigned char *next)
{
	memcpy(context, text->symbols + at, TEXT_CONTEXT);
	*next = text->symbols[at + TEXT_CONTEXT];
}

void text_training_batch(const struct text *text, uint64_t number, size_t count, unsigned char *context,
			 unsigned char *next)
{
	uint64_t state = number * 0x5851f42d4c957f2du + 1;
	for (size_t i = 0; i < count; i++)
		cut(text, text_draw(&state) % (text->training - TEXT_CONTEXT), context + i * TEXT_CONTEXT, next + i);
}

void text_held_out_batch(const struct text *text, size_t count, unsigned char *context, unsigned char *next)
{
	size_t places = text->length - text->training - TEXT_CONTEXT;
	for (size_t i = 0; i < count; i++)
		cut(text, text->training + i * places / count, context + i * TEXT_CONTEXT, next + i);
}
