/*
 * libfsdp-client: what a training process (a worker) uses of fsdpd, fully sharded data parallelism as a service.
 *
 * The daemon of this node owns this node's shard of every parameter, of its gradient and of its optimizer state. A
 * worker asks for the full parameters of a unit (unshard), reads them, gives them back (reshard); writes full
 * gradients into a buffer and hands them over (reduce); and asks for a step. Full parameters and gradients lie in
 * memory that worker and daemon share: nothing is copied on the way.
 *
 *	struct fsdp_options options = FSDP_OPTIONS_INIT;
 *	options.optimizer = FSDP_OPTIMIZER_ADAMW;
 *	fsdp_client_open(NULL, &client);
 *	fsdp_model_open(client, "tiny", &options, &model);
 *	fsdp_unit_add(model, "block", params, 1, &unit);
 *	fsdp_model_seal(model, &info);
 *	fsdp_unit_load(unit, values, 1);
 *	for each step:
 *		fsdp_unit_unshard(unit);   read fsdp_unit_param(unit, 0)   fsdp_unit_reshard(unit);
 *		fsdp_unit_grad(unit, 0, &grad);   write grad   fsdp_unit_reduce(unit);
 *		fsdp_model_step(model, &step, &result);
 *
 * RULES FOR EVERY CALL
 *
 * Codes. A call returns 0 or a negative code: -errno for causes of the system, FSDP_E_* (error.h) for ours.
 * fsdp_last_error() has the whole story. Outputs come last and are written only on success. Any call may give, and
 * the declarations below do not repeat: FSDP_E_INVALID (an argument is NULL or out of its range), FSDP_E_FORKED
 * (see Fork), FSDP_E_UNREACHABLE (the connection to the daemon is lost; it stays lost: close the client and open it
 * again), FSDP_E_PROTOCOL (the daemon said what makes no sense; the connection is lost), -ENOMEM.
 *
 * Threads. Any thread may call, at any time, and a call that waits holds back no other. The library starts no
 * thread. Only fsdp_client_close and fsdp_model_close need that no other call on the same handle is in progress or
 * follows. One unit's gradient is written and handed over by one thread at a time. A signal does not interrupt a
 * call that waits.
 *
 * Waiting. "Waits for the daemon" means an answer that comes at once. "Waits" names what else is awaited; such a
 * wait ends at the deadline (options.deadline_ms, else the daemon's) with FSDP_E_TIMEOUT, which names what and whom
 * it waited for. "Collective" means that every rank's worker has to make the call.
 *
 * Ownership. Handles are the library's, given by open and add and freed by close. Strings, arrays and structs that
 * are passed in are borrowed for the call. Addresses that are given out point into mappings of the library: never
 * free or unmap them.
 *
 * Fork. A handle belongs to the process that opened it. In a child every call returns FSDP_E_FORKED, but
 * fsdp_client_close, which frees the child's memory and changes nothing for the parent. Shared memory is not
 * inherited: touching it in the child faults.
 *
 * Aborts. A step may be aborted by a deadline, by a lost peer, by an operator, by any worker. Then one call of
 * gradient, reduce, weight, next_micro_batch, sync, norm, all_reduce or step returns FSDP_E_ABORTED (or the reason's
 * own code, where it was waiting), every gradient of the step that was handed over is dropped on every rank, and every
 * gradient buffer that was not is taken back: begin the step again with its first micro-batch. A rank that could not
 * ask the coordinator at its deadline has given the attempt up alone: these calls return the same code until it is
 * heard.
 */
#ifndef FSDP_FSDP_H
#define FSDP_FSDP_H

#include "fsdp/dtype.h"
#include "fsdp/error.h"
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FSDP_API __attribute__((visibility("default")))
#else
#define FSDP_API
#endif

struct fsdp_client; /* a connection to this node's daemon */
struct fsdp_model;  /* a named set of units that one job shards; lives in its client */
struct fsdp_unit;   /* parameters that are gathered and reduced together; lives in its model */

/* ---- Errors ---- */

/* What a code means, in a few words. Any number may be asked for; never NULL. A constant, not to be freed. Does not
 * wait. */
FSDP_API const char *fsdp_strerror(int code);

/*
 * The whole story of the last call of this thread that failed: what, which unit, which ranks, what to do. "" where none
 * has failed. Valid until the next call of this library in this thread. Does not wait. In the child after a fork too.
 */
FSDP_API const char *fsdp_last_error(void);

/* ---- The connection ---- */

