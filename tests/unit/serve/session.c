/*
 * The two local sockets over a real group of one rank: what each request needs, what comes with a seal, and that
 * whoever misbehaves loses its own connection and nothing else. No thread and no engine: jobs run at once, commands are
 * dropped.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/serve/listener.h"
#include "daemon/serve/serve.h"
#include "fsdp/error.h"
#include "proto/control_message.h"
#include "proto/frame.h"
#include "proto/worker_message.h"

static int send_nowhere(struct transport *t, uint32_t rank, const void *header, size_t size,
			struct transport_piece payload)
{
	(void)t;
	(void)rank;
	(void)header;
	(void)size;
	(void)payload;
	return -ENOTCONN;
}

static int answer_nobody(struct transport *t, transport_connection connection, const void *header, size_t size)
{
	(void)t;
	(void)connection;
	(void)header;
	(void)size;
	return -ENOTCONN;
}

static void reset_nothing(struct transport *t, uint32_t rank)
{
	(void)t;
	(void)rank;
}

static void drop_nothing(struct transport *t, transport_connection connection)
{
	(void)t;
	(void)connection;
}

static struct transport nowhere = { send_nowhere, answer_nobody, reset_nothing, drop_nothing };

static void submit_at_once(struct executor *executor, struct job *job)
{
	(void)executor;
	job->run(job);
	job->done(job);
}

static struct executor at_once = { submit_at_once };

static struct {
	char folder[64], client[96], control[96];
	int client_fd, control_fd;
	sd_event *event;
	struct group *group;
	struct serve *serve;
	struct link_counters links;
	struct engine_counters engine;
	uint64_t request;
} f;

static void take_command(void *context, struct command *command)
{
	(void)context;
	command_free(command);
}

static void take_notice(void *context, const struct notice *notice)
{
	(void)context;
	(void)notice;
}

static void begin_with(uint64_t gather_bytes)
{
	static const char *const endpoints[] = { "127.0.0.1:1" };
	struct group_config group = { .world_size = 1,
				      .cluster = "c",
				      .incarnation = 7,
				      .operation_ms = 60000,
				      .grace_ms = 1000,
				      .heartbeat_ms = 100,
				      .suspicion_ms = 300,
				      .first_model = 1,
				      .transport = &nowhere,
				      .command = take_command,
				      .notice = take_notice,
				      .link_counters = &f.links };

	strcpy(f.folder, "/tmp/fsdpd-serve-XXXXXX");
	cr_assert_not_null(mkdtemp(f.folder));
	snprintf(f.client, sizeof(f.client), "%s/client", f.folder);
	snprintf(f.control, sizeof(f.control), "%s/control", f.folder);
	cr_assert_eq(listener_bind(f.client, 0660, &f.client_fd), 0);
	cr_assert_eq(listener_bind(f.control, 0600, &f.control_fd), 0);
	cr_assert_geq(sd_event_new(&f.event), 0);
	cr_assert_eq(group_new(&group, &f.group), 0);
	group_tick(f.group, 1000);
	struct serve_config serve = { .event = f.event,
				      .group = f.group,
				      .executor = &at_once,
				      .client_fd = f.client_fd,
				      .control_fd = f.control_fd,
				      .world_size = 1,
				      .cluster = "c",
				      .incarnation = 7,
				      .gather_bytes = gather_bytes,
				      .endpoints = endpoints,
				      .control_links = &f.links,
				      .bulk_links = &f.links,
				      .engine = &f.engine };
	cr_assert_eq(serve_new(&serve, &f.serve), 0);
}

static void begin(void)
{
	begin_with(0);
}

static void end(void)
{
	serve_free(f.serve);
	group_free(f.group);
	sd_event_unref(f.event);
	close(f.client_fd);
	close(f.control_fd);
	unlink(f.client);
	unlink(f.control);
	rmdir(f.folder);
}

TestSuite(session, .init = begin, .fini = end, .timeout = 30);

static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strcpy(address.sun_path, path);
	cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/* Lets the loop work until fd is readable. */
