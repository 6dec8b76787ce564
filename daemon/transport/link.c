/*
 * Sessions over one plane: greets and is greeted, stamps and checks. State is kept for the W ranks of the group and for
 * no connection beyond theirs, so that strangers cost a counter and nothing else. Runs in the plane's thread; reads no
 * clock, owns no socket, and decides nothing about a rank that its owner can decide (judge).
 */
#include "daemon/transport/link.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "daemon/runtime/planted.h"
#include "daemon/transport/greeting.h"
#include "fsdp/error.h"

enum link_state {
	LINK_DOWN,     /* no connection */
	LINK_GREETING, /* connected; HELLO is repeated until it is welcomed */
	LINK_UP
};

struct link_peer {
	enum link_state state; /* ours to the peer */
	uint64_t link;         /* how many connections were made to it; names the present one */
	bool awaited;          /* a HELLO was said and no answer came: only then is an answer heard */
	uint64_t told_refusal; /* hash of the refusal that was told last; 0: none since the link was up */
	/* the peer's to us; incarnation and link stay known after a break, so that a HELLO that was overtaken is told
	 * apart */
	bool welcomed;
	transport_connection connection;
	uint64_t their_link, their_incarnation;
};

struct links {
	struct greeting_self self;
	struct greeting_told told;
	uint64_t generation;
	bool bulk;
	struct transport *transport;
	const struct links_owner *owner;
	void *context;
	struct link_counters *counters;
	struct link_peer peers[];
};

enum link_payload { PAYLOAD_NONE, PAYLOAD_WHOLE /* length bytes */, PAYLOAD_PART /* of length bytes, at offset */ };

static const struct link_rule {
	bool control, bulk; /* on which plane it may travel, once greeted */
	bool any_generation;
	enum link_payload payload;
} RULES[] = {
	[PEER_HEARTBEAT] = { .control = true, .any_generation = true },
	[PEER_MANIFEST] = { .control = true },
	[PEER_DETAIL_WANTED] = { .control = true },
	[PEER_DETAIL] = { .control = true, .payload = PAYLOAD_PART },
	[PEER_SEALED] = { .control = true },
	[PEER_UNSEALED] = { .control = true },
	[PEER_LOADED] = { .control = true },
	[PEER_VERIFIED] = { .control = true },
	[PEER_VOTE] = { .control = true },
	[PEER_DECISION] = { .control = true },
	[PEER_ABORT] = { .control = true },
	[PEER_CLOSED] = { .control = true },
	[PEER_DROP] = { .control = true },
	[PEER_DROP_REFUSED] = { .control = true },
	[PEER_WAITING] = { .control = true },
	[PEER_LOST] = { .control = true },
	[PEER_WITHDRAW] = { .control = true },
	[PEER_NORM] = { .control = true },
	[PEER_NORMED] = { .control = true },
	[PEER_ALL_REDUCE] = { .control = true },
	[PEER_ALL_REDUCED] = { .control = true },
	[PEER_OFFERED] = { .control = true },
	[PEER_READ] = { .bulk = true },
	[PEER_CHUNK] = { .bulk = true, .payload = PAYLOAD_WHOLE },
	[PEER_STALE] = { .bulk = true },
	[PEER_PUSH] = { .bulk = true, .payload = PAYLOAD_WHOLE },
	[PEER_CLOSE] = { .bulk = true },
	[PEER_PROGRESS] = { .bulk = true },
};

