/* Manifests of peers: whatever comes is refused, or is a manifest whose own blob reads back as the same. */
#include <stdlib.h>
#include <string.h>

#include "daemon/store/manifest.h"
#include "daemon/store/plan.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct manifest *first, *second;
	struct plan *plan;
	void *blob;
	size_t blob_size;
	char text[256];

	if (manifest_read(data, size, &first) < 0)
		return 0;
	fuzz_check(manifest_write(first, &blob, &blob_size) == 0);
	fuzz_check(manifest_read(blob, blob_size, &second) == 0);
	fuzz_check(manifest_hash(first) == manifest_hash(second));
	fuzz_check(manifest_difference(first, 0, second, 1, text, sizeof(text)) == 0);
	if (plan_new(first, 1, 3, &plan) == 0)
		plan_unref(plan);
	free(blob);
	manifest_unref(first);
	manifest_unref(second);
	return 0;
}
