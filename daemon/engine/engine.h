/*
 * The engine: the bulk plane's state machine. It serves this rank's shards to readers, gathers full units from their
 * owners, pushes this node's gradients to their owners, adds what arrives in the order of the contract, and applies
 * decisions. It does no I/O and reads no clock: links, executor and reports are given to it, ticks tell it the time.
 * One thread owns it.
 *
 * Jobs of at most ENGINE_INLINE_BYTES it runs itself; larger ones go to the executor. Never blocks.
 */
#ifndef FSDPD_ENGINE_ENGINE_H
#define FSDPD_ENGINE_ENGINE_H

#include "daemon/runtime/exec.h"
#include "daemon/store/command.h"
#include "daemon/transport/link.h"

#define ENGINE_INLINE_BYTES (512u << 10) /* some tens of microseconds: what a hand-over and its return cost */

struct engine;

/* Written by the engine's thread, read by any. */
struct engine_counters {
	_Atomic uint64_t gathers, gather_bytes; /* units gathered; payload bytes read from peers */
	_Atomic uint64_t served_bytes;          /* payload bytes sent to readers */
	_Atomic uint64_t reductions, pushed_bytes, added_bytes;
	_Atomic uint64_t duplicates;     /* dropped: it arrived twice */
	_Atomic uint64_t stale_attempts; /* dropped: of an older step or attempt */
	_Atomic uint64_t stale_reads;    /* answered "stale" */
	_Atomic uint64_t resent_bytes;
	_Atomic uint64_t violations; /* what no peer of ours would send (more than its credit, a range that is none) */
};

struct engine_config {
	uint32_t rank, world_size;
	const char *cluster;
	uint64_t incarnation;
	/* 4 KiB to 1 MiB; what is used is at most window_bytes / (2 * world_size), and at least 4 KiB. */
	uint64_t chunk_bytes;
	/* What may be outstanding: of one source's pushes for one model, and of one read from one owner. */
	uint64_t window_bytes;
	uint64_t inline_bytes;  /* jobs up to this size are run at once; 0: ENGINE_INLINE_BYTES */
	uint64_t read_drain_ms; /* a step waits for reads in progress so long, then resets their links */
	struct transport *transport;
	struct executor *executor;
	void (*report)(void *context, struct report *report); /* gives the report away */
	/* Something changed in another thread (a buffer was let go): call engine_run soon, from the owner's thread. Any
	 * thread. */
	void (*wake)(void *context);
	void *context;
	struct engine_counters *counters;
	struct link_counters *link_counters;
};

int engine_new(const struct engine_config *config, struct engine **ret_engine);
/* Every job must be done and every model dropped (engine_stop, then engine_is_idle). */
void engine_free(struct engine *engine);

/* The events for the transport and their context. */
const struct transport_events *engine_transport_events(void);
void *engine_transport_context(struct engine *engine);

void engine_command(struct engine *engine, struct command *command); /* takes it */
void engine_run(struct engine *engine);                              /* after wake: looks at what waits for buffers */
void engine_tick(struct engine *engine, uint64_t now_ms);            /* every heartbeat interval or more often */

/* Drops every model; after that engine_is_idle says when no job runs and no buffer is out. */
void engine_stop(struct engine *engine);
bool engine_is_idle(const struct engine *engine);

#endif
