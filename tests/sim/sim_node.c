/*
 * A node: one group and one engine, glued by two queues (commands and reports, in order, each a little late), a tick, a
 * wake and an executor. Owns the two state machines and the list of the models' plans and slots that it looks at from
 * outside. One thread.
 */
#include "tests/sim/sim.h"

#include <assert.h>
#include <string.h>

#include "tests/sim/memory.h"
#include "tests/sim/tally.h"
#include "tests/sim/trace.h"

#define NODE_CLUSTER "sim"
#define NODE_POISON 0x7fa5a5a5u /* a NaN */

void poison(void *memory, size_t size)
{
	uint32_t *words = memory;
	for (size_t i = 0; i < size / sizeof(*words); i++) {
		words[i] = NODE_POISON;
	}
}

/* ---- What the node holds, seen from outside ---- */

const struct plan *node_plan(const struct node *node, uint64_t model)
{
	struct node_model *entry = node->models;
	while (entry && entry->model != model) {
		entry = entry->next;
	}
	return entry ? entry->plan : NULL;
}

static void node_model_add(struct node *node, uint64_t model, struct plan *plan)
{
	struct node_model *entry = memory_zeroed(sizeof(*entry));
	*entry = (struct node_model){ .next = node->models, .model = model, .plan = plan_ref(plan) };
	node->models = entry;
}

static void node_slots_forget(struct node *node, bool all, uint64_t model)
{
	struct node_slot **link = &node->slots;
	while (*link) {
		struct node_slot *slot = *link;
		if (all || slot->model == model) {
			*link = slot->next;
			plan_unref(slot->plan);
			free(slot);
		} else {
			link = &slot->next;
		}
	}
}

static void node_models_forget(struct node *node, bool all, uint64_t model)
{
	struct node_model **link = &node->models;
	while (*link) {
		struct node_model *entry = *link;
		if (all || entry->model == model) {
			*link = entry->next;
			plan_unref(entry->plan);
			free(entry);
		} else {
			link = &entry->next;
		}
	}
	node_slots_forget(node, all, model);
}

static void node_slot_check(struct node *node, const struct plan *plan, uint64_t offset, uint64_t bytes,
			    const char *when)
{
	char *memory = (char *)plan_memory(plan)->grads.base + offset;
	if (bytes > 0 && net_holds(node->sim->net, PLANE_BULK, node->rank, memory, bytes)) {
		trace_fail("rank %u: gradient slot %llu is %s while the transport holds a buffer into it", node->rank,
			   (unsigned long long)offset, when);
	}
	poison(memory, bytes);
}

void node_slot_given(struct node *node, uint64_t model, struct plan *plan, uint64_t offset, uint64_t bytes)
{
	assert(offset + bytes <= plan_memory(plan)->grads.bytes);
	node_slot_check(node, plan, offset, bytes, "given to a trainer");
	for (struct node_slot *slot = node->slots; slot; slot = slot->next) {
		if (slot->model == model && slot->offset == offset) {
			slot->bytes = bytes;
			return;
		}
	}
	struct node_slot *slot = memory_zeroed(sizeof(*slot));
	*slot = (struct node_slot){
		.next = node->slots, .model = model, .offset = offset, .bytes = bytes, .plan = plan_ref(plan)
	};
	node->slots = slot;
}

static void node_slot_returned(struct node *node, uint64_t model, uint64_t offset)
{
	for (struct node_slot **link = &node->slots; *link; link = &(*link)->next) {
		struct node_slot *slot = *link;
		if (slot->model == model && slot->offset == offset) {
			node_slot_check(node, slot->plan, offset, slot->bytes, "returned");
			*link = slot->next;
			plan_unref(slot->plan);
			free(slot);
			return;
		}
	}
}

/* ---- The two queues ---- */

static struct letter *queue_take(struct letter **head, struct letter ***end)
{
	struct letter *letter = *head;
	*head = letter->next;
	if (!*head) {
		*end = head;
	}
	letter->next = NULL;
	return letter;
}

static void node_on_command(void *context, uint64_t life)
{
	struct node *node = context;
	if (!node->alive || node->life != life) {
		return;
	}
	struct command *command = (struct command *)queue_take(&node->commands, &node->commands_end);
	if (command->kind == COMMAND_PEERS) {
		node->bulk_generation = command->generation;
	}
	engine_command(node->engine, command);
}

static void node_on_report(void *context, uint64_t life)
{
	struct node *node = context;
	if (!node->alive || node->life != life) {
		return;
	}
	struct report *report = (struct report *)queue_take(&node->reports, &node->reports_end);
	if (report->kind == REPORT_RETURNED || (report->kind == REPORT_LOADED && !report->offered)) {
		node_slot_returned(node, report->model, report->slot);
	} else if (report->kind == REPORT_DROPPED) {
		node_models_forget(node, false, report->model);
	}
	group_report(node->group, report);
}

