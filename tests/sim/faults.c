/*
 * The faults of a run, drawn from its seed before it begins: a list of moments, each with one row of the table. What a
 * fault needs to end by itself (a node that starts again, a link that is as before) it puts on the clock too. Owns the
 * list on the clock.
 */
#include "tests/sim/faults.h"

#include "tests/sim/memory.h"
#include "tests/sim/sim.h"
#include "tests/sim/sim_trainer.h"
#include "tests/sim/tally.h"
#include "tests/sim/trace.h"

#define MS 1000u
#define FAULTS_MAX 12u

typedef void fault_run(struct sim *sim);

struct fault_row {
	const char *name;
	unsigned weight;
	uint32_t least;
	fault_run *run;
};

#define FAULT_DECLARE(name, weight, least, function) static fault_run function;
FAULTS(FAULT_DECLARE)
#undef FAULT_DECLARE

static const struct fault_row rows[FAULT_KINDS] = {
#define FAULT_ROW(name, weight, least, function) [FAULT_##name] = { #name, weight, least, function },
	FAULTS(FAULT_ROW)
#undef FAULT_ROW
};

/* ---- Who and how long ---- */

struct faults_pair {
	enum plane plane;
	uint32_t from, to;
};

static struct faults_pair faults_any_pair(struct sim *sim)
{
	uint32_t world = sim->config.world_size;
	struct faults_pair pair = { .plane = (enum plane)dice_below(&sim->dice, PLANES),
				    .from = (uint32_t)dice_below(&sim->dice, world) };
	pair.to = (pair.from + 1 + (uint32_t)dice_below(&sim->dice, world - 1)) % world;
	return pair;
}

static struct trainer *faults_any_trainer(struct sim *sim)
{
	return sim->trainers[dice_below(&sim->dice, sim->model_count)][dice_below(&sim->dice, sim->config.world_size)];
}

static void faults_extend(uint64_t *until_us, uint64_t at_us)
{
	*until_us = at_us > *until_us ? at_us : *until_us;
}

/* Deadlines may be missed until then, by those who began to wait while it lasted. What is short explains nothing: calls
 * wait longer. */
static void faults_slow(struct sim *sim, uint64_t lasts_us)
{
	if (lasts_us > sim->operation_ms * MS / 3) {
		faults_extend(&sim->slow_until_us, sim_now_us(sim) + lasts_us + sim->operation_ms * MS * 3 / 2);
	}
}

static void faults_gone(struct sim *sim, uint64_t lasts_us)
{
	faults_slow(sim, lasts_us);
	faults_extend(&sim->gone_until_us, sim_now_us(sim) + lasts_us + 2 * sim->operation_ms * MS);
}

/* ---- Links ---- */

static void faults_on_normal(void *context, uint64_t argument)
{
	struct sim *sim = context;
	uint32_t world = sim->config.world_size;
	uint32_t to = (uint32_t)(argument % world), from = (uint32_t)(argument / world % world);
	enum plane plane = (enum plane)(argument / world / world);
	net_slow(sim->net, plane, from, to, 0);
	net_limit(sim->net, plane, from, to, 0);
}

static void faults_normal_in(struct sim *sim, struct faults_pair pair, uint64_t delay_us)
{
	uint32_t world = sim->config.world_size;
	sim_clock_at(sim->clock, sim_now_us(sim) + delay_us, faults_on_normal, sim,
		     ((uint64_t)pair.plane * world + pair.from) * world + pair.to);
}

static void faults_slow_link(struct sim *sim)
{
	struct faults_pair pair = faults_any_pair(sim);
	net_slow(sim->net, pair.plane, pair.from, pair.to, dice_between(&sim->dice, 5 * MS, 60 * MS));
	faults_normal_in(sim, pair, dice_between(&sim->dice, 200 * MS, 1500 * MS));
	faults_slow(sim, 1500 * MS);
}

