/* What a worker that holds an arena's descriptor can do, and cannot. */
#include "daemon/store/arena.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

Test(arena, is_mapped_zeroed_and_writable)
{
	struct arena arena;
	cr_assert_eq(arena_init(&arena, "test", 10000), 0);
	cr_assert_eq(arena.bytes, 10000);
	char *bytes = arena.base;
	for (int i = 0; i < 10000; i++) {
		cr_assert_eq(bytes[i], 0);
	}
	memset(bytes, 1, 10000);
	arena_fini(&arena);
	cr_assert_null(arena.base);
	arena_fini(&arena);
}

Test(arena, of_no_bytes_has_neither_memory_nor_descriptor)
{
	struct arena arena;
	cr_assert_eq(arena_init(&arena, "test", 0), 0);
	cr_assert_null(arena.base);
	cr_assert_eq(arena.fd, -1);
	int fd;
	cr_assert_eq(arena_open_read_only(&arena, &fd), -EBADF);
	arena_fini(&arena);
}

Test(arena, that_is_zeroed_can_be_finished_and_leaves_descriptor_0_alone)
{
	struct arena arena;
	memset(&arena, 0, sizeof(arena));
	arena_fini(&arena);
	cr_assert_neq(fcntl(0, F_GETFD), -1);
}

Test(arena, has_a_size_that_nobody_can_change)
{
	struct arena arena;
	cr_assert_eq(arena_init(&arena, "test", 8192), 0);
	cr_assert_eq(fcntl(arena.fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	cr_assert_eq(ftruncate(arena.fd, 4096), -1);
	cr_assert_eq(errno, EPERM);
	cr_assert_eq(ftruncate(arena.fd, 16384), -1);
	cr_assert_eq(errno, EPERM);
	cr_assert_eq(fcntl(arena.fd, F_ADD_SEALS, F_SEAL_WRITE), -1, "nor its seals");
	arena_fini(&arena);
}

Test(arena, is_of_mode_0600_and_closed_on_exec)
{
	struct arena arena;
	struct stat status;
	cr_assert_eq(arena_init(&arena, "test", 4096), 0);
	cr_assert_eq(fstat(arena.fd, &status), 0);
	cr_assert_eq(status.st_mode & 0777, 0600);
	cr_assert_geq(status.st_blocks * 512, 4096, "its pages are there from the start");
	cr_assert(fcntl(arena.fd, F_GETFD) & FD_CLOEXEC);
	arena_fini(&arena);
}

Test(arena, can_be_given_away_for_reading_only)
{
	struct arena arena;
	int fd;
	cr_assert_eq(arena_init(&arena, "test", 4096), 0);
	cr_assert_eq(arena_open_read_only(&arena, &fd), 0);
	cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	cr_assert_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	cr_assert_eq(errno, EACCES);
	cr_assert_eq(write(fd, "x", 1), -1);
	const char *view = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	cr_assert_neq(view, MAP_FAILED);
	cr_assert_eq(mprotect((void *)view, 4096, PROT_READ | PROT_WRITE), -1);
	((char *)arena.base)[100] = 'y';
	cr_assert_eq(view[100], 'y', "it is the same memory");
	close(fd);
	arena_fini(&arena);
	cr_assert_eq(view[100], 'y', "and stays for whoever has mapped it");
	munmap((void *)view, 4096);
}

Test(arena, that_cannot_fit_is_an_error_and_no_signal)
{
	struct arena arena;
	cr_assert_eq(arena_init(&arena, "test", UINT64_C(1) << 46), -ENOMEM);
	cr_assert_eq(arena_init(&arena, "test", UINT64_MAX), -ENOMEM);
	cr_assert_eq(arena_init_private(&arena, UINT64_MAX), -ENOMEM);
	cr_assert_null(arena.base);
	cr_assert_eq(arena.fd, -1);
}

Test(arena, of_private_memory_has_no_descriptor)
{
	struct arena arena;
	int fd;
	cr_assert_eq(arena_init_private(&arena, 5000), 0);
	cr_assert_eq(arena.fd, -1);
	((char *)arena.base)[4999] = 1;
	cr_assert_eq(arena_open_read_only(&arena, &fd), -EBADF);
	arena_fini(&arena);
}
