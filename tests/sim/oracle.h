/*
 * The serial oracle of one life of one model: the whole training in plain loops over full vectors, with its own sums
 * and its own update rules, and no code of the daemon's. Trainers tell it what they handed over; it knows what must
 * come out, bit for bit.
 */
#ifndef TESTS_SIM_ORACLE_H
#define TESTS_SIM_ORACLE_H

#include "tests/sim/workload.h"

#define ORACLE_MICRO_BATCHES_MAX 8

struct oracle;

struct oracle *oracle_new(const struct workload *workload, uint64_t life, uint32_t world_size);
void oracle_free(struct oracle *oracle);

uint64_t oracle_life(const struct oracle *oracle);
uint64_t oracle_step(const struct oracle *oracle); /* committed so far */

/* A rank has handed this over. */
void oracle_contribute(struct oracle *oracle, uint64_t step, uint32_t attempt, uint32_t micro_batch, uint32_t rank,
		       uint32_t unit);
bool oracle_has(const struct oracle *oracle, uint64_t step, uint32_t attempt, uint32_t micro_batch, uint32_t rank,
		uint32_t unit);
/* A rank has set the weight of its micro-batch; 1 where it has not. */
void oracle_weigh(struct oracle *oracle, uint64_t step, uint32_t attempt, uint32_t micro_batch, uint32_t rank,
		  double weight);
/* A rank begins the attempt again: its new trainer was told that nothing of the old one is there. */
void oracle_forget(struct oracle *oracle, uint64_t step, uint32_t attempt, uint32_t rank);

/* The mean (or scaled sum) of the present step in that attempt. Returns whether it is all finite. */
bool oracle_mean(const struct oracle *oracle, uint32_t attempt, uint32_t unit, float *ret_values);

/* The norm of that, over all units in the order of the contract; whether it is all finite. */
double oracle_norm(const struct oracle *oracle, uint32_t attempt, enum norm_kind kind, bool *ret_finite);
/* The loss scale of a step that is not beyond the present one. */
double oracle_loss_scale(const struct oracle *oracle, uint64_t step);

/* What a committed step says to everybody. */
struct oracle_result {
	enum step_outcome outcome;
	double norm, next_scale;
	uint32_t bad; /* a bit a unit */
	bool at_floor;
};
const struct oracle_result *oracle_result(const struct oracle *oracle, uint64_t step);

/* The present step is committed from that attempt: gives the outcome that every rank must come to. */
enum step_outcome oracle_commit(struct oracle *oracle, uint32_t attempt);
enum step_outcome oracle_outcome(const struct oracle *oracle, uint64_t step); /* of a committed step */

/* The version of a unit when `step` steps were committed (from 1: everything was loaded), and the full vector of a
 * version. */
uint64_t oracle_version(const struct oracle *oracle, uint32_t unit, uint64_t step);
const float *oracle_full(const struct oracle *oracle, uint32_t unit, uint64_t version); /* NULL: no such version */

#endif
