/*
 * A listening Unix socket of records: made at a path, or inherited. One thread (the loop) owns it.
 */
#ifndef FSDPD_SERVE_LISTENER_H
#define FSDPD_SERVE_LISTENER_H

#include <stddef.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

struct listener;

/* Binds and listens at path (at most 107 bytes). A socket there that nobody listens on is replaced. mode: of the
 * socket's inode. Before any thread starts: the process's umask changes for a moment. 0; -EADDRINUSE: somebody listens
 * there; -EEXIST: what is there is no socket; other -errno. */
int listener_bind(const char *path, mode_t mode, int *ret_fd);

/* 0 where fd is a listening Unix socket of records, else -EINVAL. Sets what accept needs. */
int listener_check(int fd);

/* Tells accepted of every connection (fd is given away; non-blocking, close-on-exec). Borrows fd. */
int listener_new(sd_event *event, int fd, void (*accepted)(void *context, int fd), void *context,
		 struct listener **ret_listener);
void listener_free(struct listener *listener); /* takes NULL; leaves fd open */
void listener_stop(struct listener *listener);
/* Accepts again after descriptors ran out. */
void listener_tick(struct listener *listener);

#endif
