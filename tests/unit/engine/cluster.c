/*
 * The in-memory cluster of the engine's unit tests. Owns engines, plans and everything in flight. One thread.
 */
#include "tests/unit/engine/cluster.h"

#include "proto/peer_message.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLUSTER_TICK_MS 100

static uint64_t cluster_incarnation(uint32_t rank)
{
	return 1000 + rank;
}

/* ---- The transport ---- */

static void cluster_free_message(struct cluster_message *message)
{
	buffer_unref(message->payload);
	buffer_unref(message->piece.buffer);
	free(message->header);
	free(message);
}

static void cluster_queue(struct cluster_message **list, const void *header, size_t size, struct transport_piece piece)
{
	struct cluster_message *message = calloc(1, sizeof(*message));

	message->header = malloc(size);
	memcpy(message->header, header, size);
	message->header_size = size;
	message->piece = piece;
	if (piece.buffer)
		buffer_ref(piece.buffer);
	while (*list)
		list = &(*list)->next;
	*list = message;
}

static struct cluster_message *cluster_pop(struct cluster_message **list)
{
	struct cluster_message *message = *list;

	*list = message->next;
	message->next = NULL;
	return message;
}

static struct cluster_link *cluster_link(struct transport *transport, uint32_t to)
{
	struct cluster_node *node = (struct cluster_node *)transport;

	return &node->cluster->links[node->rank][to];
}

static int cluster_send(struct transport *transport, uint32_t to, const void *header, size_t size,
			struct transport_piece payload)
{
	struct cluster_link *link = cluster_link(transport, to);

	if (!link->connected)
		return -ENOTCONN;
	link->stamped = realloc(link->stamped, size);
	link->stamped_size = size;
	memcpy(link->stamped, header, size);
	cluster_queue(&link->sent, header, size, payload);
	return 0;
}

static int cluster_answer(struct transport *transport, transport_connection connection, const void *header, size_t size)
{
	struct cluster_node *node = (struct cluster_node *)transport;

	for (uint32_t from = 0; from < node->cluster->size; from++) {
		struct cluster_link *link = &node->cluster->links[from][node->rank];

		if (link->connected && link->connection == connection) {
			cluster_queue(&link->answers, header, size, (struct transport_piece){ 0 });
			return 0;
		}
	}
	return -ENOTCONN;
}

static void cluster_reset(struct transport *transport, uint32_t to)
{
	cluster_link(transport, to)->breaking = true;
}

static void cluster_drop(struct transport *transport, transport_connection connection)
{
	struct cluster_node *node = (struct cluster_node *)transport;

	for (uint32_t from = 0; from < node->cluster->size; from++) {
		struct cluster_link *link = &node->cluster->links[from][node->rank];

		if (link->connection == connection)
			link->breaking = true;
	}
}

static void cluster_make_anew(struct cluster *cluster, uint32_t from, uint32_t to)
{
	struct cluster_link *link = &cluster->links[from][to];
	const struct transport_events *events = engine_transport_events();
	void *sender = engine_transport_context(cluster->nodes[from].engine);

	link->breaking = false;
	while (link->sent)
		cluster_free_message(cluster_pop(&link->sent));
	while (link->answers)
		cluster_free_message(cluster_pop(&link->answers));
	if (link->connected) {
		link->connected = false;
		events->disconnected(sender, to);
		events->closed(engine_transport_context(cluster->nodes[to].engine), link->connection);
	}
	link->connected = true;
	link->connection = ++cluster->next_connection;
	events->connected(sender, to);
}

static void cluster_deliver(struct cluster *cluster, uint32_t from, uint32_t to)
{
	struct cluster_link *link = &cluster->links[from][to];
	struct cluster_message *message = cluster_pop(&link->sent);

	if (message->piece.buffer) {
		assert(buffer_new_heap(message->piece.size, &message->payload) == 0);
		memcpy(buffer_data(message->payload),
		       (char *)buffer_data(message->piece.buffer) + message->piece.offset, message->piece.size);
	}
	buffer_unref(message->piece.buffer);
	message->piece.buffer = NULL;
	engine_transport_events()->message(engine_transport_context(cluster->nodes[to].engine), link->connection,
					   message->header, message->header_size, message->payload);
	cluster_free_message(message);
}

