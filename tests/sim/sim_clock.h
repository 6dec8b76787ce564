/*
 * The virtual clock: events at a time in microseconds, run in the order of time and, at one time, of their making. One
 * thread. An event cannot be taken back: whoever may be gone by then passes a life number and looks whether it is still
 * the present one.
 */
#ifndef TESTS_SIM_CLOCK_H
#define TESTS_SIM_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_CLOCK_EVENTS_MAX (64u << 20)

typedef void sim_clock_run(void *context, uint64_t argument);

struct sim_clock;

struct sim_clock *sim_clock_new(void); /* aborts when memory is out, as everything in tests/sim does */
void sim_clock_free(struct sim_clock *clock);

uint64_t sim_clock_now(const struct sim_clock *clock); /* microseconds since the run began */
/* Runs run(context, argument) at at_us, or now if that is past. */
void sim_clock_at(struct sim_clock *clock, uint64_t at_us, sim_clock_run *run, void *context, uint64_t argument);
bool sim_clock_step(struct sim_clock *clock);             /* the next event; false: there is none */
uint64_t sim_clock_events(const struct sim_clock *clock); /* how many were run */

#endif
