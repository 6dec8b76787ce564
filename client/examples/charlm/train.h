/*
 * The sharded side of the example: the network's layers as units of a model, and what a step is. Written as a user of
 * the library would write it.
 */
#ifndef CHARLM_TRAIN_H
#define CHARLM_TRAIN_H

#include "client/examples/charlm/net.h"
#include "fsdp/fsdp.h"

#define TRAIN_BATCH 256     /* characters to predict, a rank and step */
#define TRAIN_HELD_OUT 4096 /* characters of the held-out part that are looked at */
#define TRAIN_RANKS_MAX 64

struct trainer {
	const struct text *text;
	struct net *net;
	struct fsdp_client *client;
	struct fsdp_model *model;
	struct fsdp_unit *units[NET_LAYERS];
	struct net_param params[NET_LAYERS][NET_PARAMS_MAX];
	unsigned param_count[NET_LAYERS];
	struct fsdp_group group;
	unsigned ranks;                           /* batches a step: the world size, or what one process plays alone */
	float *sums[NET_LAYERS][NET_PARAMS_MAX];  /* playing alone: the sum of the gradients so far */
	float *parts[NET_LAYERS][NET_PARAMS_MAX]; /* playing alone: one rank's gradients */
};

/* Connects, describes, seals and loads. ranks 0: the world size; else a world of one process plays that many ranks. All
 * functions return 0 or the library's code (its story is in fsdp_last_error). */
int trainer_begin(struct trainer *trainer, const struct text *text, unsigned ranks);
int trainer_step(struct trainer *trainer, uint64_t step, uint64_t steps, double *ret_loss);
int trainer_held_out(struct trainer *trainer, double *ret_bits); /* not collective */
int trainer_sample(struct trainer *trainer, const char *prompt, unsigned length, char *ret_sample);
int trainer_write(struct trainer *trainer, const char *path); /* every parameter, f32, in order */
void trainer_end(struct trainer *trainer);

#endif
