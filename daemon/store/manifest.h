/*
 * What a model is: its name, its options, its units and their parameters. Every rank must register the same; this is
 * what they compare. Built by one thread, immutable once sealed, then shared by counted reference.
 *
 * Units keep two orders: registration (the trainer's own, free on every rank; used for forward order and
 * update_shards) and canonical (by name, byte order; the same on every rank; the index that travels on the wire).
 * Parameters have one order, which is part of the comparison.
 */
#ifndef FSDPD_STORE_MANIFEST_H
#define FSDPD_STORE_MANIFEST_H

#include "daemon/math/optimizer.h"
#include "fsdp/dtype.h"
#include <stddef.h>
#include <stdint.h>

#define MANIFEST_UNITS_MAX 65536
#define MANIFEST_PARAMS_MAX 1048576 /* of a whole model */
#define MANIFEST_BYTES_MAX (64u << 20)

enum reduce_op { REDUCE_MEAN = 0, REDUCE_SUM = 1 };
enum init_policy {
	INIT_VERIFY = 0,    /* every rank loads its own copy, and checksums are compared */
	INIT_FROM_RANK = 1, /* what init_rank loads counts */
	INIT_ZEROS = 2
};

struct manifest_options {
	enum fsdp_dtype gather_dtype; /* 0: each parameter's own */
	enum fsdp_dtype reduce_dtype; /* 0: the master's */
	enum reduce_op op;
	double scale; /* of a sum; 1 by default */
	enum init_policy init;
	uint32_t init_rank; /* INIT_FROM_RANK; else 0. Whether there is such a rank is the caller's to know. */
	struct optimizer_spec optimizer;
};

struct manifest_param {
	char *name;
	enum fsdp_dtype dtype;
	uint32_t ndim;
	uint64_t shape[FSDP_DIMS_MAX];
	uint32_t flags;
	uint32_t group; /* whose numbers a step uses for it; 0: the step's own */
};

struct manifest_unit {
	char *name;
	enum fsdp_dtype gather_dtype; /* 0: the model's */
	enum fsdp_dtype reduce_dtype; /* 0: the model's */
	struct manifest_param *params;
	uint32_t param_count;
};

#define MANIFEST_PARAM_FLAGS 0u /* the flags that a parameter may have: none so far, so that none is silently ignored */

struct manifest;

/* options are copied; a scale of 0 means 1, and a mean has no scale (it is set to 1). FSDP_E_INVALID: a bad name, a
 * dtype that is no floating one, an unknown op or init, a rank that init does not use, a scale that is not finite, an
 * optimizer that optimizer_check_spec refuses. -ENOMEM. */
int manifest_new(const char *name, const struct manifest_options *options, struct manifest **ret_manifest);
struct manifest *manifest_ref(struct manifest *manifest);
void manifest_unref(struct manifest *manifest); /* takes NULL */

/* Add a unit, then its parameters (copied) to the unit added last. FSDP_E_INVALID with a reason in manifest_error():
 * empty or too long a name, a name with a control character or that is not UTF-8, one that is there already, too many
 * dimensions, an unknown dtype or flag; FSDP_E_OVERFLOW: element counts or bytes exceed 63 bits, or a limit above. */
int manifest_add_unit(struct manifest *manifest, const char *name);
int manifest_add_param(struct manifest *manifest, const struct manifest_param *param);
int manifest_set_unit_options(struct manifest *manifest, uint32_t registered, enum fsdp_dtype gather,
			      enum fsdp_dtype reduce);
const char *manifest_error(const struct manifest *manifest);

/* After this nothing can be added (FSDP_E_STATE); sorts and hashes. What counts in canonical order needs a sealed
 * manifest. */
int manifest_seal(struct manifest *manifest);

const char *manifest_name(const struct manifest *manifest);
const struct manifest_options *manifest_get_options(const struct manifest *manifest);
uint32_t manifest_unit_count(const struct manifest *manifest);
uint32_t manifest_canonical(const struct manifest *manifest, uint32_t registered);
uint32_t manifest_registered(const struct manifest *manifest, uint32_t canonical);
const struct manifest_unit *manifest_unit(const struct manifest *manifest, uint32_t canonical);
uint64_t manifest_hash(const struct manifest *manifest); /* of name, options and units in canonical order */

/* One self-describing blob of the sealed manifest, and back (checks everything; the blob is a peer's): a sealed
 * manifest whose order of registration is the canonical one, or FSDP_E_PROTOCOL, -ENOMEM. The writer gives a heap
 * block to free(). */
int manifest_write(const struct manifest *manifest, void **ret_data, size_t *ret_size);
int manifest_read(const void *data, size_t size, struct manifest **ret_manifest);

/* Writes the first difference for people: `unit "u0" entry 0: rank 0 has a f32[4], rank 1 has b f32[6]`. Returns 0
 * when equal, else 1. text is always terminated. */
int manifest_difference(const struct manifest *a, uint32_t rank_a, const struct manifest *b, uint32_t rank_b,
			char *text, size_t text_size);

/* Elements of a parameter: the product of its shape (1 for a scalar, 0 where any is 0). Checked when it was added. */
uint64_t manifest_param_count(const struct manifest_param *param);
/* "f32[4,8]" */
void manifest_param_describe(const struct manifest_param *param, char *text, size_t text_size);

#endif
