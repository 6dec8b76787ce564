/*
 * Copies the parts of gathers. The engine's thread; the copies run in tasks, one a part at a time, which take up what
 * has come meanwhile when they are done. What becomes of a part is the reader's business.
 */
#include "daemon/engine/part.h"

#include "daemon/engine/shards.h"
#include "daemon/engine/task.h"
#include <stdlib.h>
#include <string.h>

struct part_chunk {
	struct part_chunk *next;
	struct buffer *buffer;
	uint64_t size;
};

struct part_task {
	struct task task;
	struct gather *gather;
	struct part *part;
	char *to;
	uint32_t count;
	struct {
		struct buffer *buffer; /* NULL: our own masters */
		const char *from;
		uint64_t size;
	} copies[PART_CHUNKS_AT_ONCE];
};

void part_forget(struct part *part)
{
	struct part_chunk *next;

	for (struct part_chunk *chunk = part->chunks; chunk; chunk = next) {
		next = chunk->next;
		buffer_unref(chunk->buffer);
		free(chunk);
	}
	part->chunks = NULL;
	part->chunks_tail = &part->chunks;
}

void part_reset(struct part *part)
{
	part_forget(part);
	part->received = part->copied = part->limit = 0;
	part->asked = part->heard = false;
}

void part_take(struct part *part, struct buffer *buffer, uint64_t size)
{
	struct part_chunk *chunk = engine_alloc(1, sizeof(*chunk));

	chunk->buffer = buffer_ref(buffer);
	chunk->size = size;
	*part->chunks_tail = chunk;
	part->chunks_tail = &chunk->next;
	part->received += size;
	part->heard = true;
}

static void part_run(struct task *task)
{
	const struct part_task *copy = (struct part_task *)task;
	char *to = copy->to;

	for (uint32_t i = 0; i < copy->count; i++) {
		memcpy(to, copy->copies[i].from, copy->copies[i].size);
		to += copy->copies[i].size;
	}
}

static void part_done(struct task *task)
{
	struct part_task *copy = (struct part_task *)task;
	struct gather *gather = copy->gather;
	struct part *part = copy->part;

	for (uint32_t i = 0; i < copy->count; i++) {
		part->copied += copy->copies[i].size;
		buffer_unref(copy->copies[i].buffer);
	}
	free(copy);
	part->copying = false;
	reader_copied(gather, part);
}

/* Our own range: its next piece. */
static uint64_t part_add_own(struct part_task *copy, const struct unit *unit)
{
	const struct part *part = copy->part;
	uint64_t size = engine_min(PART_OWN_BYTES, part->length - part->copied);

	copy->count = 1;
	copy->copies[0].from = (const char *)plan_master(unit->model->plan, unit->index) + part->copied;
	copy->copies[0].size = size;
	return size;
}

static uint64_t part_add_chunks(struct part_task *copy)
{
	struct part *part = copy->part;
	uint64_t bytes = 0;

	while (part->chunks && copy->count < PART_CHUNKS_AT_ONCE) {
		struct part_chunk *chunk = part->chunks;

		copy->copies[copy->count].buffer = chunk->buffer;
		copy->copies[copy->count].from = buffer_data(chunk->buffer);
		copy->copies[copy->count].size = chunk->size;
		copy->count++;
		bytes += chunk->size;
		part->chunks = chunk->next;
		free(chunk);
	}
	if (!part->chunks)
		part->chunks_tail = &part->chunks;
	return bytes;
}

bool part_copy(struct part *part, struct gather *gather, struct unit *unit, char *to)
{
	bool own = part->rank == unit->model->rank;
	struct part_task *copy;
	uint64_t bytes;

	if (part->copying)
		return true;
	if (own ? part->copied == part->length : !part->chunks)
		return false;
	copy = engine_alloc(1, sizeof(*copy));
	copy->task = (struct task){ .run = part_run, .done = part_done };
	copy->gather = gather;
	copy->part = part;
	copy->to = to + part->place + part->copied;
	bytes = own ? part_add_own(copy, unit) : part_add_chunks(copy);
	part->copying = true;
	task_start(&copy->task, unit->model, bytes);
	return true;
}