static void await(int fd)
{
	struct pollfd item = { .fd = fd, .events = POLLIN };

	while (poll(&item, 1, 0) == 0)
		cr_assert_geq(sd_event_run(f.event, 5000000), 1, "nothing came within 5 s");
}

static void await_end(int fd)
{
	unsigned char record[FRAME_BYTES_MAX];
	int fds[FRAME_FDS_MAX];
	size_t fd_count;
	long size;

	do {
		await(fd);
		size = frame_receive(fd, record, fds, &fd_count);
	} while (size > 0);
	cr_assert_eq(size, 0);
	close(fd);
}

static void send_request(int fd, struct worker_message *request)
{
	unsigned char record[FRAME_BYTES_MAX];
	long size;

	request->request = ++f.request;
	size = worker_message_write(request, record);
	cr_assert_gt(size, 0);
	cr_assert_eq(frame_send(fd, record, (size_t)size, NULL, 0), 0);
}

static struct worker_message ask_fds(int fd, struct worker_message request, int *fds, size_t *ret_count)
{
	unsigned char record[FRAME_BYTES_MAX];
	struct worker_message answer;
	long size;

	send_request(fd, &request);
	await(fd);
	size = frame_receive(fd, record, fds, ret_count);
	cr_assert_gt(size, 0);
	cr_assert_eq(worker_message_read(record, (size_t)size, &answer), 0);
	cr_assert(answer.answer);
	cr_assert_eq(answer.request, request.request);
	cr_assert_eq(answer.op, request.op);
	return answer;
}

/* Lists are freed: for answers without any. */
static struct worker_message ask(int fd, struct worker_message request)
{
	int fds[FRAME_FDS_MAX];
	size_t count = 0;
	struct worker_message answer = ask_fds(fd, request, fds, &count);

	cr_assert_eq(count, 0);
	worker_message_fini(&answer);
	return answer;
}

static int worker(void)
{
	int fd = connect_to(f.client);
	struct worker_message answer =
		ask(fd, (struct worker_message){ .op = WORKER_HELLO, .protocol = WORKER_PROTOCOL });

	cr_assert_eq(answer.code, 0, "%s", answer.text);
	cr_assert_eq(answer.world_size, 1);
	return fd;
}

static struct worker_message open_message(const char *name)
{
	struct worker_message open = { .op = WORKER_OPEN, .scale = 1, .local_workers = 1 };

	strcpy(open.name, name);
	return open;
}

/* A model of one unit "u" with a parameter of that dtype and as many elements. */
static uint32_t open_model(int fd, const char *name, uint32_t dtype, uint64_t elements)
{
	struct worker_param param = { .name = "w", .dtype = dtype, .ndim = 1, .shape = { elements } };
	struct worker_message answer = ask(fd, open_message(name));
	uint32_t handle = answer.handle;

	cr_assert_eq(answer.code, 0, "%s", answer.text);
	answer =
		ask(fd, (struct worker_message){
				.op = WORKER_UNIT, .handle = handle, .name = "u", .params = &param, .param_count = 1 });
	cr_assert_eq(answer.code, 0, "%s", answer.text);
	return handle;
}

static struct control_message ask_control(enum control_op op, const char *name)
{
	unsigned char record[FRAME_BYTES_MAX];
	struct control_message question = { .op = op, .protocol = CONTROL_PROTOCOL }, answer;
	int fd = connect_to(f.control), fds[FRAME_FDS_MAX];
	size_t count;
	long size;

	strcpy(question.name, name);
	size = control_message_write(&question, record);
	cr_assert_gt(size, 0);
	cr_assert_eq(frame_send(fd, record, (size_t)size, NULL, 0), 0);
	await(fd);
	size = frame_receive(fd, record, fds, &count);
	cr_assert_gt(size, 0);
	cr_assert_eq(control_message_read(record, (size_t)size, &answer), 0);
	cr_assert_not(answer.more);
	close(fd);
	return answer;
}

