/*
 * Units are gathered around the layer that uses them and given back behind it, in the forward and again in the backward
 * pass; gradients are written straight into the buffers that the daemon shares.
 */
#include "client/examples/charlm/train.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_units(struct trainer *trainer)
{
	for (unsigned layer = 0; layer < NET_LAYERS; layer++) {
		struct fsdp_param params[NET_PARAMS_MAX];
		memset(params, 0, sizeof(params));
		unsigned count = net_layer_params(layer, trainer->text->vocabulary, trainer->params[layer]);
		trainer->param_count[layer] = count;
		for (unsigned i = 0; i < count; i++) {
			const struct net_param *from = &trainer->params[layer][i];
			params[i].name = from->name;
			params[i].dtype = FSDP_F32;
			params[i].ndim = from->dims;
			params[i].shape[0] = from->shape[0];
			params[i].shape[1] = from->shape[1];
		}
		int code = fsdp_unit_add(trainer->model, net_layer_name(layer), params, count, &trainer->units[layer]);
		if (code < 0)
			return code;
	}
	return 0;
}

static int declare_order(struct trainer *trainer)
{
	struct fsdp_unit *order[2 * NET_LAYERS];
	for (unsigned i = 0; i < NET_LAYERS; i++)
		order[i] = order[2 * NET_LAYERS - 1 - i] = trainer->units[i];
	return fsdp_model_prefetch_order(trainer->model, order, 2 * NET_LAYERS);
}

static int load_values(struct trainer *trainer)
{
	for (unsigned layer = 0; layer < NET_LAYERS; layer++) {
		float *values[NET_PARAMS_MAX] = { NULL };
		int code = 0;
		for (unsigned i = 0; i < trainer->param_count[layer]; i++) {
			const struct net_param *param = &trainer->params[layer][i];
			values[i] = malloc(net_param_count(param) * sizeof(float));
			if (values[i])
				net_initial(layer, i, param, values[i]);
			else
				code = -ENOMEM;
		}
		if (code == 0)
			code = fsdp_unit_load(trainer->units[layer], (const void *const *)values,
					      trainer->param_count[layer]);
		for (unsigned i = 0; i < NET_PARAMS_MAX; i++)
			free(values[i]);
		if (code < 0)
			return code;
	}
	return 0;
}

static int allocate_sums(struct trainer *trainer)
{
	for (unsigned layer = 0; layer < NET_LAYERS; layer++)
		for (unsigned i = 0; i < trainer->param_count[layer]; i++) {
			size_t count = net_param_count(&trainer->params[layer][i]);
			trainer->sums[layer][i] = malloc(count * sizeof(float));
			trainer->parts[layer][i] = malloc(count * sizeof(float));
			if (!trainer->sums[layer][i] || !trainer->parts[layer][i])
				return -ENOMEM;
		}
	return 0;
}

int trainer_begin(struct trainer *trainer, const struct text *text, unsigned ranks)
{
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	options.optimizer = FSDP_OPTIMIZER_ADAMW;
	memset(trainer, 0, sizeof(*trainer));
	trainer->text = text;
	trainer->net = net_new(text->vocabulary, TRAIN_HELD_OUT);
	int code = fsdp_client_open(NULL, &trainer->client);
	if (code == 0)
		code = fsdp_model_open(trainer->client, "charlm", &options, &trainer->model);
	if (code == 0)
		code = add_units(trainer);
	if (code == 0)
		code = fsdp_model_seal(trainer->model, NULL);
	if (code == 0)
		code = declare_order(trainer);
	if (code == 0)
		code = load_values(trainer);
	if (code == 0)
		code = fsdp_client_group(trainer->client, &trainer->group);
	trainer->ranks = ranks ? ranks : trainer->group.world_size;
	if (code == 0 && trainer->ranks != trainer->group.world_size)
		code = allocate_sums(trainer);
	return code;
}

static int unshard(struct trainer *trainer, unsigned layer, const float **params)
{
	int code = fsdp_unit_unshard(trainer->units[layer]);
	for (unsigned i = 0; i < trainer->param_count[layer] && code == 0; i++)
		params[i] = fsdp_unit_param(trainer->units[layer], i);
	return code;
}