static bool cluster_step_link(struct cluster *cluster, uint32_t from, uint32_t to)
{
	struct cluster_link *link = &cluster->links[from][to];

	if (link->breaking) {
		cluster_make_anew(cluster, from, to);
		return true;
	}
	if (link->answers) {
		struct cluster_message *message = cluster_pop(&link->answers);

		engine_transport_events()->answered(engine_transport_context(cluster->nodes[from].engine), to,
						    message->header, message->header_size);
		cluster_free_message(message);
		return true;
	}
	if (link->sent && !link->clogged) {
		cluster_deliver(cluster, from, to);
		return true;
	}
	return false;
}

/* ---- The executor, the wake, the reports ---- */

static void cluster_submit(struct executor *executor, struct job *job)
{
	struct cluster_node *node =
		(struct cluster_node *)(void *)((char *)executor - offsetof(struct cluster_node, executor));
	struct job **link = &node->jobs;

	while (*link)
		link = (struct job **)(void *)&(*link)->letter.next;
	job->letter.next = NULL;
	*link = job;
}

static bool cluster_step_node(struct cluster_node *node)
{
	struct job *job = node->jobs;

	if (node->woken) {
		node->woken = false;
		engine_run(node->engine);
		return true;
	}
	if (!job || node->cluster->jobs_held)
		return false;
	node->jobs = (struct job *)(void *)job->letter.next;
	job->run(job);
	job->done(job);
	return true;
}

static void cluster_report(void *context, struct report *report)
{
	struct cluster_node *node = context;
	struct report **link = &node->reports;

	while (*link)
		link = (struct report **)(void *)&(*link)->letter.next;
	report->letter.next = NULL;
	*link = report;
}

static void cluster_wake(void *context)
{
	((struct cluster_node *)context)->woken = true;
}

struct report *cluster_take(struct cluster *cluster, uint32_t rank, enum report_kind kind)
{
	struct report **link = &cluster->nodes[rank].reports;
	struct report *report;

	while (*link && (*link)->kind != kind)
		link = (struct report **)(void *)&(*link)->letter.next;
	report = *link;
	if (report)
		*link = (struct report *)(void *)report->letter.next;
	return report;
}

unsigned cluster_count(struct cluster *cluster, uint32_t rank, enum report_kind kind)
{
	struct report *report;
	unsigned count = 0;

	while ((report = cluster_take(cluster, rank, kind))) {
		report_free(report);
		count++;
	}
	return count;
}

/* ---- Time ---- */

void cluster_run(struct cluster *cluster)
{
	bool moved = true;

	while (moved) {
		moved = false;
		for (uint32_t from = 0; from < cluster->size; from++) {
			for (uint32_t to = 0; to < cluster->size; to++)
				moved |= from != to && cluster_step_link(cluster, from, to);
			moved |= cluster_step_node(&cluster->nodes[from]);
		}
	}
}

void cluster_tick(struct cluster *cluster)
{
	cluster->now_ms += CLUSTER_TICK_MS;
	for (uint32_t rank = 0; rank < cluster->size; rank++)
		engine_tick(cluster->nodes[rank].engine, cluster->now_ms);
	cluster_run(cluster);
}

void cluster_break(struct cluster *cluster, uint32_t from, uint32_t to)
{
	cluster->links[from][to].breaking = true;
}

void cluster_forge(struct cluster *cluster, uint32_t from, uint32_t to, struct peer_message *message,
		   const void *payload)
{
	struct cluster_link *link = &cluster->links[from][to];
	struct transport_piece piece = { 0 };
	struct peer_message real;
	void *header;
	size_t size;

	assert(peer_message_read(link->stamped, link->stamped_size, &real) == 0);
	message->protocol = real.protocol;
	message->cluster = real.cluster;
	message->generation = real.generation;
	message->incarnation = real.incarnation;
	message->link = real.link;
	message->source = real.source;
	if (!message->model)
		message->model = CLUSTER_MODEL;
	peer_message_fini(&real);
	assert(peer_message_write(message, &header, &size) == 0);
	if (payload) {
		piece.size = message->length;
		assert(buffer_new_heap(piece.size, &piece.buffer) == 0);
		memcpy(buffer_data(piece.buffer), payload, piece.size);
	}
	cluster_queue(&link->sent, header, size, piece);
	buffer_unref(piece.buffer);
	free(header);
}

/* ---- Making one ---- */

