/*
 * What moves the model on: the weight and the end of a micro-batch, the sum, the step, the abort. Each is one question whose answer tells where
 * the model is then; gradient.c draws the consequences for buffers.
 */
#include <math.h>
#include <string.h>

#include "client/lib/fault.h"
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

/* What is looked at whatever commits. */
static int step_check_state(const struct fsdp_step *step)
{
	if (step->size != sizeof(*step))
		return fault_set(FSDP_E_INVALID,
				 "fsdp_model_step: step: size is not that of this version's struct (begin "
				 "with FSDP_STEP_INIT)");
	return state_check(step->state, step->state_bytes, "fsdp_model_step");
}

/* The hyper-parameters, by name, with the range of each: what the daemon would refuse is said here, before anybody votes. */
static int step_check(const struct fsdp_step *step)
{
	int code = step_check_state(step);
	if (code < 0)
		return code;
	const struct {
		const char *name;
		double value, least, below;
	} numbers[] = {
		{ "learning_rate", step->learning_rate, 0, HUGE_VAL },
		{ "momentum", step->momentum, 0, HUGE_VAL },
		{ "dampening", step->dampening, -HUGE_VAL, HUGE_VAL },
		{ "weight_decay", step->weight_decay, 0, HUGE_VAL },
		{ "beta1", step->beta1, 0, 1 },
		{ "beta2", step->beta2, 0, 1 },
		{ "epsilon", step->epsilon, 0, HUGE_VAL },
	};
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (!isfinite(numbers[i].value) || numbers[i].value < numbers[i].least ||
		    numbers[i].value >= numbers[i].below)
			return fault_set(FSDP_E_INVALID, "fsdp_model_step: step: %s is %g, which is out of its range",
					 numbers[i].name, numbers[i].value);
	return 0;
}

static struct worker_hyper step_hyper(const struct fsdp_step *step)
{
	return (struct worker_hyper){
		.learning_rate = step->learning_rate,
		.momentum = step->momentum,
		.dampening = step->dampening,
		.weight_decay = step->weight_decay,
		.beta1 = step->beta1,
		.beta2 = step->beta2,
		.epsilon = step->epsilon,
	};
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
	if (request.has_hyper)
		request.hyper = step_hyper(step);
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
		*ret_result = (struct fsdp_step_result){ .step = call.answer.step, .outcome = call.answer.outcome };
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
	code = step_check(step);
	return code < 0 ? code : step_commit(model, STEP_COMMIT_OPTIMIZER, step, ret_result, "fsdp_model_step");
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