static int forward(struct trainer *trainer)
{
	for (unsigned layer = 0; layer < NET_LAYERS; layer++) {
		const float *params[NET_PARAMS_MAX];
		int code = unshard(trainer, layer, params);
		if (code < 0)
			return code;
		net_forward(trainer->net, layer, params);
		code = fsdp_unit_reshard(trainer->units[layer]);
		if (code < 0)
			return code;
	}
	return 0;
}

/* grads[layer] NULL: write into the daemon's buffers and hand them over, layer by layer. */
static int backward(struct trainer *trainer, float *(*grads)[NET_PARAMS_MAX])
{
	for (unsigned layer = NET_LAYERS; layer-- > 0;) {
		const float *params[NET_PARAMS_MAX];
		float *shared[NET_PARAMS_MAX];
		int code = unshard(trainer, layer, params);
		for (unsigned i = 0; i < trainer->param_count[layer] && !grads && code == 0; i++)
			code = fsdp_unit_grad(trainer->units[layer], i, (void **)&shared[i]);
		if (code < 0)
			return code;
		net_backward(trainer->net, layer, params, grads ? grads[layer] : shared);
		if (!grads)
			code = fsdp_unit_reduce(trainer->units[layer]);
		int reshard = fsdp_unit_reshard(trainer->units[layer]);
		if (code < 0 || reshard < 0)
			return code < 0 ? code : reshard;
	}
	return 0;
}

static int run_batch(struct trainer *trainer, uint64_t number, float *(*grads)[NET_PARAMS_MAX], double *ret_loss)
{
	static unsigned char context[TRAIN_BATCH * TEXT_CONTEXT], next[TRAIN_BATCH];
	text_training_batch(trainer->text, number, TRAIN_BATCH, context, next);
	net_begin(trainer->net, TRAIN_BATCH, context, next);
	int code = forward(trainer);
	if (code < 0)
		return code;
	*ret_loss = net_loss(trainer->net);
	return backward(trainer, grads);
}

static void add_part(struct trainer *trainer, unsigned rank)
{
	for (unsigned layer = 0; layer < NET_LAYERS; layer++)
		for (unsigned i = 0; i < trainer->param_count[layer]; i++) {
			size_t count = net_param_count(&trainer->params[layer][i]);
			float *sum = trainer->sums[layer][i];
			const float *part = trainer->parts[layer][i];
			if (rank == 0)
				memcpy(sum, part, count * sizeof(float));
			else
				for (size_t k = 0; k < count; k++)
					sum[k] += part[k];
		}
}

/* One process plays every rank, one after another: this, and not the daemon, is then who adds and divides. */
static int run_alone(struct trainer *trainer, uint64_t step, double *ret_loss)
{
	for (unsigned rank = 0; rank < trainer->ranks; rank++) {
		double loss;
		int code = run_batch(trainer, step * trainer->ranks + rank, trainer->parts, rank ? &loss : ret_loss);
		if (code < 0)
			return code;
		add_part(trainer, rank);
	}
	for (unsigned layer = 0; layer < NET_LAYERS; layer++) {
		for (unsigned i = 0; i < trainer->param_count[layer]; i++) {
			void *memory;
			int code = fsdp_unit_grad(trainer->units[layer], i, &memory);
			if (code < 0)
				return code;
			float *grad = memory;
			size_t count = net_param_count(&trainer->params[layer][i]);
			for (size_t k = 0; k < count; k++)
				grad[k] = trainer->sums[layer][i][k] / (float)trainer->ranks;
		}
		int code = fsdp_unit_reduce(trainer->units[layer]);
		if (code < 0)
			return code;
	}
	return 0;
}

/* Warm-up, then half a cosine down to a tenth. */
static double learning_rate(uint64_t step, uint64_t steps)
{
	double warm = (double)steps / 20.0 + 1.0, most = 3e-3;
	if ((double)step < warm)
		return most * ((double)step + 1.0) / warm;
	double done = ((double)step - warm) / ((double)steps - warm + 1.0);
	return most * (0.1 + 0.45 * (1.0 + cos(3.14159265358979 * done)));
}

