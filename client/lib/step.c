/*
 * What moves the model on: the weight and the end of a micro-batch, the sum, the step, the abort. Each is one question
 * whose answer tells where the model is then; gradient.c draws the consequences for buffers.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "client/lib/fault.h"
#include "client/lib/hyper.h"
#include "client/lib/model.h"
#include "client/lib/state.h"
#include "client/lib/step.h"

int fsdp_model_weight(struct fsdp_model *model, double weight)
{
	int code = model_check_sealed(model, "fsdp_model_weight");
	if (code < 0)
		return code;
	if (!isfinite((float)weight) || weight < 0)
		return fault_set(FSDP_E_INVALID,
				 "fsdp_model_weight: a weight is a number that f32 can hold and not negative, and not "
				 "%g",
				 weight);
	WIRE_CALL_AUTO call = { 0 };
	struct worker_message request = model_request(model, NULL, WORKER_WEIGHT);
	request.weight = weight;
	return model_ask(model, NULL, &request, &call, "fsdp_model_weight");
}

int fsdp_model_next_micro_batch(struct fsdp_model *model)
{
	int code = model_check_sealed(model, "fsdp_model_next_micro_batch");
	if (code < 0)
		return code;
	WIRE_CALL_AUTO call = { 0 };
	struct worker_message request = model_request(model, NULL, WORKER_NEXT_MICRO_BATCH);
	code = model_ask(model, NULL, &request, &call, "fsdp_model_next_micro_batch");
	if (code == 0)
		gradient_take_back(model);
	return code;
}

int fsdp_model_sync_gradients(struct fsdp_model *model)
{
	int code = model_check_sealed(model, "fsdp_model_sync_gradients");
	if (code < 0)
		return code;
	WIRE_CALL_AUTO call = { 0 };
	struct worker_message request = model_request(model, NULL, WORKER_SYNC);
	code = model_ask(model, NULL, &request, &call, "fsdp_model_sync_gradients");
	if (code == 0)
		gradient_take_back(model);
	return code;
}

/* What is only looked at where there is a loss scale. */
static int step_check_scale(const struct fsdp_step *step)
{
	if (!(step->growth_factor >= 1) || !isfinite(step->growth_factor))
		return fault_set(FSDP_E_INVALID, "fsdp_model_step: step: growth_factor is %g, which is not 1 or more",
				 step->growth_factor);
	if (!(step->backoff_factor > 0 && step->backoff_factor <= 1))
		return fault_set(FSDP_E_INVALID,
				 "fsdp_model_step: step: backoff_factor is %g, which is not above 0 and at most 1",
				 step->backoff_factor);
	if (step->loss_scale < (double)FLT_MIN)
		return fault_set(FSDP_E_INVALID, "fsdp_model_step: step: loss_scale is %g, which f32 cannot divide by",
				 step->loss_scale);
	return 0;
}

/* What is looked at whatever commits. */
static int step_check_state(const struct fsdp_step *step)
{
	if (step->size != sizeof(*step))
		return fault_set(FSDP_E_INVALID,
				 "fsdp_model_step: step: size is not that of this version's struct (begin "
				 "with FSDP_STEP_INIT)");
	return state_check(step->state, step->state_bytes, "fsdp_model_step");
}

/* What the daemon would refuse is said here, before anybody votes. */
static int step_check(enum fsdp_optimizer optimizer, const struct fsdp_step *step)
{
	int code = step_check_state(step);
	if (code == 0)
		code = hyper_check(optimizer, step);
	if (code < 0)
		return code;
	const struct {
		const char *name;
		double value, least, below;
	} numbers[] = {
		{ "max_norm", step->max_norm, 0, HUGE_VAL },
		{ "loss_scale", step->loss_scale, 0, (double)FLT_MAX },
		{ "min_scale", step->min_scale, 0, HUGE_VAL },
	};
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (!isfinite(numbers[i].value) || numbers[i].value < numbers[i].least ||
		    numbers[i].value >= numbers[i].below)
			return fault_set(FSDP_E_INVALID, "fsdp_model_step: step: %s is %g, which is out of its range",
					 numbers[i].name, numbers[i].value);
	if (step->norm_kind > FSDP_NORM_INF)
		return fault_set(FSDP_E_INVALID, "fsdp_model_step: step: norm_kind is %u, which does not exist",
				 step->norm_kind);
	if (step->max_norm > 0 && step->norm_kind == FSDP_NORM_NONE)
		return fault_set(FSDP_E_INVALID, "fsdp_model_step: step: max_norm is %g, but norm_kind is none",
				 step->max_norm);
	return step->loss_scale != 0 ? step_check_scale(step) : 0;
}

