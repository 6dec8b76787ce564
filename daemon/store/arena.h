/*
 * An arena: a memfd of fixed size, sealed against shrinking and growing, mapped whole and pre-faulted, so that want
 * of memory is an error here and never a SIGBUS later. Mode 0600. Blocks for as long as touching the pages takes:
 * call it from exec.
 */
#ifndef FSDPD_STORE_ARENA_H
#define FSDPD_STORE_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct arena {
	void *base; /* page-aligned; NULL when size is 0 */
	uint64_t bytes;
	int fd; /* -1 where bytes is 0 or the arena is plain memory (arena_init_private) */
};

/* 0, -ENOMEM (said with the size by the caller), -EMFILE, ... name appears in /proc/PID/maps. */
int arena_init(struct arena *arena, const char *name, uint64_t bytes);
int arena_init_private(struct arena *arena, uint64_t bytes); /* no descriptor: simulation */
void arena_fini(struct arena *arena);                        /* unmaps and closes; safe on a zeroed struct */

/* A second descriptor of the same memory that can only be mapped for reading. The caller closes it. */
int arena_open_read_only(const struct arena *arena, int *ret_fd);

#endif
