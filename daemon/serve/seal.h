/*
 * A seal on its way: the manifest is sealed and memory taken in exec, then the group is asked, then the worker is told
 * where everything lies. Private to this folder; the loop owns it.
 */
#ifndef FSDPD_SERVE_SEAL_H
#define FSDPD_SERVE_SEAL_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/serve/session.h"

struct plan_sizes;

#define SEAL_POOL_AUTO_MAX (64ull << 20) /* a pool that the daemon chooses holds a whole model up to this */

/* The size of a pool: budget (0: auto) for a model of `sizes`, where auto is `largest` times the largest unit or the
 * whole model up to SEAL_POOL_AUTO_MAX. 0; FSDP_E_BUDGET: the largest unit does not fit; FSDP_E_OVERFLOW. */
int seal_pool_bytes(const struct plan_sizes *sizes, uint64_t budget, unsigned largest, uint64_t *ret_bytes);

/* Begins to seal request->opened, and answers the request when that is over. */
void seal_begin(struct request *request);
/* The request is gone: what is left of the seal ends by itself. */
void seal_abandon(struct seal *seal);

#endif
