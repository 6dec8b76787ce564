/*
 * The fake daemon: see the header. It believes the library nothing that would hide a fault of it: what does not fit the
 * protocol aborts the test.
 */
#include "tests/unit/client/fake_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "fsdp/fsdp.h"

#define FAKE_SHARD_BYTES (1u << 20)
#define FAKE_POOL_BYTES (FAKE_UNITS_MAX * FAKE_SLOT_BYTES)

#define FAKE_REQUIRE(condition)                                                                      \
	do {                                                                                         \
		if (!(condition)) {                                                                  \
			fprintf(stderr, "fake daemon: %s:%d: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                                     \
		}                                                                                    \
	} while (0)

static int fake_memory(const struct fake *fake, size_t bytes, float **ret_base)
{
	int fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	FAKE_REQUIRE(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	if (!fake->unsealed_memory)
		FAKE_REQUIRE(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
	*ret_base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	FAKE_REQUIRE(*ret_base != MAP_FAILED);
	return fd;
}

static int fake_read_only(int fd)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int copy = open(path, O_RDONLY | O_CLOEXEC);
	FAKE_REQUIRE(copy >= 0);
	return copy;
}

static void fake_make_memory(struct fake *fake)
{
	fake->masters = fake_memory(fake, FAKE_SHARD_BYTES, &fake->master);
	fake->gradients = fake_memory(fake, FAKE_SHARD_BYTES, &fake->gradient);
	fake->staging = fake_memory(fake, FAKE_SHARD_BYTES, &fake->stage);
	fake->gathers = fake_memory(fake, FAKE_POOL_BYTES, &fake->gather);
	fake->grads = fake_memory(fake, FAKE_POOL_BYTES, &fake->grad);
	/* A buffer that was used before is not zero: the library has to see to it. */
	for (size_t i = 0; i < FAKE_POOL_BYTES / sizeof(float); i++)
		fake->grad[i] = 99.0f;
}

uint64_t fake_slot(uint32_t unit)
{
	return (uint64_t)unit * FAKE_SLOT_BYTES;
}

uint64_t fake_place(const struct fake *fake, uint32_t unit)
{
	uint64_t elements = 0;
	for (uint32_t i = 0; i < unit; i++)
		elements += (fake->units[i].elements + 15) / 16 * 16;
	return elements;
}

static float *fake_at(float *pool, uint32_t unit)
{
	return pool + fake_slot(unit) / sizeof(float);
}

static void fake_add_unit(struct fake *fake, const struct worker_message *request)
{
	FAKE_REQUIRE(request->unit == fake->unit_count && request->unit < FAKE_UNITS_MAX);
	struct fake_unit *unit = &fake->units[request->unit];
	if (unit->parts == 0)
		strcpy(unit->name, request->name);
	FAKE_REQUIRE(strcmp(unit->name, request->name) == 0);
	FAKE_REQUIRE(request->param_count == WORKER_PARAMS_MAX || !request->more);
	for (size_t i = 0; i < request->param_count; i++) {
		const struct worker_param *param = &request->params[i];
		uint64_t elements = 1;
		for (uint32_t k = 0; k < param->ndim; k++)
			elements *= param->shape[k];
		unit->elements += elements;
	}
	unit->params += request->param_count;
	unit->parts++;
	if (!request->more)
		fake->unit_count++;
	FAKE_REQUIRE(unit->elements * sizeof(float) <= FAKE_SLOT_BYTES);
}

static void fake_seal(struct fake *fake, struct worker_message *answer, int *fds, size_t *ret_fd_count)
{
	if (!fake->master)
		fake_make_memory(fake);
	answer->shard_bytes = FAKE_SHARD_BYTES;
	answer->gather_bytes = FAKE_POOL_BYTES;
	answer->grad_bytes = FAKE_POOL_BYTES;
	fds[0] = fake_read_only(fake->masters);
	fds[1] = fake_read_only(fake->gradients);
	fds[2] = dup(fake->staging);
	fds[3] = fake_read_only(fake->gathers);
	fds[4] = dup(fake->grads);
	*ret_fd_count = 5;
}

static void fake_places(struct fake *fake, const struct worker_message *request, struct worker_message *answer)
{
	size_t count = fake->unit_count - request->unit;
	if (count > 2)
		count = 2; /* so that paging is seen with few units */
	answer->places = calloc(count, sizeof(answer->places[0]));
	FAKE_REQUIRE(answer->places);
	answer->place_count = count;
	for (size_t i = 0; i < count; i++) {
		uint32_t unit = request->unit + (uint32_t)i;
		answer->places[i] = (struct worker_place){
			.full_bytes = fake->units[unit].elements * sizeof(float),
			.shard_count = fake->units[unit].elements,
			.arena_offset = fake_place(fake, unit) * sizeof(float),
		};
	}
	answer->more = request->unit + count < fake->unit_count;
}

static void fake_step(struct fake *fake, const struct worker_message *request)
{
	size_t elements = FAKE_SHARD_BYTES / sizeof(float);
	for (size_t i = 0; i < elements; i++) {
		if (request->commit == 1)
			fake->master[i] = fake->stage[i];
		else
			fake->master[i] -= (float)request->hyper.learning_rate * fake->gradient[i];
		fake->gradient[i] = 0;
	}
	fake->step++;
	fake->attempt = 0;
	fake->micro_batch = 0;
}

static void fake_take_state(struct fake *fake, const struct worker_message *request)
{
	FAKE_REQUIRE(request->blob_bytes <= WORKER_BLOB_MAX && request->blob_offset <= request->blob_bytes &&
		     request->blob_size <= request->blob_bytes - request->blob_offset);
	if (request->blob_size > 0)
		memcpy(fake->state + request->blob_offset, request->blob, request->blob_size);
}

static void fake_give_state(struct fake *fake, const struct worker_message *request, struct worker_message *answer)
{
	FAKE_REQUIRE(request->blob_offset <= fake->state_bytes);
	size_t rest = fake->state_bytes - request->blob_offset;
	answer->blob_bytes = fake->state_bytes;
	answer->blob_size = rest < WORKER_BLOB_PART_MAX ? rest : WORKER_BLOB_PART_MAX;
	answer->blob = malloc(answer->blob_size + 1);
	FAKE_REQUIRE(answer->blob);
	memcpy(answer->blob, fake->state + request->blob_offset, answer->blob_size);
}

/* What the request does, and what the answer says. */
static void fake_serve(struct fake *fake, const struct worker_message *request, struct worker_message *answer, int *fds,
		       size_t *ret_fd_count)
{
	uint32_t unit = request->unit;
	bool of_unit = unit < fake->unit_count;
	size_t elements = of_unit ? fake->units[unit].elements : 0;
	float *master = fake->master ? fake->master + fake_place(fake, unit) : NULL;
	switch (request->op) {
	case WORKER_HELLO:
	case WORKER_GROUP:
		answer->world_size = 1;
		answer->generation = 77;
		break;
	case WORKER_OPEN:
		answer->handle = 5;
		break;
	case WORKER_UNIT:
		fake_add_unit(fake, request);
		break;
	case WORKER_SEAL:
		fake_seal(fake, answer, fds, ret_fd_count);
		break;
	case WORKER_PLACES:
		fake_places(fake, request, answer);
		break;
	case WORKER_LOAD:
		FAKE_REQUIRE(of_unit && request->slot == fake_slot(unit));
		memcpy(master, fake_at(fake->grad, unit), elements * sizeof(float));
		break;
	case WORKER_UNSHARD:
		FAKE_REQUIRE(of_unit);
		if (fake->units[unit].unshards++ == 0)
			memcpy(fake_at(fake->gather, unit), master, elements * sizeof(float));
		fake->unshards++;
		answer->slot = fake_slot(unit);
		break;
	case WORKER_RESHARD:
		FAKE_REQUIRE(of_unit && fake->units[unit].unshards > 0);
		fake->units[unit].unshards--;
		fake->unshards--;
		break;
	case WORKER_GRAD:
		FAKE_REQUIRE(of_unit);
		answer->slot = fake_slot(unit);
		break;
	case WORKER_REDUCE:
		FAKE_REQUIRE(of_unit);
		for (size_t i = 0; i < elements; i++)
			fake->gradient[fake_place(fake, unit) + i] += fake_at(fake->grad, unit)[i];
		break;
	case WORKER_NEXT_MICRO_BATCH:
		fake->micro_batch++;
		break;
	case WORKER_BLOB:
		fake_take_state(fake, request);
		break;
	case WORKER_STATE:
		fake_give_state(fake, request, answer);
		break;
	case WORKER_STEP:
		fake_take_state(fake, request);
		fake->state_bytes = request->blob_bytes;
		fake_step(fake, request);
		break;
	case WORKER_ABORT:
		fake->attempt++;
		fake->micro_batch = 0;
		break;
	case WORKER_ALL_REDUCE: /* as if another rank had given the same */
		answer->value_count = request->value_count;
		answer->values = calloc(request->value_count + 1, sizeof(*answer->values));
		FAKE_REQUIRE(answer->values);
		for (size_t i = 0; i < request->value_count; i++)
			answer->values[i] =
				request->combine == WORKER_SUM ? 2 * request->values[i] : request->values[i];
		break;
	case WORKER_NORM:
		answer->norm = request->norm_kind == 1 ? 5 : 4;
		answer->finite = true;
		break;
	case WORKER_WEIGHT:
		fake->weight = request->weight;
		break;
	case WORKER_UNSHARD_START:
	case WORKER_SYNC:
	case WORKER_CLOSE:
	case WORKER_SET_UNIT:
	case WORKER_UNITS:
	case WORKER_SHARD:
		break;
	}
}

static void fake_answer(struct fake *fake, const struct worker_message *request)
{
	static _Thread_local unsigned char data[FRAME_BYTES_MAX];
	struct worker_message answer = { .op = request->op, .request = request->request, .answer = true };
	int fds[FRAME_FDS_MAX];
	size_t fd_count = 0;
	fake_serve(fake, request, &answer, fds, &fd_count);
	answer.step = fake->step;
	answer.attempt = fake->attempt;
	answer.micro_batch = fake->micro_batch;
	enum fake_verdict verdict = fake->hook ? fake->hook(fake, request, &answer, fds, &fd_count) : FAKE_SEND;
	if (verdict == FAKE_SEND) {
		long size = worker_message_write(&answer, data);
		FAKE_REQUIRE(size > 0);
		(void)frame_send(fake->connection, data, (size_t)size, fds, fd_count); /* the library may have left */
	}
	for (size_t i = 0; i < fd_count; i++)
		close(fds[i]);
	if (verdict == FAKE_HOLD) {
		FAKE_REQUIRE(!fake->holding && !answer.places && !answer.values && !answer.blob);
		fake->held = answer;
		fake->holding = true;
		return;
	}
	worker_message_fini(&answer);
	if (verdict == FAKE_DROP) {
		close(fake->connection);
		fake->connection = -1;
	}
}

static void fake_receive(struct fake *fake)
{
	static _Thread_local unsigned char data[FRAME_BYTES_MAX];
	int fds[FRAME_FDS_MAX];
	size_t fd_count = 0;
	long size = frame_receive(fake->connection, data, fds, &fd_count);
	if (size <= 0) {
		close(fake->connection);
		fake->connection = -1;
		return;
	}
	struct worker_message request;
	FAKE_REQUIRE(fd_count == 0 && worker_message_read(data, (size_t)size, &request) == 0 && !request.answer);
	fake->last[request.op] = request;
	fake->seen[request.op]++;
	fake_answer(fake, &request);
	worker_message_fini(&request);
}

static void fake_send_held(struct fake *fake)
{
	unsigned char data[4096];
	long size = worker_message_write(&fake->held, data);
	FAKE_REQUIRE(size > 0);
	fake->holding = false;
	(void)frame_send(fake->connection, data, (size_t)size, NULL, 0);
}

static void *fake_run(void *context)
{
	struct fake *fake = context;
	for (;;) {
		struct pollfd polls[] = {
			{ .fd = fake->wake[0], .events = POLLIN },
			{ .fd = fake->connection >= 0 ? fake->connection : fake->listener, .events = POLLIN },
		};
		FAKE_REQUIRE(poll(polls, 2, -1) > 0 || errno == EINTR);
		if (polls[0].revents) {
			char word;
			FAKE_REQUIRE(read(fake->wake[0], &word, 1) == 1);
			if (word == 'q')
				return NULL;
			fake_send_held(fake);
		} else if (polls[1].revents && fake->connection >= 0) {
			fake_receive(fake);
		} else if (polls[1].revents) {
			fake->connection = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
			FAKE_REQUIRE(fake->connection >= 0);
		}
	}
}

struct fake *fake_start(void)
{
	struct fake *fake = calloc(1, sizeof(*fake));
	FAKE_REQUIRE(fake);
	strcpy(fake->folder, "/tmp/fsdp-client-XXXXXX");
	FAKE_REQUIRE(mkdtemp(fake->folder));
	snprintf(fake->path, sizeof(fake->path), "%s/client.sock", fake->folder);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	strcpy(address.sun_path, fake->path);
	fake->connection = -1;
	fake->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	FAKE_REQUIRE(fake->listener >= 0);
	FAKE_REQUIRE(bind(fake->listener, (struct sockaddr *)&address, sizeof(address)) == 0);
	FAKE_REQUIRE(listen(fake->listener, 8) == 0 && pipe2(fake->wake, O_CLOEXEC) == 0);
	FAKE_REQUIRE(pthread_create(&fake->thread, NULL, fake_run, fake) == 0);
	return fake;
}

void fake_release(struct fake *fake)
{
	while (!fake->holding)
		sched_yield();
	FAKE_REQUIRE(write(fake->wake[1], "r", 1) == 1);
}

void fake_stop(struct fake *fake)
{
	FAKE_REQUIRE(write(fake->wake[1], "q", 1) == 1);
	pthread_join(fake->thread, NULL);
	if (fake->connection >= 0)
		close(fake->connection);
	close(fake->listener);
	close(fake->wake[0]);
	close(fake->wake[1]);
	if (fake->master) {
		munmap(fake->master, FAKE_SHARD_BYTES);
		munmap(fake->gradient, FAKE_SHARD_BYTES);
		munmap(fake->stage, FAKE_SHARD_BYTES);
		munmap(fake->gather, FAKE_POOL_BYTES);
		munmap(fake->grad, FAKE_POOL_BYTES);
		close(fake->masters);
		close(fake->gradients);
		close(fake->staging);
		close(fake->gathers);
		close(fake->grads);
	}
	unlink(fake->path);
	rmdir(fake->folder);
	free(fake);
}
