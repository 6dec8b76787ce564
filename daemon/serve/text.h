/*
 * Texts that leave the daemon: whatever they are made of, the codecs take them. A byte that is no text becomes `?`, and
 * what is cut is cut between characters. Pure.
 */
#ifndef FSDPD_SERVE_TEXT_H
#define FSDPD_SERVE_TEXT_H

#include <stddef.h>

void text_copy(char *ret_text, size_t size, const char *source); /* source may be NULL: "" */
void text_print(char *ret_text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
