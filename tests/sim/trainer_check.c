/*
 * What a trainer looks at, and what it writes. Every comparison is with the oracle, bit for bit, and ends the run where
 * it fails. Owns nothing.
 */
#include "tests/sim/sim_trainer.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fsdp/error.h"
#include "tests/sim/tally.h"
#include "tests/sim/trace.h"

static const struct workload *trainer_workload(const struct trainer *trainer)
{
	return &trainer->sim->workloads[trainer->model];
}

static uint64_t trainer_total(const struct trainer *trainer, uint32_t unit)
{
	return trainer_workload(trainer)->units[unit].total;
}

/* NaNs are equal whatever their payload. Returns the first element that differs, or count. */
static uint64_t first_difference(const float *a, const float *b, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		if (memcmp(&a[i], &b[i], sizeof(a[i])) != 0 && !(isnan(a[i]) && isnan(b[i]))) {
			return i;
		}
	}
	return count;
}

void check_held(struct trainer *trainer, uint32_t unit, const char *when)
{
	const struct trainer_hold *hold = &trainer->holds[unit];
	uint64_t total = trainer_total(trainer, unit);
	const float *copy = (const float *)((const char *)plan_memory(trainer->plan)->gathers.base + hold->slot);
	const float *full = oracle_full(trainer->of->oracle, unit, hold->version);
	if (!full) {
		trace_fail("rank %u unsharded unit %u at version %" PRIu64 ", which never was", trainer->node->rank,
			   unit, hold->version);
	}
	uint64_t i = first_difference(copy, full, total);
	if (i < total) {
		trace_fail("rank %u, unit %u, version %" PRIu64 ", %s: element %" PRIu64
			   " of the copy is %a, the oracle's %a",
			   trainer->node->rank, unit, hold->version, when, i, (double)copy[i], (double)full[i]);
	}
}

void check_unsharded(struct trainer *trainer, uint32_t unit, const struct answer *answer, uint64_t step_then)
{
	const struct oracle *oracle = trainer->of->oracle;
	uint64_t least = oracle_version(oracle, unit, step_then);
	uint64_t most = oracle_version(oracle, unit, oracle_step(oracle));
	tally_count(TALLY_EVENT, EVENT_UNSHARDED);
	if (answer->version < least || answer->version > most) {
		trace_fail("rank %u unsharded unit %u at version %" PRIu64 "; %" PRIu64 " to %" PRIu64
			   " would be right",
			   trainer->node->rank, unit, answer->version, least, most);
	}
	uint64_t bytes = trainer_total(trainer, unit) * sizeof(float);
	if (answer->slot + bytes > plan_memory(trainer->plan)->gathers.bytes) {
		trace_fail("rank %u: gather slot %" PRIu64 " is outside of its pool", trainer->node->rank,
			   answer->slot);
	}
	trainer->holds[unit] = (struct trainer_hold){ .held = true, .slot = answer->slot, .version = answer->version };
	check_held(trainer, unit, "when it was given");
}

void check_gradients(struct trainer *trainer)
{
	if (trainer->step != oracle_step(trainer->of->oracle)) {
		trace_fail("rank %u synchronised step %" PRIu64 ", the group has committed %" PRIu64,
			   trainer->node->rank, trainer->step, oracle_step(trainer->of->oracle));
	}
	for (uint32_t unit = 0; unit < trainer_workload(trainer)->unit_count; unit++) {
		const struct range shard = plan_unit(trainer->plan, unit)->shard;
		const float *gradient = plan_gradient(trainer->plan, unit);
		oracle_mean(trainer->of->oracle, trainer->attempt, unit, trainer->scratch);
		uint64_t i = first_difference(gradient, trainer->scratch + shard.offset, shard.count);
		if (i < shard.count) {
			trace_fail("rank %u, unit %u: element %" PRIu64 " of the mean gradient is %a, the oracle's %a",
				   trainer->node->rank, unit, shard.offset + i, (double)gradient[i],
				   (double)trainer->scratch[shard.offset + i]);
		}
	}
	tally_count(TALLY_EVENT, EVENT_COMPARED_GRADIENT);
}

/* The oracle of the small all-reduce: the sum in rank order, or the extreme. */
static double expected_value(const struct trainer *trainer, uint32_t op, uint32_t index)
{
	const struct workload *workload = trainer_workload(trainer);
	uint64_t life = oracle_life(trainer->of->oracle);
	double result = workload_value(workload, life, trainer->step, trainer->all_reduce, 0, index);
	for (uint32_t rank = 1; rank < trainer->sim->config.world_size; rank++) {
		double value = workload_value(workload, life, trainer->step, trainer->all_reduce, rank, index);
		if (op == ALL_REDUCE_SUM) {
			result = result + value;
		} else if (isnan(value) || isnan(result)) {
			result = (double)NAN;
		} else if (op == ALL_REDUCE_MAX ? value > result : value < result) {
			result = value;
		}
	}
	return result;
}

