/*
 * This rank's shards, for an optimizer outside: where they lie, and new values for all of them at once. The mappings belong to
 * the model; staging is the trainer's to write between steps.
 */
#include <string.h>

#include "client/lib/fault.h"
#include "client/lib/model.h"
#include "client/lib/step.h"

static void *shard_at(void *arena, const struct worker_place *place)
{
	return place->shard_count > 0 ? (unsigned char *)arena + place->arena_offset : NULL;
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
	const unsigned char *from = flat;
	for (size_t i = 0; flat && i < model->unit_count; i++) {
		const struct worker_place *place = &model->units[i]->place;
		size_t bytes = place->shard_count * sizeof(float);
		if (bytes == 0)
			continue;
		memcpy(shard_at(model->staging, place), from, bytes);
		from += bytes;
	}
	return step_commit(model, NULL, NULL, "fsdp_model_update_shards");
}