int trainer_step(struct trainer *trainer, uint64_t step, uint64_t steps, double *ret_loss)
{
	struct fsdp_step options = FSDP_STEP_INIT;
	options.learning_rate = learning_rate(step, steps);
	options.weight_decay = 0.01;
	int code;
	if (trainer->ranks == trainer->group.world_size)
		code = run_batch(trainer, step * trainer->ranks + trainer->group.rank, NULL, ret_loss);
	else
		code = run_alone(trainer, step, ret_loss);
	return code < 0 ? code : fsdp_model_step(trainer->model, &options, NULL);
}

int trainer_held_out(struct trainer *trainer, double *ret_bits)
{
	static unsigned char context[TRAIN_HELD_OUT * TEXT_CONTEXT], next[TRAIN_HELD_OUT];
	text_held_out_batch(trainer->text, TRAIN_HELD_OUT, context, next);
	net_begin(trainer->net, TRAIN_HELD_OUT, context, next);
	int code = forward(trainer);
	if (code == 0)
		*ret_bits = net_loss(trainer->net) / log(2.0);
	return code;
}

static unsigned char draw_symbol(const float *logits, unsigned vocabulary, uint64_t *state)
{
	double weights[256], sum = 0.0;
	for (unsigned k = 0; k < vocabulary; k++)
		sum += weights[k] = exp((double)logits[k] / 0.7);
	double at = (double)(text_draw(state) >> 11) * 0x1p-53 * sum;
	for (unsigned k = 0; k < vocabulary; k++)
		if ((at -= weights[k]) < 0.0)
			return (unsigned char)k;
	return (unsigned char)(vocabulary - 1);
}

int trainer_sample(struct trainer *trainer, const char *prompt, unsigned length, char *ret_sample)
{
	const struct text *text = trainer->text;
	unsigned char window[TEXT_CONTEXT], unused = 0;
	uint64_t state = 7;
	size_t given = strlen(prompt);
	for (size_t i = 0; i < TEXT_CONTEXT; i++)
		window[i] = text->symbol_of[(unsigned char)prompt[given - TEXT_CONTEXT + i]];
	for (unsigned i = 0; i < length; i++) {
		net_begin(trainer->net, 1, window, &unused);
		int code = forward(trainer);
		if (code < 0)
			return code;
		unsigned char symbol = draw_symbol(net_logits(trainer->net), text->vocabulary, &state);
		memmove(window, window + 1, TEXT_CONTEXT - 1);
		window[TEXT_CONTEXT - 1] = symbol;
		ret_sample[i] = (char)text->byte_of[symbol];
	}
	ret_sample[length] = '\0';
	return 0;
}

int trainer_write(struct trainer *trainer, const char *path)
{
	FILE *file = fopen(path, "wb");
	if (!file)
		return -errno;
	int code = 0;
	for (unsigned layer = 0; layer < NET_LAYERS && code == 0; layer++) {
		const float *params[NET_PARAMS_MAX];
		code = unshard(trainer, layer, params);
		if (code < 0)
			break;
		for (unsigned i = 0; i < trainer->param_count[layer]; i++) {
			size_t count = net_param_count(&trainer->params[layer][i]);
			if (fwrite(params[i], sizeof(float), count, file) != count)
				code = -EIO;
		}
		int reshard = fsdp_unit_reshard(trainer->units[layer]);
		code = code < 0 ? code : reshard;
	}
	if (fclose(file) != 0 && code == 0)
		code = -EIO;
	return code;
}

void trainer_end(struct trainer *trainer)
{
	fsdp_model_close(trainer->model, 0);
	fsdp_client_close(trainer->client);
	net_free(trainer->net);
	for (unsigned layer = 0; layer < NET_LAYERS; layer++)
		for (unsigned i = 0; i < NET_PARAMS_MAX; i++) {
			free(trainer->sums[layer][i]);
			free(trainer->parts[layer][i]);
		}
}
