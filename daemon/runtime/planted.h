/*
 * Bugs planted on purpose, for one test: the simulated cluster must find each of them. They exist only where the core
 * is compiled with FSDP_PLANTED, which tests/sim does for a copy of its own; everywhere else PLANTED() is the constant
 * 0.
 */
#ifndef FSDPD_RUNTIME_PLANTED_H
#define FSDPD_RUNTIME_PLANTED_H

/* X(name, what is broken) */
#define PLANTED_BUGS(X)                                                                                      \
	X(PLANTED_ACK_BEFORE_ADD, "PROGRESS acknowledges what was received, not what was added")             \
	X(PLANTED_NO_DEDUPLICATION, "a push that arrives twice is added twice")                              \
	X(PLANTED_ARRIVAL_ORDER, "contributions are added in the order in which they arrive")                \
	X(PLANTED_APPLY_BEFORE_DECISION, "a rank applies the step when it votes")                            \
	X(PLANTED_STALE_GENERATION, "messages of another generation are accepted")                           \
	X(PLANTED_STALE_ATTEMPT, "pushes of an aborted attempt are accepted")                                \
	X(PLANTED_NO_RESEND, "nothing is sent again after a link is made anew")                              \
	X(PLANTED_IGNORE_CREDIT, "a source sends beyond its credit")                                         \
	X(PLANTED_MIXED_VERSIONS, "a reader takes chunks of any version")                                    \
	X(PLANTED_STEP_UNDER_READER, "a step does not wait for reads in progress")                           \
	X(PLANTED_SLOT_TOO_EARLY, "a gradient slot is returned when it was sent, not when it was added")     \
	X(PLANTED_DIVIDE_TWICE, "a unit that was divided while adding is divided again at the end")          \
	X(PLANTED_FORGET_ABSENT, "a unit that a rank left out is not marked absent by CLOSE")                \
	X(PLANTED_DECIDE_EARLY, "the coordinator decides when all but one have voted")                       \
	X(PLANTED_ABORT_AFTER_COMMIT, "the coordinator aborts a step that it has decided to apply")          \
	X(PLANTED_UNVERIFIED, "initial values are published without waiting for the other ranks")            \
	X(PLANTED_HELD_SLOT_REUSED, "a gather writes into a slot that somebody holds")                       \
	X(PLANTED_ALL_REDUCE_ORDER, "a small all-reduce is not added in rank order")                         \
	X(PLANTED_STATE_TOO_EARLY, "a step's state is kept when the step is asked for, not when it commits") \
	X(PLANTED_OFFER_TOO_EARLY,                                                                           \
	  "a slot of initial values is free when it is loaded, not when the others have read it")            \
	X(PLANTED_DIVIDE_FIRST, "a mean is divided before it is added")                                      \
	X(PLANTED_NORM_ORDER, "the parts of a norm are not added in rank order")                             \
	X(PLANTED_CLIP_FIRST, "a gradient is clipped before it is divided by the loss scale")                \
	X(PLANTED_WEIGHT_KEPT, "a weight is that of the next micro-batch too")

enum planted_bug {
	PLANTED_NOTHING = 0,
#define PLANTED_ENUM(name, text) name,
	PLANTED_BUGS(PLANTED_ENUM)
#undef PLANTED_ENUM
};

#ifdef FSDP_PLANTED
extern enum planted_bug planted_bug; /* set by the test before a run */
#define PLANTED(bug) (planted_bug == (bug))
#else
#define PLANTED(bug) 0
#endif

#endif
