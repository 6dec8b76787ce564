/*
 * The seal: the collective call itself, then taking what its answer brings: the arenas' descriptors, where every shard
 * lies, and the address ranges of all units. Nothing of it is believed: sizes are compared with the memory that came,
 * places with the sizes and with what was registered here. What was taken is given back in model_unmap.
 */
#include <errno.h>
#include <unistd.h>

#include "client/lib/fault.h"
#include "client/lib/model.h"

#define SEAL_ELEMENT 4u /* bytes of an f32 */
#define SEAL_ARENA_MAX (1ull << 62)

/* What the daemon hands over, in this order; an arena without bytes has no descriptor. */
enum seal_arena { SEAL_MASTERS, SEAL_GRADIENTS, SEAL_STAGING, SEAL_GATHERS, SEAL_GRADS, SEAL_ARENAS };

static const char *const seal_names[SEAL_ARENAS] = {
	[SEAL_MASTERS] = "masters", [SEAL_GRADIENTS] = "gradients",    [SEAL_STAGING] = "staging",
	[SEAL_GATHERS] = "gathers", [SEAL_GRADS] = "gradient buffers",
};

/* Which descriptor belongs to which arena: -1 where it has no bytes. They stay the call's. */
static int seal_sort_fds(const struct wire_call *call, int fds[SEAL_ARENAS])
{
	const struct worker_message *answer = &call->answer;
	const uint64_t bytes[SEAL_ARENAS] = {
		[SEAL_MASTERS] = answer->shard_bytes, [SEAL_GRADIENTS] = answer->shard_bytes,
		[SEAL_STAGING] = answer->shard_bytes, [SEAL_GATHERS] = answer->gather_bytes,
		[SEAL_GRADS] = answer->grad_bytes,
	};
	size_t next = 0;
	for (int i = 0; i < SEAL_ARENAS; i++) {
		fds[i] = -1;
		if (bytes[i] == 0)
			continue;
		if (bytes[i] > SEAL_ARENA_MAX)
			return fault_set(FSDP_E_PROTOCOL, "fsdp_model_seal: the daemon says that %s have %llu bytes",
					 seal_names[i], (unsigned long long)bytes[i]);
		if (next >= call->fd_count)
			return fault_set(FSDP_E_PROTOCOL, "fsdp_model_seal: the daemon sent no descriptor of %s",
					 seal_names[i]);
		fds[i] = call->fds[next++];
		int code = mapping_check(fds[i], bytes[i], seal_names[i]);
		if (code < 0)
			return code;
	}
	if (next != call->fd_count)
		return fault_set(FSDP_E_PROTOCOL, "fsdp_model_seal: the daemon sent %zu descriptors where %zu belong",
				 call->fd_count, next);
	return 0;
}

static int seal_map(struct fsdp_model *model, struct wire_call *call)
{
	int fds[SEAL_ARENAS];
	int code = seal_sort_fds(call, fds);
	if (code < 0)
		return code;
	model->shard_bytes = call->answer.shard_bytes;
	if (model->shard_bytes > 0) {
		code = mapping_open(fds[SEAL_MASTERS], model->shard_bytes, false, &model->masters);
		if (code == 0)
			code = mapping_open(fds[SEAL_GRADIENTS], model->shard_bytes, false, &model->gradients);
		if (code == 0)
			code = mapping_open(fds[SEAL_STAGING], model->shard_bytes, true, &model->staging);
	}
	if (code < 0)
		return fault_set(code, "fsdp_model_seal: cannot map the shards of model \"%s\": %s", model->name,
				 fsdp_strerror(code));
	/* The pools' descriptors are needed for life: slots are mapped one by one. */
	model->gathers = (struct pool){ .fd = fds[SEAL_GATHERS], .bytes = call->answer.gather_bytes };
	model->grads = (struct pool){ .fd = fds[SEAL_GRADS], .bytes = call->answer.grad_bytes };
	for (size_t i = 0; i < call->fd_count; i++)
		if (call->fds[i] == fds[SEAL_GATHERS] || call->fds[i] == fds[SEAL_GRADS])
			call->fds[i] = -1;
	return 0;
}

static int seal_check_place(const struct fsdp_model *model, const struct fsdp_unit *unit)
{
	const struct worker_place *place = &unit->place;
	const char *wrong = NULL;
	if (place->full_bytes != unit->offsets[unit->param_count])
		wrong = "its full copy has another size";
	else if (place->shard_count > unit->elements || place->shard_offset > unit->elements - place->shard_count)
		wrong = "its shard does not lie in it";
	else if (place->arena_offset % SEAL_ELEMENT != 0)
		wrong = "its shard lies at no element's boundary";
	else if (place->arena_offset > model->shard_bytes ||
		 place->shard_count > (model->shard_bytes - place->arena_offset) / SEAL_ELEMENT)
		wrong = "its shard does not lie in the shards' memory";
	if (!wrong)
		return 0;
	return fault_set(FSDP_E_PROTOCOL, "fsdp_model_seal: what the daemon says of unit \"%s\" makes no sense: %s",
			 unit->name, wrong);
}

