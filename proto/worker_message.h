/*
 * One message between a worker and its daemon: a plain struct and the only code that packs and unpacks it
 * (worker.proto). Used by the daemon and by libfsdp-client. A request carries a number of the worker's choice; its
 * answer repeats it, so that several threads may wait on one socket and answers may come in any order.
 */
#ifndef FSDP_PROTO_WORKER_MESSAGE_H
#define FSDP_PROTO_WORKER_MESSAGE_H

#include "fsdp/dtype.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORKER_PROTOCOL 1
#define WORKER_TEXT_MAX 1024
#define WORKER_BAD_MAX 8           /* units that are named in one answer */
#define WORKER_PARAMS_MAX 256      /* parameters in one message; a unit of more goes in parts */
#define WORKER_BLOB_MAX (1u << 20) /* bytes of a trainer's state */
#define WORKER_BLOB_PART_MAX (100u << 10)
#define WORKER_VALUES_MAX 1024 /* of an all-reduce */
#define WORKER_GROUPS_MAX 64   /* of parameters, in one step */
#define WORKER_UNITS_MAX 1024  /* unit places in one answer; more go in parts */

/*
 * What each carries -> what its answer does. Every answer carries code and text besides. A unit is named by its place
 * in the order of registration. WORKER_UNITS is for tools and needs a sealed model; a unit of more than
 * WORKER_PARAMS_MAX parameters takes several, each with the number of the first parameter that is wanted in `slot`.
 */
enum worker_op {
	WORKER_HELLO = 1, /* protocol -> rank, world_size, generation */
	WORKER_OPEN = 2,  /* name, options -> handle */
	WORKER_UNIT = 3,  /* handle, name, params[], unit, more: another part follows -> */
	WORKER_SEAL =
		4, /* handle, deadline -> step, attempt, micro_batch, resumed, arena sizes, blob_bytes, descriptors */
	WORKER_PLACES = 5,            /* handle, unit (the first) -> places[]: where each unit's shard lies, more */
	WORKER_LOAD = 6,              /* handle, unit, slot -> */
	WORKER_UNSHARD = 7,           /* handle, unit -> slot, version */
	WORKER_UNSHARD_START = 8,     /* handle, unit -> */
	WORKER_RESHARD = 9,           /* handle, unit -> */
	WORKER_GRAD = 10,             /* handle, unit -> slot */
	WORKER_REDUCE = 11,           /* handle, unit -> */
	WORKER_WEIGHT = 30,           /* handle, weight -> : of the micro-batch */
	WORKER_NEXT_MICRO_BATCH = 12, /* handle -> */
	WORKER_SYNC = 13,             /* handle -> */
	WORKER_STEP =
		/* handle, commit, hyper, groups[], blob (the last part) -> outcome, step, norm, next_scale, bad_count,
		 * bad[] */
		14,
	WORKER_NORM = 31,       /* handle, norm_kind -> norm, finite */
	WORKER_ABORT = 15,      /* handle -> */
	WORKER_CLOSE = 16,      /* handle, drop -> */
	WORKER_GROUP = 17,      /* -> rank, world_size, generation (0: not formed yet), bytes_in, bytes_out */
	WORKER_SET_UNIT = 18,   /* handle, unit, gather_dtype, reduce_dtype -> : before the seal */
	WORKER_UNITS = 19,      /* handle, unit, slot (the first parameter) -> name, params[], more */
	WORKER_SHARD = 20,      /* handle, unit -> version: once this rank's shard has its present version */
	WORKER_ALL_REDUCE = 40, /* handle, combine, values -> values */
	/* A blob goes in parts, in order, each with its offset and the bytes of the whole: those but the last in
	 * WORKER_BLOB, the last in WORKER_STEP. */
	WORKER_BLOB = 41, /* handle, blob, blob_offset, blob_bytes -> */
	WORKER_STATE =
		42 /* handle, blob_offset -> blob (a part), blob_bytes, step: the blob of the last committed step */
};
#define WORKER_OP_LAST WORKER_STATE

