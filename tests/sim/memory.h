/* Memory for the simulation itself, which cannot go on without it. */
#ifndef TESTS_SIM_MEMORY_H
#define TESTS_SIM_MEMORY_H

#include <assert.h>
#include <stdlib.h>

static inline void *memory_zeroed(size_t size)
{
	void *memory = calloc(1, size ? size : 1);
	assert(memory);
	return memory;
}

static inline void *memory_resized(void *old, size_t size)
{
	void *memory = realloc(old, size ? size : 1);
	assert(memory);
	return memory;
}

#endif
