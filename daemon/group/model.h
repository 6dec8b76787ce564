/*
 * One model as this rank's loop knows it, its units, its worker, and what the files about a model offer to each other.
 * Private to daemon/group.
 */
#ifndef FSDPD_GROUP_MODEL_H
#define FSDPD_GROUP_MODEL_H

#include "daemon/group/state.h"
#include "daemon/store/pool.h"

/* ---- Units ---- */

enum unit_state {
	UNIT_EMPTY,   /* this rank has loaded nothing in this round */
	UNIT_LOADING, /* the engine copies and hashes, or fetches */
	UNIT_LOADED,  /* the coordinator is asked whether the ranks agree */
	UNIT_VERIFIED /* version 1 or later */
};

/* A slot of the gather pool. */
struct gather {
	struct gather *next; /* of the unit */
	uint64_t slot;
	uint64_t version; /* asked for, or, when whole, there */
	uint32_t holds;   /* unshards */
	bool whole;
	bool borrowed; /* the memory is another slot's: a planted bug */
	uint64_t used; /* the model's use clock */
};

enum grad_state {
	GRAD_WORKER,  /* the worker writes it */
	GRAD_LOADING, /* handed to a load */
	GRAD_HANDED   /* handed to a reduction, or offered to the other ranks */
};

/* A slot of the gradient pool. */
struct grad {
	struct grad *next; /* of the model */
	uint32_t unit;
	uint64_t slot;
	enum grad_state state;
	bool compare;   /* of a load */
	uint32_t round; /* of a load */
};

/* The checksums that a rank has offered for a unit (coordinator). */
struct offer {
	uint64_t *sums;
	uint32_t received;
	bool whole;
};

struct unit {
	uint64_t version;       /* as decided */
	uint64_t shard_version; /* as the engine has told */
	enum unit_state state;
	uint32_t round;
	uint64_t *sums; /* of this rank's load */
	char *trouble;  /* how the ranks' values differ; NULL */
	struct gather *gathers, *held;
	struct grad *grad;    /* the worker's */
	bool reduced;         /* in this micro-batch */
	bool present;         /* in any micro-batch of this attempt */
	struct offer *offers; /* [world_size]; coordinator, while it collects */
	char *verdict;        /* coordinator: why the last round failed */
};

/* ---- Steps ---- */

enum step_phase {
	STEP_COLLECTING, /* the worker's micro-batches */
	STEP_REDUCING,   /* they have ended */
	STEP_REDUCED,    /* this rank's shard has every contribution */
	STEP_VOTED,
	STEP_GIVEN_UP /* failed here without a vote; a decision is asked for */
};

struct decision {
	bool known;
	uint64_t step;
	uint32_t attempt; /* of an abort: the next */
	enum peer_outcome outcome;
	enum step_commit commit;
	struct optimizer_options options;
	struct optimizer_groups groups;
	struct step_rules rules;
	bool finite; /* a step that is skipped though it is: its weights sum to 0 */
	double norm, clip, next_scale;
	uint64_t good_steps;
	uint8_t *bits; /* packed */
	uint8_t *bad;  /* packed; units whose gradient is not finite */
	int code;      /* of an abort; of a commit: what it says to its callers, who fail though it is one */
	char text[PEER_TEXT_MAX + 1];
};

struct ballot { /* coordinator */
	bool cast;
	bool finite;
	double weights; /* the sum of the rank's */
	double norm;    /* the rank's part */
	struct step_rules rules;
	enum step_commit commit;
	struct optimizer_options options;
	struct optimizer_groups groups;
	uint8_t *bits; /* packed; the model's size */
	uint8_t *bad;  /* likewise; NULL where all are finite */
};

/* ---- Small all-reduces ---- */

struct all_reduce {      /* this rank's worker's: the one that waits, or the next */
	uint64_t number; /* within the attempt */
	enum all_reduce_op op;
	uint32_t count;
	double *values;
};

struct question { /* coordinator: of a rank, for the number that is not answered yet */
	bool asked;
	enum all_reduce_op op;
	uint32_t count;
	double *values;
};

struct reduced { /* coordinator: an answer */
	int code;
	enum all_reduce_op op;
	uint32_t count;
	double *values;
	char *text; /* code < 0: how the questions differ */
};

/* How large this rank's sums are, or those of all ranks together. */
struct norm_part {
	bool cast; /* coordinator: of that rank */
	bool finite;
	double squares, largest;
};

