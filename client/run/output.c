/*
 * Prefixes and passes on lines. Runs in fsdp-run's only thread; never blocks on reading.
 */
#include "client/run/output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void output_init(struct output *output, int from, int to, const char *name)
{
	output->from = from;
	output->to = to;
	output->held = 0;
	snprintf(output->name, sizeof(output->name), "[%s] ", name);
}

static void write_whole(int fd, const char *data, size_t size)
{
	while (size > 0) {
		ssize_t done = write(fd, data, size);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return; /* nobody reads us: the trainers go on all the same */
		data += done;
		size -= (size_t)done;
	}
}

static void write_line(struct output *output, const char *line, size_t size)
{
	char text[sizeof(output->name) + OUTPUT_LINE_MAX + 1];
	size_t prefix = strlen(output->name);
	memcpy(text, output->name, prefix);
	memcpy(text + prefix, line, size);
	size += prefix;
	if (text[size - 1] != '\n' && text[size - 1] != '\r')
		text[size++] = '\n';
	write_whole(output->to, text, size);
}

static void write_lines(struct output *output)
{
	size_t begin = 0;
	for (size_t i = 0; i < output->held; i++) {
		if (output->line[i] != '\n' && output->line[i] != '\r')
			continue;
		write_line(output, output->line + begin, i + 1 - begin);
		begin = i + 1;
	}
	if (begin == 0 && output->held == OUTPUT_LINE_MAX) {
		write_line(output, output->line, output->held);
		begin = output->held;
	}
	memmove(output->line, output->line + begin, output->held - begin);
	output->held -= begin;
}

void output_pump(struct output *output)
{
	while (output->from >= 0) {
		ssize_t size = read(output->from, output->line + output->held, OUTPUT_LINE_MAX - output->held);
		if (size < 0 && errno == EINTR)
			continue;
		if (size < 0 && errno == EAGAIN)
			return;
		if (size <= 0) {
			if (output->held > 0)
				write_line(output, output->line, output->held);
			close(output->from);
			output->from = -1;
			return;
		}
		output->held += (size_t)size;
		write_lines(output);
	}
}
