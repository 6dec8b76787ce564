/* What a name may be: the same rule that the daemon applies, so that a bad name is an error here and not a lost
 * connection. */
#ifndef FSDP_CLIENT_NAME_H
#define FSDP_CLIENT_NAME_H

/* NULL where name is 1 to FSDP_NAME_MAX bytes of UTF-8 without control characters, else why it is not: "is empty". name
 * may be NULL. */
const char *name_reject(const char *name);

#endif
