/*
 * Applying a decision: unit by unit in registration order, in jobs of bounded size, each unit only once nobody reads it
 * any more.
 */
#ifndef FSDPD_ENGINE_APPLY_H
#define FSDPD_ENGINE_APPLY_H

#include "daemon/math/optimizer.h"
#include "daemon/store/command.h"
#include <stdbool.h>
#include <stdint.h>

#define APPLY_JOBS_AT_ONCE 4
#define APPLY_JOB_ELEMENTS (1u << 20)
#define APPLY_BLOCK 2048 /* elements that are divided and clipped at a time, on their way to the optimizer */

struct model;
struct unit;

struct apply {
	bool active, continuing, again;
	uint64_t step;
	enum step_commit commit;
	struct optimizer_options options;
	struct optimizer_groups *groups; /* NULL: every parameter has these */
	double loss_scale, clip;
	uint32_t next;       /* registration index of the unit that is cut into jobs */
	uint32_t left;       /* units that are still to get their version */
	uint32_t jobs;       /* that run */
	uint64_t started_ms; /* readers are waited for from here on */
	uint32_t last_unit;
};

struct apply_unit {
	uint64_t *updates; /* [param_count]: how often the optimizer updated each */
	uint64_t cut;      /* elements that were given to jobs */
	bool begun, whole; /* whole: all of it was given to jobs */
	uint32_t jobs;
};

void apply_command(struct model *model, const struct command *command);
/* Something that it may have waited for has happened. */
void apply_continue(struct model *model);
void apply_tick(struct model *model);

#endif
