/*
 * The numbers of a step as a worker sends them.
 */
#ifndef FSDPD_SERVE_HYPER_H
#define FSDPD_SERVE_HYPER_H

#include "daemon/group/group.h"
#include "proto/worker_message.h"

struct hyper {
	struct optimizer_options options;
	struct optimizer_groups groups;
	struct step_rules rules;
};

/* 0, or FSDP_E_INVALID with the reason in text (WORKER_TEXT_MAX + 1 bytes). spec: whose numbers must make sense; NULL
 * where no optimizer commits. The rules are the group's to check. */
int hyper_read(const struct worker_message *message, const struct optimizer_spec *spec, struct hyper *ret_hyper,
	       char *text);

#endif
