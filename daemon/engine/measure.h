/*
 * How large the sum of a step is on this rank: the squares of its elements and the largest of them, for norms. One
 * question at a time, and of it one piece after the other: the order of the additions is part of the contract.
 */
#ifndef FSDPD_ENGINE_MEASURE_H
#define FSDPD_ENGINE_MEASURE_H

#include "daemon/store/command.h"
#include <stdbool.h>
#include <stdint.h>

#define MEASURE_ELEMENTS (1u << 20) /* that one task looks at */

struct model;

/* A question that is not answered. */
struct measure {
	struct measure *next;
	uint64_t token, epoch;
	double loss_scale;
	double squares, largest; /* of what was looked at */
	uint32_t unit;           /* canonical; */
	uint64_t at;             /* elements of its shard that were looked at */
	bool finite;
	uint8_t *bad; /* as of a report */
};

struct measures {
	struct measure *first; /* oldest first */
	bool running, continuing;
};

void measure_command(struct model *model, const struct command *command);
void measure_drop(struct model *model);

#endif
