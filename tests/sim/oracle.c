/*
 * The serial oracle. Owns every full vector of every version, the moments, and the list of what was handed over. It
 * neither sees shards nor messages. Compiled without contraction, as the daemon is.
 */
#include "tests/sim/oracle.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/memory.h"
#include "tests/sim/oracle_rule.h"

#define ORACLE_STEPS_MAX 64

struct oracle_unit {
	float *versions[ORACLE_STEPS_MAX + 2]; /* [0] is none */
	uint64_t version_at[ORACLE_STEPS_MAX + 1];
	uint64_t version, updates;
	float *moments[ORACLE_MOMENTS_MAX];
};

/* What was handed over in one attempt: a bit a rank. */
struct oracle_attempt {
	struct oracle_attempt *next;
	uint64_t step;
	uint32_t attempt;
	uint8_t *given;  /* [micro_batch][rank][unit] */
	double *weights; /* [micro_batch][rank] */
};

struct oracle {
	const struct workload *workload;
	uint64_t life;
	uint32_t world_size;
	uint64_t step;
	struct oracle_result results[ORACLE_STEPS_MAX];
	double scales[ORACLE_STEPS_MAX + 1];
	uint64_t good_steps;
	struct oracle_unit units[WORKLOAD_UNITS_MAX];
	struct oracle_attempt *attempts;
};

struct oracle *oracle_new(const struct workload *workload, uint64_t life, uint32_t world_size)
{
	struct oracle *oracle = memory_zeroed(sizeof(*oracle));
	oracle->workload = workload;
	oracle->life = life;
	oracle->world_size = world_size;
	oracle->scales[0] = 2;
	for (uint32_t u = 0; u < workload->unit_count; u++) {
		struct oracle_unit *unit = &oracle->units[u];
		uint64_t total = workload->units[u].total;
		for (unsigned k = 0; k < ORACLE_MOMENTS_MAX; k++) {
			unit->moments[k] = memory_zeroed(total * sizeof(float));
		}
		unit->versions[1] = memory_zeroed(total * sizeof(float));
		for (uint64_t i = 0; i < total; i++) {
			unit->versions[1][i] = workload_initial(workload, life, u, i);
		}
		unit->version = 1;
		unit->version_at[0] = 1;
	}
	return oracle;
}

void oracle_free(struct oracle *oracle)
{
	if (!oracle) {
		return;
	}
	for (uint32_t u = 0; u < oracle->workload->unit_count; u++) {
		struct oracle_unit *unit = &oracle->units[u];
		for (unsigned k = 0; k < ORACLE_MOMENTS_MAX; k++) {
			free(unit->moments[k]);
		}
		for (uint64_t v = 1; v <= unit->version; v++) {
			free(unit->versions[v]);
		}
	}
	while (oracle->attempts) {
		struct oracle_attempt *attempt = oracle->attempts;
		oracle->attempts = attempt->next;
		free(attempt->given);
		free(attempt->weights);
		free(attempt);
	}
	free(oracle);
}

uint64_t oracle_life(const struct oracle *oracle)
{
	return oracle->life;
}

uint64_t oracle_step(const struct oracle *oracle)
{
	return oracle->step;
}

static struct oracle_attempt *oracle_find(const struct oracle *oracle, uint64_t step, uint32_t number)
{
	struct oracle_attempt *attempt = oracle->attempts;
	while (attempt && (attempt->step != step || attempt->attempt != number)) {
		attempt = attempt->next;
	}
	return attempt;
}

static uint8_t *oracle_given(const struct oracle *oracle, const struct oracle_attempt *attempt, uint32_t micro_batch,
			     uint32_t rank, uint32_t unit)
{
	assert(micro_batch < ORACLE_MICRO_BATCHES_MAX && rank < oracle->world_size);
	return &attempt->given[(micro_batch * oracle->world_size + rank) * WORKLOAD_UNITS_MAX + unit];
}

static struct oracle_attempt *oracle_make(struct oracle *oracle, uint64_t step, uint32_t number)
{
	struct oracle_attempt *attempt = oracle_find(oracle, step, number);
	size_t count = (size_t)ORACLE_MICRO_BATCHES_MAX * oracle->world_size;
	if (!attempt) {
		attempt = memory_zeroed(sizeof(*attempt));
		attempt->step = step;
		attempt->attempt = number;
		attempt->given = memory_zeroed(count * WORKLOAD_UNITS_MAX);
		attempt->weights = memory_zeroed(count * sizeof(double));
		for (size_t i = 0; i < count; i++) {
			attempt->weights[i] = 1;
		}
		attempt->next = oracle->attempts;
		oracle->attempts = attempt;
	}
	return attempt;
}

