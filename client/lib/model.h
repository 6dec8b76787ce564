/*
 * The bodies of the handles, for the files of this folder. Who may touch what, when: a member is either constant after
 * the seal (or after open), or guarded by the lock that its comment names. A unit's lock is taken before its model's.
 */
#ifndef FSDP_CLIENT_MODEL_H
#define FSDP_CLIENT_MODEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/lib/mapping.h"
#include "client/lib/wire.h"
#include "fsdp/fsdp.h"

#define MODEL_UNITS_MAX 65536u
#define MODEL_PARAMS_MAX 1048576u /* of a unit */
#define MODEL_ORDER_MAX 1048576u  /* entries of a prefetch order */
#define MODEL_WORKERS_MAX 4096u   /* of a node */

struct fsdp_client {
	pid_t pid; /* of the process that opened it */
	struct wire *wire;
	uint32_t rank, world_size;
	pthread_mutex_t lock;
	struct fsdp_model *models; /* lock */
};

/* Which try of which step. Only ever grows. */
struct epoch {
	uint64_t step;
	uint32_t attempt;
};

enum model_state {
	MODEL_OPEN,    /* units may be added */
	MODEL_SEALING, /* one thread waits for the others */
	MODEL_SEALED,
	MODEL_BROKEN /* the daemon and we may not have the same idea of it: only close is left */
};

/* A pool of slots. */
struct pool {
	int fd; /* -1: it has no bytes */
	uint64_t bytes;
};

struct fsdp_model {
	struct fsdp_client *client;
	struct fsdp_model *previous, *next; /* client->lock */
	char *name;
	uint32_t handle;
	uint64_t deadline_ms;
	enum fsdp_optimizer optimizer;
	uint32_t local_worker, local_workers;
	enum fsdp_init init;
	uint32_t init_rank;

	pthread_mutex_t registering; /* held while a unit is added: its parts follow one another */
	_Atomic int state;           /* enum model_state; changes under registering */
	struct fsdp_unit **units;    /* registering until sealed */
	size_t unit_count, unit_capacity;

	struct pool gathers, grads;
	uint64_t shard_bytes; /* of each of the next three */
	void *masters, *gradients, *staging;
	uint64_t shard_elements; /* of all units */

	pthread_mutex_t
		stepping; /* held while a state of several parts goes to the daemon, until its step is answered */
	pthread_mutex_t lock;
	struct epoch epoch;       /* lock */
	struct fsdp_unit **order; /* lock; the prefetch order */
	size_t order_count;
	size_t order_at; /* where in it the last unshard was */
};

enum gradient_state {
	GRADIENT_NONE,   /* no slot is ours */
	GRADIENT_HELD,   /* the window shows a slot to the trainer */
	GRADIENT_LOADING /* fsdp_unit_load uses the window */
};

struct fsdp_unit {
	struct fsdp_model *model;
	size_t index; /* registration order */
	char *name;
	struct fsdp_param *params; /* names are ours */
	uint64_t *offsets;         /* bytes into the full copy, one a parameter, and the end */
	size_t param_count;
	uint64_t elements;
	bool f32; /* every parameter is */
	struct worker_place place;

	pthread_mutex_t lock;
	struct window gather;         /* lock; its base is constant */
	uint64_t unshards;            /* lock */
	struct window grad;           /* lock; its base is constant */
	enum gradient_state gradient; /* lock */
	struct epoch gradient_epoch;  /* lock; of the slot that is held */
	bool gradient_aborted;        /* lock; a slot was taken back by an abort since it was last asked for */
	unsigned char *handed;        /* lock; one a parameter: zeroed and given out */
};

/* ---- client.c ---- */

/* 0, or FSDP_E_INVALID for NULL, FSDP_E_FORKED in a child; the fault is set. */
int client_check(const struct fsdp_client *client, const char *what);

/* ---- model.c ---- */

int model_check(const struct fsdp_model *model, const char *what);        /* as client_check */
int model_check_sealed(const struct fsdp_model *model, const char *what); /* FSDP_E_STATE besides */
int unit_check(const struct fsdp_unit *unit, const char *what);
int unit_check_sealed(const struct fsdp_unit *unit, const char *what);

/* A request about the model, or about unit where that is not NULL. */
struct worker_message model_request(const struct fsdp_model *model, const struct fsdp_unit *unit, enum worker_op op);
/* Asks and waits. The answer's step and attempt are observed. The fault is set. */
int model_ask(struct fsdp_model *model, const struct fsdp_unit *unit, struct worker_message *request,
	      struct wire_call *call, const char *what);

void model_free(struct fsdp_model *model, bool forked); /* takes it out of its client; takes NULL */
void model_unmap(struct fsdp_model *model);             /* what the seal mapped and reserved */

/* ---- unit.c ---- */

void unit_free(struct fsdp_unit *unit, bool forked); /* takes NULL */

/* ---- gradient.c ---- */

/* The daemon says where the model is: gradients of an earlier epoch that are not handed over are taken back. */
void gradient_observe(struct fsdp_model *model, struct epoch epoch);
/* The micro-batch ended: what is not handed over is taken back. */
void gradient_take_back(struct fsdp_model *model);

/* ---- gather.c ---- */

/* Unshards unit and begins the gather of next (NULL: of none). The fault is set. */
int gather_unshard(struct fsdp_unit *unit, struct fsdp_unit *next, const char *what);
int gather_reshard(struct fsdp_unit *unit, const char *what);

#endif
