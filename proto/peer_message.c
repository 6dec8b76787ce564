/*
 * The codec between daemons. Owns what it makes: the block of a written header, the lists of a read message. No state,
 * any thread. It says whether a message is well formed, not whether it fits the conversation: generation, credit and
 * ranges are its readers' to judge.
 */
#include "proto/peer_message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"
#include "peer.pb-c.h"
#include "proto/wire_budget.h"
#include "proto/wire_table.h"

/* The greatest legal message (all lists full) takes 0.6 of this. */
#define PEER_UNPACK_BUDGET (4u * PEER_HEADER_MAX)

static const char *const names[] = {
	[PEER_HELLO] = "hello",
	[PEER_WELCOME] = "welcome",
	[PEER_REFUSE] = "refuse",
	[PEER_HEARTBEAT] = "heartbeat",
	[PEER_MANIFEST] = "manifest",
	[PEER_DETAIL_WANTED] = "detail-wanted",
	[PEER_DETAIL] = "detail",
	[PEER_SEALED] = "sealed",
	[PEER_UNSEALED] = "unsealed",
	[PEER_LOADED] = "loaded",
	[PEER_VERIFIED] = "verified",
	[PEER_VOTE] = "vote",
	[PEER_DECISION] = "decision",
	[PEER_ABORT] = "abort",
	[PEER_CLOSED] = "closed",
	[PEER_DROP] = "drop",
	[PEER_DROP_REFUSED] = "drop-refused",
	[PEER_WAITING] = "waiting",
	[PEER_LOST] = "lost",
	[PEER_WITHDRAW] = "withdraw",
	[PEER_NORM] = "norm",
	[PEER_NORMED] = "normed",
	[PEER_ALL_REDUCE] = "all-reduce",
	[PEER_ALL_REDUCED] = "all-reduced",
	[PEER_OFFERED] = "offered",
	[PEER_READ] = "read",
	[PEER_CHUNK] = "chunk",
	[PEER_STALE] = "stale",
	[PEER_PUSH] = "push",
	[PEER_CLOSE] = "close",
	[PEER_PROGRESS] = "progress",
};

/* The greatest number of an op. */
#define PEER_OP_LAST (WIRE_COUNT(names) - 1)

#define FIELD(name) WIRE_FIELD(struct peer_options, Fsdp__Peer__Options, name)
static const struct wire_field options_fields[] = {
	FIELD(learning_rate), FIELD(momentum), FIELD(dampening), FIELD(weight_decay),        FIELD(beta1),
	FIELD(beta2),         FIELD(epsilon),  FIELD(alpha),     FIELD(learning_rate_decay), FIELD(initial_accumulator),
};
#undef FIELD
static const struct wire_table options_table = {
	.descriptor = &fsdp__peer__options__descriptor,
	.plain_size = sizeof(struct peer_options),
	.fields = options_fields,
	.field_count = WIRE_COUNT(options_fields),
};

#define FIELD(name) WIRE_FIELD(struct peer_rules, Fsdp__Peer__Rules, name)
static const struct wire_field rules_fields[] = {
	FIELD(norm_kind),      FIELD(max_norm),        FIELD(loss_scale), FIELD(growth_factor),
	FIELD(backoff_factor), FIELD(growth_interval), FIELD(min_scale),
};
#undef FIELD
static const struct wire_table rules_table = {
	.descriptor = &fsdp__peer__rules__descriptor,
	.plain_size = sizeof(struct peer_rules),
	.fields = rules_fields,
	.field_count = WIRE_COUNT(rules_fields),
};

#define FIELD(name) WIRE_FIELD(struct peer_progress, Fsdp__Peer__Progress, name)
static const struct wire_field progress_fields[] = { FIELD(micro_batch), FIELD(unit), FIELD(offset) };
#undef FIELD
static const struct wire_table progress_table = {
	.descriptor = &fsdp__peer__progress__descriptor,
	.plain_size = sizeof(struct peer_progress),
	.fields = progress_fields,
	.field_count = WIRE_COUNT(progress_fields),
};

#define FIELD(name) WIRE_FIELD(struct peer_model, Fsdp__Peer__Model, name)
static const struct wire_field model_fields[] = {
	FIELD(model), FIELD(step), FIELD(attempt), FIELD(voted), FIELD(workers),
};
#undef FIELD
static const struct wire_table model_table = {
	.descriptor = &fsdp__peer__model__descriptor,
	.plain_size = sizeof(struct peer_model),
	.fields = model_fields,
	.field_count = WIRE_COUNT(model_fields),
};