static uint64_t malformed(void)
{
	struct control_message answer = ask_control(CONTROL_STATUS, "");
	uint64_t count = answer.status.malformed;

	cr_assert(answer.has_status);
	control_message_fini(&answer);
	return count;
}

Test(session, a_request_before_hello_is_refused)
{
	int fd = connect_to(f.client);

	cr_assert_eq(ask(fd, open_message("m")).code, FSDP_E_PROTOCOL);
	cr_assert_eq(ask(fd, (struct worker_message){ .op = WORKER_HELLO, .protocol = 99 }).code, FSDP_E_PROTOCOL);
	cr_assert_eq(ask(fd, open_message("m")).code, FSDP_E_PROTOCOL);
	close(fd);
}

Test(session, what_a_request_lacks_is_its_error)
{
	int fd = worker();
	uint32_t handle;

	cr_assert_eq(ask(fd, (struct worker_message){ .op = WORKER_SEAL, .handle = 5 }).code, FSDP_E_NOT_FOUND);
	handle = open_model(fd, "m", FSDP_F32, 5);
	cr_assert_eq(ask(fd, (struct worker_message){ .op = WORKER_UNSHARD, .handle = handle }).code, FSDP_E_STATE);
	cr_assert_eq(ask(fd, (struct worker_message){ .op = WORKER_STEP, .handle = handle }).code, FSDP_E_STATE);
	cr_assert_eq(ask(fd, (struct worker_message){ .op = WORKER_CLOSE, .handle = handle }).code, 0);
	cr_assert_eq(ask(fd, (struct worker_message){ .op = WORKER_CLOSE, .handle = handle }).code, FSDP_E_NOT_FOUND);
	close(fd);
}

Test(session, a_seal_brings_descriptors_that_are_writable_where_a_worker_writes)
{
	static const int modes[] = { O_RDONLY, O_RDONLY, O_RDWR, O_RDONLY, O_RDWR };
	int fd = worker(), fds[FRAME_FDS_MAX];
	uint32_t handle = open_model(fd, "m", FSDP_F32, 5);
	size_t count = 0;
	struct worker_message answer =
		ask_fds(fd, (struct worker_message){ .op = WORKER_SEAL, .handle = handle }, fds, &count);

	cr_assert_eq(answer.code, 0, "%s", answer.text);
	cr_assert_not(answer.resumed);
	cr_assert_eq(count, 5);
	for (int i = 0; i < 5; i++) {
		const uint64_t bytes[] = { answer.shard_bytes, answer.shard_bytes, answer.shard_bytes,
					   answer.gather_bytes, answer.grad_bytes };
		struct stat status;

		cr_assert_eq(fcntl(fds[i], F_GETFL) & O_ACCMODE, modes[i]);
		cr_assert_eq(fstat(fds[i], &status), 0);
		cr_assert_eq((uint64_t)status.st_size, bytes[i]);
		close(fds[i]);
	}
	worker_message_fini(&answer);
	answer = ask_fds(fd, (struct worker_message){ .op = WORKER_PLACES, .handle = handle }, fds, &count);
	cr_assert_eq(answer.place_count, 1);
	cr_assert_eq(answer.places[0].full_bytes, 20);
	cr_assert_eq(answer.places[0].shard_count, 5);
	worker_message_fini(&answer);
	answer = ask_fds(fd, (struct worker_message){ .op = WORKER_UNITS, .handle = handle }, fds, &count);
	cr_assert_str_eq(answer.name, "u");
	cr_assert_eq(answer.param_count, 1);
	cr_assert_str_eq(answer.params[0].name, "w");
	worker_message_fini(&answer);
	cr_assert_eq(ask(fd, (struct worker_message){ .op = WORKER_PLACES, .handle = handle, .unit = 1 }).code,
		     FSDP_E_NOT_FOUND);
	cr_assert_eq(ask(fd, (struct worker_message){ .op = WORKER_STEP, .handle = handle, .commit = 9 }).code,
		     FSDP_E_INVALID);
	cr_assert_eq(ask(fd, (struct worker_message){ .op = WORKER_SEAL, .handle = handle }).code, FSDP_E_STATE);
	cr_assert_eq(ask(fd, (struct worker_message){ .op = WORKER_UNIT, .handle = handle, .unit = 1 }).code,
		     FSDP_E_STATE);
	close(fd);
}

