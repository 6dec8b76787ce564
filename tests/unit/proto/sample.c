/* Messages full of distinct values. */
#include "tests/unit/proto/sample.h"

const enum peer_op sample_peer_ops[] = {
	PEER_HELLO,        PEER_WELCOME,       PEER_REFUSE,     PEER_HEARTBEAT,
	PEER_MANIFEST,     PEER_DETAIL_WANTED, PEER_DETAIL,     PEER_SEALED,
	PEER_UNSEALED,     PEER_LOADED,        PEER_VERIFIED,   PEER_VOTE,
	PEER_DECISION,     PEER_ABORT,         PEER_CLOSED,     PEER_DROP,
	PEER_DROP_REFUSED, PEER_WAITING,       PEER_LOST,       PEER_WITHDRAW,
	PEER_READ,         PEER_CHUNK,         PEER_STALE,      PEER_PUSH,
	PEER_CLOSE,        PEER_PROGRESS,      PEER_ALL_REDUCE, PEER_ALL_REDUCED,
	PEER_OFFERED,      PEER_NORM,          PEER_NORMED,     0,
};

static uint8_t bits[] = { 0x05, 0x00, 0x80 };
static uint64_t sums[] = { 1, UINT64_MAX, 0 };
static double values[] = { 0.5, -0.0, 1e300 };
static struct peer_group peer_groups[] = {
	{ UINT32_MAX, 0.5, 0.25, 0.125, -0.75, 1.5, 2.5, 1e-300, 0.375, 1e300, 7 },
	{ .group = 1 },
};

static struct peer_progress progress[] = {
	{ .micro_batch = 70, .unit = 71, .offset = 72 },
	{ .micro_batch = UINT32_MAX, .unit = UINT32_MAX, .offset = UINT64_MAX },
};
static struct peer_model peer_models[] = {
	{ .model = 80, .step = 81, .attempt = 82, .voted = true, .workers = 83 },
	{ 0 },
	{ .model = UINT64_MAX, .step = UINT64_MAX, .attempt = UINT32_MAX, .workers = UINT32_MAX },
};

struct peer_message sample_peer(enum peer_op op)
{
	return (struct peer_message){
		.op = op,
		.protocol = 10,
		.cluster = UINT64_MAX - 11,
		.generation = UINT64_MAX - 12,
		.incarnation = UINT64_MAX - 13,
		.link = 14,
		.source = 15,
		.world_size = 16,
		.model = UINT64_MAX - 17,
		.unit = 18,
		.version = 19,
		.step = 20,
		.attempt = 21,
		.micro_batch = UINT32_MAX - 22,
		.read = 23,
		.offset = 24,
		.length = UINT64_MAX - 25,
		.limit = 26,
		.dtype = 9,
		.credit = 28,
		.credit_link = 29,
		.closed = 30,
		.outcome = PEER_ABORT_STEP,
		.commit = 32,
		.last = true,
		.finite = true,
		.reply = true,
		.weight = 0.375,
		.sum = UINT64_MAX - 37,
		.awaited = PEER_VOTE,
		.code = -1003,
		.number = UINT64_MAX - 38,
		.combine = 39,
		.has_options = true,
		.options = { 0.5, 0.25, 0.125, -0.75, 1.5, 2.5, 1e-300, 0.375, 1e300, 7 },
		.has_rules = true,
		.rules = { UINT64_MAX, 0.5, 1e300, 2, 0.25, UINT64_MAX - 1, 1e-300 },
		.norm = 0.1,
		.largest = 1e308,
		.clip = 0.3,
		.next_scale = 65536,
		.good_steps = UINT64_MAX - 2,
		.bad = bits,
		.bad_size = 2,
		.name = "cluster é 漢字 🙂",
		.text = "rank 1 says f32, rank 2 says bf16",
		.bits = bits,
		.bits_size = 3,
		.sums = sums,
		.sum_count = 3,
		.values = values,
		.value_count = 3,
		.groups = peer_groups,
		.group_count = 2,
		.progress = progress,
		.progress_count = 2,
		.models = peer_models,
		.model_count = 3,
	};
}

struct peer_message sample_peer_chunk(void)
{
	return (struct peer_message){
		.op = PEER_CHUNK,
		.protocol = PEER_PROTOCOL,
		.cluster = 0x1111222233334444,
		.generation = 0x5555666677778888,
		.incarnation = 0x9999aaaabbbbcccc,
		.link = 3,
		.source = 1,
		.model = 0xddddeeeeffff0000,
		.unit = 12,
		.version = 1000,
		.read = 54321,
		.offset = 7u << 20,
		.length = 1u << 20,
	};
}

static uint8_t blob[] = { 0, 0xff, 'x', 0 };
static double worker_values[] = { -1.5, 0.0, 1e-300 };
static struct worker_param params[] = {
	{ .name = "layers.0.weight", .dtype = 3, .ndim = 2, .flags = 5, .group = UINT32_MAX, .shape = { 768, 3072 } },
	{ .name = "scalar", .dtype = 1, .ndim = 0, .flags = 0 },
	{ .name = "eight", .dtype = 9, .ndim = 8, .flags = UINT32_MAX, .shape = { 1, 2, 3, 4, 0, 6, 7, UINT64_MAX } },
};
static struct worker_group worker_groups[] = {
	{ UINT32_MAX, 0.5, 0.25, 0.125, -0.75, 1.5, 2.5, 1e-300, 0.375, 1e300, 7 },
	{ .group = 1 },
};

