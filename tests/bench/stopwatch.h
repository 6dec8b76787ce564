/*
 * One clock for all processes of a benchmark: a barrier that they pass together and a place for each one's time, in a
 * file that they all map. A sample is the longest time of any rank for one operation that all began together.
 */
#ifndef FSDP_BENCH_STOPWATCH_H
#define FSDP_BENCH_STOPWATCH_H

#include <stdint.h>

#define STOPWATCH_RANKS_MAX 64
#define STOPWATCH_SAMPLES_MAX 4096

struct stopwatch;

/* Every rank calls it with the same path (a fresh name in a folder in memory); rank 0 makes the file. Exits on
 * failure. */
struct stopwatch *stopwatch_open(const char *path, uint32_t rank, uint32_t ranks);
void stopwatch_meet(struct stopwatch *stopwatch);
/* Meets, notes the time; the operation follows; then stopwatch_stop notes it again, meets, and on rank 0 keeps the
 * sample. */
void stopwatch_start(struct stopwatch *stopwatch);
void stopwatch_stop(struct stopwatch *stopwatch);
void stopwatch_clear(struct stopwatch *stopwatch);
uint32_t stopwatch_samples(const struct stopwatch *stopwatch); /* rank 0's */
double stopwatch_median_us(struct stopwatch *stopwatch);
double stopwatch_total_s(const struct stopwatch *stopwatch);
/* Rank 0 decides, all learn. */
uint32_t stopwatch_share(struct stopwatch *stopwatch, uint32_t value);

#endif