static void faults_clog(struct sim *sim)
{
	struct faults_pair pair = faults_any_pair(sim);
	uint64_t most = pair.plane == PLANE_BULK ? 2000 * MS : sim->grace_ms * MS / 2;
	uint64_t lasts = dice_between(&sim->dice, 50 * MS, most);
	net_clog(sim->net, pair.plane, pair.from, pair.to, sim_now_us(sim) + lasts);
	faults_slow(sim, lasts);
}

static void faults_break(struct sim *sim)
{
	struct faults_pair pair = faults_any_pair(sim);
	net_break(sim->net, pair.plane, pair.from, pair.to, 0, 0);
}

/* What was said and its acknowledgement are lost together, so it is said twice. */
static void faults_break_both(struct sim *sim)
{
	struct faults_pair pair = faults_any_pair(sim);
	net_break(sim->net, pair.plane, pair.from, pair.to, 0, 0);
	net_break(sim->net, pair.plane, pair.to, pair.from, 0, 0);
}

static void faults_on_flap(void *context, uint64_t argument)
{
	struct sim *sim = context;
	uint32_t a = (uint32_t)(argument % SIM_WORLD_MAX), b = (uint32_t)(argument / SIM_WORLD_MAX);
	net_break(sim->net, PLANE_BULK, a, b, 5 * MS, 0);
	net_break(sim->net, PLANE_BULK, b, a, 5 * MS, 0);
}

/* The bulk links of a pair break again and again. Returns how long that lasts. */
static uint64_t faults_flap(struct sim *sim, uint32_t a, uint32_t b)
{
	uint64_t lasts_us = 0;
	for (uint64_t breaks = dice_between(&sim->dice, 4, 12); breaks > 0; breaks--) {
		lasts_us += dice_between(&sim->dice, 20 * MS, 150 * MS);
		sim_clock_at(sim->clock, sim_now_us(sim) + lasts_us, faults_on_flap, sim,
			     a + (uint64_t)b * SIM_WORLD_MAX);
	}
	return lasts_us;
}

static void faults_flapping(struct sim *sim)
{
	struct faults_pair pair = faults_any_pair(sim);
	faults_flap(sim, pair.from, pair.to);
}

/* What the others push waits for the sleeper's own part, fills its windows, and is lost. */
static void faults_flap_asleep(struct sim *sim)
{
	uint32_t rank = (uint32_t)dice_below(&sim->dice, sim->config.world_size);
	uint64_t lasts_us = 0;
	for (uint32_t other = 0; other < sim->config.world_size; other++) {
		uint64_t one_us = other == rank ? 0 : faults_flap(sim, rank, other);
		lasts_us = one_us > lasts_us ? one_us : lasts_us;
	}
	for (uint32_t m = 0; m < sim->model_count; m++) {
		sim->trainers[m][rank]->sleep_us = lasts_us;
	}
}

static void faults_break_late(struct sim *sim)
{
	struct faults_pair pair = faults_any_pair(sim);
	net_break(sim->net, pair.plane, pair.from, pair.to, 150 * MS, 0);
}

static void faults_break_refused(struct sim *sim)
{
	struct faults_pair pair = faults_any_pair(sim);
	uint64_t most = pair.plane == PLANE_BULK ? 1500 * MS : sim->grace_ms * MS / 3;
	uint64_t lasts = dice_between(&sim->dice, 20 * MS, most);
	net_break(sim->net, pair.plane, pair.from, pair.to, 50 * MS, sim_now_us(sim) + lasts);
	faults_slow(sim, lasts);
}

static void faults_queue_full(struct sim *sim)
{
	struct faults_pair pair = faults_any_pair(sim);
	uint64_t lasts = dice_between(&sim->dice, 50 * MS, 800 * MS);
	net_limit(sim->net, pair.plane, pair.from, pair.to, (unsigned)dice_between(&sim->dice, 1, 6));
	net_slow(sim->net, pair.plane, pair.from, pair.to, 10 * MS);
	faults_normal_in(sim, pair, lasts);
	faults_slow(sim, lasts);
}

/* ---- Partitions: some ranks do not reach the others, either way, on both planes ---- */

