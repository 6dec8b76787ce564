/*
 * The simulated operator: drops models that are lost, aborts steps and tries to drop what is in use when a fault says
 * so, and drops everything at the end of a run whose trainers keep their models. Owns its calls while they wait. One
 * thread.
 */
#include "tests/sim/sim.h"

#include <string.h>

#include "fsdp/error.h"
#include "tests/sim/memory.h"
#include "tests/sim/tally.h"
#include "tests/sim/trace.h"

#define OPERATOR_LOOK_US 250000u

struct operator_call {
	struct call call; /* first */
	struct sim *sim;
	uint32_t rank, workload;
	bool drop;
	uint64_t started_us;
};

static void operator_done(struct call *base, const struct answer *answer)
{
	struct operator_call *call = (struct operator_call *)base;
	struct sim *sim = call->sim;
	trace_note("rank # answers its operator: code -#", call->rank, (uint64_t)-answer->code);
	tally_count(TALLY_CODE, answer->code > -1000 ? (answer->code == 0 ? 0 : TALLY_INDEX_MAX - 1)
						     : (unsigned)(-answer->code - 1000));
	if (answer->code == FSDP_E_BUSY) {
		tally_count(TALLY_EVENT, EVENT_BUSY_DROP);
	}
	uint64_t took_ms = (sim_now_us(sim) - call->started_us) / 1000;
	if (took_ms > sim->operation_ms + SIM_SLACK_MS) {
		trace_fail("rank %u: an operator waited %llu ms", call->rank, (unsigned long long)took_ms);
	}
	if (answer->code != 0 && !answer->text[0]) {
		trace_fail("rank %u: an operator got %d without a word", call->rank, answer->code);
	}
	if (call->drop) {
		sim->dropping[call->workload] = false;
	}
	free(call);
}

static struct operator_call *operator_call(struct sim *sim, uint32_t rank, uint32_t workload, bool drop)
{
	struct operator_call *call = memory_zeroed(sizeof(*call));
	call->call.done = operator_done;
	call->sim = sim;
	call->rank = rank;
	call->workload = workload;
	call->drop = drop;
	call->started_us = sim_now_us(sim);
	return call;
}

void operator_abort(struct sim *sim, uint32_t rank, uint32_t workload)
{
	if (sim->nodes[rank].alive) {
		trace_note("rank #: an operator aborts the step of model #", rank, workload);
		group_abort_step(sim->nodes[rank].group, sim->workloads[workload].name,
				 &operator_call(sim, rank, workload, false)->call);
	}
}

void operator_drop(struct sim *sim, uint32_t rank, uint32_t workload)
{
	if (sim->nodes[rank].alive && !sim->dropping[workload]) {
		trace_note("rank #: an operator drops model #", rank, workload);
		sim->dropping[workload] = true;
		group_drop_model(sim->nodes[rank].group, sim->workloads[workload].name,
				 &operator_call(sim, rank, workload, true)->call);
	}
}

/* Whether any node holds it lost (or, at the end, at all). */
static bool operator_is_wanted(const struct sim *sim, uint32_t workload)
{
	for (uint32_t rank = 0; rank < sim->config.world_size; rank++) {
		const struct node *node = &sim->nodes[rank];
		for (uint32_t i = 0; node->alive && i < group_model_count(node->group); i++) {
			struct model_status status = group_model(node->group, i);
			if (strcmp(status.name, sim->workloads[workload].name) == 0 &&
			    (status.state == MODEL_LOST || (sim->closing && sim->keeps))) {
				return true;
			}
		}
	}
	return false;
}

static void operator_on_look(void *context, uint64_t unused)
{
	struct sim *sim = context;
	(void)unused;
	for (uint32_t workload = 0; workload < sim->model_count; workload++) {
		if (operator_is_wanted(sim, workload)) {
			operator_drop(sim, (uint32_t)dice_below(&sim->dice, sim->config.world_size), workload);
		}
	}
	sim_clock_at(sim->clock, sim_now_us(sim) + OPERATOR_LOOK_US, operator_on_look, sim, 0);
}

void operator_begin(struct sim *sim)
{
	sim_clock_at(sim->clock, OPERATOR_LOOK_US, operator_on_look, sim, 0);
}
