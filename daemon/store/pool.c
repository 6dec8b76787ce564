/*
 * Pools: which ranges of a fixed size are taken. Owns an array of slots, sorted by offset; what is between two slots
 * is free, so neighbours that are given back grow together by themselves. Loop thread. It never touches the memory
 * that the offsets mean.
 */
#include "daemon/store/pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"

struct pool_slot {
	uint64_t offset;
	uint64_t bytes;
};

struct pool {
	uint64_t bytes;
	uint64_t used;
	struct pool_slot *slots;
	size_t count;
	size_t room;
};

int pool_new(uint64_t bytes, struct pool **ret_pool)
{
	struct pool *pool = calloc(1, sizeof(*pool));
	if (!pool) {
		return -ENOMEM;
	}
	pool->bytes = bytes - bytes % POOL_ALIGN;
	*ret_pool = pool;
	return 0;
}

void pool_free(struct pool *pool)
{
	if (!pool) {
		return;
	}
	free(pool->slots);
	free(pool);
}

static int pool_reserve(struct pool *pool)
{
	if (pool->count < pool->room) {
		return 0;
	}
	size_t room = pool->room ? pool->room * 2 : 16;
	struct pool_slot *slots = reallocarray(pool->slots, room, sizeof(*slots));
	if (!slots) {
		return -ENOMEM;
	}
	pool->slots = slots;
	pool->room = room;
	return 0;
}

int pool_take(struct pool *pool, uint64_t bytes, uint64_t *ret_offset)
{
	if (bytes > pool->bytes) {
		return FSDP_E_BUDGET;
	}
	uint64_t wanted = bytes ? (bytes + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN : POOL_ALIGN;
	if (wanted > pool->bytes) {
		return FSDP_E_BUDGET;
	}
	uint64_t offset = 0;
	size_t i = 0;
	while (i < pool->count && pool->slots[i].offset - offset < wanted) {
		offset = pool->slots[i].offset + pool->slots[i].bytes;
		i++;
	}
	if (pool->bytes - offset < wanted) {
		return -ENOSPC;
	}
	int code = pool_reserve(pool);
	if (code < 0) {
		return code;
	}
	memmove(&pool->slots[i + 1], &pool->slots[i], (pool->count - i) * sizeof(*pool->slots));
	pool->slots[i] = (struct pool_slot){ .offset = offset, .bytes = wanted };
	pool->count++;
	pool->used += wanted;
	*ret_offset = offset;
	return 0;
}

void pool_give(struct pool *pool, uint64_t offset)
{
	size_t low = 0;
	size_t high = pool->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (pool->slots[middle].offset < offset) {
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	assert(low < pool->count && pool->slots[low].offset == offset);
	pool->used -= pool->slots[low].bytes;
	pool->count--;
	memmove(&pool->slots[low], &pool->slots[low + 1], (pool->count - low) * sizeof(*pool->slots));
}

uint64_t pool_bytes(const struct pool *pool)
{
	return pool->bytes;
}

uint64_t pool_used(const struct pool *pool)
{
	return pool->used;
}
