/*
 * The referee: looks at every message on the wire, every command and every report, and ends the run when a rule is
 * broken that no trainer could see: credits, decisions before the votes, messages of another generation that are heard,
 * memory that changes under a buffer, a shard that is not the oracle's. Owns the flows (what a source may push on a
 * link). It changes nothing. One thread.
 */
#include "tests/sim/sim.h"

#include <assert.h>
#include <string.h>

#include <xxhash.h>

#include "proto/peer_message.h"
#include "tests/sim/memory.h"
#include "tests/sim/tally.h"
#include "tests/sim/trace.h"

struct flow { /* pushes of one source to one owner for one model, on the newest link */
	struct flow *next;
	uint64_t model;
	uint64_t life; /* of the source */
	uint64_t link;
	uint64_t sent, arrived, credit;
};

struct referee {
	struct sim *sim;
	struct flow **flows; /* [source * world_size + owner] */
	/* between arriving and arrived */
	bool must_drop;
	uint64_t dropped;
};

struct referee *referee_new(struct sim *sim)
{
	struct referee *referee = memory_zeroed(sizeof(*referee));
	referee->sim = sim;
	referee->flows = memory_zeroed(sizeof(struct flow *) * sim->config.world_size * sim->config.world_size);
	return referee;
}

void referee_free(struct referee *referee)
{
	uint32_t world = referee->sim->config.world_size;
	for (uint32_t i = 0; i < world * world; i++) {
		while (referee->flows[i]) {
			struct flow *flow = referee->flows[i];
			referee->flows[i] = flow->next;
			free(flow);
		}
	}
	free(referee->flows);
	free(referee);
}

/* ---- Credits ---- */

/* The flow on that link, made anew where the link is newer; NULL where it is older. */
static struct flow *referee_flow(struct referee *referee, uint32_t source, uint32_t owner, uint64_t model,
				 uint64_t link)
{
	uint64_t life = referee->sim->nodes[source].life;
	struct flow **list = &referee->flows[source * referee->sim->config.world_size + owner];
	struct flow *flow = *list;
	while (flow && flow->model != model) {
		flow = flow->next;
	}
	if (!flow) {
		flow = memory_zeroed(sizeof(*flow));
		flow->model = model;
		flow->next = *list;
		*list = flow;
	}
	if (flow->life != life || flow->link < link) {
		flow->life = life;
		flow->link = link;
		flow->sent = flow->arrived = flow->credit = 0;
	}
	return flow->link == link ? flow : NULL;
}

static void referee_push_sent(struct referee *referee, uint32_t from, uint32_t to, const struct peer_message *message,
			      size_t size)
{
	struct flow *flow = referee_flow(referee, from, to, message->model, message->link);
	if (!flow) {
		return;
	}
	flow->sent += size;
	if (flow->sent > flow->credit) {
		trace_fail("rank %u pushed %llu bytes of model %llx to rank %u on link %llu, whose credit is %llu",
			   from, (unsigned long long)flow->sent, (unsigned long long)message->model, to,
			   (unsigned long long)message->link, (unsigned long long)flow->credit);
	}
	if (flow->sent - flow->arrived > referee->sim->window_bytes) {
		trace_fail("rank %u has %llu bytes on their way to rank %u, the window is %llu", from,
			   (unsigned long long)(flow->sent - flow->arrived), to,
			   (unsigned long long)referee->sim->window_bytes);
	}
}

/* Of a life that a rank has lost, its peers may still speak as they did before. */
static bool referee_is_lost(struct referee *referee, uint64_t model, uint32_t a, uint32_t b)
{
	const struct life *life = sim_life(referee->sim, model);
	return life && (life->lost[a] || life->lost[b]);
}

