/*
 * Runs a fuzz target on every file of a folder, in the order of their names: what was found once stays tested, with any
 * compiler. A file is read into a block of exactly its size, so that a sanitizer sees a read beyond.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

#define INPUT_BYTES_MAX (4l << 20)

static int run_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data = NULL;
	long size = -1;
	int rc = -1;

	if (file && fseek(file, 0, SEEK_END) == 0)
		size = ftell(file);
	if (size >= 0 && size <= INPUT_BYTES_MAX)
		data = malloc(size ? (size_t)size : 1);
	if (data) {
		rewind(file);
		if (fread(data, 1, (size_t)size, file) == (size_t)size)
			rc = LLVMFuzzerTestOneInput(data, (size_t)size);
	}
	if (rc < 0)
		fprintf(stderr, "%s: not run\n", path);
	free(data);
	if (file)
		fclose(file);
	return rc;
}

static int is_input(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
	struct dirent **entries;
	int failed = 0;

	if (argc != 2) {
		fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
		return 2;
	}
	int count = scandir(argv[1], &entries, is_input, alphasort);
	if (count <= 0) {
		fprintf(stderr, "%s: %s\n", argv[1], count < 0 ? strerror(errno) : "no inputs");
		return 1;
	}
	for (int i = 0; i < count; i++) {
		char path[4096];
		snprintf(path, sizeof path, "%s/%s", argv[1], entries[i]->d_name);
		failed |= run_file(path) < 0;
		free(entries[i]);
	}
	free(entries);
	printf("%d inputs\n", count);
	return failed;
}