/*
 * Connects to the daemon of this node. socket_path: its client socket; NULL means $FSDP_SOCKET, and where that is unset
 * or empty /run/fsdpd/client.sock. Waits for the daemon. Not collective. Gives *ret_client, to be closed with
 * fsdp_client_close. FSDP_E_UNREACHABLE: nobody listens there. FSDP_E_INVALID: the path does not fit a Unix socket's
 * address. FSDP_E_PROTOCOL: the daemon speaks another version.
 */
FSDP_API int fsdp_client_open(const char *socket_path, struct fsdp_client **ret_client);

/*
 * Frees the client and every model that is still open in it: for the daemon that is as if the process had ended, so
 * shards stay where they are and gradients that were not handed over are dropped. Takes NULL. Does not wait, not
 * collective; returns 0. In a forked child it frees memory only.
 */
FSDP_API int fsdp_client_close(struct fsdp_client *client);

struct fsdp_group {
	uint32_t rank;       /* of this node's daemon, from 0 */
	uint32_t world_size; /* daemons in the group */
	uint64_t generation; /* which life of the group this is; 0 while it has not formed */
	uint64_t bytes_in;   /* what this node's daemon received from its peers since it began */
	uint64_t bytes_out;  /* and what it sent to them */
};

/* Who this node is. Waits for the daemon. Not collective. */
FSDP_API int fsdp_client_group(struct fsdp_client *client, struct fsdp_group *ret_group);

/* ---- A model: what every rank registers alike ---- */

enum fsdp_reduce_op {
	FSDP_MEAN = 0, /* of all contributions, by their weights */
	FSDP_SUM = 1,  /* of all contributions times their weights, then times scale */
	FSDP_MAX = 2,  /* of fsdp_model_all_reduce alone */
	FSDP_MIN = 3   /* likewise */
};

enum fsdp_optimizer {
	FSDP_OPTIMIZER_NONE = 0, /* outside: the trainer writes new values to its staging copy, a step publishes them */
	FSDP_OPTIMIZER_SGD = 1,
	FSDP_OPTIMIZER_ADAMW = 2,
	FSDP_OPTIMIZER_ADAM = 3,
	FSDP_OPTIMIZER_ADAGRAD = 4,
	FSDP_OPTIMIZER_RMSPROP = 5,
	FSDP_OPTIMIZER_LION = 6
};

enum fsdp_init {
	FSDP_INIT_VERIFY = 0,    /* every rank loads its own copy; where checksums differ it is an error that says so */
	FSDP_INIT_FROM_RANK = 1, /* what the worker of rank init_rank loads is everybody's */
	FSDP_INIT_ZEROS = 2      /* all parameters are zero from the seal on; nothing is loaded */
};

/*
 * Begin with `struct fsdp_options options = FSDP_OPTIONS_INIT;` and change what differs. size says which version of
 * this struct the caller was compiled with. All of it, but local_worker, local_workers and deadline_ms, must be the
 * same on every rank.
 */
struct fsdp_options {
	size_t size;           /* sizeof(struct fsdp_options) */
	double scale;          /* of a sum; finite; 0 counts as 1 */
	uint64_t deadline_ms;  /* of every call that waits, in milliseconds; 0: the daemon's */
	uint32_t gather_dtype; /* enum fsdp_dtype that workers see; 0: each parameter's own */
	uint32_t reduce_dtype; /* enum fsdp_dtype that gradients cross the wire in; 0: the master's */
	uint32_t reduce_op;    /* enum fsdp_reduce_op */
	uint32_t optimizer;    /* enum fsdp_optimizer */
	uint32_t
		momentum; /* 1: SGD or RMSprop keeps a momentum buffer (its coefficient comes with each step), else 0 */
	uint32_t nesterov;      /* 1: SGD with Nesterov's momentum (needs momentum), else 0 */
	uint32_t local_worker;  /* which of this node's workers this is, from 0 */
	uint32_t local_workers; /* workers of this node; 0: both from $LOCAL_RANK and $LOCAL_WORLD_SIZE, else 0 of 1 */
	uint32_t flags;         /* 0 */
	uint32_t reserved;      /* 0 */
	uint32_t init;          /* enum fsdp_init: where the parameters' first values come from */
	uint32_t init_rank;     /* of FSDP_INIT_FROM_RANK; else 0 */
	uint32_t centered;      /* 1: RMSprop keeps the mean of the gradient too, else 0 */
	uint32_t reserved1;     /* 0 */
};

