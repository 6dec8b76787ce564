/* The tally of the whole program: one table of names, one of counts. One thread. */
#include "tests/sim/tally.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/group/group.h"
#include "fsdp/error.h"
#include "proto/peer_message.h"
#include "tests/sim/faults.h"

struct tally_row {
	enum tally_group group;
	unsigned index;
	const char *name;
	bool optional;
};

#define CODE(name)                                                          \
	{                                                                   \
		TALLY_CODE, (unsigned)(-FSDP_E_##name - 1000), #name, false \
	}
#define PEER(from, to)                                                         \
	{                                                                      \
		TALLY_PEER, PEER_##from * 4u + PEER_##to, #from "-" #to, false \
	}
#define NONE (-1)
#define MODEL_NONE NONE
#define MODEL(from, to)                                                                                               \
	{                                                                                                             \
		TALLY_MODEL, (unsigned)((int)MODEL_##from + 1) * 6u + (unsigned)((int)MODEL_##to + 1), #from "-" #to, \
			false                                                                                         \
	}
#define OP(name)                                    \
	{                                           \
		TALLY_OP, PEER_##name, #name, false \
	}
#define COMMAND(name)                                       \
	{                                                   \
		TALLY_COMMAND, COMMAND_##name, #name, false \
	}
#define REPORT(name)                                      \
	{                                                 \
		TALLY_REPORT, REPORT_##name, #name, false \
	}
#define NOTICE(name)                                      \
	{                                                 \
		TALLY_NOTICE, NOTICE_##name, #name, false \
	}
#define EVENT(name)                                     \
	{                                               \
		TALLY_EVENT, EVENT_##name, #name, false \
	}

static const char *const group_names[TALLY_GROUPS] = {
	[TALLY_FAULT] = "fault",   [TALLY_OP] = "message",    [TALLY_COMMAND] = "command",
	[TALLY_REPORT] = "report", [TALLY_NOTICE] = "notice", [TALLY_CODE] = "answer",
	[TALLY_PEER] = "peer",     [TALLY_MODEL] = "model",   [TALLY_EVENT] = "event",
};

static const struct tally_row rows[] = {
#define FAULT_ROW(name, weight, least, function) { TALLY_FAULT, FAULT_##name, #name, false },
	FAULTS(FAULT_ROW)
#undef FAULT_ROW
		OP(HELLO),
	OP(WELCOME),
	OP(REFUSE),
	OP(HEARTBEAT),
	OP(MANIFEST),
	OP(DETAIL_WANTED),
	OP(DETAIL),
	OP(SEALED),
	OP(UNSEALED),
	OP(LOADED),
	OP(VERIFIED),
	OP(VOTE),
	OP(DECISION),
	OP(ABORT),
	OP(CLOSED),
	OP(DROP),
	OP(DROP_REFUSED),
	OP(WAITING),
	OP(LOST),
	OP(WITHDRAW),
	OP(READ),
	OP(CHUNK),
	OP(STALE),
	OP(PUSH),
	OP(CLOSE),
	OP(PROGRESS),
	OP(NORM),
	OP(NORMED),
	OP(ALL_REDUCE),
	OP(ALL_REDUCED),
	OP(OFFERED),
	COMMAND(PEERS),
	COMMAND(ADD),
	COMMAND(DROP),
	COMMAND(LOAD),
	COMMAND(PUBLISH),
	COMMAND(FETCH),
	COMMAND(GATHER),
	COMMAND(REDUCE),
	COMMAND(MEASURE),
	COMMAND(CLOSE),
	COMMAND(APPLY),
	COMMAND(ABORT),
	COMMAND(INQUIRE),
	REPORT(LOADED),
	REPORT(GATHERED),
	REPORT(FETCHED),
	REPORT(RETURNED),
	REPORT(REDUCED),
	REPORT(MEASURED),
	REPORT(APPLIED),
	REPORT(PROGRESS),
	REPORT(DROPPED),
	REPORT(WAITING),
	REPORT(BULK),
	NOTICE(PEER_JOINED),
	NOTICE(PEER_SUSPECTED),
	NOTICE(PEER_LOST),
	NOTICE(PEER_BACK),
	NOTICE(PEER_REFUSED),
	NOTICE(GROUP_FORMED),
	NOTICE(MODEL_SEALED),
	NOTICE(MODEL_REFUSED),
	NOTICE(MODEL_LOST),
	NOTICE(MODEL_DROPPED),
	NOTICE(STEP_COMMITTED),
	NOTICE(STEP_ABORTED),
	NOTICE(CALL_SLOW),
	NOTICE(CALL_TIMEOUT),
	{ TALLY_CODE, 0, "OK", false },
	CODE(STATE),
	CODE(MISMATCH),
	CODE(TIMEOUT),
	CODE(ABORTED),
	CODE(PEER_LOST),
	CODE(LOST),
	CODE(IN_DOUBT),
	CODE(BUDGET),
	CODE(BUSY),
	CODE(NOT_FOUND),
	CODE(DROPPED),
	{ TALLY_CODE, TALLY_INDEX_MAX - 1, "(errno)", true },
	PEER(ABSENT, JOINED),
	PEER(JOINED, SUSPECTED),
	PEER(SUSPECTED, JOINED),
	PEER(SUSPECTED, GONE),
	PEER(GONE, JOINED),
	MODEL(NONE, SEALING),
	MODEL(SEALING, NONE),
	MODEL(SEALING, LOADING),
	MODEL(LOADING, READY),
	MODEL(LOADING, LOST),
	MODEL(READY, LOST),
	MODEL(READY, DROPPING),
	MODEL(DROPPING, NONE),
	MODEL(LOST, DROPPING),
	EVENT(APPLIED),
	EVENT(SKIPPED),
	EVENT(STAGED),
	EVENT(RESUMED),
	EVENT(UNSHARDED),
	EVENT(COMPARED_SHARD),
	EVENT(COMPARED_GRADIENT),
	EVENT(LEFT_OUT),
	EVENT(WEIGHED),
	EVENT(COMPARED_NORM),
	EVENT(COMPARED_STEP),
	EVENT(AT_FLOOR),
	EVENT(WEIGHED_NOTHING),
	EVENT(OLD_CONNECTION),
	EVENT(QUEUE_FULL),
	EVENT(DUPLICATE),
	EVENT(STALE_ATTEMPT),
	EVENT(STALE_READ),
	EVENT(STALE_LINK),
	EVENT(STALE_GENERATION),
	/* A well-behaved peer never does it here: a connection that was not welcomed is dropped at once. */
	{ TALLY_EVENT, EVENT_BEFORE_HELLO, "BEFORE_HELLO", true },
	EVENT(RESENT),
	EVENT(JOB),
	EVENT(BUSY_DROP),
	EVENT(LIFE),
	EVENT(ALL_REDUCED),
	EVENT(COMPARED_STATE),
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

static uint64_t counts[TALLY_GROUPS][TALLY_INDEX_MAX];

void tally_add(enum tally_group group, unsigned index, uint64_t count)
{
	assert(index < TALLY_INDEX_MAX);
	counts[group][index] += count;
}

static void tally_print_entry(const char *name, uint64_t count, unsigned *column)
{
	if (*column == 4) {
		printf("\n%10s", "");
		*column = 0;
	}
	printf(" %-20s %9" PRIu64, name, count);
	(*column)++;
}

/* Of what occurred and has no row. */
static void tally_name(enum tally_group group, unsigned index, char *name, size_t size)
{
	if (group == TALLY_PEER) {
		snprintf(name, size, "%s-%s", peer_state_name(index / 4), peer_state_name(index % 4));
	} else if (group == TALLY_MODEL) {
		snprintf(name, size, "%s-%s", index < 6 ? "none" : model_state_name(index / 6 - 1),
			 index % 6 == 0 ? "none" : model_state_name(index % 6 - 1));
	} else {
		snprintf(name, size, "(%u)", index);
	}
}

static bool tally_is_listed(enum tally_group group, unsigned index)
{
	for (size_t i = 0; i < ROWS; i++) {
		if (rows[i].group == group && rows[i].index == index) {
			return true;
		}
	}
	return false;
}

void tally_print(void)
{
	for (enum tally_group group = 0; group < TALLY_GROUPS; group++) {
		unsigned column = 0;
		printf("%-10s", group_names[group]);
		for (size_t i = 0; i < ROWS; i++) {
			if (rows[i].group == group) {
				tally_print_entry(rows[i].name, counts[group][rows[i].index], &column);
			}
		}
		for (unsigned index = 0; index < TALLY_INDEX_MAX; index++) {
			if (counts[group][index] > 0 && !tally_is_listed(group, index)) {
				char name[24];
				tally_name(group, index, name, sizeof(name));
				tally_print_entry(name, counts[group][index], &column);
			}
		}
		printf("\n");
	}
}

unsigned tally_missing(void)
{
	unsigned missing = 0;
	for (size_t i = 0; i < ROWS; i++) {
		if (!rows[i].optional && counts[rows[i].group][rows[i].index] == 0) {
			printf("never occurred: %s %s\n", group_names[rows[i].group], rows[i].name);
			missing++;
		}
	}
	return missing;
}