/* The agreement on the norm of an attempt's gradient. */
enum norm_phase {
	NORM_IDLE,
	NORM_MEASURING, /* the engine is asked */
	NORM_ASKING,    /* the coordinator is told this rank's part until it answers */
	NORM_KNOWN
};

struct norm {
	enum norm_phase phase;
	uint64_t token; /* of the measuring */
	struct norm_part own, whole;
	struct rank_list awaited;
};

/* ---- The model ---- */

struct model {
	struct model *next;
	struct group *group;
	char *name;
	enum model_state state;
	uint64_t number; /* 0 while sealing */
	struct manifest *manifest;
	struct plan *plan; /* NULL where this rank cannot seal */
	struct worker *worker;
	uint32_t unit_count;
	size_t bits_size;
	struct unit *units;          /* canonical order */
	uint32_t verified, troubled; /* how many units are */
	char *trouble;               /* why it is lost */
	struct pool *gather_pool, *grad_pool;
	struct grad *grads;
	uint64_t use_clock;
	/* the seal of this rank */
	uint64_t seal_number;
	int seal_code;
	char *seal_text;
	struct buffer *detail;
	/* the step */
	enum step_phase phase;
	uint64_t step, applied; /* applied: steps whose units are all done */
	uint32_t attempt, micro_batch, reduced_count;
	double weight, weights; /* of the micro-batch; the sum over those of this attempt that have ended and count */
	bool finite;
	uint8_t *bad;            /* packed; of this rank's sums */
	enum step_commit commit; /* of this rank's vote */
	struct optimizer_options options;
	struct optimizer_groups groups;
	struct buffer *offered; /* state of this rank's step call, until the attempt ends; NULL: none */
	struct buffer *kept;    /* that of the last committed step; NULL: none */
	struct step_rules rules;
	uint64_t measured;  /* tokens of measurings that were ordered */
	uint64_t measuring; /* the token of the one that the vote waits for; 0: none */
	bool has_part;
	double part; /* of the norm, in this rank's vote */
	struct norm norm;
	uint64_t good_steps; /* in a row, under the present loss scale */
	bool abort_wanted;
	int abort_code;
	char abort_text[PEER_TEXT_MAX + 1];
	struct decision committed, aborted; /* the last of each */
	uint64_t steps_applied, steps_skipped, steps_aborted;
	struct all_reduce all_reduce;
	bool closed; /* this rank's worker wants it dropped */
	/* what is awaited, as far as is known */
	struct wait waits[REPORT_WAITS_MAX];
	uint32_t wait_count;
	struct rank_list seal_awaited, load_awaited, vote_awaited, all_reduce_awaited;
	/* coordinator: [world_size] */
	struct ballot *ballots;
	struct norm_part *norm_parts;
	struct question *questions;
	uint64_t *seal_numbers;
	bool *closed_by;
	/* coordinator: the answers of this attempt, a ring by their numbers; NULL: none yet */
	struct reduced *reduced;
	uint64_t reduced_number; /* of the next */
};

enum worker_state {
	WORKER_WAITS_GONE, /* a model of that name is being dropped */
	WORKER_SEALING,
	WORKER_WAITS_DECISION, /* its predecessor's step is pending */
	WORKER_ATTACHED,
	WORKER_REFUSED,
	WORKER_DROPPED /* the model is gone under it */
};

struct worker {
	struct worker *next;
	struct group *group;
	enum worker_state state;
	struct manifest *manifest;
	struct plan *plan;
	struct model *model; /* SEALING, WAITS_DECISION, ATTACHED; else NULL */
	int code;            /* WAITS_GONE: what it will say when it seals */
	char *text;
	bool abort_owed; /* an abort that it was not told of */
	char abort_text[PEER_TEXT_MAX + 1];
	bool step_owed; /* a step that was committed when nobody waited for it: what it is to be told */
	struct answer owed;
	char owed_text[PEER_TEXT_MAX + 1];
	char error[CALL_TEXT_MAX];
};

/* ---- model.c ---- */

