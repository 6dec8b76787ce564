/* Messages of fsdpctl and a daemon: whatever the wire brings is refused, or means the same after a round trip. */
#include <stdlib.h>
#include <string.h>

#include "fsdp/error.h"
#include "proto/control_message.h"
#include "proto/frame.h"
#include "tests/fuzz/fuzz.h"

/* What a message may grow by when it is written our way (a packed list of one number): it may not fit any more. */
#define GROWTH_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct control_message first, second;
	static uint8_t first_data[FRAME_BYTES_MAX], second_data[FRAME_BYTES_MAX];
	long first_size, second_size;

	if (control_message_read(data, size, &first) < 0)
		return 0;
	first_size = control_message_write(&first, first_data);
	if (first_size == FSDP_E_OVERFLOW && size > FRAME_BYTES_MAX - GROWTH_MAX) {
		control_message_fini(&first);
		return 0;
	}
	fuzz_check(first_size >= 0);
	fuzz_check(control_message_read(first_data, (size_t)first_size, &second) == 0);
	second_size = control_message_write(&second, second_data);
	fuzz_check(first_size == second_size && memcmp(first_data, second_data, (size_t)first_size) == 0);
	fuzz_check(strcmp(first.name, second.name) == 0 && strcmp(first.text, second.text) == 0);
	fuzz_check(!(first.peer_count != second.peer_count || first.model_count != second.model_count ||
		     first.unit_count != second.unit_count || first.worker_count != second.worker_count ||
		     first.wait_count != second.wait_count));
	control_message_fini(&first);
	control_message_fini(&second);
	return 0;
}
