/* The story of the calling thread's last failure, behind fsdp_last_error. Every failure of a public call passes through
 * here. */
#ifndef FSDP_CLIENT_FAULT_H
#define FSDP_CLIENT_FAULT_H

/* Bytes of a story: a daemon's text and what the library puts before it. */
#define FAULT_TEXT_MAX 2048

/* Remembers the story and returns code. */
int fault_set(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
