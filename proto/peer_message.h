/*
 * One header frame between daemons: a plain struct, and the only code that packs and unpacks it (peer.proto). Payload
 * is never inside: it is a second, raw frame. Everything read here comes from the network: every length is checked
 * against a limit below before memory is taken for it.
 */
#ifndef FSDP_PROTO_PEER_MESSAGE_H
#define FSDP_PROTO_PEER_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEER_PROTOCOL 1     /* what we speak */
#define PEER_PROTOCOL_MIN 1 /* the oldest that we understand */
#define PEER_HEADER_MAX (256u << 10)
#define PEER_PAYLOAD_MAX (1u << 20)
#define PEER_TEXT_MAX 1024
#define PEER_NAME_MAX 255
#define PEER_BITS_MAX (8u << 10) /* bytes: 65536 units, one bit each */
#define PEER_SUMS_MAX 16384      /* checksums in one message; more go in parts (offset, length) */
#define PEER_PROGRESS_MAX 2048
#define PEER_MODELS_MAX 256
#define PEER_GROUPS_MAX 64
#define PEER_VALUES_MAX 1024

/* What a message says, and the fields that it uses besides those of every message (protocol to world_size). */
enum peer_op {
	/* ---- Both planes ---- */

	PEER_HELLO = 1,   /* name (cluster), world_size, incarnation, link: first on every connection */
	PEER_WELCOME = 2, /* link, incarnation (the answerer's): back on the same connection */
	PEER_REFUSE = 3,  /* link, code, text: back on the same connection */

	/* ---- Control ---- */

	PEER_HEARTBEAT = 10, /* models[] */
	/* name, version (this rank's number of the seal), sum (hash), code and text where it cannot seal */
	PEER_MANIFEST = 11,
	PEER_DETAIL_WANTED = 12, /* name: the coordinator asks for the whole manifest */
	PEER_DETAIL = 13,        /* name, offset, length (of the whole); payload: a piece of manifest_write */
	PEER_SEALED = 14,        /* name, version (the receiver's number), model, sum: it is accepted everywhere */
	PEER_UNSEALED = 15,      /* name, version (the receiver's number), sum, code, text: it is not */
	PEER_LOADED = 16,        /* model, unit, attempt (round), sums (offset, length in parameters) */
	/* model, unit, attempt (round), sum (XXH3 of the sums), code, text: agree (0), or how they differ */
	PEER_VERIFIED = 17,
	/* model, step, attempt, commit, options, groups[], rules, finite, bad, weight (the sum of this rank's), norm
	 * (this rank's part), bits (present units): to the coordinator */
	PEER_VOTE = 18,
	/* model, step, attempt (the next one for an abort), outcome, commit, options, groups[], rules, finite, bad,
	 * norm, clip, next_scale, good_steps, bits, code, text */
	PEER_DECISION = 19,
	PEER_ABORT = 20,        /* model, step, attempt, code, text: please decide "abort": to the coordinator */
	PEER_CLOSED = 21,       /* model: this rank's workers closed it to be dropped: to the coordinator */
	PEER_DROP = 22,         /* model, name, text: everybody forgets it; from others: a request */
	PEER_DROP_REFUSED = 23, /* model, name, code, text: to the rank that asked */
	/* name, model, step, attempt, awaited (the op that lacks), sums: the coordinator's answer to a repeated
	 * question that cannot be decided yet: the ranks that it lacks, lowest first */
	PEER_WAITING = 24,
	PEER_LOST = 25, /* model, name, text: this rank holds a model of which another lost its shards */
	/* name, version (this rank's number), code and text (where its deadline passed): it gave up sealing */
	PEER_WITHDRAW = 26,
	/* model, step, attempt, number (within the attempt), combine, values: to the coordinator */
	PEER_ALL_REDUCE = 50,
	/* model, step, attempt, number, values; or code and text: how the ranks' questions differ */
	PEER_ALL_REDUCED = 51,
	/* model, unit: the rank whose initial values count has loaded them; every other reads its range from it */
	PEER_OFFERED = 52,
	PEER_NORM = 60,   /* model, step, attempt, norm, largest, finite (of this rank's sums): to the coordinator */
	PEER_NORMED = 61, /* model, step, attempt, norm, largest, finite (of all ranks' together) */

	/* ---- Bulk ---- */

