/*
 * How often each kind of fault, message, state and transition occurred over all runs of the program. What is listed as
 * required and never occurred is a failure of the test itself: the simulation would not have tested it. One thread.
 */
#ifndef TESTS_SIM_TALLY_H
#define TESTS_SIM_TALLY_H

#include <stdbool.h>
#include <stdint.h>

enum tally_group {
	TALLY_FAULT,   /* enum fault_kind */
	TALLY_OP,      /* enum peer_op, as delivered */
	TALLY_COMMAND, /* enum command_kind */
	TALLY_REPORT,  /* enum report_kind */
	TALLY_NOTICE,  /* enum notice_kind */
	TALLY_CODE,    /* -FSDP_E_... - 1000; 0 is success */
	TALLY_PEER,    /* from * 4 + to, enum peer_state */
	TALLY_MODEL,   /* (from + 1) * 6 + to + 1, enum model_state; 0 is "none" */
	TALLY_EVENT,   /* enum tally_event */
	TALLY_GROUPS
};

enum tally_event {
	EVENT_APPLIED,
	EVENT_SKIPPED,
	EVENT_STAGED,
	EVENT_RESUMED,
	EVENT_UNSHARDED,
	EVENT_COMPARED_SHARD,
	EVENT_COMPARED_GRADIENT,
	EVENT_LEFT_OUT,
	EVENT_WEIGHED,
	EVENT_COMPARED_NORM,
	EVENT_COMPARED_STEP,
	EVENT_AT_FLOOR,
	EVENT_WEIGHED_NOTHING,
	EVENT_OLD_CONNECTION, /* a message of a connection that was broken before it arrived */
	EVENT_QUEUE_FULL,
	EVENT_DUPLICATE,
	EVENT_STALE_ATTEMPT,
	EVENT_STALE_READ,
	EVENT_STALE_LINK,
	EVENT_STALE_GENERATION,
	EVENT_BEFORE_HELLO,
	EVENT_RESENT,
	EVENT_JOB,
	EVENT_BUSY_DROP,
	EVENT_LIFE,
	EVENT_ALL_REDUCED,
	EVENT_COMPARED_STATE,
	EVENT_COUNT
};

#define TALLY_INDEX_MAX 64

void tally_add(enum tally_group group, unsigned index, uint64_t count);
static inline void tally_count(enum tally_group group, unsigned index)
{
	tally_add(group, index, 1);
}

void tally_print(void);
/* Prints what is required and never occurred; returns how many that are. */
unsigned tally_missing(void);

#endif
