/*
 * The inside of the engine, for the files of this folder and nobody else: what is not of one model, and the few
 * functions that all of them need. The engine's thread owns everything here but `released`.
 *
 * Every entry from outside (command, message, finished job, tick, ...) ends with engine_settle: what is better done
 * once than in the middle of something happens there.
 */
#ifndef FSDPD_ENGINE_CORE_H
#define FSDPD_ENGINE_CORE_H

#include "daemon/engine/engine.h"

struct lease;
struct model;
struct source;

struct engine_peer {
	uint64_t incarnation;       /* as the loop told; 0: unknown */
	bool up;                    /* our link out */
	uint64_t link_out, link_in; /* numbers of the present links; 0: none yet */
	bool reset;                 /* our link is to be broken by engine_settle */
	bool bulk;                  /* up in both directions, as last reported */
};

struct engine {
	struct engine_config config;
	struct links *links;
	struct engine_peer *peers; /* [world_size] */
	uint64_t generation;
	uint64_t now_ms;
	uint64_t chunk_bytes; /* what is used of it; a multiple of 4 */
	uint64_t next_read;
	struct model *models;             /* alive */
	struct model *dropping;           /* waiting for their jobs and leases */
	struct source *telling;           /* sources that PROGRESS is due to */
	_Atomic(struct lease *) released; /* pushed by any thread, taken whole by ours */
	bool settling, stopping, resets;
	bool clogged; /* a transport queue was full */
};

#define ENGINE_COUNT(engine, counter, n) \
	atomic_fetch_add_explicit(&(engine)->config.counters->counter, (uint64_t)(n), memory_order_relaxed)

void engine_settle(struct engine *engine);
void engine_report(struct engine *engine, struct report *report);
void engine_reset_link(struct engine *engine, uint32_t rank); /* at the next settle */

/* Zeroed; aborts when memory is out: what peers can make us take is bounded, and what the loop orders cannot be
 * refused. */
void *engine_alloc(size_t count, size_t size);

/* Stamps the model and sends. As links_send; notes a full queue, so that the next tick tries again. */
int engine_send(struct model *model, uint32_t rank, struct peer_message *message, struct transport_piece payload);

static inline uint64_t engine_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t engine_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

#endif
