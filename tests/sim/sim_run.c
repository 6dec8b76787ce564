/*
 * One run from its seed to its end: draws the cluster's measures, starts nodes and trainers, lets the clock go until
 * everything is trained and every model is dropped again, and then takes the cluster apart and looks for what is left.
 * Owns struct sim.
 */
#include "tests/sim/sim.h"

#include <assert.h>
#include <string.h>

#include "tests/sim/faults.h"
#include "tests/sim/memory.h"
#include "tests/sim/sim_trainer.h"
#include "tests/sim/tally.h"
#include "tests/sim/trace.h"

#define RUN_LOOK_US 100000u

/* ---- Lives ---- */

struct life *sim_life(struct sim *sim, uint64_t model)
{
	struct life *life = sim->lives;
	while (life && life->model != model) {
		life = life->next;
	}
	return life;
}

struct life *sim_life_make(struct sim *sim, uint64_t model, const char *name)
{
	struct life *life = sim_life(sim, model);
	for (uint32_t m = 0; !life && m < sim->model_count; m++) {
		if (strcmp(sim->workloads[m].name, name) == 0) {
			life = memory_zeroed(sizeof(*life));
			life->model = model;
			life->workload = m;
			life->oracle = oracle_new(&sim->workloads[m], sim->life_count[m]++, sim->config.world_size);
			life->next = sim->lives;
			sim->lives = life;
			tally_count(TALLY_EVENT, EVENT_LIFE);
		}
	}
	assert(life);
	return life;
}

/* ---- The measures of a run ---- */

static void run_measure(struct sim *sim)
{
	struct dice *dice = &sim->dice;
	bool large = sim->config.world_size > 8;
	sim->chunk_bytes = 4096u << dice_below(dice, 2);
	uint64_t least = 2 * sim->config.world_size * 4096u;
	sim->window_bytes = dice_chance(dice, 500) ? 32768 : 65536;
	sim->window_bytes = sim->window_bytes > least ? sim->window_bytes : least;
	sim->inline_bytes = dice_chance(dice, 500) ? 0 : dice_chance(dice, 500) ? 1 : 600;
	sim->heartbeat_ms = large ? 200 : 100;
	sim->suspicion_ms = 3 * sim->heartbeat_ms;
	sim->grace_ms = large ? 2000 : 1000;
	sim->operation_ms = large ? 8000 : 4000;
	sim->tick_us = large ? 50000 : 25000;
	sim->queue_us = dice_chance(dice, 500) ? 200 : 4000;
	sim->calm = dice_chance(dice, 120);
	sim->keeps = dice_chance(dice, 500);
	sim->model_count = !large && dice_chance(dice, 200) ? 2 : 1;
	sim->faults_end_us = (large ? 3000 : dice_between(dice, 1000, 5000)) * 1000u;
}

static void run_make(struct sim *sim)
{
	sim->dice.state = DICE_HASH(sim->config.seed, sim->config.world_size);
	run_measure(sim);
	sim->referee = referee_new(sim);
	static const uint64_t delays_us[] = { 300, 2000, 15000 };
	struct net_config net = { .world_size = sim->config.world_size,
				  .seed = DICE_HASH(sim->config.seed, sim->config.world_size, 1),
				  .delay_min_us = 50,
				  .delay_max_us = delays_us[dice_below(&sim->dice, 3)],
				  .late_of_a_thousand = dice_below(&sim->dice, 20),
				  .late_us = 60000,
				  .clock = sim->clock,
				  .watch = referee_watch(sim->referee) };
	sim->net = net_new(&net);
	for (uint32_t m = 0; m < sim->model_count; m++) {
		workload_init(&sim->workloads[m], m, sim->config.seed, sim->config.world_size);
	}
	for (uint32_t rank = 0; rank < sim->config.world_size; rank++) {
		sim->nodes[rank].sim = sim;
		sim->nodes[rank].rank = rank;
		for (uint32_t m = 0; m < sim->model_count; m++) {
			sim->trainers[m][rank] = trainer_new(sim, rank, m);
		}
	}
}

static void run_on_start(void *context, uint64_t unused)
{
	(void)unused;
	node_start(context);
}

static void run_start(struct sim *sim)
{
	for (uint32_t rank = 0; rank < sim->config.world_size; rank++) {
		sim_clock_at(sim->clock, dice_below(&sim->dice, 30000), run_on_start, &sim->nodes[rank], 0);
		for (uint32_t m = 0; m < sim->model_count; m++) {
			trainer_begin(sim->trainers[m][rank]);
		}
	}
	/* Calls may wait for the slowest beginner. */
	operator_begin(sim);
	faults_plan(sim);
}

