/* Compiled as C99 and as C++11, pedantically, and never run: what the header promises in types. */
#include "fsdp/fsdp.h"

static int visit(struct fsdp_unit *unit, size_t index, void *context)
{
	(void)context;
	return fsdp_unit_param(unit, index) ? 0 : 1;
}

int main(void)
{
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	struct fsdp_unit_options unit_options = FSDP_UNIT_OPTIONS_INIT;
	struct fsdp_step step = FSDP_STEP_INIT;
	struct fsdp_client *client;
	struct fsdp_model *model;
	struct fsdp_unit *unit;
	struct fsdp_param param = { "w", FSDP_F32, 1, { 4 }, 0, 1 };
	struct fsdp_step_result result;
	const float values[4] = { 1, 2, 3, 4 };
	const void *pointers[1];
	double norm;
	int finite;
	void *grad;
	options.optimizer = FSDP_OPTIMIZER_ADAMW;
	pointers[0] = values;
	if (fsdp_client_open(0, &client) != 0 || fsdp_model_open(client, "m", &options, &model) != 0)
		return 1;
	if (fsdp_unit_add(model, "u", &param, 1, &unit) != 0 || fsdp_unit_set_options(unit, &unit_options) != 0)
		return 1;
	if (fsdp_model_seal(model, 0) != 0 || fsdp_unit_load(unit, pointers, 1) != 0)
		return 1;
	if (fsdp_unit_grad(unit, 0, &grad) != 0 || fsdp_unit_reduce(unit) != 0)
		return 1;
	if (fsdp_model_weight(model, 2) != 0 || fsdp_model_norm(model, FSDP_NORM_2, &norm, &finite) != 0)
		return 1;
	step.norm_kind = FSDP_NORM_INF;
	struct fsdp_step_group group = FSDP_STEP_GROUP_INIT(1, step);
	step.groups = &group;
	step.group_count = 1;
	if (fsdp_model_step(model, &step, &result) != 0 || result.outcome != FSDP_APPLIED)
		return 1;
	if (fsdp_model_forward(model, visit, 0) != 0 || fsdp_model_close(model, 0) == FSDP_E_LOST)
		return 1;
	return fsdp_client_close(client);
}
