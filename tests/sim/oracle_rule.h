/*
 * The update rules once more, one element after another, for the oracle: nothing is shared with the daemon's.
 */
#ifndef TESTS_SIM_ORACLE_RULE_H
#define TESTS_SIM_ORACLE_RULE_H

#include "daemon/math/optimizer.h"

#define ORACLE_MOMENTS_MAX 3

/* The updates-th update (from 1) of count elements. */
void oracle_rule(const struct optimizer_spec *spec, const struct optimizer_options *options, uint64_t updates,
		 float *values, const float *gradient, float *const moments[ORACLE_MOMENTS_MAX], uint64_t count);

#endif
