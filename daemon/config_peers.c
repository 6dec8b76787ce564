/*
 * The [peers] section: who the ranks are and where they listen. One line a rank, `RANK = CONTROL BULK`, ranks from 0
 * without a gap. Peers are not authenticated yet, so an address that is not a loopback address is refused. Runs before
 * any thread starts.
 */
#include "daemon/config_draft.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config_value.h"
#include "fsdp/error.h"

static const char *const planes[] = { "control", "bulk" };

/* Two words with blanks between them; each shorter than an endpoint may be. */
static int split_endpoints(const char *value, char words[2][CONFIG_ENDPOINT_MAX + 1])
{
	for (int i = 0; i < 2; i++) {
		size_t length = strcspn(value, " \t");

		if (length == 0 || length > CONFIG_ENDPOINT_MAX)
			return FSDP_E_INVALID;
		memcpy(words[i], value, length);
		words[i][length] = '\0';
		value += length;
		value += strspn(value, " \t");
	}
	return *value ? FSDP_E_INVALID : 0;
}

/* Two ranks cannot listen at one endpoint. Endpoints are compared as they are written: binding finds what this misses.
 */
static void check_taken(struct config_draft *draft, unsigned line, uint64_t rank, const char *endpoint)
{
	for (unsigned other = 0; other < CONFIG_PEERS_MAX; other++) {
		if (other == rank || draft->peer_lines[other] == 0)
			continue;
		if (strcmp(draft->peers[other].control, endpoint) == 0 ||
		    strcmp(draft->peers[other].bulk, endpoint) == 0) {
			config_draft_error(draft, line,
					   "[peers] rank %" PRIu64 ": %s is rank %u's already (line %u): expected an "
					   "endpoint of its own",
					   rank, endpoint, other, draft->peer_lines[other]);
			return;
		}
	}
}

static bool check_endpoint(struct config_draft *draft, unsigned line, uint64_t rank, const char *plane,
			   const char *endpoint)
{
	bool loopback;

	if (config_value_endpoint(endpoint, &loopback) < 0) {
		config_draft_error(draft, line,
				   "[peers] rank %" PRIu64
				   ": expected for its %s endpoint a literal address and a port "
				   "such as 127.0.0.1:7000 or [::1]:7000, got `%s`",
				   rank, plane, endpoint);
		return false;
	}
	if (!loopback) {
		config_draft_error(draft, line,
				   "[peers] rank %" PRIu64
				   ": its %s endpoint %s: peers are not authenticated yet: only "
				   "loopback addresses (127.0.0.0/8, ::1) are accepted",
				   rank, plane, endpoint);
		return false;
	}
	return true;
}

void config_draft_set_peer(struct config_draft *draft, unsigned line, const char *key, const char *value)
{
	char words[2][CONFIG_ENDPOINT_MAX + 1];
	bool good = true;
	uint64_t rank;

	if (config_value_count(key, &rank) < 0 || rank >= CONFIG_PEERS_MAX) {
		config_draft_error(draft, line, "[peers] expected a rank from 0 to %u before the =, got `%.64s`",
				   CONFIG_PEERS_MAX - 1, key);
		return;
	}
	if (draft->peer_lines[rank] > 0) {
		config_draft_error(draft, line,
				   "[peers] rank %" PRIu64 " was given already in line %u: expected one line a rank",
				   rank, draft->peer_lines[rank]);
		return;
	}
	draft->peer_lines[rank] = line;
	if (split_endpoints(value, words) < 0) {
		config_draft_error(draft, line,
				   "[peers] rank %" PRIu64 ": expected a control endpoint and a bulk endpoint, such as "
				   "`127.0.0.1:7000 127.0.0.1:7001`, got `%.160s`",
				   rank, value);
		return;
	}
	for (int i = 0; i < 2; i++)
		good = check_endpoint(draft, line, rank, planes[i], words[i]) && good;
	if (!good)
		return;
	if (strcmp(words[0], words[1]) == 0)
		config_draft_error(draft, line, "[peers] rank %" PRIu64 ": both endpoints are %s: expected two", rank,
				   words[0]);
	for (int i = 0; i < 2; i++)
		check_taken(draft, line, rank, words[i]);
	memcpy(draft->peers[rank].control, words[0], sizeof(words[0]));
	memcpy(draft->peers[rank].bulk, words[1], sizeof(words[1]));
}

int config_draft_finish_peers(struct config_draft *draft)
{
	unsigned section = draft->section_lines[CONFIG_SECTION_PEERS];
	unsigned highest = 0, count = 0;

	for (unsigned rank = 0; rank < CONFIG_PEERS_MAX; rank++) {
		if (draft->peer_lines[rank] > 0) {
			highest = rank;
			count++;
		}
	}
	if (count == 0) {
		config_draft_error(
			draft, section > 0 ? section : draft->last_line,
			"[peers] is missing: expected one line a rank, such as `0 = 127.0.0.1:7000 127.0.0.1:7001`");
		return 0;
	}
	if (count <= highest) {
		unsigned missing = 0;

		while (draft->peer_lines[missing] > 0)
			missing++;
		config_draft_error(draft, draft->peer_lines[highest],
				   "[peers] rank %u is given, but rank %u is not: expected every "
				   "rank from 0 on",
				   highest, missing);
		return 0;
	}
	draft->config.peers = calloc(count, sizeof(*draft->config.peers));
	if (!draft->config.peers)
		return -ENOMEM;
	memcpy(draft->config.peers, draft->peers, count * sizeof(*draft->config.peers));
	draft->config.world_size = count;
	return 0;
}