/* Asks for the places of all units, page by page. */
static int seal_find_places(struct fsdp_model *model)
{
	size_t from = 0;
	while (from < model->unit_count) {
		WIRE_CALL_AUTO call = { 0 };
		struct worker_message request = model_request(model, model->units[from], WORKER_PLACES);
		int code = model_ask(model, NULL, &request, &call, "fsdp_model_seal");
		if (code < 0)
			return code;
		size_t count = call.answer.place_count;
		if (count == 0 || count > model->unit_count - from)
			return fault_set(FSDP_E_PROTOCOL,
					 "fsdp_model_seal: the daemon gave %zu places from unit %zu on, of %zu units",
					 count, from, model->unit_count);
		for (size_t i = 0; i < count; i++) {
			struct fsdp_unit *unit = model->units[from + i];
			unit->place = call.answer.places[i];
			code = seal_check_place(model, unit);
			if (code < 0)
				return code;
			model->shard_elements += unit->place.shard_count;
			if (model->shard_elements > model->shard_bytes / SEAL_ELEMENT)
				return fault_set(FSDP_E_PROTOCOL,
						 "fsdp_model_seal: the shards that the daemon named overlap");
		}
		from += count;
	}
	return 0;
}

static int seal_reserve(struct fsdp_model *model)
{
	for (size_t i = 0; i < model->unit_count; i++) {
		struct fsdp_unit *unit = model->units[i];
		int code = window_reserve(&unit->gather, unit->place.full_bytes);
		if (code == 0)
			code = window_reserve(&unit->grad, unit->place.full_bytes);
		if (code < 0)
			return fault_set(code, "fsdp_model_seal: no address range of %llu bytes for unit \"%s\": %s",
					 (unsigned long long)unit->place.full_bytes, unit->name, fsdp_strerror(code));
	}
	return 0;
}

/* Everything after the daemon's yes. */
static int seal_take(struct fsdp_model *model, struct wire_call *call)
{
	for (size_t i = 0; i < model->unit_count; i++)
		if (!model->units[i]->f32)
			return fault_set(
				FSDP_E_DTYPE,
				"fsdp_model_seal: unit \"%s\" has parameters that are not f32; this version cannot "
				"train them",
				model->units[i]->name);
	int code = seal_map(model, call);
	if (code == 0)
		code = seal_find_places(model);
	if (code == 0)
		code = seal_reserve(model);
	if (code == FSDP_E_PROTOCOL)
		wire_break(model->client->wire, code, "%s", fsdp_last_error());
	return code;
}

/* The moves of the state that belong to the seal. One thread gets from OPEN to SEALING. */
static int seal_begin(struct fsdp_model *model)
{
	pthread_mutex_lock(&model->registering);
	enum model_state state = (enum model_state)model->state;
	if (state == MODEL_OPEN)
		model->state = MODEL_SEALING;
	pthread_mutex_unlock(&model->registering);
	switch (state) {
	case MODEL_OPEN:
		return 0;
	case MODEL_SEALING:
		return fault_set(FSDP_E_STATE, "fsdp_model_seal: another thread is sealing model \"%s\"", model->name);
	case MODEL_SEALED:
		return fault_set(FSDP_E_STATE, "fsdp_model_seal: model \"%s\" is sealed already", model->name);
	case MODEL_BROKEN:
		break;
	}
	return fault_set(FSDP_E_STATE,
			 "fsdp_model_seal: an earlier call on model \"%s\" failed half-way; close it and open it again",
			 model->name);
}

static void seal_end(struct fsdp_model *model, enum model_state state)
{
	pthread_mutex_lock(&model->registering);
	model->state = state;
	pthread_mutex_unlock(&model->registering);
}

int fsdp_model_seal(struct fsdp_model *model, struct fsdp_model_info *ret_info)
{
	int code = model_check(model, "fsdp_model_seal");
	if (code == 0)
		code = seal_begin(model);
	if (code < 0)
		return code;
	/* Not under registering: this waits for other ranks. */
	WIRE_CALL_AUTO call = { 0 };
	struct worker_message request = model_request(model, NULL, WORKER_SEAL);
	code = model_ask(model, NULL, &request, &call, "fsdp_model_seal");
	if (code == 0)
		code = seal_take(model, &call);
	if (code < 0) {
		model_unmap(model);
		seal_end(model, MODEL_BROKEN);
		return code;
	}
	pthread_mutex_lock(&model->lock);
	model->epoch = (struct epoch){ call.answer.step, call.answer.attempt };
	pthread_mutex_unlock(&model->lock);
	seal_end(model, MODEL_SEALED);
	if (ret_info)
		*ret_info = (struct fsdp_model_info){
			.step = call.answer.step,
			.micro_batch = call.answer.micro_batch,
			.worker = model->client->rank * model->local_workers + model->local_worker,
			.workers = model->client->world_size * model->local_workers,
			.resumed = call.answer.resumed,
			.state_bytes = call.answer.blob_bytes,
		};
	return 0;
}
