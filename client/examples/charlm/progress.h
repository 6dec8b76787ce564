/* The progress bar: one line that is drawn over itself on a terminal, and now and then a line of its own elsewhere. */
#ifndef CHARLM_PROGRESS_H
#define CHARLM_PROGRESS_H

#include <stdint.h>

struct progress {
	uint64_t steps;
	double began; /* seconds */
	int terminal; /* FSDP_RUN_TERMINAL=1, or stdout is one */
};

void progress_begin(struct progress *progress, uint64_t steps);
/* loss in nats, held_out in bits a character, bytes moved by this rank's daemon since it started (both ways). */
void progress_show(const struct progress *progress, uint64_t step, double loss, double held_out, uint64_t bytes);

#endif
