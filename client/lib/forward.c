/*
 * The walk over all units in the order in which they were added: each is unsharded around the caller's function, and
 * the gather of the next one is under way while that runs. Holds one unit at a time.
 */
#include "client/lib/fault.h"
#include "client/lib/model.h"

int fsdp_model_forward(struct fsdp_model *model, int (*fn)(struct fsdp_unit *unit, size_t index, void *context),
		       void *context)
{
	int code = model_check_sealed(model, "fsdp_model_forward");
	if (code < 0)
		return code;
	if (!fn)
		return fault_set(FSDP_E_INVALID, "fsdp_model_forward: fn is NULL");
	for (size_t i = 0; i < model->unit_count; i++) {
		struct fsdp_unit *unit = model->units[i];
		struct fsdp_unit *next = i + 1 < model->unit_count ? model->units[i + 1] : NULL;
		code = gather_unshard(unit, next, "fsdp_model_forward");
		if (code < 0)
			return code;
		int verdict = fn(unit, i, context);
		code = gather_reshard(unit, "fsdp_model_forward");
		if (verdict != 0)
			return verdict;
		if (code < 0)
			return code;
	}
	return 0;
}
