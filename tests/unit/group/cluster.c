/* The cluster of the group's tests: queue, links and clock. */
#include "tests/unit/group/cluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum event_kind { EVENT_MESSAGE, EVENT_ANSWER, EVENT_CONNECTED, EVENT_DISCONNECTED, EVENT_CLOSED, EVENT_REPORT };

struct event {
	struct event *next;
	enum event_kind kind;
	uint32_t to, peer;
	uint64_t connection, incarnation;
	void *header;
	size_t header_size;
	struct buffer *payload;
	struct report *report;
};

static struct event *post(struct cluster *cluster, enum event_kind kind, uint32_t to, uint32_t peer)
{
	struct event *event = calloc(1, sizeof(*event));
	event->kind = kind;
	event->to = to;
	event->peer = peer;
	event->incarnation = cluster->nodes[to].incarnation;
	*cluster->events_end = event;
	cluster->events_end = &event->next;
	return event;
}

static void event_header(struct event *event, const void *header, size_t size)
{
	event->header = malloc(size);
	memcpy(event->header, header, size);
	event->header_size = size;
}

/* ---- The transport ---- */

static struct node *node_of(struct transport *transport)
{
	return (struct node *)((char *)transport - offsetof(struct node, transport));
}

static int on_send(struct transport *transport, uint32_t rank, const void *header, size_t header_size,
		   struct transport_piece payload)
{
	struct node *node = node_of(transport);
	struct cluster *cluster = node->cluster;

	if (!cluster->links[node->rank][rank])
		return -ENOTCONN;
	if (cluster->cut[node->rank][rank])
		return 0;
	struct event *event = post(cluster, EVENT_MESSAGE, rank, node->rank);
	event->connection = cluster->links[node->rank][rank];
	event_header(event, header, header_size);
	if (payload.buffer) {
		buffer_new_heap(payload.size, &event->payload);
		memcpy(buffer_data(event->payload), (char *)buffer_data(payload.buffer) + payload.offset, payload.size);
	}
	return 0;
}

static int on_answer(struct transport *transport, transport_connection connection, const void *header,
		     size_t header_size)
{
	struct node *node = node_of(transport);
	struct cluster *cluster = node->cluster;

	for (uint32_t rank = 0; rank < cluster->world_size; rank++)
		if (cluster->links[rank][node->rank] == connection) {
			if (!cluster->cut[node->rank][rank])
				event_header(post(cluster, EVENT_ANSWER, rank, node->rank), header, header_size);
			return 0;
		}
	return -ENOTCONN;
}

static void link_make(struct cluster *cluster, uint32_t from, uint32_t to)
{
	cluster->links[from][to] = ++cluster->connections;
	post(cluster, EVENT_CONNECTED, from, to);
}

static void link_break(struct cluster *cluster, uint32_t from, uint32_t to)
{
	if (!cluster->links[from][to])
		return;
	post(cluster, EVENT_CLOSED, to, from)->connection = cluster->links[from][to];
	post(cluster, EVENT_DISCONNECTED, from, to);
	cluster->links[from][to] = 0;
}

void cluster_relink(struct cluster *cluster, uint32_t from, uint32_t to)
{
	link_break(cluster, from, to);
	link_make(cluster, from, to);
}

static void on_reset(struct transport *transport, uint32_t rank)
{
	struct node *node = node_of(transport);
	cluster_relink(node->cluster, node->rank, rank);
}

static void on_drop(struct transport *transport, transport_connection connection)
{
	struct node *node = node_of(transport);
	struct cluster *cluster = node->cluster;
	for (uint32_t rank = 0; rank < cluster->world_size; rank++)
		if (cluster->links[rank][node->rank] == connection)
			cluster_relink(cluster, rank, node->rank);
}

/* ---- The queue ---- */

static void event_free(struct event *event)
{
	free(event->header);
	buffer_unref(event->payload);
	report_free(event->report);
	free(event);
}

static void deliver(struct node *node, struct event *event)
{
	const struct transport_events *events = group_transport_events();
	void *context = group_transport_context(node->group);

	switch (event->kind) {
	case EVENT_MESSAGE:
		events->message(context, event->connection, event->header, event->header_size, event->payload);
		break;
	case EVENT_ANSWER:
		events->answered(context, event->peer, event->header, event->header_size);
		break;
	case EVENT_CONNECTED:
		events->connected(context, event->peer);
		break;
	case EVENT_DISCONNECTED:
		events->disconnected(context, event->peer);
		break;
	case EVENT_CLOSED:
		events->closed(context, event->connection);
		break;
	case EVENT_REPORT:
		group_report(node->group, event->report);
		event->report = NULL;
		break;
	}
}

void cluster_run(struct cluster *cluster)
{
	while (cluster->events) {
		struct event *event = cluster->events;
		struct node *node = &cluster->nodes[event->to];
		cluster->events = event->next;
		if (!cluster->events)
			cluster->events_end = &cluster->events;
		if (node->group && !node->stopped && event->incarnation == node->incarnation)
			deliver(node, event);
		event_free(event);
	}
}

