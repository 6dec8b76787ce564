/*
 * The engine's thread. It sleeps in one place, on the plane's sockets and on one epoll descriptor that gathers what
 * else may wake it: the mailbox of commands, the mailbox of finished jobs, and an eventfd that other threads (ZeroMQ's,
 * when they let a buffer go) raise, once for many.
 */
#include "daemon/bulk.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "daemon/plane.h"

#define BULK_BURST 256       /* letters that are read before the sockets get their turn */
#define BULK_STOP_POLL_MS 5u /* how often a stopping thread looks whether all is back */

struct bulk {
	struct plane *plane;
	struct engine *engine;
	struct executor *executor;
	struct mailbox *commands, *jobs, *reports;
	int epoll_fd, wake_fd, ended_fd;
	_Atomic bool woken, stopping;
	bool running, idle;
	uint64_t tick_ms;
	pthread_t thread;
	struct pulse pulse;
	struct link_counters links;
	struct engine_counters counters;
};

static void raise_event(int fd)
{
	ssize_t n = write(fd, &(uint64_t){ 1 }, sizeof(uint64_t));

	(void)n; /* it is raised already: as good */
}

static void wake(void *context)
{
	struct bulk *bulk = context;

	if (!atomic_exchange(&bulk->woken, true))
		raise_event(bulk->wake_fd);
}

static void report(void *context, struct report *letter)
{
	struct bulk *bulk = context;

	mailbox_post(bulk->reports, &letter->letter);
}

