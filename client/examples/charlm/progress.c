/* Draws the progress bar. */
#include "client/examples/charlm/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH 24

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void progress_begin(struct progress *progress, uint64_t steps)
{
	const char *terminal = getenv("FSDP_RUN_TERMINAL");
	progress->steps = steps;
	progress->began = seconds();
	progress->terminal = (terminal && strcmp(terminal, "1") == 0) || isatty(1);
}

void progress_show(const struct progress *progress, uint64_t step, double loss, double held_out, uint64_t bytes)
{
	char bar[BAR_WIDTH + 1];
	size_t filled = (size_t)(step * BAR_WIDTH / progress->steps);
	memset(bar, '.', BAR_WIDTH);
	memset(bar, '#', filled);
	bar[BAR_WIDTH] = '\0';
	double left = (seconds() - progress->began) / (double)step * (double)(progress->steps - step);
	printf("[%s] step %llu/%llu  loss %.3f  held-out %.3f bits/char  %2d:%02d left  %.0f MB moved%s", bar,
	       (unsigned long long)step, (unsigned long long)progress->steps, loss, held_out, (int)left / 60,
	       (int)left % 60, (double)bytes / 1e6, progress->terminal && step < progress->steps ? "   \r" : "\n");
	fflush(stdout);
}