void cluster_advance(struct cluster *cluster, uint64_t ms)
{
	for (uint64_t end = cluster->now_ms + ms; cluster->now_ms < end;) {
		cluster->now_ms += 125;
		for (uint32_t rank = 0; rank < cluster->world_size; rank++)
			if (cluster->nodes[rank].group && !cluster->nodes[rank].stopped)
				group_tick(cluster->nodes[rank].group, cluster->now_ms);
		cluster_run(cluster);
	}
}

void cluster_report(struct node *node, struct report *report)
{
	report->model = node->model;
	post(node->cluster, EVENT_REPORT, node->rank, node->rank)->report = report;
}

/* ---- Notices and calls ---- */

static void on_notice(void *context, const struct notice *notice)
{
	struct node *node = context;
	cr_assert_lt(node->notice_count, CLUSTER_NOTICES_MAX);
	node->notices[node->notice_count] = notice->kind;
	node->notice_texts[node->notice_count++] = strdup(notice->text);
}

const char *cluster_notice(const struct node *node, enum notice_kind kind)
{
	for (uint32_t i = node->notice_count; i-- > 0;)
		if (node->notices[i] == kind)
			return node->notice_texts[i];
	return NULL;
}

static void on_done(struct call *call, const struct answer *answer)
{
	struct test_call *test = (struct test_call *)call;
	test->answered++;
	test->answer = *answer;
	snprintf(test->text, sizeof(test->text), "%s", answer->text);
}

struct test_call *test_call(uint64_t deadline_ms)
{
	struct test_call *test = calloc(1, sizeof(*test));
	test->call.deadline_ms = deadline_ms;
	test->call.done = on_done;
	return test;
}

/* ---- The cluster ---- */

struct cluster *cluster_new(uint32_t world_size)
{
	struct cluster *cluster = calloc(1, sizeof(*cluster));
	cluster->world_size = world_size;
	cluster->now_ms = 1000000;
	cluster->grace_ms = 3000;
	cluster->events_end = &cluster->events;
	cluster->units = 2;
	cluster->elements = 4;
	cluster->optimizer = OPTIMIZER_SGD;
	cluster->gather_bytes = cluster->grad_bytes = 4 * 4096;
	for (uint32_t rank = 0; rank < world_size; rank++) {
		cluster->nodes[rank].cluster = cluster;
		cluster->nodes[rank].rank = rank;
		cluster->nodes[rank].load_sum = 77;
	}
	return cluster;
}

void cluster_start(struct cluster *cluster, uint32_t rank)
{
	struct node *node = &cluster->nodes[rank];
	node->incarnation = 100 * ++cluster->incarnations + rank;
	node->transport =
		(struct transport){ .send = on_send, .answer = on_answer, .reset = on_reset, .drop = on_drop };
	const struct group_config config = { .rank = rank,
					     .world_size = cluster->world_size,
					     .cluster = "c",
					     .incarnation = node->incarnation,
					     .operation_ms = 10000,
					     .grace_ms = cluster->grace_ms,
					     .heartbeat_ms = 500,
					     .suspicion_ms = 1500,
					     .first_model = 4000 + node->incarnation,
					     .transport = &node->transport,
					     .command = cluster_command,
					     .notice = on_notice,
					     .context = node,
					     .link_counters = &node->link_counters };
	cr_assert_eq(group_new(&config, &node->group), 0);
	group_tick(node->group, cluster->now_ms);
	for (uint32_t other = 0; other < cluster->world_size; other++)
		if (other != rank && cluster->nodes[other].group) {
			link_make(cluster, rank, other);
			link_make(cluster, other, rank);
		}
}

void cluster_stop(struct cluster *cluster, uint32_t rank)
{
	struct node *node = &cluster->nodes[rank];

	for (uint32_t i = 0; i < node->held_count; i++)
		report_free(node->held[i]);
	node->held_count = node->handed_count = 0;
	group_free(node->group);
	node->group = NULL;
	node->worker = NULL;
	plan_unref(node->plan);
	node->plan = NULL;
	node->model = 0;
	node->closed = false;
	for (uint32_t other = 0; other < cluster->world_size; other++) {
		link_break(cluster, rank, other);
		link_break(cluster, other, rank);
	}
}

void cluster_free(struct cluster *cluster)
{
	for (uint32_t rank = 0; rank < cluster->world_size; rank++) {
		struct node *node = &cluster->nodes[rank];
		if (node->group)
			cluster_stop(cluster, rank);
		manifest_unref(node->manifest);
		for (uint32_t i = 0; i < node->notice_count; i++)
			free(node->notice_texts[i]);
	}
	while (cluster->events) {
		struct event *event = cluster->events;
		cluster->events = event->next;
		event_free(event);
	}
	free(cluster);
}

