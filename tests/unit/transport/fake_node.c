/*
 * The fake of fake_node.h. One thread, no network.
 */
#include "fake_node.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/transport/greeting.h"

static struct fake_out *record(struct fake_node *node, const void *header, size_t size)
{
	assert(node->out_count < FAKE_RECORDS_MAX);
	struct fake_out *out = &node->out[node->out_count++];
	*out = (struct fake_out){ 0 };
	int rc = peer_message_read(header, size, &out->message);
	assert(rc == 0);
	peer_message_fini(&out->message);
	return out;
}

static int record_send(struct transport *transport, uint32_t rank, const void *header, size_t size,
		       struct transport_piece payload)
{
	struct fake_node *node = (struct fake_node *)transport;
	if (node->send_code < 0)
		return node->send_code;
	struct fake_out *out = record(node, header, size);
	out->rank = rank;
	out->payload_size = payload.buffer ? payload.size : 0;
	return 0;
}

static int record_answer(struct transport *transport, transport_connection connection, const void *header, size_t size)
{
	struct fake_out *out = record((struct fake_node *)transport, header, size);
	out->answer = true;
	out->connection = connection;
	return 0;
}

static void record_reset(struct transport *transport, uint32_t rank)
{
	(void)rank;
	((struct fake_node *)transport)->reset_count++;
}

static void record_drop(struct transport *transport, transport_connection connection)
{
	struct fake_node *node = (struct fake_node *)transport;
	assert(node->dropped_count < FAKE_RECORDS_MAX);
	node->dropped[node->dropped_count++] = connection;
}

static void tell(struct fake_told *told, uint32_t rank, uint64_t link, uint64_t incarnation)
{
	told->count++;
	told->rank = rank;
	told->link = link;
	told->incarnation = incarnation;
}

static void tell_text(struct fake_told *told, int code, const char *text)
{
	told->code = code;
	snprintf(told->text, sizeof(told->text), "%s", text);
}

static int judge(void *context, const struct peer_message *hello, char *text)
{
	struct fake_node *node = context;
	(void)hello;
	node->judged++;
	if (node->verdict < 0)
		snprintf(text, PEER_TEXT_MAX + 1, "%s", node->verdict_text);
	return node->verdict;
}

static void up(void *context, uint32_t rank, uint64_t link, uint64_t incarnation)
{
	tell(&((struct fake_node *)context)->up, rank, link, incarnation);
}

static void down(void *context, uint32_t rank)
{
	tell(&((struct fake_node *)context)->down, rank, 0, 0);
}

static void inbound(void *context, uint32_t rank, uint64_t link, uint64_t incarnation)
{
	tell(&((struct fake_node *)context)->inbound, rank, link, incarnation);
}

static void refused(void *context, uint32_t rank, int code, const char *text)
{
	struct fake_told *told = &((struct fake_node *)context)->refused;
	tell(told, rank, 0, 0);
	tell_text(told, code, text);
}

static void refusing(void *context, const struct peer_message *hello, int code, const char *text)
{
	struct fake_told *told = &((struct fake_node *)context)->refusing;
	tell(told, hello->source, hello->link, hello->incarnation);
	tell_text(told, code, text);
}

static void message(void *context, uint32_t rank, const struct peer_message *received, struct buffer *payload)
{
	struct fake_told *told = &((struct fake_node *)context)->message;
	tell(told, rank, received->link, received->incarnation);
	told->op = received->op;
	told->payload_size = payload ? buffer_size(payload) : 0;
}

struct fake_node *fake_node_new(bool bulk)
{
	static const struct links_owner owner = { judge, up, down, inbound, refused, refusing, message };
	struct fake_node *node = calloc(1, sizeof(*node));
	assert(node);
	node->transport = (struct transport){ record_send, record_answer, record_reset, record_drop };
	const struct links_config config = {
		.rank = 0,
		.world_size = 3,
		.cluster = "a",
		.incarnation = 100,
		.bulk = bulk,
		.transport = &node->transport,
		.owner = &owner,
		.context = node,
		.counters = &node->counters,
	};
	int rc = links_new(&config, &node->links);
	assert(rc == 0);
	links_set_generation(node->links, 7);
	return node;
}

void fake_node_free(struct fake_node *node)
{
	links_free(node->links);
	free(node);
}

struct peer_message fake_message(enum peer_op op, uint32_t rank, uint64_t link)
{
	return (struct peer_message){
		.op = op,
		.protocol = PEER_PROTOCOL,
		.cluster = greeting_cluster_hash("a"),
		.generation = 7,
		.incarnation = 100 + rank,
		.link = link,
		.source = rank,
	};
}

struct peer_message fake_hello(uint32_t rank, uint64_t link)
{
	struct peer_message hello = fake_message(PEER_HELLO, rank, link);
	hello.world_size = 3;
	snprintf(hello.name, sizeof(hello.name), "a");
	return hello;
}

void fake_deliver_bytes(struct fake_node *node, transport_connection connection, const void *data, size_t size)
{
	links_events()->message(node->links, connection, data, size, NULL);
}

void fake_deliver(struct fake_node *node, transport_connection connection, const struct peer_message *sent,
		  size_t payload_size)
{
	void *header;
	size_t size;
	struct buffer *payload = NULL;
	int rc = peer_message_write(sent, &header, &size);
	assert(rc == 0);
	if (payload_size > 0) {
		rc = buffer_new_heap(payload_size, &payload);
		assert(rc == 0);
	}
	links_events()->message(node->links, connection, header, size, payload);
	buffer_unref(payload);
	free(header);
}

void fake_answer(struct fake_node *node, uint32_t rank, const struct peer_message *sent)
{
	void *header;
	size_t size;
	int rc = peer_message_write(sent, &header, &size);
	assert(rc == 0);
	links_events()->answered(node->links, rank, header, size);
	free(header);
}

void fake_connect(struct fake_node *node, uint32_t rank)
{
	links_events()->connected(node->links, rank);
}

void fake_disconnect(struct fake_node *node, uint32_t rank)
{
	links_events()->disconnected(node->links, rank);
}

void fake_close(struct fake_node *node, transport_connection connection)
{
	links_events()->closed(node->links, connection);
}

void fake_bring_up(struct fake_node *node, uint32_t rank)
{
	fake_connect(node, rank);
	struct peer_message welcome = fake_message(PEER_WELCOME, rank, fake_last(node)->message.link);
	fake_answer(node, rank, &welcome);
	assert(links_is_up(node->links, rank));
}

void fake_bring_in(struct fake_node *node, uint32_t rank, transport_connection connection, uint64_t link)
{
	struct peer_message hello = fake_hello(rank, link);
	fake_deliver(node, connection, &hello, 0);
	assert(links_is_welcomed(node->links, rank));
}

const struct fake_out *fake_last(const struct fake_node *node)
{
	assert(node->out_count > 0);
	return &node->out[node->out_count - 1];
}
