/*
 * The group: the control plane's state machine of one node. Membership (hello, generation, heartbeats, suspicion), the
 * agreement on manifests, initial values, steps, aborts and drops, and the calls of this node's workers with their
 * deadlines. No I/O, no clock, no thread: the transport and the engine are given to it, ticks tell the time. One thread
 * (the loop) owns it.
 *
 * What the control plane says is idempotent and repeated with every heartbeat until the answer is there, so a lost
 * message does no harm. The coordinator is rank 0.
 */
#ifndef FSDPD_GROUP_GROUP_H
#define FSDPD_GROUP_GROUP_H

#include "daemon/store/command.h"
#include "daemon/transport/link.h"

struct group;
struct worker; /* one training process attached to one model */

/* ---- What happens to a gradient before the optimizer ---- */

enum norm_kind { NORM_NONE = 0, NORM_2 = 1, NORM_INF = 2 };

/* Equal on every rank. Every member has 8 bytes, so that two of them are equal where their memory is. */
struct step_rules {
	uint64_t norm_kind; /* enum norm_kind */
	double max_norm;    /* clips to it; 0: not */
	double loss_scale;  /* that the gradients are divided by first; 0: not, and the rest is not looked at */
	double growth_factor, backoff_factor;
	uint64_t growth_interval; /* good steps; 0: it never grows */
	double min_scale;
};

/* ---- The answer to a call ---- */

#define CALL_TEXT_MAX 1024
#define ANSWER_UNITS_MAX 8
#define ALL_REDUCE_VALUES_MAX 1024 /* of one small all-reduce */

struct answer {
	int code;                  /* 0 or negative */
	const char *text;          /* the whole story: what, which unit, which ranks, what to do; "" where code is 0 */
	uint64_t slot;             /* unshard: offset in the gather pool; grad: in the gradient pool */
	uint64_t version;          /* unshard */
	enum step_outcome outcome; /* step */
	double norm;               /* step, where one was asked for; norm */
	double next_scale;         /* step with a loss scale: the next one's */
	bool finite;               /* norm */
	uint32_t bad_count; /* step: units whose gradient was not finite, and the first of them in registration order */
	uint32_t bad[ANSWER_UNITS_MAX];
	uint64_t step;        /* every call of a worker: steps committed so far */
	uint32_t attempt;     /* every call of a worker: as it stands after the call */
	uint32_t micro_batch; /* likewise */
	bool resumed;         /* attach: the model was here already */
	uint64_t model;       /* attach */
	const double *values; /* all-reduce: borrowed until done returns */
	uint32_t value_count;
};

/* A call that may wait. Embedded in the caller's struct; done is called exactly once, maybe before the function that
 * took it returns. deadline_ms 0: the group's operation deadline. */
struct call {
	uint64_t deadline_ms;
	void (*done)(struct call *call, const struct answer *answer);
	/* private to the group */
	struct call *next;
	uint64_t started_ms, ends_ms;
	bool warned;
	uint32_t unit;
	uint32_t kind;
	uint64_t token;
	struct worker *worker;
};

/* ---- What happens that somebody may want to know ---- */

enum notice_kind {
	NOTICE_PEER_JOINED,
	NOTICE_PEER_SUSPECTED,
	NOTICE_PEER_LOST,
	NOTICE_PEER_BACK,
	NOTICE_PEER_REFUSED, /* we refused it, or it refused us: text says which, why, and what to do */
	NOTICE_GROUP_FORMED,
	NOTICE_MODEL_SEALED,
	NOTICE_MODEL_REFUSED,
	NOTICE_MODEL_LOST,
	NOTICE_MODEL_DROPPED,
	NOTICE_STEP_COMMITTED,
	NOTICE_STEP_ABORTED,
	NOTICE_CALL_SLOW, /* half-way to its deadline: what is awaited and from whom */
	NOTICE_CALL_TIMEOUT
};

struct notice {
	enum notice_kind kind;
	const char *model; /* name or NULL */
	uint64_t step;
	const char *unit; /* name or NULL */
	int32_t peer;     /* rank or -1 */
	const char *text;
};

/* ---- Making one ---- */

