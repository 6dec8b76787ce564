/*
 * A private cluster on this machine: a folder that only we may enter, and in it, for every rank, a configuration and
 * two Unix sockets; and for every rank two TCP listeners on loopback ports that the kernel chose. All of them are
 * opened here and handed to the daemons, so no port can be lost between being chosen and being used, and a trainer that
 * connects before its daemon is up waits in the socket's queue.
 */
#ifndef FSDP_RUN_CLUSTER_H
#define FSDP_RUN_CLUSTER_H

#define CLUSTER_NODES_MAX 256
#define CLUSTER_SETTINGS_MAX 64

struct cluster_node {
	char config[4200];
	char client[4200];  /* path of the worker socket */
	char control[4200]; /* path of the control socket */
	int fds[4];         /* listeners, in the order of CLUSTER_FD_NAMES */
};

#define CLUSTER_FD_NAMES "client:control:control-plane:bulk-plane"

struct cluster {
	char folder[4096];
	unsigned nodes;
	struct cluster_node node[CLUSTER_NODES_MAX];
};

/* Makes all of it. settings: "section.key=value", written into every configuration. 0, or -errno after a message on
 * stderr; cluster_remove cleans up in either case. */
int cluster_make(struct cluster *cluster, unsigned nodes, const char *log_level, char *const *settings, unsigned count);
void cluster_close_fds(struct cluster *cluster, unsigned node); /* once its daemon has them */
void cluster_remove(struct cluster *cluster);                   /* closes and deletes everything */

#endif
