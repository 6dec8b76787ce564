/*
 * Writes the seeds of the message targets: one file an op, into FOLDER/<target>/. Run it after a change of a
 * .proto file, and commit what it wrote; its output depends on nothing but the code.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/frame.h"
#include "tests/unit/proto/sample.h"

static const char *root;

static void put(const char *target, const char *name, const void *data, size_t size)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof path, "%s/%s", root, target);
	if (mkdir(path, 0777) < 0 && errno != EEXIST) {
		perror(path);
		exit(1);
	}
	snprintf(path, sizeof path, "%s/%s/%s", root, target, name);
	file = fopen(path, "wb");
	if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) {
		perror(path);
		exit(1);
	}
}

static void put_peer(const char *name, const struct peer_message *message)
{
	void *data;
	size_t size;

	if (peer_message_write(message, &data, &size) < 0)
		abort();
	put("peer_message", name, data, size);
	free(data);
}

static void put_local(const char *target, int op, const void *data, long size)
{
	char name[32];

	if (size < 0)
		abort();
	snprintf(name, sizeof name, "op-%d", op);
	put(target, name, data, (size_t)size);
}

int main(int argc, char **argv)
{
	static uint8_t frame[FRAME_BYTES_MAX];

	if (argc != 2) {
		fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
		return 2;
	}
	root = argv[1];
	for (const enum peer_op *op = sample_peer_ops; *op; op++) {
		struct peer_message message = sample_peer(*op);
		put_peer(peer_op_name(*op), &message);
	}
	struct peer_message chunk = sample_peer_chunk();
	put_peer("chunk-bare", &chunk);
	for (int op = 1; op <= SAMPLE_WORKER_OP_LAST; op++) {
		struct worker_message message = sample_worker((enum worker_op)op);
		put_local("worker_message", op, frame, worker_message_write(&message, frame));
	}
	for (int op = 1; op <= SAMPLE_CONTROL_OP_LAST; op++) {
		struct control_message message = sample_control((enum control_op)op);
		put_local("control_message", op, frame, control_message_write(&message, frame));
	}
	return 0;
}