static uint64_t node_queue_at(struct node *node, uint64_t *last_us)
{
	struct sim *sim = node->sim;
	uint64_t at_us = sim_now_us(sim) + dice_below(&sim->dice, sim->queue_us + 1);
	*last_us = at_us > *last_us ? at_us : *last_us;
	return *last_us;
}

static void node_command(void *context, struct command *command)
{
	struct node *node = context;
	trace_note("rank # command # model $ unit # step # attempt # micro-batch #", node->rank, command->kind,
		   command->model, command->unit, command->step, command->attempt, command->micro_batch);
	tally_count(TALLY_COMMAND, command->kind);
	if (command->kind == COMMAND_ADD) {
		node_model_add(node, command->model, command->plan);
	}
	referee_command(node->sim->referee, node, command);
	command->letter.next = NULL;
	*node->commands_end = &command->letter;
	node->commands_end = &command->letter.next;
	sim_clock_at(node->sim->clock, node_queue_at(node, &node->command_us), node_on_command, node, node->life);
}

static void node_report(void *context, struct report *report)
{
	struct node *node = context;
	trace_note("rank # report # model $ unit # version # step # attempt #", node->rank, report->kind, report->model,
		   report->unit, report->version, report->step, report->attempt);
	tally_count(TALLY_REPORT, report->kind);
	referee_report(node->sim->referee, node, report);
	report->letter.next = NULL;
	*node->reports_end = &report->letter;
	node->reports_end = &report->letter.next;
	sim_clock_at(node->sim->clock, node_queue_at(node, &node->report_us), node_on_report, node, node->life);
}

static void node_queues_clear(struct node *node)
{
	while (node->commands) {
		command_free((struct command *)queue_take(&node->commands, &node->commands_end));
	}
	while (node->reports) {
		report_free((struct report *)queue_take(&node->reports, &node->reports_end));
	}
}

/* ---- Wakes, ticks, notices ---- */

static void node_on_wake(void *context, uint64_t life)
{
	struct node *node = context;
	if (node->alive && node->life == life) {
		node->wake_armed = false;
		engine_run(node->engine);
	}
}

static void node_wake(void *context)
{
	struct node *node = context;
	if (node->alive && !node->wake_armed) {
		node->wake_armed = true;
		sim_clock_at(node->sim->clock, sim_now_us(node->sim) + dice_below(&node->sim->dice, 200), node_on_wake,
			     node, node->life);
	}
}

static void node_notice(void *context, const struct notice *notice)
{
	struct node *node = context;
	trace_note("rank # notice # peer # step #", node->rank, notice->kind, (uint64_t)(int64_t)notice->peer,
		   notice->step);
	trace_text("  @", notice->text);
	tally_count(TALLY_NOTICE, notice->kind);
	if (node->sim->calm && (notice->kind == NOTICE_PEER_LOST || notice->kind == NOTICE_PEER_SUSPECTED ||
				notice->kind == NOTICE_MODEL_LOST || notice->kind == NOTICE_CALL_TIMEOUT ||
				notice->kind == NOTICE_STEP_ABORTED || notice->kind == NOTICE_MODEL_REFUSED)) {
		trace_fail("rank %u: notice %d where nothing went wrong: %s", node->rank, notice->kind, notice->text);
	}
}

static unsigned node_model_state(struct node *node, const char *name)
{
	for (uint32_t i = 0; i < group_model_count(node->group); i++) {
		struct model_status status = group_model(node->group, i);
		if (strcmp(status.name, name) == 0) {
			return (unsigned)status.state + 1;
		}
	}
	return 0;
}

/* Counts how states changed since the last look. */
static void node_look(struct node *node)
{
	struct sim *sim = node->sim;
	for (uint32_t rank = 0; rank < sim->config.world_size; rank++) {
		unsigned state = rank == node->rank ? node->peer_states[rank] : group_peer(node->group, rank).state;
		if (state != node->peer_states[rank]) {
			tally_count(TALLY_PEER, node->peer_states[rank] * 4u + state);
			node->peer_states[rank] = (uint8_t)state;
		}
	}
	for (uint32_t m = 0; m < sim->model_count; m++) {
		unsigned state = node_model_state(node, sim->workloads[m].name);
		if (state != node->model_states[m]) {
			tally_count(TALLY_MODEL, node->model_states[m] * 6u + state);
			node->model_states[m] = (uint8_t)state;
		}
	}
}

