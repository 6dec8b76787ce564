/*
 * The output of many processes on one terminal: each line gets the name of the process in front and is written whole. A
 * segment that ends with a carriage return (a progress bar) counts as a line.
 */
#ifndef FSDP_RUN_OUTPUT_H
#define FSDP_RUN_OUTPUT_H

#include <stddef.h>

#define OUTPUT_LINE_MAX 8192 /* a longer line is cut into several */

struct output {
	int from; /* our end of the pipe; -1: closed */
	int to;   /* 1 or 2 */
	char name[16];
	size_t held;
	char line[OUTPUT_LINE_MAX];
};

/* Takes from (non-blocking). name appears as "[name] ". */
void output_init(struct output *output, int from, int to, const char *name);
/* Reads what is there and writes whole lines. At the end of the stream writes the rest and closes. */
void output_pump(struct output *output);

#endif
