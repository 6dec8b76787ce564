/*
 * Connections. Owns the socket, the pidfd of the process that made it, their event sources, and the queue of records
 * that wait. A forked child (a data loader, say) keeps a dead worker's socket open, so the pidfd is what tells of its
 * death; hang-up is what is left where the process is not visible (another pid namespace).
 *
 * Nothing ends inside a call: connection_break only arms a source that tells the owner when the loop comes round, so
 * that an owner may send from anywhere without being freed under its own feet.
 */
#include "daemon/serve/connection.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/frame.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define CONNECTION_BURST 32 /* records that are heard before something else gets its turn */

struct queued {
	STAILQ_ENTRY(queued) link;
	int fds[FRAME_FDS_MAX];
	size_t fd_count;
	size_t size;
	unsigned char data[];
};

struct connection {
	int fd, pidfd;
	pid_t pid;
	uid_t uid;
	sd_event_source *io, *death, *ending;
	bool held, broken;
	enum connection_end end;
	STAILQ_HEAD(, queued) queue;
	size_t queued, queued_bytes;
	const struct connection_owner *owner;
	void *context;
};

const char *connection_end_text(enum connection_end end)
{
	switch (end) {
	case CONNECTION_HANG_UP:
		return "it closed the connection";
	case CONNECTION_DEATH:
		return "its process is gone";
	case CONNECTION_SLOW:
		return "it does not read its answers";
	case CONNECTION_MALFORMED:
		return "it sent what is not a message";
	case CONNECTION_FAULT:
		return "an error of the system";
	}
	return "";
}

static void close_all(const int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
}

static void watch_events(struct connection *connection)
{
	uint32_t events = 0;

	if (!connection->held)
		events |= EPOLLIN;
	if (!STAILQ_EMPTY(&connection->queue))
		events |= EPOLLOUT;
	sd_event_source_set_io_events(connection->io, events);
}

void connection_break(struct connection *connection, enum connection_end end)
{
	if (connection->broken)
		return;
	connection->broken = true;
	connection->end = end;
	sd_event_source_set_enabled(connection->io, SD_EVENT_OFF);
	if (connection->death)
		sd_event_source_set_enabled(connection->death, SD_EVENT_OFF);
	sd_event_source_set_enabled(connection->ending, SD_EVENT_ONESHOT);
}

static int handle_ending(sd_event_source *source, void *context)
{
	struct connection *connection = context;

	(void)source;
	connection->owner->ended(connection->context, connection->end);
	return 0;
}

static void pop_queued(struct connection *connection)
{
	struct queued *first = STAILQ_FIRST(&connection->queue);

	STAILQ_REMOVE_HEAD(&connection->queue, link);
	connection->queued--;
	connection->queued_bytes -= first->size;
	close_all(first->fds, first->fd_count);
	free(first);
}

static void flush(struct connection *connection)
{
	while (!STAILQ_EMPTY(&connection->queue)) {
		const struct queued *first = STAILQ_FIRST(&connection->queue);
		int code = frame_send(connection->fd, first->data, first->size, first->fds, first->fd_count);

		if (code == -EAGAIN)
			return;
		if (code < 0) {
			connection_break(connection, code == -EPIPE ? CONNECTION_HANG_UP : CONNECTION_FAULT);
			return;
		}
		pop_queued(connection);
	}
	watch_events(connection);
	if (connection->owner->drained)
		connection->owner->drained(connection->context);
}

static void receive(struct connection *connection)
{
	unsigned char data[FRAME_BYTES_MAX];
	int fds[FRAME_FDS_MAX];

	for (unsigned i = 0; i < CONNECTION_BURST && !connection->broken && !connection->held; i++) {
		size_t fd_count = 0;
		long size = frame_receive(connection->fd, data, fds, &fd_count);

		if (size == -EAGAIN)
			return;
		if (size == 0) {
			connection_break(connection, CONNECTION_HANG_UP);
			return;
		}
		if (size < 0) {
			connection_break(connection, size == -EMSGSIZE ? CONNECTION_MALFORMED : CONNECTION_FAULT);
			return;
		}
		/* Nobody has a reason to give us descriptors (listener.c: the kernel refuses them where it can). */
		frame_discard(fds, fd_count);
		if (fd_count > 0)
			connection_break(connection, CONNECTION_MALFORMED);
		else
			connection->owner->record(connection->context, data, (size_t)size);
	}
}

/* What a process said before it died is heard; what a child of it says afterwards is not. */
static int handle_death(sd_event_source *source, int fd, uint32_t events, void *context)
{
	(void)source;
	(void)fd;
	(void)events;
	receive(context);
	connection_break(context, CONNECTION_DEATH);
	return 0;
}

static int handle_io(sd_event_source *source, int fd, uint32_t events, void *context)
{
	struct connection *connection = context;

	(void)source;
	(void)fd;
	if (events & EPOLLOUT)
		flush(connection);
	if (events & EPOLLIN)
		receive(connection);
	else if (events & (EPOLLHUP | EPOLLERR))
		connection_break(connection, CONNECTION_HANG_UP);
	return 0;
}