Test(session, a_second_worker_is_busy_until_the_first_is_gone)
{
	int first = worker(), second = worker(), fds[FRAME_FDS_MAX];
	size_t count = 0;
	struct worker_message seal = { .op = WORKER_SEAL, .handle = open_model(first, "m", FSDP_F32, 5) };
	struct worker_message answer = ask_fds(first, seal, fds, &count);

	cr_assert_eq(answer.code, 0, "%s", answer.text);
	while (count > 0)
		close(fds[--count]);
	seal.handle = open_model(second, "m", FSDP_F32, 5);
	answer = ask(second, seal);
	cr_assert_eq(answer.code, FSDP_E_BUSY, "%s", answer.text);
	close(first);
	do {
		answer = ask_fds(second, seal, fds, &count);
	} while (answer.code == FSDP_E_BUSY);
	cr_assert_eq(answer.code, 0, "%s", answer.text);
	cr_assert(answer.resumed);
	cr_assert_eq(count, 5);
	while (count > 0)
		close(fds[--count]);
	close(second);
}

Test(session, a_dtype_that_is_not_supported_is_named)
{
	int fd = worker();
	uint32_t handle = open_model(fd, "m", FSDP_BF16, 5);
	struct worker_message answer = ask(fd, (struct worker_message){ .op = WORKER_SEAL, .handle = handle });

	cr_assert_eq(answer.code, FSDP_E_DTYPE);
	cr_assert(strstr(answer.text, "unit \"u\", entry 0: w is bf16[5]"), "%s", answer.text);
	cr_assert_eq(ask(fd, (struct worker_message){ .op = WORKER_SEAL, .handle = handle }).code, FSDP_E_DTYPE);
	close(fd);
}

Test(session, models_of_a_connection_are_limited)
{
	int fd = worker();
	char name[] = "a";

	for (unsigned i = 0; i < 16; i++, name[0]++)
		cr_assert_eq(ask(fd, open_message(name)).code, 0);
	cr_assert_eq(ask(fd, open_message(name)).code, FSDP_E_OVERFLOW);
	close(fd);
}

Test(session, a_malformed_record_ends_its_connection_and_no_other)
{
	int good = worker(), bad;
	static const unsigned char garbage[] = { 0xff, 0xff, 0xff, 0xff, 1, 2, 3 };

	bad = worker();
	cr_assert_eq(frame_send(bad, garbage, sizeof(garbage), NULL, 0), 0);
	await_end(bad);
	bad = worker();
	send_request(bad, &(struct worker_message){ .op = WORKER_HELLO, .answer = true });
	await_end(bad);
	cr_assert_eq(malformed(), 2);
	cr_assert_eq(ask(good, (struct worker_message){ .op = WORKER_GROUP }).code, 0);
	close(good);
}

Test(session, descriptors_that_nobody_wants_end_the_connection)
{
	int bad = worker();
	unsigned char record[FRAME_BYTES_MAX];
	long size = worker_message_write(&(struct worker_message){ .op = WORKER_GROUP, .request = 1 }, record);

	int code = frame_send(bad, record, (size_t)size, &bad, 1);
	if (code == -EPERM) { /* the kernel refuses them in the daemon's name */
		close(bad);
		return;
	}
	cr_assert_eq(code, 0);
	await_end(bad);
	cr_assert_eq(malformed(), 1);
}

Test(session, who_does_not_read_is_dropped)
{
	int fd = worker();
	unsigned char record[FRAME_BYTES_MAX];
	long size = worker_message_write(&(struct worker_message){ .op = WORKER_GROUP, .request = 1 }, record);
	int code = 0;

	for (unsigned i = 0; i < 100000 && code == 0; i++) {
		code = frame_send(fd, record, (size_t)size, NULL, 0);
		sd_event_run(f.event, 0);
	}
	cr_assert_eq(code, -EPIPE);
	close(fd);
	close(worker());
}

