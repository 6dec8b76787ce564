/*
 * Arenas. Owns a mapping and its memfd. Everything about the memory is settled here, when the arena is made: size
 * sealed, mode 0600, pages present. Afterwards nobody who has a descriptor can make a page go away, so no access can
 * raise SIGBUS. Any thread that may block. It does not know what lies in it.
 */
#include "daemon/store/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARENA_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* What the kernel thinks it can give without swapping. A memfd is charged page by page and never refused as a whole,
 * so without this look an arena that cannot fit would end in the out-of-memory killer instead of an error. */
static uint64_t arena_memory_available(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	if (!file) {
		return UINT64_MAX;
	}
	uint64_t available = UINT64_MAX;
	char line[128];
	while (fgets(line, sizeof(line), file)) {
		uint64_t kib;
		if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1) {
			available = kib * 1024;
			break;
		}
	}
	fclose(file);
	return available;
}

static int arena_allocate(int fd, uint64_t bytes)
{
	if (fchmod(fd, 0600) < 0 || ftruncate(fd, (off_t)bytes) < 0) {
		return -errno;
	}
	int result;
	do {
		result = fallocate(fd, 0, 0, (off_t)bytes);
	} while (result < 0 && errno == EINTR);
	if (result < 0) {
		return errno == ENOSPC ? -ENOMEM : -errno; /* a memfd's space is memory */
	}
	return fcntl(fd, F_ADD_SEALS, ARENA_SEALS) < 0 ? -errno : 0;
}

/* What every arena has, however it was made. A core dump of a daemon must not hold the model. */
static int arena_map(struct arena *arena, uint64_t bytes, int flags, int fd)
{
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, fd, 0);
	if (base == MAP_FAILED) {
		return -errno;
	}
	if (madvise(base, bytes, MADV_DONTDUMP) < 0) {
		int code = -errno;
		munmap(base, bytes);
		return code;
	}
	*arena = (struct arena){ .base = base, .bytes = bytes, .fd = fd };
	return 0;
}

static int arena_check(struct arena *arena, uint64_t bytes)
{
	*arena = (struct arena){ .fd = -1 };
	return bytes > (uint64_t)INT64_MAX || (bytes > 0 && bytes > arena_memory_available()) ? -ENOMEM : 0;
}

int arena_init(struct arena *arena, const char *name, uint64_t bytes)
{
	int code = arena_check(arena, bytes);
	if (code < 0 || bytes == 0) {
		return code;
	}
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0) {
		return -errno;
	}
	code = arena_allocate(fd, bytes);
	if (code == 0) {
		code = arena_map(arena, bytes, MAP_SHARED, fd);
	}
	if (code < 0) {
		close(fd);
	}
	return code;
}

int arena_init_private(struct arena *arena, uint64_t bytes)
{
	*arena = (struct arena){ .fd = -1 };
	if (bytes == 0) {
		return 0;
	}
	if (bytes > (uint64_t)INT64_MAX) {
		return -ENOMEM;
	}
	return arena_map(arena, bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

void arena_fini(struct arena *arena)
{
	if (arena->base) {
		munmap(arena->base, arena->bytes);
		/* Only with a mapping: in a zeroed struct, fd 0 is not ours. */
		if (arena->fd >= 0) {
			close(arena->fd);
		}
	}
	*arena = (struct arena){ .fd = -1 };
}

int arena_open_read_only(const struct arena *arena, int *ret_fd)
{
	if (!arena->base || arena->fd < 0) {
		return -EBADF;
	}
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", arena->fd);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return -errno;
	}
	*ret_fd = fd;
	return 0;
}
