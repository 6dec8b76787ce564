/*
 * What is there: for the library where each unit's shard lies, for tools what its parameters are. Reads the model's
 * manifest and plan, which are sealed.
 */
#include "daemon/serve/places.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/serve/session.h"
#include "daemon/serve/text.h"
#include "daemon/store/plan.h"

void places_serve(struct request *request, const struct worker_message *message)
{
	struct manifest *manifest = request->opened->registration.manifest;
	const struct plan *plan = worker_plan(request->opened->worker);
	struct worker_place places[WORKER_UNITS_MAX];
	uint32_t count = manifest_unit_count(manifest) - message->unit;
	struct worker_message answer = { .unit = message->unit, .places = places };

	if (count > WORKER_UNITS_MAX) {
		count = WORKER_UNITS_MAX;
		answer.more = true;
	}
	for (uint32_t i = 0; i < count; i++) {
		const struct plan_unit *unit = plan_unit(plan, manifest_canonical(manifest, message->unit + i));

		places[i] = (struct worker_place){
			.full_bytes = unit->layout.full_bytes,
			.shard_offset = unit->shard.offset,
			.shard_count = unit->shard.count,
			.arena_offset = unit->shard_offset,
		};
	}
	answer.place_count = count;
	request_answer(request, &answer, NULL, 0);
}

/* One unit; `slot` names the first parameter, so that a unit of more than one message's comes page by page. */
void places_serve_unit(struct request *request, const struct worker_message *message)
{
	struct manifest *manifest = request->opened->registration.manifest;
	const struct manifest_unit *unit = manifest_unit(manifest, manifest_canonical(manifest, message->unit));
	struct worker_message answer = {
		.unit = message->unit,
		.slot = message->slot,
		.gather_dtype = (uint32_t)unit->gather_dtype,
		.reduce_dtype = (uint32_t)unit->reduce_dtype,
	};
	uint64_t first = message->slot < unit->param_count ? message->slot : unit->param_count;
	size_t count = (size_t)(unit->param_count - first);

	if (count > WORKER_PARAMS_MAX) {
		count = WORKER_PARAMS_MAX;
		answer.more = true;
	}
	answer.params = calloc(count > 0 ? count : 1, sizeof(*answer.params));
	if (!answer.params) {
		request_fail(request, -ENOMEM, "out of memory");
		return;
	}
	text_copy(answer.name, sizeof(answer.name), unit->name);
	for (size_t i = 0; i < count; i++) {
		const struct manifest_param *from = &unit->params[first + i];
		struct worker_param *to = &answer.params[i];

		text_copy(to->name, sizeof(to->name), from->name);
		to->dtype = (uint32_t)from->dtype;
		to->ndim = from->ndim;
		to->flags = from->flags;
		to->group = from->group;
		memcpy(to->shape, from->shape, sizeof(to->shape));
	}
	answer.param_count = count;
	struct worker_param *params = answer.params;
	request_answer(request, &answer, NULL, 0);
	free(params);
}
