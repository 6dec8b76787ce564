/*
 * A worker's connection: the models that it opened, by handle, and its requests that wait. What each request does is in
 * request.c; a seal, which takes several steps, in seal.c. One thread (the loop) owns it. Private to this folder.
 */
#ifndef FSDPD_SERVE_SESSION_H
#define FSDPD_SERVE_SESSION_H

#include <sys/queue.h>

#include "daemon/group/group.h"
#include "daemon/serve/blob.h"
#include "daemon/serve/connection.h"
#include "daemon/serve/registration.h"
#include "daemon/serve/serve.h"
#include "proto/worker_message.h"

#define SESSIONS_MAX 256u         /* connections of workers */
#define SESSION_MODELS_MAX 16u    /* open on one connection */
#define SESSION_REQUESTS_MAX 256u /* that wait, of one connection */

struct seal;
struct request_row;

enum opened_state {
	OPENED_REGISTERING, /* units may be added */
	OPENED_SEALING,     /* a seal is on its way */
	OPENED_UNSEALED,    /* a seal failed: nothing can be added, but it may be sealed again, or closed */
	OPENED_SEALED
};

/* A model on a connection. */
struct opened {
	TAILQ_ENTRY(opened) link;
	struct session *session;
	uint32_t handle;
	enum opened_state state;
	struct registration registration;
	struct worker *worker; /* from the moment that the seal went to the group */
	bool retiring;         /* the seal failed: the worker is to be detached, not from inside the group */
	struct seal *seal;     /* on its way */
	struct blob blob;      /* for the next step */
	uint64_t opened_ms;
};

/* A request that is not answered yet. */
struct request {
	struct call call; /* first: the group gives it back */
	TAILQ_ENTRY(request) link;
	struct session *session;
	struct opened *opened; /* NULL: of no model */
	const struct request_row *row;
	uint64_t number;
	uint32_t unit;
	uint64_t started_ms;
	bool in_group; /* its call is the group's at present */
};

TAILQ_HEAD(session_list, session);

struct session {
	TAILQ_ENTRY(session) link;
	struct serve *serve;
	struct connection *connection;
	bool greeted; /* said HELLO in a version that is spoken */
	uint32_t last_handle;
	unsigned opened_count, request_count;
	TAILQ_HEAD(, opened) opened;
	TAILQ_HEAD(, request) requests;
};

/* Takes fd on success. */
int session_new(struct serve *serve, int fd, struct session **ret_session);
void session_free(struct session *session); /* ends what waits, detaches from every model */
/* The daemon leaves: what waits is answered with FSDP_E_STOPPED, every model detached from. */
void session_stop(struct session *session);

struct opened *session_find(struct session *session, uint32_t handle); /* or NULL */
int session_open(struct session *session, const struct worker_message *message, struct opened **ret_opened, char *text,
		 size_t text_size);
/* Every other request of the model is answered with code; then the model is no longer the session's, and freed. Gives
 * its worker, which the caller ends, or NULL. */
struct worker *session_close(struct opened *opened, const struct request *except, int code, const char *text);
/* Detaches workers whose seal failed. Not from inside the group. */
void session_retire(struct session *session);
void opened_retire(struct opened *opened);

/* Sends the answer to request number `number`. */
void session_send(struct session *session, struct worker_message *answer, const int *fds, size_t fd_count);

/* ---- Requests (request.c) ---- */

/* A whole message arrived. false: it is not a request that exists, and the session must end. */
bool request_receive(struct session *session, const struct worker_message *message);
/* Each answers and frees the request. */
void request_answer(struct request *request, struct worker_message *answer, const int *fds, size_t fd_count);
void request_fail(struct request *request, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
void request_finish(struct request *request, const struct answer *answer);
/* What the group answered, as a message. */
struct worker_message request_message(const struct request *request, const struct answer *answer);
void request_cancel(struct request *request); /* takes it from the group where it waits, and frees it; no answer */
const char *request_name(const struct request *request);

#endif
