/* The small all-reduce: values to the daemon, their combination back. */
#include <string.h>

#include "client/lib/fault.h"
#include "client/lib/model.h"

_Static_assert(FSDP_ALL_REDUCE_MAX == WORKER_VALUES_MAX, "one call is one message");
_Static_assert((int)FSDP_SUM == WORKER_SUM && (int)FSDP_MAX == WORKER_MAX && (int)FSDP_MIN == WORKER_MIN,
	       "they are numbered alike");

int fsdp_model_all_reduce(struct fsdp_model *model, double *values, size_t count, uint32_t op)
{
	int code = model_check_sealed(model, "fsdp_model_all_reduce");
	if (code < 0)
		return code;
	if (op < FSDP_SUM || op > FSDP_MIN)
		return fault_set(FSDP_E_INVALID, "fsdp_model_all_reduce: op is FSDP_SUM, FSDP_MAX or FSDP_MIN, not %u",
				 op);
	if (count > FSDP_ALL_REDUCE_MAX)
		return fault_set(FSDP_E_INVALID, "fsdp_model_all_reduce: %zu values; %d are the most", count,
				 FSDP_ALL_REDUCE_MAX);
	if (count > 0 && !values)
		return fault_set(FSDP_E_INVALID, "fsdp_model_all_reduce: values is NULL");
	WIRE_CALL_AUTO call = { 0 };
	struct worker_message request = model_request(model, NULL, WORKER_ALL_REDUCE);
	request.combine = op;
	request.values = values;
	request.value_count = count;
	code = model_ask(model, NULL, &request, &call, "fsdp_model_all_reduce");
	if (code < 0)
		return code;
	if (call.answer.value_count != count) {
		fault_set(FSDP_E_PROTOCOL, "fsdp_model_all_reduce: the daemon gave %zu values for %zu",
			  call.answer.value_count, count);
		wire_break(model->client->wire, FSDP_E_PROTOCOL, "%s", fsdp_last_error());
		return FSDP_E_PROTOCOL;
	}
	if (count > 0)
		memcpy(values, call.answer.values, count * sizeof(*values));
	return 0;
}