#define FIELD(name) WIRE_FIELD(struct peer_group, Fsdp__Peer__Group, name)
static const struct wire_field group_fields[] = {
	FIELD(group),
	FIELD(learning_rate),
	FIELD(momentum),
	FIELD(dampening),
	FIELD(weight_decay),
	FIELD(beta1),
	FIELD(beta2),
	FIELD(epsilon),
	FIELD(alpha),
	FIELD(learning_rate_decay),
	FIELD(initial_accumulator),
};
#undef FIELD
static const struct wire_table group_table = {
	.descriptor = &fsdp__peer__group__descriptor,
	.plain_size = sizeof(struct peer_group),
	.fields = group_fields,
	.field_count = WIRE_COUNT(group_fields),
};

#define FIELD(name) WIRE_FIELD(struct peer_message, Fsdp__Peer__Message, name)
#define FIELD_TO(name, max) WIRE_FIELD_TO(struct peer_message, Fsdp__Peer__Message, name, max)
static const struct wire_field message_fields[] = {
	FIELD_TO(op, PEER_OP_LAST),
	FIELD(protocol),
	FIELD(cluster),
	FIELD(generation),
	FIELD(incarnation),
	FIELD(link),
	FIELD(source),
	FIELD(world_size),
	FIELD(model),
	FIELD(unit),
	FIELD(version),
	FIELD(step),
	FIELD(attempt),
	FIELD(micro_batch),
	FIELD(read),
	FIELD(offset),
	FIELD(length),
	FIELD(limit),
	FIELD_TO(dtype, WIRE_DTYPE_MAX),
	FIELD(credit),
	FIELD(credit_link),
	FIELD(closed),
	FIELD_TO(outcome, PEER_ABORT_STEP),
	FIELD(commit),
	FIELD(last),
	FIELD(finite),
	FIELD(reply),
	FIELD(weight),
	FIELD(norm),
	FIELD(largest),
	FIELD(clip),
	FIELD(next_scale),
	FIELD(good_steps),
	FIELD(sum),
	FIELD_TO(awaited, PEER_OP_LAST),
	FIELD(code),
	FIELD(number),
	FIELD(combine),
	WIRE_FIELD_NAME(struct peer_message, Fsdp__Peer__Message, name),
	FIELD(text),
};
#undef FIELD
#undef FIELD_TO
static const struct wire_list message_lists[] = {
	WIRE_LIST(struct peer_message, Fsdp__Peer__Message, progress, progress, &progress_table, PEER_PROGRESS_MAX),
	WIRE_LIST(struct peer_message, Fsdp__Peer__Message, groups, group, &group_table, PEER_GROUPS_MAX),
	WIRE_LIST(struct peer_message, Fsdp__Peer__Message, models, model, &model_table, PEER_MODELS_MAX),
};
static const struct wire_table message_table = {
	.descriptor = &fsdp__peer__message__descriptor,
	.plain_size = sizeof(struct peer_message),
	.fields = message_fields,
	.field_count = WIRE_COUNT(message_fields),
	.lists = message_lists,
	.list_count = WIRE_COUNT(message_lists),
};

static bool op_known(uint64_t op)
{
	return op < WIRE_COUNT(names) && names[op];
}

const char *peer_op_name(enum peer_op op)
{
	return op_known(op) ? names[op] : "?";
}

static int wire_pack(const Fsdp__Peer__Message *wire, void **ret_data, size_t *ret_size)
{
	size_t size = fsdp__peer__message__get_packed_size(wire);
	void *data;

	if (size > PEER_HEADER_MAX)
		return FSDP_E_OVERFLOW;
	data = malloc(size);
	if (!data)
		return -ENOMEM;
	fsdp__peer__message__pack(wire, data);
	*ret_data = data;
	*ret_size = size;
	return 0;
}