#define FSDP_OPTIONS_INIT                                                                                    \
	{                                                                                                    \
		sizeof(struct fsdp_options), 1.0, 0, 0, 0, FSDP_MEAN, FSDP_OPTIMIZER_NONE, 0, 0, 0, 0, 0, 0, \
			FSDP_INIT_VERIFY, 0, 0, 0                                                            \
	}

/*
 * Begins to describe the model of that name (1 to FSDP_NAME_MAX bytes of UTF-8). options NULL means FSDP_OPTIONS_INIT.
 * Waits for the daemon. Not collective: ranks meet at the seal. Gives *ret_model, to be closed with fsdp_model_close or
 * with the client. FSDP_E_INVALID: also $LOCAL_RANK or $LOCAL_WORLD_SIZE is not a number of its range. FSDP_E_STOPPED:
 * the daemon is leaving.
 */
FSDP_API int fsdp_model_open(struct fsdp_client *client, const char *name, const struct fsdp_options *options,
			     struct fsdp_model **ret_model);

/* One parameter; all of it is the same on every rank. Set every member (or begin with zeros). */
struct fsdp_param {
	const char *name;              /* 1 to FSDP_NAME_MAX bytes of UTF-8, once a unit */
	uint32_t dtype;                /* enum fsdp_dtype of the master; f32 only can be sealed so far */
	uint32_t ndim;                 /* 0 (a scalar) to FSDP_DIMS_MAX */
	uint64_t shape[FSDP_DIMS_MAX]; /* elements, row-major; the first ndim count; any may be 0 */
	uint32_t flags;                /* 0 */
	uint32_t group;                /* whose numbers a step uses (fsdp_step.groups); 0: the step's own */
};

/*
 * Adds a unit of count parameters (0 or more); everything is copied. The order of units is this process's own (it is
 * the order of fsdp_model_forward and of fsdp_model_update_shards); that of parameters in a unit must be the same on
 * every rank. Before the seal only. Waits for the daemon. Not collective. Gives *ret_unit, which lives as long as the
 * model. FSDP_E_INVALID: a name is missing, too long or there already, too many dimensions, an unknown dtype.
 * FSDP_E_OVERFLOW: elements or bytes exceed 63 bits, or the model a limit. FSDP_E_STATE: the model is sealed, or an
 * earlier call was refused by the daemon in the middle of a unit (close the model and open it again).
 */
FSDP_API int fsdp_unit_add(struct fsdp_model *model, const char *name, const struct fsdp_param *params, size_t count,
			   struct fsdp_unit **ret_unit);

struct fsdp_unit_options {
	size_t size;           /* sizeof(struct fsdp_unit_options) */
	uint32_t gather_dtype; /* enum fsdp_dtype; 0: the model's */
	uint32_t reduce_dtype; /* enum fsdp_dtype; 0: the model's */
};

#define FSDP_UNIT_OPTIONS_INIT                         \
	{                                              \
		sizeof(struct fsdp_unit_options), 0, 0 \
	}

/*
 * Overrides the model's dtypes for one unit; the same on every rank. Before the seal only. Waits for the daemon. Not
 * collective. FSDP_E_STATE: the model is sealed. FSDP_E_DTYPE: not supported.
 */
FSDP_API int fsdp_unit_set_options(struct fsdp_unit *unit, const struct fsdp_unit_options *options);

/*
 * Declares in which order this process will unshard, where that is known (a unit may come several times, as in a
 * forward and a backward pass; after the last the first follows). Then fsdp_unit_unshard of one also begins the gather
 * of the next. It is a hint: any other order works. Copied. count 0 takes it back. At any time. Does not wait.
 * Not collective.
 */
FSDP_API int fsdp_model_prefetch_order(struct fsdp_model *model, struct fsdp_unit *const *units, size_t count);

/* The unit that was added as the index-th, from 0. FSDP_E_NOT_FOUND: there are not so many. Does not wait. Not
 * collective. */
FSDP_API int fsdp_model_unit(struct fsdp_model *model, size_t index, struct fsdp_unit **ret_unit);

struct fsdp_unit_description {
	const char *name;                /* borrowed from the unit, like params */
	const struct fsdp_param *params; /* as they were added */
	size_t param_count;
	size_t index;          /* in the order in which units were added */
	uint64_t elements;     /* of all parameters */
	uint64_t full_bytes;   /* of the full copy; 0 before the seal, like the following */
	uint64_t shard_offset; /* elements: where this rank's range of the flat vector begins */
	uint64_t shard_count;  /* elements of it */
};

