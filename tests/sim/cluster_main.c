/*
 * sim_cluster: runs the simulated cluster for many seeds, world by world, and prints what occurred. With the planted
 * bugs compiled in (sim_planted) it instead runs every bug until a seed finds it, each seed in a process of its own.
 *
 * --seeds N runs N seeds of every world (--world: of that one); --seconds T stops after T seconds of real time; --twice
 * runs every seed twice and compares the traces' hashes.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/runtime/planted.h"
#include "tests/sim/planted_run.h"
#include "tests/sim/sim.h"
#include "tests/sim/tally.h"
#include "tests/sim/trace.h"

/* Fewer seeds in a small share of the large worlds: they cost as much as hundreds of small ones. */
static const struct main_world {
	uint32_t world_size;
	unsigned part; /* one of so many seeds */
} worlds[] = { { 1, 4 }, { 2, 1 }, { 3, 1 }, { 5, 1 }, { 8, 2 }, { 64, 100 } };

#define WORLDS (sizeof(worlds) / sizeof(worlds[0]))
#define MAIN_ENOUGH 40u /* seeds a world from which on everything must have occurred */

struct main_options {
	const char *program;
	uint64_t seeds, first_seed;
	uint32_t world;
	const char *planted;
	double seconds;
	bool trace, twice;
};

static double main_seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

struct main_sum {
	uint64_t seeds, events;
	double virtual_s, seconds;
	uint64_t hash;
};

static uint64_t main_run(const struct main_options *options, uint64_t seed, uint32_t world_size, struct main_sum *sum)
{
	struct sim_clock *clock = sim_clock_new();
	struct sim_config config = { .seed = seed, .world_size = world_size };
	trace_begin(options->program, options->planted, seed, world_size, options->trace, clock);
	sim_run(&config, clock);
	sum->seeds++;
	sum->events += sim_clock_events(clock);
	sum->virtual_s += (double)sim_clock_now(clock) / 1e6;
	uint64_t hash = trace_hash();
	sum->hash ^= hash * (seed | 1);
	sim_clock_free(clock);
	return hash;
}

static void main_run_checked(const struct main_options *options, uint64_t seed, uint32_t world_size,
			     struct main_sum *sum)
{
	uint64_t hash = main_run(options, seed, world_size, sum);
	if (options->twice && main_run(options, seed, world_size, &(struct main_sum){ 0 }) != hash) {
		printf("FAILED seed=%" PRIu64 " world=%u: two runs have different traces\n", seed, world_size);
		exit(1);
	}
}

static struct main_sum main_run_world(const struct main_options *options, const struct main_world *world, double until)
{
	struct main_sum sum = { 0 };
	uint64_t seeds = options->world ? options->seeds : (options->seeds + world->part - 1) / world->part;
	double begin = main_seconds();
	for (uint64_t i = 0; i < seeds && main_seconds() < until; i++) {
		main_run_checked(options, options->first_seed + i, world->world_size, &sum);
	}
	sum.seconds = main_seconds() - begin;
	printf("world %2u: %6" PRIu64 " runs, %10" PRIu64
	       " events, %8.0f virtual s, %6.1f s, %7.1f runs/s, hash %016" PRIx64 "\n",
	       world->world_size, sum.seeds, sum.events, sum.virtual_s, sum.seconds, (double)sum.seeds / sum.seconds,
	       sum.hash);
	fflush(stdout);
	return sum;
}

static int main_run_all(const struct main_options *options)
{
	double begin = main_seconds();
	uint64_t runs = 0;
	for (size_t i = 0; i < WORLDS; i++) {
		struct main_world world = worlds[i];
		if (options->world) {
			world = (struct main_world){ options->world, 1 };
		}
		/* Of the time that is left every world gets its share. */
		double share =
			(options->seconds - (main_seconds() - begin)) / (double)(options->world ? 1 : WORLDS - i);
		runs += main_run_world(options, &world, options->seconds > 0 ? main_seconds() + share : 1e300).seeds;
		if (options->world) {
			break;
		}
	}
	printf("\n");
	tally_print();
	double seconds = main_seconds() - begin;
	printf("\n%" PRIu64 " runs in %.1f s, %.1f a second\n", runs, seconds, (double)runs / seconds);
	if (options->world || options->twice || options->seeds < MAIN_ENOUGH) {
		return 0;
	}
	unsigned missing = tally_missing();
	printf("%s\n", missing ? "FAILED: not everything occurred" : "everything that is listed occurred");
	return missing ? 1 : 0;
}

static int main_usage(const char *program)
{
	fprintf(stderr,
		"usage: %s [--seeds N] [--first-seed S] [--world W] [--seconds T] [--twice] [--planted NAME] "
		"[--trace]\n",
		program);
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option long_options[] = {
		{ "seeds", required_argument, NULL, 'n' },   { "first-seed", required_argument, NULL, 's' },
		{ "world", required_argument, NULL, 'w' },   { "planted", required_argument, NULL, 'p' },
		{ "seconds", required_argument, NULL, 't' }, { "twice", no_argument, NULL, '2' },
		{ "trace", no_argument, NULL, 'v' },         { NULL, 0, NULL, 0 },
	};
	struct main_options options = { .program = argv[0], .seeds = 200, .first_seed = 1 };
	int option;
	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (option) {
		case 'n':
			options.seeds = strtoull(optarg, NULL, 0);
			break;
		case 's':
			options.first_seed = strtoull(optarg, NULL, 0);
			break;
		case 'w':
			options.world = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'p':
			options.planted = optarg;
			break;
		case 't':
			options.seconds = strtod(optarg, NULL);
			break;
		case '2':
			options.twice = true;
			break;
		case 'v':
			options.trace = true;
			break;
		default:
			return main_usage(argv[0]);
		}
	}
	if (optind < argc || options.world > SIM_WORLD_MAX) {
		return main_usage(argv[0]);
	}
	trace_catch_aborts();
	bool hunts = options.seeds > 1 && options.world == 0;
	if (planted_is_built() && hunts && !options.trace) {
		return planted_hunt(argv[0], options.planted, options.seeds);
	}
	if (options.planted && !planted_set(options.planted)) {
		fprintf(stderr, "%s: no planted bug %s here\n", argv[0], options.planted);
		return 2;
	}
	return main_run_all(&options);
}
