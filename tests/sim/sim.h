/*
 * One run: a whole cluster in one thread under a virtual clock and a seed. What the parts of the simulation share is
 * here: the run, its nodes, its lives (one try of one model's training), and how each part is reached. Everything but
 * the oracle's numbers hangs on struct sim, which one run owns.
 */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include "daemon/engine/engine.h"
#include "daemon/group/group.h"
#include "tests/sim/oracle.h"
#include "tests/sim/sim_transport.h"
#include "tests/sim/workload.h"

#define SIM_WORLD_MAX 64
#define SIM_MODELS_MAX 2
#define SIM_UNITS WORKLOAD_UNITS_MAX
#define SIM_EPOCH_MS 1000000u   /* what the clock shows when a run begins */
#define SIM_LIMIT_US 400000000u /* a run that is not over by then hangs */
#define SIM_SLACK_MS 1500u      /* a call may end so long after its deadline */

struct sim;
struct trainer;
struct referee;

/* ---- The executor: jobs run some time after they are submitted, and are done some time later ---- */

struct sim_task;
struct sim_executor {
	struct executor executor; /* first */
	struct sim *sim;
	struct sim_task *tasks; /* not done */
	uint64_t stalled_until_us;
};
void sim_executor_init(struct sim_executor *executor, struct sim *sim);
void sim_executor_flush(struct sim_executor *executor); /* runs and ends everything now */

/* ---- Nodes ---- */

struct node_model { /* of which the engine holds memory */
	struct node_model *next;
	uint64_t model;
	struct plan *plan;
};

struct node_slot { /* of a gradient pool, given to a trainer and not returned */
	struct node_slot *next;
	uint64_t model, offset, bytes;
	struct plan *plan;
};

struct node {
	struct sim *sim;
	uint32_t rank;
	bool alive;
	uint64_t life; /* counts starts */
	uint64_t incarnation;
	struct group *group;
	struct engine *engine;
	struct sim_executor executor;
	struct letter *commands, **commands_end, *reports, **reports_end;
	uint64_t command_us, report_us; /* when the last one arrives */
	bool wake_armed;
	uint64_t bulk_generation; /* as the engine was told */
	struct node_model *models;
	struct node_slot *slots;
	struct link_counters link_counters[PLANES];
	struct engine_counters engine_counters;
	uint8_t peer_states[SIM_WORLD_MAX], model_states[SIM_MODELS_MAX];
};

void node_start(struct node *node);
/* No goodbye: its memory is freed and its peers only notice. Its trainers must be gone. */
void node_crash(struct node *node);
/* Asks the engine to drop everything; true when it has. */
bool node_is_stopped(struct node *node);
const struct plan *node_plan(const struct node *node, uint64_t model);
/* A slot was given to a trainer: checks that nobody holds it. Fills it with poison. */
void node_slot_given(struct node *node, uint64_t model, struct plan *plan, uint64_t offset, uint64_t bytes);
void poison(void *memory, size_t size);

/* ---- Lives ---- */

struct life {
	struct life *next;
	uint64_t model;
	uint32_t workload;
	struct oracle *oracle;
	bool lost[SIM_WORLD_MAX];              /* this rank crashed while the life went on */
	bool over;                             /* a trainer was told that it is lost or dropped */
	bool loaded[SIM_WORLD_MAX][SIM_UNITS]; /* handed over with the right values */
	struct life_closed {                   /* micro-batches that a rank has ended, in its newest attempt */
		uint64_t step;
		uint32_t attempt, count;
		bool last;
	} closed[SIM_WORLD_MAX];
	/* what the coordinator has heard and decided */
	bool voted[SIM_WORLD_MAX];
	uint64_t vote_step[SIM_WORLD_MAX];
	uint32_t vote_attempt[SIM_WORLD_MAX];
	uint32_t attempt; /* of the present step, by the aborts that were decided */
};

struct life *sim_life(struct sim *sim, uint64_t model); /* NULL: not known */
struct life *sim_life_make(struct sim *sim, uint64_t model, const char *name);

/* ---- The run ---- */

struct sim_config {
	uint64_t seed;
	uint32_t world_size;
};

struct sim {
	struct sim_config config;
	struct sim_clock *clock;
	struct dice dice; /* of everything but the network and the trainers */
	struct net *net;
	uint32_t model_count;
	struct workload workloads[SIM_MODELS_MAX];
	struct node nodes[SIM_WORLD_MAX];
	struct trainer *trainers[SIM_MODELS_MAX][SIM_WORLD_MAX];
	struct life *lives;
	uint64_t life_count[SIM_MODELS_MAX];
	struct referee *referee;
	uint64_t window_bytes, chunk_bytes, inline_bytes;
	uint64_t operation_ms, grace_ms, heartbeat_ms, suspicion_ms, tick_us;
	uint64_t queue_us; /* a command or report takes at most so long */
	bool liars;        /* a fault makes a trainer load other values */
	bool calm;         /* no faults, so no errors */
	bool keeps;        /* at the end trainers detach and the operator drops, instead of a close by all */
	uint64_t faults_end_us;
	uint64_t gone_until_us, slow_until_us; /* until then a lost peer, a missed deadline are no surprise */
	bool crashed[SIM_WORLD_MAX];           /* ever */
	bool closing;                          /* everything was trained and compared */
	bool dropping[SIM_MODELS_MAX];         /* an operator's call waits */
};

static inline uint64_t sim_now_us(const struct sim *sim)
{
	return sim_clock_now(sim->clock);
}

static inline uint64_t sim_now_ms(const struct sim *sim)
{
	return SIM_EPOCH_MS + sim_clock_now(sim->clock) / 1000;
}

/* One whole run on a fresh clock; ends the program where something is wrong. */
void sim_run(const struct sim_config *config, struct sim_clock *clock);

/* ---- The referee: what must hold on the wire and between group and engine ---- */

struct referee *referee_new(struct sim *sim);
void referee_free(struct referee *referee);
struct net_watch referee_watch(struct referee *referee);
void referee_command(struct referee *referee, struct node *node, const struct command *command); /* as it is given */
void referee_report(struct referee *referee, struct node *node, const struct report *report);    /* as it is given */
void referee_stepped(struct referee *referee, uint32_t rank, uint64_t model, uint64_t step, uint32_t attempt);
void referee_end(struct referee *referee); /* counters that must be zero; adds the others to the tally */

/* ---- The operator ---- */

void operator_begin(struct sim *sim); /* drops what is lost, and everything when the run closes */
void operator_abort(struct sim *sim, uint32_t rank, uint32_t workload);
void operator_drop(struct sim *sim, uint32_t rank, uint32_t workload);

#endif
