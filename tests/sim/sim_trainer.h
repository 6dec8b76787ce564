/*
 * A simulated trainer: one worker of one model on one node, a state machine that drives group.h as a training process
 * would: it attaches, loads, runs a script of calls for every attempt of every step, looks at everything that it is
 * given, and begins again when it is told so.
 */
#ifndef TESTS_SIM_SIM_TRAINER_H
#define TESTS_SIM_SIM_TRAINER_H

#include "tests/sim/sim.h"

#define TRAINER_ACTIONS_MAX 512

enum act {
	ACT_GRAD,    /* take a slot and write the gradient (or, while loading, the initial values) */
	ACT_LOAD,    /* hand the slot over as initial values */
	ACT_LOADED,  /* wait until the ranks agreed */
	ACT_START,   /* begin a gather */
	ACT_UNSHARD, /* ask, and go on */
	ACT_USE,     /* wait for it, compare */
	ACT_RESHARD,
	ACT_REDUCE,
	ACT_WEIGHT, /* set one, drawn when it is called */
	ACT_NEXT,
	ACT_SYNC,  /* then compare this rank's gradients */
	ACT_NORM,  /* then compare it */
	ACT_SHARD, /* then compare this rank's masters */
	ACT_STAGE, /* write the staging copy */
	ACT_STEP,
	ACT_ALL_REDUCE, /* then compare what came of it */
	ACT_ABORT,
	ACT_ATTACH, /* the last three are in no script */
	ACT_CLOSE,
	ACT_NOTHING
};

enum trainer_state {
	TRAINER_AWAY, /* no process, or one that has not attached */
	TRAINER_ATTACHING,
	TRAINER_LOADING,
	TRAINER_STEPPING,
	TRAINER_LOOKING, /* every step is done: a last look at all units */
	TRAINER_DONE,
	TRAINER_CLOSED
};

enum trainer_todo { /* what an answer asks for, before the script goes on */
		    TODO_NOTHING,
		    TODO_ROOM,    /* give back every copy */
		    TODO_RESTART, /* begin the attempt again */
		    TODO_LEAVE    /* the model is lost or gone */
};

struct action {
	enum act act;
	uint32_t unit; /* canonical */
};

struct trainer_call {
	struct call call; /* first */
	struct trainer *trainer;
	bool active;
	bool waited; /* the script stands still until it is done */
	enum act act;
	uint32_t unit;
	uint64_t started_us, deadline_ms;
	uint64_t step; /* the trainer's when it called */
	double weight;
	enum norm_kind kind;
};

struct trainer_hold {
	bool held;
	uint64_t slot, version;
};

struct trainer {
	struct sim *sim;
	struct node *node;
	uint32_t model; /* index of the workload */
	enum trainer_state state;
	uint64_t life; /* counts processes; events of an older one are ignored */
	struct dice dice;
	struct worker *worker;
	struct manifest *manifest;
	struct plan *plan;
	struct life *of;                                  /* which life of the model it trains */
	uint32_t order[SIM_UNITS], registered[SIM_UNITS]; /* registered to canonical, and back */
	struct action script[TRAINER_ACTIONS_MAX];
	unsigned length, next;
	uint64_t step;
	uint32_t attempt, micro_batch;
	uint64_t all_reduce; /* number of the next, in this script */
	bool raised;         /* the attempt may be another one than the trainer was told last */
	bool reload;         /* the ranks did not agree */
	enum trainer_todo todo;
	bool turn_armed;
	int attach_code;
	struct trainer_call main, units[SIM_UNITS];
	struct trainer_hold holds[SIM_UNITS];
	bool has_slot[SIM_UNITS];
	uint64_t slots[SIM_UNITS];
	/* what faults ask of it, each once */
	bool wants_abort, odd_manifest, cannot_seal, other_values, other_options;
	uint64_t sleep_us, short_deadline_ms;
	float *scratch; /* the largest unit */
};

struct trainer *trainer_new(struct sim *sim, uint32_t rank, uint32_t model);
void trainer_free(struct trainer *trainer); /* must be away or closed */
void trainer_begin(struct trainer *trainer);
void trainer_kill(struct trainer *trainer, uint64_t away_us); /* the process dies; another comes after that */
bool trainer_attached(const struct trainer *trainer);

/* A turn after that time, where none is due. */
void trainer_turn_in(struct trainer *trainer, uint64_t delay_us);
void trainer_turn_soon(struct trainer *trainer);
void trainer_turn_later(struct trainer *trainer);

/* trainer_answer.c */
void trainer_answered(struct call *call, const struct answer *answer);

/* trainer_script.c */
void script_load(struct trainer *trainer);
void script_step(struct trainer *trainer);
void script_look(struct trainer *trainer);

/* trainer_check.c */
void check_held(struct trainer *trainer, uint32_t unit, const char *when);
void check_unsharded(struct trainer *trainer, uint32_t unit, const struct answer *answer, uint64_t step_then);
void check_gradients(struct trainer *trainer);
void check_norm(struct trainer *trainer, enum norm_kind kind, const struct answer *answer);
void check_step(struct trainer *trainer, const struct answer *answer); /* of the step before the trainer's */
/* Whether it is the answer to a step that was skipped at the least loss scale. */
bool check_floor(struct trainer *trainer, const struct trainer_call *call, const struct answer *answer);
void check_all_reduce(struct trainer *trainer, const struct answer *answer);
void check_state(struct trainer *trainer); /* the last committed step's */
void check_shard(struct trainer *trainer, uint32_t unit);
void check_slot(struct trainer *trainer, uint32_t unit); /* still what was written */
void check_call(struct trainer *trainer, const struct trainer_call *call, const struct answer *answer);
void fill_slot(struct trainer *trainer, uint32_t unit);
void fill_initial(struct trainer *trainer, uint32_t unit, bool wrong);
void fill_staging(struct trainer *trainer);

#endif
