/*
 * One trainer's life: attach, load, step after step, a last look, close. All calls are made in turns of its own, some
 * time after the answer before. Owns its process (the worker), its references and its scratch. One thread.
 */
#include "tests/sim/sim_trainer.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "fsdp/error.h"
#include "tests/sim/memory.h"
#include "tests/sim/tally.h"
#include "tests/sim/trace.h"

#define TRAINER_THINK_US 4000u
#define TRAINER_AGAIN_US 120000u

static void trainer_turn(struct trainer *trainer);

static const struct workload *workload_of(const struct trainer *trainer)
{
	return &trainer->sim->workloads[trainer->model];
}

static void trainer_on_turn(void *context, uint64_t life)
{
	struct trainer *trainer = context;
	if (trainer->life == life) {
		trainer->turn_armed = false;
		trainer_turn(trainer);
	}
}

void trainer_turn_in(struct trainer *trainer, uint64_t delay_us)
{
	if (!trainer->turn_armed) {
		trainer->turn_armed = true;
		sim_clock_at(trainer->sim->clock, sim_now_us(trainer->sim) + delay_us, trainer_on_turn, trainer,
			     trainer->life);
	}
}

void trainer_turn_soon(struct trainer *trainer)
{
	trainer_turn_in(trainer, dice_below(&trainer->dice, TRAINER_THINK_US));
}

void trainer_turn_later(struct trainer *trainer)
{
	trainer_turn_in(trainer, TRAINER_THINK_US + dice_below(&trainer->dice, TRAINER_AGAIN_US));
}

bool trainer_attached(const struct trainer *trainer)
{
	return trainer->worker != NULL;
}

/* ---- The process ends ---- */

static void trainer_forget(struct trainer *trainer)
{
	for (uint32_t u = 0; u < SIM_UNITS; u++) {
		trainer->units[u].active = false;
		trainer->holds[u].held = false;
		trainer->has_slot[u] = false;
	}
	plan_unref(trainer->plan);
	manifest_unref(trainer->manifest);
	trainer->plan = NULL;
	trainer->manifest = NULL;
	trainer->worker = NULL;
	trainer->of = NULL;
	trainer->todo = TODO_NOTHING;
	trainer->reload = false;
	trainer->raised = false;
	trainer->life++;
	trainer->turn_armed = false;
	trainer->state = TRAINER_AWAY;
}

void trainer_kill(struct trainer *trainer, uint64_t away_us)
{
	if (trainer->state == TRAINER_CLOSED) {
		return;
	}
	trace_note("rank # model #: the trainer dies in state #", trainer->node->rank, trainer->model, trainer->state);
	if (trainer->worker) {
		worker_detach(trainer->worker);
	} else if (trainer->main.active) {
		call_cancel(trainer->node->group, &trainer->main.call);
	}
	trainer->main.active = false;
	trainer_forget(trainer);
	trainer_turn_in(trainer, away_us);
}

/* ---- Calls ---- */

static struct call *trainer_call(struct trainer *trainer, struct trainer_call *call, enum act act, uint32_t unit,
				 bool waited)
{
	assert(!call->active);
	memset(call, 0, sizeof(*call));
	*call = (struct trainer_call){ .trainer = trainer,
				       .active = true,
				       .waited = waited,
				       .act = act,
				       .unit = unit,
				       .started_us = sim_now_us(trainer->sim),
				       .step = trainer->step };
	call->call.done = trainer_answered;
	call->deadline_ms = trainer->sim->operation_ms;
	if (trainer->short_deadline_ms > 0 && act != ACT_CLOSE) {
		call->deadline_ms = call->call.deadline_ms = trainer->short_deadline_ms;
		trainer->short_deadline_ms = 0;
	}
	trace_note("rank # model # calls # unit # step # attempt # micro-batch #", trainer->node->rank, trainer->model,
		   act, unit, trainer->step, trainer->attempt, trainer->micro_batch);
	return &call->call;
}

