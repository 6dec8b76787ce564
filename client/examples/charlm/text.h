/*
 * A text as numbers: its distinct bytes are the vocabulary, its first 95 % the training part, the rest held out.
 * Batches are a pure function of their number, so that every process that asks for batch n gets the same.
 */
#ifndef CHARLM_TEXT_H
#define CHARLM_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define TEXT_CONTEXT 16 /* characters that the model sees */

struct text {
	unsigned char *symbols; /* one number a character, below vocabulary */
	size_t length;
	size_t training; /* the first so many are for training */
	unsigned vocabulary;
	unsigned char byte_of[256];
	unsigned char symbol_of[256];
};

int text_read(struct text *text, const char *path); /* 0, or -errno after a message */
void text_free(struct text *text);

/* `count` windows of TEXT_CONTEXT symbols into context and the symbol that follows each into next. */
void text_training_batch(const struct text *text, uint64_t number, size_t count, unsigned char *context,
			 unsigned char *next);
void text_held_out_batch(const struct text *text, size_t count, unsigned char *context, unsigned char *next);

/* A small generator of well-mixed numbers (splitmix64), for everything here that is drawn. */
uint64_t text_draw(uint64_t *state);

#endif