static void referee_progress_sent(struct referee *referee, uint32_t owner, uint32_t source,
				  const struct peer_message *message)
{
	struct flow *flow = message->credit_link
				    ? referee_flow(referee, source, owner, message->model, message->credit_link)
				    : NULL;
	if (flow && message->credit > flow->arrived + referee->sim->window_bytes &&
	    !referee_is_lost(referee, message->model, owner, source)) {
		trace_fail("rank %u grants rank %u %llu bytes, of which %llu arrived; the window is %llu", owner,
			   source, (unsigned long long)message->credit, (unsigned long long)flow->arrived,
			   (unsigned long long)referee->sim->window_bytes);
	}
}

static void referee_progress_arrived(struct referee *referee, uint32_t owner, uint32_t source,
				     const struct peer_message *message)
{
	struct flow *flow = message->credit_link
				    ? referee_flow(referee, source, owner, message->model, message->credit_link)
				    : NULL;
	if (flow && message->credit > flow->credit) {
		flow->credit = message->credit;
	}
}

/* ---- Acknowledgements ---- */

static bool referee_is_known(const struct life *life, const struct peer_message *message, uint32_t micro_batch,
			     uint32_t rank, uint32_t unit)
{
	const struct life_closed *closed = &life->closed[rank];
	bool same = closed->step == message->step && closed->attempt == message->attempt;
	bool later =
		closed->step > message->step || (closed->step == message->step && closed->attempt > message->attempt);
	return later || (same && (closed->last || closed->count > micro_batch)) ||
	       oracle_has(life->oracle, message->step, message->attempt, micro_batch, rank, unit);
}

/* What is acknowledged is added, and it can only be added when everything before it in the order was handed over or is
 * absent. */
static void referee_acknowledged(struct referee *referee, uint32_t owner, uint32_t source,
				 const struct peer_message *message)
{
	const struct life *life = sim_life(referee->sim, message->model);
	if (!life || message->step != oracle_step(life->oracle)) {
		return;
	}
	uint32_t world = referee->sim->config.world_size;
	for (size_t i = 0; i < message->progress_count; i++) {
		const struct peer_progress *entry = &message->progress[i];
		uint64_t end = entry->offset > 0 ? (uint64_t)entry->micro_batch * world + source : 0;
		for (uint64_t at = 0; at <= end && entry->offset > 0; at++) {
			if (!referee_is_known(life, message, (uint32_t)(at / world), (uint32_t)(at % world),
					      entry->unit)) {
				trace_fail("rank %u acknowledges unit %u, micro-batch %u, to rank %u before that of "
					   "rank %u was "
					   "handed over",
					   owner, entry->unit, entry->micro_batch, source, (uint32_t)(at % world));
			}
		}
	}
}

static void referee_closed(struct referee *referee, uint32_t rank, const struct command *command)
{
	struct life *life = sim_life(referee->sim, command->model);
	if (life) {
		life->closed[rank] = (struct life_closed){ .step = command->step,
							   .attempt = command->attempt,
							   .count = command->micro_batch + 1,
							   .last = command->last };
	}
}

/* ---- Votes and decisions ---- */

void referee_stepped(struct referee *referee, uint32_t rank, uint64_t model, uint64_t step, uint32_t attempt)
{
	struct life *life = sim_life(referee->sim, model);
	if (life) {
		life->voted[rank] = true;
		life->vote_step[rank] = step;
		life->vote_attempt[rank] = attempt;
	}
}

/* The coordinator commits the oracle's present step: every vote of one attempt must have been heard. */
static void referee_commit(struct referee *referee, struct life *life, enum step_outcome outcome)
{
	struct sim *sim = referee->sim;
	uint64_t step = oracle_step(life->oracle);
	for (uint32_t rank = 0; rank < sim->config.world_size; rank++) {
		if (!life->voted[rank] || life->vote_step[rank] != step || life->vote_attempt[rank] != life->attempt) {
			trace_fail("step %llu is decided without the vote of rank %u in attempt %u",
				   (unsigned long long)step, rank, life->attempt);
		}
	}
	enum step_outcome expected = oracle_commit(life->oracle, life->attempt);
	if (outcome != expected) {
		trace_fail("step %llu was decided as %s, the oracle says %s", (unsigned long long)step,
			   outcome == STEP_APPLIED ? "applied" : "skipped",
			   expected == STEP_APPLIED ? "applied" : "skipped");
	}
	trace_note("decided: model $ step # attempt # outcome #", life->model, step, life->attempt, outcome);
	bool staged =
		workload_commit(&sim->workloads[life->workload], oracle_life(life->oracle), step) == COMMIT_STAGING;
	tally_count(TALLY_EVENT, outcome == STEP_SKIPPED ? EVENT_SKIPPED : staged ? EVENT_STAGED : EVENT_APPLIED);
	life->attempt = 0;
}