static void node_on_group_tick(void *context, uint64_t life)
{
	struct node *node = context;
	if (!node->alive || node->life != life) {
		return;
	}
	struct sim *sim = node->sim;
	group_tick(node->group, sim_now_ms(sim));
	node_look(node);
	sim_clock_at(sim->clock, sim_now_us(sim) + sim->tick_us * 3 / 4 + dice_below(&sim->dice, sim->tick_us / 4),
		     node_on_group_tick, node, life);
}

static void node_on_engine_tick(void *context, uint64_t life)
{
	struct node *node = context;
	if (!node->alive || node->life != life) {
		return;
	}
	struct sim *sim = node->sim;
	engine_tick(node->engine, sim_now_ms(sim));
	sim_clock_at(sim->clock,
		     sim_now_us(sim) + (sim->heartbeat_ms * 1000 + dice_below(&sim->dice, sim->heartbeat_ms * 200)),
		     node_on_engine_tick, node, life);
}

/* ---- Life and death ---- */

static void node_make(struct node *node)
{
	struct sim *sim = node->sim;
	struct engine_config engine = { .rank = node->rank,
					.world_size = sim->config.world_size,
					.cluster = NODE_CLUSTER,
					.incarnation = node->incarnation,
					.chunk_bytes = sim->chunk_bytes,
					.window_bytes = sim->window_bytes,
					.inline_bytes = sim->inline_bytes,
					.read_drain_ms = sim->heartbeat_ms * 2,
					.transport = net_transport(sim->net, PLANE_BULK, node->rank),
					.executor = &node->executor.executor,
					.report = node_report,
					.wake = node_wake,
					.context = node,
					.counters = &node->engine_counters,
					.link_counters = &node->link_counters[PLANE_BULK] };
	struct group_config group = { .rank = node->rank,
				      .world_size = sim->config.world_size,
				      .cluster = NODE_CLUSTER,
				      .incarnation = node->incarnation,
				      .operation_ms = sim->operation_ms,
				      .grace_ms = sim->grace_ms,
				      .heartbeat_ms = sim->heartbeat_ms,
				      .suspicion_ms = sim->suspicion_ms,
				      .first_model = dice_next(&sim->dice) >> 16,
				      .transport = net_transport(sim->net, PLANE_CONTROL, node->rank),
				      .command = node_command,
				      .notice = node_notice,
				      .context = node,
				      .link_counters = &node->link_counters[PLANE_CONTROL] };
	int rc = engine_new(&engine, &node->engine);
	assert(rc == 0);
	rc = group_new(&group, &node->group);
	assert(rc == 0);
}

void node_start(struct node *node)
{
	struct sim *sim = node->sim;
	assert(!node->alive);
	node->life++;
	node->incarnation = dice_next(&sim->dice) | 1;
	node->alive = true;
	node->wake_armed = false;
	node->bulk_generation = 0;
	node->commands_end = &node->commands;
	node->reports_end = &node->reports;
	memset(node->peer_states, PEER_ABSENT, sizeof(node->peer_states));
	memset(node->model_states, 0, sizeof(node->model_states));
	sim_executor_init(&node->executor, sim);
	trace_note("rank # starts, incarnation $", node->rank, node->incarnation);
	node_make(node);
	group_tick(node->group, sim_now_ms(sim));
	engine_tick(node->engine, sim_now_ms(sim));
	net_open(sim->net, PLANE_CONTROL, node->rank, group_transport_events(), group_transport_context(node->group));
	net_open(sim->net, PLANE_BULK, node->rank, engine_transport_events(), engine_transport_context(node->engine));
	sim_clock_at(sim->clock, sim_now_us(sim) + dice_below(&sim->dice, sim->tick_us), node_on_group_tick, node,
		     node->life);
	sim_clock_at(sim->clock, sim_now_us(sim) + dice_below(&sim->dice, sim->tick_us), node_on_engine_tick, node,
		     node->life);
}

bool node_is_stopped(struct node *node)
{
	engine_stop(node->engine);
	engine_run(node->engine);
	return engine_is_idle(node->engine);
}

void node_crash(struct node *node)
{
	struct sim *sim = node->sim;
	trace_note("rank # is gone", node->rank);
	net_close(sim->net, PLANE_CONTROL, node->rank);
	net_close(sim->net, PLANE_BULK, node->rank);
	group_free(node->group);
	node_queues_clear(node);
	engine_stop(node->engine);
	for (unsigned turns = 0; !node_is_stopped(node); turns++) {
		sim_executor_flush(&node->executor);
		if (turns > 100) {
			trace_fail("rank %u: the engine is not idle after it was stopped and every job was done",
				   node->rank);
		}
	}
	node->alive = false;
	engine_free(node->engine);
	node_queues_clear(node);
	node_models_forget(node, true, 0);
	node->group = NULL;
	node->engine = NULL;
}
