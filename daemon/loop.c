/*
 * The loop. Owns the event loop, the control plane, the group, the local sockets' server, the mailbox of finished jobs
 * and the notifier. Its tick, four times a heartbeat, is the group's clock.
 *
 * To leave (SIGTERM, SIGINT, nobody came) it drains: workers are told, the engine lets everything go, jobs come back;
 * then the loop ends. A second signal does not hurry it, since the engine's time is bounded.
 */
#include "daemon/loop.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <systemd/sd-event.h>
#include <time.h>

#include "daemon/group/group.h"
#include "daemon/notices.h"
#include "daemon/notifier.h"
#include "daemon/plane.h"
#include "daemon/runtime/log.h"
#include "daemon/serve/phase.h"
#include "daemon/serve/serve.h"

#define LOOP_BURST 1024           /* letters that are read before something else gets its turn */
#define LOOP_TICKS_A_HEARTBEAT 4u /* the group's clock */

struct loop {
	struct loop_config config;
	sd_event *event;
	struct plane *plane;
	struct group *group;
	struct serve *serve;
	struct notifier *notifier;
	struct mailbox *jobs;
	struct executor *executor;
	struct link_counters links;
	const char **endpoints; /* [world_size] */
	sd_event_source *signals[2], *tick, *control, *reports, *finished, *bulk_ended;
	uint64_t tick_us, started_ms, give_up_ms;
	uint64_t ticked_ms, clock_ms; /* the last tick by the machine's clock, and by the group's */
	bool formed, draining, bulk_is_over;
	int exit_code;
};

static uint64_t now_ms(const struct loop *loop)
{
	uint64_t usec = 0;

	sd_event_now(loop->event, CLOCK_MONOTONIC, &usec);
	return usec / 1000;
}

/* ---- Leaving ---- */

static void end_when_drained(struct loop *loop)
{
	bool drained = loop->bulk_is_over && serve_is_idle(loop->serve);

	if (loop->draining && (drained || now_ms(loop) >= loop->give_up_ms))
		sd_event_exit(loop->event, loop->exit_code);
}

static void drain(struct loop *loop, int exit_code)
{
	if (loop->draining)
		return;
	loop->draining = true;
	loop->exit_code = exit_code;
	loop->give_up_ms = now_ms(loop) + BULK_STOP_MS + 1000;
	notifier_stopping(loop->notifier);
	serve_stop(loop->serve);
	bulk_stop(loop->config.bulk);
	end_when_drained(loop);
}

static int handle_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *context)
{
	struct loop *loop = context;

	(void)source;
	log_event(LOG_LEVEL_NOTICE, "leaving", "signal=%u pid=%u", info->ssi_signo, info->ssi_pid);
	drain(loop, EXIT_SUCCESS);
	return 0;
}

static int handle_bulk_ended(sd_event_source *source, int fd, uint32_t events, void *context)
{
	struct loop *loop = context;

	(void)fd;
	(void)events;
	sd_event_source_set_enabled(source, SD_EVENT_OFF);
	loop->bulk_is_over = true;
	end_when_drained(loop);
	return 0;
}

/* ---- What comes in ---- */

static int handle_control(sd_event_source *source, int fd, uint32_t events, void *context)
{
	struct loop *loop = context;

	(void)source;
	(void)fd;
	(void)events;
	zmq_transport_process(plane_zmq(loop->plane));
	return 0;
}

static int handle_reports(sd_event_source *source, int fd, uint32_t events, void *context)
{
	struct loop *loop = context;
	struct letter *letter;

	(void)source;
	(void)fd;
	(void)events;
	for (unsigned i = 0; i < LOOP_BURST && (letter = mailbox_take(loop->config.reports)); i++)
		group_report(loop->group, (struct report *)letter);
	return 0;
}

static int handle_finished(sd_event_source *source, int fd, uint32_t events, void *context)
{
	struct loop *loop = context;
	struct letter *letter;

	(void)source;
	(void)fd;
	(void)events;
	for (unsigned i = 0; i < LOOP_BURST && (letter = mailbox_take(loop->jobs)); i++) {
		struct job *job = (struct job *)letter;

		job->done(job);
	}
	end_when_drained(loop);
	return 0;
}

static void handle_command(void *context, struct command *command)
{
	struct loop *loop = context;

	bulk_command(loop->config.bulk, command);
}

static void handle_notice(void *context, const struct notice *notice)
{
	struct loop *loop = context;

	if (notice->kind == NOTICE_GROUP_FORMED)
		loop->formed = true;
	notices_log(notice);
}

