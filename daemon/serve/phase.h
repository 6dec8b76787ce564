/*
 * How the group stands, in one sentence: what systemd's STATUS and `fsdpctl status` show. Pure.
 */
#ifndef FSDPD_SERVE_PHASE_H
#define FSDPD_SERVE_PHASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/group/group.h"

#define PHASE_TEXT_MAX 255
#define PHASE_RANKS_MAX 8 /* ranks that are named; more are counted */

void phase_describe(const struct group *group, uint32_t rank, uint32_t world_size, char ret_text[PHASE_TEXT_MAX + 1]);

/* Ranks that are not joined (absent, suspected, gone), this one apart: how many, and the first ones as "rank 3, rank
 * 7". */
uint32_t phase_missing(const struct group *group, uint32_t rank, uint32_t world_size, char *ret_text, size_t size);
bool phase_is_degraded(const struct group *group, uint32_t rank, uint32_t world_size);

#endif