void check_all_reduce(struct trainer *trainer, const struct answer *answer)
{
	struct workload_all_reduce asked = workload_all_reduce(
		trainer_workload(trainer), oracle_life(trainer->of->oracle), trainer->step, trainer->all_reduce);
	if (answer->value_count != asked.count) {
		trace_fail("rank %u, all-reduce %" PRIu64 " of step %" PRIu64 ": %u values come for %u",
			   trainer->node->rank, trainer->all_reduce, trainer->step, answer->value_count, asked.count);
	}
	for (uint32_t i = 0; i < asked.count; i++) {
		double expected = expected_value(trainer, asked.op, i);
		if (memcmp(&answer->values[i], &expected, sizeof(expected)) != 0 &&
		    !(isnan(answer->values[i]) && isnan(expected))) {
			trace_fail("rank %u, all-reduce %" PRIu64 " of step %" PRIu64
				   ": value %u is %a, the oracle's %a",
				   trainer->node->rank, trainer->all_reduce, trainer->step, i, answer->values[i],
				   expected);
		}
	}
	tally_count(TALLY_EVENT, EVENT_ALL_REDUCED);
}

void check_state(struct trainer *trainer)
{
	unsigned char expected[WORKLOAD_STATE_MAX];
	char text[CALL_TEXT_MAX];
	struct buffer *state;
	uint64_t step;
	size_t size = 0;
	if (worker_state(trainer->worker, &state, &step, text) < 0) {
		return;
	}
	if (step != trainer->step) {
		trace_fail("rank %u plans step %" PRIu64 ", its daemon is in %" PRIu64, trainer->node->rank,
			   trainer->step, step);
	}
	if (step > 0) {
		size = workload_state(trainer_workload(trainer), oracle_life(trainer->of->oracle), step - 1,
				      trainer->node->rank, expected);
	}
	if ((state ? buffer_size(state) : 0) != size || (state && memcmp(buffer_data(state), expected, size) != 0)) {
		trace_fail("rank %u: the state after step %" PRIu64 " is not what was given to it", trainer->node->rank,
			   step);
	}
	tally_count(TALLY_EVENT, EVENT_COMPARED_STATE);
}

static bool same_double(double a, double b)
{
	return memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b));
}

void check_norm(struct trainer *trainer, enum norm_kind kind, const struct answer *answer)
{
	bool finite;
	double norm = oracle_norm(trainer->of->oracle, trainer->attempt, kind, &finite);
	if (!same_double(answer->norm, norm) || answer->finite != finite) {
		trace_fail("rank %u: the norm of step %" PRIu64 " is %a, the oracle's %a", trainer->node->rank,
			   trainer->step, answer->norm, norm);
	}
	tally_count(TALLY_EVENT, EVENT_COMPARED_NORM);
}

void check_step(struct trainer *trainer, const struct answer *answer)
{
	const struct oracle_result *result = oracle_result(trainer->of->oracle, trainer->step - 1);
	uint32_t bad = 0, count = 0;
	for (uint32_t u = 0; u < trainer_workload(trainer)->unit_count; u++) {
		count += result->bad >> u & 1;
	}
	for (uint32_t i = 0; i < answer->bad_count && i < ANSWER_UNITS_MAX; i++) {
		bad |= 1u << trainer->order[answer->bad[i]];
	}
	if (answer->outcome != result->outcome || !same_double(answer->norm, result->norm) ||
	    answer->next_scale != result->next_scale || answer->bad_count != count || bad != result->bad ||
	    (answer->code != 0) != result->at_floor) {
		trace_fail("rank %u: step %" PRIu64
			   " ended with outcome %d, norm %a, scale %g, units %#x, code %d; the oracle says %d, %a, %g, "
			   "%#x, at the floor: %d",
			   trainer->node->rank, trainer->step - 1, (int)answer->outcome, answer->norm,
			   answer->next_scale, bad, answer->code, (int)result->outcome, result->norm,
			   result->next_scale, result->bad, result->at_floor);
	}
	tally_count(TALLY_EVENT, result->at_floor ? EVENT_AT_FLOOR : EVENT_COMPARED_STEP);
}

bool check_floor(struct trainer *trainer, const struct trainer_call *call, const struct answer *answer)
{
	const struct oracle *oracle = trainer->of ? trainer->of->oracle : NULL;
	return answer->code == FSDP_E_STATE && call->act == ACT_STEP && oracle && call->step < oracle_step(oracle) &&
	       oracle_result(oracle, call->step)->at_floor;
}