int model_new(struct group *group, struct manifest *manifest, struct plan *plan, struct model **ret_model);
void model_free(struct model *model); /* takes it out of the group */
void model_move(struct model *model, enum model_state state);
struct model *model_find(const struct group *group, uint64_t number); /* not number 0 */
struct model *model_named(const struct group *group, const char *name);
static inline bool model_is_live(const struct model *model)
{
	return model->state == MODEL_LOADING || model->state == MODEL_READY;
}
const char *model_unit_name(const struct model *model, uint32_t unit);
static inline const struct manifest_options *model_options(const struct model *model)
{
	return manifest_get_options(model->manifest);
}
static inline uint32_t model_param_count(const struct model *model, uint32_t unit)
{
	return manifest_unit(model->manifest, unit)->param_count;
}
static inline const char *model_param_name(const struct model *model, uint32_t unit, uint32_t param)
{
	return manifest_unit(model->manifest, unit)->params[param].name;
}
void model_sealed(struct model *model, uint64_t number);
void model_lose(struct model *model, const char *text);
void model_drop(struct model *model, const char *text);
void models_lose(struct group *group, uint32_t rank); /* rank came back without its shards */
void models_peer_gone(struct group *group, uint32_t rank);
void model_report(struct model *model, struct report *report);

/* ---- worker.c ---- */

void worker_move(struct worker *worker, enum worker_state state);
void worker_refuse(struct worker *worker, int code, const char *text); /* answers the attach that waits */
void worker_attached(struct worker *worker, bool resumed);
void worker_name_gone(struct group *group, const char *name);
/* 0, or why no call of this worker can be taken, in text (CALL_TEXT_MAX). */
int worker_check(const struct worker *worker, char *text);
/* The same with a unit in registration order; gives the canonical one. */
int worker_check_unit(const struct worker *worker, uint32_t registered, char *text, uint32_t *ret_unit);

/* ---- seal.c, seal_coordinator.c ---- */

void seal_start(struct worker *worker, int code, const char *text);
void seal_repeat(struct model *model);
void seal_expired(struct model *model, const char *text);
void seal_withdraw(struct model *model); /* tells the coordinator, frees the model */
void seal_fail(struct model *model, int code, const char *text);
void seal_hear_detail_wanted(struct group *group, uint32_t rank, const struct peer_message *message,
			     struct buffer *payload);
void seal_hear_sealed(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload);
void seal_hear_unsealed(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload);

void seals_hear_manifest(struct group *group, uint32_t rank, const struct peer_message *message,
			 struct buffer *payload);
void seals_hear_detail(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload);
void seals_hear_withdraw(struct group *group, uint32_t rank, const struct peer_message *message,
			 struct buffer *payload);
void seals_repeat(struct group *group);
void seals_reset(struct group *group); /* another generation */
void seals_lacking(const struct group *group, const char *name, struct rank_list *ranks);
void seals_remind(struct model *model, uint32_t rank); /* SEALED, again */

/* ---- initial.c, initial_coordinator.c ---- */

void initial_repeat(struct model *model);
void initial_loaded(struct model *model, struct report *report);
uint64_t initial_sums_hash(const struct model *model,
			   uint32_t unit);       /* of this rank's load; 0 where ranks do not compare */
bool initial_is_ours(const struct model *model); /* this rank's worker has something to load */
void initial_sealed(struct model *model);
void initial_fetched(struct model *model, uint32_t unit);
void initial_lacking(const struct model *model, uint32_t unit, struct rank_list *ranks);
void initial_awaited(const struct model *model, uint32_t unit, struct rank_list *ranks); /* as far as this rank knows */
void initial_offers_free(struct model *model, struct unit *unit);
void initial_hear_loaded(struct group *group, uint32_t rank, const struct peer_message *message,
			 struct buffer *payload);
void initial_hear_offered(struct group *group, uint32_t rank, const struct peer_message *message,
			  struct buffer *payload);
void initial_hear_verified(struct group *group, uint32_t rank, const struct peer_message *message,
			   struct buffer *payload);

/* ---- step_rules.c ---- */

static inline bool bits_get(const uint8_t *bits, uint32_t index)
{
	return bits[index / 8] >> index % 8 & 1;
}
int rules_check(const struct step_rules *rules, char *text); /* FSDP_E_INVALID; text has CALL_TEXT_MAX */
struct peer_rules rules_write(const struct step_rules *rules);
struct step_rules rules_read(const struct peer_rules *rules);
/* Coordinator: norm, clip, next_scale, good_steps and, at the least scale, code and text, from the ballots and the rest
 * of the decision. */
void rules_decide(const struct model *model, struct decision *decision);
/* The names of the units whose bits are set, for people. */
void rules_name_units(const struct model *model, const uint8_t *bits, char *text, size_t size);

/* ---- norm.c ---- */

/* Orders a measuring; gives its token. */
uint64_t norm_measure(struct model *model, double loss_scale);
void norm_measured(struct model *model, const struct report *report); /* of the agreement */
void norm_repeat(struct model *model);
void norm_reset(struct model *model); /* another attempt */
void norm_lacking(const struct model *model, struct rank_list *ranks);
void norm_hear_part(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload);
void norm_hear_whole(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload);