void oracle_contribute(struct oracle *oracle, uint64_t step, uint32_t number, uint32_t micro_batch, uint32_t rank,
		       uint32_t unit)
{
	*oracle_given(oracle, oracle_make(oracle, step, number), micro_batch, rank, unit) = 1;
}

static double *oracle_weight(const struct oracle *oracle, const struct oracle_attempt *attempt, uint32_t micro_batch,
			     uint32_t rank)
{
	assert(micro_batch < ORACLE_MICRO_BATCHES_MAX && rank < oracle->world_size);
	return &attempt->weights[micro_batch * oracle->world_size + rank];
}

void oracle_weigh(struct oracle *oracle, uint64_t step, uint32_t number, uint32_t micro_batch, uint32_t rank,
		  double weight)
{
	*oracle_weight(oracle, oracle_make(oracle, step, number), micro_batch, rank) = weight;
}

bool oracle_has(const struct oracle *oracle, uint64_t step, uint32_t number, uint32_t micro_batch, uint32_t rank,
		uint32_t unit)
{
	const struct oracle_attempt *attempt = oracle_find(oracle, step, number);
	return attempt && *oracle_given(oracle, attempt, micro_batch, rank, unit);
}

void oracle_forget(struct oracle *oracle, uint64_t step, uint32_t number, uint32_t rank)
{
	struct oracle_attempt *attempt = oracle_find(oracle, step, number);
	for (uint32_t m = 0; attempt && m < ORACLE_MICRO_BATCHES_MAX; m++) {
		for (uint32_t u = 0; u < oracle->workload->unit_count; u++) {
			*oracle_given(oracle, attempt, m, rank, u) = 0;
		}
		*oracle_weight(oracle, attempt, m, rank) = 1;
	}
}

/* Whether a rank handed over what counts: of weight 0 nothing does. */
static bool oracle_counts(const struct oracle *oracle, const struct oracle_attempt *attempt, uint32_t micro_batch,
			  uint32_t rank, uint32_t unit)
{
	return *oracle_given(oracle, attempt, micro_batch, rank, unit) &&
	       *oracle_weight(oracle, attempt, micro_batch, rank) > 0;
}

/* The first micro-batch of a rank counts; a later one only where something was handed over. */
static double oracle_weights(const struct oracle *oracle, const struct oracle_attempt *attempt)
{
	double weights = 0;
	for (uint32_t r = 0; r < oracle->world_size; r++) {
		double own = attempt ? *oracle_weight(oracle, attempt, 0, r) : 1;
		for (uint32_t m = 1; attempt && m < ORACLE_MICRO_BATCHES_MAX; m++) {
			bool touched = false;
			for (uint32_t u = 0; u < oracle->workload->unit_count; u++) {
				touched |= *oracle_given(oracle, attempt, m, r, u);
			}
			own += touched ? *oracle_weight(oracle, attempt, m, r) : 0;
		}
		weights += own;
	}
	return weights;
}

static bool oracle_is_present(const struct oracle *oracle, const struct oracle_attempt *attempt, uint32_t unit)
{
	for (uint32_t m = 0; attempt && m < ORACLE_MICRO_BATCHES_MAX; m++) {
		for (uint32_t r = 0; r < oracle->world_size; r++) {
			if (oracle_counts(oracle, attempt, m, r, unit)) {
				return true;
			}
		}
	}
	return false;
}

bool oracle_mean(const struct oracle *oracle, uint32_t number, uint32_t unit, float *ret_values)
{
	const struct workload *workload = oracle->workload;
	const struct oracle_attempt *attempt = oracle_find(oracle, oracle->step, number);
	uint64_t total = workload->units[unit].total;
	float *gradient = memory_zeroed(total * sizeof(float));
	bool begun = false, finite = true;
	memset(ret_values, 0, total * sizeof(float));
	for (uint32_t m = 0; attempt && m < ORACLE_MICRO_BATCHES_MAX; m++) {
		for (uint32_t r = 0; r < oracle->world_size; r++) {
			if (!oracle_counts(oracle, attempt, m, r, unit)) {
				continue;
			}
			struct workload_place place = { oracle->life, oracle->step, number, m, r, unit };
			workload_gradient(workload, &place, gradient);
			float weight = (float)*oracle_weight(oracle, attempt, m, r);
			for (uint64_t i = 0; i < total; i++) {
				float product = weight == 1 ? gradient[i] : gradient[i] * weight;
				ret_values[i] = begun ? ret_values[i] + product : product;
			}
			begun = true;
		}
	}
	float divisor = (float)oracle_weights(oracle, attempt);
	float scale = (float)workload->options.scale;
	for (uint64_t i = 0; begun && i < total; i++) {
		ret_values[i] = workload->options.op == REDUCE_MEAN ? ret_values[i] / divisor : ret_values[i] * scale;
		finite = finite && isfinite(ret_values[i]);
	}
	free(gradient);
	return finite;
}

