/* What a counted buffer promises to those who hold it. */
#include "daemon/runtime/buffer.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

static void count_release(void *context)
{
	++*(int *)context;
}

Test(buffer, is_released_once_by_the_last_reference)
{
	char bytes[3] = "ab";
	int released = 0;
	struct buffer *buffer;
	cr_assert_eq(buffer_new(bytes, 3, count_release, &released, &buffer), 0);
	cr_assert_eq(buffer_ref(buffer), buffer);
	buffer_unref(buffer);
	cr_assert_eq(released, 0);
	cr_assert_eq(buffer_data(buffer), (void *)bytes);
	cr_assert_eq(buffer_size(buffer), 3);
	buffer_unref(buffer);
	cr_assert_eq(released, 1);
}

Test(buffer, needs_no_release_function)
{
	char bytes[1];
	struct buffer *buffer;
	cr_assert_eq(buffer_new(bytes, 1, NULL, NULL, &buffer), 0);
	buffer_unref(buffer);
	buffer_unref(NULL);
}

Test(buffer, of_the_heap_is_aligned_and_wholly_writable)
{
	static const size_t sizes[] = { 0, 1, 63, 64, 65, 4097 };
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct buffer *buffer;
		cr_assert_eq(buffer_new_heap(sizes[i], &buffer), 0);
		cr_assert_eq((uintptr_t)buffer_data(buffer) % 64, 0);
		cr_assert_eq(buffer_size(buffer), sizes[i]);
		memset(buffer_data(buffer), 0xa5, sizes[i]);
		buffer_unref(buffer);
	}
}

Test(buffer, of_an_impossible_size_is_refused)
{
	struct buffer *buffer = NULL;
	cr_assert_eq(buffer_new_heap(SIZE_MAX, &buffer), -ENOMEM);
	cr_assert_eq(buffer_new_heap(SIZE_MAX - 100, &buffer), -ENOMEM);
	cr_assert_null(buffer);
}