static void referee_decision(struct referee *referee, uint32_t rank, uint64_t model, uint64_t step,
			     enum step_outcome outcome)
{
	struct life *life = sim_life(referee->sim, model);
	if (!life) {
		return;
	}
	if (step == oracle_step(life->oracle) && rank == 0) {
		referee_commit(referee, life, outcome);
	} else if (step >= oracle_step(life->oracle)) {
		trace_fail("rank %u commits step %llu, which the coordinator has not decided", rank,
			   (unsigned long long)step);
	} else if (outcome != oracle_outcome(life->oracle, step)) {
		trace_fail("rank %u takes step %llu as %d, others as %d", rank, (unsigned long long)step, (int)outcome,
			   (int)oracle_outcome(life->oracle, step));
	}
}

/* Only the coordinator raises an attempt, and never of a step that it has committed. */
static void referee_abort(struct referee *referee, uint32_t rank, uint64_t model, uint64_t step, uint32_t attempt)
{
	struct life *life = sim_life(referee->sim, model);
	if (!life) {
		return;
	}
	if (step < oracle_step(life->oracle)) {
		trace_fail("rank %u aborts step %llu, which the coordinator has committed", rank,
			   (unsigned long long)step);
	}
	if (step > oracle_step(life->oracle)) {
		trace_fail("rank %u aborts step %llu, the group is in %llu", rank, (unsigned long long)step,
			   (unsigned long long)oracle_step(life->oracle));
	}
	if (attempt > life->attempt) {
		if (rank != 0) {
			trace_fail("rank %u aborts into attempt %u, which the coordinator has not decided", rank,
				   attempt);
		}
		life->attempt = attempt;
		trace_note("aborted: model $ step # next attempt #", model, step, attempt);
	}
}

/* ---- The wire ---- */

static enum peer_op referee_op(const void *header, size_t size)
{
	const unsigned char *bytes = header; /* the op is the first field, a number below 128 */
	return size >= 2 && bytes[0] == 0x08 ? (enum peer_op)bytes[1] : 0;
}

static void referee_on_sent(void *context, enum plane plane, uint32_t from, uint32_t to,
			    transport_connection connection, const void *header, size_t header_size,
			    size_t payload_size)
{
	struct referee *referee = context;
	enum peer_op op = referee_op(header, header_size);
	(void)plane;
	(void)connection;
	if (op != PEER_PUSH && op != PEER_PROGRESS && op != PEER_DECISION) {
		return;
	}
	struct peer_message message;
	if (peer_message_read(header, header_size, &message) < 0) {
		trace_fail("rank %u sends rank %u a header that nobody can read", from, to);
	}
	if (op == PEER_PUSH) {
		referee_push_sent(referee, from, to, &message, payload_size);
	} else if (op == PEER_PROGRESS) {
		referee_progress_sent(referee, from, to, &message);
		referee_acknowledged(referee, from, to, &message);
	} else if (message.outcome == PEER_ABORT_STEP) {
		const struct life *life = sim_life(referee->sim, message.model);
		if (from == 0 && life && message.step < oracle_step(life->oracle)) {
			trace_fail("the coordinator tells rank %u to abort step %llu, which it has committed", to,
				   (unsigned long long)message.step);
		}
	} else {
		referee_decision(referee, from, message.model, message.step,
				 message.outcome == PEER_APPLY ? STEP_APPLIED : STEP_SKIPPED);
	}
	peer_message_fini(&message);
}

