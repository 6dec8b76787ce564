/*
 * A pool of fixed size from which slots of any size are taken, first fit, by offset. It knows nothing of memory or
 * units: it is the arithmetic of the gather pool and of the gradient pool. Owned by the loop thread.
 */
#ifndef FSDPD_STORE_POOL_H
#define FSDPD_STORE_POOL_H

#include <stdint.h>

#define POOL_ALIGN 4096u

struct pool;

int pool_new(uint64_t bytes, struct pool **ret_pool);
void pool_free(struct pool *pool);

/* Takes bytes (rounded up to POOL_ALIGN; 0 counts as one page). -ENOSPC: nothing of that size is free now.
 * FSDP_E_BUDGET: it would not fit an empty pool. */
int pool_take(struct pool *pool, uint64_t bytes, uint64_t *ret_offset);
void pool_give(struct pool *pool, uint64_t offset); /* asserts that a slot begins there */

uint64_t pool_bytes(const struct pool *pool);
uint64_t pool_used(const struct pool *pool);

#endif
