/*
 * Listening sockets. Owns an event source; the descriptor belongs to who made it. When descriptors run out it rests
 * until the next tick: a connection that waits keeps the socket readable, and the loop would spin.
 */
#include "daemon/serve/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/runtime/log.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

#define LISTENER_BACKLOG 128
#define LISTENER_BURST 16 /* connections that are accepted before something else gets its turn */

struct listener {
	sd_event_source *source;
	int fd;
	bool resting, stopped;
	void (*accepted)(void *context, int fd);
	void *context;
};

/* Somebody may listen there, or a daemon that was killed left it behind. */
static int remove_stale(const struct sockaddr_un *address)
{
	struct stat status;
	int fd, code = 0;

	if (lstat(address->sun_path, &status) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(status.st_mode))
		return -EEXIST;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno != ECONNREFUSED)
		code = -EADDRINUSE;
	close(fd);
	if (code == 0 && unlink(address->sun_path) < 0 && errno != ENOENT)
		code = -errno;
	return code;
}

int listener_bind(const char *path, mode_t mode, int *ret_fd)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t length = strlen(path);
	mode_t before;
	int fd, code;

	if (length == 0 || length >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, length + 1);
	code = remove_stale(&address);
	if (code < 0)
		return code;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	before = umask(0777 & ~mode);
	code = bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
	umask(before);
	if (code == 0 && listen(fd, LISTENER_BACKLOG) < 0) {
		code = -errno;
		unlink(path);
	}
	if (code < 0) {
		close(fd);
		return code;
	}
	*ret_fd = fd;
	return 0;
}

static int ask_option(int fd, int option, int *ret_value)
{
	socklen_t size = sizeof(*ret_value);

	return getsockopt(fd, SOL_SOCKET, option, ret_value, &size) < 0 ? -errno : 0;
}

int listener_check(int fd)
{
	int domain, type, listening, flags;

	if (ask_option(fd, SO_DOMAIN, &domain) < 0 || ask_option(fd, SO_TYPE, &type) < 0 ||
	    ask_option(fd, SO_ACCEPTCONN, &listening) < 0)
		return -EINVAL;
	if (domain != AF_UNIX || type != SOCK_SEQPACKET || !listening)
		return -EINVAL;
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -EINVAL;
	return 0;
}

static void rest(struct listener *listener, int error)
{
	log_event(LOG_LEVEL_WARNING, "cannot accept a connection", "error=" LOG_QUOTED, strerror(error));
	listener->resting = true;
	sd_event_source_set_enabled(listener->source, SD_EVENT_OFF);
}

static int handle_ready(sd_event_source *source, int fd, uint32_t events, void *context)
{
	struct listener *listener = context;

	(void)source;
	(void)events;
	for (unsigned i = 0; i < LISTENER_BURST; i++) {
		int accepted = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (accepted >= 0) {
			listener->accepted(listener->context, accepted);
			continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (errno != EAGAIN)
			rest(listener, errno);
		break;
	}
	return 0;
}

/* Whoever connects can pass no descriptors: their last reference would be ours, and what the sender made of them (a
 * socket that lingers, a file of a file system of its own) would be waited for when we close it. Connections inherit
 * it. A kernel that does not know it passes them on. */
static void refuse_descriptors(int fd)
{
	const int no = 0;

	(void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));
}

int listener_new(sd_event *event, int fd, void (*accepted)(void *context, int fd), void *context,
		 struct listener **ret_listener)
{
	struct listener *listener = calloc(1, sizeof(*listener));
	int code;

	if (!listener)
		return -ENOMEM;
	listener->fd = fd;
	listener->accepted = accepted;
	listener->context = context;
	refuse_descriptors(fd);
	code = sd_event_add_io(event, &listener->source, fd, EPOLLIN, handle_ready, listener);
	if (code < 0) {
		free(listener);
		return code;
	}
	*ret_listener = listener;
	return 0;
}

void listener_free(struct listener *listener)
{
	if (!listener)
		return;
	sd_event_source_disable_unref(listener->source);
	free(listener);
}

void listener_stop(struct listener *listener)
{
	listener->stopped = true;
	sd_event_source_set_enabled(listener->source, SD_EVENT_OFF);
}

void listener_tick(struct listener *listener)
{
	if (!listener->resting || listener->stopped)
		return;
	listener->resting = false;
	sd_event_source_set_enabled(listener->source, SD_EVENT_ON);
}