static struct worker_place places[] = {
	{ .full_bytes = 90, .shard_offset = 91, .shard_count = 92, .arena_offset = 93 },
	{ .full_bytes = UINT64_MAX, .shard_offset = UINT64_MAX, .shard_count = UINT64_MAX, .arena_offset = UINT64_MAX },
};

struct worker_message sample_worker(enum worker_op op)
{
	return (struct worker_message){
		.op = op,
		.request = UINT64_MAX - 10,
		.answer = true,
		.code = -11,
		.protocol = 12,
		.handle = 13,
		.unit = 14,
		.more = true,
		.deadline_ms = 15,
		.slot = 16,
		.version = 17,
		.step = 18,
		.attempt = 19,
		.micro_batch = 20,
		.resumed = true,
		.drop = true,
		.outcome = 21,
		.commit = 22,
		.rank = 23,
		.world_size = 24,
		.generation = UINT64_MAX - 25,
		.bytes_in = UINT64_MAX - 26,
		.bytes_out = 27,
		.gather_dtype = 3,
		.reduce_dtype = 9,
		.reduce_op = 28,
		.scale = 0.0625,
		.optimizer = 29,
		.momentum = true,
		.nesterov = true,
		.centered = true,
		.local_worker = 30,
		.local_workers = UINT32_MAX,
		.init = 37,
		.init_rank = UINT32_MAX - 38,
		.shard_bytes = 31,
		.gather_bytes = 32,
		.grad_bytes = 33,
		.weight = 1e-40,
		.norm_kind = 90,
		.norm = 0.1,
		.next_scale = 32768,
		.finite = true,
		.bad_count = UINT32_MAX,
		.bad = { 1, 0, UINT32_MAX },
		.bad_named = 3,
		.has_hyper = true,
		.hyper = { 0.5, 0.25, 0.125, -0.75, 1.5, 2.5, 1e-300, 0.375, 1e300, 7, 2, 0.75, 3e38, 2, 0.5,
			   UINT64_MAX, 0.0625 },
		.combine = 34,
		.blob_offset = UINT64_MAX - 35,
		.blob_bytes = 36,
		.name = "model é",
		.text = "the deadline passed",
		.params = params,
		.param_count = 3,
		.groups = worker_groups,
		.group_count = 2,
		.places = places,
		.place_count = 2,
		.values = worker_values,
		.value_count = 3,
		.blob = blob,
		.blob_size = 4,
	};
}

static struct control_peer control_peers[] = {
	{ .rank = 40,
	  .state = "joined",
	  .bulk_up = true,
	  .incarnation = 41,
	  .heard_ms_ago = 42,
	  .endpoint = "tcp://10.0.0.1:7000",
	  .refusal = "rank 1 is taken" },
	{ .rank = 43, .state = "absent" },
};
static struct control_model control_models[] = {
	{ .name = "gpt",
	  .state = "sealed",
	  .phase = "working",
	  .step = 50,
	  .attempt = 51,
	  .micro_batch = 52,
	  .units = 53,
	  .workers = 54,
	  .applied = 55,
	  .skipped = 56,
	  .aborted = 57,
	  .parameters = 58,
	  .shard_bytes = 59,
	  .gather_used = 60,
	  .gather_bytes = 61,
	  .grad_used = 62,
	  .grad_bytes = 63,
	  .trouble = "rank 2 is gone" },
	{ .name = "mlp" },
};
static struct control_unit control_units[] = {
	{ .name = "layers.0",
	  .version = 70,
	  .full_bytes = 71,
	  .shard_elements = 72,
	  .held = 73,
	  .gathered = true,
	  .reduced = true },
	{ .name = "layers.1" },
};
static struct control_worker control_workers[] = {
	{ .pid = 1234,
	  .uid = 80,
	  .model = "gpt",
	  .local_worker = 81,
	  .call = "unshard",
	  .waiting_ms = 82,
	  .attached_ms = 83 },
	{ .pid = -1, .uid = UINT32_MAX },
};
static struct control_wait control_waits[] = {
	{ .model = "gpt",
	  .unit = "layers.0",
	  .op = "loaded",
	  .waiting_ms = 90,
	  .deadline_ms = 91,
	  .ranks = { 2, 0, UINT32_MAX },
	  .rank_count = 3 },
	{ .model = "mlp", .ranks = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 }, .rank_count = 16 },
};

struct control_message sample_control(enum control_op op)
{
	return (struct control_message){
		.op = op,
		.answer = true,
		.more = true,
		.code = -1013,
		.protocol = 11,
		.name = "gpt é",
		.text = "there is nothing of that name",
		.has_status = true,
		.status = { .cluster = "alpha",
			    .version = "0.1.0",
			    .phase = "3 of 4 joined",
			    .rank = 12,
			    .world_size = 13,
			    .joined = 14,
			    .generation = UINT64_MAX - 15,
			    .incarnation = UINT64_MAX - 16,
			    .uptime_ms = 17,
			    .degraded = true,
			    .bytes_in = 18,
			    .bytes_out = 19,
			    .gather_bytes = 20,
			    .served_bytes = 21,
			    .pushed_bytes = 22,
			    .added_bytes = 23,
			    .resent_bytes = 24,
			    .malformed = 25,
			    .refused = 26,
			    .stale = 27,
			    .duplicates = 28,
			    .violations = 29 },
		.peers = control_peers,
		.peer_count = 2,
		.models = control_models,
		.model_count = 2,
		.units = control_units,
		.unit_count = 2,
		.workers = control_workers,
		.worker_count = 2,
		.waits = control_waits,
		.wait_count = 2,
	};
}
