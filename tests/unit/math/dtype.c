/* The tables of dtypes. */
#include "daemon/math/dtype.h"

#include <criterion/criterion.h>

Test(dtype, has_its_size_and_name)
{
	cr_assert_eq(dtype_bytes(FSDP_F32), 4);
	cr_assert_eq(dtype_bytes(FSDP_F64), 8);
	cr_assert_eq(dtype_bytes(FSDP_BF16), 2);
	cr_assert_eq(dtype_bytes(FSDP_BOOL), 1);
	cr_assert_str_eq(dtype_name(FSDP_F32), "f32");
	cr_assert_str_eq(dtype_name(FSDP_BF16), "bf16");
	cr_assert_str_eq(dtype_name(FSDP_BOOL), "bool");
}

Test(dtype, that_is_none_has_no_size)
{
	static const uint32_t numbers[] = { 0, 10, 255, UINT32_MAX };
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		cr_assert_not(dtype_is_valid(numbers[i]));
		cr_assert_eq(dtype_bytes((enum fsdp_dtype)numbers[i]), 0);
		cr_assert_str_eq(dtype_name((enum fsdp_dtype)numbers[i]), "?");
	}
	for (uint32_t number = 1; number <= 9; number++) {
		cr_assert(dtype_is_valid(number));
	}
}

Test(dtype, master_of_small_floats_is_f32_and_the_rest_stay)
{
	cr_assert_eq(dtype_master(FSDP_F32), FSDP_F32);
	cr_assert_eq(dtype_master(FSDP_BF16), FSDP_F32);
	cr_assert_eq(dtype_master(FSDP_F16), FSDP_F32);
	cr_assert_eq(dtype_master(FSDP_F64), FSDP_F64);
	cr_assert_eq(dtype_master(FSDP_I64), FSDP_I64);
	cr_assert_eq(dtype_master(FSDP_BOOL), FSDP_BOOL);
}
