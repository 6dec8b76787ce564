/* Tables over the dtypes, made from the public list, so that they cannot drift from it. Pure; any thread. */
#include "daemon/math/dtype.h"

struct dtype_row {
	size_t bytes;
	const char *name;
};

static const struct dtype_row dtype_rows[] = {
#define DTYPE_ROW(name_, number, bytes_, text) [number] = { .bytes = bytes_, .name = text },
	FSDP_DTYPES(DTYPE_ROW)
#undef DTYPE_ROW
};

#define DTYPE_ROW_COUNT (sizeof(dtype_rows) / sizeof(dtype_rows[0]))

bool dtype_is_valid(uint32_t number)
{
	return number < DTYPE_ROW_COUNT && dtype_rows[number].name;
}

size_t dtype_bytes(enum fsdp_dtype dtype)
{
	return dtype_is_valid((uint32_t)dtype) ? dtype_rows[dtype].bytes : 0;
}

const char *dtype_name(enum fsdp_dtype dtype)
{
	return dtype_is_valid((uint32_t)dtype) ? dtype_rows[dtype].name : "?";
}

enum fsdp_dtype dtype_master(enum fsdp_dtype dtype)
{
	switch (dtype) {
	case FSDP_BF16:
	case FSDP_F16:
		return FSDP_F32;
	case FSDP_F32:
	case FSDP_F64:
	case FSDP_I8:
	case FSDP_U8:
	case FSDP_I32:
	case FSDP_I64:
	case FSDP_BOOL:
		return dtype;
	}
	return dtype;
}