/* ---- The tick ---- */

static void check_joined(struct loop *loop)
{
	const struct config *config = loop->config.config;
	char ranks[PHASE_TEXT_MAX];
	uint32_t missing;

	loop->formed = loop->formed || group_generation(loop->group) != 0;
	if (loop->formed || loop->draining || now_ms(loop) - loop->started_ms < config->join_ms)
		return;
	missing = phase_missing(loop->group, (uint32_t)config->rank, config->world_size, ranks, sizeof(ranks));
	log_event(LOG_LEVEL_ERROR, "the group has not formed within the deadline",
		  "join_ms=%" PRIu64 " missing=%u of=%u ranks=" LOG_QUOTED, config->join_ms, missing,
		  config->world_size, missing > 0 ? ranks : "none, but they do not agree on the generation");
	drain(loop, EXIT_FAILURE);
}

static void tell_phase(struct loop *loop)
{
	char text[PHASE_TEXT_MAX + 1];

	if (loop->draining)
		return;
	phase_describe(loop->group, (uint32_t)loop->config.config->rank, loop->config.config->world_size, text);
	notifier_status(loop->notifier, text);
}

/* A tick that is late by a heartbeat means that something held the loop up, or the machine has no time for us: peers
 * may suspect this rank. */
static void check_lateness(const struct loop *loop, uint64_t due_us)
{
	uint64_t late_ms = now_ms(loop) - due_us / 1000;

	if (due_us / 1000 < now_ms(loop) && late_ms >= loop->config.config->heartbeat_ms)
		log_event(LOG_LEVEL_WARNING, "the loop is late", "late_ms=%" PRIu64, late_ms);
}

/* The group's clock stands still while the loop does: what peers said meanwhile waits in the sockets, and nobody must
 * be suspected for not being listened to. */
static void advance_clock(struct loop *loop)
{
	uint64_t now = now_ms(loop), passed = now - loop->ticked_ms, most = loop->config.config->heartbeat_ms;

	loop->ticked_ms = now;
	loop->clock_ms += passed < most ? passed : most;
}

static int handle_tick(sd_event_source *source, uint64_t usec, void *context)
{
	struct loop *loop = context;

	check_lateness(loop, usec);
	advance_clock(loop);
	group_tick(loop->group, loop->clock_ms);
	serve_tick(loop->serve);
	check_joined(loop);
	tell_phase(loop);
	end_when_drained(loop);
	return sd_event_source_set_time_relative(source, loop->tick_us);
}

/* ---- Making it ---- */

static int make_group(struct loop *loop)
{
	const struct config *config = loop->config.config;
	struct group_config group = {
		.rank = (uint32_t)config->rank,
		.world_size = config->world_size,
		.cluster = config->cluster,
		.incarnation = loop->config.incarnation,
		.operation_ms = config->operation_ms,
		.grace_ms = config->grace_ms,
		.heartbeat_ms = config->heartbeat_ms,
		.suspicion_ms = config->suspicion_ms,
		.first_model = loop->config.first_model,
		.transport = plane_transport(loop->plane),
		.command = handle_command,
		.notice = handle_notice,
		.context = loop,
		.link_counters = &loop->links,
	};
	int code = group_new(&group, &loop->group);

	if (code == 0)
		plane_listen(loop->plane, group_transport_events(), group_transport_context(loop->group));
	return code;
}

static int make_serve(struct loop *loop)
{
	const struct config *config = loop->config.config;
	struct serve_config serve = {
		.event = loop->event,
		.group = loop->group,
		.executor = loop->executor,
		.client_fd = loop->config.sockets->fds[SOCKETS_CLIENT],
		.control_fd = loop->config.sockets->fds[SOCKETS_CONTROL],
		.rank = (uint32_t)config->rank,
		.world_size = config->world_size,
		.cluster = config->cluster,
		.incarnation = loop->config.incarnation,
		.gather_bytes = config->gather_bytes,
		.gradient_bytes = config->gradient_bytes,
		.endpoints = loop->endpoints,
		.control_links = &loop->links,
		.bulk_links = bulk_links(loop->config.bulk),
		.engine = bulk_engine(loop->config.bulk),
	};

	return serve_new(&serve, &loop->serve);
}