struct group_config {
	uint32_t rank, world_size;
	const char *cluster;
	uint64_t incarnation;
	uint64_t operation_ms, grace_ms, heartbeat_ms, suspicion_ms;
	uint64_t first_model; /* random: the coordinator numbers models from here */
	struct transport *transport;
	void (*command)(void *context, struct command *command); /* to the engine; gives it away */
	void (*notice)(void *context, const struct notice *notice);
	void *context;
	struct link_counters *link_counters;
};

int group_new(const struct group_config *config, struct group **ret_group);
void group_free(struct group *group); /* fails calls that wait with FSDP_E_STOPPED */

const struct transport_events *group_transport_events(void);
void *group_transport_context(struct group *group);

void group_report(struct group *group, struct report *report); /* from the engine; takes it */
/* The clock, at least every heartbeat_ms / 4; all other functions take the time of the last tick for now. */
void group_tick(struct group *group, uint64_t now_ms);

uint64_t group_generation(const struct group *group); /* 0 while not all ranks have joined */

/* ---- Attaching: the seal ---- */

/* The model of that name that is sealed here, or NULL: then a plan must be made and allocated first. */
struct plan *group_find_plan(struct group *group, const char *name);

/*
 * Attaches a worker that registered manifest (sealed; a reference is taken) and, where the model is not sealed here
 * yet, agrees on it with all ranks (collective). plan: made and allocated by the caller, with pools of the sizes of its
 * arenas; a reference is taken; NULL where group_find_plan gave one (then the model's own plan is used). code != 0:
 * this rank cannot seal (no memory, say); text tells why, every rank is refused, and plan may be NULL or unallocated. A
 * sealed manifest of that name that differs is FSDP_E_MISMATCH with the first difference; a second worker is
 * FSDP_E_BUSY; a lost model is FSDP_E_LOST; one that is being dropped is waited for. A worker that attaches while its
 * predecessor's part of the current attempt is pending aborts the step, and is answered when that is decided (or, where
 * this rank had voted, when the vote is). ret_worker is valid at once and must be ended with worker_detach or
 * worker_close whatever the answer was; detaching from a seal that waits withdraws it.
 */
int group_attach(struct group *group, struct manifest *manifest, struct plan *plan, int code, const char *text,
		 struct call *call, struct worker **ret_worker);

/* The plan of the model that the worker is attached to, after the answer. Borrowed. */
struct plan *worker_plan(const struct worker *worker);

/* The process is gone, or closed and kept the model: its calls are dropped without an answer, its unshards end, slots
 * that it had not handed over are free; what it handed over counts. */
void worker_detach(struct worker *worker);
/* Closed, and is done with the model: dropped once every rank's worker has closed it so. Detaches at once; call ends
 * when the wish is noted (not when the model is gone). */
void worker_close(struct worker *worker, struct call *call);

/* ---- A worker's calls. Each ends in call->done; errors of state come at once. unit: this worker's registration order
 * ---- */

void worker_load(struct worker *worker, uint32_t unit, uint64_t slot, struct call *call);
/* The slot was taken with worker_grad. Waits for this node alone. A second load before the ranks agreed is compared
 * with the first. */
void worker_unshard(struct worker *worker, uint32_t unit, struct call *call);
int worker_unshard_start(struct worker *worker, uint32_t unit); /* begins, holds nothing */
int worker_reshard(struct worker *worker, uint32_t unit);
void worker_shard(struct worker *worker, uint32_t unit,
		  struct call *call); /* waits until this rank's shard has its present version */
void worker_grad(struct worker *worker, uint32_t unit,
		 struct call *call); /* a slot of the gradient pool; the same one until reduce */
void worker_reduce(struct worker *worker, uint32_t unit, struct call *call);
/* Of the micro-batch, before its first reduce; finite in f32 and not negative. */
void worker_weight(struct worker *worker, double weight, struct call *call);
void worker_next_micro_batch(struct worker *worker, struct call *call);
void worker_sync(struct worker *worker, struct call *call);
/* state: what this rank keeps with the step when it commits, applied or skipped, in place of what the step before left;
 * NULL: nothing. A reference is taken. Where this rank has voted already it is ignored. */
