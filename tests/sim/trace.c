/*
 * The trace of the run that is going on: a running XXH3, a ring of the last lines in raw form (they are only written
 * out when somebody wants to read them), and the end of a run that failed. Owns the one trace of the program. It judges
 * nothing.
 */
#include "tests/sim/trace.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "tests/sim/sim_clock.h"

#define TRACE_TEXT_MAX 160

struct trace_line {
	uint64_t at_us;
	const char *format;
	uint64_t numbers[TRACE_NUMBERS_MAX];
	unsigned count;
	char text[TRACE_TEXT_MAX];
};

static struct {
	const char *program, *planted;
	uint64_t seed;
	uint32_t world;
	bool print;
	const struct sim_clock *clock;
	uint64_t hash;
	uint64_t lines;
	struct trace_line ring[TRACE_LINES];
} trace;

void trace_begin(const char *program, const char *planted, uint64_t seed, uint32_t world, bool print,
		 const struct sim_clock *clock)
{
	trace.program = program;
	trace.planted = planted;
	trace.seed = seed;
	trace.world = world;
	trace.print = print;
	trace.clock = clock;
	trace.hash = 0;
	trace.lines = 0;
}

uint64_t trace_hash(void)
{
	return trace.hash;
}

static void trace_print(const struct trace_line *line)
{
	unsigned next = 0;
	printf("  %10.3f ms  ", (double)line->at_us / 1000.0);
	for (const char *c = line->format; *c; c++) {
		if ((*c == '#' || *c == '$') && next < line->count) {
			printf(*c == '#' ? "%" PRIu64 : "%" PRIx64, line->numbers[next++]);
		} else if (*c == '@') {
			fputs(line->text, stdout);
		} else {
			putchar(*c);
		}
	}
	putchar('\n');
}

static struct trace_line *trace_next(const char *format)
{
	struct trace_line *line = &trace.ring[trace.lines++ % TRACE_LINES];
	line->at_us = sim_clock_now(trace.clock);
	line->format = format;
	line->count = 0;
	line->text[0] = '\0';
	return line;
}

static void trace_add(const struct trace_line *line)
{
	uint64_t head[3] = { trace.hash, line->at_us, XXH3_64bits(line->format, strlen(line->format)) };
	trace.hash = XXH3_64bits_withSeed(line->numbers, line->count * sizeof(line->numbers[0]),
					  XXH3_64bits(head, sizeof(head)));
	trace.hash = XXH3_64bits_withSeed(line->text, strlen(line->text), trace.hash);
	if (trace.print) {
		trace_print(line);
	}
}

void trace_note_numbers(const char *format, const uint64_t *numbers, unsigned count)
{
	struct trace_line *line = trace_next(format);
	line->count = count < TRACE_NUMBERS_MAX ? count : TRACE_NUMBERS_MAX;
	memcpy(line->numbers, numbers, line->count * sizeof(numbers[0]));
	trace_add(line);
}

void trace_text(const char *format, const char *text)
{
	struct trace_line *line = trace_next(format);
	snprintf(line->text, sizeof(line->text), "%s", text ? text : "");
	trace_add(line);
}

static void trace_print_end(void)
{
	uint64_t first = trace.lines > TRACE_LINES ? trace.lines - TRACE_LINES : 0;
	for (uint64_t i = first; i < trace.lines && !trace.print; i++) {
		trace_print(&trace.ring[i % TRACE_LINES]);
	}
	printf("repeat: %s --first-seed %" PRIu64 " --seeds 1 --world %" PRIu32 "%s%s --trace\n", trace.program,
	       trace.seed, trace.world, trace.planted ? " --planted " : "", trace.planted ? trace.planted : "");
	fflush(stdout);
}

void trace_fail(const char *format, ...)
{
	va_list arguments;
	printf("FAILED seed=%" PRIu64 " world=%" PRIu32 ": ", trace.seed, trace.world);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	trace_print_end();
	_exit(1);
}

/* Not safe by the letter of POSIX in a handler; an assertion is raised by our own code, outside of stdio. */
static void trace_on_abort(int number)
{
	(void)number;
	signal(SIGABRT, SIG_DFL);
	printf("FAILED seed=%" PRIu64 " world=%" PRIu32 ": an assertion of the core, see stderr\n", trace.seed,
	       trace.world);
	trace_print_end();
	_exit(1);
}

void trace_catch_aborts(void)
{
	signal(SIGABRT, trace_on_abort);
}
