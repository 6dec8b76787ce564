/* How large a model's pools are. */
#include <criterion/criterion.h>

#include "daemon/serve/seal.h"
#include "daemon/store/plan.h"
#include "fsdp/error.h"

static int pool(uint64_t largest_unit, uint64_t all_units, uint64_t budget, unsigned largest, uint64_t *ret_bytes)
{
	struct plan_sizes sizes = { .largest_unit = largest_unit, .all_units = all_units };

	return seal_pool_bytes(&sizes, budget, largest, ret_bytes);
}

Test(seal, a_pool_that_the_daemon_chooses_holds_a_small_model_whole)
{
	uint64_t bytes;

	cr_assert_eq(pool(4096, 40960, 0, 3, &bytes), 0);
	cr_assert_eq(bytes, 40960);
}

Test(seal, a_pool_that_the_daemon_chooses_holds_64_mib_or_three_of_the_largest_unit)
{
	uint64_t bytes;

	cr_assert_eq(pool(4096, 1ull << 40, 0, 3, &bytes), 0);
	cr_assert_eq(bytes, 64ull << 20);
	cr_assert_eq(pool(32ull << 20, 1ull << 40, 0, 3, &bytes), 0);
	cr_assert_eq(bytes, 96ull << 20);
}

Test(seal, a_budget_is_kept_and_must_hold_the_largest_unit)
{
	uint64_t bytes;

	cr_assert_eq(pool(8192, 40960, 8192, 3, &bytes), 0);
	cr_assert_eq(bytes, 8192);
	cr_assert_eq(pool(8192, 40960, 10000, 3, &bytes), 0);
	cr_assert_eq(bytes, 8192);
	cr_assert_eq(pool(8192, 40960, 8191, 3, &bytes), FSDP_E_BUDGET);
}

Test(seal, a_pool_beyond_63_bits_is_an_overflow)
{
	uint64_t bytes;

	cr_assert_eq(pool(1ull << 62, 1ull << 62, 0, 3, &bytes), FSDP_E_OVERFLOW);
}
