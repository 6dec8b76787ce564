/*
 * The folder, the sockets and the configurations of a private cluster. Runs in fsdp-run's only thread; starts nothing.
 */
#include "client/run/cluster.h"

#include <errno.h>
#include <ftw.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int complain(const char *what, const char *name)
{
	int code = errno ? -errno : -EIO;
	fprintf(stderr, "fsdp-run: %s %s: %s\n", what, name, strerror(-code));
	return code;
}

static int listen_unix(const char *path, int *ret_fd)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof(address.sun_path)) {
		errno = ENAMETOOLONG;
		return complain("cannot make the socket", path);
	}
	strcpy(address.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return complain("cannot make the socket", path);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 64) < 0) {
		int code = complain("cannot listen on", path);
		close(fd);
		return code;
	}
	*ret_fd = fd;
	return 0;
}

static int listen_loopback(int *ret_fd, unsigned *ret_port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return complain("cannot make", "a loopback socket");
	if (bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, 256) < 0 ||
	    getsockname(fd, (struct sockaddr *)&address, &size) < 0) {
		int code = complain("cannot listen on", "127.0.0.1");
		close(fd);
		return code;
	}
	*ret_fd = fd;
	*ret_port = ntohs(address.sin_port);
	return 0;
}

static int make_folder(struct cluster *cluster)
{
	const char *base = getenv("XDG_RUNTIME_DIR");
	/* A Unix socket's path has 107 bytes at most, so a long TMPDIR is of no use. */
	if (!base || !*base || strlen(base) > 40 || access(base, W_OK) != 0)
		base = "/tmp";
	snprintf(cluster->folder, sizeof(cluster->folder), "%s/fsdp-run.XXXXXX", base);
	if (!mkdtemp(cluster->folder)) {
		int code = complain("cannot make the folder", cluster->folder);
		cluster->folder[0] = '\0';
		return code;
	}
	return 0;
}

static int make_node(struct cluster *cluster, unsigned rank, unsigned *ports)
{
	struct cluster_node *node = &cluster->node[rank];
	char folder[4160];
	snprintf(folder, sizeof(folder), "%s/%u", cluster->folder, rank);
	if (mkdir(folder, 0700) < 0)
		return complain("cannot make the folder", folder);
	snprintf(node->config, sizeof(node->config), "%s/fsdpd.conf", folder);
	snprintf(node->client, sizeof(node->client), "%s/client.sock", folder);
	snprintf(node->control, sizeof(node->control), "%s/control.sock", folder);
	int code = listen_unix(node->client, &node->fds[0]);
	if (code == 0)
		code = listen_unix(node->control, &node->fds[1]);
	for (int plane = 0; plane < 2 && code == 0; plane++)
		code = listen_loopback(&node->fds[2 + plane], &ports[plane]);
	return code;
}

/* The settings of one section; asked once for every section, so that each appears once in the file. */
static void write_settings(FILE *file, const char *section, char *const *settings, unsigned count)
{
	size_t length = strlen(section);
	for (unsigned i = 0; i < count; i++)
		if (strncmp(settings[i], section, length) == 0 && settings[i][length] == '.')
			fprintf(file, "%s\n", settings[i] + length + 1);
}

static int write_config(const struct cluster *cluster, unsigned rank, unsigned (*ports)[2], const char *log_level,
			char *const *settings, unsigned count)
{
	const struct cluster_node *node = &cluster->node[rank];
	FILE *file = fopen(node->config, "wxe");
	if (!file)
		return complain("cannot write", node->config);
	fprintf(file, "[group]\ncluster = fsdp-run\nrank = %u\n", rank);
	write_settings(file, "group", settings, count);
	fprintf(file, "[peers]\n");
	for (unsigned i = 0; i < cluster->nodes; i++)
		fprintf(file, "%u = 127.0.0.1:%u 127.0.0.1:%u\n", i, ports[i][0], ports[i][1]);
	fprintf(file, "[sockets]\nclient = %s\ncontrol = %s\n", node->client, node->control);
	static const char *const sections[] = { "deadlines", "memory", "threads" };
	for (unsigned i = 0; i < sizeof(sections) / sizeof(*sections); i++) {
		fprintf(file, "[%s]\n", sections[i]);
		write_settings(file, sections[i], settings, count);
	}
	fprintf(file, "[log]\nlevel = %s\n", log_level);
	int failed = ferror(file);
	if (fclose(file) != 0 || failed)
		return complain("cannot write", node->config);
	return 0;
}

int cluster_make(struct cluster *cluster, unsigned nodes, const char *log_level, char *const *settings, unsigned count)
{
	unsigned ports[CLUSTER_NODES_MAX][2];
	cluster->folder[0] = '\0';
	cluster->nodes = nodes;
	for (unsigned i = 0; i < nodes; i++)
		for (int k = 0; k < 4; k++)
			cluster->node[i].fds[k] = -1;
	int code = make_folder(cluster);
	for (unsigned i = 0; i < nodes && code == 0; i++)
		code = make_node(cluster, i, ports[i]);
	for (unsigned i = 0; i < nodes && code == 0; i++)
		code = write_config(cluster, i, ports, log_level, settings, count);
	return code;
}

void cluster_close_fds(struct cluster *cluster, unsigned node)
{
	for (int k = 0; k < 4; k++) {
		if (cluster->node[node].fds[k] >= 0)
			close(cluster->node[node].fds[k]);
		cluster->node[node].fds[k] = -1;
	}
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	(void)place;
	return remove(path);
}

void cluster_remove(struct cluster *cluster)
{
	for (unsigned i = 0; i < cluster->nodes; i++)
		cluster_close_fds(cluster, i);
	if (cluster->folder[0])
		nftw(cluster->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	cluster->folder[0] = '\0';
}