/* ---- step.c, step_options.c, step_decision.c, step_abort.c, step_coordinator.c ---- */

void step_move(struct model *model, enum step_phase phase);
void step_ask_abort(struct model *model);
struct peer_options step_options_write(const struct optimizer_options *options);
struct optimizer_options step_options_read(const struct peer_options *options);
/* Into rows, which has room for OPTIMIZER_GROUPS_MAX; and what a peer sent: as it is, to be compared. */
void step_groups_write(const struct optimizer_groups *groups, struct peer_group *rows, struct peer_message *message);
void step_groups_read(const struct peer_message *message, struct optimizer_groups *ret_groups);
/* Coordinator: whether two ranks' votes differ in what they ask for, and how, for people. */
bool options_differ(const struct model *model, uint32_t a, uint32_t b, char *text, size_t size);

/* False: the call was answered, since the worker is to hear of an abort, or the attempt was given up, or nothing can be
 * taken. */
bool step_admits(struct worker *worker, struct call *call);
bool step_has_contributions(const struct model *model);
void step_reduced(struct model *model, const struct report *report);
void step_measured(struct model *model, const struct report *report);
void step_applied(struct model *model, const struct report *report);
void step_try_vote(struct model *model);
void step_repeat(struct model *model);
void step_want_abort(struct model *model, int code, const char *text);
void step_expired(struct group *group, struct call *call);
void step_peer_gone(struct model *model, uint32_t rank);
void step_decided(struct model *model, const struct decision *decision); /* checks that it is news */
void step_hear_decision(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload);
void step_tell(struct model *model, uint32_t rank, const struct decision *decision);

void votes_abort(struct model *model, int code, const char *text);
void votes_clear(struct model *model);
bool votes_any(const struct model *model);
void votes_lacking(const struct model *model, struct rank_list *ranks);
/* To a rank that is in an older step or attempt: what was decided. True where it is. */
bool votes_catch_up(struct model *model, uint32_t rank, uint64_t step, uint32_t attempt);
void votes_hear_vote(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload);
void votes_hear_abort(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload);

/* ---- all_reduce.c, all_reduce_coordinator.c ---- */

bool all_reduce_op_is_known(uint32_t op);
const char *all_reduce_op_name(enum all_reduce_op op); /* "sum"; "?" where there is none */
void all_reduce_restart(struct model *model);          /* another attempt, or another worker: from number 0 on */
void all_reduce_repeat(struct model *model);
void all_reduce_hear_reduced(struct group *group, uint32_t rank, const struct peer_message *message,
			     struct buffer *payload);

void all_reduces_clear(struct model *model);
bool all_reduces_any(const struct model *model); /* somebody waits */
void all_reduces_lacking(const struct model *model, struct rank_list *ranks);
void all_reduces_hear(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload);

/* ---- drop.c ---- */

void drop_remember(struct group *group, uint64_t number);
bool drop_is_remembered(const struct group *group, uint64_t number);
void drop_closed(struct model *model); /* this rank's worker wants it */
void drop_repeat(struct group *group);
void drop_forget(struct group *group, const struct call *call); /* the request of a call that ends */
void drop_coordinator_gone(struct group *group, const char *text);
void drop_ask(struct group *group, uint64_t number, const char *name, const char *reason);
void drop_requested(struct group *group, uint32_t rank, uint64_t number, const char *name, const char *reason);
const struct lost_name *drop_lost_name(const struct group *group, const char *name);
void drop_announce_lost(struct model *model);
void drop_hear_closed(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload);
void drop_hear_drop(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload);
void drop_hear_refused(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload);
void drop_hear_lost(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload);

/* ---- gather.c, gradient.c ---- */

void gather_pump(struct model *model); /* serves, begins or fails the unshards that wait */
void gather_gathered(struct model *model, const struct report *report);
void gather_progress(struct model *model, const struct report *report);
void gather_prune(struct model *model);   /* gives back old copies that nobody holds */
void gather_release(struct model *model); /* the worker is gone */
void gather_free(struct model *model);
void gather_peer_gone(struct model *model, uint32_t rank);

void gradient_pump(struct model *model);
void gradient_returned(struct model *model, uint64_t slot);
void gradient_release(struct model *model); /* the worker's slots that it did not hand over */
void gradient_free(struct model *model);
struct grad *gradient_find(struct model *model, uint64_t slot);
void gradient_give(struct model *model, struct grad *grad);

#endif
