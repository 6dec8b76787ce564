/*
 * Full parameters: unshard, reshard, where a parameter lies, and what is gathered next. The daemon counts unshards and
 * so do we, one request for each; while our count is not 0 the daemon's is not either, and so the slot cannot change.
 *
 * No lock is held while an answer is awaited.
 */
#include "client/lib/fault.h"
#include "client/lib/model.h"

/* The daemon granted an unshard: shows the slot. */
static int gather_show(struct fsdp_unit *unit, uint64_t slot)
{
	struct fsdp_model *model = unit->model;
	pthread_mutex_lock(&unit->lock);
	int code = 0;
	if (unit->unshards == 0)
		code = window_show(&unit->gather, model->gathers.fd, model->gathers.bytes, slot, false);
	else if (unit->gather.mapped && unit->gather.slot != slot)
		code = FSDP_E_PROTOCOL; /* what is held never moves */
	if (code == 0)
		unit->unshards++;
	pthread_mutex_unlock(&unit->lock);
	return code;
}

/* The grant could not be used: gives it back, so that the daemon's count stays equal to ours. */
static void gather_refuse(struct fsdp_unit *unit)
{
	struct wire *wire = unit->model->client->wire;
	WIRE_CALL_AUTO call = { 0 };
	struct worker_message request = model_request(unit->model, unit, WORKER_RESHARD);
	if (wire_begin(wire, &request, &call) == 0)
		(void)wire_finish(wire, &call); /* the caller has an error to tell already */
}

static int gather_take(struct fsdp_unit *unit, uint64_t slot, const char *what)
{
	int code = gather_show(unit, slot);
	if (code == FSDP_E_PROTOCOL) {
		fault_set(code, "%s: unit \"%s\": the daemon named a slot at %llu that cannot be its", what, unit->name,
			  (unsigned long long)slot);
		wire_break(unit->model->client->wire, code, "%s", fsdp_last_error());
	} else if (code < 0) {
		gather_refuse(unit);
		fault_set(code, "%s: unit \"%s\": cannot map its %llu bytes: %s", what, unit->name,
			  (unsigned long long)unit->place.full_bytes, fsdp_strerror(code));
	}
	return code;
}

int gather_unshard(struct fsdp_unit *unit, struct fsdp_unit *next, const char *what)
{
	struct wire *wire = unit->model->client->wire;
	WIRE_CALL_AUTO call = { 0 };
	WIRE_CALL_AUTO ahead = { 0 };
	struct worker_message request = model_request(unit->model, unit, WORKER_UNSHARD);
	int code = wire_begin(wire, &request, &call);
	if (code < 0)
		return wire_fault(wire, &call, code, what, unit->name);
	bool started = false;
	if (next) {
		request = model_request(unit->model, next, WORKER_UNSHARD_START);
		started = wire_begin(wire, &request, &ahead) == 0;
	}
	code = wire_finish(wire, &call);
	if (code < 0)
		wire_fault(wire, &call, code, what, unit->name);
	else
		code = gather_take(unit, call.answer.slot, what);
	/* Only a hint: where it could not begin, its own unshard will say why. */
	if (started)
		(void)wire_finish(wire, &ahead);
	return code;
}

int gather_reshard(struct fsdp_unit *unit, const char *what)
{
	pthread_mutex_lock(&unit->lock);
	bool held = unit->unshards > 0;
	int code = 0;
	if (held && --unit->unshards == 0)
		code = window_hide(&unit->gather);
	pthread_mutex_unlock(&unit->lock);
	if (!held)
		return fault_set(FSDP_E_STATE, "%s: unit \"%s\" is not unsharded", what, unit->name);
	WIRE_CALL_AUTO call = { 0 };
	struct worker_message request = model_request(unit->model, unit, WORKER_RESHARD);
	int asked = model_ask(unit->model, unit, &request, &call, what);
	if (asked < 0 || code == 0)
		return asked;
	return fault_set(code, "%s: unit \"%s\": cannot protect its memory: %s", what, unit->name, fsdp_strerror(code));
}

/* What the declared order has after unit, seen from where it stands; NULL where none is declared or unit is not in
 * it. */
static struct fsdp_unit *gather_next(struct fsdp_unit *unit)
{
	struct fsdp_model *model = unit->model;
	struct fsdp_unit *next = NULL;
	pthread_mutex_lock(&model->lock);
	for (size_t i = 1; i <= model->order_count; i++) {
		size_t at = (model->order_at + i) % model->order_count;
		if (model->order[at] != unit)
			continue;
		model->order_at = at;
		next = model->order[(at + 1) % model->order_count];
		break;
	}
	pthread_mutex_unlock(&model->lock);
	return next == unit ? NULL : next;
}

int fsdp_unit_unshard(struct fsdp_unit *unit)
{
	int code = unit_check_sealed(unit, "fsdp_unit_unshard");
	return code < 0 ? code : gather_unshard(unit, gather_next(unit), "fsdp_unit_unshard");
}

int fsdp_unit_unshard_start(struct fsdp_unit *unit)
{
	int code = unit_check_sealed(unit, "fsdp_unit_unshard_start");
	if (code < 0)
		return code;
	WIRE_CALL_AUTO call = { 0 };
	struct worker_message request = model_request(unit->model, unit, WORKER_UNSHARD_START);
	return model_ask(unit->model, unit, &request, &call, "fsdp_unit_unshard_start");
}

int fsdp_unit_reshard(struct fsdp_unit *unit)
{
	int code = unit_check_sealed(unit, "fsdp_unit_reshard");
	return code < 0 ? code : gather_reshard(unit, "fsdp_unit_reshard");
}

const void *fsdp_unit_param(struct fsdp_unit *unit, size_t index)
{
	if (unit_check_sealed(unit, "fsdp_unit_param") < 0)
		return NULL;
	if (index >= unit->param_count) {
		fault_set(FSDP_E_INVALID, "fsdp_unit_param: unit \"%s\" has %zu parameters, there is no number %zu",
			  unit->name, unit->param_count, index);
		return NULL;
	}
	return unit->gather.base + unit->offsets[index];
}