int peer_message_write(const struct peer_message *message, void **ret_data, size_t *ret_size)
{
	Fsdp__Peer__Message wire = FSDP__PEER__MESSAGE__INIT;
	Fsdp__Peer__Options options = FSDP__PEER__OPTIONS__INIT;
	Fsdp__Peer__Rules rules = FSDP__PEER__RULES__INIT;
	int rc;

	if (message->bits_size > PEER_BITS_MAX || message->bad_size > PEER_BITS_MAX ||
	    message->sum_count > PEER_SUMS_MAX || message->value_count > PEER_VALUES_MAX)
		return FSDP_E_OVERFLOW;
	if (!op_known(message->op) || (message->awaited && !op_known(message->awaited)))
		return FSDP_E_INVALID;
	rc = wire_table_write(&message_table, message, &wire);
	if (rc < 0)
		return rc;
	if (message->has_options) {
		rc = wire_table_write(&options_table, &message->options, &options);
		wire.options = &options;
	}
	if (rc == 0 && message->has_rules) {
		rc = wire_table_write(&rules_table, &message->rules, &rules);
		wire.rules = &rules;
	}
	wire.bad = (ProtobufCBinaryData){ .len = message->bad_size, .data = message->bad };
	wire.bits = (ProtobufCBinaryData){ .len = message->bits_size, .data = message->bits };
	wire.sums = message->sums;
	wire.n_sums = message->sum_count;
	wire.values = message->values;
	wire.n_values = message->value_count;
	if (rc == 0)
		rc = wire_pack(&wire, ret_data, ret_size);
	wire_table_release(&message_table, &wire);
	return rc;
}

static int bits_read(const ProtobufCBinaryData *wire, uint8_t **ret_bits, size_t *ret_size)
{
	if (wire->len > PEER_BITS_MAX)
		return FSDP_E_PROTOCOL;
	if (wire->len == 0)
		return 0;
	*ret_bits = malloc(wire->len);
	if (!*ret_bits)
		return -ENOMEM;
	memcpy(*ret_bits, wire->data, wire->len);
	*ret_size = wire->len;
	return 0;
}

/* The lists that are no rows. What was copied when it fails is freed by peer_message_fini. */
static int plain_lists_read(const Fsdp__Peer__Message *wire, struct peer_message *message)
{
	int rc = bits_read(&wire->bits, &message->bits, &message->bits_size);

	if (rc == 0)
		rc = bits_read(&wire->bad, &message->bad, &message->bad_size);
	if (rc < 0)
		return rc;
	if (wire->n_sums > PEER_SUMS_MAX || wire->n_values > PEER_VALUES_MAX)
		return FSDP_E_PROTOCOL;
	if (wire->n_sums > 0) {
		message->sums = malloc(wire->n_sums * sizeof *message->sums);
		if (!message->sums)
			return -ENOMEM;
		memcpy(message->sums, wire->sums, wire->n_sums * sizeof *message->sums);
		message->sum_count = wire->n_sums;
	}
	if (wire->n_values > 0) {
		message->values = malloc(wire->n_values * sizeof *message->values);
		if (!message->values)
			return -ENOMEM;
		memcpy(message->values, wire->values, wire->n_values * sizeof *message->values);
		message->value_count = wire->n_values;
	}
	return 0;
}

static int message_read(const Fsdp__Peer__Message *wire, struct peer_message *message)
{
	int rc;

	if (!op_known(wire->op) || (wire->awaited && !op_known(wire->awaited)))
		return FSDP_E_PROTOCOL;
	rc = wire_table_read(&message_table, wire, message);
	if (rc == 0 && wire->options) {
		message->has_options = true;
		rc = wire_table_read(&options_table, wire->options, &message->options);
	}
	if (rc == 0 && wire->rules) {
		message->has_rules = true;
		rc = wire_table_read(&rules_table, wire->rules, &message->rules);
	}
	if (rc == 0)
		rc = plain_lists_read(wire, message);
	return rc;
}

int peer_message_read(const void *data, size_t size, struct peer_message *ret_message)
{
	struct peer_message message = { 0 };
	Fsdp__Peer__Message *wire;
	int rc;

	if (size > PEER_HEADER_MAX)
		return FSDP_E_PROTOCOL;
	rc = wire_budget_unpack(message_table.descriptor, data, size, PEER_UNPACK_BUDGET, &wire);
	if (rc < 0)
		return rc;
	rc = message_read(wire, &message);
	wire_budget_free(wire);
	if (rc < 0) {
		peer_message_fini(&message);
		return rc;
	}
	*ret_message = message;
	return 0;
}

void peer_message_fini(struct peer_message *message)
{
	wire_table_fini(&message_table, message);
	free(message->bits);
	message->bits = NULL;
	message->bits_size = 0;
	free(message->bad);
	message->bad = NULL;
	message->bad_size = 0;
	free(message->sums);
	message->sums = NULL;
	message->sum_count = 0;
	free(message->values);
	message->values = NULL;
	message->value_count = 0;
}