static float *oracle_next_version(struct oracle *oracle, uint32_t u)
{
	struct oracle_unit *unit = &oracle->units[u];
	size_t bytes = oracle->workload->units[u].total * sizeof(float);
	float *values = memory_zeroed(bytes);
	memcpy(values, unit->versions[unit->version], bytes);
	unit->versions[++unit->version] = values;
	return values;
}

static void oracle_stage(struct oracle *oracle)
{
	for (uint32_t u = 0; u < oracle->workload->unit_count; u++) {
		float *values = oracle_next_version(oracle, u);
		for (uint64_t i = 0; i < oracle->workload->units[u].total; i++) {
			values[i] = workload_staging(oracle->workload, oracle->life, oracle->step, u, i);
		}
	}
}

/* What one rank's shards add to a norm: present units by name, elements in order. */
static double oracle_part(const struct oracle *oracle, const struct oracle_attempt *attempt, float *const *gradients,
			  uint32_t rank, enum norm_kind kind)
{
	double part = 0;
	for (uint32_t u = 0; u < oracle->workload->unit_count; u++) {
		uint64_t total = oracle->workload->units[u].total;
		uint64_t each = (total + oracle->world_size - 1) / oracle->world_size;
		for (uint64_t i = rank * each; i < total && i < (rank + 1) * each; i++) {
			double x = fabs((double)gradients[u][i]);
			if (!oracle_is_present(oracle, attempt, u)) {
				break;
			}
			if (kind == NORM_2) {
				part += x * x;
			} else if (isnan(x) || x > part) {
				part = x;
			}
		}
	}
	return part;
}

static double oracle_whole(const struct oracle *oracle, const struct oracle_attempt *attempt, float *const *gradients,
			   enum norm_kind kind)
{
	double norm = 0;
	for (uint32_t r = 0; r < oracle->world_size && kind != NORM_NONE; r++) {
		double part = oracle_part(oracle, attempt, gradients, r, kind);
		if (kind == NORM_2) {
			norm += part;
		} else if (isnan(part) || part > norm) {
			norm = part;
		}
	}
	return kind == NORM_2 ? sqrt(norm) : norm;
}

/* The sums of all units, divided by scale where that is not 0; returns a bit for each that is not finite. */
static uint32_t oracle_gradients(const struct oracle *oracle, uint32_t number, float scale, float **gradients)
{
	uint32_t bad = 0;
	for (uint32_t u = 0; u < oracle->workload->unit_count; u++) {
		uint64_t total = oracle->workload->units[u].total;
		gradients[u] = memory_zeroed(total * sizeof(float));
		oracle_mean(oracle, number, u, gradients[u]);
		for (uint64_t i = 0; i < total; i++) {
			gradients[u][i] = scale != 0 ? gradients[u][i] / scale : gradients[u][i];
			bad |= isfinite(gradients[u][i]) ? 0 : 1u << u;
		}
	}
	return bad;
}

static void oracle_gradients_free(const struct oracle *oracle, float **gradients)
{
	for (uint32_t u = 0; u < oracle->workload->unit_count; u++) {
		free(gradients[u]);
	}
}

double oracle_norm(const struct oracle *oracle, uint32_t number, enum norm_kind kind, bool *ret_finite)
{
	float *gradients[WORKLOAD_UNITS_MAX];
	*ret_finite = oracle_gradients(oracle, number, 0, gradients) == 0;
	double norm = oracle_whole(oracle, oracle_find(oracle, oracle->step, number), gradients, kind);
	oracle_gradients_free(oracle, gradients);
	return norm;
}

double oracle_loss_scale(const struct oracle *oracle, uint64_t step)
{
	assert(step <= oracle->step);
	return oracle->workload->scaled ? oracle->scales[step] : 0;
}

