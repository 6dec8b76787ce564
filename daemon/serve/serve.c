/*
 * The two local sockets: their listeners, the sessions with workers, the operators' connections. Owns all of them;
 * borrows the group, the executor and the listening descriptors. Runs in the loop.
 */
#include "daemon/serve/serve_state.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/runtime/log.h"

uint64_t serve_now_ms(const struct serve *serve)
{
	uint64_t usec = 0;
	int code = sd_event_now(serve->config.event, CLOCK_MONOTONIC, &usec);

	assert(code >= 0);
	return usec / 1000;
}

bool serve_may_warn(struct serve *serve)
{
	uint64_t now_ms = serve_now_ms(serve);

	if (now_ms - serve->warned_ms >= SERVE_WARNINGS_MS) {
		serve->warned_ms = now_ms;
		serve->warnings = 0;
	}
	if (++serve->warnings == SERVE_WARNINGS_MAX)
		log_event(LOG_LEVEL_WARNING, "more warnings of this kind are only counted for a while", "for_ms=%u",
			  SERVE_WARNINGS_MS);
	return serve->warnings < SERVE_WARNINGS_MAX;
}

static void refuse(struct serve *serve, int fd, const char *what, const char *why)
{
	serve->refused++;
	if (serve_may_warn(serve))
		log_event(LOG_LEVEL_WARNING, "a local connection was refused", "socket=%s why=" LOG_QUOTED, what, why);
	close(fd);
}

static void handle_worker(void *context, int fd)
{
	struct serve *serve = context;
	struct session *session;
	int code;

	if (serve->session_count == SESSIONS_MAX) {
		refuse(serve, fd, "client", "as many are connected as can be");
		return;
	}
	code = session_new(serve, fd, &session);
	if (code < 0)
		refuse(serve, fd, "client", strerror(-code));
}

static void handle_operator(void *context, int fd)
{
	struct serve *serve = context;
	int code;

	if (serve->control_count == CONTROLS_MAX) {
		refuse(serve, fd, "control", "as many are connected as can be");
		return;
	}
	code = control_new(serve, fd);
	if (code < 0)
		refuse(serve, fd, "control", strerror(-code));
}

static int handle_retire(sd_event_source *source, void *context)
{
	struct serve *serve = context;
	struct session *session;

	(void)source;
	TAILQ_FOREACH(session, &serve->sessions, link)
	session_retire(session);
	return 0;
}

void serve_retire_soon(struct serve *serve)
{
	sd_event_source_set_enabled(serve->retire, SD_EVENT_ONESHOT);
}

int serve_new(const struct serve_config *config, struct serve **ret_serve)
{
	struct serve *serve = calloc(1, sizeof(*serve));
	int code;

	if (!serve)
		return -ENOMEM;
	serve->config = *config;
	TAILQ_INIT(&serve->sessions);
	TAILQ_INIT(&serve->controls);
	serve->started_ms = serve_now_ms(serve);
	code = sd_event_add_defer(config->event, &serve->retire, handle_retire, serve);
	if (code >= 0)
		code = sd_event_source_set_enabled(serve->retire, SD_EVENT_OFF);
	if (code >= 0)
		code = listener_new(config->event, config->client_fd, handle_worker, serve, &serve->workers_listener);
	if (code >= 0)
		code = listener_new(config->event, config->control_fd, handle_operator, serve,
				    &serve->control_listener);
	if (code < 0) {
		serve_free(serve);
		return code;
	}
	*ret_serve = serve;
	return 0;
}

void serve_free(struct serve *serve)
{
	struct session *session;

	if (!serve)
		return;
	assert(serve->seals == 0);
	while ((session = TAILQ_FIRST(&serve->sessions)))
		session_free(session);
	control_free_all(serve);
	listener_free(serve->workers_listener);
	listener_free(serve->control_listener);
	sd_event_source_disable_unref(serve->retire);
	free(serve);
}

void serve_stop(struct serve *serve)
{
	struct session *session;

	serve->stopped = true;
	listener_stop(serve->workers_listener);
	TAILQ_FOREACH(session, &serve->sessions, link)
	session_stop(session);
}

bool serve_is_idle(const struct serve *serve)
{
	return serve->seals == 0;
}

void serve_tick(struct serve *serve)
{
	listener_tick(serve->workers_listener);
	listener_tick(serve->control_listener);
}