/* What a unit is. Does not wait. Not collective. */
FSDP_API int fsdp_unit_describe(struct fsdp_unit *unit, struct fsdp_unit_description *ret_description);

struct fsdp_model_info {
	uint64_t step;        /* steps committed so far: the number of the next one */
	uint32_t micro_batch; /* the next one of this worker in that step */
	uint32_t worker;      /* this worker among all of the group, from 0: rank, then local worker */
	uint32_t workers;     /* workers of the group */
	uint32_t resumed;     /* 1: the daemons held the model already and its values are there; 0: load them */
	uint64_t state_bytes; /* of the blob that the last committed step left here; see fsdp_model_state */
	uint64_t reserved[4]; /* 0 */
};

/*
 * Ends the description: daemons compare it, agree on it, and take the memory for it. COLLECTIVE where the daemon does
 * not hold the model sealed already (then it is local, and info.resumed is 1). Waits for every rank's worker to seal
 * the same. Afterwards the library maps this rank's shards and reserves two address ranges for each unit. ret_info may
 * be NULL. FSDP_E_MISMATCH: ranks differ; the first unit and parameter that do, and how. FSDP_E_BUDGET, -ENOMEM: a rank
 * has not the memory. FSDP_E_DTYPE: a dtype that cannot be sealed yet. FSDP_E_BUSY: another worker has attached.
 * FSDP_E_TIMEOUT: names who is missing. FSDP_E_PEER_LOST, FSDP_E_LOST, FSDP_E_STOPPED. After an error close the model
 * and open it again.
 */
FSDP_API int fsdp_model_seal(struct fsdp_model *model, struct fsdp_model_info *ret_info);

/* ---- Values ---- */

/*
 * Initial values: values[i] points to parameter i's elements (row-major, its own dtype, not NULL unless it has none),
 * count must be the unit's number of parameters. Copied. Once, after a seal that did not resume. Not collective.
 *
 * With FSDP_INIT_VERIFY every rank loads every unit with the same values and keeps its range of them; ranks compare
 * checksums. It waits for a free gradient buffer, not for other ranks: a difference between them is reported by the
 * call that first needs the unit, and every rank may load it again. Until the ranks agree, a second load is compared
 * with the first; later it is refused.
 *
 * With FSDP_INIT_FROM_RANK rank init_rank loads, and the daemons of the others read their ranges from it; the buffer is
 * free again when they have. On every other rank the call does nothing and returns 0, whatever values and count are; a
 * call that needs the unit there waits for that rank's load. With FSDP_INIT_ZEROS it is FSDP_E_STATE.
 *
 * FSDP_E_STATE: the unit is loaded and agreed on (nothing changes), or holds a gradient that was not handed over.
 * FSDP_E_TIMEOUT.
 */
FSDP_API int fsdp_unit_load(struct fsdp_unit *unit, const void *const *values, size_t count);

/*
 * Makes the unit's full parameters readable at the addresses that fsdp_unit_param gives, at the version of the last
 * committed step. Counted: each needs its own reshard, and until the last of them the values stay the same, whatever
 * others do. Waits for the unit's initial values to be verified, for a step of it in progress, for the slices of other
 * ranks, and for room in the gather budget. Not collective. FSDP_E_MISMATCH: initial values differ (unit, parameter,
 * ranks). FSDP_E_BUDGET: it can never fit, or everybody who holds memory waits for more. FSDP_E_TIMEOUT,
 * FSDP_E_PEER_LOST, FSDP_E_LOST, FSDP_E_DROPPED, FSDP_E_STOPPED.
 */
FSDP_API int fsdp_unit_unshard(struct fsdp_unit *unit);

/* Begins the same and holds nothing: a later fsdp_unit_unshard then waits less. Waits for the daemon. Not collective.
 * Errors as above, as far as they are known at once. */
FSDP_API int fsdp_unit_unshard_start(struct fsdp_unit *unit);

/* Gives one unshard back. With the last one the parameters can no longer be read: touching them faults. Waits for the
 * daemon. Not collective. FSDP_E_STATE: the unit is not unsharded. */
FSDP_API int fsdp_unit_reshard(struct fsdp_unit *unit);

/*
 * Where full parameter `index` lies: row-major, its gather dtype, read-only. The address is constant from the seal to
 * the close of the model, and readable while the unit is unsharded. NULL (see fsdp_last_error): before the seal, no
 * such parameter, in a forked child. Does not wait. Not collective.
 */
FSDP_API const void *fsdp_unit_param(struct fsdp_unit *unit, size_t index);