void bulk_command(struct bulk *bulk, struct command *command)
{
	mailbox_post(bulk->commands, &command->letter);
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- The thread ---- */

static void hear_commands(struct bulk *bulk, bool stopped)
{
	struct letter *letter;

	for (unsigned i = 0; i < BULK_BURST && (letter = mailbox_take(bulk->commands)); i++) {
		if (stopped)
			command_free((struct command *)letter);
		else
			engine_command(bulk->engine, (struct command *)letter);
	}
}

static void hear_jobs(struct bulk *bulk)
{
	struct letter *letter;

	for (unsigned i = 0; i < BULK_BURST && (letter = mailbox_take(bulk->jobs)); i++) {
		struct job *job = (struct job *)letter;

		job->done(job);
	}
}

/* First the descriptor, then the flag, then the work: who raises the flag in between is seen by the work. */
static void hear_wake(struct bulk *bulk)
{
	uint64_t value;
	ssize_t n = read(bulk->wake_fd, &value, sizeof(value));

	(void)n; /* nothing to read: nobody raised it */
	if (atomic_exchange(&bulk->woken, false))
		engine_run(bulk->engine);
}

/* One round: everything that is there, a bounded piece of each. true: there may be more. */
static bool work(struct bulk *bulk, bool stopped)
{
	hear_commands(bulk, stopped);
	hear_jobs(bulk);
	hear_wake(bulk);
	return zmq_transport_process(plane_zmq(bulk->plane));
}

static void *run(void *argument)
{
	struct bulk *bulk = argument;
	uint64_t next_tick_ms = 0, give_up_ms = 0;
	bool stopped = false;

	for (;;) {
		uint64_t now = now_ms();
		int timeout_ms;
		bool more;

		pulse_beat(&bulk->pulse);
		if (now >= next_tick_ms) {
			engine_tick(bulk->engine, now);
			next_tick_ms = now + bulk->tick_ms;
		}
		more = work(bulk, stopped);
		if (!stopped && atomic_load(&bulk->stopping)) {
			hear_commands(bulk, stopped); /* what was sent before the end */
			engine_stop(bulk->engine);
			give_up_ms = now + BULK_STOP_MS;
			stopped = true;
		}
		bulk->idle = stopped && engine_is_idle(bulk->engine);
		if (bulk->idle || (stopped && now >= give_up_ms))
			break;
		timeout_ms = more ? 0 : (int)(stopped ? BULK_STOP_POLL_MS : next_tick_ms - now);
		pulse_park(&bulk->pulse);
		zmq_transport_poll(plane_zmq(bulk->plane), bulk->epoll_fd, timeout_ms);
	}
	pulse_park(&bulk->pulse);
	raise_event(bulk->ended_fd);
	return NULL;
}

/* ---- From the loop's thread ---- */

static int watch(struct bulk *bulk, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(bulk->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int make_descriptors(struct bulk *bulk)
{
	int code = mailbox_new(&bulk->commands);

	if (code == 0)
		code = mailbox_new(&bulk->jobs);
	if (code < 0)
		return code;
	bulk->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	bulk->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	bulk->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (bulk->epoll_fd < 0 || bulk->wake_fd < 0 || bulk->ended_fd < 0)
		return -errno;
	code = watch(bulk, mailbox_fd(bulk->commands));
	if (code == 0)
		code = watch(bulk, mailbox_fd(bulk->jobs));
	if (code == 0)
		code = watch(bulk, bulk->wake_fd);
	return code;
}

static int make_engine(struct bulk *bulk, const struct bulk_config *config)
{
	struct engine_config engine = {
		.rank = (uint32_t)config->config->rank,
		.world_size = config->config->world_size,
		.cluster = config->config->cluster,
		.incarnation = config->incarnation,
		.chunk_bytes = config->config->chunk_bytes,
		.window_bytes = config->config->window_bytes,
		.read_drain_ms = config->config->read_drain_ms,
		.transport = plane_transport(bulk->plane),
		.executor = bulk->executor,
		.report = report,
		.wake = wake,
		.context = bulk,
		.counters = &bulk->counters,
		.link_counters = &bulk->links,
	};
	int code = engine_new(&engine, &bulk->engine);

	if (code == 0)
		plane_listen(bulk->plane, engine_transport_events(), engine_transport_context(bulk->engine));
	return code;
}

int bulk_new(const struct bulk_config *config, struct bulk **ret_bulk)
{
	struct bulk *bulk = calloc(1, sizeof(*bulk));
	int code;

	if (!bulk)
		return -ENOMEM;
	bulk->reports = config->reports;
	bulk->epoll_fd = bulk->wake_fd = bulk->ended_fd = -1;
	bulk->tick_ms = config->config->heartbeat_ms;
	bulk->idle = true;
	pulse_park(&bulk->pulse);
	code = make_descriptors(bulk);
	if (code == 0)
		code = exec_executor_new(config->exec, bulk->jobs, &bulk->executor);
	if (code == 0)
		code = plane_new(config->config, PLANE_BULK, config->fd, &bulk->plane);
	if (code == 0)
		code = make_engine(bulk, config);
	if (code < 0) {
		bulk_free(bulk);
		return code;
	}
	*ret_bulk = bulk;
	return 0;
}

int bulk_start(struct bulk *bulk)
{
	sigset_t all, before;
	int error;

	/* Signals are the loop's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&bulk->thread, NULL, run, bulk);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error != 0)
		return -error;
	bulk->running = true;
	pthread_setname_np(bulk->thread, "fsdpd-engine");
	return 0;
}

void bulk_stop(struct bulk *bulk)
{
	atomic_store(&bulk->stopping, true);
	wake(bulk);
}

int bulk_fd(const struct bulk *bulk)
{
	return bulk->ended_fd;
}

static void close_descriptors(struct bulk *bulk)
{
	const int fds[] = { bulk->epoll_fd, bulk->wake_fd, bulk->ended_fd };

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (fds[i] >= 0)
			close(fds[i]);
	}
}

bool bulk_free(struct bulk *bulk)
{
	struct letter *letter;

	if (!bulk)
		return true;
	if (bulk->running) {
		bulk_stop(bulk);
		pthread_join(bulk->thread, NULL);
	}
	if (!bulk->idle)
		return false;
	if (bulk->engine)
		engine_free(bulk->engine);
	plane_free(bulk->plane);
	while (bulk->commands && (letter = mailbox_take(bulk->commands)))
		command_free((struct command *)letter);
	exec_executor_free(bulk->executor);
	mailbox_free(bulk->commands);
	mailbox_free(bulk->jobs);
	close_descriptors(bulk);
	free(bulk);
	return true;
}

const struct pulse *bulk_pulse(const struct bulk *bulk)
{
	return &bulk->pulse;
}

const struct link_counters *bulk_links(const struct bulk *bulk)
{
	return &bulk->links;
}

const struct engine_counters *bulk_engine(const struct bulk *bulk)
{
	return &bulk->counters;
}
