/*
 * Groups of parameters: a sorted array. Owns nothing. Pure; any thread.
 */
#include "daemon/math/optimizer_groups.h"

#include <string.h>

#include "fsdp/error.h"

/* Where group is, or belongs. */
static uint32_t groups_place(const struct optimizer_groups *groups, uint32_t group)
{
	uint32_t low = 0, high = groups->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (groups->groups[middle] < group) {
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	return low;
}

static bool groups_has(const struct optimizer_groups *groups, uint32_t place, uint32_t group)
{
	return place < groups->count && groups->groups[place] == group;
}

int optimizer_groups_add(struct optimizer_groups *groups, uint32_t group, const struct optimizer_options *options,
			 const char **ret_text)
{
	uint32_t place = groups_place(groups, group);
	const char *text = group == 0                              ? "the step's own numbers are those of group 0"
			   : groups_has(groups, place, group)      ? "it is given twice"
			   : groups->count == OPTIMIZER_GROUPS_MAX ? "a step has numbers for at most 64 groups"
								   : NULL;
	if (text) {
		*ret_text = text;
		return FSDP_E_INVALID;
	}
	uint32_t behind = groups->count - place;
	memmove(&groups->groups[place + 1], &groups->groups[place], behind * sizeof(groups->groups[0]));
	memmove(&groups->options[place + 1], &groups->options[place], behind * sizeof(groups->options[0]));
	groups->groups[place] = group;
	groups->options[place] = *options;
	groups->count++;
	return 0;
}

void optimizer_groups_reduce(struct optimizer_groups *groups, const struct optimizer_options *own)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < groups->count; i++) {
		if (memcmp(&groups->options[i], own, sizeof(*own)) == 0) {
			continue;
		}
		groups->groups[kept] = groups->groups[i];
		groups->options[kept++] = groups->options[i];
	}
	memset(&groups->groups[kept], 0, (groups->count - kept) * sizeof(groups->groups[0]));
	memset(&groups->options[kept], 0, (groups->count - kept) * sizeof(groups->options[0]));
	groups->count = kept;
}

int optimizer_groups_check(const struct optimizer_spec *spec, const struct optimizer_groups *groups,
			   uint32_t *ret_group, const char **ret_text)
{
	for (uint32_t i = 0; i < groups->count; i++) {
		int code = optimizer_check(spec, &groups->options[i], ret_text);
		if (code < 0) {
			*ret_group = groups->groups[i];
			return code;
		}
	}
	return 0;
}

const struct optimizer_options *optimizer_groups_of(const struct optimizer_groups *groups,
						    const struct optimizer_options *own, uint32_t group)
{
	if (!groups || group == 0) {
		return own;
	}
	uint32_t place = groups_place(groups, group);
	return groups_has(groups, place, group) ? &groups->options[place] : own;
}
