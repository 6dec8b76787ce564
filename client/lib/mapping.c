/*
 * Mapping of arenas and of slots. A slot that is hidden stays mapped without any right, so that showing the same slot
 * again costs one mprotect and no page is faulted in anew; another slot is mapped over it. Owns nothing but address
 * space.
 */
#include "client/lib/mapping.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/lib/fault.h"
#include "fsdp/fsdp.h"

static uint64_t mapping_page(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t mapping_round(uint64_t bytes)
{
	uint64_t page = mapping_page();
	return (bytes + page - 1) / page * page;
}

int mapping_check(int fd, uint64_t bytes, const char *what)
{
	struct stat status;
	if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
		return fault_set(FSDP_E_PROTOCOL, "fsdp_model_seal: the daemon's descriptor of %s is not a memory file",
				 what);
	if (status.st_size < 0 || (uint64_t)status.st_size < bytes)
		return fault_set(FSDP_E_PROTOCOL,
				 "fsdp_model_seal: the daemon says that %s have %llu bytes, its memory has %lld", what,
				 (unsigned long long)bytes, (long long)status.st_size);
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return fault_set(FSDP_E_PROTOCOL, "fsdp_model_seal: the daemon's memory of %s could shrink", what);
	return 0;
}

int mapping_open(int fd, uint64_t bytes, bool writable, void **ret_base)
{
	void *base = mmap(NULL, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	madvise(base, bytes, MADV_DONTFORK);
	*ret_base = base;
	return 0;
}

void mapping_close(void *base, uint64_t bytes)
{
	if (base)
		munmap(base, bytes);
}

static uint64_t window_length(const struct window *window)
{
	return mapping_round(window->bytes > 0 ? window->bytes : 1);
}

int window_reserve(struct window *window, uint64_t bytes)
{
	assert(!window->base);
	window->bytes = bytes;
	void *base = mmap(NULL, window_length(window), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return -errno;
	window->base = base;
	return 0;
}

int window_show(struct window *window, int fd, uint64_t pool_bytes, uint64_t slot, bool writable)
{
	assert(window->base);
	if (window->bytes == 0)
		return 0; /* no element is ever touched */
	if (fd < 0 || slot % mapping_page() != 0 || slot > pool_bytes || window->bytes > pool_bytes - slot)
		return FSDP_E_PROTOCOL;
	uint64_t length = window_length(window);
	int rights = writable ? PROT_READ | PROT_WRITE : PROT_READ;
	if (window->mapped && window->slot == slot)
		return mprotect(window->base, length, rights) == 0 ? 0 : -errno;
	if (mmap(window->base, length, rights, MAP_FIXED | MAP_SHARED | MAP_POPULATE, fd, (off_t)slot) == MAP_FAILED)
		return -errno;
	/* Without it a child would keep the pool alive and could read it; where this fails it only could. */
	madvise(window->base, length, MADV_DONTFORK);
	window->mapped = true;
	window->slot = slot;
	return 0;
}

int window_hide(struct window *window)
{
	if (!window->base || window->bytes == 0)
		return 0;
	return mprotect(window->base, window_length(window), PROT_NONE) == 0 ? 0 : -errno;
}

void window_fini(struct window *window)
{
	if (window->base)
		munmap(window->base, window_length(window));
	*window = (struct window){ 0 };
}
