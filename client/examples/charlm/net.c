/* Forward and backward of each layer, by hand, over cblas_sgemm. */
#include "client/examples/charlm/net.h"

#include <cblas.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct net {
	unsigned vocabulary;
	size_t batch;
	const unsigned char *context, *next;
	float *input;                  /* [batch][NET_INPUT] */
	float *hidden[NET_BLOCKS + 1]; /* [batch][NET_HIDDEN]: what each block gets, and the output layer */
	float *inner[NET_BLOCKS];      /* [batch][NET_INNER], after relu */
	float *logits;                 /* [batch][vocabulary]; their gradient after net_loss */
	float *grad_hidden;            /* [batch][NET_HIDDEN] */
	float *grad_inner;             /* [batch][NET_INNER] */
	float *grad_input;             /* [batch][NET_INPUT] */
};

static float *floats(size_t count)
{
	float *values = calloc(count, sizeof(float));
	if (!values) {
		fprintf(stderr, "charlm: out of memory\n");
		exit(1);
	}
	return values;
}

const char *net_layer_name(unsigned layer)
{
	static const char *const names[NET_LAYERS] = { "embedding", "block.0", "block.1", "output" };
	return names[layer];
}

unsigned net_layer_params(unsigned layer, unsigned vocabulary, struct net_param params[NET_PARAMS_MAX])
{
	if (layer == 0) {
		params[0] = (struct net_param){ "table", 2, { vocabulary, NET_EMBEDDING } };
		params[1] = (struct net_param){ "in.weight", 2, { NET_HIDDEN, NET_INPUT } };
		params[2] = (struct net_param){ "in.bias", 1, { NET_HIDDEN, 1 } };
		return 3;
	}
	if (layer == NET_LAYERS - 1) {
		params[0] = (struct net_param){ "weight", 2, { vocabulary, NET_HIDDEN } };
		params[1] = (struct net_param){ "bias", 1, { vocabulary, 1 } };
		return 2;
	}
	params[0] = (struct net_param){ "up.weight", 2, { NET_INNER, NET_HIDDEN } };
	params[1] = (struct net_param){ "up.bias", 1, { NET_INNER, 1 } };
	params[2] = (struct net_param){ "down.weight", 2, { NET_HIDDEN, NET_INNER } };
	params[3] = (struct net_param){ "down.bias", 1, { NET_HIDDEN, 1 } };
	return 4;
}

size_t net_param_count(const struct net_param *param)
{
	return param->dims == 2 ? param->shape[0] * param->shape[1] : param->shape[0];
}

void net_initial(unsigned layer, unsigned index, const struct net_param *param, float *values)
{
	uint64_t state = 1000 * layer + index + 1;
	size_t count = net_param_count(param);
	float scale = param->dims == 2 ? sqrtf(3.0f / (float)param->shape[1]) : 0.0f;
	if (layer > 0 && layer < NET_LAYERS - 1 && index == 2)
		scale *= 0.2f; /* a block begins near the identity */
	if (layer == 0 && index == 0)
		scale = 1.0f;
	for (size_t i = 0; i < count; i++)
		values[i] = scale * ((float)(text_draw(&state) >> 40) / 8388608.0f - 1.0f);
}

struct net *net_new(unsigned vocabulary, size_t batch_max)
{
	struct net *net = calloc(1, sizeof(*net));
	if (!net)
		exit(1);
	net->vocabulary = vocabulary;
	net->input = floats(batch_max * NET_INPUT);
	for (unsigned i = 0; i <= NET_BLOCKS; i++)
		net->hidden[i] = floats(batch_max * NET_HIDDEN);
	for (unsigned i = 0; i < NET_BLOCKS; i++)
		net->inner[i] = floats(batch_max * NET_INNER);
	net->logits = floats(batch_max * vocabulary);
	net->grad_hidden = floats(batch_max * NET_HIDDEN);
	net->grad_inner = floats(batch_max * NET_INNER);
	net->grad_input = floats(batch_max * NET_INPUT);
	return net;
}

void net_free(struct net *net)
{
	free(net->input);
	for (unsigned i = 0; i <= NET_BLOCKS; i++)
		free(net->hidden[i]);
	for (unsigned i = 0; i < NET_BLOCKS; i++)
		free(net->inner[i]);
	free(net->logits);
	free(net->grad_hidden);
	free(net->grad_inner);
	free(net->grad_input);
	free(net);
}

/* out[batch][rows] = (add ? out : 0) + in[batch][columns] . weight[rows][columns]^T + bias[rows] */
static void linear(size_t batch, size_t rows, size_t columns, const float *in, const float *weight, const float *bias,
		   int add, float *out)
{
	for (size_t i = 0; i < batch; i++)
		for (size_t k = 0; k < rows; k++)
			out[i * rows + k] = add ? out[i * rows + k] + bias[k] : bias[k];
	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)batch, (int)rows, (int)columns, 1.0f, in,
		    (int)columns, weight, (int)columns, 1.0f, out, (int)rows);
}

