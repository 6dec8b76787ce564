/* What the workers of all ranks agree on beside gradients: small all-reduces, and the state of a trainer that commits
 * with a step. */
#include "tests/e2e/e2e.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const float zeros[5];

static void all_reduce_is(struct e2e *e2e, double value, uint32_t op, double wanted)
{
	double got = value;
	DO(fsdp_model_all_reduce(e2e->model, &got, 1, op));
	CHECK(memcmp(&got, &wanted, sizeof(got)) == 0, "%.17g, not %.17g", got, wanted);
}

/* 1e17 loses a 1 that is added to it: only the order of the ranks gives this. */
static void all_reduce_is_in_rank_order(struct e2e *e2e)
{
	static const double given[3] = { 1e17, 1.0, -1e17 };
	e2e_open(e2e, NULL);
	struct fsdp_unit *unit = e2e_add(e2e, "u0", 5);
	DO(fsdp_model_seal(e2e->model, NULL));
	all_reduce_is(e2e, given[e2e->rank], FSDP_SUM, 0.0);
	all_reduce_is(e2e, given[2 - e2e->rank], FSDP_SUM, 0.0);
	all_reduce_is(e2e, e2e->rank == 2 ? 1.0 : given[2 * e2e->rank], FSDP_SUM, 1.0);
	all_reduce_is(e2e, (double)e2e->rank, FSDP_MAX, 2.0);
	all_reduce_is(e2e, (double)e2e->rank - 7, FSDP_MIN, -7.0);
	e2e_load(unit, zeros);
	all_reduce_is(e2e, 0.5, FSDP_SUM, 1.5);
}

static void all_reduce_of_many_values_and_of_none(struct e2e *e2e)
{
	double values[FSDP_ALL_REDUCE_MAX];
	e2e_vector(e2e, NULL, zeros, 5);
	for (unsigned step = 0; step < 3; step++) {
		for (unsigned i = 0; i < FSDP_ALL_REDUCE_MAX; i++)
			values[i] = i * (1.0 + e2e->rank);
		DO(fsdp_model_all_reduce(e2e->model, values, FSDP_ALL_REDUCE_MAX, FSDP_SUM));
		for (unsigned i = 0; i < FSDP_ALL_REDUCE_MAX; i++)
			CHECK(values[i] == i * 3.0, "value %u is %g", i, values[i]);
		DO(fsdp_model_all_reduce(e2e->model, NULL, 0, FSDP_SUM));
		DO(fsdp_model_step(e2e->model, NULL, NULL));
	}
	values[0] = e2e->rank == 1 ? (double)NAN : 1;
	DO(fsdp_model_all_reduce(e2e->model, values, 1, FSDP_MAX));
	CHECK(isnan(values[0]), "%g", values[0]);
}

static void all_reduces_that_differ_are_refused(struct e2e *e2e)
{
	double values[3] = { 1, 2, 3 };
	e2e_vector(e2e, NULL, zeros, 5);
	FAILS(FSDP_E_MISMATCH, fsdp_model_all_reduce(e2e->model, values, e2e->rank == 0 ? 3 : 2, FSDP_SUM), "\"m\"",
	      "rank 0", "the sum of 3 values", "rank 1", "the sum of 2");
	FAILS(FSDP_E_MISMATCH, fsdp_model_all_reduce(e2e->model, values, 1, e2e->rank == 0 ? FSDP_MAX : FSDP_MIN),
	      "rank 0", "maximum", "rank 1", "minimum");
	CHECK(values[0] == 1 && values[1] == 2, "a call that failed changed the values");
	all_reduce_is(e2e, 4, FSDP_SUM, 8);
	DO(fsdp_model_step(e2e->model, NULL, NULL));
}