	/* model, unit, version, read, offset (from), limit (up to), length (the whole range): bytes of the owner's
	 * shard */
	PEER_READ = 40,
	PEER_CHUNK = 41, /* model, unit, version, read, offset, length; payload */
	PEER_STALE = 42, /* model, unit, version (the owner's), read */
	/* model, unit, step, attempt, micro_batch, offset, length, weight (0: 1, which is not sent); payload: bytes of
	 * the receiver's shard */
	PEER_PUSH = 43,
	PEER_CLOSE = 44, /* model, step, attempt, micro_batch, bits (absent units), last, weight */
	/* model, step, attempt, credit, credit_link, closed, progress[], reply: acknowledgements and credit */
	PEER_PROGRESS = 45
};

enum peer_outcome { PEER_APPLY = 0, PEER_SKIP = 1, PEER_ABORT_STEP = 2 };

/* As struct step_rules. */
struct peer_rules {
	uint64_t norm_kind;
	double max_norm, loss_scale, growth_factor, backoff_factor;
	uint64_t growth_interval;
	double min_scale;
};

/* What a step uses for the parameters of a group. */
struct peer_group {
	uint32_t group;
	double learning_rate, momentum, dampening, weight_decay, beta1, beta2, epsilon;
	double alpha, learning_rate_decay, initial_accumulator;
};

struct peer_options {
	double learning_rate, momentum, dampening, weight_decay, beta1, beta2, epsilon;
	double alpha, learning_rate_decay, initial_accumulator;
};

/* Up to where the contribution (micro_batch, unit) of the receiver of this message has been added. */
struct peer_progress {
	uint32_t micro_batch;
	uint32_t unit;
	uint64_t offset;
};

/* What a heartbeat says of one model. */
struct peer_model {
	uint64_t model;
	uint64_t step;
	uint32_t attempt;
	bool voted;
	uint32_t workers; /* attached on the sender's node */
};

struct peer_message {
	enum peer_op op;
	uint32_t protocol;
	uint64_t cluster; /* XXH3 of the cluster's name */
	uint64_t generation;
	uint64_t incarnation; /* the sender's */
	uint64_t link;        /* the number of the link it travels on */
	uint32_t source;      /* the sender's rank */
	uint32_t world_size;
	uint64_t model;
	uint32_t unit;
	uint64_t version;
	uint64_t step;
	uint32_t attempt;
	uint32_t micro_batch;
	uint64_t read;
	uint64_t offset;
	uint64_t length;
	uint64_t limit;
	uint32_t dtype;
	uint64_t credit;
	uint64_t credit_link;
	uint32_t closed;
	uint32_t outcome; /* enum peer_outcome */
	uint32_t commit;  /* enum step_commit */
	bool last;
	bool finite;
	bool reply;
	double weight;
	uint64_t sum;
	uint32_t awaited; /* enum peer_op */
	int32_t code;
	uint64_t number;
	uint32_t combine; /* as in worker_message.h */
	bool has_options;
	struct peer_options options;
	bool has_rules;
	struct peer_rules rules;
	double norm,
		/* a VOTE's norm: this rank's part; a NORM's: the squares; a DECISION's and a NORMED's: the whole */
		largest;
	double clip, next_scale;
	uint64_t good_steps;
	char name[PEER_NAME_MAX + 1];
	char text[PEER_TEXT_MAX + 1];
	/* Lists: heap, owned by the message where peer_message_read made it; borrowed where the sender fills them
	 * in. */
	uint8_t *bits; /* a bit a unit, canonical order, lowest bit first */
	size_t bits_size;
	uint8_t *bad; /* likewise: units whose gradient is not finite */
	size_t bad_size;
	uint64_t *sums;
	size_t sum_count;
	double *values;
	size_t value_count;
	struct peer_group *groups;
	size_t group_count;
	struct peer_progress *progress;
	size_t progress_count;
	struct peer_model *models;
	size_t model_count;
};

/* Bytes of the header frame into a fresh heap block (free()). 0, -ENOMEM, FSDP_E_OVERFLOW, FSDP_E_INVALID (a field that
 * peer_message_read would refuse: a name that is no text, a positive code). A text that was cut within a character is
 * sent up to it. */
int peer_message_write(const struct peer_message *message, void **ret_data, size_t *ret_size);

/* Checks and unpacks. FSDP_E_PROTOCOL for anything that no peer of ours would send: unknown op, a field out of its
 * limits, a string with a NUL or that is not UTF-8, a number that its field cannot hold, more than PEER_HEADER_MAX
 * bytes. -ENOMEM. On success the caller calls peer_message_fini. */
int peer_message_read(const void *data, size_t size, struct peer_message *ret_message);
void peer_message_fini(struct peer_message *message); /* frees the lists; only after peer_message_read */

const char *peer_op_name(enum peer_op op); /* "push"; "?" for a number that is none */

#endif
