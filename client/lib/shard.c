/*
 * This rank's shards, for an optimizer outside: where they lie, and new values for all of them at once. The mappings
 * belong to the model; staging is the trainer's to write between steps.
 */
#include <string.h>

#include "client/lib/fault.h"
#include "client/lib/model.h"
#include "client/lib/step.h"

static void *shard_at(void *arena, const struct worker_place *place)
{
	return place->shard_count > 0 ? (unsigned char *)arena + place->arena_offset : NULL;
}

/* A step returns before the engine has updated every shard: until then masters are old and staging is still being
 * read. */
static int shard_wait(struct fsdp_unit *unit, const char *what)
{
	WIRE_CALL_AUTO call = { 0 };
	struct worker_message request = model_request(unit->model, unit, WORKER_SHARD);
	return model_ask(unit->model, unit, &request, &call, what);
}

int fsdp_unit_shard(struct fsdp_unit *unit, size_t segment, struct fsdp_shard *ret_shard)
{
	int code = unit_check_sealed(unit, "fsdp_unit_shard");
	if (code < 0)
		return code;
	if (!ret_shard)
		return fault_set(FSDP_E_INVALID, "fsdp_unit_shard: unit \"%s\": ret_shard is NULL", unit->name);
	if (segment != 0)
		return fault_set(FSDP_E_NOT_FOUND,
				 "fsdp_unit_shard: unit \"%s\" has one segment, there is no number %zu", unit->name,
				 segment);
	code = shard_wait(unit, "fsdp_unit_shard");
	if (code < 0)
		return code;
	const struct fsdp_model *model = unit->model;
	*ret_shard = (struct fsdp_shard){
		.dtype = FSDP_F32,
		.offset = unit->place.shard_offset,
		.count = unit->place.shard_count,
		.parameter = shard_at(model->masters, &unit->place),
		.gradient = shard_at(model->gradients, &unit->place),
		.staging = shard_at(model->staging, &unit->place),
	};
	return 0;
}

static int shard_fill_staging(struct fsdp_model *model, const unsigned char *flat)
{
	for (size_t i = 0; i < model->unit_count; i++) {
		struct fsdp_unit *unit = model->units[i];
		size_t bytes = unit->place.shard_count * sizeof(float);
		if (bytes == 0)
			continue;
		int code = shard_wait(unit, "fsdp_model_update_shards");
		if (code < 0)
			return code;
		memcpy(shard_at(model->staging, &unit->place), flat, bytes);
		flat += bytes;
	}
	return 0;
}

int fsdp_model_update_shards(struct fsdp_model *model, const void *flat, uint64_t count)
{
	int code = model_check_sealed(model, "fsdp_model_update_shards");
	if (code < 0)
		return code;
	if (flat && count != model->shard_elements)
		return fault_set(
			FSDP_E_INVALID,
			"fsdp_model_update_shards: %llu values were given, the shards of model \"%s\" on rank %u have "
			"%llu elements",
			(unsigned long long)count, model->name, model->client->rank,
			(unsigned long long)model->shard_elements);
	if (flat)
		code = shard_fill_staging(model, flat);
	return code < 0 ? code : step_commit(model, STEP_COMMIT_STAGING, NULL, NULL, "fsdp_model_update_shards");
}
