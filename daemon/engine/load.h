/*
 * Initial values: a copy of our range from a gradient slot into the masters, and a checksum a parameter.
 */
#ifndef FSDPD_ENGINE_LOAD_H
#define FSDPD_ENGINE_LOAD_H

#include <stdbool.h>
#include <stdint.h>

struct unit;

void load_start(struct unit *unit, uint64_t slot, bool compare); /* compare: only the checksums */
void load_publish(struct unit *unit);                            /* they agree everywhere: version 1 */

#endif
