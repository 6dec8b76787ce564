/*
 * What a run trains: the models of a seed, their units and parameters, and every number that a trainer writes, as pure
 * functions of the seed. Immutable after workload_init.
 */
#ifndef TESTS_SIM_WORKLOAD_H
#define TESTS_SIM_WORKLOAD_H

#include "daemon/group/group.h"
#include "tests/sim/dice.h"

#define WORKLOAD_UNITS_MAX 6
#define WORKLOAD_PARAMS_MAX 3

struct workload_unit {
	uint32_t param_count;
	uint64_t counts[WORKLOAD_PARAMS_MAX]; /* elements */
	uint32_t groups[WORKLOAD_PARAMS_MAX];
	uint64_t total;
};

struct workload {
	char name[16];
	uint64_t seed;
	uint32_t unit_count;
	struct workload_unit units[WORKLOAD_UNITS_MAX]; /* canonical order: "u0", "u1", ... */
	struct manifest_options options;
	uint64_t steps; /* so many are committed */
	bool wild;      /* some gradients are not finite */
	bool scaled;    /* there is a loss scale */
};

void workload_init(struct workload *workload, uint32_t index, uint64_t seed, uint32_t world_size);

/* The sealed manifest of a trainer that registers units in `order` (canonical indices). odd: as a trainer registers it
 * that has another opinion of the model, by so many elements; else 0. */
struct manifest *workload_manifest(const struct workload *workload, const uint32_t *order, uint64_t odd);

/* life: which try of the whole training; a model that was dropped begins another. */
float workload_initial(const struct workload *workload, uint64_t life, uint32_t unit, uint64_t element);

struct workload_place { /* of one contribution */
	uint64_t life, step;
	uint32_t attempt, micro_batch, rank, unit;
};
void workload_gradient(const struct workload *workload, const struct workload_place *place, float *ret_values);

/* In that step every weight is 0. */
bool workload_is_weightless(const struct workload *workload, uint64_t life, uint64_t step);
enum step_commit workload_commit(const struct workload *workload, uint64_t life, uint64_t step);
struct optimizer_options workload_step_options(const struct workload *workload, uint64_t life, uint64_t step);
/* Another learning rate for each of some groups. */
struct optimizer_groups workload_step_groups(const struct workload *workload, uint64_t life, uint64_t step);
/* The loss scale is the oracle's to know. */
struct step_rules workload_step_rules(const struct workload *workload, uint64_t life, uint64_t step, double loss_scale);
/* Whether the trainers ask for the norm of that step's gradient. */
bool workload_asks_norm(const struct workload *workload, uint64_t life, uint64_t step);
float workload_staging(const struct workload *workload, uint64_t life, uint64_t step, uint32_t unit, uint64_t element);

/* The small all-reduces of a step: how many before its first gradient and how many after the sync, and what a rank
 * gives. */
uint32_t workload_all_reduces(const struct workload *workload, uint64_t life, uint64_t step, bool synced);
struct workload_all_reduce {
	uint32_t op; /* enum all_reduce_op */
	uint32_t count;
};
#define WORKLOAD_VALUES_MAX 5
struct workload_all_reduce workload_all_reduce(const struct workload *workload, uint64_t life, uint64_t step,
					       uint64_t number);
double workload_value(const struct workload *workload, uint64_t life, uint64_t step, uint64_t number, uint32_t rank,
		      uint32_t index);

/* The state that a rank gives to a step: so many bytes (0: none), of which each is a function of its place. */
#define WORKLOAD_STATE_MAX 300
size_t workload_state(const struct workload *workload, uint64_t life, uint64_t step, uint32_t rank,
		      unsigned char *ret_state);

#endif
