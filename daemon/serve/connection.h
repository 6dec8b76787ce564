/*
 * One accepted local connection, a worker's or an operator's: receives records, sends records with descriptors, holds
 * back what a slow reader has not taken yet, up to a limit, and tells when the other side is gone. What the records
 * mean is its owner's business. One thread (the loop) owns it.
 */
#ifndef FSDPD_SERVE_CONNECTION_H
#define FSDPD_SERVE_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#define CONNECTION_QUEUE_MAX 1024u            /* records that wait for a reader */
#define CONNECTION_QUEUE_BYTES_MAX (4u << 20) /* bytes of them */

struct connection;

enum connection_end {
	CONNECTION_HANG_UP,   /* the other side closed */
	CONNECTION_DEATH,     /* its process is gone, though a child of it may hold the socket */
	CONNECTION_SLOW,      /* it does not read what it asked for */
	CONNECTION_MALFORMED, /* it sent what is no message */
	CONNECTION_FAULT      /* an error of the system, or memory is out */
};
const char *connection_end_text(enum connection_end end);

struct connection_owner {
	void (*record)(void *context, const void *data, size_t size);
	/* Everything that was sent has been taken. NULL: nobody wants to know. */
	void (*drained)(void *context);
	/* Over; the owner frees the connection, here or later. Called once, from the loop, never from inside a call
	 * below. */
	void (*ended)(void *context, enum connection_end end);
};

/* Takes fd on success. Watches the peer's process too, where it can be seen. 0, -ENOMEM, -EMFILE, ... */
int connection_new(sd_event *event, int fd, const struct connection_owner *owner, void *context,
		   struct connection **ret_connection);
void connection_free(struct connection *connection); /* takes NULL; not from inside record */

/* Sends or queues a record; takes the descriptors whatever happens. A fault ends the connection, a little later. */
void connection_send(struct connection *connection, const void *data, size_t size, const int *fds, size_t fd_count);
bool connection_is_drained(const struct connection *connection);

/* Ends it: nothing is received or sent any more, and `ended` follows. */
void connection_break(struct connection *connection, enum connection_end end);
/* While held, nothing is received. */
void connection_hold(struct connection *connection, bool hold);

pid_t connection_pid(const struct connection *connection); /* 0: not visible from here */
uid_t connection_uid(const struct connection *connection);

#endif
