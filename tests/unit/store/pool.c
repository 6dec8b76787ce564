/* First fit, and what does not fit. */
#include "daemon/store/pool.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "fsdp/error.h"

static struct pool *make(uint64_t pages)
{
	struct pool *pool;
	cr_assert_eq(pool_new(pages * POOL_ALIGN, &pool), 0);
	return pool;
}

/* In pages; asserts that there was room. */
static uint64_t take(struct pool *pool, uint64_t pages)
{
	uint64_t offset = UINT64_MAX;
	cr_assert_eq(pool_take(pool, pages * POOL_ALIGN, &offset), 0);
	cr_assert_eq(offset % POOL_ALIGN, 0);
	return offset / POOL_ALIGN;
}

Test(pool, gives_the_first_place_that_fits)
{
	struct pool *pool = make(10);
	cr_assert_eq(take(pool, 3), 0);
	cr_assert_eq(take(pool, 2), 3);
	cr_assert_eq(take(pool, 4), 5);
	pool_give(pool, 0);
	cr_assert_eq(take(pool, 1), 0);
	cr_assert_eq(take(pool, 2), 1);
	cr_assert_eq(take(pool, 1), 9);
	cr_assert_eq(pool_used(pool), 10 * POOL_ALIGN);
	pool_free(pool);
	pool_free(NULL);
}

Test(pool, rounds_up_to_a_page_and_gives_one_for_nothing)
{
	struct pool *pool = make(3);
	uint64_t offset;
	cr_assert_eq(pool_take(pool, 1, &offset), 0);
	cr_assert_eq(offset, 0);
	cr_assert_eq(pool_take(pool, 0, &offset), 0);
	cr_assert_eq(offset, POOL_ALIGN);
	cr_assert_eq(pool_used(pool), 2 * POOL_ALIGN);
	cr_assert_eq(pool_take(pool, POOL_ALIGN + 1, &offset), -ENOSPC);
	pool_free(pool);
}

Test(pool, tells_what_does_not_fit_now_from_what_never_will)
{
	struct pool *pool = make(4);
	uint64_t offset = 77;
	cr_assert_eq(pool_take(pool, 5 * POOL_ALIGN, &offset), FSDP_E_BUDGET);
	cr_assert_eq(pool_take(pool, UINT64_MAX, &offset), FSDP_E_BUDGET);
	take(pool, 2);
	cr_assert_eq(pool_take(pool, 3 * POOL_ALIGN, &offset), -ENOSPC);
	cr_assert_eq(pool_take(pool, 5 * POOL_ALIGN, &offset), FSDP_E_BUDGET);
	cr_assert_eq(offset, 77, "outputs are written only on success");
	pool_free(pool);
}

Test(pool, of_no_bytes_gives_nothing)
{
	struct pool *pool;
	uint64_t offset;
	cr_assert_eq(pool_new(POOL_ALIGN - 1, &pool), 0);
	cr_assert_eq(pool_bytes(pool), 0);
	cr_assert_eq(pool_take(pool, 0, &offset), FSDP_E_BUDGET);
	cr_assert_eq(pool_take(pool, 1, &offset), FSDP_E_BUDGET);
	pool_free(pool);
}

Test(pool, joins_neighbours_that_were_given_back)
{
	struct pool *pool = make(6);
	uint64_t offset;
	for (uint64_t i = 0; i < 6; i++) {
		cr_assert_eq(take(pool, 1), i);
	}
	pool_give(pool, 1 * POOL_ALIGN);
	pool_give(pool, 3 * POOL_ALIGN);
	cr_assert_eq(pool_take(pool, 2 * POOL_ALIGN, &offset), -ENOSPC, "two free pages that are no neighbours");
	pool_give(pool, 2 * POOL_ALIGN);
	cr_assert_eq(take(pool, 3), 1);
	pool_free(pool);
}

/* Many takes and gives in an order that is mixed but the same in every run, against a map of the pages. */
Test(pool, never_gives_a_page_twice)
{
	enum { PAGES = 64, SLOTS = 40 };
	struct pool *pool = make(PAGES);
	unsigned char owner[PAGES] = { 0 };
	struct {
		uint64_t at, pages;
	} slots[SLOTS] = { 0 };
	uint64_t used = 0;
	unsigned seed = 1, taken = 0, full = 0;
	for (int i = 0; i < 20000; i++) {
		seed = seed * 1103515245u + 12345u;
		unsigned s = (seed >> 16) % SLOTS;
		if (slots[s].pages) {
			pool_give(pool, slots[s].at * POOL_ALIGN);
			for (uint64_t p = 0; p < slots[s].pages; p++) {
				owner[slots[s].at + p] = 0;
			}
			used -= slots[s].pages;
			slots[s].pages = 0;
		} else {
			uint64_t pages = 1 + (seed >> 24) % 7, offset;
			int code = pool_take(pool, pages * POOL_ALIGN, &offset);
			uint64_t run = 0, longest = 0;
			for (int p = 0; p < PAGES; p++) {
				run = owner[p] ? 0 : run + 1;
				longest = run > longest ? run : longest;
			}
			cr_assert_eq(code, longest >= pages ? 0 : -ENOSPC);
			if (code < 0) {
				full++;
				continue;
			}
			for (uint64_t p = 0; p < pages; p++) {
				cr_assert_eq(owner[offset / POOL_ALIGN + p]++, 0);
			}
			slots[s].at = offset / POOL_ALIGN;
			slots[s].pages = pages;
			used += pages;
			taken++;
		}
		cr_assert_eq(pool_used(pool), used * POOL_ALIGN);
	}
	cr_assert(taken > 1000 && full > 100, "%u %u", taken, full);
	pool_free(pool);
}
