/* The types of elements that a parameter may have. The numbers are part of the protocol and never change. */
#ifndef FSDP_DTYPE_H
#define FSDP_DTYPE_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, number, bytes of one element, text) */
#define FSDP_DTYPES(X)                                                                                                 \
	X(FSDP_F32, 1, 4, "f32")                                                                                       \
	X(FSDP_F64, 2, 8, "f64")                                                                                       \
	X(FSDP_BF16, 3, 2, "bf16")                                                                                     \
	X(FSDP_F16, 4, 2, "f16")                                                                                       \
	X(FSDP_I8, 5, 1, "i8")                                                                                         \
	X(FSDP_U8, 6, 1, "u8")                                                                                         \
	X(FSDP_I32, 7, 4, "i32")                                                                                       \
	X(FSDP_I64, 8, 8, "i64")                                                                                       \
	X(FSDP_BOOL, 9, 1, "bool")

enum fsdp_dtype {
#define FSDP_DTYPE_ENUM(name, number, bytes, text) name = number,
	FSDP_DTYPES(FSDP_DTYPE_ENUM)
#undef FSDP_DTYPE_ENUM
};

#define FSDP_DIMS_MAX 8   /* dimensions of a parameter, at most */
#define FSDP_NAME_MAX 255 /* bytes of a name, at most */

#ifdef __cplusplus
}
#endif

#endif