/* groups: NULL where all parameters have options. rules: NULL is all zeros. Where the gradient is not finite at the
 * least loss scale it fails with FSDP_E_STATE, and the step is committed, skipped. */
void worker_step(struct worker *worker, enum step_commit commit, const struct optimizer_options *options,
		 const struct optimizer_groups *groups, const struct step_rules *rules, struct buffer *state,
		 struct call *call);
/* Collective, after a sync: of the whole gradient. */
void worker_norm(struct worker *worker, enum norm_kind kind, struct call *call);
void worker_abort(struct worker *worker, struct call *call);
/* The state that the last committed step left here: a borrowed buffer, or NULL where it had none, and how many steps
 * are committed. Fails as any call of this worker does, with its text (CALL_TEXT_MAX). */
int worker_state(const struct worker *worker, struct buffer **ret_state, uint64_t *ret_step, char *text);

enum all_reduce_op { ALL_REDUCE_SUM = 1, ALL_REDUCE_MAX = 2, ALL_REDUCE_MIN = 3 };

/* Collective: the values (at most ALL_REDUCE_VALUES_MAX; copied) of all ranks' workers, combined in rank order, the
 * same bits for everybody. Numbered within the attempt: the first one that a worker asks for there is 0, also where the
 * worker came anew, and an answered number gets its old answer again. A deadline aborts the step, and an abort ends it,
 * as with a sync. */
void worker_all_reduce(struct worker *worker, enum all_reduce_op op, const double *values, uint32_t count,
		       struct call *call);

/* Ends a call that still waits (its caller gave up): done is not called. */
void call_cancel(struct group *group, struct call *call);

/* The text of the last failure of worker_unshard_start or worker_reshard, for the worker. */
const char *worker_error(const struct worker *worker);

/* ---- An operator's commands and questions ---- */

void group_drop_model(struct group *group, const char *name,
		      struct call *call); /* refused while a worker is attached anywhere */
void group_abort_step(struct group *group, const char *name, struct call *call);

enum peer_state { PEER_ABSENT, PEER_JOINED, PEER_SUSPECTED, PEER_GONE };
const char *peer_state_name(enum peer_state state);

struct peer_status {
	uint32_t rank;
	enum peer_state state;
	bool bulk_up;
	uint64_t incarnation;
	uint64_t heard_ms_ago; /* UINT64_MAX: never */
	const char *refusal;   /* why it does not join, as it or we said; NULL */
};
struct peer_status group_peer(const struct group *group, uint32_t rank);

enum model_state { MODEL_SEALING, MODEL_LOADING, MODEL_READY, MODEL_LOST, MODEL_DROPPING };
const char *model_state_name(enum model_state state);

struct model_status {
	const char *name;
	uint64_t model;
	enum model_state state;
	uint64_t step;
	uint32_t attempt, micro_batch;
	uint64_t steps_applied, steps_skipped, steps_aborted;
	const char *phase; /* "idle", "reducing", "voted", "applying" */
	uint32_t workers;
	struct plan *plan; /* borrowed; NULL while sealing before a plan is known */
	uint64_t gather_used, gather_bytes, grad_used, grad_bytes; /* the pools */
	const char *trouble;                                       /* why it is lost or refused; NULL */
};
uint32_t group_model_count(const struct group *group);
struct model_status group_model(const struct group *group, uint32_t index);

struct unit_status {
	const char *name;
	uint64_t version;
	uint64_t full_bytes;
	uint64_t shard_elements;
	uint32_t held; /* unshards that are not given back */
	bool gathered; /* the present version lies in the pool */
	bool reduced;  /* this node's worker has reduced it in this micro-batch */
};
struct unit_status group_unit(const struct group *group, uint32_t model_index, uint32_t canonical);

/* Calls that wait: what for, since when, and on which ranks as far as is known. */
struct wait_status {
	const char *model;
	const char *op;   /* "unshard", "reduce-scatter", "step", "seal", ... */
	const char *unit; /* or NULL */
	uint64_t waiting_ms, deadline_ms;
	uint32_t ranks[16];
	uint32_t rank_count;
};
uint32_t group_waits(struct group *group, struct wait_status *waits, uint32_t most);

#endif
