/*
 * What the files of this folder share: the group itself, its peers, and the calls that wait. Private to daemon/group.
 *
 * Every public function, and every callback of the links, stands between group_enter and group_leave. The answers to
 * calls are queued and given at the outermost group_leave: no state machine is ever in the middle of something when a
 * caller hears of it.
 */
#ifndef FSDPD_GROUP_STATE_H
#define FSDPD_GROUP_STATE_H

#include "daemon/group/group.h"
#include "proto/peer_message.h"

#define GROUP_COORDINATOR 0u
#define GROUP_MODELS_MAX PEER_MODELS_MAX
#define GROUP_DROPPED_KEPT 256 /* numbers of dropped models that are remembered */
#define GROUP_LOST_KEPT 256    /* lost models of others that are remembered */
#define GROUP_SEALS_MAX 1024   /* names under agreement at the coordinator */
#define GROUP_MICRO_BATCHES_MAX 65536u
#define ALL_REDUCES_KEPT 1024u /* answers of an attempt that are kept */
#define RANK_LIST_MAX 16

struct model;

/* Ranks to tell people: the lowest ones, and how many more there are. */
struct rank_list {
	uint32_t ranks[RANK_LIST_MAX]; /* ascending */
	uint32_t count;
	uint32_t more;
};

struct peer {
	enum peer_state state;
	uint64_t incarnation;    /* 0: unknown */
	uint64_t up_incarnation; /* whoever welcomed our link to it; 0 while that is down */
	bool inbound;            /* its link to us was welcomed, under this incarnation */
	bool heard;
	uint64_t heard_ms;
	bool bulk_up;
	char *refusal;
	struct peer_model *models; /* what its last heartbeat said */
	size_t model_count;
};

/* A call that was answered and whose caller has not heard it yet. */
struct finished {
	struct finished *next;
	struct call *call;
	struct answer answer;
	double *values; /* of the answer, owned */
	char text[CALL_TEXT_MAX];
};

/* An operator's drop that waits for the coordinator. */
struct request {
	struct request *next;
	struct call *call;
	uint64_t model; /* 0: unknown here */
	char name[FSDP_NAME_MAX + 1];
};

/* A lost model that another rank holds. */
struct lost_name {
	uint64_t model;
	uint64_t heard_ms;
	char name[FSDP_NAME_MAX + 1];
	char *text;
};

struct group {
	struct group_config config;
	char *cluster;
	struct links *links;
	uint32_t depth; /* of group_enter */
	bool ticked;
	uint64_t now_ms, heartbeat_ms; /* heartbeat_ms: when the next one is due */
	uint64_t generation;
	struct peer *peers; /* [world_size]; ours too */
	struct model *models;
	struct worker *workers;
	struct call *calls; /* that wait, oldest first */
	struct finished *finished, **finished_end;
	struct request *requests;
	struct seal *seals; /* coordinator */
	struct lost_name lost[GROUP_LOST_KEPT];
	uint32_t lost_count;
	uint64_t dropped[GROUP_DROPPED_KEPT]; /* a ring */
	uint32_t dropped_count;
	uint64_t models_made;    /* coordinator */
	uint64_t seals_numbered; /* of this rank */
	uint64_t inquiries;
};

/* ---- group.c ---- */

void group_enter(struct group *group);
void group_leave(struct group *group);
static inline bool group_coordinates(const struct group *group)
{
	return group->config.rank == GROUP_COORDINATOR;
}
/* A zeroed message; text and name are brought into it by group_message_text and group_message_name. */
void group_message_init(struct peer_message *message, enum peer_op op);
void group_message_name(struct peer_message *message, const char *name);
void group_message_text(struct peer_message *message, const char *text);
/* To a peer, best effort: what is lost is asked again. To ourselves it is heard at once. */
void group_send(struct group *group, uint32_t rank, struct peer_message *message);
int group_send_piece(struct group *group, uint32_t rank, struct peer_message *message, struct transport_piece piece);
void group_tell_others(struct group *group, struct peer_message *message);
void group_message(void *context, uint32_t rank, const struct peer_message *message, struct buffer *payload);
void group_command(struct group *group, struct command *command);
void group_notice(struct group *group, enum notice_kind kind, const struct model *model, const char *unit, int32_t peer,
		  const char *format, ...) __attribute__((format(printf, 6, 7)));
/* Memory that the loop cannot go on without; aborts. */
void *group_allocate(size_t count, size_t size);
char *group_duplicate(const char *text);

/* ---- membership.c ---- */

extern const struct links_owner membership_links_owner;
int membership_init(struct group *group);
void membership_fini(struct group *group);
void membership_start(struct group *group); /* after the links are there: a world of one forms here */
void membership_heard(struct group *group, uint32_t rank);
void membership_tick(struct group *group);
int64_t membership_gone(const struct group *group); /* the lowest rank that is gone, or -1 */
void membership_lost_text(const struct group *group, uint32_t rank, char *text, size_t size);
void membership_absent(const struct group *group, struct rank_list *ranks); /* adds who is not joined */

void rank_list_add(struct rank_list *list, uint32_t rank);

/* ---- call.c ---- */

enum call_kind {
	CALL_ATTACH,
	CALL_LOAD,
	CALL_UNSHARD,
	CALL_SHARD,
	CALL_GRAD,
	CALL_REDUCE,
	CALL_WEIGHT,
	CALL_MICRO_BATCH,
	CALL_SYNC,
	CALL_NORM,
	CALL_STEP,
	CALL_ALL_REDUCE,
	CALL_PUBLISH, /* a step from staging that was decided and is being applied */
	CALL_ABORT,
	CALL_CLOSE,
	CALL_DROP,
	CALL_KINDS
};
#define CALL_BIT(kind) (1u << (kind))
#define CALL_ALL ((1u << CALL_KINDS) - 1)
/* Those that can wait. */
#define CALL_OF_STEP                                                                                           \
	(CALL_BIT(CALL_GRAD) | CALL_BIT(CALL_SYNC) | CALL_BIT(CALL_NORM) | CALL_BIT(CALL_STEP) |               \
	 CALL_BIT(CALL_ALL_REDUCE))

void call_init(struct call *call, enum call_kind kind, struct worker *worker, uint32_t unit);
void call_wait(struct group *group, struct call *call); /* into the list; its time begins */
void call_answer(struct group *group, struct call *call, const struct answer *answer);
void call_succeed(struct group *group, struct call *call);
void call_fail(struct group *group, struct call *call, int code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
struct model *call_model(const struct group *group, const struct call *call);
/* The oldest that waits of these kinds; NULL. */
struct call *call_find(const struct group *group, const struct model *model, uint32_t kinds);
void call_fail_all(struct group *group, const struct model *model, uint32_t kinds, int code, const char *text);
void call_drop_worker(struct group *group, const struct worker *worker); /* forgets its calls, answered or not */
void calls_tick(struct group *group);
void calls_flush(struct group *group);

/* ---- story.c ---- */

struct story {
	const char *op;
	const char *unit; /* or NULL */
	struct rank_list ranks;
};

void story_of(struct group *group, const struct call *call, struct story *ret_story);
/* `unit "u0", reduce-scatter, waiting for rank 2` */
void story_write(const struct story *story, char *text, size_t size);
/* `model "m" step 0: deadline of 2.0 s passed: unit "u0", ...` */
void story_deadline(struct group *group, const struct call *call, char *text, size_t size);

#endif