static void faults_part(struct sim *sim, uint64_t lasts_us, bool alone)
{
	uint32_t world = sim->config.world_size;
	bool stalls = dice_chance(&sim->dice, 500);
	uint64_t until_us = sim_now_us(sim) + lasts_us;
	uint32_t first = (uint32_t)dice_below(&sim->dice, world);
	uint32_t count = alone ? 1 : (uint32_t)dice_between(&sim->dice, 1, world / 2 + (world == 1));
	for (uint32_t a = 0; a < world; a++) {
		for (uint32_t b = 0; b < world; b++) {
			bool inside_a = (a + world - first) % world < count,
			     inside_b = (b + world - first) % world < count;
			for (enum plane plane = 0; plane < PLANES && inside_a != inside_b; plane++) {
				if (stalls) {
					net_clog(sim->net, plane, a, b, until_us);
				} else {
					net_break(sim->net, plane, a, b, 100 * MS, until_us);
				}
			}
		}
	}
	trace_note("a partition of # ranks from # on, for # ms", count, first, lasts_us / MS);
}

static void faults_short(struct sim *sim)
{
	uint64_t lasts = dice_between(&sim->dice, 20 * MS, sim->suspicion_ms * MS / 2);
	faults_part(sim, lasts, false);
	faults_slow(sim, lasts);
}

static void faults_suspect(struct sim *sim)
{
	uint64_t lasts = sim->suspicion_ms * MS + dice_below(&sim->dice, sim->grace_ms * MS / 2);
	faults_part(sim, lasts, false);
	faults_gone(sim, lasts);
}

static void faults_long(struct sim *sim)
{
	uint64_t least = (sim->suspicion_ms + sim->grace_ms) * MS * 5 / 4;
	uint64_t lasts = least + dice_below(&sim->dice, sim->operation_ms * MS / 2);
	faults_part(sim, lasts, false);
	faults_gone(sim, lasts);
}

/* The coordinator alone, longer than a call may wait. */
static void faults_doubt(struct sim *sim)
{
	uint64_t lasts = sim->operation_ms * MS * 5 / 4;
	faults_part(sim, lasts, true);
	faults_gone(sim, lasts);
}

/* ---- Nodes ---- */

static void faults_on_start(void *context, uint64_t rank)
{
	struct sim *sim = context;
	node_start(&sim->nodes[rank]);
}

static void faults_crash(struct sim *sim, uint64_t away_us)
{
	uint32_t rank = (uint32_t)dice_below(&sim->dice, sim->config.world_size);
	struct node *node = &sim->nodes[rank];
	if (!node->alive) {
		return;
	}
	for (uint32_t m = 0; m < sim->model_count; m++) {
		trainer_kill(sim->trainers[m][rank], away_us + dice_below(&sim->dice, 200 * MS));
	}
	sim->crashed[rank] = true;
	for (struct life *life = sim->lives; life; life = life->next) {
		life->lost[rank] = true;
	}
	node_crash(node);
	sim_clock_at(sim->clock, sim_now_us(sim) + away_us, faults_on_start, sim, rank);
	faults_gone(sim, away_us + sim->grace_ms * MS);
}

static void faults_crash_quick(struct sim *sim)
{
	faults_crash(sim, dice_between(&sim->dice, 10 * MS, sim->suspicion_ms * MS));
}

static void faults_crash_slow(struct sim *sim)
{
	faults_crash(sim, (sim->suspicion_ms + sim->grace_ms) * MS + dice_below(&sim->dice, 2000 * MS));
}

static void faults_stalled_jobs(struct sim *sim)
{
	struct node *node = &sim->nodes[dice_below(&sim->dice, sim->config.world_size)];
	uint64_t lasts = dice_between(&sim->dice, 100 * MS, 1500 * MS);
	faults_extend(&node->executor.stalled_until_us, sim_now_us(sim) + lasts);
	faults_slow(sim, lasts);
}

/* ---- Trainers and operators ---- */