/* What an all-reduce makes of the workers' values; the numbers of enum fsdp_reduce_op. */
enum worker_combine { WORKER_SUM = 1, WORKER_MAX = 2, WORKER_MIN = 3 };

struct worker_param {
	char name[FSDP_NAME_MAX + 1];
	uint32_t dtype, ndim, flags, group;
	uint64_t shape[FSDP_DIMS_MAX];
};

struct worker_place {
	uint64_t full_bytes;   /* of the unit's full copy */
	uint64_t shard_offset; /* elements into the segment: where this rank's range begins */
	uint64_t shard_count;  /* elements of it */
	uint64_t arena_offset; /* bytes into masters, gradients and staging */
};

/* What a step uses for the parameters of a group. */
struct worker_group {
	uint32_t group;
	double learning_rate, momentum, dampening, weight_decay, beta1, beta2, epsilon;
	double alpha, learning_rate_decay, initial_accumulator;
};

struct worker_hyper {
	double learning_rate, momentum, dampening, weight_decay, beta1, beta2, epsilon;
	double alpha, learning_rate_decay, initial_accumulator;
	uint32_t norm_kind;
	double max_norm, loss_scale, growth_factor, backoff_factor;
	uint64_t growth_interval;
	double min_scale;
};

struct worker_message {
	enum worker_op op;
	uint64_t request;
	bool answer;  /* false: a request */
	int32_t code; /* answers */
	uint32_t protocol;
	uint32_t handle; /* of a model on this connection */
	uint32_t unit;   /* registration order */
	bool more;
	uint64_t deadline_ms;
	uint64_t slot, version, step;
	uint32_t attempt, micro_batch;
	bool resumed, drop;
	uint32_t outcome, commit;
	uint32_t rank, world_size;
	uint64_t generation;
	uint64_t bytes_in, bytes_out; /* what the daemon received from and sent to its peers since it began */
	/* open */
	uint32_t gather_dtype, reduce_dtype, reduce_op;
	double scale;
	double weight;
	uint32_t norm_kind;
	double norm, next_scale;
	bool finite;
	uint32_t bad_count;           /* units whose gradient was not finite */
	uint32_t bad[WORKER_BAD_MAX]; /* the first bad_named of them */
	uint32_t bad_named;
	uint32_t optimizer;
	bool momentum, nesterov, centered;
	uint32_t local_worker, local_workers;
	uint32_t init, init_rank;
	/* seal: bytes of the arenas whose descriptors come with the answer, in this order: masters, gradients, staging,
	 * gathers, grads; an arena of 0 bytes has no descriptor */
	uint64_t shard_bytes, gather_bytes, grad_bytes;
	bool has_hyper;
	struct worker_hyper hyper;
	uint32_t combine;                 /* enum worker_combine */
	uint64_t blob_offset, blob_bytes; /* where the part begins, and bytes of the whole */
	char name[FSDP_NAME_MAX + 1];
	char text[WORKER_TEXT_MAX + 1];
	/* Lists: heap, owned by the message where worker_message_read made it; borrowed where the sender fills them
	 * in. */
	struct worker_group *groups;
	size_t group_count;
	struct worker_param *params;
	size_t param_count;
	struct worker_place *places;
	size_t place_count;
	double *values;
	size_t value_count;
	uint8_t *blob; /* a part of it */
	size_t blob_size;
};

/* Into data, which has room for FRAME_BYTES_MAX (frame.h). Returns the size; FSDP_E_OVERFLOW, -ENOMEM, FSDP_E_INVALID
 * (a field that worker_message_read would refuse: a name that is no text, a positive code). */
long worker_message_write(const struct worker_message *message, void *data);
/* FSDP_E_PROTOCOL, -ENOMEM. On success call worker_message_fini. */
int worker_message_read(const void *data, size_t size, struct worker_message *ret_message);
void worker_message_fini(struct worker_message *message);

#endif