/* ---- Gradients and steps ---- */

/*
 * A buffer for the full gradient of parameter `index`: row-major, the parameter's dtype (f32), zero when it is first
 * given in a micro-batch, the same address until the unit is reduced; yours to write until then. Where one of a unit's
 * gradients was asked for, those that were not count as zero. Waits for room in the gradient budget. Not collective.
 * FSDP_E_STATE: the unit was reduced in this micro-batch, or gradients were synchronised and the step was not made.
 * FSDP_E_ABORTED, FSDP_E_BUDGET, FSDP_E_TIMEOUT, FSDP_E_PEER_LOST, FSDP_E_LOST.
 */
FSDP_API int fsdp_unit_grad(struct fsdp_unit *unit, size_t index, void **ret_grad);

/*
 * Hands the unit's gradients over, as this worker's contribution to this micro-batch; they count even if this process
 * dies now. Every address that fsdp_unit_grad gave for the unit becomes invalid (touching it faults), on failure too.
 * Waits for the daemon: the sum goes on without the caller. Not itself collective: a rank without a gradient for a unit
 * leaves the call out. FSDP_E_STATE: no gradient of the unit was asked for, or this micro-batch has it already.
 * FSDP_E_ABORTED, FSDP_E_LOST.
 */
FSDP_API int fsdp_unit_reduce(struct fsdp_unit *unit);

/*
 * This worker's weight for the present micro-batch (say its number of samples), before its first fsdp_unit_reduce in
 * it; 1 where it is not called, and again with each micro-batch. A gradient is multiplied by it in f32 before it is
 * added, and the mean is divided by the sum of the weights of all workers and micro-batches that count: every worker's
 * first, whether or not it reduced anything in it, and those later ones in which it did. A sum's gradients are
 * multiplied too. At weight 0 nothing of the micro-batch is looked at, NaNs included: a worker that has run out of data
 * goes on so. Where all weights sum to 0, fsdp_model_sync_gradients gives zeros and the step is skipped on every rank.
 * Waits for the daemon. Not collective. FSDP_E_INVALID: negative, not finite, or more than an f32 can hold; below its
 * least one counts as 0. FSDP_E_STATE: a unit was reduced in this micro-batch, or gradients were synchronised and the
 * step was not made. FSDP_E_ABORTED, FSDP_E_LOST.
 */
FSDP_API int fsdp_model_weight(struct fsdp_model *model, double weight);

/*
 * Ends this worker's micro-batch and begins the next one of the same step, which adds up. What was not reduced is
 * absent, and its buffers are taken back. Waits for the daemon. Not collective. FSDP_E_STATE: gradients were
 * synchronised and the step was not made. FSDP_E_OVERFLOW: a step has at most 65536 micro-batches, fewer where the
 * model has more than 8192 units. FSDP_E_ABORTED, FSDP_E_LOST.
 */
FSDP_API int fsdp_model_next_micro_batch(struct fsdp_model *model);

/*
 * Ends the step's last micro-batch and waits for every rank's contributions. Afterwards this rank's shards
 * (fsdp_unit_shard) have their mean (or sum), until the step ends. Needed only by who looks at gradients:
 * fsdp_model_step does the same. COLLECTIVE. A unit that no rank reduced is zero. FSDP_E_MISMATCH: initial values
 * differ. FSDP_E_TIMEOUT: names unit and missing ranks. FSDP_E_ABORTED, FSDP_E_PEER_LOST, FSDP_E_LOST.
 */
FSDP_API int fsdp_model_sync_gradients(struct fsdp_model *model);

enum fsdp_norm {
	FSDP_NORM_NONE = 0,
	FSDP_NORM_2 = 1,  /* the root of the sum of squares */
	FSDP_NORM_INF = 2 /* the largest absolute value */
};

/*
 * The norm of the whole gradient after fsdp_model_sync_gradients, every element of every rank counted once: for an
 * optimizer outside, which clips for itself. kind: FSDP_NORM_2 or FSDP_NORM_INF. Summed in f64, in the order of units
 * by name, of elements, and of ranks. *ret_finite is 0 where an element is not finite (the norm is not, then), else 1;
 * either may be NULL. COLLECTIVE. Again within a step, of either kind, it gives the same answer at once. FSDP_E_STATE:
 * gradients are not synchronised. FSDP_E_TIMEOUT: names who is missing. FSDP_E_ABORTED, FSDP_E_PEER_LOST, FSDP_E_LOST.
 */
FSDP_API int fsdp_model_norm(struct fsdp_model *model, uint32_t kind, double *ret_norm, int *ret_finite);

