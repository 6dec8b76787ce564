/* The answer to "what does the engine wait for, and for whom?". */
#ifndef FSDPD_ENGINE_WAITS_H
#define FSDPD_ENGINE_WAITS_H

#include <stdint.h>

struct model;

void waits_report(const struct model *model, uint64_t token);

#endif