/* The gradients of linear: of weight and bias, and of in where grad_in is given (added to it where add is not 0). */
static void linear_backward(size_t batch, size_t rows, size_t columns, const float *in, const float *weight,
			    const float *grad_out, float *grad_weight, float *grad_bias, int add, float *grad_in)
{
	memset(grad_bias, 0, rows * sizeof(float));
	for (size_t i = 0; i < batch; i++)
		for (size_t k = 0; k < rows; k++)
			grad_bias[k] += grad_out[i * rows + k];
	cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)rows, (int)columns, (int)batch, 1.0f, grad_out,
		    (int)rows, in, (int)columns, 0.0f, grad_weight, (int)columns);
	if (grad_in)
		cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)batch, (int)columns, (int)rows, 1.0f,
			    grad_out, (int)rows, weight, (int)columns, add ? 1.0f : 0.0f, grad_in, (int)columns);
}

void net_begin(struct net *net, size_t batch, const unsigned char *context, const unsigned char *next)
{
	net->batch = batch;
	net->context = context;
	net->next = next;
}

static void embedding_forward(struct net *net, const float *const *params)
{
	for (size_t i = 0; i < net->batch * TEXT_CONTEXT; i++)
		memcpy(net->input + i * NET_EMBEDDING, params[0] + net->context[i] * NET_EMBEDDING,
		       NET_EMBEDDING * sizeof(float));
	linear(net->batch, NET_HIDDEN, NET_INPUT, net->input, params[1], params[2], 0, net->hidden[0]);
}

static void block_forward(struct net *net, unsigned block, const float *const *params)
{
	size_t batch = net->batch;
	float *inner = net->inner[block];
	linear(batch, NET_INNER, NET_HIDDEN, net->hidden[block], params[0], params[1], 0, inner);
	for (size_t i = 0; i < batch * NET_INNER; i++)
		inner[i] = inner[i] > 0.0f ? inner[i] : 0.0f;
	memcpy(net->hidden[block + 1], net->hidden[block], batch * NET_HIDDEN * sizeof(float));
	linear(batch, NET_HIDDEN, NET_INNER, inner, params[2], params[3], 1, net->hidden[block + 1]);
}

void net_forward(struct net *net, unsigned layer, const float *const *params)
{
	if (layer == 0)
		embedding_forward(net, params);
	else if (layer == NET_LAYERS - 1)
		linear(net->batch, net->vocabulary, NET_HIDDEN, net->hidden[NET_BLOCKS], params[0], params[1], 0,
		       net->logits);
	else
		block_forward(net, layer - 1, params);
}

float *net_logits(struct net *net)
{
	return net->logits;
}

double net_loss(struct net *net)
{
	double loss = 0.0;
	float share = 1.0f / (float)net->batch;
	for (size_t i = 0; i < net->batch; i++) {
		float *row = net->logits + i * net->vocabulary;
		float most = row[0], sum = 0.0f;
		for (unsigned k = 1; k < net->vocabulary; k++)
			most = row[k] > most ? row[k] : most;
		for (unsigned k = 0; k < net->vocabulary; k++)
			sum += row[k] = expf(row[k] - most);
		loss -= log((double)row[net->next[i]] / (double)sum);
		for (unsigned k = 0; k < net->vocabulary; k++)
			row[k] = row[k] / sum * share;
		row[net->next[i]] -= share;
	}
	return loss / (double)net->batch;
}

static void block_backward(struct net *net, unsigned block, const float *const *params, float *const *grads)
{
	size_t batch = net->batch;
	const float *inner = net->inner[block];
	linear_backward(batch, NET_HIDDEN, NET_INNER, inner, params[2], net->grad_hidden, grads[2], grads[3], 0,
			net->grad_inner);
	for (size_t i = 0; i < batch * NET_INNER; i++)
		net->grad_inner[i] = inner[i] > 0.0f ? net->grad_inner[i] : 0.0f;
	linear_backward(batch, NET_INNER, NET_HIDDEN, net->hidden[block], params[0], net->grad_inner, grads[0],
			grads[1], 1, net->grad_hidden);
}

static void embedding_backward(struct net *net, const float *const *params, float *const *grads)
{
	linear_backward(net->batch, NET_HIDDEN, NET_INPUT, net->input, params[1], net->grad_hidden, grads[1], grads[2],
			0, net->grad_input);
	memset(grads[0], 0, net->vocabulary * NET_EMBEDDING * sizeof(float));
	for (size_t i = 0; i < net->batch * TEXT_CONTEXT; i++)
		for (size_t k = 0; k < NET_EMBEDDING; k++)
			grads[0][net->context[i] * NET_EMBEDDING + k] += net->grad_input[i * NET_EMBEDDING + k];
}

void net_backward(struct net *net, unsigned layer, const float *const *params, float *const *grads)
{
	if (layer == 0)
		embedding_backward(net, params, grads);
	else if (layer == NET_LAYERS - 1)
		linear_backward(net->batch, net->vocabulary, NET_HIDDEN, net->hidden[NET_BLOCKS], params[0],
				net->logits, grads[0], grads[1], 0, net->grad_hidden);
	else
		block_backward(net, layer - 1, params, grads);
}