#define FSDP_STEP_GROUPS_MAX 64 /* groups of one step */

/*
 * What a step uses for the parameters of a group (fsdp_param.group) instead of its own numbers, which mean the same
 * here: say no weight decay for biases, another learning rate for a head. Begin with those of the step, and change what
 * differs:
 *
 *	struct fsdp_step_group biases = FSDP_STEP_GROUP_INIT(1, step);
 *	biases.weight_decay = 0;
 *	step.groups = &biases;
 *	step.group_count = 1;
 */
struct fsdp_step_group {
	size_t size;    /* sizeof(struct fsdp_step_group) */
	uint32_t group; /* not 0; one that no parameter is in changes nothing */
	uint32_t reserved;
	double learning_rate, momentum, dampening, weight_decay, beta1, beta2, epsilon;
	double alpha, learning_rate_decay, initial_accumulator;
};

#define FSDP_STEP_GROUP_INIT(group, step)                                                                          \
	{                                                                                                          \
		sizeof(struct fsdp_step_group), group, 0, (step).learning_rate, (step).momentum, (step).dampening, \
			(step).weight_decay, (step).beta1, (step).beta2, (step).epsilon, (step).alpha,             \
			(step).learning_rate_decay, (step).initial_accumulator                                     \
	}

/*
 * What a step uses; the same on every rank, but for the state. Begin with `struct fsdp_step step = FSDP_STEP_INIT;`
 * (learning rate 0.001, betas 0.9 and 0.999, epsilon 1e-8, alpha 0.99, growth factor 2 every 2000 steps, back-off
 * factor 0.5, least scale 1, all others 0) and change what differs. What the optimizer does not use is ignored, but
 * must be the same.
 *
 * The rules are PyTorch's (Lion's its paper's). These defaults are those of Adam; where PyTorch begins an optimizer
 * with others: AdamW weight_decay 0.01, Adagrad learning_rate 0.01 and epsilon 1e-10, RMSprop learning_rate 0.01;
 * Lion's paper learning_rate 0.0001 and beta2 0.99.
 *
 * In this order, each in f32: the sum of gradients is divided by the sum of the weights (or multiplied by scale), then
 * by loss_scale; of that the norm is taken, in f64; then it is multiplied by min(1, max_norm / norm), which is 1 at
 * norm 0, and given to the optimizer. A unit that nobody reduced has no part in it, and every element counts once.
 *
 * With a loss_scale result.next_loss_scale is the one to give to the next step: the same; times backoff_factor after a
 * gradient that was not finite, but not below min_scale; times growth_factor after growth_interval steps that were
 * applied. The daemons count these. A gradient that is not finite at a loss_scale that is not above min_scale is
 * FSDP_E_STATE on every rank: the step's number is used up, as that of a skipped one, but no smaller scale can help.
 */
struct fsdp_step {
	size_t size;          /* sizeof(struct fsdp_step) */
	double learning_rate; /* >= 0 */
	double momentum;      /* SGD, RMSprop: >= 0; 0 where the model was opened without momentum */
	double dampening;     /* SGD; 0 with nesterov */
	double weight_decay;  /* >= 0; AdamW, Lion: of the parameter itself; the others: added to the gradient */
	double beta1;         /* Adam, AdamW, Lion: in [0, 1) */
	double beta2;         /* Adam, AdamW, Lion: in [0, 1) */
	double epsilon;       /* Adam, AdamW, Adagrad, RMSprop: >= 0 */
	const void *state;    /* see fsdp_model_state; NULL: none */
	size_t state_bytes;   /* of it, at most FSDP_STATE_MAX */
	/* what happens to the gradient before, with an optimizer in the daemon */
	uint32_t norm_kind;       /* enum fsdp_norm */
	uint32_t reserved0;       /* 0 */
	double max_norm;          /* the gradient is clipped to a norm of at most this; 0: not; needs a norm_kind */
	double loss_scale;        /* the gradient is divided by it; 0: not, and what follows is not looked at */
	double growth_factor;     /* >= 1 */
	double backoff_factor;    /* above 0, at most 1 */
	uint64_t growth_interval; /* steps that are applied in a row until the scale grows; 0: it never does */
	double min_scale;         /* the least loss scale; >= 0 */
	/* of some optimizers */
	double alpha;               /* RMSprop: how much of the mean of squares stays, in [0, 1] */
	double learning_rate_decay; /* Adagrad: >= 0 (PyTorch's lr_decay) */
	/* Adagrad: >= 0; looked at in a parameter's first update (initial_accumulator_value) */
	double initial_accumulator;
	/* of groups of parameters */
	const struct fsdp_step_group
		*groups;    /* group_count of them, each group at most once; may be NULL where it is 0 */
	size_t group_count; /* at most FSDP_STEP_GROUPS_MAX */
};

