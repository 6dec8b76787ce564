/*
 * The faults of a run: which, when and to whom, drawn from the seed before it begins. Everything here ends before
 * faults_end_us, and after that the cluster must come to its end by itself.
 */
#ifndef TESTS_SIM_FAULTS_H
#define TESTS_SIM_FAULTS_H

#include <stdint.h>

/* X(name, weight: how often it is drawn, least world, function in faults.c) */
#define FAULTS(X)                                      \
	X(SLOW_LINK, 10, 2, faults_slow_link)          \
	X(CLOG, 10, 2, faults_clog)                    \
	X(BREAK, 16, 2, faults_break)                  \
	X(BREAK_BOTH, 10, 2, faults_break_both)        \
	X(FLAPPING, 6, 2, faults_flapping)             \
	X(FLAP_ASLEEP, 8, 2, faults_flap_asleep)       \
	X(BREAK_LATE, 10, 2, faults_break_late)        \
	X(BREAK_REFUSED, 6, 2, faults_break_refused)   \
	X(QUEUE_FULL, 5, 2, faults_queue_full)         \
	X(PARTITION_SHORT, 6, 2, faults_short)         \
	X(PARTITION_SUSPECT, 5, 2, faults_suspect)     \
	X(PARTITION_LONG, 4, 2, faults_long)           \
	X(PARTITION_DOUBT, 4, 2, faults_doubt)         \
	X(CRASH_QUICK, 3, 2, faults_crash_quick)       \
	X(CRASH_SLOW, 2, 2, faults_crash_slow)         \
	X(TRAINER_DEATH, 10, 1, faults_death)          \
	X(TRAINER_SLEEP, 4, 1, faults_sleep)           \
	X(TRAINER_ABORT, 5, 1, faults_trainer_abort)   \
	X(OPERATOR_ABORT, 5, 1, faults_operator_abort) \
	X(OPERATOR_DROP, 3, 1, faults_operator_drop)   \
	X(OTHER_OPTIONS, 4, 2, faults_other_options)   \
	X(OTHER_VALUES, 5, 2, faults_other_values)     \
	X(OTHER_MANIFEST, 4, 2, faults_other_manifest) \
	X(CANNOT_SEAL, 3, 2, faults_cannot_seal)       \
	X(SHORT_DEADLINE, 6, 1, faults_short_deadline) \
	X(STALLED_JOBS, 5, 1, faults_stalled_jobs)

enum fault_kind {
#define FAULT_ENUM(name, weight, least, function) FAULT_##name,
	FAULTS(FAULT_ENUM)
#undef FAULT_ENUM
		FAULT_KINDS
};

struct sim;

void faults_plan(struct sim *sim); /* draws them and puts them on the clock */

#endif
