/*
 * Wherever memory runs out, the codecs say so, leak nothing and leave the output alone. The linker puts the functions
 * below in the place of malloc and calloc.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#include "proto/frame.h"
#include "tests/unit/proto/sample.h"

#define NEVER SIZE_MAX
#define TRIES_MAX 1000

static size_t left = NEVER; /* allocations that succeed */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);

static bool granted(void)
{
	if (left == NEVER)
		return true;
	if (left == 0)
		return false;
	left--;
	return true;
}
void *__wrap_malloc(size_t size)
{
	return granted() ? __real_malloc(size) : NULL;
}
void *__wrap_calloc(size_t count, size_t size)
{
	return granted() ? __real_calloc(count, size) : NULL;
}

static uint8_t frame[FRAME_BYTES_MAX];

/* Runs what with 0, 1, 2, ... allocations until it succeeds; returns how often it failed. */
static size_t failures(int (*what)(void))
{
	for (size_t i = 0; i < TRIES_MAX; i++) {
		left = i;
		int rc = what();
		left = NEVER;
		if (rc == 0)
			return i;
		cr_assert_eq(rc, -ENOMEM, "%zu allocations gave %d", i, rc);
	}
	cr_assert_fail("it never succeeds");
	return 0;
}

static void *peer_data;
static size_t peer_size;
static int peer_write(void)
{
	struct peer_message message = sample_peer(PEER_DECISION);
	return peer_message_write(&message, &peer_data, &peer_size);
}
static int peer_read(void)
{
	struct peer_message message = { .unit = 12345 };
	int rc = peer_message_read(peer_data, peer_size, &message);
	if (rc == 0)
		peer_message_fini(&message);
	else
		cr_assert_eq(message.unit, 12345);
	return rc;
}

Test(no_memory, a_peer_message_is_not_written_or_not_read)
{
	/* Three lists of rows and the block itself. */
	cr_assert_eq(failures(peer_write), 4);
	cr_assert_geq(failures(peer_read), 10);
	free(peer_data);
}

static long local_size;
static int worker_write(void)
{
	struct worker_message message = sample_worker(WORKER_UNIT);
	local_size = worker_message_write(&message, frame);
	return local_size < 0 ? (int)local_size : 0;
}
static int worker_read(void)
{
	struct worker_message message = { .unit = 12345 };
	int rc = worker_message_read(frame, (size_t)local_size, &message);
	if (rc == 0)
		worker_message_fini(&message);
	else
		cr_assert_eq(message.unit, 12345);
	return rc;
}

Test(no_memory, a_worker_message_is_not_written_or_not_read)
{
	cr_assert_eq(failures(worker_write), 3);
	cr_assert_geq(failures(worker_read), 10);
}

static int control_write(void)
{
	struct control_message message = sample_control(CONTROL_STATUS);
	local_size = control_message_write(&message, frame);
	return local_size < 0 ? (int)local_size : 0;
}
static int control_read(void)
{
	struct control_message message = { .protocol = 12345 };
	int rc = control_message_read(frame, (size_t)local_size, &message);
	if (rc == 0)
		control_message_fini(&message);
	else
		cr_assert_eq(message.protocol, 12345);
	return rc;
}

Test(no_memory, a_control_message_is_not_written_or_not_read)
{
	cr_assert_eq(failures(control_write), 5);
	cr_assert_geq(failures(control_read), 20);
}
