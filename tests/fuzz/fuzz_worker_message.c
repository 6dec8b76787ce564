/* Messages of worker and daemon: whatever the wire brings is refused, or means the same after a round trip. */
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"
#include "proto/frame.h"
#include "proto/worker_message.h"
#include "tests/fuzz/fuzz.h"

/* What a message may grow by when it is written our way (a packed list of one number): it may not fit any more. */
#define GROWTH_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct worker_message first, second;
	static uint8_t first_data[FRAME_BYTES_MAX], second_data[FRAME_BYTES_MAX];
	long first_size, second_size;

	if (worker_message_read(data, size, &first) < 0)
		return 0;
	first_size = worker_message_write(&first, first_data);
	if (first_size == FSDP_E_OVERFLOW && size > FRAME_BYTES_MAX - GROWTH_MAX) {
		worker_message_fini(&first);
		return 0;
	}
	fuzz_check(first_size >= 0);
	fuzz_check(worker_message_read(first_data, (size_t)first_size, &second) == 0);
	second_size = worker_message_write(&second, second_data);
	fuzz_check(first_size == second_size && memcmp(first_data, second_data, (size_t)first_size) == 0);
	fuzz_check(strcmp(first.name, second.name) == 0 && strcmp(first.text, second.text) == 0);
	fuzz_check(!(first.param_count != second.param_count || first.place_count != second.place_count));
	worker_message_fini(&first);
	worker_message_fini(&second);
	return 0;
}
