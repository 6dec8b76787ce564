/*
 * The codec between fsdpctl and a daemon, in both of them. Owns the lists of a read message and nothing else. No state,
 * any thread. A message of many long rows may exceed a frame: its sender takes fewer rows then, and says `more`.
 */
#include "proto/control_message.h"

#include "control.pb-c.h"
#include "fsdp/error.h"
#include "proto/frame.h"
#include "proto/wire_budget.h"
#include "proto/wire_table.h"

/* Many short texts cost more memory than bytes: all lists full of ordinary rows take 0.6 of this. */
#define CONTROL_UNPACK_BUDGET (8u * FRAME_BYTES_MAX)

#define TABLE(noun)                                                 \
	static const struct wire_table noun##_table = {             \
		.descriptor = &fsdp__control__##noun##__descriptor, \
		.plain_size = sizeof(struct control_##noun),        \
		.fields = noun##_fields,                            \
		.field_count = WIRE_COUNT(noun##_fields),           \
	}

#define FIELD(name) WIRE_FIELD(struct control_status, Fsdp__Control__Status, name)
static const struct wire_field status_fields[] = {
	FIELD(cluster),     FIELD(version),      FIELD(phase),        FIELD(rank),         FIELD(world_size),
	FIELD(joined),      FIELD(generation),   FIELD(incarnation),  FIELD(uptime_ms),    FIELD(degraded),
	FIELD(bytes_in),    FIELD(bytes_out),    FIELD(gather_bytes), FIELD(served_bytes), FIELD(pushed_bytes),
	FIELD(added_bytes), FIELD(resent_bytes), FIELD(malformed),    FIELD(refused),      FIELD(stale),
	FIELD(duplicates),  FIELD(violations),
};
#undef FIELD
TABLE(status);

#define FIELD(name) WIRE_FIELD(struct control_peer, Fsdp__Control__Peer, name)
static const struct wire_field peer_fields[] = {
	FIELD(rank),         FIELD(state),    FIELD(bulk_up), FIELD(incarnation),
	FIELD(heard_ms_ago), FIELD(endpoint), FIELD(refusal),
};
#undef FIELD
TABLE(peer);

#define FIELD(name) WIRE_FIELD(struct control_model, Fsdp__Control__Model, name)
static const struct wire_field model_fields[] = {
	FIELD(name),        FIELD(state),      FIELD(phase),       FIELD(step),        FIELD(attempt),
	FIELD(micro_batch), FIELD(units),      FIELD(workers),     FIELD(applied),     FIELD(skipped),
	FIELD(aborted),     FIELD(parameters), FIELD(shard_bytes), FIELD(gather_used), FIELD(gather_bytes),
	FIELD(grad_used),   FIELD(grad_bytes), FIELD(trouble),
};
#undef FIELD
TABLE(model);

#define FIELD(name) WIRE_FIELD(struct control_unit, Fsdp__Control__Unit, name)
static const struct wire_field unit_fields[] = {
	FIELD(name), FIELD(version),  FIELD(full_bytes), FIELD(shard_elements),
	FIELD(held), FIELD(gathered), FIELD(reduced),
};
#undef FIELD
TABLE(unit);

#define FIELD(name) WIRE_FIELD(struct control_worker, Fsdp__Control__Worker, name)
static const struct wire_field worker_fields[] = {
	FIELD(pid), FIELD(uid), FIELD(model), FIELD(local_worker), FIELD(call), FIELD(waiting_ms), FIELD(attached_ms),
};
#undef FIELD
TABLE(worker);

#define FIELD(name) WIRE_FIELD(struct control_wait, Fsdp__Control__Wait, name)
static const struct wire_field wait_fields[] = {
	FIELD(model), FIELD(unit), FIELD(op), FIELD(waiting_ms), FIELD(deadline_ms),
};
#undef FIELD
TABLE(wait);

#define FIELD(name) WIRE_FIELD(struct control_message, Fsdp__Control__Message, name)
static const struct wire_field message_fields[] = {
	WIRE_FIELD_TO(struct control_message, Fsdp__Control__Message, op, CONTROL_STEP_ABORT),
	FIELD(answer),
	FIELD(more),
	FIELD(code),
	FIELD(protocol),
	WIRE_FIELD_NAME(struct control_message, Fsdp__Control__Message, name),
	FIELD(text),
};
#undef FIELD
#define LIST(field, noun) \
	WIRE_LIST(struct control_message, Fsdp__Control__Message, field, noun, &noun##_table, CONTROL_ROWS_MAX)
static const struct wire_list message_lists[] = {
	LIST(peers, peer), LIST(models, model), LIST(units, unit), LIST(workers, worker), LIST(waits, wait),
};
#undef LIST
static const struct wire_table message_table = {
	.descriptor = &fsdp__control__message__descriptor,
	.plain_size = sizeof(struct control_message),
	.fields = message_fields,
	.field_count = WIRE_COUNT(message_fields),
	.lists = message_lists,
	.list_count = WIRE_COUNT(message_lists),
};

/* The ranks are borrowed: fixed32 on the wire is what the plain array holds. */
static int ranks_write(const struct control_message *message, Fsdp__Control__Message *wire)
{
	for (size_t i = 0; i < message->wait_count; i++) {
		struct control_wait *wait = &message->waits[i];
		if (wait->rank_count > CONTROL_RANKS_MAX)
			return FSDP_E_OVERFLOW;
		wire->waits[i]->n_ranks = wait->rank_count;
		wire->waits[i]->ranks = wait->ranks;
	}
	return 0;
}

static int ranks_read(const Fsdp__Control__Message *wire, struct control_message *message)
{
	for (size_t i = 0; i < message->wait_count; i++) {
		const Fsdp__Control__Wait *from = wire->waits[i];
		struct control_wait *wait = &message->waits[i];
		if (from->n_ranks > CONTROL_RANKS_MAX)
			return FSDP_E_PROTOCOL;
		wait->rank_count = from->n_ranks;
		for (size_t k = 0; k < from->n_ranks; k++)
			wait->ranks[k] = from->ranks[k];
	}
	return 0;
}

long control_message_write(const struct control_message *message, void *data)
{
	Fsdp__Control__Message wire = FSDP__CONTROL__MESSAGE__INIT;
	Fsdp__Control__Status status = FSDP__CONTROL__STATUS__INIT;
	size_t size = 0;
	int rc;

	if (message->op == 0)
		return FSDP_E_INVALID;
	rc = wire_table_write(&message_table, message, &wire);
	if (rc < 0)
		return rc;
	rc = ranks_write(message, &wire);
	if (rc == 0 && message->has_status) {
		rc = wire_table_write(&status_table, &message->status, &status);
		wire.status = &status;
	}
	if (rc == 0) {
		size = fsdp__control__message__get_packed_size(&wire);
		if (size > FRAME_BYTES_MAX)
			rc = FSDP_E_OVERFLOW;
		else
			fsdp__control__message__pack(&wire, data);
	}
	wire_table_release(&message_table, &wire);
	return rc < 0 ? rc : (long)size;
}

static int message_read(const Fsdp__Control__Message *wire, struct control_message *message)
{
	int rc;

	if (wire->op == 0)
		return FSDP_E_PROTOCOL;
	rc = wire_table_read(&message_table, wire, message);
	if (rc == 0)
		rc = ranks_read(wire, message);
	if (rc == 0 && wire->status) {
		message->has_status = true;
		rc = wire_table_read(&status_table, wire->status, &message->status);
	}
	return rc;
}

int control_message_read(const void *data, size_t size, struct control_message *ret_message)
{
	struct control_message message = { 0 };
	Fsdp__Control__Message *wire;
	int rc;

	if (size > FRAME_BYTES_MAX)
		return FSDP_E_PROTOCOL;
	rc = wire_budget_unpack(message_table.descriptor, data, size, CONTROL_UNPACK_BUDGET, &wire);
	if (rc < 0)
		return rc;
	rc = message_read(wire, &message);
	wire_budget_free(wire);
	if (rc < 0) {
		control_message_fini(&message);
		return rc;
	}
	*ret_message = message;
	return 0;
}

void control_message_fini(struct control_message *message)
{
	wire_table_fini(&message_table, message);
}
