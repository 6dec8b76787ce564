/* Planted bugs: switching one on, and hunting for all of them. Where they are not compiled in there is nothing to
 * switch. */
#ifndef TESTS_SIM_PLANTED_RUN_H
#define TESTS_SIM_PLANTED_RUN_H

#include <stdbool.h>
#include <stdint.h>

bool planted_is_built(void);
bool planted_set(const char *name); /* false: there is no such bug here */
/* Runs every bug (or that of name) for up to `seeds` seeds, each in a process of its own, until one fails. Returns 0
 * where all were found. */
int planted_hunt(const char *program, const char *name, uint64_t seeds);

#endif