static struct call *trainer_main(struct trainer *trainer, enum act act, uint32_t unit)
{
	return trainer_call(trainer, &trainer->main, act, unit, true);
}

/* ---- Attaching and leaving ---- */

static struct plan *trainer_make_plan(struct trainer *trainer)
{
	struct plan *plan = group_find_plan(trainer->node->group, workload_of(trainer)->name);
	if (plan || trainer->cannot_seal) {
		return NULL;
	}
	int rc = plan_new(trainer->manifest, trainer->node->rank, trainer->sim->config.world_size, &plan);
	assert(rc == 0);
	struct plan_sizes sizes = plan_get_sizes(plan);
	uint64_t gathers = sizes.largest_unit + dice_below(&trainer->dice, 2 * sizes.all_units + 1) / 4096 * 4096;
	uint64_t grads = sizes.largest_unit + dice_below(&trainer->dice, 2 * sizes.all_units + 1) / 4096 * 4096;
	rc = plan_allocate(plan, gathers, grads, true);
	assert(rc == 0);
	return plan;
}

static void trainer_attach(struct trainer *trainer)
{
	for (uint32_t i = 0; i < workload_of(trainer)->unit_count; i++) {
		uint32_t j = (uint32_t)dice_below(&trainer->dice, i + 1);
		trainer->order[i] = trainer->order[j];
		trainer->order[j] = i;
	}
	for (uint32_t i = 0; i < workload_of(trainer)->unit_count; i++) {
		trainer->registered[trainer->order[i]] = i;
	}
	trainer->manifest = workload_manifest(workload_of(trainer), trainer->order,
					      trainer->odd_manifest ? 7 + trainer->node->rank : 0);
	struct plan *plan = trainer_make_plan(trainer);
	int code = trainer->cannot_seal ? -ENOMEM : 0;
	trainer->odd_manifest = false;
	trainer->cannot_seal = false;
	trainer->state = TRAINER_ATTACHING;
	struct call *call = trainer_call(trainer, &trainer->main, ACT_ATTACH, 0, true);
	int rc = group_attach(trainer->node->group, trainer->manifest, plan, code,
			      code ? "no memory for the shards" : NULL, call, &trainer->worker);
	assert(rc == 0);
	plan_unref(plan);
}

static void trainer_leave(struct trainer *trainer)
{
	struct worker *worker = trainer->worker;
	bool close = dice_chance(&trainer->dice, 300);
	if (trainer->of) {
		trainer->of->over = true;
	}
	if (!close) {
		worker_detach(worker);
		trainer->main.active = false;
		trainer_forget(trainer);
		trainer_turn_later(trainer);
		return;
	}
	trainer->main.active = false;
	trainer_forget(trainer);
	worker_close(worker, trainer_call(trainer, &trainer->main, ACT_CLOSE, 0, true));
}

static void trainer_attached_turn(struct trainer *trainer)
{
	if (trainer->attach_code != 0) {
		worker_detach(trainer->worker);
		trainer_forget(trainer);
		trainer_turn_later(trainer);
		return;
	}
	trainer->plan = plan_ref(worker_plan(trainer->worker));
	trainer->state = trainer->step == 0 ? TRAINER_LOADING : TRAINER_STEPPING;
	if (trainer->state == TRAINER_LOADING) {
		script_load(trainer);
	} else {
		trainer->length = trainer->next = 0;
	}
	trainer_turn_soon(trainer);
}

/* ---- Turns ---- */

static void trainer_reshard(struct trainer *trainer, uint32_t unit)
{
	if (!trainer->holds[unit].held) {
		return;
	}
	check_held(trainer, unit, "when it was given back");
	trainer->holds[unit].held = false;
	int rc = worker_reshard(trainer->worker, trainer->registered[unit]);
	if (rc == FSDP_E_LOST || rc == FSDP_E_DROPPED) {
		trainer->todo = TODO_LEAVE;
	} else if (rc != 0) {
		trace_fail("rank %u: reshard of unit %u fails with %d: %s", trainer->node->rank, unit, rc,
			   worker_error(trainer->worker));
	}
}