Test(session, a_dead_process_is_seen_though_its_child_holds_the_socket)
{
	int gate[2];
	struct control_message answer;
	pid_t pid;
	char byte;

	cr_assert_eq(pipe(gate), 0);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0) {
		(void)connect_to(f.client);
		if (fork() == 0) {
			close(gate[1]);
			(void)!read(gate[0], &byte, 1); /* until the test ends */
			_exit(0);
		}
		_exit(0);
	}
	close(gate[0]);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	do {
		answer = ask_control(CONTROL_WORKERS, "");
		control_message_fini(&answer);
		cr_assert_leq(answer.worker_count, 1);
	} while (answer.worker_count > 0);
	close(gate[1]);
}

Test(session, a_daemon_that_leaves_says_so)
{
	int fd = worker();
	uint32_t handle = open_model(fd, "m", FSDP_F32, 5);

	serve_stop(f.serve);
	cr_assert(serve_is_idle(f.serve));
	cr_assert_eq(ask(fd, (struct worker_message){ .op = WORKER_SEAL, .handle = handle }).code, FSDP_E_STOPPED);
	cr_assert_eq(ask(fd, open_message("n")).code, FSDP_E_STOPPED);
	close(fd);
}

Test(session, an_operator_sees_models_units_and_workers)
{
	int fd = worker(), fds[FRAME_FDS_MAX];
	size_t count = 0;
	uint32_t handle = open_model(fd, "m", FSDP_F32, 5);
	struct control_message answer;
	struct worker_message sealed =
		ask_fds(fd, (struct worker_message){ .op = WORKER_SEAL, .handle = handle }, fds, &count);

	cr_assert_eq(sealed.code, 0, "%s", sealed.text);
	while (count > 0)
		close(fds[--count]);
	answer = ask_control(CONTROL_STATUS, "");
	cr_assert_eq(answer.status.joined, 1);
	cr_assert_not(answer.status.degraded);
	cr_assert_eq(answer.model_count, 1);
	cr_assert_eq(answer.models[0].parameters, 5);
	cr_assert_eq(answer.models[0].workers, 1);
	control_message_fini(&answer);
	answer = ask_control(CONTROL_UNITS, "m");
	cr_assert_eq(answer.unit_count, 1);
	cr_assert_str_eq(answer.units[0].name, "u");
	cr_assert_eq(answer.units[0].full_bytes, 20);
	control_message_fini(&answer);
	answer = ask_control(CONTROL_WORKERS, "");
	cr_assert_eq(answer.worker_count, 1);
	cr_assert_eq(answer.workers[0].pid, getpid());
	cr_assert_str_eq(answer.workers[0].model, "m");
	control_message_fini(&answer);
	answer = ask_control(CONTROL_UNITS, "other");
	cr_assert_eq(answer.code, FSDP_E_NOT_FOUND);
	control_message_fini(&answer);
	answer = ask_control(CONTROL_MODEL_DROP, "");
	cr_assert_eq(answer.code, FSDP_E_INVALID);
	control_message_fini(&answer);
	answer = ask_control(CONTROL_MODEL_DROP, "m");
	cr_assert_lt(answer.code, 0);
	control_message_fini(&answer);
	close(fd);
}

TestSuite(small_budget, .timeout = 30, .fini = end);

Test(small_budget, a_unit_that_a_pool_cannot_hold_is_named_with_both_numbers)
{
	begin_with(4096);
	int fd = worker();
	uint32_t handle = open_model(fd, "m", FSDP_F32, 2000);
	struct worker_message answer = ask(fd, (struct worker_message){ .op = WORKER_SEAL, .handle = handle });

	cr_assert_eq(answer.code, FSDP_E_BUDGET);
	cr_assert(strstr(answer.text, "\"u\", needs 8192 bytes, but [memory] gather-budget is 4096 bytes"), "%s",
		  answer.text);
	close(fd);
}