static struct manifest *cluster_manifest(const struct cluster_options *options)
{
	const struct manifest_options model = { .op = options->op,
						.scale = options->scale != 0 ? options->scale : 1,
						.optimizer = { .kind = options->optimizer },
						.init = options->init,
						.init_rank = options->init_rank };
	struct manifest *manifest;

	assert(manifest_new("model", &model, &manifest) == 0);
	for (unsigned i = 0; options->units[i] != CLUSTER_UNITS_END; i++) {
		struct manifest_param param = { .name = (char[]){ "w" }, .dtype = FSDP_F32, .ndim = 1 };
		char name[16];

		snprintf(name, sizeof(name), "u%u", i);
		param.shape[0] = options->units[i];
		assert(manifest_add_unit(manifest, name) == 0);
		assert(manifest_add_param(manifest, &param) == 0);
	}
	assert(manifest_seal(manifest) == 0);
	return manifest;
}

static void cluster_init_node(struct cluster *cluster, uint32_t rank, const struct cluster_options *options,
			      struct manifest *manifest)
{
	struct cluster_node *node = &cluster->nodes[rank];
	const uint64_t pool = (uint64_t)CLUSTER_SLOTS * CLUSTER_SLOT_BYTES;
	struct engine_config config = { .rank = rank,
					.world_size = cluster->size,
					.cluster = "test",
					.incarnation = cluster_incarnation(rank),
					.chunk_bytes = options->chunk_bytes ? options->chunk_bytes : 4096,
					.window_bytes = options->window_bytes ? options->window_bytes : 65536,
					.read_drain_ms = 250,
					.transport = &node->transport,
					.executor = &node->executor,
					.report = cluster_report,
					.wake = cluster_wake,
					.context = node,
					.counters = &node->counters,
					.link_counters = &node->link_counters };

	node->transport = (struct transport){
		.send = cluster_send, .answer = cluster_answer, .reset = cluster_reset, .drop = cluster_drop
	};
	node->executor.submit = cluster_submit;
	node->cluster = cluster;
	node->rank = rank;
	assert(engine_new(&config, &node->engine) == 0);
	assert(plan_new(manifest, rank, cluster->size, &node->plan) == 0);
	assert(plan_allocate(node->plan, pool, pool, true) == 0);
}

struct cluster *cluster_new(const struct cluster_options *options)
{
	struct cluster *cluster = calloc(1, sizeof(*cluster));
	struct manifest *manifest = cluster_manifest(options);

	cluster->size = options->size;
	cluster->generation = 42;
	for (uint32_t rank = 0; rank < cluster->size; rank++)
		cluster_init_node(cluster, rank, options, manifest);
	manifest_unref(manifest);
	for (uint32_t rank = 0; rank < cluster->size; rank++) {
		struct command *peers = command_new(COMMAND_PEERS);
		struct command *add = cluster_command(COMMAND_ADD);

		peers->generation = cluster->generation;
		peers->incarnations = calloc(cluster->size, sizeof(*peers->incarnations));
		for (uint32_t i = 0; i < cluster->size; i++)
			peers->incarnations[i] = cluster_incarnation(i);
		cluster_give(cluster, rank, peers);
		add->plan = plan_ref(cluster->nodes[rank].plan);
		cluster_give(cluster, rank, add);
		for (uint32_t to = 0; to < cluster->size; to++)
			cluster->links[rank][to].breaking = rank != to;
	}
	cluster_run(cluster);
	return cluster;
}

void cluster_free(struct cluster *cluster)
{
	cluster->jobs_held = false;
	for (uint32_t rank = 0; rank < cluster->size; rank++)
		engine_stop(cluster->nodes[rank].engine);
	for (uint32_t from = 0; from < cluster->size; from++) {
		for (uint32_t to = 0; to < cluster->size; to++)
			cluster->links[from][to].clogged = false;
	}
	cluster_run(cluster);
	for (uint32_t from = 0; from < cluster->size; from++) {
		for (uint32_t to = 0; to < cluster->size; to++)
			free(cluster->links[from][to].stamped);
	}
	for (uint32_t rank = 0; rank < cluster->size; rank++) {
		assert(engine_is_idle(cluster->nodes[rank].engine));
		engine_free(cluster->nodes[rank].engine);
		plan_unref(cluster->nodes[rank].plan);
		while (cluster->nodes[rank].reports) {
			struct report *report = cluster->nodes[rank].reports;

			cluster->nodes[rank].reports = (struct report *)(void *)report->letter.next;
			report_free(report);
		}
	}
	free(cluster);
}