/* Gives back every copy; calls that wait are given up, as after a time-out of the trainer's own. */
static void trainer_let_go(struct trainer *trainer, bool cancel)
{
	for (uint32_t u = 0; u < workload_of(trainer)->unit_count; u++) {
		trainer_reshard(trainer, u);
		if (cancel && trainer->units[u].active && trainer->units[u].act == ACT_UNSHARD) {
			call_cancel(trainer->node->group, &trainer->units[u].call);
			trainer->units[u].active = false;
		}
	}
}

static void trainer_unshard(struct trainer *trainer, uint32_t unit)
{
	if (!trainer->holds[unit].held && !trainer->units[unit].active) {
		worker_unshard(trainer->worker, trainer->registered[unit],
			       trainer_call(trainer, &trainer->units[unit], ACT_UNSHARD, unit, false));
	}
}

static void trainer_start(struct trainer *trainer, uint32_t unit)
{
	int rc = worker_unshard_start(trainer->worker, trainer->registered[unit]);
	if (rc != 0 && rc != FSDP_E_LOST && rc != FSDP_E_DROPPED && rc != FSDP_E_PEER_LOST) {
		trace_fail("rank %u: unshard_start of unit %u fails with %d: %s", trainer->node->rank, unit, rc,
			   worker_error(trainer->worker));
	}
}

static void trainer_step(struct trainer *trainer)
{
	const struct workload *workload = workload_of(trainer);
	uint64_t life = oracle_life(trainer->of->oracle);
	struct optimizer_options options = workload_step_options(workload, life, trainer->step);
	struct optimizer_groups groups = workload_step_groups(workload, life, trainer->step);
	struct step_rules rules = workload_step_rules(workload, life, trainer->step,
						      oracle_loss_scale(trainer->of->oracle, trainer->step));
	if (trainer->other_options && rules.loss_scale > 0) {
		rules.loss_scale *= 2 + trainer->node->rank;
		trainer->other_options = false;
	} else if (trainer->other_options && groups.count > 0) {
		groups.options[0].weight_decay += 1 + trainer->node->rank;
		trainer->other_options = false;
	} else if (trainer->other_options) {
		options.learning_rate *= 2 + trainer->node->rank;
		trainer->other_options = false;
	}
	for (uint32_t i = 0; trainer->node->rank == 0 && i < group_model_count(trainer->node->group); i++) {
		struct model_status status = group_model(trainer->node->group, i);
		if (status.model == trainer->of->model) {
			referee_stepped(trainer->sim->referee, 0, status.model, trainer->step, status.attempt);
		}
	}
	unsigned char bytes[WORKLOAD_STATE_MAX];
	size_t size = workload_state(workload, life, trainer->step, trainer->node->rank, bytes);
	struct buffer *state = NULL;
	if (size > 0) {
		int rc = buffer_new_heap(size, &state);
		assert(rc == 0);
		memcpy(buffer_data(state), bytes, size);
	}
	worker_step(trainer->worker, workload_commit(workload, life, trainer->step), &options, &groups, &rules, state,
		    trainer_main(trainer, ACT_STEP, 0));
	buffer_unref(state);
}

static void trainer_all_reduce(struct trainer *trainer)
{
	const struct workload *workload = workload_of(trainer);
	uint64_t life = oracle_life(trainer->of->oracle);
	struct workload_all_reduce all_reduce = workload_all_reduce(workload, life, trainer->step, trainer->all_reduce);
	double values[WORKLOAD_VALUES_MAX];
	for (uint32_t i = 0; i < all_reduce.count; i++) {
		values[i] = workload_value(workload, life, trainer->step, trainer->all_reduce, trainer->node->rank, i);
	}
	worker_all_reduce(trainer->worker, (enum all_reduce_op)all_reduce.op, values, all_reduce.count,
			  trainer_main(trainer, ACT_ALL_REDUCE, 0));
}

