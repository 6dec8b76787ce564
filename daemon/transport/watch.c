/*
 * The epoll set of a plane. Owns three descriptors; borrows those of the sockets. Runs in the plane's thread. It does
 * not know what the sockets are for.
 */
#include "daemon/transport/watch.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <zmq.h>

#define WATCH_EVENTS_AT_ONCE 64

static int watch_add_fd(struct watch *watch, int fd, bool *pending)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = pending };
	return epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

int watch_init(struct watch *watch)
{
	*watch = (struct watch){ .epoll_fd = -1, .bell_fd = -1, .timer_fd = -1 };
	watch->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	watch->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	watch->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	int rc = watch->epoll_fd < 0 || watch->bell_fd < 0 || watch->timer_fd < 0 ? -errno : 0;
	if (rc == 0)
		rc = watch_add_fd(watch, watch->bell_fd, NULL);
	if (rc == 0)
		rc = watch_add_fd(watch, watch->timer_fd, NULL);
	if (rc < 0)
		watch_fini(watch);
	return rc;
}

void watch_fini(struct watch *watch)
{
	int *fds[] = { &watch->timer_fd, &watch->bell_fd, &watch->epoll_fd };
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

static int socket_fd(void *socket)
{
	int fd = -1;
	size_t size = sizeof(fd);
	int rc = zmq_getsockopt(socket, ZMQ_FD, &fd, &size);
	assert(rc == 0);
	return fd;
}

int watch_add(struct watch *watch, void *socket, bool *pending)
{
	int rc = watch_add_fd(watch, socket_fd(socket), pending);
	if (rc < 0)
		return rc;
	/* What came before it was watched has rung nowhere. */
	*pending = true;
	watch_ring(watch);
	return 0;
}

void watch_remove(struct watch *watch, void *socket)
{
	epoll_ctl(watch->epoll_fd, EPOLL_CTL_DEL, socket_fd(socket), NULL);
}

void watch_ring(struct watch *watch)
{
	if (watch->rung)
		return;
	watch->rung = true;
	uint64_t one = 1;
	ssize_t written = write(watch->bell_fd, &one, sizeof(one));
	assert(written == sizeof(one)); /* it was silent: there is room in the counter */
}

uint64_t watch_now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void watch_arm(struct watch *watch, uint64_t due_ms)
{
	if (watch->armed_ms == due_ms)
		return;
	watch->armed_ms = due_ms;
	struct itimerspec spec = { .it_value = { .tv_sec = (time_t)(due_ms / 1000),
						 .tv_nsec = (long)(due_ms % 1000) * 1000000 } };
	int rc = timerfd_settime(watch->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
	assert(rc == 0);
}

void watch_collect(struct watch *watch)
{
	uint64_t ignored;
	if (watch->rung && read(watch->bell_fd, &ignored, sizeof(ignored)) == sizeof(ignored))
		watch->rung = false;
	if (watch->armed_ms && read(watch->timer_fd, &ignored, sizeof(ignored)) == sizeof(ignored))
		watch->armed_ms = 0;

	/* What does not fit in one round stays readable for the next call. */
	struct epoll_event events[WATCH_EVENTS_AT_ONCE];
	int count = epoll_wait(watch->epoll_fd, events, WATCH_EVENTS_AT_ONCE, 0);
	for (int i = 0; i < count; i++) {
		bool *pending = events[i].data.ptr;
		if (pending)
			*pending = true;
	}
}