static uint64_t referee_dropped(const struct link_counters *counters)
{
	return counters->malformed + counters->before_hello + counters->refused + counters->stale_link +
	       counters->stale_generation;
}

static void referee_on_arriving(void *context, enum plane plane, uint32_t from, uint32_t to,
				transport_connection connection, const void *header, size_t header_size,
				const void *payload, size_t payload_size, bool broken)
{
	struct referee *referee = context;
	struct node *node = &referee->sim->nodes[to];
	struct peer_message message;
	(void)connection;
	if (peer_message_read(header, header_size, &message) < 0) {
		trace_fail("rank %u sent rank %u a header that nobody can read", from, to);
	}
	trace_note("rank # to rank #, op #, model $ unit # offset #, payload # ($)", from, to, message.op,
		   message.model, message.unit, message.offset, payload_size,
		   XXH3_64bits_withSeed(header, header_size, payload ? XXH3_64bits(payload, payload_size) : 0));
	tally_count(TALLY_OP, message.op);
	if (broken) {
		tally_count(TALLY_EVENT, EVENT_OLD_CONNECTION);
	}
	bool any = message.op == PEER_HELLO || message.op == PEER_HEARTBEAT;
	uint64_t generation = plane == PLANE_BULK ? node->bulk_generation : group_generation(node->group);
	referee->must_drop = !any && message.generation != generation;
	referee->dropped = referee_dropped(&node->link_counters[plane]);
	if (message.op == PEER_PUSH) {
		struct flow *flow = referee_flow(referee, from, to, message.model, message.link);
		if (flow) {
			flow->arrived += payload_size;
		}
	} else if (message.op == PEER_PROGRESS) {
		referee_progress_arrived(referee, from, to, &message);
	} else if (message.op == PEER_VOTE && to == 0) {
		referee_stepped(referee, from, message.model, message.step, message.attempt);
	}
	peer_message_fini(&message);
}

static void referee_on_arrived(void *context, enum plane plane, uint32_t from, uint32_t to,
			       transport_connection connection, const void *header, size_t header_size)
{
	struct referee *referee = context;
	(void)connection;
	(void)header_size;
	if (referee->must_drop && referee->sim->nodes[to].alive &&
	    referee_dropped(&referee->sim->nodes[to].link_counters[plane]) == referee->dropped) {
		trace_fail("rank %u heard a message (op %d) of rank %u of another generation", to,
			   (int)referee_op(header, header_size), from);
	}
}

static void referee_on_answered(void *context, enum plane plane, uint32_t from, uint32_t to, const void *header,
				size_t header_size)
{
	(void)context;
	trace_note("rank # answers rank # on plane #, op # ($)", from, to, plane, referee_op(header, header_size),
		   XXH3_64bits(header, header_size));
	tally_count(TALLY_OP, referee_op(header, header_size));
}

static void referee_on_full(void *context, enum plane plane, uint32_t from, uint32_t to)
{
	(void)context;
	trace_note("rank # to rank # on plane #: the queue is full", from, to, plane);
	tally_count(TALLY_EVENT, EVENT_QUEUE_FULL);
}

static void referee_on_changed(void *context, enum plane plane, uint32_t from, uint32_t to, const void *header,
			       size_t header_size)
{
	(void)context;
	(void)plane;
	trace_fail("rank %u changed memory while a message (op %d) to rank %u held a buffer into it", from,
		   (int)referee_op(header, header_size), to);
}

static void referee_on_link(void *context, enum plane plane, uint32_t from, uint32_t to, bool up)
{
	(void)context;
	trace_note(up ? "plane #: rank # to rank # connects" : "plane #: rank # to rank # is broken", plane, from, to);
}

struct net_watch referee_watch(struct referee *referee)
{
	return (struct net_watch){ .sent = referee_on_sent,
				   .arriving = referee_on_arriving,
				   .arrived = referee_on_arrived,
				   .answered = referee_on_answered,
				   .full = referee_on_full,
				   .changed = referee_on_changed,
				   .link = referee_on_link,
				   .context = referee };
}

