/*
 * The codec between a worker and its daemon, in both of them. Owns the lists of a read message and nothing else. No
 * state, any thread. It says whether a message is well formed; whether a handle, a unit or a slot exists is the
 * session's to judge.
 */
#include "proto/worker_message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"
#include "proto/frame.h"
#include "proto/wire_budget.h"
#include "proto/wire_table.h"
#include "worker.pb-c.h"

#define WORKER_UNPACK_BUDGET (4u * FRAME_BYTES_MAX)

#define FIELD(name) WIRE_FIELD(struct worker_param, Fsdp__Worker__Param, name)
static const struct wire_field param_fields[] = {
	WIRE_FIELD_NAME(struct worker_param, Fsdp__Worker__Param, name),
	WIRE_FIELD_TO(struct worker_param, Fsdp__Worker__Param, dtype, WIRE_DTYPE_MAX),
	FIELD(flags),
	FIELD(group),
};
#undef FIELD
static const struct wire_table param_table = {
	.descriptor = &fsdp__worker__param__descriptor,
	.plain_size = sizeof(struct worker_param),
	.fields = param_fields,
	.field_count = WIRE_COUNT(param_fields),
};

#define FIELD(name) WIRE_FIELD(struct worker_place, Fsdp__Worker__Place, name)
static const struct wire_field place_fields[] = {
	FIELD(full_bytes),
	FIELD(shard_offset),
	FIELD(shard_count),
	FIELD(arena_offset),
};
#undef FIELD
static const struct wire_table place_table = {
	.descriptor = &fsdp__worker__place__descriptor,
	.plain_size = sizeof(struct worker_place),
	.fields = place_fields,
	.field_count = WIRE_COUNT(place_fields),
};

#define FIELD(name) WIRE_FIELD(struct worker_hyper, Fsdp__Worker__Hyper, name)
static const struct wire_field hyper_fields[] = {
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
	FIELD(norm_kind),
	FIELD(max_norm),
	FIELD(loss_scale),
	FIELD(growth_factor),
	FIELD(backoff_factor),
	FIELD(growth_interval),
	FIELD(min_scale),
};
#undef FIELD
static const struct wire_table hyper_table = {
	.descriptor = &fsdp__worker__hyper__descriptor,
	.plain_size = sizeof(struct worker_hyper),
	.fields = hyper_fields,
	.field_count = WIRE_COUNT(hyper_fields),
};

#define FIELD(name) WIRE_FIELD(struct worker_group, Fsdp__Worker__Group, name)
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
	.descriptor = &fsdp__worker__group__descriptor,
	.plain_size = sizeof(struct worker_group),
	.fields = group_fields,
	.field_count = WIRE_COUNT(group_fields),
};

#define FIELD(name) WIRE_FIELD(struct worker_message, Fsdp__Worker__Message, name)
#define FIELD_TO(name, max) WIRE_FIELD_TO(struct worker_message, Fsdp__Worker__Message, name, max)
static const struct wire_field message_fields[] = {
	FIELD_TO(op, WORKER_OP_LAST),
	FIELD(request),
	FIELD(answer),
	FIELD(code),
	FIELD(protocol),
	FIELD(handle),
	FIELD(unit),
	FIELD(more),
	FIELD(deadline_ms),
	FIELD(slot),
	FIELD(version),
	FIELD(step),
	FIELD(attempt),
	FIELD(micro_batch),
	FIELD(resumed),
	FIELD(drop),
	FIELD(outcome),
	FIELD(commit),
	FIELD(rank),
	FIELD(world_size),
	FIELD(generation),
	FIELD(bytes_in),
	FIELD(bytes_out),
	FIELD_TO(gather_dtype, WIRE_DTYPE_MAX),
	FIELD_TO(reduce_dtype, WIRE_DTYPE_MAX),
	FIELD(reduce_op),
	FIELD(scale),
	FIELD(weight),
	FIELD(norm_kind),
	FIELD(norm),
	FIELD(next_scale),
	FIELD(finite),
	FIELD(bad_count),
	FIELD(optimizer),
	FIELD(momentum),
	FIELD(nesterov),
	FIELD(centered),
	FIELD(local_worker),
	FIELD(local_workers),
	FIELD(init),
	FIELD(init_rank),
	FIELD(shard_bytes),
	FIELD(gather_bytes),
	FIELD(grad_bytes),
	FIELD(combine),
	FIELD(blob_offset),
	FIELD(blob_bytes),
	WIRE_FIELD_NAME(struct worker_message, Fsdp__Worker__Message, name),
	FIELD(text),
};
#undef FIELD
#undef FIELD_TO
static const struct wire_list message_lists[] = {
	WIRE_LIST(struct worker_message, Fsdp__Worker__Message, params, param, &param_table, WORKER_PARAMS_MAX),
	WIRE_LIST(struct worker_message, Fsdp__Worker__Message, groups, group, &group_table, WORKER_GROUPS_MAX),
	WIRE_LIST(struct worker_message, Fsdp__Worker__Message, places, place, &place_table, WORKER_UNITS_MAX),
};
static const struct wire_table message_table = {
	.descriptor = &fsdp__worker__message__descriptor,
	.plain_size = sizeof(struct worker_message),
	.fields = message_fields,
	.field_count = WIRE_COUNT(message_fields),
	.lists = message_lists,
	.list_count = WIRE_COUNT(message_lists),
};