/* The deadline of the cluster is 2 s. */
static void all_reduce_names_who_is_missing(struct e2e *e2e)
{
	double value = 1;
	e2e_vector(e2e, NULL, zeros, 5);
	if (e2e->rank == 1) {
		e2e_meet(e2e, "failed");
		e2e_wait_for("attempt 1,"); /* this rank's daemon may hear of it a little later */
		FAILS(FSDP_E_ABORTED, fsdp_model_all_reduce(e2e->model, &value, 1, FSDP_SUM), "all-reduce", "rank 1");
	} else {
		FAILS(FSDP_E_TIMEOUT, fsdp_model_all_reduce(e2e->model, &value, 1, FSDP_SUM), "all-reduce", "rank 1",
		      "2.0 s");
		e2e_meet(e2e, "failed");
	}
	all_reduce_is(e2e, 2, FSDP_SUM, 4);
}

/* A trainer that dies between two all-reduces; its successor makes both and gets the answer that was given to the
 * first. */
static void a_successor_gets_the_old_answers(struct e2e *e2e)
{
	if (e2e->rank == 0) {
		e2e_vector(e2e, NULL, zeros, 5);
		all_reduce_is(e2e, 1, FSDP_SUM, 11);
		all_reduce_is(e2e, 2, FSDP_SUM, 22);
		return;
	}
	DO(fsdp_client_close(e2e->client));
	pid_t child = fork();
	CHECK(child >= 0, "fork");
	if (child == 0) {
		DO(fsdp_client_open(NULL, &e2e->client));
		e2e_vector(e2e, NULL, zeros, 5);
		all_reduce_is(e2e, 10, FSDP_SUM, 11);
		raise(SIGKILL);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status), "the first trainer failed");
	DO(fsdp_client_open(NULL, &e2e->client));
	struct fsdp_model_info info;
	e2e_open(e2e, NULL);
	e2e_add(e2e, "u0", 5);
	DO(fsdp_model_seal(e2e->model, &info));
	CHECK(info.resumed, "it is a new model");
	all_reduce_is(e2e, 99, FSDP_SUM, 11);
	all_reduce_is(e2e, 20, FSDP_SUM, 22);
}

/* ---- The state of a step ---- */

static unsigned char given[FSDP_STATE_MAX], got[FSDP_STATE_MAX];

/* Bytes that are this rank's and this step's alone. */
static void state_fill(const struct e2e *e2e, unsigned step, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		given[i] = (unsigned char)(i * 7 + i / 1024 + 100 * e2e->rank + step);
}

static void state_is(struct e2e *e2e, unsigned step, size_t wanted)
{
	size_t bytes;
	DO(fsdp_model_state_bytes(e2e->model, &bytes));
	CHECK(bytes == wanted, "the state has %zu bytes, not %zu", bytes, wanted);
	DO(fsdp_model_state(e2e->model, got, sizeof(got)));
	state_fill(e2e, step, wanted);
	CHECK(memcmp(got, given, wanted) == 0, "it is not the state of step %u", step);
}

static int step_with_state(struct e2e *e2e, unsigned step, size_t bytes, struct fsdp_step_result *ret_result)
{
	struct fsdp_step options = FSDP_STEP_INIT;
	options.learning_rate = 0.5;
	state_fill(e2e, step, bytes);
	options.state = given;
	options.state_bytes = bytes;
	return fsdp_model_step(e2e->model, &options, ret_result);
}

static void state_commits_with_its_step(struct e2e *e2e)
{
	static const size_t sizes[] = { 1, 100 << 10, (100 << 10) + 1, FSDP_STATE_MAX, 0, 77 };
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	options.optimizer = FSDP_OPTIMIZER_SGD;
	e2e_vector(e2e, &options, zeros, 5);
	state_is(e2e, 0, 0);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		DO(step_with_state(e2e, i, sizes[i] - (sizes[i] > 100 ? e2e->rank : 0),
				   NULL)); /* not the same on every rank */
		state_is(e2e, i, sizes[i] - (sizes[i] > 100 ? e2e->rank : 0));
	}
	FAILS(FSDP_E_INVALID, fsdp_model_state(e2e->model, got, 76), "77 bytes", "76");
	e2e_meet(e2e, "compared");
	DO(fsdp_model_update_shards(e2e->model, NULL, 0));
	state_is(e2e, 0, 0);
}

