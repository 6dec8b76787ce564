/* What the arithmetic knows of dtypes. Pure. */
#ifndef FSDPD_MATH_DTYPE_H
#define FSDPD_MATH_DTYPE_H

#include "fsdp/dtype.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

size_t dtype_bytes(enum fsdp_dtype dtype);     /* 0 for a number that is no dtype */
const char *dtype_name(enum fsdp_dtype dtype); /* "f32"; "?" for a number that is no dtype */
bool dtype_is_valid(uint32_t number);
enum fsdp_dtype dtype_master(enum fsdp_dtype dtype); /* f32 for f32, bf16, f16; f64 for f64; integers stay themselves */

#endif
