/*
 * The network: embedding, residual blocks, output, trained on the cross-entropy of the next character. Every layer is
 * one unit of the sharded model; this file knows only arrays, and nothing of sharding. Deterministic: the same inputs
 * give the same bits (BLAS runs with one thread).
 *
 *   embedding: h = in.weight . concat(table[c0], .., table[c15]) + in.bias
 *   block:     h = h + down.weight . relu(up.weight . h + up.bias) + down.bias
 *   output:    logits = weight . h + bias
 */
#ifndef CHARLM_NET_H
#define CHARLM_NET_H

#include "client/examples/charlm/text.h"
#include <stddef.h>

#define NET_BLOCKS 2
#define NET_LAYERS (NET_BLOCKS + 2)
#define NET_PARAMS_MAX 4 /* of one layer */
#define NET_EMBEDDING 16 /* numbers a character */
#define NET_INPUT (TEXT_CONTEXT * NET_EMBEDDING)
#define NET_HIDDEN 256
#define NET_INNER 512

struct net_param {
	const char *name;
	unsigned dims;
	size_t shape[2];
};

/* The parameters of a layer (f32, row-major); returns how many. */
unsigned net_layer_params(unsigned layer, unsigned vocabulary, struct net_param params[NET_PARAMS_MAX]);
const char *net_layer_name(unsigned layer);
size_t net_param_count(const struct net_param *param);
/* Initial values of one parameter, the same wherever they are drawn. */
void net_initial(unsigned layer, unsigned index, const struct net_param *param, float *values);

/* Activations of one batch, kept for the backward pass. */
struct net;

struct net *net_new(unsigned vocabulary, size_t batch_max); /* exits when memory is out */
void net_free(struct net *net);

/* Begins a batch; context and next are borrowed until the end of its backward pass. */
void net_begin(struct net *net, size_t batch, const unsigned char *context, const unsigned char *next);
void net_forward(struct net *net, unsigned layer, const float *const *params); /* layers in order */
float *net_logits(struct net *net);                                            /* after the last: [batch][vocabulary] */
/* Mean loss in nats; turns the logits into their gradient (divided by the batch). */
double net_loss(struct net *net);
/* Layers in reverse order, after net_loss. Writes every element of grads. */
void net_backward(struct net *net, unsigned layer, const float *const *params, float *const *grads);

#endif
