/*
 * The numbers that an optimizer looks at: their ranges, and how they go to the daemon.
 */
#ifndef FSDP_CLIENT_HYPER_H
#define FSDP_CLIENT_HYPER_H

#include "client/lib/wire.h"
#include "fsdp/fsdp.h"

/* FSDP_E_INVALID where one that the optimizer uses is out of its range, or the groups make no sense; the fault is
 * set. */
int hyper_check(enum fsdp_optimizer optimizer, const struct fsdp_step *step);
struct worker_hyper hyper_of(const struct fsdp_step *step);
/* Those of the groups into rows, which has room for FSDP_STEP_GROUPS_MAX and must live as long as request. */
void hyper_groups(const struct fsdp_step *step, struct worker_group *rows, struct worker_message *request);

#endif