static void count(_Atomic uint64_t *counter, uint64_t by)
{
	atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

static bool rule_allows(const struct links *links, enum peer_op op)
{
	if ((size_t)op >= sizeof(RULES) / sizeof(RULES[0]))
		return false;
	return links->bulk ? RULES[op].bulk : RULES[op].control;
}

static bool payload_fits(const struct peer_message *message, bool present, size_t size)
{
	switch (RULES[message->op].payload) {
	case PAYLOAD_NONE:
		return !present;
	case PAYLOAD_WHOLE:
		return present && size > 0 && size == message->length && size <= PEER_PAYLOAD_MAX;
	case PAYLOAD_PART:
		return present && size > 0 && size <= PEER_PAYLOAD_MAX && message->offset <= message->length &&
		       size <= message->length - message->offset;
	}
	return false;
}

/* Sending */

static void stamp(const struct links *links, struct peer_message *message)
{
	message->protocol = PEER_PROTOCOL;
	message->cluster = links->self.cluster_hash;
	message->generation = links->generation;
	message->incarnation = links->self.incarnation;
	message->source = links->self.rank;
}

static int send_on_link(struct links *links, uint32_t rank, struct peer_message *message,
			struct transport_piece payload)
{
	stamp(links, message);
	message->link = links->peers[rank].link;
	void *header;
	size_t size;
	int rc = peer_message_write(message, &header, &size);
	if (rc < 0)
		return rc;
	rc = links->transport->send(links->transport, rank, header, size, payload);
	free(header);
	if (rc == 0) {
		count(&links->counters->messages_out, 1);
		count(&links->counters->bytes_out, size + (payload.buffer ? payload.size : 0));
	}
	return rc;
}

/* A HELLO that does not go out now goes out with the next tick. */
static void say_hello(struct links *links, uint32_t rank)
{
	struct peer_message hello = { .op = PEER_HELLO, .world_size = links->self.world_size };
	memcpy(hello.name, links->self.cluster, sizeof(hello.name));
	if (send_on_link(links, rank, &hello, (struct transport_piece){ 0 }) == 0)
		links->peers[rank].awaited = true;
}

/* An answer that is lost is given again to the next HELLO. */
static void answer(struct links *links, transport_connection connection, struct peer_message *message, uint64_t link)
{
	stamp(links, message);
	message->link = link;
	void *header;
	size_t size;
	if (peer_message_write(message, &header, &size) < 0)
		return;
	if (links->transport->answer(links->transport, connection, header, size) == 0) {
		count(&links->counters->messages_out, 1);
		count(&links->counters->bytes_out, size);
	}
	free(header);
}

/* Incoming connections */

/* The peer that was welcomed on this connection; NULL: nobody. Most often it is the one that the message claims to come
 * from. */
static struct link_peer *peer_on(struct links *links, transport_connection connection, uint32_t claimed)
{
	if (claimed < links->self.world_size && links->peers[claimed].welcomed &&
	    links->peers[claimed].connection == connection)
		return &links->peers[claimed];
	for (uint32_t rank = 0; rank < links->self.world_size; rank++)
		if (links->peers[rank].welcomed && links->peers[rank].connection == connection)
			return &links->peers[rank];
	return NULL;
}

static void end_connection(struct links *links, transport_connection connection)
{
	struct link_peer *peer = peer_on(links, connection, UINT32_MAX);
	if (peer)
		peer->welcomed = false;
	links->transport->drop(links->transport, connection);
}

static void end_malformed(struct links *links, transport_connection connection)
{
	count(&links->counters->malformed, 1);
	end_connection(links, connection);
}

static void refuse(struct links *links, transport_connection connection, const struct peer_message *hello,
		   enum greeting_fault fault, int code, const char *text, const char *their_text)
{
	struct peer_message refusal = { .op = PEER_REFUSE, .code = code };
	memcpy(refusal.text, their_text, strnlen(their_text, PEER_TEXT_MAX));
	count(&links->counters->refused, 1);
	answer(links, connection, &refusal, hello->link);
	if (greeting_is_news(&links->told, fault, hello->source))
		links->owner->refusing(links->context, hello, code, text);
}

static void welcome(struct links *links, transport_connection connection, uint64_t link)
{
	struct peer_message message = { .op = PEER_WELCOME };
	answer(links, connection, &message, link);
}

/* Asks the owner, and lets the connection take the place of the one before. */
static void judge(struct links *links, transport_connection connection, const struct peer_message *hello)
{
	struct link_peer *peer = &links->peers[hello->source];
	char text[PEER_TEXT_MAX + 1] = "";

	int verdict = links->owner->judge(links->context, hello, text);
	if (verdict > 0)
		return;
	if (verdict < 0) {
		text[PEER_TEXT_MAX] = '\0';
		refuse(links, connection, hello, GREETING_JUDGED, verdict, text, text);
		return;
	}
	if (peer->welcomed && peer->connection != connection)
		links->transport->drop(links->transport, peer->connection);
	if (peer->their_incarnation != hello->incarnation)
		greeting_forget(&links->told, hello->source);
	peer->welcomed = true;
	peer->connection = connection;
	peer->their_link = hello->link;
	peer->their_incarnation = hello->incarnation;
	welcome(links, connection, hello->link);
	links->owner->inbound(links->context, hello->source, hello->link, hello->incarnation);
}

static void on_hello(struct links *links, transport_connection connection, const struct peer_message *hello,
		     bool has_payload)
{
	enum greeting_fault fault = greeting_check(&links->self, hello);
	if (has_payload || fault == GREETING_MALFORMED) {
		end_malformed(links, connection);
		return;
	}
	struct link_peer *known = peer_on(links, connection, hello->source);
	if (known && (uint32_t)(known - links->peers) != hello->source) { /* it is somebody else's */
		end_malformed(links, connection);
		return;
	}
	if (fault != GREETING_FITS) {
		char text[PEER_TEXT_MAX + 1], their_text[PEER_TEXT_MAX + 1];
		int code = greeting_explain(&links->self, hello, fault, text, their_text);
		refuse(links, connection, hello, fault, code, text, their_text);
		return;
	}
	struct link_peer *peer = &links->peers[hello->source];
	if (peer->their_incarnation == hello->incarnation && hello->link <= peer->their_link) {
		if (known && hello->link == peer->their_link)
			welcome(links, connection, hello->link);
		else /* overtaken by a newer link; where the connection is a new one, its own HELLO is on the way */
			count(&links->counters->stale_link, 1);
		return;
	}
	judge(links, connection, hello);
}

static void on_session(struct links *links, transport_connection connection, const struct peer_message *message,
		       struct buffer *payload)
{
	if (!rule_allows(links, message->op) ||
	    !payload_fits(message, payload != NULL, payload ? buffer_size(payload) : 0)) {
		end_malformed(links, connection);
		return;
	}
	struct link_peer *peer = peer_on(links, connection, message->source);
	if (!peer) { /* a reconnect races with what was sent before it: no reason to end the connection */
		count(&links->counters->before_hello, 1);
		return;
	}
	uint32_t rank = (uint32_t)(peer - links->peers);
	if (message->source != rank || message->cluster != links->self.cluster_hash ||
	    message->protocol < PEER_PROTOCOL_MIN || message->protocol > PEER_PROTOCOL) {
		end_malformed(links, connection);
		return;
	}
	if (message->link != peer->their_link || message->incarnation != peer->their_incarnation) {
		count(&links->counters->stale_link, 1);
		return;
	}
	if (!RULES[message->op].any_generation && !PLANTED(PLANTED_STALE_GENERATION) &&
	    (links->generation == 0 || message->generation != links->generation)) {
		count(&links->counters->stale_generation, 1);
		return;
	}
	links->owner->message(links->context, rank, message, payload);
}

/* What the transport tells */

static void on_message(void *context, transport_connection connection, const void *header, size_t header_size,
		       struct buffer *payload)
{
	struct links *links = context;
	struct peer_message message;

	count(&links->counters->messages_in, 1);
	count(&links->counters->bytes_in, header_size + (payload ? buffer_size(payload) : 0));
	int rc = peer_message_read(header, header_size, &message);
	if (rc < 0) {
		if (rc ==
		    -ENOMEM) /* in one life of a link nothing may be lost: its peer makes a new one and says it again */
			end_connection(links, connection);
		else
			end_malformed(links, connection);
		return;
	}
	if (message.op == PEER_HELLO)
		on_hello(links, connection, &message, payload != NULL);
	else
		on_session(links, connection, &message, payload);
	peer_message_fini(&message);
}

static void on_welcome(struct links *links, uint32_t rank, const struct peer_message *message)
{
	struct link_peer *peer = &links->peers[rank];

	peer->state = LINK_UP;
	peer->told_refusal = 0;
	links->owner->up(links->context, rank, peer->link, message->incarnation);
}

static void on_refusal(struct links *links, uint32_t rank, int code, const char *text)
{
	struct link_peer *peer = &links->peers[rank];
	uint64_t refusal = XXH3_64bits_withSeed(text, strlen(text), (XXH64_hash_t)code) | 1;

	if (peer->told_refusal == refusal)
		return;
	peer->told_refusal = refusal;
	links->owner->refused(links->context, rank, code, text);
}

static void on_answer(struct links *links, uint32_t rank, const struct peer_message *message)
{
	struct link_peer *peer = &links->peers[rank];

	if (message->link != peer->link || peer->state != LINK_GREETING || !peer->awaited) {
		count(&links->counters->stale_link, 1);
		return;
	}
	peer->awaited = false;
	if (message->op == PEER_REFUSE) /* whatever its cluster is: that may be the reason */
		on_refusal(links, rank, message->code < 0 ? message->code : FSDP_E_PROTOCOL, message->text);
	else if (message->cluster != links->self.cluster_hash || message->source != rank)
		on_refusal(links, rank, FSDP_E_CONFIG, "its endpoint leads to another rank");
	else
		on_welcome(links, rank, message);
}

static void on_answered(void *context, uint32_t rank, const void *header, size_t header_size)
{
	struct links *links = context;
	struct peer_message message;

	assert(rank < links->self.world_size && rank != links->self.rank);
	count(&links->counters->messages_in, 1);
	count(&links->counters->bytes_in, header_size);
	int rc = peer_message_read(header, header_size, &message);
	if (rc == -ENOMEM)
		return; /* the HELLO is said again */
	if (rc == 0 && (message.op == PEER_WELCOME || message.op == PEER_REFUSE)) {
		on_answer(links, rank, &message);
	} else {
		count(&links->counters->malformed, 1);
		links->transport->reset(links->transport, rank);
	}
	if (rc == 0)
		peer_message_fini(&message);
}

static void on_disconnected(void *context, uint32_t rank)
{
	struct links *links = context;
	assert(rank < links->self.world_size && rank != links->self.rank);
	struct link_peer *peer = &links->peers[rank];
	bool was_up = peer->state == LINK_UP;

	peer->state = LINK_DOWN;
	peer->awaited = false;
	if (was_up)
		links->owner->down(links->context, rank);
}

static void on_connected(void *context, uint32_t rank)
{
	struct links *links = context;

	on_disconnected(context, rank); /* where the transport told of the new one only */
	links->peers[rank].link++;
	links->peers[rank].state = LINK_GREETING;
	say_hello(links, rank);
}

static void on_closed(void *context, transport_connection connection)
{
	struct link_peer *peer = peer_on(context, connection, UINT32_MAX);
	if (peer)
		peer->welcomed = false;
}

const struct transport_events *links_events(void)
{
	static const struct transport_events events = {
		.connected = on_connected,
		.disconnected = on_disconnected,
		.message = on_message,
		.answered = on_answered,
		.closed = on_closed,
	};
	return &events;
}

/* What the owner asks for */

int links_new(const struct links_config *config, struct links **ret_links)
{
	assert(config->world_size > 0 && config->rank < config->world_size);
	assert(config->transport && config->owner && config->counters);
	size_t cluster_size = strlen(config->cluster);
	if (cluster_size > PEER_NAME_MAX)
		return FSDP_E_OVERFLOW;
	struct links *links = calloc(1, sizeof(*links) + config->world_size * sizeof(links->peers[0]));
	if (!links)
		return -ENOMEM;

	memcpy(links->self.cluster, config->cluster, cluster_size);
	links->self.cluster_hash = greeting_cluster_hash(config->cluster);
	links->self.incarnation = config->incarnation;
	links->self.rank = config->rank;
	links->self.world_size = config->world_size;
	links->bulk = config->bulk;
	links->transport = config->transport;
	links->owner = config->owner;
	links->context = config->context;
	links->counters = config->counters;
	*ret_links = links;
	return 0;
}

void links_free(struct links *links)
{
	free(links);
}

void links_tick(struct links *links)
{
	for (uint32_t rank = 0; rank < links->self.world_size; rank++)
		if (links->peers[rank].state == LINK_GREETING)
			say_hello(links, rank);
}

void links_set_generation(struct links *links, uint64_t generation)
{
	links->generation = generation;
}

void links_forget(struct links *links, uint32_t rank)
{
	assert(rank < links->self.world_size && rank != links->self.rank);
	struct link_peer *peer = &links->peers[rank];
	bool was_welcomed = peer->welcomed;

	peer->welcomed = false;
	peer->their_link = 0;
	peer->their_incarnation = 0;
	/* Its peer believes that it is heard and would never say HELLO again: only a new connection makes it. */
	if (was_welcomed)
		links->transport->drop(links->transport, peer->connection);
}

int links_send(struct links *links, uint32_t rank, struct peer_message *message, struct transport_piece payload)
{
	assert(rank < links->self.world_size && rank != links->self.rank);
	assert(rule_allows(links, message->op));
	assert(payload_fits(message, payload.buffer != NULL, payload.size));
	if (links->peers[rank].state != LINK_UP || (links->generation == 0 && !RULES[message->op].any_generation))
		return -ENOTCONN;
	return send_on_link(links, rank, message, payload);
}

bool links_is_up(const struct links *links, uint32_t rank)
{
	return links->peers[rank].state == LINK_UP;
}

bool links_is_welcomed(const struct links *links, uint32_t rank)
{
	return links->peers[rank].welcomed;
}

void links_reset(struct links *links, uint32_t rank)
{
	assert(rank < links->self.world_size && rank != links->self.rank);
	links->transport->reset(links->transport, rank);
}
