/*
 * One to three groups in one thread under a virtual clock: messages and reports travel in a queue, links can be cut and
 * made anew, and a fake engine answers commands at once, or when the test says so. One model, "m", of up to four units.
 */
#ifndef FSDPD_TESTS_GROUP_CLUSTER_H
#define FSDPD_TESTS_GROUP_CLUSTER_H

#include <criterion/criterion.h>

#include "daemon/group/group.h"
#include "fsdp/error.h"

#define CLUSTER_MAX 3
#define CLUSTER_UNITS_MAX 4
#define CLUSTER_NOTICES_MAX 256
#define CLUSTER_SLOTS_MAX 16

struct test_call {        /* a call, and its answer */
	struct call call; /* first */
	int answered;     /* how often */
	struct answer answer;
	char text[CALL_TEXT_MAX];
};

struct node {
	struct cluster *cluster;
	struct transport transport;
	struct group *group;
	uint32_t rank;
	uint64_t incarnation;
	bool stopped; /* does not tick, and nothing reaches it */
	struct link_counters link_counters;
	struct worker *worker;
	struct test_call attach;
	struct manifest *manifest;
	/* the fake engine */
	bool hold_gathers, hold_returns, hold_loads, hold_applied, hold_dropped, no_votes;
	bool not_finite; /* its last unit, when it is reduced */
	double squares, largest;
	bool hold_measured, too_large; /* too_large: unit 0, when it is measured */
	double loss_scale, clip;       /* of the last decision; of the last measuring */
	uint32_t measured;
	uint64_t load_sum; /* every parameter's checksum */
	struct plan *plan;
	uint64_t model, generation;
	bool closed;
	uint64_t closed_step;
	uint32_t closed_attempt;
	struct optimizer_groups groups; /* of the last decision */
	double weight, handed_weight;   /* of the last CLOSE; of the last reduction */
	uint8_t absent[CLUSTER_UNITS_MAX], present[CLUSTER_UNITS_MAX];
	uint64_t handed[CLUSTER_SLOTS_MAX]; /* slots of reductions */
	uint32_t handed_count, gathers, fetched, published, applied, aborted, dropped;
	uint64_t offered[CLUSTER_UNITS_MAX]; /* slots of initial values */
	uint32_t offered_count;
	struct report *held[CLUSTER_SLOTS_MAX];
	uint32_t held_count;
	/* notices */
	enum notice_kind notices[CLUSTER_NOTICES_MAX];
	char *notice_texts[CLUSTER_NOTICES_MAX];
	uint32_t notice_count;
};

struct cluster {
	uint32_t world_size;
	uint64_t now_ms, incarnations, connections;
	uint64_t grace_ms;
	struct node nodes[CLUSTER_MAX];
	uint64_t links[CLUSTER_MAX][CLUSTER_MAX]; /* the connection from, to; 0: none */
	bool cut[CLUSTER_MAX][CLUSTER_MAX];       /* swallows what travels from, to */
	struct event *events, **events_end;
	/* the model */
	uint32_t units;
	uint64_t elements;
	enum optimizer_kind optimizer;
	enum init_policy init;
	uint32_t init_rank;
	struct step_rules rules;               /* of cluster_step */
	const struct optimizer_groups *groups; /* likewise; NULL: none */
	uint64_t gather_bytes, grad_bytes;
};

/* Heartbeat 500 ms, suspicion 1500, grace 3000, operation 10000. Units u0 u1 ... of one parameter "w" of 4 elements;
 * pools of 4 pages. The ranks are not started. */
struct cluster *cluster_new(uint32_t world_size);
void cluster_free(struct cluster *cluster);
void cluster_start(struct cluster *cluster, uint32_t rank); /* with a new incarnation, and connects it */
void cluster_stop(struct cluster *cluster, uint32_t rank);  /* the process is gone */
void cluster_form(struct cluster *cluster);                 /* starts all, and runs until the group is formed */
void cluster_run(struct cluster *cluster);                  /* until nothing travels */
void cluster_advance(struct cluster *cluster, uint64_t ms); /* in steps of 125 ms */
void cluster_mute(struct cluster *cluster, uint32_t rank, bool muted);    /* nothing of it or to it gets through */
void cluster_relink(struct cluster *cluster, uint32_t from, uint32_t to); /* breaks the link; makes it anew */

struct manifest *cluster_manifest(const struct cluster *cluster, const char *unit, const char *param,
				  uint64_t elements);
void cluster_attach(struct cluster *cluster, uint32_t rank, struct manifest *manifest /* taken; NULL: the usual */);
void cluster_attach_all(struct cluster *cluster); /* and checks that all are attached */
void cluster_load(struct cluster *cluster, uint32_t rank, uint32_t unit, struct test_call *call);
void cluster_load_all(struct cluster *cluster); /* every unit on every rank, and checks that version 1 is there */
void cluster_reduce(struct cluster *cluster, uint32_t rank, uint32_t unit); /* grad and reduce, checked */
void cluster_step(struct cluster *cluster, uint32_t rank, double learning_rate, struct test_call *call);
void cluster_held_go(struct cluster *cluster, uint32_t rank); /* the reports that were held back */

struct test_call *test_call(uint64_t deadline_ms); /* freed with free() once answered or ended */
const char *cluster_notice(const struct node *node, enum notice_kind kind); /* the last of a kind; NULL */

#define assert_answer(test, wanted)                                                                            \
	do {                                                                                                   \
		cr_assert_eq((test)->answered, 1, "answered %d times", (test)->answered);                      \
		cr_assert_eq((test)->answer.code, (wanted), "code %d: %s", (test)->answer.code, (test)->text); \
	} while (0)
#define assert_has(text, part)                                                                         \
	do {                                                                                           \
		cr_assert_not_null((text));                                                            \
		cr_assert_not_null(strstr((text), (part)), "\"%s\" is not in \"%s\"", (part), (text)); \
	} while (0)

/* ---- cluster_engine.c ---- */
void cluster_command(void *context, struct command *command);
void cluster_report(struct node *node, struct report *report); /* travels in the queue */

#endif
