/*
 * Floating dtypes into one another: f32, f64, bf16 and f16, in every direction. Pure; any thread.
 *
 * Rounds to nearest, ties to even, once (f64 goes to 16 bits directly, not by way of f32). Infinities stay, what is too
 * large becomes one, zeros keep their sign. Denormals are kept, read and written, whatever mode the thread's processor
 * is in. A NaN becomes a quiet NaN of the same sign, with as much of the top of its payload as the new dtype holds. The
 * same bits at every cpu_level().
 */
#ifndef FSDPD_MATH_CONVERT_H
#define FSDPD_MATH_CONVERT_H

#include "fsdp/dtype.h"
#include <stdbool.h>
#include <stddef.h>

bool convert_knows(enum fsdp_dtype dtype); /* one of the four */

/*
 * Writes count elements of from, which are of from_dtype, to to, as elements of to_dtype. convert_knows both. The
 * two ranges may not overlap, and each begins at a multiple of its element's size. Between equal dtypes the bytes are
 * copied as they are, NaNs too.
 */
void convert_range(void *to, enum fsdp_dtype to_dtype, const void *from, enum fsdp_dtype from_dtype, size_t count);

#endif
