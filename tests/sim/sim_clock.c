/* The virtual clock: a binary heap of events. Owns the heap, nothing of what the events point to. One thread; knows no
 * real time. */
#include "tests/sim/sim_clock.h"

#include <assert.h>
#include <stdlib.h>

#include "tests/sim/memory.h"

struct clock_event {
	uint64_t at_us, number;
	sim_clock_run *run;
	void *context;
	uint64_t argument;
};

struct sim_clock {
	uint64_t now_us, numbers, events;
	struct clock_event *heap;
	size_t count, room;
};

struct sim_clock *sim_clock_new(void)
{
	return memory_zeroed(sizeof(struct sim_clock));
}

void sim_clock_free(struct sim_clock *clock)
{
	if (clock) {
		free(clock->heap);
		free(clock);
	}
}

uint64_t sim_clock_now(const struct sim_clock *clock)
{
	return clock->now_us;
}

uint64_t sim_clock_events(const struct sim_clock *clock)
{
	return clock->events;
}

static bool clock_before(const struct clock_event *a, const struct clock_event *b)
{
	return a->at_us != b->at_us ? a->at_us < b->at_us : a->number < b->number;
}

void sim_clock_at(struct sim_clock *clock, uint64_t at_us, sim_clock_run *run, void *context, uint64_t argument)
{
	assert(clock->count < SIM_CLOCK_EVENTS_MAX);
	if (clock->count == clock->room) {
		clock->room = clock->room ? 2 * clock->room : 1024;
		clock->heap = memory_resized(clock->heap, clock->room * sizeof(clock->heap[0]));
	}
	struct clock_event event = { .at_us = at_us > clock->now_us ? at_us : clock->now_us,
				     .number = clock->numbers++,
				     .run = run,
				     .context = context,
				     .argument = argument };
	size_t i = clock->count++;
	while (i > 0 && clock_before(&event, &clock->heap[(i - 1) / 2])) {
		clock->heap[i] = clock->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	clock->heap[i] = event;
}

static struct clock_event clock_take(struct sim_clock *clock)
{
	struct clock_event first = clock->heap[0];
	struct clock_event last = clock->heap[--clock->count];
	size_t i = 0;
	for (;;) {
		size_t child = 2 * i + 1;
		if (child >= clock->count) {
			break;
		}
		if (child + 1 < clock->count && clock_before(&clock->heap[child + 1], &clock->heap[child])) {
			child++;
		}
		if (!clock_before(&clock->heap[child], &last)) {
			break;
		}
		clock->heap[i] = clock->heap[child];
		i = child;
	}
	clock->heap[i] = last;
	return first;
}

bool sim_clock_step(struct sim_clock *clock)
{
	if (clock->count == 0) {
		return false;
	}
	struct clock_event event = clock_take(clock);
	clock->now_us = event.at_us;
	clock->events++;
	event.run(event.context, event.argument);
	return true;
}