void cluster_form(struct cluster *cluster)
{
	for (uint32_t rank = 0; rank < cluster->world_size; rank++)
		cluster_start(cluster, rank);
	cluster_run(cluster);
	for (uint32_t rank = 0; rank < cluster->world_size; rank++)
		cr_assert_neq(group_generation(cluster->nodes[rank].group), 0);
}

void cluster_mute(struct cluster *cluster, uint32_t rank, bool muted)
{
	for (uint32_t other = 0; other < cluster->world_size; other++)
		cluster->cut[rank][other] = cluster->cut[other][rank] = muted;
}

/* ---- The model ---- */

struct manifest *cluster_manifest(const struct cluster *cluster, const char *unit, const char *param, uint64_t elements)
{
	const struct manifest_options options = { .op = REDUCE_MEAN,
						  .scale = 1,
						  .optimizer = { .kind = cluster->optimizer },
						  .init = cluster->init,
						  .init_rank = cluster->init_rank };
	struct manifest *manifest;
	cr_assert_eq(manifest_new("m", &options, &manifest), 0);
	for (uint32_t i = 0; i < cluster->units; i++) {
		char name[16], param_name[16];
		snprintf(name, sizeof(name), "%s%u", unit, i);
		snprintf(param_name, sizeof(param_name), "%s", param);
		struct manifest_param entry = {
			.name = param_name, .dtype = FSDP_F32, .ndim = 1, .shape = { elements }
		};
		cr_assert_eq(manifest_add_unit(manifest, name), 0);
		cr_assert_eq(manifest_add_param(manifest, &entry), 0);
	}
	cr_assert_eq(manifest_seal(manifest), 0);
	return manifest;
}

void cluster_attach(struct cluster *cluster, uint32_t rank, struct manifest *manifest)
{
	struct node *node = &cluster->nodes[rank];
	uint64_t deadline_ms = node->attach.call.deadline_ms;

	manifest_unref(node->manifest);
	node->manifest = manifest ? manifest : cluster_manifest(cluster, "u", "w", cluster->elements);
	struct plan *plan = group_find_plan(node->group, "m");
	if (plan) {
		plan_ref(plan);
	} else {
		cr_assert_eq(plan_new(node->manifest, rank, cluster->world_size, &plan), 0);
		cr_assert_eq(plan_allocate(plan, cluster->gather_bytes, cluster->grad_bytes, true), 0);
	}
	node->attach = (struct test_call){ .call = { .deadline_ms = deadline_ms, .done = on_done } };
	cr_assert_eq(group_attach(node->group, node->manifest, plan, 0, NULL, &node->attach.call, &node->worker), 0);
	plan_unref(plan);
}

void cluster_attach_all(struct cluster *cluster)
{
	for (uint32_t rank = 0; rank < cluster->world_size; rank++)
		cluster_attach(cluster, rank, NULL);
	cluster_run(cluster);
	for (uint32_t rank = 0; rank < cluster->world_size; rank++)
		assert_answer(&cluster->nodes[rank].attach, 0);
}

void cluster_load(struct cluster *cluster, uint32_t rank, uint32_t unit, struct test_call *call)
{
	struct node *node = &cluster->nodes[rank];
	struct test_call *grad = test_call(0);
	worker_grad(node->worker, unit, &grad->call);
	assert_answer(grad, 0);
	worker_load(node->worker, unit, grad->answer.slot, &call->call);
	free(grad);
	cluster_run(cluster);
}

void cluster_load_all(struct cluster *cluster)
{
	for (uint32_t rank = 0; rank < cluster->world_size; rank++)
		for (uint32_t unit = 0; unit < cluster->units; unit++) {
			struct test_call *call = test_call(0);
			cluster_load(cluster, rank, unit, call);
			assert_answer(call, 0);
			free(call);
		}
	for (uint32_t rank = 0; rank < cluster->world_size; rank++)
		for (uint32_t unit = 0; unit < cluster->units; unit++)
			cr_assert_eq(group_unit(cluster->nodes[rank].group, 0, unit).version, 1);
}

void cluster_reduce(struct cluster *cluster, uint32_t rank, uint32_t unit)
{
	struct test_call *grad = test_call(0), *reduce = test_call(0);
	worker_grad(cluster->nodes[rank].worker, unit, &grad->call);
	assert_answer(grad, 0);
	worker_reduce(cluster->nodes[rank].worker, unit, &reduce->call);
	assert_answer(reduce, 0);
	free(grad);
	free(reduce);
	cluster_run(cluster);
}

void cluster_step(struct cluster *cluster, uint32_t rank, double learning_rate, struct test_call *call)
{
	const struct optimizer_options options = { .learning_rate = learning_rate };
	worker_step(cluster->nodes[rank].worker, COMMIT_OPTIMIZER, &options, cluster->groups, &cluster->rules, NULL,
		    &call->call);
	cluster_run(cluster);
}
