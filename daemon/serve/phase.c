/* See phase.h. Owns nothing; the loop asks. */
#include "daemon/serve/phase.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/serve/text.h"

uint32_t phase_missing(const struct group *group, uint32_t rank, uint32_t world_size, char *ret_text, size_t size)
{
	uint32_t missing = 0;
	size_t used = 0;

	ret_text[0] = '\0';
	for (uint32_t r = 0; r < world_size; r++) {
		if (r == rank || group_peer(group, r).state == PEER_JOINED)
			continue;
		missing++;
		if (missing > PHASE_RANKS_MAX || used + 24 > size)
			continue;
		used += (size_t)snprintf(ret_text + used, size - used, "%srank %u", used > 0 ? ", " : "", r);
	}
	if (missing > PHASE_RANKS_MAX && used + 24 <= size)
		snprintf(ret_text + used, size - used, " and %u more", missing - PHASE_RANKS_MAX);
	return missing;
}

static bool is_lost(const struct group *group)
{
	for (uint32_t i = 0; i < group_model_count(group); i++) {
		if (group_model(group, i).state == MODEL_LOST)
			return true;
	}
	return false;
}

bool phase_is_degraded(const struct group *group, uint32_t rank, uint32_t world_size)
{
	char ranks[PHASE_TEXT_MAX];

	return phase_missing(group, rank, world_size, ranks, sizeof(ranks)) > 0 || is_lost(group);
}

/* "model "x": ready, step 12", or how many there are. */
static void describe_models(const struct group *group, char *text, size_t size)
{
	uint32_t count = group_model_count(group);
	struct model_status model;

	if (count == 0) {
		text_copy(text, size, "no model");
		return;
	}
	if (count > 1) {
		text_print(text, size, "%u models", count);
		return;
	}
	model = group_model(group, 0);
	text_print(text, size, "model \"%.64s\": %s, step %" PRIu64 " (%s)", model.name, model_state_name(model.state),
		   model.step, model.phase);
}

void phase_describe(const struct group *group, uint32_t rank, uint32_t world_size, char ret_text[PHASE_TEXT_MAX + 1])
{
	char ranks[160], models[160];
	uint32_t missing = phase_missing(group, rank, world_size, ranks, sizeof(ranks));

	describe_models(group, models, sizeof(models));
	if (missing > 0 && group_generation(group) == 0)
		text_print(ret_text, PHASE_TEXT_MAX + 1, "rank %u of %u; waiting for %u more: %s", rank, world_size,
			   missing, ranks);
	else if (missing > 0)
		text_print(ret_text, PHASE_TEXT_MAX + 1, "rank %u of %u; not heard: %s; %s", rank, world_size, ranks,
			   models);
	else
		text_print(ret_text, PHASE_TEXT_MAX + 1, "rank %u of %u; %s", rank, world_size, models);
}