/* ---- Between group and engine ---- */

static void referee_publish(struct referee *referee, uint32_t rank, const struct command *command)
{
	struct life *life = sim_life(referee->sim, command->model);
	for (uint32_t r = 0; life && r < referee->sim->config.world_size; r++) {
		const struct manifest_options *options = &referee->sim->workloads[life->workload].options;
		bool needed =
			options->init == INIT_VERIFY || (options->init == INIT_FROM_RANK && options->init_rank == r);
		if (needed && !life->loaded[r][command->unit]) {
			trace_fail("rank %u publishes unit %u, which rank %u has not loaded", rank, command->unit, r);
		}
	}
}

void referee_command(struct referee *referee, struct node *node, const struct command *command)
{
	switch (command->kind) {
	case COMMAND_ADD:
		sim_life_make(referee->sim, command->model, manifest_name(plan_manifest(command->plan)));
		break;
	case COMMAND_APPLY:
		referee_decision(referee, node->rank, command->model, command->step, command->outcome);
		break;
	case COMMAND_CLOSE:
		referee_closed(referee, node->rank, command);
		break;
	case COMMAND_ABORT:
		referee_abort(referee, node->rank, command->model, command->step, command->attempt);
		break;
	case COMMAND_PUBLISH:
		referee_publish(referee, node->rank, command);
		break;
	default:
		break;
	}
}

/* This rank's shard against the oracle's vector of that version. */
static void referee_compare_shard(const struct node *node, const struct life *life, uint32_t unit, uint64_t version)
{
	const struct plan *plan = node_plan(node, life->model);
	const float *full = oracle_full(life->oracle, unit, version);
	if (!plan) {
		return;
	}
	if (!full) {
		trace_fail("rank %u: unit %u has version %llu, which never was", node->rank, unit,
			   (unsigned long long)version);
	}
	const struct plan_unit *place = plan_unit(plan, unit);
	tally_count(TALLY_EVENT, EVENT_COMPARED_SHARD);
	if (place->shard_bytes > 0 &&
	    memcmp(plan_master(plan, unit), full + place->shard.offset, place->shard_bytes) != 0) {
		trace_fail("rank %u: the shard of unit %u at version %llu is not the oracle's", node->rank, unit,
			   (unsigned long long)version);
	}
}

void referee_report(struct referee *referee, struct node *node, const struct report *report)
{
	struct life *life = sim_life(referee->sim, report->model);
	if (life && report->kind == REPORT_PROGRESS) {
		referee_compare_shard(node, life, report->unit, report->version);
	}
}

void referee_end(struct referee *referee)
{
	struct sim *sim = referee->sim;
	for (uint32_t rank = 0; rank < sim->config.world_size; rank++) {
		const struct node *node = &sim->nodes[rank];
		const struct engine_counters *engine = &node->engine_counters;
		if (engine->violations > 0) {
			trace_fail("rank %u counted %llu violations of its peers", rank,
				   (unsigned long long)engine->violations);
		}
		tally_add(TALLY_EVENT, EVENT_DUPLICATE, engine->duplicates);
		tally_add(TALLY_EVENT, EVENT_STALE_ATTEMPT, engine->stale_attempts);
		tally_add(TALLY_EVENT, EVENT_STALE_READ, engine->stale_reads);
		tally_add(TALLY_EVENT, EVENT_RESENT, engine->resent_bytes);
		for (enum plane plane = 0; plane < PLANES; plane++) {
			const struct link_counters *links = &node->link_counters[plane];
			if (links->malformed > 0) {
				trace_fail("rank %u counted %llu malformed messages", rank,
					   (unsigned long long)links->malformed);
			}
			tally_add(TALLY_EVENT, EVENT_STALE_LINK, links->stale_link);
			tally_add(TALLY_EVENT, EVENT_STALE_GENERATION, links->stale_generation);
			tally_add(TALLY_EVENT, EVENT_BEFORE_HELLO, links->before_hello);
		}
	}
}
