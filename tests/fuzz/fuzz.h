/* What a fuzz target and its replay share: a target is one file with this function; libFuzzer or replay.c calls it. */
#ifndef FSDP_TESTS_FUZZ_FUZZ_H
#define FSDP_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Not assert: a build without it must find the same. */
#define fuzz_check(condition)                                                           \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                        \
		}                                                                       \
	} while (0)

#endif
