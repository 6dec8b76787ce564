/*
 * Full gradients, and initial values, which travel the same way: a slot of the gradient pool is shown in the unit's
 * window, written, hidden, and handed over. A slot is ours from the daemon's answer until the unit is reduced, the
 * micro-batch ends, or the step does: an epoch that moved on took it back.
 *
 * A unit's lock guards its slot and is not held while an answer is awaited.
 */
#include <string.h>

#include "client/lib/fault.h"
#include "client/lib/model.h"

/* ---- Where the model is ---- */

static int epoch_compare(struct epoch a, struct epoch b)
{
	if (a.step != b.step)
		return a.step < b.step ? -1 : 1;
	if (a.attempt != b.attempt)
		return a.attempt < b.attempt ? -1 : 1;
	return 0;
}

static struct epoch gradient_now(struct fsdp_model *model)
{
	pthread_mutex_lock(&model->lock);
	struct epoch now = model->epoch;
	pthread_mutex_unlock(&model->lock);
	return now;
}

/* With unit's lock held. Hiding cannot fail in a way that helps anybody to know: the slot is not ours either way. */
static void gradient_drop(struct fsdp_unit *unit)
{
	(void)window_hide(&unit->grad);
	unit->gradient = GRADIENT_NONE;
}

void gradient_observe(struct fsdp_model *model, struct epoch epoch)
{
	pthread_mutex_lock(&model->lock);
	bool newer = epoch_compare(epoch, model->epoch) > 0;
	/* Answers reach their threads in any order: an older one tells nothing. */
	if (newer)
		model->epoch = epoch;
	pthread_mutex_unlock(&model->lock);
	if (!newer)
		return;
	for (size_t i = 0; i < model->unit_count; i++) {
		struct fsdp_unit *unit = model->units[i];
		pthread_mutex_lock(&unit->lock);
		if (unit->gradient == GRADIENT_HELD && epoch_compare(unit->gradient_epoch, epoch) < 0) {
			gradient_drop(unit);
			unit->gradient_aborted = unit->gradient_epoch.step == epoch.step;
		}
		pthread_mutex_unlock(&unit->lock);
	}
}

void gradient_take_back(struct fsdp_model *model)
{
	for (size_t i = 0; i < model->unit_count; i++) {
		struct fsdp_unit *unit = model->units[i];
		pthread_mutex_lock(&unit->lock);
		if (unit->gradient == GRADIENT_HELD)
			gradient_drop(unit);
		pthread_mutex_unlock(&unit->lock);
	}
}

/* ---- Slots ---- */

/* With unit's lock held: shows the slot that the daemon gave in epoch. */
static int gradient_show(struct fsdp_unit *unit, uint64_t slot, struct epoch epoch, const char *what)
{
	struct fsdp_model *model = unit->model;
	struct epoch now = gradient_now(model);
	if (epoch_compare(epoch, now) != 0)
		return fault_set(epoch.step == now.step ? FSDP_E_ABORTED : FSDP_E_STATE,
				 "%s: unit \"%s\": step %llu %s in another thread meanwhile", what, unit->name,
				 (unsigned long long)epoch.step, epoch.step == now.step ? "was aborted" : "ended");
	int code = window_show(&unit->grad, model->grads.fd, model->grads.bytes, slot, true);
	if (code == FSDP_E_PROTOCOL) {
		fault_set(code, "%s: unit \"%s\": the daemon named a gradient buffer at %llu that does not exist", what,
			  unit->name, (unsigned long long)slot);
		wire_break(model->client->wire, code, "%s", fsdp_last_error());
	} else if (code < 0) {
		fault_set(code, "%s: unit \"%s\": cannot map its %llu bytes: %s", what, unit->name,
			  (unsigned long long)unit->place.full_bytes, fsdp_strerror(code));
	}
	return code;
}

