/* A model of units on a fake daemon, sealed: what most tests begin with. */
#ifndef FSDP_TESTS_TRAINER_H
#define FSDP_TESTS_TRAINER_H

#include "fsdp/fsdp.h"
#include "tests/unit/client/fake_daemon.h"

#define TRAINER_UNITS 3

/* Units "u0", "u1", ...: parameters "a" f32[2,2] and "b" f32[3]; with SGD unless said otherwise. */
struct trainer {
	struct fake *fake;
	struct fsdp_client *client;
	struct fsdp_model *model;
	struct fsdp_unit *units[TRAINER_UNITS];
	struct fsdp_model_info info;
};

/* Each aborts where anything fails. */
struct trainer trainer_open(struct fake *fake); /* up to the seal, without it */
struct trainer trainer_start(void);             /* sealed */
void trainer_load(struct trainer *trainer);     /* unit i has 10 i + 1, 10 i + 2, ... 10 i + 7 */
void trainer_stop(struct trainer *trainer);

#endif
