/*
 * Times all-gather and reduce-scatter as a trainer sees them, from its call to its return: an unshard of a version that
 * was published just before, and a reduce followed by sync_gradients. Checks the results. Started once a rank by
 * fsdp-run; rank 0 prints a line `RES op world bytes samples median_us`.
 */
#include "fsdp/fsdp.h"
#include "tests/bench/stopwatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench {
	struct fsdp_client *client;
	struct fsdp_model *model;
	struct fsdp_unit *unit;
	struct fsdp_group group;
	struct fsdp_shard shard;
	uint64_t count; /* elements of the unit */
	struct stopwatch *watch;
	double seconds; /* to spend on each operation */
};

static void must(int code, const char *what)
{
	if (code == 0)
		return;
	fprintf(stderr, "bench: %s: %s: %s\n", what, fsdp_strerror(code), fsdp_last_error());
	exit(1);
}

static void wrong(const char *what, uint64_t at, float is, float should)
{
	fprintf(stderr, "bench: %s: element %llu is %g, not %g\n", what, (unsigned long long)at, (double)is,
		(double)should);
	exit(1);
}

static void begin(struct bench *bench, uint64_t bytes)
{
	struct fsdp_param param = { .name = "w", .dtype = FSDP_F32, .ndim = 1, .shape = { bytes / 4 } };
	bench->count = bytes / 4;
	must(fsdp_model_open(bench->client, "bench", NULL, &bench->model), "open");
	must(fsdp_unit_add(bench->model, "u", &param, 1, &bench->unit), "add");
	must(fsdp_model_seal(bench->model, NULL), "seal");
	float *values = calloc(bench->count, sizeof(float));
	if (!values)
		exit(1);
	const void *list[1] = { values };
	must(fsdp_unit_load(bench->unit, list, 1), "load");
	free(values);
	must(fsdp_unit_shard(bench->unit, 0, &bench->shard), "shard");
}

/* Version after version: rank r's elements are round * 1000 + r. */
static void publish(struct bench *bench, unsigned round)
{
	float *staging = bench->shard.staging;
	for (uint64_t i = 0; i < bench->shard.count; i++)
		staging[i] = (float)(round * 1000 + bench->group.rank);
	must(fsdp_model_update_shards(bench->model, NULL, 0), "publish");
}

static void gather(struct bench *bench, unsigned round)
{
	publish(bench, round);
	stopwatch_start(bench->watch);
	must(fsdp_unit_unshard(bench->unit), "unshard");
	stopwatch_stop(bench->watch);
	const float *values = fsdp_unit_param(bench->unit, 0);
	uint64_t share = (bench->count + bench->group.world_size - 1) / bench->group.world_size;
	for (uint64_t i = 0; i < bench->count; i += 997)
		if (values[i] != (float)(round * 1000 + i / share))
			wrong("all-gather", i, values[i], (float)(round * 1000 + i / share));
	must(fsdp_unit_reshard(bench->unit), "reshard");
}

static void reduce(struct bench *bench, unsigned round)
{
	void *memory;
	must(fsdp_unit_grad(bench->unit, 0, &memory), "grad");
	float *grad = memory;
	for (uint64_t i = 0; i < bench->count; i++)
		grad[i] = (float)(bench->group.rank + (i & 255) + round);
	stopwatch_start(bench->watch);
	must(fsdp_unit_reduce(bench->unit), "reduce");
	must(fsdp_model_sync_gradients(bench->model), "sync");
	stopwatch_stop(bench->watch);
	const float *mean = bench->shard.gradient;
	for (uint64_t i = 0; i < bench->shard.count; i += 997) {
		float should = (float)(bench->group.world_size - 1) / 2.0f +
			       (float)(((i + bench->shard.offset) & 255) + round);
		if (mean[i] != should)
			wrong("reduce-scatter", i, mean[i], should);
	}
	must(fsdp_model_update_shards(bench->model, NULL, 0), "end the step");
}

static void measure(struct bench *bench, const char *op, void (*once)(struct bench *bench, unsigned round))
{
	unsigned round = 0;
	for (; round < 3; round++)
		once(bench, round);
	stopwatch_clear(bench->watch);
	do
		once(bench, round++ % 4000);
	while (stopwatch_share(bench->watch, stopwatch_total_s(bench->watch) < bench->seconds ||
						     stopwatch_samples(bench->watch) < 5));
	uint32_t samples = stopwatch_samples(bench->watch);
	if (bench->group.rank == 0)
		printf("RES %s %u %llu %u %.1f\n", op, bench->group.world_size, (unsigned long long)bench->count * 4,
		       samples, stopwatch_median_us(bench->watch));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "usage: fsdp-run --nodes W -- bench-collectives CLOCKFILE SECONDS BYTES...\n");
		return 2;
	}
	static struct bench bench;
	bench.seconds = atof(argv[2]);
	must(fsdp_client_open(NULL, &bench.client), "connect");
	must(fsdp_client_group(bench.client, &bench.group), "group");
	bench.watch = stopwatch_open(argv[1], bench.group.rank, bench.group.world_size);
	for (int i = 3; i < argc; i++) {
		begin(&bench, strtoull(argv[i], NULL, 10));
		measure(&bench, "all-gather", gather);
		measure(&bench, "reduce-scatter", reduce);
		must(fsdp_model_close(bench.model, 0), "close");
	}
	fsdp_client_close(bench.client);
	return 0;
}
