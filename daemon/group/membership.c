/*
 * Who is here: judges every HELLO, keeps a state for every peer, and derives the generation from the incarnations. Owns
 * group->peers. The loop thread runs it. What a loss means for models and calls is told in models_lose and
 * models_peer_gone.
 */
#include "daemon/group/state.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "daemon/group/model.h"
#include "fsdp/error.h"

const char *peer_state_name(enum peer_state state)
{
	static const char *const names[] = {
		[PEER_ABSENT] = "absent", [PEER_JOINED] = "joined", [PEER_SUSPECTED] = "suspected", [PEER_GONE] = "gone"
	};
	return (size_t)state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

void rank_list_add(struct rank_list *list, uint32_t rank)
{
	uint32_t at = 0;
	while (at < list->count && list->ranks[at] < rank)
		at++;
	if (at < list->count && list->ranks[at] == rank)
		return;
	if (list->count == RANK_LIST_MAX) {
		list->more++;
		if (at == RANK_LIST_MAX)
			return;
		list->count--;
	}
	memmove(&list->ranks[at + 1], &list->ranks[at], (list->count - at) * sizeof(list->ranks[0]));
	list->ranks[at] = rank;
	list->count++;
}

/* ---- The states of a peer ---- */

#define TO(state) (1u << (state))
static const unsigned PEER_MOVES[] = {
	[PEER_ABSENT] = TO(PEER_JOINED),
	[PEER_JOINED] = TO(PEER_SUSPECTED) | TO(PEER_ABSENT),
	[PEER_SUSPECTED] = TO(PEER_JOINED) | TO(PEER_GONE) | TO(PEER_ABSENT),
	[PEER_GONE] = TO(PEER_JOINED) | TO(PEER_ABSENT),
};

static double silence_seconds(const struct group *group, const struct peer *peer)
{
	return (double)(group->now_ms - peer->heard_ms) / 1000.0;
}

void membership_lost_text(const struct group *group, uint32_t rank, char *text, size_t size)
{
	snprintf(text, size, "rank %" PRIu32 " is lost: not heard for %.1f s", rank,
		 silence_seconds(group, &group->peers[rank]));
}

static void peer_move(struct group *group, uint32_t rank, enum peer_state state)
{
	struct peer *peer = &group->peers[rank];
	enum peer_state from = peer->state;
	int32_t number = (int32_t)rank;

	assert(PEER_MOVES[from] & TO(state));
	peer->state = state;
	switch (state) {
	case PEER_ABSENT:
		break;
	case PEER_JOINED:
		free(peer->refusal);
		peer->refusal = NULL;
		if (from == PEER_ABSENT)
			group_notice(group, NOTICE_PEER_JOINED, NULL, NULL, number,
				     "rank %" PRIu32 " joined (incarnation %016" PRIx64 ")", rank, peer->incarnation);
		else
			group_notice(group, NOTICE_PEER_BACK, NULL, NULL, number, "rank %" PRIu32 " is heard again",
				     rank);
		break;
	case PEER_SUSPECTED:
		group_notice(group, NOTICE_PEER_SUSPECTED, NULL, NULL, number,
			     "rank %" PRIu32 " was not heard for %.1f s", rank, silence_seconds(group, peer));
		break;
	case PEER_GONE:
		group_notice(group, NOTICE_PEER_LOST, NULL, NULL, number,
			     "rank %" PRIu32 " is lost: not heard for %.1f s; calls that need it fail", rank,
			     silence_seconds(group, peer));
		models_peer_gone(group, rank);
		break;
	}
}

int64_t membership_gone(const struct group *group)
{
	for (uint32_t rank = 0; rank < group->config.world_size; rank++)
		if (group->peers[rank].state == PEER_GONE)
			return rank;
	return -1;
}

void membership_absent(const struct group *group, struct rank_list *ranks)
{
	for (uint32_t rank = 0; rank < group->config.world_size; rank++)
		if (group->peers[rank].state != PEER_JOINED)
			rank_list_add(ranks, rank);
}

void membership_heard(struct group *group, uint32_t rank)
{
	struct peer *peer = &group->peers[rank];

	peer->heard = true;
	peer->heard_ms = group->now_ms;
	if (peer->state == PEER_SUSPECTED || peer->state == PEER_GONE)
		peer_move(group, rank, PEER_JOINED);
}

void membership_tick(struct group *group)
{
	for (uint32_t rank = 0; rank < group->config.world_size; rank++) {
		struct peer *peer = &group->peers[rank];
		if (rank == group->config.rank || !group->ticked) {
			peer->heard_ms = group->now_ms;
			continue;
		}
		uint64_t silence = group->now_ms - peer->heard_ms;
		if (peer->state == PEER_JOINED && silence >= group->config.suspicion_ms)
			peer_move(group, rank, PEER_SUSPECTED);
		if (peer->state == PEER_SUSPECTED && silence >= group->config.suspicion_ms + group->config.grace_ms)
			peer_move(group, rank, PEER_GONE);
	}
}

/* ---- The generation ---- */

static uint64_t generation_of(const struct group *group)
{
	uint32_t world_size = group->config.world_size;
	uint64_t *incarnations = group_allocate(world_size, sizeof(*incarnations));
	uint64_t generation = 1;

	for (uint32_t rank = 0; rank < world_size && generation != 0; rank++) {
		incarnations[rank] = htole64(group->peers[rank].incarnation);
		if (group->peers[rank].state == PEER_ABSENT)
			generation = 0;
	}
	if (generation != 0) {
		generation = XXH3_64bits(incarnations, world_size * sizeof(*incarnations));
		generation = generation ? generation : 1;
	}
	free(incarnations);
	return generation;
}

static void tell_engine(struct group *group)
{
	struct command *command = command_new(COMMAND_PEERS);
	command->generation = group->generation;
	command->incarnations = group_allocate(group->config.world_size, sizeof(*command->incarnations));
	for (uint32_t rank = 0; rank < group->config.world_size; rank++)
		command->incarnations[rank] = group->peers[rank].incarnation;
	group_command(group, command);
}

/* An incarnation or a state changed: is there a generation, and is it another one? */
static void settle(struct group *group, bool incarnation_changed)
{
	uint64_t generation = generation_of(group);
	bool changed = generation != group->generation;

	if (changed) {
		group->generation = generation;
		links_set_generation(group->links, generation);
		seals_reset(group);
		group->heartbeat_ms = group->now_ms; /* questions that waited for it */
	}
	if (changed || incarnation_changed)
		tell_engine(group);
	if (changed && generation != 0)
		group_notice(group, NOTICE_GROUP_FORMED, NULL, NULL, -1,
			     "%" PRIu32 " of %" PRIu32 " ranks (generation %016" PRIx64 ")", group->config.world_size,
			     group->config.world_size, generation);
}

/* Both directions are welcomed by the incarnation that is known. */
static void join(struct group *group, uint32_t rank)
{
	struct peer *peer = &group->peers[rank];

	if (peer->state != PEER_ABSENT || !peer->inbound || peer->up_incarnation != peer->incarnation)
		return;
	peer_move(group, rank, PEER_JOINED);
	settle(group, false);
}

/* ---- What the links tell ---- */

static bool heard_lately(const struct group *group, const struct peer *peer)
{
	return peer->heard && group->now_ms - peer->heard_ms < group->config.suspicion_ms;
}

static void accept(struct group *group, uint32_t rank, uint64_t incarnation)
{
	struct peer *peer = &group->peers[rank];

	if (peer->incarnation != 0) {
		links_forget(group->links, rank);
		if (peer->state != PEER_ABSENT)
			peer_move(group, rank, PEER_ABSENT);
		models_lose(group, rank);
	}
	peer->incarnation = incarnation;
	peer->inbound = false;
	peer->model_count = 0;
	settle(group, true);
}

static int on_judge(void *context, const struct peer_message *hello, char *text)
{
	struct group *group = context;
	uint32_t rank = hello->source;
	struct peer *peer = &group->peers[rank];

	if (hello->incarnation == 0) {
		snprintf(text, PEER_TEXT_MAX + 1, "rank %" PRIu32 " gave no incarnation", rank);
		return FSDP_E_PROTOCOL;
	}
	group_enter(group);
	int code = 0;
	if (peer->incarnation != hello->incarnation) {
		if (peer->incarnation != 0 && heard_lately(group, peer)) {
			snprintf(text, PEER_TEXT_MAX + 1,
				 "rank %" PRIu32 " is taken by another daemon (incarnation %016" PRIx64
				 "): give this one another rank, or stop the other",
				 rank, peer->incarnation);
			code = FSDP_E_BUSY;
		} else {
			accept(group, rank, hello->incarnation);
		}
	}
	if (code == 0)
		membership_heard(group, rank);
	group_leave(group);
	return code;
}

static void on_up(void *context, uint32_t rank, uint64_t link, uint64_t incarnation)
{
	struct group *group = context;
	(void)link;

	group_enter(group);
	group->peers[rank].up_incarnation = incarnation;
	group->heartbeat_ms = group->now_ms; /* what was lost with the old link is said again soon */
	join(group, rank);
	group_leave(group);
}

static void on_down(void *context, uint32_t rank)
{
	struct group *group = context;
	group->peers[rank].up_incarnation = 0;
}

static void on_inbound(void *context, uint32_t rank, uint64_t link, uint64_t incarnation)
{
	struct group *group = context;
	(void)link;

	group_enter(group);
	if (group->peers[rank].incarnation == incarnation)
		group->peers[rank].inbound = true;
	join(group, rank);
	group_leave(group);
}

static void note_refusal(struct group *group, uint32_t rank, const char *text)
{
	if (rank >= group->config.world_size)
		return;
	free(group->peers[rank].refusal);
	group->peers[rank].refusal = group_duplicate(text);
}

static void on_refused(void *context, uint32_t rank, int code, const char *text)
{
	struct group *group = context;
	(void)code;

	group_enter(group);
	note_refusal(group, rank, text);
	group_notice(group, NOTICE_PEER_REFUSED, NULL, NULL, (int32_t)rank, "rank %" PRIu32 " refused this daemon: %s",
		     rank, text);
	group_leave(group);
}

static void on_refusing(void *context, const struct peer_message *hello, int code, const char *text)
{
	struct group *group = context;
	bool of_world = hello->source < group->config.world_size;
	(void)code;

	group_enter(group);
	note_refusal(group, hello->source, text);
	group_notice(group, NOTICE_PEER_REFUSED, NULL, NULL, of_world ? (int32_t)hello->source : -1,
		     "refused a daemon that calls itself rank %" PRIu32 ": %s", hello->source, text);
	group_leave(group);
}

const struct links_owner membership_links_owner = {
	.judge = on_judge,
	.up = on_up,
	.down = on_down,
	.inbound = on_inbound,
	.refused = on_refused,
	.refusing = on_refusing,
	.message = group_message,
};

/* ---- Its life ---- */

int membership_init(struct group *group)
{
	group->peers = calloc(group->config.world_size, sizeof(*group->peers));
	if (!group->peers)
		return -ENOMEM;
	struct peer *self = &group->peers[group->config.rank];
	self->state = PEER_JOINED;
	self->incarnation = group->config.incarnation;
	self->heard = true;
	self->bulk_up = true;
	return 0;
}

void membership_start(struct group *group)
{
	settle(group, true);
}

void membership_fini(struct group *group)
{
	for (uint32_t rank = 0; group->peers && rank < group->config.world_size; rank++) {
		free(group->peers[rank].refusal);
		free(group->peers[rank].models);
	}
	free(group->peers);
}
