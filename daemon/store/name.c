/*
 * Names: their rules, and open-addressed sets of them, so that a manifest of a million parameters finds a name that
 * is there twice without comparing all pairs. Owns the table of a set, never the names. Pure.
 */
#include "daemon/store/name.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "fsdp/dtype.h"

#define NAME_SET_ROOM_MIN 16u
#define NAME_SET_ROOM_KEPT 256u

/* The code point that begins at text, and its length in ret_length; 0 bytes where it is no UTF-8 (overlong forms,
 * surrogates and what is beyond U+10FFFF are not). The terminating 0 is no continuation byte, so this never reads
 * past it. */
static uint32_t name_decode(const unsigned char *text, unsigned *ret_length)
{
	static const struct {
		unsigned char mask, lead;
		uint32_t least;
	} forms[] = { { 0x80, 0x00, 0 }, { 0xe0, 0xc0, 0x80 }, { 0xf0, 0xe0, 0x800 }, { 0xf8, 0xf0, 0x10000 } };

	*ret_length = 0;
	for (unsigned n = 0; n < sizeof(forms) / sizeof(forms[0]); n++) {
		if ((text[0] & forms[n].mask) != forms[n].lead) {
			continue;
		}
		uint32_t point = text[0] & (unsigned char)~forms[n].mask;
		for (unsigned i = 1; i <= n; i++) {
			if ((text[i] & 0xc0) != 0x80) {
				return 0;
			}
			point = point << 6 | (text[i] & 0x3f);
		}
		if (point < forms[n].least || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) {
			return 0;
		}
		*ret_length = n + 1;
		return point;
	}
	return 0;
}

const char *name_check(const char *name)
{
	size_t length = strnlen(name, FSDP_NAME_MAX + 1);
	if (length == 0) {
		return "the name is empty";
	}
	if (length > FSDP_NAME_MAX) {
		return "the name is too long";
	}
	for (size_t i = 0; i < length;) {
		unsigned bytes;
		uint32_t point = name_decode((const unsigned char *)name + i, &bytes);
		if (bytes == 0) {
			return "the name is not UTF-8";
		}
		if (point < 0x20 || (point >= 0x7f && point < 0xa0)) {
			return "the name has a control character";
		}
		i += bytes;
	}
	return NULL;
}

/* Where name is, or the free entry where it belongs. */
static struct name_entry *name_set_find(const struct name_set *set, const char *name, uint64_t hash)
{
	size_t mask = set->room - 1;
	for (size_t i = hash & mask;; i = (i + 1) & mask) {
		struct name_entry *entry = &set->entries[i];
		if (!entry->name || (entry->hash == hash && strcmp(entry->name, name) == 0)) {
			return entry;
		}
	}
}

static int name_set_grow(struct name_set *set)
{
	struct name_set bigger = { .room = set->room ? set->room * 2 : NAME_SET_ROOM_MIN, .count = set->count };
	bigger.entries = calloc(bigger.room, sizeof(*bigger.entries));
	if (!bigger.entries) {
		return -ENOMEM;
	}
	for (size_t i = 0; i < set->room; i++) {
		const struct name_entry *entry = &set->entries[i];
		if (entry->name) {
			*name_set_find(&bigger, entry->name, entry->hash) = *entry;
		}
	}
	free(set->entries);
	*set = bigger;
	return 0;
}

int name_set_add(struct name_set *set, const char *name)
{
	if (set->count * 2 >= set->room) {
		int code = name_set_grow(set);
		if (code < 0) {
			return code;
		}
	}
	uint64_t hash = XXH3_64bits(name, strlen(name));
	struct name_entry *entry = name_set_find(set, name, hash);
	if (entry->name) {
		return 0;
	}
	*entry = (struct name_entry){ .name = name, .hash = hash };
	set->count++;
	return 1;
}

void name_set_clear(struct name_set *set)
{
	/* A large table is given back: to wipe it for each of many small units that follow one big one would take for
	 * ever. */
	if (set->room > NAME_SET_ROOM_KEPT) {
		name_set_fini(set);
	} else if (set->count > 0) {
		memset(set->entries, 0, set->room * sizeof(*set->entries));
		set->count = 0;
	}
}

void name_set_fini(struct name_set *set)
{
	free(set->entries);
	*set = (struct name_set){ 0 };
}
