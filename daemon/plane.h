/*
 * One plane of this node over ZeroMQ: an I/O context of its own, and the transport on it. Who listens is said after it
 * was made, since listeners (the group, the engine) are made from the transport. Owned by one thread at a time; may be
 * made in another.
 */
#ifndef FSDPD_PLANE_H
#define FSDPD_PLANE_H

#include "daemon/config.h"
#include "daemon/transport/zmq.h"

struct plane;

enum plane_kind { PLANE_CONTROL, PLANE_BULK };

/* fd: an inherited listening socket, or -1; taken on success. 0, -EADDRINUSE, -ENOMEM, -EMFILE, other -errno. */
int plane_new(const struct config *config, enum plane_kind kind, int fd, struct plane **ret_plane);
void plane_free(struct plane *plane); /* the listener is gone already; takes NULL */

void plane_listen(struct plane *plane, const struct transport_events *events, void *context);

struct zmq_transport *plane_zmq(struct plane *plane);
struct transport *plane_transport(struct plane *plane);

/* Where a rank of the configuration listens, without the scheme. */
const char *plane_endpoint(const struct config *config, enum plane_kind kind, uint32_t rank);

#endif
