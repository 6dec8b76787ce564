/*
 * A few engines in one thread, over a transport of lists: nothing moves but when a test says so. Messages arrive in
 * order, whole, until a link is broken; what was on it is lost then. Larger jobs wait in a list, too.
 */
#ifndef TESTS_UNIT_ENGINE_CLUSTER_H
#define TESTS_UNIT_ENGINE_CLUSTER_H

#include "daemon/engine/engine.h"
#include "daemon/store/plan.h"

#define CLUSTER_NODES_MAX 4
#define CLUSTER_MODEL 7
#define CLUSTER_SLOT_BYTES (1u << 21)
#define CLUSTER_SLOTS 16

struct cluster_message {
	struct cluster_message *next;
	void *header;
	size_t header_size;
	struct buffer *payload;       /* a copy, as a network makes one */
	struct transport_piece piece; /* what the sender's transport holds until then */
};

struct cluster_link {
	bool connected, clogged, breaking;
	uint64_t connection;
	struct cluster_message *sent, *answers;
	void *stamped; /* the last header that was sent: its stamps are right */
	size_t stamped_size;
};

struct cluster_node {
	struct transport transport; /* first */
	struct executor executor;
	struct cluster *cluster;
	uint32_t rank;
	struct engine *engine;
	struct plan *plan;
	bool woken;
	struct job *jobs;
	struct report *reports; /* oldest first; linked by their letters */
	struct engine_counters counters;
	struct link_counters link_counters;
};

struct cluster {
	uint32_t size;
	uint64_t now_ms, next_connection, generation;
	bool jobs_held;
	double weight;           /* of the next contributions; 0: 1 */
	double loss_scale, clip; /* of the next decisions; a clip of 0: 1 */
	struct cluster_link links[CLUSTER_NODES_MAX][CLUSTER_NODES_MAX]; /* [from][to] */
	struct cluster_node nodes[CLUSTER_NODES_MAX];
};

struct cluster_options {
	uint32_t size;
	const uint64_t *units; /* elements; ends with CLUSTER_UNITS_END */
	enum reduce_op op;
	double scale;
	enum optimizer_kind optimizer;
	enum init_policy init;
	uint32_t init_rank;
	uint64_t chunk_bytes, window_bytes; /* 0: 4096 and 65536 */
};
#define CLUSTER_UNITS_END UINT64_MAX

/* Engines of one generation, linked, with one model of f32 units u0, u1, ... */
struct cluster *cluster_new(const struct cluster_options *options);
void cluster_free(struct cluster *cluster); /* stops the engines; asserts that they come to rest */

void cluster_run(struct cluster *cluster);  /* until nothing moves */
void cluster_tick(struct cluster *cluster); /* 100 ms later; then runs */
void cluster_break(struct cluster *cluster, uint32_t from, uint32_t to);
/* A message of a rank's choice on its link to another, stamped; as a peer that has lost its mind. */
void cluster_forge(struct cluster *cluster, uint32_t from, uint32_t to, struct peer_message *message,
		   const void *payload);

struct command *cluster_command(enum command_kind kind);
void cluster_give(struct cluster *cluster, uint32_t rank, struct command *command);
void cluster_give_all(struct cluster *cluster, const struct command *command); /* a copy to each; not of its lists */

/* Gives unit to every rank as version 1: element i is first + i. */
void cluster_load(struct cluster *cluster, uint32_t unit, float first);
/* A contribution of rank: element i is first + i * step. */
void cluster_reduce(struct cluster *cluster, uint32_t rank, uint32_t unit, uint32_t micro_batch, uint32_t slot,
		    float first, float step);
void cluster_reduce_in(struct cluster *cluster, uint32_t rank, uint32_t unit, uint64_t step, uint32_t attempt,
		       uint32_t micro_batch, uint32_t slot, float first, float each);
/* absent: "0110", a character a unit; NULL: none. */
void cluster_close(struct cluster *cluster, uint32_t rank, uint32_t micro_batch, const char *absent, bool last,
		   double weight);
void cluster_close_in(struct cluster *cluster, uint32_t rank, uint64_t step, uint32_t attempt, uint32_t micro_batch,
		      const char *absent, bool last, double weight);
void cluster_gather(struct cluster *cluster, uint32_t rank, uint32_t unit, uint32_t slot, uint64_t version);
void cluster_apply(struct cluster *cluster, uint64_t step, enum step_outcome outcome, enum step_commit commit,
		   double rate);
void cluster_apply_on(struct cluster *cluster, uint32_t rank, uint64_t step, enum step_outcome outcome,
		      enum step_commit commit, double rate, const char *present);

float *cluster_gathered(struct cluster *cluster, uint32_t rank, uint32_t slot);
float *cluster_slot(struct cluster *cluster, uint32_t rank, uint32_t slot);
/* The mean or sum at element i of the unit, wherever its owner has it. */
float cluster_gradient(struct cluster *cluster, uint32_t unit, uint64_t element);
float cluster_master(struct cluster *cluster, uint32_t unit, uint64_t element);

/* The oldest report of that kind of rank, taken out; NULL: none. Free it with report_free. */
struct report *cluster_take(struct cluster *cluster, uint32_t rank, enum report_kind kind);
unsigned cluster_count(struct cluster *cluster, uint32_t rank, enum report_kind kind); /* takes all of them */

#endif
