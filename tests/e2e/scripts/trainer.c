/*
 * A trainer that is C99 and C++11 alike, as somebody outside would write it against the installed header: a unit of two
 * elements, one step of SGD with the mean of two different gradients. Compiled by install.sh.
 */
#include <fsdp/fsdp.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int checked(int code)
{
	if (code < 0) {
		fprintf(stderr, "%s: %s\n", fsdp_strerror(code), fsdp_last_error());
		exit(1);
	}
	return code;
}

int main(void)
{
	struct fsdp_client *client;
	struct fsdp_model *model;
	struct fsdp_unit *unit;
	struct fsdp_group group;
	struct fsdp_param param;
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	struct fsdp_step step = FSDP_STEP_INIT;
	struct fsdp_step_result result;
	const float values[2] = { 2, 4 };
	const void *list[1];
	const float *full;
	float gradient[2];
	void *grad;

	list[0] = values;
	memset(&param, 0, sizeof(param));
	param.name = "w";
	param.dtype = FSDP_F32;
	param.ndim = 1;
	param.shape[0] = 2;
	options.optimizer = FSDP_OPTIMIZER_SGD;
	step.learning_rate = 1;
	checked(fsdp_client_open(NULL, &client));
	checked(fsdp_client_group(client, &group));
	checked(fsdp_model_open(client, "tiny", &options, &model));
	checked(fsdp_unit_add(model, "u0", &param, 1, &unit));
	checked(fsdp_model_seal(model, NULL));
	checked(fsdp_unit_load(unit, list, 1));
	checked(fsdp_unit_grad(unit, 0, &grad));
	gradient[0] = gradient[1] = (float)group.rank; /* 0 and 1: the mean is 0.5 */
	memcpy(grad, gradient, sizeof(gradient));
	checked(fsdp_unit_reduce(unit));
	checked(fsdp_model_step(model, &step, &result));
	checked(fsdp_unit_unshard(unit));
	full = (const float *)fsdp_unit_param(unit, 0);
	printf("%g %g\n", (double)full[0], (double)full[1]);
	checked(fsdp_unit_reshard(unit));
	checked(fsdp_model_close(model, 0));
	checked(fsdp_client_close(client));
	return 0;
}
