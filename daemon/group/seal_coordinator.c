/*
 * Sealing, the coordinator's part: collects what every rank would seal under a name, finds the first difference,
 * answers all. Owns struct seal, one a name. The loop thread of rank 0 runs it. A peer's whole manifest takes memory
 * only as it arrives, and only one is asked for at a time.
 */
#include "daemon/group/model.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"

struct seal_rank {
	uint64_t number;   /* the last that it asked under */
	uint64_t answered; /* the last that was refused */
	bool asked;        /* it waits */
	bool owed;         /* a refusal was told to the others before it asked */
	uint64_t hash;
	int code;
	char *text;
};

struct seal {
	struct seal *next;
	char name[FSDP_NAME_MAX + 1];
	int code; /* the last refusal */
	char *text;
	bool detail_wanted;
	uint32_t detail_rank;
	uint8_t *detail;
	size_t detail_size;
	struct seal_rank ranks[];
};

/* ---- The seals ---- */

static struct seal *seal_find(const struct group *group, const char *name)
{
	struct seal *seal = group->seals;
	while (seal && strcmp(seal->name, name) != 0)
		seal = seal->next;
	return seal;
}

static void detail_forget(struct seal *seal)
{
	free(seal->detail);
	seal->detail = NULL;
	seal->detail_size = 0;
	seal->detail_wanted = false;
}

static void seal_free(struct group *group, struct seal *seal)
{
	for (struct seal **at = &group->seals; *at; at = &(*at)->next)
		if (*at == seal) {
			*at = seal->next;
			break;
		}
	for (uint32_t rank = 0; rank < group->config.world_size; rank++)
		free(seal->ranks[rank].text);
	detail_forget(seal);
	free(seal->text);
	free(seal);
}

void seals_reset(struct group *group)
{
	while (group->seals)
		seal_free(group, group->seals);
}

static bool seal_is_idle(const struct group *group, const struct seal *seal)
{
	for (uint32_t rank = 0; rank < group->config.world_size; rank++)
		if (seal->ranks[rank].asked)
			return false;
	return true;
}

/* NULL where too many names are under agreement already: whoever asks, asks again. */
static struct seal *seal_get(struct group *group, const char *name)
{
	struct seal *seal = seal_find(group, name);
	struct seal *idle = NULL;
	size_t count = 0;

	if (seal)
		return seal;
	for (seal = group->seals; seal; seal = seal->next, count++)
		if (seal_is_idle(group, seal))
			idle = seal;
	if (count >= GROUP_SEALS_MAX && !idle)
		return NULL;
	if (count >= GROUP_SEALS_MAX)
		seal_free(group, idle);
	seal = group_allocate(1, sizeof(*seal) + group->config.world_size * sizeof(seal->ranks[0]));
	snprintf(seal->name, sizeof(seal->name), "%s", name);
	seal->next = group->seals;
	group->seals = seal;
	return seal;
}

void seals_lacking(const struct group *group, const char *name, struct rank_list *ranks)
{
	const struct seal *seal = seal_find(group, name);
	for (uint32_t rank = 0; rank < group->config.world_size; rank++)
		if (!seal || !seal->ranks[rank].asked)
			rank_list_add(ranks, rank);
}

/* ---- Answers ---- */

static void say_unsealed(struct group *group, uint32_t rank, const char *name, uint64_t number, int code,
			 const char *text)
{
	struct peer_message message;

	group_message_init(&message, PEER_UNSEALED);
	group_message_name(&message, name);
	group_message_text(&message, text);
	message.version = number;
	message.code = code;
	group_send(group, rank, &message);
}

static void say_sealed(struct model *model, uint32_t rank)
{
	struct peer_message message;

	group_message_init(&message, PEER_SEALED);
	group_message_name(&message, model->name);
	message.version = model->seal_numbers[rank];
	message.model = model->number;
	message.sum = manifest_hash(model->manifest);
	group_send(model->group, rank, &message);
}

void seals_remind(struct model *model, uint32_t rank)
{
	say_sealed(model, rank);
}

static void say_waiting(struct group *group, const struct seal *seal, uint32_t rank)
{
	struct rank_list ranks = { 0 };
	uint64_t sums[RANK_LIST_MAX];
	struct peer_message message;

	seals_lacking(group, seal->name, &ranks);
	group_message_init(&message, PEER_WAITING);
	group_message_name(&message, seal->name);
	message.awaited = PEER_MANIFEST;
	for (uint32_t i = 0; i < ranks.count; i++)
		sums[i] = ranks.ranks[i];
	message.sums = sums;
	message.sum_count = ranks.count;
	group_send(group, rank, &message);
}