/* With unit's lock held. */
static void gradient_zero(struct fsdp_unit *unit, size_t index)
{
	uint64_t bytes = unit->offsets[index + 1] - unit->offsets[index];
	if (bytes > 0)
		memset(unit->grad.base + unit->offsets[index], 0, bytes);
}

/* With unit's lock held. */
static void *gradient_hand_out(struct fsdp_unit *unit, size_t index)
{
	if (!unit->handed[index]) {
		gradient_zero(unit, index);
		unit->handed[index] = 1;
	}
	return unit->grad.base + unit->offsets[index];
}

/* With unit's lock held: the answer to WORKER_GRAD. */
static int gradient_install(struct fsdp_unit *unit, const struct worker_message *answer)
{
	struct epoch epoch = { answer->step, answer->attempt };
	if (unit->gradient == GRADIENT_LOADING)
		return fault_set(FSDP_E_STATE, "fsdp_unit_grad: unit \"%s\" is being loaded", unit->name);
	/* Two threads asked at once: the daemon gave both the same. */
	if (unit->gradient == GRADIENT_HELD && epoch_compare(unit->gradient_epoch, epoch) == 0 &&
	    (unit->grad.slot == answer->slot || unit->grad.bytes == 0))
		return 0;
	int code = gradient_show(unit, answer->slot, epoch, "fsdp_unit_grad");
	if (code < 0)
		return code;
	unit->gradient = GRADIENT_HELD;
	unit->gradient_epoch = epoch;
	unit->gradient_aborted = false;
	memset(unit->handed, 0, unit->param_count);
	return 0;
}

int fsdp_unit_grad(struct fsdp_unit *unit, size_t index, void **ret_grad)
{
	int code = unit_check_sealed(unit, "fsdp_unit_grad");
	if (code < 0)
		return code;
	if (index >= unit->param_count)
		return fault_set(FSDP_E_INVALID,
				 "fsdp_unit_grad: unit \"%s\" has %zu parameters, there is no number %zu", unit->name,
				 unit->param_count, index);
	if (!ret_grad)
		return fault_set(FSDP_E_INVALID, "fsdp_unit_grad: unit \"%s\": ret_grad is NULL", unit->name);
	pthread_mutex_lock(&unit->lock);
	bool held = unit->gradient == GRADIENT_HELD;
	if (held)
		*ret_grad = gradient_hand_out(unit, index);
	pthread_mutex_unlock(&unit->lock);
	if (held)
		return 0;
	WIRE_CALL_AUTO call = { 0 };
	struct worker_message request = model_request(unit->model, unit, WORKER_GRAD);
	code = model_ask(unit->model, unit, &request, &call, "fsdp_unit_grad");
	if (code < 0)
		return code;
	pthread_mutex_lock(&unit->lock);
	code = gradient_install(unit, &call.answer);
	if (code == 0)
		*ret_grad = gradient_hand_out(unit, index);
	pthread_mutex_unlock(&unit->lock);
	return code;
}

int fsdp_unit_reduce(struct fsdp_unit *unit)
{
	int code = unit_check_sealed(unit, "fsdp_unit_reduce");
	if (code < 0)
		return code;
	pthread_mutex_lock(&unit->lock);
	bool held = unit->gradient == GRADIENT_HELD;
	bool aborted = unit->gradient_aborted;
	unit->gradient_aborted = false;
	if (held) {
		for (size_t i = 0; i < unit->param_count; i++)
			if (!unit->handed[i])
				gradient_zero(unit, i);
		gradient_drop(unit);
	}
	pthread_mutex_unlock(&unit->lock);
	if (!held && aborted)
		return fault_set(
			FSDP_E_ABORTED,
			"fsdp_unit_reduce: unit \"%s\": the step was aborted, which took its gradient back; begin the "
			"step again",
			unit->name);
	if (!held)
		return fault_set(
			FSDP_E_STATE,
			"fsdp_unit_reduce: unit \"%s\": no gradient of it was asked for in this micro-batch; call "
			"fsdp_unit_grad first, or leave this call out where there is none",
			unit->name);
	WIRE_CALL_AUTO call = { 0 };
	struct worker_message request = model_request(unit->model, unit, WORKER_REDUCE);
	return model_ask(unit->model, unit, &request, &call, "fsdp_unit_reduce");
}

