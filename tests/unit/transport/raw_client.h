/*
 * A client that speaks ZMTP 3.0 by hand, or anything else: for what no library would send. Blocking, with a deadline.
 */
#ifndef FSDPD_TESTS_RAW_CLIENT_H
#define FSDPD_TESTS_RAW_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Connects and shakes hands as a DEALER of this identity ("": none, as ours do). -1: it failed. */
int raw_client_greet(uint16_t port, const char *identity);
bool raw_client_send(int fd, const void *data, size_t size);
/* One frame; its size may be claimed to be another than what follows. */
bool raw_client_send_frame(int fd, bool more, uint64_t claimed_size, const void *data, size_t size);

bool raw_client_is_ended(int fd); /* by the other side; never waits; reads what is there */

size_t raw_client_count_fds(void); /* of this process */

#endif
