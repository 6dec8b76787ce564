/* A process-shared barrier and an array of doubles in a mapped file. */
#include "tests/bench/stopwatch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct shared {
	_Atomic int ready;
	pthread_barrier_t barrier;
	double took[STOPWATCH_RANKS_MAX];
	uint32_t value;
};

struct stopwatch {
	struct shared *shared;
	uint32_t rank, ranks;
	double began, total;
	uint32_t count;
	double samples[STOPWATCH_SAMPLES_MAX];
};

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "stopwatch: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int open_file(const char *path, uint32_t rank)
{
	if (rank == 0) {
		int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0 || ftruncate(fd, sizeof(struct shared)) < 0)
			die(path);
		return fd;
	}
	for (int i = 0; i < 10000; i++) {
		int fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd >= 0 && lseek(fd, 0, SEEK_END) == (off_t)sizeof(struct shared))
			return fd;
		if (fd >= 0)
			close(fd);
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	die(path);
	return -1;
}

struct stopwatch *stopwatch_open(const char *path, uint32_t rank, uint32_t ranks)
{
	struct stopwatch *stopwatch = calloc(1, sizeof(*stopwatch));
	int fd = open_file(path, rank);
	void *memory = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!stopwatch || memory == MAP_FAILED || ranks > STOPWATCH_RANKS_MAX)
		die("cannot map");
	close(fd);
	stopwatch->shared = memory;
	stopwatch->rank = rank;
	stopwatch->ranks = ranks;
	if (rank == 0) {
		pthread_barrierattr_t attributes;
		pthread_barrierattr_init(&attributes);
		pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
		pthread_barrier_init(&stopwatch->shared->barrier, &attributes, ranks);
		atomic_store(&stopwatch->shared->ready, 1);
	}
	while (!atomic_load(&stopwatch->shared->ready))
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	return stopwatch;
}

void stopwatch_meet(struct stopwatch *stopwatch)
{
	pthread_barrier_wait(&stopwatch->shared->barrier);
}

void stopwatch_start(struct stopwatch *stopwatch)
{
	stopwatch_meet(stopwatch);
	stopwatch->began = now();
}

void stopwatch_stop(struct stopwatch *stopwatch)
{
	stopwatch->shared->took[stopwatch->rank] = now() - stopwatch->began;
	stopwatch_meet(stopwatch);
	double longest = 0.0;
	for (uint32_t i = 0; i < stopwatch->ranks; i++)
		longest = stopwatch->shared->took[i] > longest ? stopwatch->shared->took[i] : longest;
	stopwatch->total += longest;
	if (stopwatch->count < STOPWATCH_SAMPLES_MAX)
		stopwatch->samples[stopwatch->count++] = longest;
	stopwatch_meet(stopwatch); /* nobody writes the next time before all have read this one */
}

void stopwatch_clear(struct stopwatch *stopwatch)
{
	stopwatch->count = 0;
	stopwatch->total = 0.0;
}

uint32_t stopwatch_samples(const struct stopwatch *stopwatch)
{
	return stopwatch->count;
}

double stopwatch_total_s(const struct stopwatch *stopwatch)
{
	return stopwatch->total;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double stopwatch_median_us(struct stopwatch *stopwatch)
{
	qsort(stopwatch->samples, stopwatch->count, sizeof(double), by_size);
	return stopwatch->count ? stopwatch->samples[stopwatch->count / 2] * 1e6 : 0.0;
}

uint32_t stopwatch_share(struct stopwatch *stopwatch, uint32_t value)
{
	if (stopwatch->rank == 0)
		stopwatch->shared->value = value;
	stopwatch_meet(stopwatch);
	value = stopwatch->shared->value;
	stopwatch_meet(stopwatch);
	return value;
}