static void state_of_a_skipped_step_stays_and_of_an_aborted_one_does_not(struct e2e *e2e)
{
	static const float wild[5] = { 1, NAN, 1, 1, 1 };
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	struct fsdp_step_result result;
	options.optimizer = FSDP_OPTIMIZER_SGD;
	struct fsdp_unit *unit = e2e_vector(e2e, &options, zeros, 5);
	e2e_reduce(unit, wild, 5);
	DO(step_with_state(e2e, 3, 5000, &result));
	CHECK(result.outcome == FSDP_SKIPPED, "outcome %u", result.outcome);
	state_is(e2e, 3, 5000);
	e2e_meet(e2e, "compared");
	if (e2e->rank == 0) {
		FAILS(FSDP_E_ABORTED, step_with_state(e2e, 4, 6000, NULL), "aborted");
	} else {
		DO(fsdp_model_abort_step(e2e->model));
	}
	state_is(e2e, 3, 5000);
	e2e_meet(e2e, "aborted");
	DO(step_with_state(e2e, 5, 7000, NULL));
	state_is(e2e, 5, 7000);
}

/* The optimizer is outside. */
static void state_commits_with_staging(struct e2e *e2e)
{
	struct fsdp_shard shard;
	struct fsdp_unit *unit = e2e_vector(e2e, NULL, zeros, 4);
	DO(fsdp_unit_shard(unit, 0, &shard));
	for (uint64_t i = 0; i < shard.count; i++)
		((float *)shard.staging)[i] = (float)(shard.offset + i);
	DO(step_with_state(e2e, 9, 200000, NULL));
	e2e_full_is(unit, 0, (const float[]){ 0, 1, 2, 3 }, 4);
	state_is(e2e, 9, 200000);
}

static void a_successor_reads_the_state(struct e2e *e2e)
{
	struct fsdp_options options = FSDP_OPTIONS_INIT;
	struct fsdp_model_info info;
	options.optimizer = FSDP_OPTIMIZER_SGD;
	DO(fsdp_client_close(e2e->client));
	pid_t child = fork();
	CHECK(child >= 0, "fork");
	if (child == 0) {
		DO(fsdp_client_open(NULL, &e2e->client));
		e2e_vector(e2e, &options, zeros, 5);
		DO(step_with_state(e2e, 1, 300000, NULL));
		DO(step_with_state(e2e, 2, 150000, NULL));
		raise(SIGKILL);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status), "the first trainer failed");
	DO(fsdp_client_open(NULL, &e2e->client));
	e2e_open(e2e, &options);
	e2e_add(e2e, "u0", 5);
	DO(fsdp_model_seal(e2e->model, &info));
	CHECK(info.resumed && info.step == 2, "step %llu", (unsigned long long)info.step);
	CHECK(info.state_bytes == 150000, "the state has %llu bytes", (unsigned long long)info.state_bytes);
	state_is(e2e, 2, 150000);
	DO(step_with_state(e2e, 3, 10, NULL));
	state_is(e2e, 3, 10);
}

const struct e2e_case e2e_agreement[] = {
	{ "agreement_state_commits_with_its_step", state_commits_with_its_step },
	{ "agreement_state_of_a_skipped_step_stays_and_of_an_aborted_one_does_not",
	  state_of_a_skipped_step_stays_and_of_an_aborted_one_does_not },
	{ "agreement_state_commits_with_staging", state_commits_with_staging },
	{ "agreement_a_successor_reads_the_state", a_successor_reads_the_state },
	{ "agreement_all_reduce_is_in_rank_order", all_reduce_is_in_rank_order },
	{ "agreement_all_reduce_of_many_values_and_of_none", all_reduce_of_many_values_and_of_none },
	{ "agreement_all_reduces_that_differ_are_refused", all_reduces_that_differ_are_refused },
	{ "agreement_all_reduce_names_who_is_missing", all_reduce_names_who_is_missing },
	{ "agreement_a_successor_gets_the_old_answers", a_successor_gets_the_old_answers },
	{ 0 },
};
