/*
 * Workers' sessions. Each owns its connection, the models that it opened and the requests that wait. When the process
 * dies, or the connection ends, what waits is cancelled and every model is detached from; the models themselves stay.
 */
#include "daemon/serve/session.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "daemon/runtime/log.h"
#include "daemon/serve/seal.h"
#include "daemon/serve/serve_state.h"
#include "daemon/serve/text.h"
#include "fsdp/error.h"
#include "proto/frame.h"

static void handle_record(void *context, const void *data, size_t size)
{
	struct session *session = context;
	struct worker_message message;
	int code = worker_message_read(data, size, &message);

	if (code == -ENOMEM) {
		connection_break(session->connection, CONNECTION_FAULT);
		return;
	}
	if (code < 0) {
		connection_break(session->connection, CONNECTION_MALFORMED);
		return;
	}
	if (message.answer || !request_receive(session, &message))
		connection_break(session->connection, CONNECTION_MALFORMED);
	worker_message_fini(&message);
}

static void handle_ended(void *context, enum connection_end end)
{
	struct session *session = context;
	bool fault = end != CONNECTION_HANG_UP && end != CONNECTION_DEATH;
	/* Who comes and goes without a word does not fill the log. */
	enum log_level level = fault ? LOG_LEVEL_WARNING : session->greeted ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG;

	if (end == CONNECTION_MALFORMED)
		session->serve->malformed++;
	if (!fault || serve_may_warn(session->serve))
		log_event(level, "a worker left", "pid=%d uid=%u models=%u waiting=%u why=" LOG_QUOTED,
			  (int)connection_pid(session->connection), (unsigned)connection_uid(session->connection),
			  session->opened_count, session->request_count, connection_end_text(end));
	session_free(session);
}

static const struct connection_owner session_owner = { .record = handle_record, .ended = handle_ended };

int session_new(struct serve *serve, int fd, struct session **ret_session)
{
	struct session *session = calloc(1, sizeof(*session));
	int code;

	if (!session)
		return -ENOMEM;
	session->serve = serve;
	TAILQ_INIT(&session->opened);
	TAILQ_INIT(&session->requests);
	code = connection_new(serve->config.event, fd, &session_owner, session, &session->connection);
	if (code < 0) {
		free(session);
		return code;
	}
	TAILQ_INSERT_TAIL(&serve->sessions, session, link);
	serve->session_count++;
	log_event(LOG_LEVEL_DEBUG, "a worker connected", "pid=%d uid=%u", (int)connection_pid(session->connection),
		  (unsigned)connection_uid(session->connection));
	*ret_session = session;
	return 0;
}

static void opened_free(struct opened *opened)
{
	registration_fini(&opened->registration);
	blob_drop(&opened->blob);
	free(opened);
}

struct worker *session_close(struct opened *opened, const struct request *except, int code, const char *text)
{
	struct session *session = opened->session;
	struct worker *worker = opened->worker;
	struct request *request = TAILQ_FIRST(&session->requests);

	while (request) {
		struct request *next = TAILQ_NEXT(request, link);

		if (request->opened == opened && request != except) {
			if (code < 0)
				request_fail(request, code, "%s", text);
			else
				request_cancel(request);
		}
		request = next;
	}
	if (opened->seal)
		seal_abandon(opened->seal);
	TAILQ_REMOVE(&session->opened, opened, link);
	session->opened_count--;
	opened_free(opened);
	return worker;
}

/* Every model is detached from; requests are answered with code, or dropped where it is 0. */
static void detach_all(struct session *session, int code, const char *text)
{
	struct request *request;
	struct opened *opened;

	while ((opened = TAILQ_FIRST(&session->opened))) {
		struct worker *worker = session_close(opened, NULL, code, text);

		if (worker)
			worker_detach(worker);
	}
	while ((request = TAILQ_FIRST(&session->requests))) {
		if (code < 0)
			request_fail(request, code, "%s", text);
		else
			request_cancel(request);
	}
}

void session_free(struct session *session)
{
	struct serve *serve = session->serve;

	detach_all(session, 0, NULL);
	TAILQ_REMOVE(&serve->sessions, session, link);
	serve->session_count--;
	connection_free(session->connection);
	free(session);
}

void session_stop(struct session *session)
{
	detach_all(session, FSDP_E_STOPPED, "the daemon is leaving");
}

struct opened *session_find(struct session *session, uint32_t handle)
{
	struct opened *opened;

	TAILQ_FOREACH(opened, &session->opened, link)
	{
		if (opened->handle == handle)
			return opened;
	}
	return NULL;
}

int session_open(struct session *session, const struct worker_message *message, struct opened **ret_opened, char *text,
		 size_t text_size)
{
	struct opened *opened;
	int code;

	if (session->opened_count == SESSION_MODELS_MAX) {
		text_print(text, text_size,
			   "%u models are open on this connection, which are the most: close one first",
			   SESSION_MODELS_MAX);
		return FSDP_E_OVERFLOW;
	}
	opened = calloc(1, sizeof(*opened));
	if (!opened) {
		text_copy(text, text_size, "out of memory");
		return -ENOMEM;
	}
	code = registration_init(&opened->registration, message);
	if (code < 0) {
		text_copy(text, text_size, opened->registration.text);
		opened_free(opened);
		return code;
	}
	opened->session = session;
	opened->handle =
		++session->last_handle; /* never used again on this connection: 2^32 opens are more than it lives */
	opened->opened_ms = serve_now_ms(session->serve);
	TAILQ_INSERT_TAIL(&session->opened, opened, link);
	session->opened_count++;
	*ret_opened = opened;
	return 0;
}

void opened_retire(struct opened *opened)
{
	struct worker *worker = opened->worker;

	if (!opened->retiring)
		return;
	opened->retiring = false;
	opened->worker = NULL;
	worker_detach(worker);
}

void session_retire(struct session *session)
{
	struct opened *opened;

	TAILQ_FOREACH(opened, &session->opened, link)
	opened_retire(opened);
}

void session_send(struct session *session, struct worker_message *answer, const int *fds, size_t fd_count)
{
	unsigned char data[FRAME_BYTES_MAX];
	long size;

	answer->answer = true;
	size = worker_message_write(answer, data);
	if (size == -ENOMEM) {
		connection_break(session->connection, CONNECTION_FAULT);
		size = 0;
	}
	assert(size >= 0); /* every list and text of ours has a limit below a record's */
	connection_send(session->connection, data, (size_t)size, fds, fd_count);
}
