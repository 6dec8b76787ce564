/*
 * The daemon's listening sockets: those that whoever started it hands over (a service manager's socket units,
 * fsdp-run), by name, and else its own at the paths of the configuration. Made before any thread starts.
 */
#ifndef FSDPD_SOCKETS_H
#define FSDPD_SOCKETS_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/config.h"

#define SOCKETS_MODE 0660 /* of those that are made here: who may connect is a matter of owner and group */

enum sockets_which {
	SOCKETS_CLIENT,        /* "client": trainers */
	SOCKETS_CONTROL,       /* "control": operators */
	SOCKETS_CONTROL_PLANE, /* "control-plane", a TCP listener */
	SOCKETS_BULK_PLANE,    /* "bulk-plane", another */
	SOCKETS_COUNT
};

struct sockets {
	int fds[SOCKETS_COUNT];           /* -1: not inherited (the planes' are bound by their transports) */
	const char *paths[SOCKETS_COUNT]; /* of what was made here, to be removed at the end; NULL */
	dev_t device[SOCKETS_COUNT];
	ino_t inode[SOCKETS_COUNT];
};

/* 0, or a negative code after saying what is wrong in the log. Borrows config's paths. */
int sockets_init(struct sockets *sockets, const struct config *config);
int sockets_take(struct sockets *sockets,
		 enum sockets_which which); /* gives the descriptor away, -1 if there is none */
void sockets_fini(struct sockets *sockets); /* closes, and removes its own paths */

#endif
