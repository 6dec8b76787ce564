/*
 * One message between fsdpctl and a daemon: a plain struct and the only code that packs and unpacks it (control.proto).
 * A request is answered by one or more messages, the last without `more`.
 */
#ifndef FSDP_PROTO_CONTROL_MESSAGE_H
#define FSDP_PROTO_CONTROL_MESSAGE_H

#include "fsdp/dtype.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONTROL_PROTOCOL 1
#define CONTROL_TEXT_MAX 1024
#define CONTROL_ROWS_MAX 256 /* rows in one message */
#define CONTROL_RANKS_MAX 16

enum control_op {
	CONTROL_STATUS = 1,     /* -> status, models[] in short, waits[] */
	CONTROL_PEERS = 2,      /* -> peers[] */
	CONTROL_MODELS = 3,     /* -> models[] */
	CONTROL_UNITS = 4,      /* name -> units[] */
	CONTROL_WORKERS = 5,    /* -> workers[] */
	CONTROL_MODEL_DROP = 6, /* name -> code, text */
	CONTROL_STEP_ABORT = 7  /* name -> code, text */
};

struct control_status {
	char cluster[FSDP_NAME_MAX + 1];
	char version[64];
	char phase[256]; /* the sentence that systemd's STATUS shows */
	uint32_t rank, world_size, joined;
	uint64_t generation, incarnation, uptime_ms;
	bool degraded;                /* a peer is missing, suspected or gone, or a model is lost */
	uint64_t bytes_in, bytes_out; /* both planes */
	uint64_t gather_bytes, served_bytes, pushed_bytes, added_bytes, resent_bytes;
	uint64_t malformed, refused, stale, duplicates, violations;
};
struct control_peer {
	uint32_t rank;
	char state[16];
	bool bulk_up;
	uint64_t incarnation, heard_ms_ago;
	char endpoint[256];
	char refusal[CONTROL_TEXT_MAX + 1];
};
struct control_model {
	char name[FSDP_NAME_MAX + 1];
	char state[16], phase[16];
	uint64_t step;
	uint32_t attempt, micro_batch, units, workers;
	uint64_t applied, skipped, aborted;
	uint64_t parameters;  /* elements of the whole model */
	uint64_t shard_bytes; /* of the masters on this rank */
	uint64_t gather_used, gather_bytes, grad_used, grad_bytes;
	char trouble[CONTROL_TEXT_MAX + 1];
};
struct control_unit {
	char name[FSDP_NAME_MAX + 1];
	uint64_t version, full_bytes, shard_elements;
	uint32_t held;
	bool gathered, reduced;
};
struct control_worker {
	int64_t pid;
	uint32_t uid;
	char model[FSDP_NAME_MAX + 1]; /* empty: none opened yet */
	uint32_t local_worker;
	char call[32]; /* the call it waits in; empty: none */
	uint64_t waiting_ms, attached_ms;
};
struct control_wait {
	char model[FSDP_NAME_MAX + 1], unit[FSDP_NAME_MAX + 1], op[32];
	uint64_t waiting_ms, deadline_ms;
	uint32_t ranks[CONTROL_RANKS_MAX];
	size_t rank_count;
};

struct control_message {
	enum control_op op;
	bool answer, more;
	int32_t code;
	uint32_t protocol;
	char name[FSDP_NAME_MAX + 1];
	char text[CONTROL_TEXT_MAX + 1];
	bool has_status;
	struct control_status status;
	/* Lists: heap, owned by the message where control_message_read made it; borrowed where the sender fills them
	 * in. */
	struct control_peer *peers;
	size_t peer_count;
	struct control_model *models;
	size_t model_count;
	struct control_unit *units;
	size_t unit_count;
	struct control_worker *workers;
	size_t worker_count;
	struct control_wait *waits;
	size_t wait_count;
};

long control_message_write(const struct control_message *message, void *data); /* as worker_message_write */
int control_message_read(const void *data, size_t size, struct control_message *ret_message);
void control_message_fini(struct control_message *message);

#endif
