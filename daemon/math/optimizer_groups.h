/*
 * The numbers of groups of parameters in one step, where they differ from the step's own. Plain values: two of them are
 * equal where their memory is, once optimizer_groups_add made them.
 */
#ifndef FSDPD_MATH_OPTIMIZER_GROUPS_H
#define FSDPD_MATH_OPTIMIZER_GROUPS_H

#include "daemon/math/optimizer.h"

#define OPTIMIZER_GROUPS_MAX 64

struct optimizer_groups {
	uint32_t count;
	uint32_t reserved;                     /* 0: no padding */
	uint32_t groups[OPTIMIZER_GROUPS_MAX]; /* ascending, none of them 0; behind count zero, like options */
	struct optimizer_options options[OPTIMIZER_GROUPS_MAX];
};

/* Adds one, in its place. FSDP_E_INVALID with the reason in text (a static string): group 0, one that is there, too
 * many. */
int optimizer_groups_add(struct optimizer_groups *groups, uint32_t group, const struct optimizer_options *options,
			 const char **ret_text);
/* Takes out those that are no different from own: what is left is the one way to say it. */
void optimizer_groups_reduce(struct optimizer_groups *groups, const struct optimizer_options *own);
/* As optimizer_check, of each; ret_group: the one that is refused. */
int optimizer_groups_check(const struct optimizer_spec *spec, const struct optimizer_groups *groups,
			   uint32_t *ret_group, const char **ret_text);
/* Those of a parameter of this group: own where groups (NULL: there are none) has none for it. */
const struct optimizer_options *optimizer_groups_of(const struct optimizer_groups *groups,
						    const struct optimizer_options *own, uint32_t group);

#endif
