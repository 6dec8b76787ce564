/*
 * Links and the messages that come in on them. The engine's thread. What a message means is known to serve.c, reader.c,
 * push.c and collect.c; here only its model is found.
 */
#include "daemon/engine/peers.h"

#include "daemon/engine/shards.h"
#include <errno.h>
#include <stdlib.h>

/* ---- Messages ---- */

static void peers_progress(struct model *model, uint32_t rank, const struct peer_message *message,
			   struct buffer *payload)
{
	(void)payload;
	push_progress(model, rank, message);
	if (message->reply)
		progress_want_all(&model->sources[rank], false);
}

static void peers_read(struct model *model, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	(void)payload;
	serve_read(model, rank, message);
}

static void peers_stale(struct model *model, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	(void)payload;
	reader_stale(model, rank, message);
}

static void peers_close(struct model *model, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	(void)payload;
	collect_close_message(model, rank, message);
}

static const struct {
	enum peer_op op;
	void (*take)(struct model *model, uint32_t rank, const struct peer_message *message, struct buffer *payload);
} peers_messages[] = {
	{ PEER_PUSH, collect_push }, { PEER_CHUNK, reader_chunk }, { PEER_PROGRESS, peers_progress },
	{ PEER_READ, peers_read },   { PEER_STALE, peers_stale },  { PEER_CLOSE, peers_close },
};

static void peers_message(void *context, uint32_t rank, const struct peer_message *message, struct buffer *payload)
{
	struct engine *engine = context;
	struct model *model = shards_find(engine, message->model);

	/* A model that is not known here yet, or not any more: what matters is repeated. */
	for (size_t i = 0; model && i < sizeof(peers_messages) / sizeof(peers_messages[0]); i++) {
		if (peers_messages[i].op == message->op)
			peers_messages[i].take(model, rank, message, payload);
	}
	engine_settle(engine);
}

/* ---- Links ---- */

static int peers_judge(void *context, const struct peer_message *hello, char *text)
{
	const struct engine *engine = context;

	(void)text;
	/* Not refused: what the loop knows may arrive here later than the HELLO. */
	return engine->generation != 0 && hello->generation == engine->generation &&
			       hello->source < engine->config.world_size && hello->incarnation != 0 &&
			       hello->incarnation == engine->peers[hello->source].incarnation
		       ? 0
		       : 1;
}

static void peers_up(void *context, uint32_t rank, uint64_t link, uint64_t incarnation)
{
	struct engine *engine = context;
	struct engine_peer *peer = &engine->peers[rank];

	if (incarnation != peer->incarnation) {
		engine_reset_link(engine, rank);
		engine_settle(engine);
		return;
	}
	peer->up = true;
	peer->link_out = link;
	for (struct model *model = engine->models; model; model = model->next) {
		progress_want_all(&model->sources[rank], true);
		push_up(model, rank);
		reader_repeat(model, rank);
		serve_resume(model);
	}
	peers_check_bulk(engine);
	engine_settle(engine);
}

static void peers_down(void *context, uint32_t rank)
{
	struct engine *engine = context;

	engine->peers[rank].up = false;
	for (struct model *model = engine->models; model; model = model->next)
		serve_forget(model, rank);
	peers_check_bulk(engine);
	engine_settle(engine);
}

static void peers_inbound(void *context, uint32_t rank, uint64_t link, uint64_t incarnation)
{
	struct engine *engine = context;

	(void)incarnation; /* as judged */
	engine->peers[rank].link_in = link;
	for (struct model *model = engine->models; model; model = model->next) {
		collect_inbound(model, rank);
		serve_forget(model, rank);
		reader_repeat(model, rank);
	}
	peers_check_bulk(engine);
	engine_settle(engine);
}

/* The control plane's links hear the same reasons and say them. */
static void peers_refused(void *context, uint32_t rank, int code, const char *text)
{
	(void)context;
	(void)rank;
	(void)code;
	(void)text;
}

static void peers_refusing(void *context, const struct peer_message *hello, int code, const char *text)
{
	(void)context;
	(void)hello;
	(void)code;
	(void)text;
}

void peers_check_bulk(struct engine *engine)
{
	struct report *report;
	bool changed = false;

	for (uint32_t rank = 0; rank < engine->config.world_size; rank++) {
		struct engine_peer *peer = &engine->peers[rank];
		bool bulk = rank != engine->config.rank && peer->up && links_is_up(engine->links, rank) &&
			    links_is_welcomed(engine->links, rank);

		changed |= bulk != peer->bulk;
		peer->bulk = bulk;
	}
	if (!changed)
		return;
	report = report_new(REPORT_BULK);
	report->ranks = engine_alloc(engine->config.world_size, sizeof(*report->ranks));
	for (uint32_t rank = 0; rank < engine->config.world_size; rank++) {
		if (engine->peers[rank].bulk)
			report->ranks[report->rank_count++] = rank;
	}
	engine_report(engine, report);
}

bool peers_reset(struct engine *engine)
{
	bool any = engine->resets;

	engine->resets = false;
	for (uint32_t rank = 0; any && rank < engine->config.world_size; rank++) {
		if (!engine->peers[rank].reset)
			continue;
		engine->peers[rank].reset = false;
		links_reset(engine->links, rank);
	}
	return any;
}

void peers_command(struct engine *engine, const struct command *command)
{
	bool anew = command->generation != engine->generation;
	bool formed = engine->generation != 0;

	engine->generation = command->generation;
	links_set_generation(engine->links, command->generation);
	for (uint32_t rank = 0; rank < engine->config.world_size; rank++) {
		struct engine_peer *peer = &engine->peers[rank];
		uint64_t incarnation = command->incarnations ? command->incarnations[rank] : 0;
		bool other = peer->incarnation != 0 && peer->incarnation != incarnation;

		peer->incarnation = incarnation;
		/* Nothing of one view of the group may be taken for a part of the next. */
		if (rank == engine->config.rank || !((anew && formed) || other))
			continue;
		links_forget(engine->links, rank);
		engine_reset_link(engine, rank);
	}
	peers_check_bulk(engine);
	if (anew && command->generation)
		links_tick(engine->links); /* our HELLOs were not answered so far */
}

/* ---- Making and ending them ---- */

static const struct links_owner peers_owner = {
	.judge = peers_judge,
	.up = peers_up,
	.down = peers_down,
	.inbound = peers_inbound,
	.refused = peers_refused,
	.refusing = peers_refusing,
	.message = peers_message,
};

int peers_init(struct engine *engine)
{
	const struct links_config config = { .rank = engine->config.rank,
					     .world_size = engine->config.world_size,
					     .cluster = engine->config.cluster,
					     .incarnation = engine->config.incarnation,
					     .bulk = true,
					     .transport = engine->config.transport,
					     .owner = &peers_owner,
					     .context = engine,
					     .counters = engine->config.link_counters };

	engine->peers = calloc(engine->config.world_size, sizeof(*engine->peers));
	return engine->peers ? links_new(&config, &engine->links) : -ENOMEM;
}

void peers_fini(struct engine *engine)
{
	links_free(engine->links);
	free(engine->peers);
}
