/*
 * What connections take in, by the kernel's count of bytes received less what nobody has read yet. A descriptor may be
 * closed and be another's by the time it is looked at: then the numbers are another's too, which the inode tells
 * whoever ends it. Owns a table, indexed by descriptor.
 */
#include "daemon/transport/intake.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "proto/peer_message.h"

#define INTAKE_PERIOD_MS 250
#define INTAKE_SUSPICION_MS 50 /* where somebody is suspected */
#define INTAKE_FDS_MAX 65536u  /* descriptors above are not watched */
/* The longest message, and as much again for what is read but not in frames yet. */
#define INTAKE_BYTES_MAX (2u * (PEER_HEADER_MAX + PEER_PAYLOAD_MAX))
#define INTAKE_SUSPICIONS_MAX 3 /* a busy thread hears late what is complete */

struct intake_entry {
	bool open, heard;
	uint8_t suspicions; /* in a row */
	ino_t inode;
	uint64_t bytes; /* taken in when the last message was heard */
};

static struct intake_entry *entry_of(const struct intake *intake, int fd)
{
	return fd >= 0 && (uint32_t)fd < intake->room ? &intake->entries[fd] : NULL;
}

static bool make_room(struct intake *intake, uint32_t fd)
{
	uint32_t room = intake->room ? intake->room : 64;

	while (room <= fd)
		room *= 2;
	if (room == intake->room)
		return true;
	struct intake_entry *entries = realloc(intake->entries, room * sizeof(*entries));
	if (!entries)
		return false;
	memset(entries + intake->room, 0, (room - intake->room) * sizeof(*entries));
	intake->entries = entries;
	intake->room = room;
	return true;
}

void intake_opened(struct intake *intake, int fd)
{
	struct stat status;

	if (fd < 0 || (uint32_t)fd >= INTAKE_FDS_MAX || fstat(fd, &status) != 0 || !make_room(intake, (uint32_t)fd))
		return;
	struct intake_entry *entry = &intake->entries[fd];
	intake->open += !entry->open;
	*entry = (struct intake_entry){ .open = true, .inode = status.st_ino };
}

void intake_closed(struct intake *intake, int fd)
{
	struct intake_entry *entry = entry_of(intake, fd);

	if (!entry || !entry->open)
		return;
	entry->open = false;
	intake->open--;
}

void intake_heard(struct intake *intake, int fd)
{
	struct intake_entry *entry = entry_of(intake, fd);

	if (entry)
		entry->heard = true;
}

/* Bytes that were read from the socket; false where it is not known. */
static bool taken_in(int fd, uint64_t *ret_bytes)
{
	struct tcp_info info = { 0 };
	socklen_t size = sizeof(info);
	int unread = 0;

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
	    size < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received) ||
	    ioctl(fd, SIOCINQ, &unread) != 0)
		return false;
	uint64_t received = info.tcpi_bytes_received, waiting = unread > 0 ? (uint64_t)unread : 0;
	*ret_bytes = received > waiting ? received - waiting : 0;
	return true;
}

/* True: it is to be ended. */
static bool look_at(struct intake_entry *entry, int fd)
{
	uint64_t bytes;

	if (!taken_in(fd, &bytes))
		return false;
	if (entry->heard || bytes < entry->bytes) {
		entry->heard = false;
		entry->bytes = bytes;
	}
	entry->suspicions = bytes - entry->bytes > INTAKE_BYTES_MAX ? (uint8_t)(entry->suspicions + 1) : 0;
	return entry->suspicions >= INTAKE_SUSPICIONS_MAX;
}

uint64_t intake_check(struct intake *intake, uint64_t now_ms, void (*end)(void *context, int fd, ino_t inode),
		      void *context)
{
	if (intake->open == 0)
		return 0;
	if (now_ms < intake->due_ms)
		return intake->due_ms;
	intake->due_ms = now_ms + INTAKE_PERIOD_MS;
	for (uint32_t fd = 0; fd < intake->room; fd++) {
		struct intake_entry *entry = &intake->entries[fd];
		if (!entry->open)
			continue;
		bool is_over = look_at(entry, (int)fd);
		if (entry->suspicions > 0)
			intake->due_ms = now_ms + INTAKE_SUSPICION_MS;
		if (!is_over)
			continue;
		entry->suspicions = 0;
		end(context, (int)fd, entry->inode);
	}
	return intake->due_ms;
}

void intake_fini(struct intake *intake)
{
	free(intake->entries);
	*intake = (struct intake){ 0 };
}