void check_shard(struct trainer *trainer, uint32_t unit)
{
	const struct oracle *oracle = trainer->of->oracle;
	const struct range shard = plan_unit(trainer->plan, unit)->shard;
	const float *full = oracle_full(oracle, unit, oracle_version(oracle, unit, trainer->step));
	uint64_t i = first_difference(plan_master(trainer->plan, unit), full + shard.offset, shard.count);
	if (i < shard.count) {
		trace_fail("rank %u, unit %u: element %" PRIu64 " of the shard after step %" PRIu64
			   " is not the oracle's",
			   trainer->node->rank, unit, shard.offset + i, trainer->step);
	}
}

static float *trainer_slot(const struct trainer *trainer, uint32_t unit)
{
	assert(trainer->has_slot[unit]);
	return (float *)((char *)plan_memory(trainer->plan)->grads.base + trainer->slots[unit]);
}

static struct workload_place trainer_place(const struct trainer *trainer, uint32_t unit)
{
	return (struct workload_place){ oracle_life(trainer->of->oracle),
					trainer->step,
					trainer->attempt,
					trainer->micro_batch,
					trainer->node->rank,
					unit };
}

void fill_slot(struct trainer *trainer, uint32_t unit)
{
	struct workload_place place = trainer_place(trainer, unit);
	workload_gradient(trainer_workload(trainer), &place, trainer_slot(trainer, unit));
}

void check_slot(struct trainer *trainer, uint32_t unit)
{
	struct workload_place place = trainer_place(trainer, unit);
	uint64_t total = trainer_total(trainer, unit);
	workload_gradient(trainer_workload(trainer), &place, trainer->scratch);
	if (first_difference(trainer_slot(trainer, unit), trainer->scratch, total) < total) {
		trace_fail("rank %u, unit %u: somebody wrote into a gradient slot that was not handed over",
			   trainer->node->rank, unit);
	}
}

void fill_initial(struct trainer *trainer, uint32_t unit, bool wrong)
{
	float *values = trainer_slot(trainer, unit);
	uint64_t total = trainer_total(trainer, unit);
	for (uint64_t i = 0; i < total; i++) {
		values[i] = workload_initial(trainer_workload(trainer), oracle_life(trainer->of->oracle), unit, i);
	}
	if (wrong && total > 0) {
		values[total - 1] += 1.0f + (float)trainer->node->rank;
	} else {
		trainer->of->loaded[trainer->node->rank][unit] = true;
	}
}

void fill_staging(struct trainer *trainer)
{
	for (uint32_t unit = 0; unit < trainer_workload(trainer)->unit_count; unit++) {
		const struct range shard = plan_unit(trainer->plan, unit)->shard;
		float *staging = plan_staging(trainer->plan, unit);
		for (uint64_t i = 0; i < shard.count; i++) {
			staging[i] = workload_staging(trainer_workload(trainer), oracle_life(trainer->of->oracle),
						      trainer->step, unit, shard.offset + i);
		}
	}
}

static void check_code(struct trainer *trainer, const struct trainer_call *call, const struct answer *answer)
{
	const struct sim *sim = trainer->sim;
	uint64_t now_us = sim_now_us(sim);
	bool surprise =
		(answer->code == FSDP_E_PEER_LOST && now_us > sim->gone_until_us) ||
		((answer->code == FSDP_E_TIMEOUT || answer->code == FSDP_E_IN_DOUBT) && now_us > sim->slow_until_us);
	if (surprise ||
	    (sim->calm && answer->code != 0 && !check_floor(trainer, call, answer) && answer->code != FSDP_E_BUDGET)) {
		trace_fail("rank %u, call %d: code %d where nothing explains it: %s", trainer->node->rank,
			   (int)call->act, answer->code, answer->text);
	}
	if (answer->code != 0 && (!answer->text || !answer->text[0])) {
		trace_fail("rank %u, call %d: code %d without a word", trainer->node->rank, (int)call->act,
			   answer->code);
	}
	bool named = answer->code != FSDP_E_LOST;
	for (uint32_t rank = 0; rank < sim->config.world_size && !named; rank++) {
		char name[16];
		snprintf(name, sizeof(name), "rank %u", rank);
		named = sim->crashed[rank] && strstr(answer->text, name);
	}
	if (!named) {
		trace_fail("rank %u: the model is lost, but no rank that lost it is named: %s", trainer->node->rank,
			   answer->text);
	}
}

void check_call(struct trainer *trainer, const struct trainer_call *call, const struct answer *answer)
{
	uint64_t took_ms = (sim_now_us(trainer->sim) - call->started_us) / 1000;
	if (took_ms > call->deadline_ms + SIM_SLACK_MS) {
		trace_fail("rank %u, call %d: answered (%d) after %" PRIu64 " ms, its deadline was %" PRIu64,
			   trainer->node->rank, (int)call->act, answer->code, took_ms, call->deadline_ms);
	}
	check_code(trainer, call, answer);
}
