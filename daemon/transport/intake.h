/*
 * Messages that never end. ZeroMQ bounds a frame, but not how many make up a message, and keeps all of them until the
 * last one is there: whoever connects, before any HELLO, could fill the memory with one message. So every accepted
 * connection is looked at four times a second: one that took in more than a message may have, and completed none, is to
 * be ended. What it can take in between is bounded by the time, not by a number of bytes. Used by router.c only, in the
 * plane's thread.
 */
#ifndef FSDPD_TRANSPORT_INTAKE_H
#define FSDPD_TRANSPORT_INTAKE_H

#include <stdint.h>
#include <sys/types.h>

struct intake_entry;

struct intake {
	struct intake_entry *entries; /* by descriptor */
	uint32_t room, open;
	uint64_t due_ms;
};

/* The descriptors are ZeroMQ's, and are only looked at. Where memory is out one is not watched. */
void intake_opened(struct intake *intake, int fd);
void intake_closed(struct intake *intake, int fd);
void intake_heard(struct intake *intake, int fd); /* a whole message came on it */

/* Looks, where it is time to; end is called for each that is to be ended. Gives when it is time again; 0: nothing is
 * open. */
uint64_t intake_check(struct intake *intake, uint64_t now_ms, void (*end)(void *context, int fd, ino_t inode),
		      void *context);
void intake_fini(struct intake *intake); /* takes zeroes */

#endif