/* ---- Initial values ---- */

static int load_check(struct fsdp_unit *unit, const void *const *values, size_t count)
{
	if (count != unit->param_count)
		return fault_set(FSDP_E_INVALID, "fsdp_unit_load: unit \"%s\" has %zu parameters, not %zu", unit->name,
				 unit->param_count, count);
	if (count > 0 && !values)
		return fault_set(FSDP_E_INVALID, "fsdp_unit_load: unit \"%s\": values is NULL", unit->name);
	for (size_t i = 0; i < count; i++)
		if (!values[i] && unit->offsets[i + 1] > unit->offsets[i])
			return fault_set(FSDP_E_INVALID,
					 "fsdp_unit_load: unit \"%s\": the values of parameter \"%s\" are NULL",
					 unit->name, unit->params[i].name);
	return 0;
}

/* Takes a slot and copies the values to it. */
static int load_fill(struct fsdp_unit *unit, const void *const *values, uint64_t *ret_slot)
{
	WIRE_CALL_AUTO call = { 0 };
	struct worker_message request = model_request(unit->model, unit, WORKER_GRAD);
	int code = model_ask(unit->model, unit, &request, &call, "fsdp_unit_load");
	if (code < 0)
		return code;
	pthread_mutex_lock(&unit->lock);
	code = gradient_show(unit, call.answer.slot, (struct epoch){ call.answer.step, call.answer.attempt },
			     "fsdp_unit_load");
	if (code == 0) {
		for (size_t i = 0; i < unit->param_count; i++) {
			uint64_t bytes = unit->offsets[i + 1] - unit->offsets[i];
			if (bytes > 0)
				memcpy(unit->grad.base + unit->offsets[i], values[i], bytes);
		}
		(void)window_hide(&unit->grad);
	}
	pthread_mutex_unlock(&unit->lock);
	if (code == 0)
		*ret_slot = call.answer.slot;
	return code;
}

int fsdp_unit_load(struct fsdp_unit *unit, const void *const *values, size_t count)
{
	int code = unit_check_sealed(unit, "fsdp_unit_load");
	if (code == 0 && unit->model->init != FSDP_INIT_VERIFY) {
		if (unit->model->init == FSDP_INIT_ZEROS)
			return fault_set(FSDP_E_STATE, "fsdp_unit_load: unit \"%s\": model \"%s\" begins with zeros",
					 unit->name, unit->model->name);
		if (unit->model->init_rank != unit->model->client->rank)
			return 0; /* another rank's values count */
	}
	if (code == 0)
		code = load_check(unit, values, count);
	if (code < 0)
		return code;
	pthread_mutex_lock(&unit->lock);
	bool free = unit->gradient == GRADIENT_NONE;
	if (free)
		unit->gradient = GRADIENT_LOADING;
	pthread_mutex_unlock(&unit->lock);
	if (!free)
		return fault_set(
			FSDP_E_STATE,
			"fsdp_unit_load: unit \"%s\" has a gradient that was not handed over, or is being loaded by "
			"another thread",
			unit->name);
	uint64_t slot = 0;
	code = load_fill(unit, values, &slot);
	if (code == 0) {
		WIRE_CALL_AUTO call = { 0 };
		struct worker_message request = model_request(unit->model, unit, WORKER_LOAD);
		request.slot = slot;
		code = model_ask(unit->model, unit, &request, &call, "fsdp_unit_load");
	}
	pthread_mutex_lock(&unit->lock);
	unit->gradient = GRADIENT_NONE;
	pthread_mutex_unlock(&unit->lock);
	return code;
}
