/* The suite of transports, run over the simulated one: what holds for it must hold for ZeroMQ and the other way
 * round. */
#include "tests/conformance/transport_conformance.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/sim/memory.h"
#include "tests/sim/sim_transport.h"

#define PAIR_LIMIT_US 60000000u
#define PAIR_STEP_US 1000u

struct pair {
	struct sim_clock *clock;
	struct net *net;
};

static void *pair_new(const struct transport_events *events, void *const contexts[2], size_t queue_max)
{
	struct pair *pair = memory_zeroed(sizeof(*pair));
	pair->clock = sim_clock_new();
	struct net_config config = { .world_size = 2,
				     .seed = queue_max,
				     .delay_min_us = 50,
				     .delay_max_us = 3000,
				     .late_of_a_thousand = 50,
				     .late_us = 20000,
				     .clock = pair->clock };
	pair->net = net_new(&config);
	for (uint32_t node = 0; node < 2; node++) {
		net_open(pair->net, PLANE_BULK, node, events, contexts[node]);
		net_limit(pair->net, PLANE_BULK, node, 1 - node, (unsigned)queue_max);
	}
	return pair;
}

static void pair_free(void *context)
{
	struct pair *pair = context;
	net_close(pair->net, PLANE_BULK, 0);
	net_close(pair->net, PLANE_BULK, 1);
	net_free(pair->net);
	sim_clock_free(pair->clock);
	free(pair);
}

static struct transport *pair_transport(void *context, int node)
{
	struct pair *pair = context;
	return net_transport(pair->net, PLANE_BULK, (uint32_t)node);
}

static void pair_pass(void *context, uint64_t argument)
{
	(void)context;
	(void)argument;
}

static bool pair_step(void *context, unsigned nodes)
{
	struct pair *pair = context;
	uint64_t until_us = sim_clock_now(pair->clock) + PAIR_STEP_US;
	for (uint32_t node = 0; node < 2; node++) {
		if (!(nodes & 1u << node)) { /* it does not look at what comes in */
			net_clog(pair->net, PLANE_BULK, 1 - node, node, until_us + 1);
		}
	}
	sim_clock_at(pair->clock, until_us, pair_pass, NULL, 0);
	while (sim_clock_now(pair->clock) < until_us && sim_clock_step(pair->clock)) {
	}
	return sim_clock_now(pair->clock) < PAIR_LIMIT_US;
}

static void pair_break(void *context, int from)
{
	struct pair *pair = context;
	net_break(pair->net, PLANE_BULK, (uint32_t)from, (uint32_t)(1 - from), 2000, 0);
}

static const struct conformance_fixture fixture = { pair_new, pair_free, pair_transport, pair_step, pair_break };

static const struct {
	const char *name;
	const char *(*run)(const struct conformance_fixture *fixture);
} cases[] = {
#define CASE(name) { #name, conformance_##name },
	CONFORMANCE_CASES(CASE)
#undef CASE
};

int main(void)
{
	unsigned failed = 0, count = sizeof(cases) / sizeof(cases[0]);
	for (unsigned i = 0; i < count; i++) {
		const char *why = cases[i].run(&fixture);
		if (why) {
			printf("FAILED %s: %s\n", cases[i].name, why);
			failed++;
		}
	}
	printf("%u passed, %u failed\n", count - failed, failed);
	return failed ? 1 : 0;
}