/* The dimensions are as many as the shape is long, so the wire has no number of them. The shapes are borrowed. */
static int shapes_write(const struct worker_message *message, Fsdp__Worker__Message *wire)
{
	for (size_t i = 0; i < message->param_count; i++) {
		struct worker_param *param = &message->params[i];
		if (param->ndim > FSDP_DIMS_MAX)
			return FSDP_E_OVERFLOW;
		wire->params[i]->n_shape = param->ndim;
		wire->params[i]->shape = param->shape;
	}
	return 0;
}

static int shapes_read(const Fsdp__Worker__Message *wire, struct worker_message *message)
{
	for (size_t i = 0; i < message->param_count; i++) {
		const Fsdp__Worker__Param *from = wire->params[i];
		struct worker_param *param = &message->params[i];
		if (from->n_shape > FSDP_DIMS_MAX)
			return FSDP_E_PROTOCOL;
		param->ndim = (uint32_t)from->n_shape;
		for (size_t k = 0; k < from->n_shape; k++)
			param->shape[k] = from->shape[k];
	}
	return 0;
}

static int bad_read(const Fsdp__Worker__Message *wire, struct worker_message *message)
{
	if (wire->n_bad > WORKER_BAD_MAX)
		return FSDP_E_PROTOCOL;
	for (size_t i = 0; i < wire->n_bad; i++) {
		if (wire->bad[i] > UINT32_MAX)
			return FSDP_E_PROTOCOL;
		message->bad[i] = (uint32_t)wire->bad[i];
	}
	message->bad_named = (uint32_t)wire->n_bad;
	return 0;
}

static int values_read(const Fsdp__Worker__Message *wire, struct worker_message *message)
{
	if (wire->n_values > WORKER_VALUES_MAX)
		return FSDP_E_PROTOCOL;
	if (wire->n_values == 0)
		return 0;
	message->values = malloc(wire->n_values * sizeof(*message->values));
	if (!message->values)
		return -ENOMEM;
	memcpy(message->values, wire->values, wire->n_values * sizeof(*message->values));
	message->value_count = wire->n_values;
	return 0;
}

static int blob_read(const Fsdp__Worker__Message *wire, struct worker_message *message)
{
	if (wire->blob.len > WORKER_BLOB_PART_MAX)
		return FSDP_E_PROTOCOL;
	if (wire->blob.len == 0)
		return 0;
	message->blob = malloc(wire->blob.len);
	if (!message->blob)
		return -ENOMEM;
	memcpy(message->blob, wire->blob.data, wire->blob.len);
	message->blob_size = wire->blob.len;
	return 0;
}

long worker_message_write(const struct worker_message *message, void *data)
{
	Fsdp__Worker__Message wire = FSDP__WORKER__MESSAGE__INIT;
	Fsdp__Worker__Hyper hyper = FSDP__WORKER__HYPER__INIT;
	uint64_t bad[WORKER_BAD_MAX];
	size_t size = 0;
	int rc;

	if (message->op == 0)
		return FSDP_E_INVALID;
	if (message->value_count > WORKER_VALUES_MAX || message->blob_size > WORKER_BLOB_PART_MAX ||
	    message->bad_named > WORKER_BAD_MAX)
		return FSDP_E_OVERFLOW;
	rc = wire_table_write(&message_table, message, &wire);
	if (rc < 0)
		return rc;
	wire.values = message->values;
	wire.n_values = message->value_count;
	wire.blob = (ProtobufCBinaryData){ .len = message->blob_size, .data = message->blob };
	for (uint32_t i = 0; i < message->bad_named; i++)
		bad[i] = message->bad[i];
	wire.bad = bad;
	wire.n_bad = message->bad_named;
	rc = shapes_write(message, &wire);
	if (rc == 0 && message->has_hyper) {
		rc = wire_table_write(&hyper_table, &message->hyper, &hyper);
		wire.hyper = &hyper;
	}
	if (rc == 0) {
		size = fsdp__worker__message__get_packed_size(&wire);
		if (size > FRAME_BYTES_MAX)
			rc = FSDP_E_OVERFLOW;
		else
			fsdp__worker__message__pack(&wire, data);
	}
	wire_table_release(&message_table, &wire);
	return rc < 0 ? rc : (long)size;
}

static int message_read(const Fsdp__Worker__Message *wire, struct worker_message *message)
{
	int rc;

	if (wire->op == 0)
		return FSDP_E_PROTOCOL;
	rc = wire_table_read(&message_table, wire, message);
	if (rc == 0)
		rc = shapes_read(wire, message);
	if (rc == 0)
		rc = bad_read(wire, message);
	if (rc == 0)
		rc = values_read(wire, message);
	if (rc == 0)
		rc = blob_read(wire, message);
	if (rc == 0 && wire->hyper) {
		message->has_hyper = true;
		rc = wire_table_read(&hyper_table, wire->hyper, &message->hyper);
	}
	return rc;
}

int worker_message_read(const void *data, size_t size, struct worker_message *ret_message)
{
	struct worker_message message = { 0 };
	Fsdp__Worker__Message *wire;
	int rc;

	if (size > FRAME_BYTES_MAX)
		return FSDP_E_PROTOCOL;
	rc = wire_budget_unpack(message_table.descriptor, data, size, WORKER_UNPACK_BUDGET, &wire);
	if (rc < 0)
		return rc;
	rc = message_read(wire, &message);
	wire_budget_free(wire);
	if (rc < 0) {
		worker_message_fini(&message);
		return rc;
	}
	*ret_message = message;
	return 0;
}

void worker_message_fini(struct worker_message *message)
{
	wire_table_fini(&message_table, message);
	free(message->values);
	message->values = NULL;
	message->value_count = 0;
	free(message->blob);
	message->blob = NULL;
	message->blob_size = 0;
}
