/*
 * What a name of a model, a unit or a parameter may be, and a set of names that are taken. Pure; a set belongs to one
 * thread.
 */
#ifndef FSDPD_STORE_NAME_H
#define FSDPD_STORE_NAME_H

#include <stddef.h>
#include <stdint.h>

/* NULL for a good name, else why it is not one: empty, too long, a control character, not UTF-8. */
const char *name_check(const char *name);

struct name_entry {
	const char *name; /* NULL: free */
	uint64_t hash;
};

/* Zeroed is empty. Names are borrowed: they must live as long as the set. */
struct name_set {
	struct name_entry *entries;
	size_t room; /* 0 or a power of two */
	size_t count;
};

int name_set_add(struct name_set *set, const char *name); /* 1: added, 0: it was there, -ENOMEM */
void name_set_clear(struct name_set *set);
void name_set_fini(struct name_set *set);

#endif