static void refuse(struct group *group, struct seal *seal, int code, const char *text)
{
	uint32_t world_size = group->config.world_size;
	bool *told = group_allocate(world_size, sizeof(*told));
	char *name = group_duplicate(seal->name), *why = group_duplicate(text);

	detail_forget(seal);
	free(seal->text);
	seal->text = group_duplicate(text);
	seal->code = code;
	for (uint32_t rank = 0; rank < world_size; rank++) {
		struct seal_rank *entry = &seal->ranks[rank];
		told[rank] = entry->asked;
		entry->owed = !entry->asked;
		if (entry->asked)
			entry->answered = entry->number;
		entry->asked = false;
	}
	/* Ourselves last: that ends our own seal, with a word of withdrawal to this file. */
	for (uint32_t i = 1; i <= world_size; i++) {
		uint32_t rank = (group->config.rank + i) % world_size;
		if (told[rank])
			say_unsealed(group, rank, name, seal->ranks[rank].number, code, why);
	}
	free(told);
	free(name);
	free(why);
}

static uint64_t fresh_number(struct group *group)
{
	uint64_t number;
	do
		number = group->config.first_model + group->models_made++;
	while (number == 0 || model_find(group, number) || drop_is_remembered(group, number));
	return number;
}

static void accept(struct group *group, struct seal *seal)
{
	uint32_t world_size = group->config.world_size, self = group->config.rank;
	struct model *model = model_named(group, seal->name);

	assert(model && model->state == MODEL_SEALING && model->plan);
	for (uint32_t rank = 0; rank < world_size; rank++)
		model->seal_numbers[rank] = seal->ranks[rank].number;
	seal_free(group, seal);
	model_sealed(model, fresh_number(group));
	for (uint32_t rank = 0; rank < world_size; rank++)
		if (rank != self)
			say_sealed(model, rank);
	worker_attached(model->worker, false);
}

/* ---- Judging ---- */

static void want_detail(struct group *group, const struct seal *seal)
{
	struct peer_message message;

	group_message_init(&message, PEER_DETAIL_WANTED);
	group_message_name(&message, seal->name);
	message.version = seal->ranks[seal->detail_rank].number;
	message.offset = seal->detail_size;
	group_send(group, seal->detail_rank, &message);
}

/* A dtype that cannot be sealed waits for everybody: that the ranks differ is the better reason. */
static bool refuse_unable(struct group *group, struct seal *seal, bool complete)
{
	for (uint32_t rank = 0; rank < group->config.world_size; rank++) {
		char text[CALL_TEXT_MAX];
		const struct seal_rank *entry = &seal->ranks[rank];
		if (!entry->asked || entry->code == 0 || (entry->code == FSDP_E_DTYPE && !complete))
			continue;
		snprintf(text, sizeof(text), "model \"%s\": rank %" PRIu32 " cannot seal it: %s", seal->name, rank,
			 entry->text);
		refuse(group, seal, entry->code, text);
		return true;
	}
	return false;
}

/* Our own manifest is what the others' are compared with. */
static void consider(struct group *group, struct seal *seal)
{
	uint32_t self = group->config.rank;
	bool complete = true;

	if (seal->detail_wanted)
		return;
	for (uint32_t rank = 0; rank < group->config.world_size; rank++) {
		complete = complete && seal->ranks[rank].asked;
		if (seal->ranks[rank].asked && seal->ranks[self].asked &&
		    seal->ranks[rank].hash != seal->ranks[self].hash) {
			seal->detail_wanted = true;
			seal->detail_rank = rank;
			want_detail(group, seal);
			return;
		}
	}
	if (!refuse_unable(group, seal, complete) && complete)
		accept(group, seal);
}

static void judge_detail(struct group *group, struct seal *seal)
{
	char text[CALL_TEXT_MAX], difference[CALL_TEXT_MAX / 2];
	uint32_t rank = seal->detail_rank;
	struct model *model = model_named(group, seal->name);
	struct manifest *theirs = NULL;

	assert(model && model->state == MODEL_SEALING);
	if (manifest_read(seal->detail, seal->detail_size, &theirs) < 0)
		snprintf(difference, sizeof(difference), "rank %" PRIu32 " has a manifest that cannot be read", rank);
	else if (manifest_difference(model->manifest, group->config.rank, theirs, rank, difference,
				     sizeof(difference)) == 0)
		snprintf(difference, sizeof(difference),
			 "rank %" PRIu32 " showed a manifest that is not the one it asked for", rank);
	manifest_unref(theirs);
	snprintf(text, sizeof(text), "model \"%s\": %s", seal->name, difference);
	refuse(group, seal, FSDP_E_MISMATCH, text);
}

/* ---- Hearing ---- */