static void trainer_weigh(struct trainer *trainer)
{
	static const double weights[] = { 0, 0, 0.1, 0.5, 2, 2.7, 64, 1e-60 };
	struct call *call = trainer_main(trainer, ACT_WEIGHT, 0);
	double weight = weights[dice_below(&trainer->dice, sizeof(weights) / sizeof(weights[0]))];
	bool none = workload_is_weightless(workload_of(trainer), oracle_life(trainer->of->oracle), trainer->step);
	trainer->main.weight = none || weight < 1e-45 ? 0 : weight;
	worker_weight(trainer->worker, none ? 0 : weight, call);
}

static void trainer_norm(struct trainer *trainer)
{
	struct call *call = trainer_main(trainer, ACT_NORM, 0);
	trainer->main.kind = dice_chance(&trainer->dice, 500) ? NORM_2 : NORM_INF;
	worker_norm(trainer->worker, trainer->main.kind, call);
}

/* Begins the next action. Returns whether the script may go on at once. */
static bool trainer_act(struct trainer *trainer, const struct action *action)
{
	uint32_t unit = action->unit, registered = trainer->registered[unit];
	switch (action->act) {
	case ACT_GRAD:
		worker_grad(trainer->worker, registered, trainer_main(trainer, ACT_GRAD, unit));
		return false;
	case ACT_LOAD:
		worker_load(trainer->worker, registered, trainer->slots[unit],
			    trainer_call(trainer, &trainer->units[unit], ACT_LOAD, unit, false));
		return true;
	case ACT_LOADED:
		return !trainer->units[unit].active;
	case ACT_START:
		trainer_start(trainer, unit);
		return true;
	case ACT_UNSHARD:
		if (!trainer->reload) {
			trainer_unshard(trainer, unit);
		}
		return true;
	case ACT_USE:
		if (trainer->reload && !trainer->units[unit].active) {
			return true;
		}
		trainer_unshard(trainer, unit);
		return trainer->holds[unit].held;
	case ACT_RESHARD:
		trainer_reshard(trainer, unit);
		return true;
	case ACT_REDUCE:
		check_slot(trainer, unit);
		worker_reduce(trainer->worker, registered, trainer_main(trainer, ACT_REDUCE, unit));
		return false;
	case ACT_WEIGHT:
		trainer_weigh(trainer);
		return false;
	case ACT_NEXT:
		worker_next_micro_batch(trainer->worker, trainer_main(trainer, ACT_NEXT, 0));
		return false;
	case ACT_SYNC:
		worker_sync(trainer->worker, trainer_main(trainer, ACT_SYNC, 0));
		return false;
	case ACT_NORM:
		trainer_norm(trainer);
		return false;
	case ACT_SHARD:
		worker_shard(trainer->worker, registered, trainer_main(trainer, ACT_SHARD, unit));
		return false;
	case ACT_STAGE:
		fill_staging(trainer);
		return true;
	case ACT_STEP:
		trainer_step(trainer);
		return false;
	case ACT_ALL_REDUCE:
		trainer_all_reduce(trainer);
		return false;
	default:
		assert(false && "in no script");
		return true;
	}
}

/* The script is at its end: what comes next. */
static void trainer_plan(struct trainer *trainer)
{
	check_state(trainer);
	if (trainer->state == TRAINER_LOADING && trainer->reload) {
		trainer->reload = false;
		script_load(trainer);
	} else if (trainer->step < workload_of(trainer)->steps) {
		trainer->state = TRAINER_STEPPING;
		script_step(trainer);
	} else if (trainer->state != TRAINER_LOOKING && trainer->state != TRAINER_DONE) {
		trainer->state = TRAINER_LOOKING;
		script_look(trainer);
	} else { /* looks again from time to time: only so it hears that the model is lost */
		trainer->state = TRAINER_DONE;
		script_look(trainer);
		trainer->length = 4;
	}
}

static void trainer_close(struct trainer *trainer)
{
	struct worker *worker = trainer->worker;
	trainer_let_go(trainer, true);
	trainer->main.active = false;
	trainer_forget(trainer);
	trainer->state = TRAINER_CLOSED;
	if (trainer->sim->keeps) {
		worker_detach(worker);
	} else {
		worker_close(worker, trainer_call(trainer, &trainer->main, ACT_CLOSE, 0, true));
	}
}