#define FSDP_STEP_INIT                                                                                               \
	{                                                                                                            \
		sizeof(struct fsdp_step), 0.001, 0.0, 0.0, 0.0, 0.9, 0.999, 1e-8, 0, 0, FSDP_NORM_NONE, 0, 0.0, 0.0, \
			2.0, 0.5, 2000, 1.0, 0.99, 0.0, 0.0, 0, 0                                                    \
	}

#define FSDP_STATE_MAX 1048576 /* bytes of the state that commits with a step */

/* Skipped: a gradient was not finite, or the weights of all workers sum to 0. The step's number is used up, and nothing
 * else changed, on any rank. */
enum fsdp_outcome { FSDP_APPLIED = 0, FSDP_SKIPPED = 1 };

#define FSDP_STEP_UNITS_MAX 8 /* units that a result names; the daemon's log has their names */

struct fsdp_step_result {
	uint64_t step;          /* steps committed so far, this one included */
	uint32_t outcome;       /* enum fsdp_outcome */
	uint32_t not_finite;    /* units whose gradient was not finite, on any rank; 0 of a step that was applied */
	double norm;            /* where norm_kind asked for it; not finite where the gradient was not */
	double next_loss_scale; /* for the next step; 0 where this one had none */
	uint32_t not_finite_units
		[FSDP_STEP_UNITS_MAX]; /* the first of them, by the order in which they were added here */
	uint64_t reserved[2];          /* 0 */
};

/*
 * Ends the micro-batch and the step: every rank applies the optimizer to its shards, or none does. With
 * FSDP_OPTIMIZER_NONE it publishes the staging copies, as fsdp_model_update_shards(model, NULL, 0) does, and of step
 * nothing but the state is looked at. COLLECTIVE. Waits for every rank's contributions and vote. step NULL means
 * FSDP_STEP_INIT; ret_result may be NULL. Gradients that were not reduced are dropped. FSDP_E_MISMATCH: ranks gave
 * different numbers (both ranks, the group, and the first difference; the step is aborted), or initial values differ.
 * FSDP_E_STATE: a unit was not loaded, or a gradient is not finite at the least loss scale and the step was skipped.
 * FSDP_E_IN_DOUBT: this rank voted and cannot learn the decision yet; call again to be told. FSDP_E_ABORTED,
 * FSDP_E_TIMEOUT, FSDP_E_PEER_LOST, FSDP_E_LOST.
 */
FSDP_API int fsdp_model_step(struct fsdp_model *model, const struct fsdp_step *step,
			     struct fsdp_step_result *ret_result);

/*
 * The state that this worker gave to the last committed step (step.state: a data cursor, random state), applied or
 * skipped; a trainer that was killed leaves it to the one that comes in its place. It is this worker's own: ranks do
 * not compare it. A step that was given none, fsdp_model_update_shards among them, leaves none; one that is aborted
 * changes nothing; and where fsdp_model_step is called again after FSDP_E_IN_DOUBT, the state of the first call counts.
 * buffer has size bytes and gets as many as the state has (fsdp_model_info.state_bytes, fsdp_model_state_bytes), none
 * where there is none. Waits for the daemon. Not collective. FSDP_E_INVALID: the state is larger than the buffer; the
 * text gives both numbers. FSDP_E_STALE: several steps were committed while it was read. FSDP_E_LOST, FSDP_E_DROPPED.
 */
FSDP_API int fsdp_model_state(struct fsdp_model *model, void *buffer, size_t size);

/* How many bytes fsdp_model_state gives now. Waits for the daemon. Not collective. FSDP_E_LOST, FSDP_E_DROPPED. */
FSDP_API int fsdp_model_state_bytes(struct fsdp_model *model, size_t *ret_bytes);

/* Drops everything of the step in progress, on every rank; it begins again with its first micro-batch. Waits for the
 * coordinator's word. Not collective: one worker calls it, all others' next call returns FSDP_E_ABORTED.
 * FSDP_E_TIMEOUT, FSDP_E_LOST. */
FSDP_API int fsdp_model_abort_step(struct fsdp_model *model);

/* ---- Small values that all workers share ---- */

