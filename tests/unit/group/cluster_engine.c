/* The fake engines of the group's tests. A rank's reduction is whole when every rank has closed the same step and
 * attempt. */
#include "tests/unit/group/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void report_or_hold(struct node *node, struct report *report, bool hold)
{
	if (!hold) {
		cluster_report(node, report);
		return;
	}
	cr_assert_lt(node->held_count, CLUSTER_SLOTS_MAX);
	node->held[node->held_count++] = report;
}

void cluster_held_go(struct cluster *cluster, uint32_t rank)
{
	struct node *node = &cluster->nodes[rank];
	for (uint32_t i = 0; i < node->held_count; i++)
		cluster_report(node, node->held[i]);
	node->held_count = 0;
	cluster_run(cluster);
}

static void on_peers(struct node *node, struct command *command)
{
	node->generation = command->generation;
}

static void on_add(struct node *node, struct command *command)
{
	plan_unref(node->plan);
	node->plan = plan_ref(command->plan);
	node->model = command->model;
	node->closed = false;
}

static void on_drop(struct node *node, struct command *command)
{
	(void)command;
	node->dropped++;
	report_or_hold(node, report_new(REPORT_DROPPED), node->hold_dropped);
}

static void on_load(struct node *node, struct command *command)
{
	struct report *report = report_new(REPORT_LOADED);
	report->unit = command->unit;
	report->slot = command->slot;
	report->sum_count = 1;
	report->sums = calloc(1, sizeof(*report->sums));
	report->sums[0] = node->load_sum;
	report->offered = command->offer;
	if (command->offer) {
		cr_assert_lt(node->offered_count, CLUSTER_UNITS_MAX);
		node->offered[node->offered_count++] = command->slot;
	}
	report_or_hold(node, report, node->hold_loads);
}

static void on_fetch(struct node *node, struct command *command)
{
	struct report *report = report_new(REPORT_FETCHED);
	report->unit = command->unit;
	node->fetched++;
	report_or_hold(node, report, node->hold_loads);
}

static void on_publish(struct node *node, struct command *command)
{
	(void)command;
	node->published++;
	for (uint32_t i = 0; i < node->offered_count; i++) {
		struct report *report = report_new(REPORT_RETURNED);
		report->slot = node->offered[i];
		report_or_hold(node, report, node->hold_returns);
	}
	node->offered_count = 0;
}

static void on_gather(struct node *node, struct command *command)
{
	struct report *report = report_new(REPORT_GATHERED);
	report->unit = command->unit;
	report->slot = command->slot;
	report->version = command->version;
	node->gathers++;
	report_or_hold(node, report, node->hold_gathers);
}

static void return_slots(struct node *node)
{
	for (uint32_t i = 0; i < node->handed_count; i++) {
		struct report *report = report_new(REPORT_RETURNED);
		report->slot = node->handed[i];
		report_or_hold(node, report, node->hold_returns);
	}
	node->handed_count = 0;
}

static void on_reduce(struct node *node, struct command *command)
{
	cr_assert_lt(node->handed_count, CLUSTER_SLOTS_MAX);
	node->handed[node->handed_count++] = command->slot;
	node->handed_weight = command->weight;
}

static void mark(uint8_t **bits, uint32_t units, uint32_t unit)
{
	if (!*bits)
		*bits = calloc(units, 1);
	(*bits)[unit] = 1;
}

static void on_measure(struct node *node, struct command *command)
{
	struct report *report = report_new(REPORT_MEASURED);
	node->measured++;
	node->loss_scale = command->loss_scale;
	report->step = command->step;
	report->attempt = command->attempt;
	report->token = command->token;
	report->squares = node->squares;
	report->largest = node->largest;
	report->finite = !node->not_finite && !node->too_large;
	if (node->not_finite)
		mark(&report->bits, node->cluster->units, node->cluster->units - 1);
	if (node->too_large)
		mark(&report->bits, node->cluster->units, 0);
	report_or_hold(node, report, node->hold_measured);
}

static bool is_closed(const struct node *node, const struct node *other)
{
	return other->closed && other->closed_step == node->closed_step &&
	       other->closed_attempt == node->closed_attempt;
}

static void on_close(struct node *node, struct command *command)
{
	struct cluster *cluster = node->cluster;
	memcpy(node->absent, command->bits, cluster->units);
	if (!command->last)
		return;
	node->closed = true;
	node->closed_step = command->step;
	node->closed_attempt = command->attempt;
	node->weight = command->weight;
	for (uint32_t rank = 0; rank < cluster->world_size; rank++)
		if (!is_closed(node, &cluster->nodes[rank]))
			return;
	for (uint32_t rank = 0; rank < cluster->world_size; rank++) {
		struct report *report = report_new(REPORT_REDUCED);
		if (cluster->nodes[rank].no_votes) {
			report_free(report);
			continue;
		}
		report->step = command->step;
		report->attempt = command->attempt;
		report->finite = !cluster->nodes[rank].not_finite;
		if (!report->finite)
			mark(&report->bits, cluster->units, cluster->units - 1);
		cluster_report(&cluster->nodes[rank], report);
		return_slots(&cluster->nodes[rank]);
	}
}

static void on_apply(struct node *node, struct command *command)
{
	struct report *report = report_new(REPORT_APPLIED);
	memcpy(node->present, command->bits, node->cluster->units);
	node->applied++;
	node->loss_scale = command->loss_scale;
	node->clip = command->clip;
	node->groups = command->groups ? *command->groups : (struct optimizer_groups){ 0 };
	node->closed = false;
	return_slots(node);
	report->step = command->step;
	report_or_hold(node, report, node->hold_applied);
}

static void on_abort(struct node *node, struct command *command)
{
	(void)command;
	node->aborted++;
	node->closed = false;
	return_slots(node);
}

static void on_inquire(struct node *node, struct command *command)
{
	struct report *report = report_new(REPORT_WAITING);
	report->token = command->token;
	for (uint32_t rank = 0; rank < node->cluster->world_size; rank++) {
		enum wait_op op = node->closed ? WAIT_REDUCE : WAIT_GATHER;
		if (rank != node->rank && !is_closed(node, &node->cluster->nodes[rank]))
			report->waits[report->wait_count++] = (struct wait){ .op = op, .unit = 0, .rank = rank };
	}
	cluster_report(node, report);
}

void cluster_command(void *context, struct command *command)
{
	static void (*const table[])(struct node *, struct command *) = {
		[COMMAND_PEERS] = on_peers,     [COMMAND_ADD] = on_add,       [COMMAND_DROP] = on_drop,
		[COMMAND_FETCH] = on_fetch,     [COMMAND_LOAD] = on_load,     [COMMAND_PUBLISH] = on_publish,
		[COMMAND_GATHER] = on_gather,   [COMMAND_REDUCE] = on_reduce, [COMMAND_CLOSE] = on_close,
		[COMMAND_APPLY] = on_apply,     [COMMAND_ABORT] = on_abort,   [COMMAND_INQUIRE] = on_inquire,
		[COMMAND_MEASURE] = on_measure,
	};
	table[command->kind](context, command);
	command_free(command);
}