static void faults_death(struct sim *sim)
{
	trainer_kill(faults_any_trainer(sim), dice_between(&sim->dice, 5 * MS, 500 * MS));
}

static void faults_sleep(struct sim *sim)
{
	uint64_t lasts = sim->operation_ms * MS * dice_between(&sim->dice, 60, 150) / 100;
	faults_any_trainer(sim)->sleep_us = lasts;
	faults_slow(sim, lasts);
}

static void faults_trainer_abort(struct sim *sim)
{
	faults_any_trainer(sim)->wants_abort = true;
}

static void faults_operator_abort(struct sim *sim)
{
	operator_abort(sim, (uint32_t)dice_below(&sim->dice, sim->config.world_size),
		       (uint32_t)dice_below(&sim->dice, sim->model_count));
}

static void faults_operator_drop(struct sim *sim)
{
	operator_drop(sim, (uint32_t)dice_below(&sim->dice, sim->config.world_size),
		      (uint32_t)dice_below(&sim->dice, sim->model_count));
}

static void faults_other_options(struct sim *sim)
{
	faults_any_trainer(sim)->other_options = true;
}

/* The next three are of use only where something is sealed or loaded: at the beginning, or with another process. */
static struct trainer *faults_new_trainer(struct sim *sim)
{
	struct trainer *trainer = faults_any_trainer(sim);
	if (trainer_attached(trainer) && trainer->state != TRAINER_ATTACHING) {
		trainer_kill(trainer, dice_between(&sim->dice, 5 * MS, 50 * MS));
	}
	return trainer;
}

static void faults_other_values(struct sim *sim)
{
	faults_new_trainer(sim)->other_values = true;
}

static void faults_other_manifest(struct sim *sim)
{
	faults_new_trainer(sim)->odd_manifest = true;
}

static void faults_cannot_seal(struct sim *sim)
{
	faults_new_trainer(sim)->cannot_seal = true;
}

static void faults_short_deadline(struct sim *sim)
{
	faults_any_trainer(sim)->short_deadline_ms = dice_between(&sim->dice, 20, 400);
	faults_slow(sim, sim->operation_ms * MS / 2);
}

/* ---- The plan ---- */

static void faults_on_fault(void *context, uint64_t kind)
{
	struct sim *sim = context;
	trace_text("fault @", rows[kind].name);
	tally_count(TALLY_FAULT, (unsigned)kind);
	rows[kind].run(sim);
}

static enum fault_kind faults_draw(struct sim *sim)
{
	unsigned total = 0;
	for (unsigned kind = 0; kind < FAULT_KINDS; kind++) {
		total += sim->config.world_size >= rows[kind].least ? rows[kind].weight : 0;
	}
	unsigned chance = (unsigned)dice_below(&sim->dice, total);
	for (unsigned kind = 0;; kind++) {
		unsigned weight = sim->config.world_size >= rows[kind].least ? rows[kind].weight : 0;
		if (chance < weight) {
			return (enum fault_kind)kind;
		}
		chance -= weight;
	}
}

/* A loaded model, a seal that others wait for: these matter in the first moments, when every model is made. */
static uint64_t faults_when(struct sim *sim, enum fault_kind kind)
{
	bool early = kind == FAULT_OTHER_VALUES || kind == FAULT_OTHER_MANIFEST || kind == FAULT_CANNOT_SEAL;
	return early && dice_chance(&sim->dice, 800) ? dice_below(&sim->dice, 400 * MS)
						     : dice_below(&sim->dice, sim->faults_end_us);
}

void faults_plan(struct sim *sim)
{
	if (sim->calm) {
		return;
	}
	uint64_t count = dice_between(&sim->dice, 1, FAULTS_MAX);
	for (uint64_t i = 0; i < count; i++) {
		enum fault_kind kind = faults_draw(sim);
		sim->liars |= kind == FAULT_OTHER_VALUES;
		sim_clock_at(sim->clock, faults_when(sim, kind), faults_on_fault, sim, kind);
	}
}