#define FSDP_ALL_REDUCE_MAX 1024 /* values of one call, at most */

/*
 * Combines count doubles (0 to FSDP_ALL_REDUCE_MAX) over the workers of all ranks, in place: a loss, a decision to
 * stop. op: FSDP_SUM, FSDP_MAX or FSDP_MIN; a sum is added in rank order, in f64; where any value is NaN, so is the
 * result. Everybody gets the same bits. With count 0, where values may be NULL, it is a barrier. COLLECTIVE: waits for
 * every rank's worker; any time after the seal, before loading, between steps and within one. Before the worker has
 * ended its micro-batches others may wait for its gradients: within a step the place for it is after
 * fsdp_model_sync_gradients. Calls are numbered within a step and its attempt: a worker that came in place of another
 * begins with the first one again and gets the answers that were given. On failure values are as they were.
 * FSDP_E_MISMATCH: ranks gave different counts or ops (both ranks, and what each gave). FSDP_E_STATE: another thread is
 * in this call, or has voted in fsdp_model_step. A deadline aborts the step in progress, as in
 * fsdp_model_sync_gradients. FSDP_E_ABORTED, FSDP_E_TIMEOUT, FSDP_E_PEER_LOST, FSDP_E_LOST.
 */
FSDP_API int fsdp_model_all_reduce(struct fsdp_model *model, double *values, size_t count, uint32_t op);

/* ---- Shards: for an optimizer outside, and for tools ---- */

/*
 * parameter: the master values, read-only; they change with a step. gradient: read-only; the mean (or sum) from
 * fsdp_model_sync_gradients until the step ends, meaningless at any other time. staging: yours to write; published by
 * fsdp_model_update_shards and, where the model has no optimizer, by fsdp_model_step.
 */
struct fsdp_shard {
	uint32_t dtype;     /* enum fsdp_dtype of all three */
	uint32_t reserved0; /* 0 */
	uint64_t offset;    /* elements: where this rank's range of the segment begins */
	uint64_t count;     /* elements of it; may be 0 */
	const void *parameter;
	const void *gradient;
	void *staging;
};

/*
 * This rank's range of a unit. segment: which of the unit's flat vectors, one for each master dtype; 0 is the only one
 * so far. The addresses are constant from the seal to the close of the model; NULL where count is 0. What lies there is
 * what the last committed step left: a step returns before every shard has been updated, so call this again after each
 * before reading parameter or writing staging. Waits for the unit's initial values and for a step of it in progress, on
 * this node. Not collective. FSDP_E_STATE: not sealed. FSDP_E_NOT_FOUND: no such segment. FSDP_E_TIMEOUT, FSDP_E_LOST,
 * FSDP_E_DROPPED.
 */
FSDP_API int fsdp_unit_shard(struct fsdp_unit *unit, size_t segment, struct fsdp_shard *ret_shard);

/*
 * New values for exactly this rank's elements: flat has count elements (f32), the shards of all units in the order in
 * which they were added; copied to the staging copies, which are then published as a step of their own. With an
 * optimizer in the daemon masters are replaced, its moments stay, and the gradients of the step are dropped. flat NULL
 * publishes the staging copies as they are (count is ignored). COLLECTIVE. Waits as fsdp_model_step does, with its
 * errors. FSDP_E_INVALID: count is not the number of this rank's elements; the text gives both numbers, and nothing has
 * changed.
 */
FSDP_API int fsdp_model_update_shards(struct fsdp_model *model, const void *flat, uint64_t count);

/*
 * Calls fn(unit, index, context) for every unit in the order in which they were added, unsharded around it, the gather
 * of the next one begun before it. A non-zero return of fn ends it: that unit is resharded like those before, and the
 * value is returned as it is. Waits as fsdp_unit_unshard does, with its errors. Not collective. fn may call the
 * library, but not close the model.
 */
FSDP_API int fsdp_model_forward(struct fsdp_model *model,
				int (*fn)(struct fsdp_unit *unit, size_t index, void *context), void *context);

/*
 * Ends this process's part and frees the model and its units, whatever is returned. keep not 0: the shards stay in the
 * daemons, for who opens the same model later. keep 0: they are dropped once every rank's worker has closed it so.
 * Every address that the model gave becomes invalid. Takes NULL. Waits for the daemon. Not collective. In a forked
 * child it returns FSDP_E_FORKED and frees nothing: fsdp_client_close does.
 */
FSDP_API int fsdp_model_close(struct fsdp_model *model, int keep);

#ifdef __cplusplus
}
#endif

#endif
