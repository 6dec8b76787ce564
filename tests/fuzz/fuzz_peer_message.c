/* Header frames between daemons: whatever the wire brings is refused, or means the same after a round trip. */
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"
#include "proto/peer_message.h"
#include "tests/fuzz/fuzz.h"

/* What a message may grow by when it is written our way (a packed list of one number): it may not fit any more. */
#define GROWTH_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct peer_message first, second;
	void *first_data, *second_data;
	size_t first_size, second_size;
	int rc;

	if (peer_message_read(data, size, &first) < 0)
		return 0;
	rc = peer_message_write(&first, &first_data, &first_size);
	if (rc == FSDP_E_OVERFLOW && size > PEER_HEADER_MAX - GROWTH_MAX) {
		peer_message_fini(&first);
		return 0;
	}
	fuzz_check(rc >= 0);
	fuzz_check(peer_message_read(first_data, first_size, &second) == 0);
	fuzz_check(peer_message_write(&second, &second_data, &second_size) == 0);
	fuzz_check(first_size == second_size && memcmp(first_data, second_data, first_size) == 0);
	fuzz_check(strcmp(first.name, second.name) == 0 && strcmp(first.text, second.text) == 0);
	fuzz_check(!(first.bits_size != second.bits_size || first.sum_count != second.sum_count ||
		     first.progress_count != second.progress_count || first.model_count != second.model_count));
	free(first_data);
	free(second_data);
	peer_message_fini(&first);
	peer_message_fini(&second);
	return 0;
}