/* The process at the other end. 0; -ESRCH: it is gone already. */
static int find_process(struct connection *connection)
{
	struct ucred credentials;
	socklen_t size = sizeof(credentials);
	int pidfd;

	if (getsockopt(connection->fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
		return -errno;
	connection->pid = credentials.pid;
	connection->uid = credentials.uid;
	if (credentials.pid <= 0)
		return 0;
	size = sizeof(pidfd);
	if (getsockopt(connection->fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0) {
		connection->pidfd = pidfd;
		return 0;
	}
	connection->pidfd = (int)syscall(SYS_pidfd_open, credentials.pid, 0);
	if (connection->pidfd >= 0)
		return 0;
	/* ENOSYS or EPERM (a sandbox): hang-up has to do. */
	return errno == ESRCH || errno == EMFILE || errno == ENFILE || errno == ENOMEM ? -errno : 0;
}

static int add_sources(struct connection *connection, sd_event *event)
{
	int code = sd_event_add_io(event, &connection->io, connection->fd, EPOLLIN, handle_io, connection);

	if (code >= 0 && connection->pidfd >= 0)
		code = sd_event_add_io(event, &connection->death, connection->pidfd, EPOLLIN, handle_death, connection);
	if (code >= 0)
		code = sd_event_add_defer(event, &connection->ending, handle_ending, connection);
	if (code >= 0)
		code = sd_event_source_set_enabled(connection->ending, SD_EVENT_OFF);
	return code < 0 ? code : 0;
}

int connection_new(sd_event *event, int fd, const struct connection_owner *owner, void *context,
		   struct connection **ret_connection)
{
	struct connection *connection = calloc(1, sizeof(*connection));
	int code;

	if (!connection)
		return -ENOMEM;
	connection->fd = fd;
	connection->pidfd = -1;
	connection->owner = owner;
	connection->context = context;
	STAILQ_INIT(&connection->queue);
	code = find_process(connection);
	if (code == 0)
		code = add_sources(connection, event);
	if (code < 0) {
		connection->fd = -1; /* the caller keeps it */
		connection_free(connection);
		return code;
	}
	*ret_connection = connection;
	return 0;
}

void connection_free(struct connection *connection)
{
	if (!connection)
		return;
	while (!STAILQ_EMPTY(&connection->queue))
		pop_queued(connection);
	sd_event_source_disable_unref(connection->io);
	sd_event_source_disable_unref(connection->death);
	sd_event_source_disable_unref(connection->ending);
	if (connection->pidfd >= 0)
		close(connection->pidfd);
	if (connection->fd >= 0)
		close(connection->fd);
	free(connection);
}

static void enqueue(struct connection *connection, const void *data, size_t size, const int *fds, size_t fd_count)
{
	struct queued *queued;

	if (connection->queued == CONNECTION_QUEUE_MAX ||
	    connection->queued_bytes + size > CONNECTION_QUEUE_BYTES_MAX) {
		close_all(fds, fd_count);
		connection_break(connection, CONNECTION_SLOW);
		return;
	}
	queued = malloc(sizeof(*queued) + size);
	if (!queued) {
		close_all(fds, fd_count);
		connection_break(connection, CONNECTION_FAULT);
		return;
	}
	queued->size = size;
	queued->fd_count = fd_count;
	memcpy(queued->data, data, size);
	if (fd_count > 0)
		memcpy(queued->fds, fds, fd_count * sizeof(*fds));
	STAILQ_INSERT_TAIL(&connection->queue, queued, link);
	connection->queued++;
	connection->queued_bytes += size;
	watch_events(connection);
}

void connection_send(struct connection *connection, const void *data, size_t size, const int *fds, size_t fd_count)
{
	int code = -EAGAIN;

	assert(fd_count <= FRAME_FDS_MAX);
	if (connection->broken) {
		close_all(fds, fd_count);
		return;
	}
	if (STAILQ_EMPTY(&connection->queue))
		code = frame_send(connection->fd, data, size, fds, fd_count);
	if (code == -EAGAIN) {
		enqueue(connection, data, size, fds, fd_count);
		return;
	}
	close_all(fds, fd_count);
	if (code < 0)
		connection_break(connection, code == -EPIPE ? CONNECTION_HANG_UP : CONNECTION_FAULT);
}

bool connection_is_drained(const struct connection *connection)
{
	return STAILQ_EMPTY(&connection->queue);
}

void connection_hold(struct connection *connection, bool hold)
{
	if (connection->held == hold || connection->broken)
		return;
	connection->held = hold;
	watch_events(connection);
}

pid_t connection_pid(const struct connection *connection)
{
	return connection->pid;
}

uid_t connection_uid(const struct connection *connection)
{
	return connection->uid;
}
