/*
 * The lines of a configuration file: sections, `key = value`, comments that begin with # or ;. Knows nothing of what
 * the keys mean. Lines may end with CR LF. Owns nothing, runs before any thread starts.
 */
#include "daemon/config_draft.h"

#include <string.h>

#include "daemon/config_value.h"

static char *trim(char *text)
{
	size_t length;

	text += strspn(text, " \t");
	length = strlen(text);
	while (length > 0 && strchr(" \t\r", text[length - 1]))
		text[--length] = '\0';
	return text;
}

static int open_section(struct config_draft *draft, unsigned line, char *text)
{
	size_t length = strlen(text), count;
	const char *const *sections = config_draft_sections(&count);
	const char *nearest;
	int section;

	if (text[length - 1] != ']') {
		config_draft_error(draft, line, "a section's name ends with ]: expected `[NAME]`, got `%s`", text);
		return -1;
	}
	text[length - 1] = '\0';
	text = trim(text + 1);
	section = config_draft_section(text);
	if (section >= 0) {
		if (draft->section_lines[section] == 0)
			draft->section_lines[section] = line;
		return section;
	}
	nearest = config_value_nearest(text, sections, count);
	config_draft_error(draft, line,
			   "unknown section [%s]%s%s%s; expected [group], [peers], [sockets], [deadlines], "
			   "[memory], [threads] or [log]",
			   text, nearest ? ": did you mean [" : "", nearest ? nearest : "", nearest ? "]?" : "");
	return -1;
}

/* section is -1 before the first one; -2 within one that is not known, whose keys say nothing new. */
static void read_line(struct config_draft *draft, unsigned line, char *text, int *section)
{
	char *equals;

	text = trim(text);
	if (!*text || *text == '#' || *text == ';')
		return;
	if (*text == '[') {
		*section = open_section(draft, line, text);
		if (*section < 0)
			*section = -2;
		return;
	}
	equals = strchr(text, '=');
	if (!equals) {
		config_draft_error(draft, line, "expected `key = value` or `[section]`, got `%.64s`", text);
		return;
	}
	*equals = '\0';
	if (*section == -2)
		return;
	if (*section == -1) {
		config_draft_error(draft, line,
				   "`%.64s` stands before the first section: expected `[section]` above it",
				   trim(text));
		return;
	}
	config_draft_set(draft, *section, line, trim(text), trim(equals + 1));
}

void config_draft_read_lines(struct config_draft *draft, const char *data, size_t size)
{
	static const char mark[] = "\xef\xbb\xbf"; /* some editors begin a file with it */
	char text[CONFIG_LINE_MAX + 1];
	int section = -1;
	unsigned line = 0;
	size_t at = 0;

	if (size >= 3 && memcmp(data, mark, 3) == 0)
		at = 3;
	while (at < size) {
		const char *end = memchr(data + at, '\n', size - at);
		size_t length = end ? (size_t)(end - data) - at : size - at;

		draft->last_line = ++line;
		if (length > CONFIG_LINE_MAX) {
			config_draft_error(draft, line, "the line has %zu bytes: expected at most %u", length,
					   CONFIG_LINE_MAX);
		} else if (memchr(data + at, '\0', length)) {
			config_draft_error(draft, line, "the line contains a NUL byte: expected text");
		} else {
			memcpy(text, data + at, length);
			text[length] = '\0';
			read_line(draft, line, text, &section);
		}
		at += length + 1;
	}
}
