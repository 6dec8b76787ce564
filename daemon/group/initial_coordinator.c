/*
 * Initial values, the coordinator's part: collects what every rank has loaded, compares it where ranks load the same,
 * and says whether a unit may be published. Owns the offers. The loop thread runs it.
 */
#include "daemon/group/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "fsdp/error.h"

void initial_offers_free(struct model *model, struct unit *unit)
{
	for (uint32_t rank = 0; unit->offers && rank < model->group->config.world_size; rank++)
		free(unit->offers[rank].sums);
	free(unit->offers);
	unit->offers = NULL;
}

void initial_lacking(const struct model *model, uint32_t index, struct rank_list *ranks)
{
	const struct unit *unit = &model->units[index];
	const struct manifest_options *options = model_options(model);
	bool first = options->init == INIT_FROM_RANK &&
		     (!unit->offers || !unit->offers[options->init_rank].whole); /* before it the others cannot */

	for (uint32_t rank = 0; rank < model->group->config.world_size; rank++)
		if (first ? rank == options->init_rank : !unit->offers || !unit->offers[rank].whole)
			rank_list_add(ranks, rank);
}

static void say_verified(struct model *model, uint32_t index, uint32_t round, int code, uint64_t sum, const char *text,
			 int64_t rank)
{
	struct peer_message message;

	group_message_init(&message, PEER_VERIFIED);
	group_message_text(&message, text);
	message.model = model->number;
	message.unit = index;
	message.attempt = round;
	message.code = code;
	message.sum = sum;
	if (rank >= 0)
		group_send(model->group, (uint32_t)rank, &message);
	else
		group_tell_others(model->group, &message);
}

static void say_waiting(struct model *model, uint32_t index, uint32_t rank)
{
	struct rank_list ranks = { 0 };
	uint64_t sums[RANK_LIST_MAX];
	struct peer_message message;

	initial_lacking(model, index, &ranks);
	group_message_init(&message, PEER_WAITING);
	group_message_name(&message, model->name);
	message.model = model->number;
	message.unit = index;
	message.awaited = PEER_LOADED;
	for (uint32_t i = 0; i < ranks.count; i++)
		sums[i] = ranks.ranks[i];
	message.sums = sums;
	message.sum_count = ranks.count;
	group_send(model->group, rank, &message);
}

/* The first parameter, in their order, that two ranks differ in. */
static bool find_difference(const struct model *model, uint32_t index, char *text, size_t size)
{
	const struct offer *offers = model->units[index].offers;
	uint32_t count = model_param_count(model, index);

	for (uint32_t i = 0; i < count; i++)
		for (uint32_t rank = 1; rank < model->group->config.world_size; rank++) {
			if (offers[rank].sums[i] == offers[0].sums[i])
				continue;
			snprintf(text, size,
				 "unit \"%s\" parameter \"%s\": rank 0 loaded values with checksum 0x%016" PRIx64
				 ", rank %" PRIu32 " 0x%016" PRIx64 ": load the same values on every rank",
				 model_unit_name(model, index), model_param_name(model, index, i), offers[0].sums[i],
				 rank, offers[rank].sums[i]);
			return true;
		}
	return false;
}

/* What the offers, which are whole, have in common. */
static uint64_t common_sum(const struct model *model, uint32_t index)
{
	const struct offer *offers = model->units[index].offers;

	if (model_options(model)->init != INIT_VERIFY)
		return 0;
	return XXH3_64bits(offers[0].sums, model_param_count(model, index) * sizeof(uint64_t));
}

static void judge(struct model *model, uint32_t index)
{
	struct unit *unit = &model->units[index];
	uint32_t self = model->group->config.rank, round = unit->round;
	char text[PEER_TEXT_MAX + 1] = "";

	bool compare = model_options(model)->init == INIT_VERIFY;
	int code = compare && find_difference(model, index, text, sizeof(text)) ? FSDP_E_MISMATCH : 0;
	uint64_t sum = common_sum(model, index);
	initial_offers_free(model, unit);
	free(unit->verdict);
	unit->verdict = code < 0 ? group_duplicate(text) : NULL;
	say_verified(model, index, round, code, sum, text, -1);
	say_verified(model, index, round, code, sum, text, self);
}

static void answer_again(struct model *model, uint32_t index, uint32_t rank, uint32_t round)
{
	const struct unit *unit = &model->units[index];

	if (round == unit->round && unit->state == UNIT_VERIFIED)
		say_verified(model, index, round, 0, initial_sums_hash(model, index), "", rank);
	else if (round + 1 == unit->round && unit->verdict)
		say_verified(model, index, round, FSDP_E_MISMATCH, 0, unit->verdict, rank);
}

static bool offers_are_whole(const struct model *model, const struct unit *unit)
{
	for (uint32_t rank = 0; rank < model->group->config.world_size; rank++)
		if (!unit->offers[rank].whole)
			return false;
	return true;
}

void initial_hear_loaded(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	struct model *model = model_find(group, message->model);
	(void)payload;

	if (!model || !model_is_live(model) || message->unit >= model->unit_count)
		return;
	struct unit *unit = &model->units[message->unit];
	uint32_t count = model_param_count(model, message->unit);
	if (message->length != count || message->offset > count || message->sum_count > count - message->offset)
		return;
	if (unit->state == UNIT_VERIFIED || message->attempt < unit->round) {
		answer_again(model, message->unit, rank, message->attempt);
		return;
	}
	if (message->attempt != unit->round)
		return;
	if (!unit->offers)
		unit->offers = group_allocate(group->config.world_size, sizeof(*unit->offers));
	struct offer *offer = &unit->offers[rank];
	if (offer->whole) {
		if (message->offset + message->sum_count == count)
			say_waiting(model, message->unit, rank);
		return;
	}
	if (model_options(model)->init == INIT_FROM_RANK && rank != model_options(model)->init_rank)
		offer->received = (uint32_t)message->offset; /* no sums: all or nothing */
	if (message->offset != offer->received)
		return;
	if (!offer->sums)
		offer->sums = group_allocate(count, sizeof(*offer->sums));
	if (message->sum_count)
		memcpy(offer->sums + offer->received, message->sums, message->sum_count * sizeof(*offer->sums));
	offer->received += (uint32_t)message->sum_count;
	offer->whole = offer->received == count;
	if (offer->whole && offers_are_whole(model, unit))
		judge(model, message->unit);
}
