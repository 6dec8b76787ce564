/* The size of each part of a manifest's blob, so that the limit on the whole is checked while it is built. */
#ifndef FSDPD_STORE_MANIFEST_BLOB_H
#define FSDPD_STORE_MANIFEST_BLOB_H

#include "daemon/store/manifest.h"
#include <stdint.h>

uint64_t manifest_blob_head_bytes(const char *name);
uint64_t manifest_blob_unit_bytes(const char *name);
uint64_t manifest_blob_param_bytes(const struct manifest_param *param); /* ndim is checked */

uint64_t manifest_blob_bytes(const struct manifest *manifest); /* the sum of its parts; in manifest.c */

#endif
