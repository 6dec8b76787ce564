/*
 * What happened, in order: every event is hashed (so that two runs of a seed can be compared), the last lines are kept,
 * and a failure prints them with the command that repeats it. One trace at a time; one thread.
 */
#ifndef TESTS_SIM_TRACE_H
#define TESTS_SIM_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#define TRACE_LINES 30
#define TRACE_NUMBERS_MAX 8

struct sim_clock;

/* program: how the run is repeated, for the failure's last line; planted: a bug's name or NULL. All borrowed. */
void trace_begin(const char *program, const char *planted, uint64_t seed, uint32_t world, bool print,
		 const struct sim_clock *clock);
uint64_t trace_hash(void); /* of everything since trace_begin */

/* In format every '#' stands for the next number in decimal, every '$' for one in hex. format must be a literal. */
void trace_note_numbers(const char *format, const uint64_t *numbers, unsigned count);
#define trace_note(format, ...)                                       \
	trace_note_numbers(format, (const uint64_t[]){ __VA_ARGS__ }, \
			   (unsigned)(sizeof((const uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t)))
/* With a text that is kept (cut to 160 bytes) and hashed. */
void trace_text(const char *format, const char *text);

/* The run has failed: prints why, the seed, the last lines and how to repeat it, and ends the program with status 1. */
_Noreturn void trace_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* An assertion of the core ends a run in the same way. */
void trace_catch_aborts(void);

#endif