/* ---- The end ---- */

static bool run_is_trained(const struct sim *sim)
{
	for (uint32_t m = 0; m < sim->model_count; m++) {
		for (uint32_t rank = 0; rank < sim->config.world_size; rank++) {
			const struct trainer *trainer = sim->trainers[m][rank];
			if (trainer->state != TRAINER_DONE || trainer->of != sim->trainers[m][0]->of ||
			    trainer->todo == TODO_LEAVE) {
				return false;
			}
		}
	}
	return sim_now_us(sim) > sim->faults_end_us;
}

static bool run_is_over(const struct sim *sim)
{
	for (uint32_t rank = 0; rank < sim->config.world_size; rank++) {
		if (!sim->nodes[rank].alive || group_model_count(sim->nodes[rank].group) > 0 ||
		    sim->nodes[rank].models) {
			return false;
		}
		for (uint32_t m = 0; m < sim->model_count; m++) {
			const struct trainer *trainer = sim->trainers[m][rank];
			if (trainer->state != TRAINER_CLOSED || trainer->main.active || sim->dropping[m]) {
				return false;
			}
		}
	}
	return true;
}

static void run_overdue(const struct sim *sim, const struct trainer_call *call)
{
	uint64_t waited_ms = call->active ? (sim_now_us(sim) - call->started_us) / 1000 : 0;
	if (waited_ms > call->deadline_ms + SIM_SLACK_MS) {
		trace_fail("rank %u, call %d, unit %u: no answer after %llu ms, its deadline was %llu",
			   call->trainer->node->rank, (int)call->act, call->unit, (unsigned long long)waited_ms,
			   (unsigned long long)call->deadline_ms);
	}
}

static void run_on_look(void *context, uint64_t unused)
{
	struct sim *sim = context;
	(void)unused;
	for (uint32_t m = 0; m < sim->model_count; m++) {
		for (uint32_t rank = 0; rank < sim->config.world_size; rank++) {
			run_overdue(sim, &sim->trainers[m][rank]->main);
			for (uint32_t u = 0; u < SIM_UNITS; u++) {
				run_overdue(sim, &sim->trainers[m][rank]->units[u]);
			}
		}
	}
	if (!sim->closing && run_is_trained(sim)) {
		trace_note("everything is trained", 0);
		sim->closing = true;
	}
	if (sim_now_us(sim) > SIM_LIMIT_US) {
		const struct trainer *trainer = sim->trainers[0][0];
		trace_fail("nothing is over after %u virtual seconds: rank 0 is in state %d, step %llu",
			   SIM_LIMIT_US / 1000000, (int)trainer->state, (unsigned long long)trainer->step);
	}
	sim_clock_at(sim->clock, sim_now_us(sim) + RUN_LOOK_US, run_on_look, sim, 0);
}

static void run_take_apart(struct sim *sim)
{
	for (uint32_t rank = 0; rank < sim->config.world_size; rank++) {
		node_crash(&sim->nodes[rank]);
	}
	net_settle(sim->net);
	if (net_buffers(sim->net) != 0) {
		trace_fail("%llu payloads were never let go of", (unsigned long long)net_buffers(sim->net));
	}
	referee_end(sim->referee);
	referee_free(sim->referee);
	for (uint32_t m = 0; m < sim->model_count; m++) {
		for (uint32_t rank = 0; rank < sim->config.world_size; rank++) {
			trainer_free(sim->trainers[m][rank]);
		}
	}
	while (sim->lives) {
		struct life *life = sim->lives;
		sim->lives = life->next;
		oracle_free(life->oracle);
		free(life);
	}
	net_free(sim->net);
}

void sim_run(const struct sim_config *config, struct sim_clock *clock)
{
	struct sim *sim = memory_zeroed(sizeof(*sim));
	assert(config->world_size >= 1 && config->world_size <= SIM_WORLD_MAX);
	sim->config = *config;
	sim->clock = clock;
	run_make(sim);
	run_start(sim);
	sim_clock_at(sim->clock, RUN_LOOK_US, run_on_look, sim, 0);
	while (!run_is_over(sim)) {
		for (unsigned i = 0; i < 64; i++) {
			sim_clock_step(sim->clock);
		}
	}
	run_take_apart(sim);
	free(sim);
}