/* Units that do not exist are left out: nobody may use them for an index. */
static struct fsdp_step_result step_result(const struct fsdp_model *model, const struct worker_message *answer)
{
	struct fsdp_step_result result = { .step = answer->step,
					   .outcome = answer->outcome,
					   .not_finite = answer->bad_count,
					   .norm = answer->norm,
					   .next_loss_scale = answer->next_scale };
	uint32_t named = 0;

	for (uint32_t i = 0; i < answer->bad_named; i++)
		if (answer->bad[i] < model->unit_count)
			result.not_finite_units[named++] = answer->bad[i];
	if (result.not_finite < FSDP_STEP_UNITS_MAX && result.not_finite > named)
		result.not_finite = named;
	return result;
}

/* Its state in parts, then the question itself. */
static int step_ask(struct fsdp_model *model, const struct fsdp_step *step, struct worker_message *request,
		    struct wire_call *call, const char *what)
{
	size_t bytes = step ? step->state_bytes : 0;
	bool alone = bytes > WORKER_BLOB_PART_MAX;
	if (alone && pthread_mutex_trylock(&model->stepping) != 0)
		return fault_set(FSDP_E_STATE, "%s: model \"%s\": another thread is in step", what, model->name);
	int code = state_send(model, bytes > 0 ? step->state : NULL, bytes, request, what);
	if (code == 0)
		code = model_ask(model, NULL, request, call, what);
	if (alone)
		pthread_mutex_unlock(&model->stepping);
	return code;
}

int step_commit(struct fsdp_model *model, enum step_commit_kind kind, const struct fsdp_step *step,
		struct fsdp_step_result *ret_result, const char *what)
{
	WIRE_CALL_AUTO call = { 0 };
	struct worker_message request = model_request(model, NULL, WORKER_STEP);
	request.commit = kind;
	request.has_hyper = kind == STEP_COMMIT_OPTIMIZER;
	struct worker_group groups[FSDP_STEP_GROUPS_MAX];
	if (request.has_hyper) {
		request.hyper = hyper_of(step);
		hyper_groups(step, groups, &request);
	}
	int code = step_ask(model, step, &request, &call, what);
	if (code < 0)
		return code;
	if (call.answer.outcome > FSDP_SKIPPED) {
		fault_set(FSDP_E_PROTOCOL, "%s: the daemon gave outcome %u, which does not exist", what,
			  call.answer.outcome);
		wire_break(model->client->wire, FSDP_E_PROTOCOL, "%s", fsdp_last_error());
		return FSDP_E_PROTOCOL;
	}
	if (ret_result)
		*ret_result = step_result(model, &call.answer);
	return 0;
}

int fsdp_model_step(struct fsdp_model *model, const struct fsdp_step *step, struct fsdp_step_result *ret_result)
{
	static const struct fsdp_step usual = FSDP_STEP_INIT;
	int code = model_check_sealed(model, "fsdp_model_step");
	if (code < 0)
		return code;
	if (!step)
		step = &usual;
	if (model->optimizer == FSDP_OPTIMIZER_NONE) {
		code = step_check_state(step);
		return code < 0 ? code : step_commit(model, STEP_COMMIT_STAGING, step, ret_result, "fsdp_model_step");
	}
	code = step_check(model->optimizer, step);
	return code < 0 ? code : step_commit(model, STEP_COMMIT_OPTIMIZER, step, ret_result, "fsdp_model_step");
}

int fsdp_model_norm(struct fsdp_model *model, uint32_t kind, double *ret_norm, int *ret_finite)
{
	int code = model_check_sealed(model, "fsdp_model_norm");
	if (code < 0)
		return code;
	if (kind != FSDP_NORM_2 && kind != FSDP_NORM_INF)
		return fault_set(FSDP_E_INVALID, "fsdp_model_norm: there is no norm of kind %u", kind);
	WIRE_CALL_AUTO call = { 0 };
	struct worker_message request = model_request(model, NULL, WORKER_NORM);
	request.norm_kind = kind;
	code = model_ask(model, NULL, &request, &call, "fsdp_model_norm");
	if (code < 0)
		return code;
	if (ret_norm)
		*ret_norm = call.answer.norm;
	if (ret_finite)
		*ret_finite = call.answer.finite;
	return 0;
}

int fsdp_model_abort_step(struct fsdp_model *model)
{
	int code = model_check_sealed(model, "fsdp_model_abort_step");
	if (code < 0)
		return code;
	WIRE_CALL_AUTO call = { 0 };
	struct worker_message request = model_request(model, NULL, WORKER_ABORT);
	return model_ask(model, NULL, &request, &call, "fsdp_model_abort_step");
}
