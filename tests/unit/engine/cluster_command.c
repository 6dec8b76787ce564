/*
 * What a test has the engines of the cluster do: loads, contributions, ends of micro-batches, gathers, decisions; and
 * what it looks at afterwards. Owns nothing. One thread.
 */
#include "tests/unit/engine/cluster.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct command *cluster_command(enum command_kind kind)
{
	struct command *command = command_new(kind);

	command->model = CLUSTER_MODEL;
	return command;
}

void cluster_give(struct cluster *cluster, uint32_t rank, struct command *command)
{
	engine_command(cluster->nodes[rank].engine, command);
}

void cluster_give_all(struct cluster *cluster, const struct command *command)
{
	for (uint32_t rank = 0; rank < cluster->size; rank++) {
		struct command *copy = command_new(command->kind);

		*copy = *command;
		cluster_give(cluster, rank, copy);
	}
}

float *cluster_slot(struct cluster *cluster, uint32_t rank, uint32_t slot)
{
	return (float *)((char *)plan_memory(cluster->nodes[rank].plan)->grads.base +
			 (size_t)slot * CLUSTER_SLOT_BYTES);
}

float *cluster_gathered(struct cluster *cluster, uint32_t rank, uint32_t slot)
{
	return (float *)((char *)plan_memory(cluster->nodes[rank].plan)->gathers.base +
			 (size_t)slot * CLUSTER_SLOT_BYTES);
}

static uint64_t cluster_unit_elements(struct cluster *cluster, uint32_t rank, uint32_t unit)
{
	return plan_unit(cluster->nodes[rank].plan, unit)->layout.full_bytes / sizeof(float);
}

static void cluster_fill(struct cluster *cluster, uint32_t rank, uint32_t unit, uint32_t slot, float first, float each)
{
	float *values = cluster_slot(cluster, rank, slot);

	for (uint64_t i = 0; i < cluster_unit_elements(cluster, rank, unit); i++)
		values[i] = first + (float)i * each;
}

void cluster_load(struct cluster *cluster, uint32_t unit, float first)
{
	struct command publish = { .kind = COMMAND_PUBLISH, .model = CLUSTER_MODEL, .unit = unit };

	for (uint32_t rank = 0; rank < cluster->size; rank++) {
		struct command *load = cluster_command(COMMAND_LOAD);

		cluster_fill(cluster, rank, unit, CLUSTER_SLOTS - 1, first, 1);
		load->unit = unit;
		load->slot = (uint64_t)(CLUSTER_SLOTS - 1) * CLUSTER_SLOT_BYTES;
		cluster_give(cluster, rank, load);
	}
	cluster_run(cluster);
	for (uint32_t rank = 0; rank < cluster->size; rank++)
		assert(cluster_count(cluster, rank, REPORT_LOADED) == 1);
	cluster_give_all(cluster, &publish);
	cluster_run(cluster);
	for (uint32_t rank = 0; rank < cluster->size; rank++)
		cluster_count(cluster, rank, REPORT_PROGRESS);
}

void cluster_reduce_in(struct cluster *cluster, uint32_t rank, uint32_t unit, uint64_t step, uint32_t attempt,
		       uint32_t micro_batch, uint32_t slot, float first, float each)
{
	struct command *reduce = cluster_command(COMMAND_REDUCE);

	cluster_fill(cluster, rank, unit, slot, first, each);
	reduce->unit = unit;
	reduce->step = step;
	reduce->attempt = attempt;
	reduce->micro_batch = micro_batch;
	reduce->slot = (uint64_t)slot * CLUSTER_SLOT_BYTES;
	reduce->weight = cluster->weight != 0 ? cluster->weight : 1;
	cluster_give(cluster, rank, reduce);
}

void cluster_reduce(struct cluster *cluster, uint32_t rank, uint32_t unit, uint32_t micro_batch, uint32_t slot,
		    float first, float each)
{
	cluster_reduce_in(cluster, rank, unit, 0, 0, micro_batch, slot, first, each);
}

static uint8_t *cluster_bits(const char *text)
{
	size_t size = strlen(text);
	uint8_t *bits = malloc(size + 1);

	for (size_t i = 0; i < size; i++)
		bits[i] = text[i] == '1';
	return bits;
}

void cluster_close_in(struct cluster *cluster, uint32_t rank, uint64_t step, uint32_t attempt, uint32_t micro_batch,
		      const char *absent, bool last, double weight)
{
	struct command *command = cluster_command(COMMAND_CLOSE);

	command->step = step;
	command->attempt = attempt;
	command->micro_batch = micro_batch;
	command->bits = absent ? cluster_bits(absent) : NULL;
	command->last = last;
	command->weight = weight;
	cluster_give(cluster, rank, command);
}

void cluster_close(struct cluster *cluster, uint32_t rank, uint32_t micro_batch, const char *absent, bool last,
		   double weight)
{
	cluster_close_in(cluster, rank, 0, 0, micro_batch, absent, last, weight);
}

void cluster_gather(struct cluster *cluster, uint32_t rank, uint32_t unit, uint32_t slot, uint64_t version)
{
	struct command *gather = cluster_command(COMMAND_GATHER);

	gather->unit = unit;
	gather->slot = (uint64_t)slot * CLUSTER_SLOT_BYTES;
	gather->version = version;
	cluster_give(cluster, rank, gather);
}

void cluster_apply_on(struct cluster *cluster, uint32_t rank, uint64_t step, enum step_outcome outcome,
		      enum step_commit commit, double rate, const char *present)
{
	struct command *apply = cluster_command(COMMAND_APPLY);
	uint32_t units = plan_unit_count(cluster->nodes[rank].plan);

	apply->step = step;
	apply->outcome = outcome;
	apply->commit = commit;
	apply->loss_scale = cluster->loss_scale;
	apply->clip = cluster->clip != 0 ? cluster->clip : 1;
	apply->options.learning_rate = rate;
	apply->options.beta1 = 0.9;
	apply->options.beta2 = 0.999;
	apply->options.epsilon = 1e-8;
	apply->bits = malloc(units + 1);
	memset(apply->bits, 1, units);
	if (present) {
		free(apply->bits);
		apply->bits = cluster_bits(present);
	}
	cluster_give(cluster, rank, apply);
}

void cluster_apply(struct cluster *cluster, uint64_t step, enum step_outcome outcome, enum step_commit commit,
		   double rate)
{
	for (uint32_t rank = 0; rank < cluster->size; rank++)
		cluster_apply_on(cluster, rank, step, outcome, commit, rate, NULL);
}

static float cluster_look(struct cluster *cluster, uint32_t unit, uint64_t element,
			  float *(*where)(const struct plan *plan, uint32_t unit))
{
	for (uint32_t rank = 0; rank < cluster->size; rank++) {
		const struct plan *plan = cluster->nodes[rank].plan;
		struct range range = plan_shard_of(plan, unit, rank);

		if (element >= range.offset && element - range.offset < range.count)
			return where(plan, unit)[element - range.offset];
	}
	assert(false);
	return 0;
}

float cluster_gradient(struct cluster *cluster, uint32_t unit, uint64_t element)
{
	return cluster_look(cluster, unit, element, plan_gradient);
}

float cluster_master(struct cluster *cluster, uint32_t unit, uint64_t element)
{
	return cluster_look(cluster, unit, element, plan_master);
}
