/*
 * The questions that an operator asks: peers, models, units, waits. Reads everything, changes nothing. The loop thread
 * runs it.
 */
#include "daemon/group/model.h"

#include <assert.h>
#include <string.h>

struct peer_status group_peer(const struct group *group, uint32_t rank)
{
	assert(rank < group->config.world_size);
	const struct peer *peer = &group->peers[rank];
	bool self = rank == group->config.rank;

	return (struct peer_status){ .rank = rank,
				     .state = peer->state,
				     .bulk_up = peer->bulk_up,
				     .incarnation = peer->incarnation,
				     .heard_ms_ago = self          ? 0
						     : peer->heard ? group->now_ms - peer->heard_ms
								   : UINT64_MAX,
				     .refusal = peer->refusal };
}

uint32_t group_model_count(const struct group *group)
{
	uint32_t count = 0;
	for (const struct model *model = group->models; model; model = model->next)
		count++;
	return count;
}

static const struct model *model_at(const struct group *group, uint32_t index)
{
	const struct model *model = group->models;
	while (model && index-- > 0)
		model = model->next;
	assert(model);
	return model;
}

static const char *phase_name(const struct model *model)
{
	if (model->phase == STEP_VOTED)
		return "voted";
	if (step_has_contributions(model))
		return "reducing";
	return model->applied < model->step ? "applying" : "idle";
}

static const char *trouble_of(const struct model *model)
{
	if (model->trouble)
		return model->trouble;
	for (uint32_t i = 0; i < model->unit_count && model->troubled > 0; i++)
		if (model->units[i].trouble)
			return model->units[i].trouble;
	return model->seal_code < 0 ? model->seal_text : NULL;
}

struct model_status group_model(const struct group *group, uint32_t index)
{
	const struct model *model = model_at(group, index);
	struct model_status status = { .name = model->name,
				       .model = model->number,
				       .state = model->state,
				       .step = model->step,
				       .attempt = model->attempt,
				       .micro_batch = model->micro_batch,
				       .steps_applied = model->steps_applied,
				       .steps_skipped = model->steps_skipped,
				       .steps_aborted = model->steps_aborted,
				       .phase = phase_name(model),
				       .workers = model->worker ? 1 : 0,
				       .plan = model->plan,
				       .trouble = trouble_of(model) };

	if (model->plan) {
		status.gather_used = pool_used(model->gather_pool);
		status.gather_bytes = pool_bytes(model->gather_pool);
		status.grad_used = pool_used(model->grad_pool);
		status.grad_bytes = pool_bytes(model->grad_pool);
	}
	return status;
}

struct unit_status group_unit(const struct group *group, uint32_t model_index, uint32_t canonical)
{
	const struct model *model = model_at(group, model_index);
	assert(canonical < model->unit_count);
	const struct unit *unit = &model->units[canonical];
	struct unit_status status = { .name = model_unit_name(model, canonical),
				      .version = unit->version,
				      .held = unit->held ? unit->held->holds : 0,
				      .reduced = unit->reduced };

	for (const struct gather *gather = unit->gathers; gather; gather = gather->next)
		if (gather->whole && gather->version == unit->version)
			status.gathered = true;
	if (model->plan) {
		status.full_bytes = plan_unit(model->plan, canonical)->layout.full_bytes;
		status.shard_elements = plan_unit(model->plan, canonical)->shard.count;
	}
	return status;
}

static const char *op_of(const struct call *call, const struct story *story)
{
	switch (call->kind) {
	case CALL_UNSHARD:
		return "unshard";
	case CALL_STEP:
		return strcmp(story->op, "reduce-scatter") == 0 ? story->op : "step";
	default:
		return story->op;
	}
}

uint32_t group_waits(struct group *group, struct wait_status *waits, uint32_t most)
{
	uint32_t count = 0;

	for (const struct call *call = group->calls; call && count < most; call = call->next) {
		const struct model *model = call_model(group, call);
		struct story story;
		struct wait_status *wait = &waits[count++];
		story_of(group, call, &story);
		*wait = (struct wait_status){ .model = model          ? model->name
						       : call->worker ? manifest_name(call->worker->manifest)
								      : NULL,
					      .op = op_of(call, &story),
					      .unit = story.unit,
					      .waiting_ms = group->now_ms - call->started_ms,
					      .deadline_ms = call->deadline_ms,
					      .rank_count = story.ranks.count };
		memcpy(wait->ranks, story.ranks.ranks, story.ranks.count * sizeof(wait->ranks[0]));
	}
	return count;
}
