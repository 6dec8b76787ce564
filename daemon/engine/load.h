/*
 * Initial values: a copy of our range from a gradient slot into the masters, and a checksum a parameter.
 */
#ifndef FSDPD_ENGINE_LOAD_H
#define FSDPD_ENGINE_LOAD_H

#include <stdbool.h>
#include <stdint.h>

struct unit;

/* A slot of ours in which initial values lie that the others read their ranges from. */
struct load_offer {
	bool here; /* it is loaded, and not returned yet */
	uint64_t slot;
};

/* compare: only the checksums. offer: the slot stays for the others until the unit is published. */
void load_start(struct unit *unit, uint64_t slot, bool compare, bool offer);
void load_offer_over(struct unit *unit); /* published, and nobody reads it any more? Then the slot goes back */
void load_publish(struct unit *unit);    /* they agree everywhere: version 1 */

#endif