/* What an answer asked for. Returns whether the turn is over. */
static bool trainer_do_todo(struct trainer *trainer)
{
	enum trainer_todo todo = trainer->todo;
	trainer->todo = TODO_NOTHING;
	switch (todo) {
	case TODO_NOTHING:
		return false;
	case TODO_ROOM:
		trainer_let_go(trainer, false);
		return false;
	case TODO_RESTART:
		trainer_let_go(trainer, true);
		if (trainer->state == TRAINER_LOADING) {
			script_load(trainer);
			for (uint32_t u = 0; u < workload_of(trainer)->unit_count; u++) {
				if (trainer->units[u].active) {
					call_cancel(trainer->node->group, &trainer->units[u].call);
					trainer->units[u].active = false;
				}
			}
		} else {
			memset(trainer->has_slot, 0, sizeof(trainer->has_slot));
			trainer->length = trainer->next = 0;
		}
		return false;
	case TODO_LEAVE:
		trainer_leave(trainer);
		return true;
	}
	return false;
}

static bool trainer_do_wishes(struct trainer *trainer)
{
	if (trainer->sleep_us > 0) {
		trainer_turn_in(trainer, trainer->sleep_us);
		trainer->sleep_us = 0;
		return true;
	}
	if (trainer->wants_abort && trainer->state == TRAINER_STEPPING) {
		trainer->wants_abort = false;
		worker_abort(trainer->worker, trainer_main(trainer, ACT_ABORT, 0));
		return true;
	}
	return false;
}

static void trainer_turn(struct trainer *trainer)
{
	if (trainer->main.active || trainer->state == TRAINER_CLOSED) {
		return;
	}
	if (!trainer->worker) {
		if (trainer->node->alive && !trainer->sim->closing) {
			trainer_attach(trainer);
		} else {
			trainer_turn_later(trainer);
		}
		return;
	}
	if (trainer->state == TRAINER_ATTACHING) {
		trainer_attached_turn(trainer);
		return;
	}
	if (trainer_do_todo(trainer)) {
		return;
	}
	for (uint32_t u = 0; u < workload_of(trainer)->unit_count; u++) {
		if (trainer->holds[u].held && dice_chance(&trainer->dice, 250)) {
			check_held(trainer, u, "while it was held");
		}
	}
	if (trainer->sim->closing && trainer->state == TRAINER_DONE) {
		trainer_close(trainer);
		return;
	}
	if (trainer_do_wishes(trainer)) {
		return;
	}
	if (trainer->next >= trainer->length) {
		bool idle = trainer->state == TRAINER_DONE;
		trainer_plan(trainer);
		if (idle) {
			trainer_turn_later(trainer);
			return;
		}
	}
	if (trainer_act(trainer, &trainer->script[trainer->next])) {
		trainer->next++;
		trainer_turn_soon(trainer);
	}
}

struct trainer *trainer_new(struct sim *sim, uint32_t rank, uint32_t model)
{
	struct trainer *trainer = memory_zeroed(sizeof(*trainer));
	uint64_t largest = 0;
	trainer->sim = sim;
	trainer->node = &sim->nodes[rank];
	trainer->model = model;
	trainer->dice.state = DICE_HASH(sim->config.seed, 0x747261, rank, model);
	for (uint32_t u = 0; u < sim->workloads[model].unit_count; u++) {
		largest =
			sim->workloads[model].units[u].total > largest ? sim->workloads[model].units[u].total : largest;
	}
	trainer->scratch = memory_zeroed(largest * sizeof(float));
	return trainer;
}

void trainer_begin(struct trainer *trainer)
{
	trainer_turn_in(trainer, dice_below(&trainer->dice, 300000));
}

void trainer_free(struct trainer *trainer)
{
	assert(!trainer->worker);
	free(trainer->scratch);
	free(trainer);
}
