/*
 * Messages of later steps and attempts. The engine's thread.
 */
#include "daemon/engine/held.h"

#include "daemon/engine/shards.h"
#include <stdlib.h>
#include <string.h>

struct held {
	struct held *next;
	struct peer_message message; /* of its lists only bits, a copy */
	struct buffer *payload;      /* of a PUSH */
};

void held_init(struct source *source)
{
	source->held = NULL;
	source->held_tail = &source->held;
	source->held_closes = 0;
}

static struct held *held_new(struct source *source, const struct peer_message *message)
{
	struct held *held = engine_alloc(1, sizeof(*held));

	held->message = (struct peer_message){ .op = message->op,
					       .unit = message->unit,
					       .step = message->step,
					       .attempt = message->attempt,
					       .micro_batch = message->micro_batch,
					       .offset = message->offset,
					       .length = message->length,
					       .last = message->last,
					       .weight = message->weight };
	*source->held_tail = held;
	source->held_tail = &held->next;
	return held;
}

void held_push(struct source *source, const struct peer_message *message, struct buffer *payload)
{
	struct held *held;

	if (source->pieces >= COLLECT_PIECES_MAX) {
		source->barred = true;
		shards_count_violation(source->model);
		return;
	}
	held = held_new(source, message);
	held->payload = buffer_ref(payload);
	source->buffered += message->length;
	source->pieces++;
}

void held_close(struct source *source, const struct peer_message *message)
{
	struct held *held;

	if (source->held_closes >= COLLECT_HELD_CLOSES_MAX)
		return;
	held = held_new(source, message);
	source->held_closes++;
	if (message->bits_size == 0)
		return;
	held->message.bits = engine_alloc(message->bits_size, 1);
	memcpy(held->message.bits, message->bits, message->bits_size);
	held->message.bits_size = message->bits_size;
}

/* Out of the accounts; the caller takes or frees it. */
static void held_release(struct source *source, struct held *held)
{
	if (held->payload) {
		source->buffered -= held->message.length;
		source->pieces--;
	} else {
		source->held_closes--;
	}
}

static void held_free(struct held *held)
{
	buffer_unref(held->payload);
	free(held->message.bits);
	free(held);
}

static void held_replay_source(struct source *source)
{
	struct model *model = source->model;
	struct held *held = source->held, *next;

	source->held = NULL;
	source->held_tail = &source->held;
	for (; held; held = next) {
		int order = shards_compare(model, held->message.step, held->message.attempt);

		next = held->next;
		held->next = NULL;
		if (order > 0) {
			*source->held_tail = held;
			source->held_tail = &held->next;
			continue;
		}
		held_release(source, held);
		if (order == 0 && held->payload)
			collect_take(source, &held->message, held->payload);
		else if (order == 0)
			collect_close_message(model, source->rank, &held->message);
		held_free(held);
	}
	progress_check_credit(source);
}

void held_replay(struct model *model)
{
	for (uint32_t rank = 0; rank < model->world_size; rank++)
		held_replay_source(&model->sources[rank]);
}

static void held_forget_where(struct source *source, bool pushes_only)
{
	struct held *held = source->held, *next;

	source->held = NULL;
	source->held_tail = &source->held;
	for (; held; held = next) {
		next = held->next;
		held->next = NULL;
		if (pushes_only && !held->payload) {
			*source->held_tail = held;
			source->held_tail = &held->next;
			continue;
		}
		held_release(source, held);
		held_free(held);
	}
}

void held_forget_pushes(struct source *source)
{
	held_forget_where(source, true);
}

void held_drop(struct source *source)
{
	held_forget_where(source, false);
}
