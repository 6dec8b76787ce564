/*
 * fsdpd: arguments, configuration, then the parts of the daemon, made in order and unmade backward. What runs is in
 * loop.c (this thread) and bulk.c (the engine's).
 */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sysexits.h>
#include <unistd.h>

#include "daemon/bulk.h"
#include "daemon/config.h"
#include "daemon/loop.h"
#include "daemon/options.h"
#include "daemon/runtime/exec.h"
#include "daemon/runtime/log.h"
#include "daemon/runtime/mailbox.h"
#include "daemon/sockets.h"
#include "daemon/store/command.h"
#include "fsdp/error.h"

/* Messages of a MiB come and go all the time: they are kept in the heap instead of being mapped and faulted in anew
 * each time. */
#define MAIN_MMAP_THRESHOLD (32 << 20)
#define MAIN_TRIM_THRESHOLD (512 << 20)

struct daemon {
	struct config config;
	uint64_t incarnation, first_model;
	struct sockets sockets;
	struct mailbox *reports;
	struct exec *exec;
	struct bulk *bulk;
	struct loop *loop;
	bool is_stuck; /* memory that others may still touch could not be freed */
};

static int init_process(struct daemon *daemon)
{
	sigset_t signals;

	mallopt(M_MMAP_THRESHOLD, MAIN_MMAP_THRESHOLD);
	mallopt(M_TRIM_THRESHOLD, MAIN_TRIM_THRESHOLD);
	log_set_level((enum log_level)daemon->config.log_level);
	log_set_identity(daemon->config.cluster, (unsigned)daemon->config.rank);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	return sigprocmask(SIG_BLOCK, &signals, NULL) < 0 ? -errno : 0;
}

/* Zero means "not known" to everybody. */
static int draw(uint64_t *ret_number)
{
	do {
		if (getrandom(ret_number, sizeof(*ret_number), 0) != sizeof(*ret_number))
			return -EIO;
	} while (*ret_number == 0);
	return 0;
}

static int init_identity(struct daemon *daemon)
{
	int code = draw(&daemon->incarnation);

	return code < 0 ? code : draw(&daemon->first_model);
}

static int init_sockets(struct daemon *daemon)
{
	return sockets_init(&daemon->sockets, &daemon->config);
}

static void fini_sockets(struct daemon *daemon)
{
	sockets_fini(&daemon->sockets);
}

static int init_exec(struct daemon *daemon)
{
	return exec_new((unsigned)daemon->config.exec_threads, &daemon->exec);
}

static void fini_exec(struct daemon *daemon)
{
	exec_free(daemon->exec);
}

static int init_reports(struct daemon *daemon)
{
	return mailbox_new(&daemon->reports);
}

static void fini_reports(struct daemon *daemon)
{
	struct letter *letter;

	while ((letter = mailbox_take(daemon->reports)))
		report_free((struct report *)letter);
	mailbox_free(daemon->reports);
}

static int init_bulk(struct daemon *daemon)
{
	struct bulk_config bulk = {
		.config = &daemon->config,
		.incarnation = daemon->incarnation,
		.fd = daemon->sockets.fds[SOCKETS_BULK_PLANE],
		.exec = daemon->exec,
		.reports = daemon->reports,
	};
	int code = bulk_new(&bulk, &daemon->bulk);

	if (code < 0) {
		log_event(LOG_LEVEL_ERROR, "the bulk plane cannot be made", "endpoint=%s why=" LOG_QUOTED,
			  daemon->config.peers[daemon->config.rank].bulk,
			  code > -1000 ? strerror(-code) : "it is not valid");
		return code;
	}
	sockets_take(&daemon->sockets, SOCKETS_BULK_PLANE); /* the transport's now */
	return bulk_start(daemon->bulk);
}

static void fini_bulk(struct daemon *daemon)
{
	daemon->is_stuck = !bulk_free(daemon->bulk);
}

static int init_loop(struct daemon *daemon)
{
	struct loop_config loop = {
		.config = &daemon->config,
		.incarnation = daemon->incarnation,
		.first_model = daemon->first_model,
		.sockets = &daemon->sockets,
		.exec = daemon->exec,
		.bulk = daemon->bulk,
		.reports = daemon->reports,
	};

	return loop_new(&loop, &daemon->loop);
}

static void fini_loop(struct daemon *daemon)
{
	daemon->is_stuck = !loop_free(daemon->loop);
}

static const struct part {
	const char *name;
	int (*init)(struct daemon *daemon);
	void (*fini)(struct daemon *daemon);
	bool always; /* fini is called even when a thread is stuck: it touches nothing of its */
} parts[] = {
	{ "the process", init_process, NULL, false },
	{ "an identity", init_identity, NULL, false },
	{ "the local sockets", init_sockets, fini_sockets, true },
	{ "the thread pool", init_exec, fini_exec, false },
	{ "the reports' mailbox", init_reports, fini_reports, false },
	{ "the engine", init_bulk, fini_bulk, false },
	{ "the loop", init_loop, fini_loop, false },
};

#define PART_COUNT (sizeof(parts) / sizeof(parts[0]))

static int run(struct daemon *daemon)
{
	const struct config *config = &daemon->config;
	int exit_code = EXIT_FAILURE;
	size_t made = 0;

	for (; made < PART_COUNT; made++) {
		int code = parts[made].init(daemon);

		if (code < 0) {
			log_event(LOG_LEVEL_ERROR, "cannot start", "part=" LOG_QUOTED " code=%d", parts[made].name,
				  code);
			break;
		}
	}
	if (made == PART_COUNT) {
		log_event(LOG_LEVEL_NOTICE, "fsdpd is listening",
			  "version=%s world_size=%u incarnation=%016" PRIx64
			  " control_plane=%s bulk_plane=%s client=" LOG_QUOTED " control=" LOG_QUOTED,
			  FSDP_VERSION, config->world_size, daemon->incarnation, config->peers[config->rank].control,
			  config->peers[config->rank].bulk, config->client_socket, config->control_socket);
		exit_code = loop_run(daemon->loop);
	}
	while (made > 0) {
		made--;
		if (parts[made].fini && (!daemon->is_stuck || parts[made].always))
			parts[made].fini(daemon);
	}
	return exit_code;
}

int main(int argc, char **argv)
{
	struct options options = options_parse(argc, argv);
	struct daemon daemon = { 0 };
	int code, exit_code;

	if (options.action == OPTIONS_LEAVE)
		return options.exit_code;
	code = config_read(options.config_path, stderr, &daemon.config);
	if (code < 0)
		return code == FSDP_E_CONFIG ? EX_CONFIG : EXIT_FAILURE;
	if (options.action == OPTIONS_CHECK) {
		printf("%s: ok: cluster %s, rank %" PRIu64 " of %u\n", options.config_path, daemon.config.cluster,
		       daemon.config.rank, daemon.config.world_size);
		config_fini(&daemon.config);
		return EXIT_SUCCESS;
	}
	exit_code = run(&daemon);
	log_event(LOG_LEVEL_NOTICE, "fsdpd has left", "exit_code=%d", exit_code);
	if (daemon.is_stuck) {
		log_event(LOG_LEVEL_WARNING, "some memory was still in use at the end", "after_ms=%u", BULK_STOP_MS);
		_exit(exit_code);
	}
	config_fini(&daemon.config);
	return exit_code;
}
