/*
 * What wakes a plane: one epoll descriptor over the descriptors of all its ZeroMQ sockets, a doorbell and a timer. A
 * ZeroMQ descriptor tells of commands, not of messages, and any call on its socket may swallow that; so whoever calls
 * one rings the doorbell, and the one descriptor stays readable until everything was looked at.
 */
#ifndef FSDPD_TRANSPORT_WATCH_H
#define FSDPD_TRANSPORT_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct watch {
	int epoll_fd, bell_fd, timer_fd;
	bool rung;
	uint64_t armed_ms; /* 0: not armed */
};

int watch_init(struct watch *watch); /* 0, -errno */
void watch_fini(struct watch *watch);

/* *pending is set by watch_collect when the socket has something; it lives until watch_remove. */
int watch_add(struct watch *watch, void *socket, bool *pending);
void watch_remove(struct watch *watch, void *socket);

void watch_ring(struct watch *watch);                 /* readable at once */
void watch_arm(struct watch *watch, uint64_t due_ms); /* readable at this time of watch_now_ms, 0: never */
void watch_collect(struct watch *watch);              /* silences bell and timer, marks what is pending; never blocks */
uint64_t watch_now_ms(void);

#endif