/* A question about a name that is sealed or lost here; true: it was answered, or need not be. */
static bool answer_known(struct group *group, uint32_t rank, const struct peer_message *message)
{
	struct model *model = model_named(group, message->name);
	const struct lost_name *lost = drop_lost_name(group, message->name);

	if (model && model->state == MODEL_LOST) {
		say_unsealed(group, rank, message->name, message->version, FSDP_E_LOST, model->trouble);
		return true;
	}
	if (!model || model->state == MODEL_SEALING) {
		if (lost)
			say_unsealed(group, rank, message->name, message->version, FSDP_E_LOST, lost->text);
		return lost != NULL;
	}
	if (!model_is_live(model))
		return false; /* being dropped: asked again when it is gone */
	if (message->version == model->seal_numbers[rank])
		say_sealed(model, rank);
	if (message->version > model->seal_numbers[rank]) {
		char why[CALL_TEXT_MAX];
		snprintf(why, sizeof(why), "rank %" PRIu32 " gave up sealing it and begins anew", rank);
		drop_requested(group, rank, model->number, model->name, why);
	}
	return true;
}

/* Whoever was refused and asks anew begins a new round: nobody else is owed the old answer. */
static void begin_round(struct group *group, struct seal *seal)
{
	for (uint32_t rank = 0; rank < group->config.world_size; rank++)
		seal->ranks[rank].owed = false;
}

void seals_hear_manifest(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	(void)payload;
	if (message->version == 0 || message->name[0] == '\0' || answer_known(group, rank, message))
		return;
	struct seal *seal = seal_get(group, message->name);
	if (!seal)
		return;
	struct seal_rank *entry = &seal->ranks[rank];
	if (message->version <= entry->number) {
		if (message->version == entry->answered)
			say_unsealed(group, rank, seal->name, message->version, seal->code, seal->text);
		else if (message->version == entry->number && entry->asked)
			say_waiting(group, seal, rank);
		return;
	}
	entry->number = message->version;
	if (entry->owed) {
		entry->owed = false;
		entry->answered = message->version;
		say_unsealed(group, rank, seal->name, message->version, seal->code, seal->text);
		return;
	}
	if (entry->answered != 0)
		begin_round(group, seal);
	if (seal->detail_wanted && seal->detail_rank == rank)
		detail_forget(seal);
	entry->asked = true;
	entry->hash = message->sum;
	entry->code = message->code < 0 ? message->code : 0;
	free(entry->text);
	entry->text = group_duplicate(message->text);
	consider(group, seal);
}

void seals_hear_detail(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	struct seal *seal = seal_find(group, message->name);

	if (!seal || !payload || !seal->detail_wanted || seal->detail_rank != rank ||
	    message->version != seal->ranks[rank].number || message->offset != seal->detail_size)
		return;
	size_t size = buffer_size(payload);
	if (message->length > MANIFEST_BYTES_MAX || size > message->length - message->offset) {
		refuse(group, seal, FSDP_E_OVERFLOW, "a manifest is larger than any may be");
		return;
	}
	uint8_t *grown = realloc(seal->detail, seal->detail_size + size);
	if (!grown)
		return; /* asked for again with the next heartbeat */
	memcpy(grown + seal->detail_size, buffer_data(payload), size);
	seal->detail = grown;
	seal->detail_size += size;
	if (seal->detail_size == message->length)
		judge_detail(group, seal);
}

void seals_hear_withdraw(struct group *group, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	struct model *model = model_named(group, message->name);
	struct seal *seal = seal_find(group, message->name);
	(void)payload;

	if (model && model_is_live(model) && rank != group->config.rank &&
	    message->version == model->seal_numbers[rank]) {
		char why[CALL_TEXT_MAX];
		snprintf(why, sizeof(why), "rank %" PRIu32 " gave up sealing it", rank);
		drop_requested(group, rank, model->number, model->name, why);
		return;
	}
	if (!seal)
		return;
	struct seal_rank *entry = &seal->ranks[rank];
	if (message->version < entry->number)
		return;
	bool waited = entry->asked;
	entry->number = message->version;
	entry->asked = false;
	if (waited && message->code == FSDP_E_TIMEOUT) {
		/* Everybody who waits hears what the first one waited for; who comes later begins a new round. */
		refuse(group, seal, message->code, message->text);
		begin_round(group, seal);
		return;
	}
	/* Without our own manifest, or the one that differs, there is nothing to compare. */
	if (seal->detail_wanted && (rank == seal->detail_rank || rank == group->config.rank))
		detail_forget(seal);
	consider(group, seal);
}

void seals_repeat(struct group *group)
{
	for (struct seal *seal = group->seals; seal; seal = seal->next)
		if (seal->detail_wanted)
			want_detail(group, seal);
}
