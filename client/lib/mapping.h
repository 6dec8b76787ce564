/*
 * Memory that the daemon shares: checked, mapped, and never trusted. A window is an address range that a unit keeps for
 * life, on which a slot of a pool is shown while it may be used, and which faults otherwise. Not guarded: the owner's
 * lock is.
 */
#ifndef FSDP_CLIENT_MAPPING_H
#define FSDP_CLIENT_MAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 0 where fd is a memory file of at least bytes that can never shrink, so that no access below bytes can fault; else
 * FSDP_E_PROTOCOL with the fault set. */
int mapping_check(int fd, uint64_t bytes, const char *what);

/* Maps a whole arena. Not inherited by children. 0 or -errno. */
int mapping_open(int fd, uint64_t bytes, bool writable, void **ret_base);
void mapping_close(void *base, uint64_t bytes); /* takes NULL */

struct window {
	unsigned char *base; /* NULL: not reserved */
	uint64_t bytes; /* that a slot has; the range is longer by what fills its last page, and has a page at least */
	bool mapped;    /* slot lies there, readable or not */
	uint64_t slot;  /* offset in the pool */
};

/* 0 or -errno. Begins from zero. */
int window_reserve(struct window *window, uint64_t bytes);
/* Shows a slot of the pool. FSDP_E_PROTOCOL: it does not lie in the pool whole, or not on a page; -errno. */
int window_show(struct window *window, int fd, uint64_t pool_bytes, uint64_t slot, bool writable);
/* From here on touching the range faults. 0 or -errno. */
int window_hide(struct window *window);
void window_fini(struct window *window); /* safe on a zeroed struct */

#endif