static int make_parts(struct loop *loop)
{
	const struct config *config = loop->config.config;
	int code;

	loop->endpoints = calloc(config->world_size, sizeof(*loop->endpoints));
	if (!loop->endpoints)
		return -ENOMEM;
	for (uint32_t rank = 0; rank < config->world_size; rank++)
		loop->endpoints[rank] = plane_endpoint(config, PLANE_CONTROL, rank);
	code = mailbox_new(&loop->jobs);
	if (code == 0)
		code = exec_executor_new(loop->config.exec, loop->jobs, &loop->executor);
	if (code == 0)
		code = plane_new(config, PLANE_CONTROL, loop->config.sockets->fds[SOCKETS_CONTROL_PLANE], &loop->plane);
	if (code < 0) {
		log_event(LOG_LEVEL_ERROR, "the control plane cannot be made", "endpoint=%s why=" LOG_QUOTED,
			  plane_endpoint(config, PLANE_CONTROL, (uint32_t)config->rank), strerror(-code));
		return code;
	}
	sockets_take(loop->config.sockets, SOCKETS_CONTROL_PLANE); /* the transport's now */
	code = make_group(loop);
	if (code == 0)
		code = make_serve(loop);
	if (code == 0)
		code = notifier_new(loop->event, &loop->notifier);
	return code;
}

static int add_sources(struct loop *loop)
{
	sd_event *event = loop->event;
	int code = sd_event_add_signal(event, &loop->signals[0], SIGTERM, handle_signal, loop);

	if (code >= 0)
		code = sd_event_add_signal(event, &loop->signals[1], SIGINT, handle_signal, loop);
	if (code >= 0)
		code = sd_event_add_io(event, &loop->control, zmq_transport_fd(plane_zmq(loop->plane)), EPOLLIN,
				       handle_control, loop);
	if (code >= 0)
		code = sd_event_add_io(event, &loop->reports, mailbox_fd(loop->config.reports), EPOLLIN, handle_reports,
				       loop);
	if (code >= 0)
		code = sd_event_add_io(event, &loop->finished, mailbox_fd(loop->jobs), EPOLLIN, handle_finished, loop);
	if (code >= 0)
		code = sd_event_add_io(event, &loop->bulk_ended, bulk_fd(loop->config.bulk), EPOLLIN, handle_bulk_ended,
				       loop);
	if (code >= 0)
		code = sd_event_add_time_relative(event, &loop->tick, CLOCK_MONOTONIC, 0, 1000, handle_tick, loop);
	if (code >= 0)
		code = sd_event_source_set_enabled(loop->tick, SD_EVENT_ON);
	return code < 0 ? code : 0;
}

int loop_new(const struct loop_config *config, struct loop **ret_loop)
{
	struct loop *loop = calloc(1, sizeof(*loop));
	int code;

	if (!loop)
		return -ENOMEM;
	loop->config = *config;
	loop->tick_us = config->config->heartbeat_ms * 1000 / LOOP_TICKS_A_HEARTBEAT;
	code = sd_event_new(&loop->event);
	if (code >= 0) {
		loop->started_ms = loop->ticked_ms = loop->clock_ms = now_ms(loop);
		code = make_parts(loop);
	}
	if (code == 0)
		code = add_sources(loop);
	if (code < 0) {
		log_event(LOG_LEVEL_ERROR, "the loop cannot be made", "code=%d", code);
		loop_free(loop);
		return code;
	}
	notifier_watch(loop->notifier, "engine", bulk_pulse(config->bulk));
	for (unsigned i = 0; i < config->config->exec_threads; i++)
		notifier_watch(loop->notifier, "exec", exec_pulse(config->exec, i));
	*ret_loop = loop;
	return 0;
}

bool loop_free(struct loop *loop)
{
	sd_event_source **const sources[] = { &loop->signals[0], &loop->signals[1], &loop->tick,      &loop->control,
					      &loop->reports,    &loop->finished,   &loop->bulk_ended };

	if (!loop)
		return true;
	if (loop->serve && !serve_is_idle(loop->serve))
		return false;
	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
		*sources[i] = sd_event_source_disable_unref(*sources[i]);
	serve_free(loop->serve);
	notifier_free(loop->notifier);
	if (loop->group)
		group_free(loop->group);
	plane_free(loop->plane);
	exec_executor_free(loop->executor);
	mailbox_free(loop->jobs);
	free(loop->endpoints);
	sd_event_unref(loop->event);
	free(loop);
	return true;
}

int loop_run(struct loop *loop)
{
	int code;

	notifier_ready(loop->notifier);
	tell_phase(loop);
	code = sd_event_loop(loop->event);
	if (code < 0) {
		log_event(LOG_LEVEL_ERROR, "the loop failed", "why=" LOG_QUOTED, strerror(-code));
		return EXIT_FAILURE;
	}
	return code;
}
