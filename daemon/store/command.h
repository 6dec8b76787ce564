/*
 * What the loop asks of the engine (commands) and what the engine tells the loop (reports). Between real threads they
 * travel in mailboxes, in the simulation in its event queue; both keep their order. Each is a heap block given away
 * by the sender and freed by the receiver with command_free or report_free.
 *
 * step, attempt and micro_batch: see daemon/README.md. A unit is named by its canonical index, a slot by its offset
 * in bytes in the pool it belongs to.
 */
#ifndef FSDPD_STORE_COMMAND_H
#define FSDPD_STORE_COMMAND_H

#include "daemon/math/optimizer_groups.h"
#include "daemon/runtime/mailbox.h"
#include "daemon/store/plan.h"

/* Of one rank in one step: bytes of the bits, one a unit, that tell of its micro-batches which units they lack. The
 * loop lets a worker have no more micro-batches than that; a peer that sends more is in violation. */
#define STEP_CLOSE_BYTES_MAX (64u << 20)

enum command_kind {
	COMMAND_PEERS, /* the group as it stands: generation, incarnations[world_size] (0 where unknown) */
	COMMAND_ADD,   /* a model is sealed: model, plan (a reference), step 0, attempt 0 */
	COMMAND_DROP,  /* forget model; REPORT_DROPPED follows when nothing of it is referenced any more */
	/* copy this rank's range of unit from the slot (not if `compare`), hash each: REPORT_LOADED. Where it is an
	 * `offer`, the others read theirs from the slot, which comes back after PUBLISH: REPORT_RETURNED */
	COMMAND_LOAD,
	COMMAND_FETCH,   /* read this rank's range of unit from the rank that offers initial values: REPORT_FETCHED */
	COMMAND_PUBLISH, /* initial values agree everywhere: unit goes from version 0 to 1 */
	COMMAND_GATHER,  /* fill the gather slot with unit at `version` or later: REPORT_GATHERED */
	/* this node's contribution: the gradient slot of unit in (step, attempt, micro_batch), times weight; of weight
	 * 0 the slot is given back */
	COMMAND_REDUCE,
	/* the sum of (step, attempt) is whole: how large it is, divided by loss_scale: REPORT_MEASURED */
	COMMAND_MEASURE,
	COMMAND_CLOSE,  /* this node's micro_batch has ended: absent[unit] marks what it lacks; last, weight */
	COMMAND_APPLY,  /* the decision: commit step. outcome, commit, options, loss_scale, clip, present[unit] */
	COMMAND_ABORT,  /* the decision: step is tried again under `attempt`; everything of lower attempts is dropped */
	COMMAND_INQUIRE /* answer with REPORT_WAITING */
};

enum step_outcome { STEP_APPLIED = 0, STEP_SKIPPED = 1 };
enum step_commit {
	COMMIT_OPTIMIZER = 0, /* the daemon's optimizer updates the units that are present */
	COMMIT_STAGING = 1    /* every unit takes its staging copy; moments stay; pending gradients are dropped */
};

struct command {
	struct letter letter;
	enum command_kind kind;
	uint64_t model;
	uint32_t unit;
	uint64_t version;
	uint64_t step;
	uint32_t attempt;
	uint32_t micro_batch;
	uint64_t slot;
	uint64_t generation;
	uint64_t *incarnations; /* COMMAND_PEERS: [world_size], heap */
	struct plan *plan;
	uint8_t *bits; /* absent or present, one byte a unit, canonical order, heap */
	bool compare;  /* COMMAND_LOAD: only hash */
	bool offer;    /* COMMAND_LOAD: this rank's values are everybody's */
	bool last;     /* COMMAND_CLOSE: the step's last micro-batch of this node */
	double weight; /* COMMAND_REDUCE; COMMAND_CLOSE with last: the sum of this node's weights in this step */
	enum step_outcome outcome;
	enum step_commit commit;
	struct optimizer_options options;
	struct optimizer_groups *groups; /* COMMAND_APPLY: heap; NULL: none differs from options */
	double loss_scale;               /* that gradients are divided by; 0: not */
	double clip;                     /* that they are multiplied by then; 1: not */
	uint64_t token;
};

enum report_kind {
	REPORT_LOADED,   /* unit, slot, sums[param_count]: the slot is read and may be reused */
	REPORT_FETCHED,  /* unit: this rank's range is here */
	REPORT_GATHERED, /* unit, slot, version: the slot holds unit at version, whole */
	/* slot: every owner has added it (or its step is over, or what it offered was published): it may be reused */
	REPORT_RETURNED,
	/* step, attempt: this rank's shard has every contribution and was divided; finite, or else bits */
	REPORT_REDUCED,
	REPORT_MEASURED, /* step, attempt, token: squares, largest; finite, or else bits */
	REPORT_APPLIED,  /* step: every unit has been stepped (unit and version for the last) */
	REPORT_PROGRESS, /* unit, version: one unit has its new version */
	REPORT_DROPPED,  /* model: the engine holds nothing of it */
	REPORT_WAITING,  /* token, waits[]: what the engine waits for, now */
	REPORT_BULK      /* ranks[] whose bulk links are up in both directions (sent when that changes) */
};

enum wait_op { WAIT_GATHER, WAIT_REDUCE };

struct wait {
	enum wait_op op;
	uint32_t unit;
	uint32_t rank; /* the rank it waits for; one entry a rank */
};

#define REPORT_WAITS_MAX 64

struct report {
	struct letter letter;
	enum report_kind kind;
	uint64_t model;
	uint32_t unit;
	uint64_t version;
	uint64_t step;
	uint32_t attempt;
	uint64_t slot;
	bool finite;
	bool offered; /* REPORT_LOADED: the slot is offered to the others, and comes back later */
	uint8_t *
		/* one byte a unit, canonical order, heap: whether its sum here is not finite; NULL where finite */
		bits;
	double squares; /* of every element of every sum, added in f64 in canonical and then in their order */
	double largest; /* of their absolute values */
	uint64_t *sums; /* heap; XXH3 of every parameter's full bytes, in order */
	uint32_t sum_count;
	struct wait waits[REPORT_WAITS_MAX];
	uint32_t wait_count;
	uint32_t *ranks; /* heap */
	uint32_t rank_count;
	uint64_t token;
};

struct command *command_new(enum command_kind kind); /* zeroed; aborts when memory is out: nothing goes on without */
void command_free(struct command *command);          /* drops plan, frees lists; takes NULL */
struct report *report_new(enum report_kind kind);
void report_free(struct report *report);

#endif
