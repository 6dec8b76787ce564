/*
 * End to end: each case is one function that runs in the trainer of every rank of a real cluster (started by fsdp-run)
 * and checks what it gets through the library. A failed check prints where and what, and ends the process with 1, which
 * ends the cluster.
 */
#ifndef FSDP_E2E_H
#define FSDP_E2E_H

#include "fsdp/fsdp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define E2E_UNITS_MAX 8

struct e2e {
	struct fsdp_client *client;
	struct fsdp_model *model;
	struct fsdp_unit *units[E2E_UNITS_MAX];
	unsigned unit_count;
	unsigned rank, world;
};

#define CHECK(condition, ...)                                                           \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
			fprintf(stderr, __VA_ARGS__);                                   \
			fprintf(stderr, "\n");                                          \
			exit(1);                                                        \
		}                                                                       \
	} while (0)

/* The call must succeed. */
#define DO(call)                                                                          \
	do {                                                                              \
		int do_code = (call);                                                     \
		CHECK(do_code == 0, "%s: %s", fsdp_strerror(do_code), fsdp_last_error()); \
	} while (0)

/* The call must fail with this code, and its story must contain each of the words (up to a NULL). */
#define FAILS(code, call, ...) \
	e2e_fails(__FILE__, __LINE__, #call, code, call, (const char *const[]){ __VA_ARGS__, NULL })

void e2e_fails(const char *file, int line, const char *what, int wanted, int got, const char *const *words);

/* Opens "m" with these options (NULL: defaults). */
void e2e_open(struct e2e *e2e, const struct fsdp_options *options);
/* Adds a unit of one f32 vector named w. */
struct fsdp_unit *e2e_add(struct e2e *e2e, const char *name, uint64_t count);
struct fsdp_unit *e2e_add_params(struct e2e *e2e, const char *name, const struct fsdp_param *params, size_t count);
void e2e_load(struct fsdp_unit *unit, const float *values); /* one parameter */
/* One unit "u0" of these values, sealed and loaded. */
struct fsdp_unit *e2e_vector(struct e2e *e2e, const struct fsdp_options *options, const float *values, uint64_t count);
void e2e_close(struct e2e *e2e); /* drops */

void e2e_grad(struct fsdp_unit *unit, size_t index, const float *values, uint64_t count); /* writes, does not reduce */
void e2e_reduce(struct fsdp_unit *unit, const float *values, uint64_t count); /* parameter 0, and hands over */
void e2e_full_is(struct fsdp_unit *unit, size_t index, const float *values, uint64_t count);
void e2e_shard_is(struct fsdp_unit *unit, const float *values, uint64_t count);
void e2e_gradient_is(struct fsdp_unit *unit, const float *values, uint64_t count);

double e2e_seconds(void); /* monotonic */
/* The answer of fsdpctl to these words; its exit code in ret_code. */
void e2e_ask(const char *words, char *answer, size_t size, int *ret_code);
/* Until the daemon's status has this text; 20 s at most. */
void e2e_wait_for(const char *text);
/* Ranks meet outside of the thing under test: a barrier by files in the cluster's folder. */
void e2e_meet(struct e2e *e2e, const char *name);

struct e2e_case {
	const char *name;
	void (*run)(struct e2e *e2e);
};

extern const struct e2e_case e2e_original[], e2e_order[], e2e_sizes[], e2e_steps[], e2e_rules[], e2e_numbers[],
	e2e_agreement[], e2e_initial[], e2e_failures[];

#endif