static void oracle_apply(struct oracle *oracle, uint32_t u, float *gradient, float clip)
{
	const struct workload *workload = oracle->workload;
	struct optimizer_options options = workload_step_options(workload, oracle->life, oracle->step);
	struct oracle_unit *unit = &oracle->units[u];
	uint64_t total = workload->units[u].total;
	float *values = oracle_next_version(oracle, u);
	for (uint64_t i = 0; i < total && clip != 1; i++) {
		gradient[i] = gradient[i] * clip;
	}
	struct optimizer_groups groups = workload_step_groups(workload, oracle->life, oracle->step);
	unit->updates++;
	uint64_t from = 0;
	for (uint32_t p = 0; p < workload->units[u].param_count; p++) {
		const struct optimizer_options *own = &options;
		float *moments[ORACLE_MOMENTS_MAX];
		for (uint32_t i = 0; i < groups.count; i++) {
			own = groups.groups[i] == workload->units[u].groups[p] ? &groups.options[i] : own;
		}
		for (unsigned k = 0; k < ORACLE_MOMENTS_MAX; k++) {
			moments[k] = unit->moments[k] + from;
		}
		oracle_rule(&workload->options.optimizer, own, unit->updates, values + from, gradient + from, moments,
			    workload->units[u].counts[p]);
		from += workload->units[u].counts[p];
	}
}

static void oracle_scale(struct oracle *oracle, const struct step_rules *rules, struct oracle_result *result)
{
	result->next_scale = rules->loss_scale;
	if (rules->loss_scale == 0) {
		return;
	}
	if (result->bad) {
		oracle->good_steps = 0;
		result->at_floor = rules->loss_scale <= rules->min_scale;
		result->next_scale = fmax(rules->loss_scale * rules->backoff_factor, rules->min_scale);
	} else if (result->outcome == STEP_APPLIED && ++oracle->good_steps == rules->growth_interval) {
		oracle->good_steps = 0;
		result->next_scale = rules->loss_scale * rules->growth_factor;
	}
	oracle->scales[oracle->step + 1] = result->next_scale;
}

static void oracle_update(struct oracle *oracle, uint32_t number, struct oracle_result *result)
{
	const struct workload *workload = oracle->workload;
	const struct oracle_attempt *attempt = oracle_find(oracle, oracle->step, number);
	struct step_rules rules =
		workload_step_rules(workload, oracle->life, oracle->step, oracle_loss_scale(oracle, oracle->step));
	float *gradients[WORKLOAD_UNITS_MAX];
	result->bad = oracle_gradients(oracle, number, (float)rules.loss_scale, gradients);
	result->norm = oracle_whole(oracle, attempt, gradients, (enum norm_kind)rules.norm_kind);
	bool applied = !result->bad && oracle_weights(oracle, attempt) > 0;
	result->outcome = applied ? STEP_APPLIED : STEP_SKIPPED;
	float clip = rules.max_norm > 0 && result->norm > rules.max_norm ? (float)(rules.max_norm / result->norm) : 1;
	for (uint32_t u = 0; u < workload->unit_count; u++) {
		if (applied && oracle_is_present(oracle, attempt, u)) {
			oracle_apply(oracle, u, gradients[u], clip);
		}
	}
	oracle_scale(oracle, &rules, result);
	oracle_gradients_free(oracle, gradients);
}

enum step_outcome oracle_commit(struct oracle *oracle, uint32_t attempt)
{
	assert(oracle->step < ORACLE_STEPS_MAX);
	struct oracle_result *result = &oracle->results[oracle->step];
	oracle->scales[oracle->step + 1] = oracle->scales[oracle->step];
	if (workload_commit(oracle->workload, oracle->life, oracle->step) == COMMIT_STAGING) {
		oracle_stage(oracle);
	} else {
		oracle_update(oracle, attempt, result);
	}
	oracle->step++;
	for (uint32_t u = 0; u < oracle->workload->unit_count; u++) {
		oracle->units[u].version_at[oracle->step] = oracle->units[u].version;
	}
	return result->outcome;
}

const struct oracle_result *oracle_result(const struct oracle *oracle, uint64_t step)
{
	assert(step < oracle->step);
	return &oracle->results[step];
}

enum step_outcome oracle_outcome(const struct oracle *oracle, uint64_t step)
{
	return oracle_result(oracle, step)->outcome;
}

uint64_t oracle_version(const struct oracle *oracle, uint32_t unit, uint64_t step)
{
	assert(step <= oracle->step);
	return oracle->units[unit].version_at[step];
}

const float *oracle_full(const struct oracle *oracle, uint32_t unit, uint64_t version)
{
	return version >= 1 && version <= oracle->units[unit].version ? oracle->units[unit].versions[version] : NULL;
}
