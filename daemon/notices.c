/*
 * The group's notices in the log: one table says how loud each is and what it is called. Owns nothing; the loop calls
 * it.
 */
#include "daemon/notices.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/runtime/log.h"

static const struct {
	enum log_level level;
	const char *event;
} kinds[] = {
	[NOTICE_PEER_JOINED] = { LOG_LEVEL_INFO, "a peer joined" },
	[NOTICE_PEER_SUSPECTED] = { LOG_LEVEL_WARNING, "a peer is not heard" },
	[NOTICE_PEER_LOST] = { LOG_LEVEL_ERROR, "a peer is lost" },
	[NOTICE_PEER_BACK] = { LOG_LEVEL_NOTICE, "a peer is heard again" },
	[NOTICE_PEER_REFUSED] = { LOG_LEVEL_WARNING, "a peer is refused" },
	[NOTICE_GROUP_FORMED] = { LOG_LEVEL_NOTICE, "the group has formed" },
	[NOTICE_MODEL_SEALED] = { LOG_LEVEL_NOTICE, "a model is sealed" },
	[NOTICE_MODEL_REFUSED] = { LOG_LEVEL_WARNING, "a model is refused" },
	[NOTICE_MODEL_LOST] = { LOG_LEVEL_ERROR, "a model is lost" },
	[NOTICE_MODEL_DROPPED] = { LOG_LEVEL_NOTICE, "a model was dropped" },
	[NOTICE_STEP_COMMITTED] = { LOG_LEVEL_DEBUG, "a step was committed" },
	[NOTICE_STEP_ABORTED] = { LOG_LEVEL_WARNING, "a step was aborted" },
	[NOTICE_CALL_SLOW] = { LOG_LEVEL_WARNING, "a call waits for half of its deadline" },
	[NOTICE_CALL_TIMEOUT] = { LOG_LEVEL_ERROR, "a call's deadline passed" },
};

/* Which of the fields a notice has: bits of the table below. */
enum { HAS_MODEL = 1, HAS_UNIT = 2, HAS_PEER = 4 };

static int fields_of(const struct notice *notice)
{
	return (notice->model ? HAS_MODEL : 0) | (notice->unit ? HAS_UNIT : 0) | (notice->peer >= 0 ? HAS_PEER : 0);
}

void notices_log(const struct notice *notice)
{
	enum log_level level = kinds[notice->kind].level;
	const char *event = kinds[notice->kind].event, *text = notice->text ? notice->text : "";
	char peer[32] = "";

	if (notice->peer >= 0)
		snprintf(peer, sizeof(peer), "%d", notice->peer);
	switch (fields_of(notice)) {
	case 0:
		log_event(level, event, "text=" LOG_QUOTED, text);
		return;
	case HAS_PEER:
		log_event(level, event, "peer=%s text=" LOG_QUOTED, peer, text);
		return;
	case HAS_MODEL:
		log_event(level, event, "model=" LOG_QUOTED " step=%" PRIu64 " text=" LOG_QUOTED, notice->model,
			  notice->step, text);
		return;
	case HAS_MODEL | HAS_PEER:
		log_event(level, event, "model=" LOG_QUOTED " step=%" PRIu64 " peer=%s text=" LOG_QUOTED, notice->model,
			  notice->step, peer, text);
		return;
	default:
		log_event(level, event,
			  "model=" LOG_QUOTED " unit=" LOG_QUOTED " step=%" PRIu64 " peer=%s text=" LOG_QUOTED,
			  notice->model ? notice->model : "", notice->unit ? notice->unit : "", notice->step, peer,
			  text);
		return;
	}
}
