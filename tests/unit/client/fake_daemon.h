/*
 * A daemon of world size 1 for the tests of the library: one thread, one connection at a time, the worker's protocol
 * over a real socket, real memory files, and arithmetic of the simplest kind. A hook may change any answer, hold it
 * back, or add lies to it.
 */
#ifndef FSDP_TESTS_FAKE_DAEMON_H
#define FSDP_TESTS_FAKE_DAEMON_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/frame.h"
#include "proto/worker_message.h"

#define FAKE_UNITS_MAX 64
#define FAKE_OPS 64
#define FAKE_SLOT_BYTES (64u << 10) /* every unit has a slot of its own in either pool */

enum fake_verdict {
	FAKE_SEND,
	FAKE_HOLD, /* the answer waits for fake_release */
	FAKE_DROP  /* no answer: the connection is closed */
};

struct fake_unit {
	char name[FSDP_NAME_MAX + 1];
	uint64_t elements;
	uint64_t params;
	unsigned parts;
	uint64_t unshards;
};

struct fake {
	char folder[64], path[96];
	int listener, connection, wake[2];
	pthread_t thread;
	/* Set before the first request. */
	enum fake_verdict (*hook)(struct fake *fake, const struct worker_message *request,
				  struct worker_message *answer, int *fds, size_t *fd_count);
	void *context;
	bool unsealed_memory; /* memory files that could shrink */
	/* The thread's. */
	int masters, gradients, staging, gathers, grads;
	float *master, *gradient, *stage, *gather, *grad;
	struct fake_unit units[FAKE_UNITS_MAX];
	size_t unit_count;
	uint64_t step;
	double weight;
	uint32_t attempt, micro_batch;
	unsigned char state[WORKER_BLOB_MAX]; /* as its parts come */
	size_t state_bytes;                   /* of the last step */
	struct worker_message held;
	/* For any thread. */
	atomic_uint seen[FAKE_OPS];
	struct worker_message
		last[FAKE_OPS]; /* the last request of each kind, without lists; read it when it is answered */
	atomic_bool holding;
	atomic_ulong unshards; /* of all units, that were not given back */
};

/* Aborts where anything fails. */
struct fake *fake_start(void);
void fake_stop(struct fake *fake);
/* Answers what is held. Waits until something is. */
void fake_release(struct fake *fake);
/* The offset of a unit's slot in either pool. */
uint64_t fake_slot(uint32_t unit);
/* Elements before a unit in the arenas of shards: arena offsets are multiples of 64 bytes. */
uint64_t fake_place(const struct fake *fake, uint32_t unit);

#endif
