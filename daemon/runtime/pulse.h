/*
 * A thread's pulse: how a watchdog in another thread sees that it lives. The thread beats with every piece of work, and
 * says when it is parked, that is, waits for some.
 */
#ifndef FSDPD_RUNTIME_PULSE_H
#define FSDPD_RUNTIME_PULSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pulse {
	_Atomic uint64_t beats;
	_Atomic bool parked;
};

static inline void pulse_park(struct pulse *pulse)
{
	atomic_store_explicit(&pulse->parked, true, memory_order_relaxed);
}

static inline void pulse_beat(struct pulse *pulse) /* it is not parked any more */
{
	atomic_fetch_add_explicit(&pulse->beats, 1, memory_order_relaxed);
	atomic_store_explicit(&pulse->parked, false, memory_order_relaxed);
}

#endif
