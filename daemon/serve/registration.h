/*
 * A model that a worker is describing: options, then units, each in one or more parts. Builds the manifest. A unit is
 * taken whole or not at all: what is wrong with a part leaves the model as it was before the unit began. Pure; the loop
 * owns it.
 */
#ifndef FSDPD_SERVE_REGISTRATION_H
#define FSDPD_SERVE_REGISTRATION_H

#include "daemon/store/manifest.h"
#include "proto/worker_message.h"

struct registration {
	struct manifest *manifest;
	struct manifest *part; /* of one unit: the one whose parts are coming; NULL between units */
	uint32_t unit_count;
	char text[WORKER_TEXT_MAX + 1]; /* why the last call failed */
};

/* open: the message OPEN. Every call gives 0 or a negative code, and then the reason in text. */
int registration_init(struct registration *registration, const struct worker_message *open);
void registration_fini(struct registration *registration); /* safe on a zeroed struct */

int registration_add(struct registration *registration, const struct worker_message *unit); /* the message UNIT */
int registration_set(struct registration *registration, const struct worker_message *set);  /* the message SET_UNIT */
int registration_check_whole(struct registration *registration); /* FSDP_E_STATE while a unit lacks parts */

#endif
