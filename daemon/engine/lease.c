/*
 * Leases of arena memory to the transport. All of it runs in the engine's thread but lease_release, which runs in the
 * thread that lets the last reference go (ZeroMQ's, mostly): it only pushes onto a list and wakes.
 */
#include "daemon/engine/lease.h"

#include "daemon/engine/shards.h"
#include <assert.h>
#include <stdlib.h>

struct lease {
	struct lease *next, *prev; /* of the model */
	struct lease *next_released;
	struct model *model;
	uint32_t rank;
	bool hurried, reset;
	uint64_t deadline_ms;
	struct buffer *buffer; /* our reference */
	void (*returned)(void *owner);
	void *owner;
};

static void lease_release(void *context)
{
	struct lease *lease = context;
	struct engine *engine = lease->model->engine;
	/* From the push on the engine may be gone as far as this thread can tell. */
	void (*wake)(void *context) = engine->config.wake;
	void *wake_context = engine->config.context;
	struct lease *head = atomic_load_explicit(&engine->released, memory_order_relaxed);

	do {
		lease->next_released = head;
	} while (!atomic_compare_exchange_weak_explicit(&engine->released, &head, lease, memory_order_release,
							memory_order_relaxed));
	if (!head)
		wake(wake_context);
}

struct lease *lease_new(struct model *model, uint32_t rank, void *data, uint64_t bytes, void (*returned)(void *owner),
			void *owner)
{
	struct lease *lease = engine_alloc(1, sizeof(*lease));

	lease->model = model;
	lease->rank = rank;
	lease->returned = returned;
	lease->owner = owner;
	if (buffer_new(data, bytes, lease_release, lease, &lease->buffer))
		abort();
	lease->next = model->leases;
	if (lease->next)
		lease->next->prev = lease;
	model->leases = lease;
	model->refs++;
	return lease;
}

struct buffer *lease_buffer(const struct lease *lease)
{
	assert(lease->buffer);
	return lease->buffer;
}

void lease_end(struct lease *lease)
{
	struct buffer *buffer = lease->buffer;

	assert(buffer);
	lease->buffer = NULL;
	buffer_unref(buffer);
}

void lease_hurry(struct lease *lease, uint64_t deadline_ms)
{
	if (lease->hurried && lease->deadline_ms <= deadline_ms)
		return;
	lease->hurried = true;
	lease->deadline_ms = deadline_ms;
}

void lease_hurry_all(struct model *model, uint64_t deadline_ms)
{
	for (struct lease *lease = model->leases; lease; lease = lease->next)
		lease_hurry(lease, deadline_ms);
}

void lease_tick(struct model *model)
{
	for (struct lease *lease = model->leases; lease; lease = lease->next) {
		if (!lease->hurried || lease->reset || lease->deadline_ms > model->engine->now_ms)
			continue;
		lease->reset = true;
		engine_reset_link(model->engine, lease->rank);
	}
}

bool lease_collect(struct engine *engine)
{
	struct lease *lease = atomic_exchange_explicit(&engine->released, NULL, memory_order_acquire);
	bool any = lease;

	while (lease) {
		struct lease *next = lease->next_released;
		struct model *model = lease->model;

		if (lease->next)
			lease->next->prev = lease->prev;
		if (lease->prev)
			lease->prev->next = lease->next;
		else
			model->leases = lease->next;
		lease->returned(lease->owner);
		free(lease);
		model->refs--;
		lease = next;
	}
	return any;
}
