/*
 * fsdp-run: the embedded default. Starts a private cluster of daemons on this machine and one command for each, passes
 * their output and signals on, ends everything when one fails, and leaves nothing behind.
 *
 * One thread: it waits for output (poll) and for signals (a signalfd), and nothing else. Every child is the leader of a
 * process group of its own, so that what a trainer started ends with it, and dies with us if we are killed.
 */
#include "client/run/cluster.h"
#include "client/run/output.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GRACE_MS 5000 /* between SIGTERM and SIGKILL */
#define EXIT_USAGE 2

struct child {
	pid_t pid; /* 0: not started, or reaped */
	bool daemon;
	unsigned rank;
	struct output out, err;
};

struct run {
	struct cluster cluster;
	struct child *children; /* nodes daemons, then nodes commands */
	unsigned count;
	char **command;
	char daemon[PATH_MAX];
	sigset_t before; /* the signal mask that children get */
	int signals;     /* signalfd */
	bool ending;     /* commands were told to end */
	bool draining;   /* daemons were told to end */
	int64_t kill_at_ms;
	bool terminal; /* our output is one */
	int result;    /* exit code; the first failure counts */
};

static const char usage[] =
	"usage: fsdp-run [OPTION]... -- COMMAND [ARGUMENT]...\n"
	"\n"
	"Starts private daemons on this machine and one COMMAND for each, with FSDP_SOCKET, FSDP_CONTROL_SOCKET, RANK "
	"and\n"
	"WORLD_SIZE set. Ends everything when one fails, and leaves nothing behind.\n"
	"\n"
	"  -n, --nodes N            daemons, and commands (default 1, at most 256)\n"
	"  -s, --set SECTION.KEY=V  a line for the daemons' configuration (deadlines, memory, threads), may be "
	"repeated\n"
	"  -d, --daemon PATH        the daemon (default: fsdpd beside this program, in ../sbin, or on the PATH)\n"
	"  -v, --verbose            show what the daemons log at level info, not only warnings\n"
	"  -V, --version\n"
	"  -h, --help\n"
	"\n"
	"Exit code: 0 when every command ended with 0; else that of the first that did not (128 + signal where it was "
	"killed);\n"
	"2 for wrong usage; 1 when the cluster could not be started, or a daemon ended too early or with an error.\n";

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The daemon of the same build or installation as this program, before one that happens to be on the PATH. */
static void find_daemon(char *path, size_t size)
{
	static const char *const places[] = { "fsdpd", "../sbin/fsdpd", "../../daemon/fsdpd" };
	char self[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (length > 0) {
		self[length] = '\0';
		char *slash = strrchr(self, '/');
		slash[1] = '\0';
		for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
			if ((size_t)snprintf(path, size, "%s%s", self, places[i]) < size && access(path, X_OK) == 0)
				return;
		}
	}
	snprintf(path, size, "fsdpd");
}

static void set_number(const char *name, unsigned value)
{
	char text[16];
	snprintf(text, sizeof(text), "%u", value);
	setenv(name, text, 1);
}

/* In the child of a daemon: the listeners become descriptors 3 to 6, as systemd would pass them. */
static void pass_listeners(const struct cluster_node *node)
{
	int high[4];
	for (int k = 0; k < 4; k++)
		high[k] = fcntl(node->fds[k], F_DUPFD, 64);
	for (int k = 0; k < 4; k++) {
		dup2(high[k], 3 + k);
		close(high[k]);
	}
	set_number("LISTEN_PID", (unsigned)getpid());
	set_number("LISTEN_FDS", 4);
	setenv("LISTEN_FDNAMES", CLUSTER_FD_NAMES, 1);
}

static _Noreturn void exec_child(struct run *run, const struct child *child, const int out[2], const int err[2])
{
	const struct cluster_node *node = &run->cluster.node[child->rank];
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigprocmask(SIG_SETMASK, &run->before, NULL);
	dup2(out[1], 1);
	dup2(err[1], 2);
	int null = open("/dev/null", O_RDONLY);
	if (null >= 0)
		dup2(null, 0);
	unsetenv("NOTIFY_SOCKET"); /* it is ours, not theirs */
	if (child->daemon) {
		pass_listeners(node);
		execlp(run->daemon, "fsdpd", "--config", node->config, (char *)NULL);
		fprintf(stderr, "fsdp-run: cannot start the daemon %s: %s\n", run->daemon, strerror(errno));
	} else {
		setenv("FSDP_SOCKET", node->client, 1);
		setenv("FSDP_CONTROL_SOCKET", node->control, 1);
		setenv("FSDP_RUN_TERMINAL", run->terminal ? "1" : "0", 1);
		set_number("RANK", child->rank);
		set_number("WORLD_SIZE", run->cluster.nodes);
		execvp(run->command[0], run->command);
		fprintf(stderr, "fsdp-run: cannot start %s: %s\n", run->command[0], strerror(errno));
	}
	_exit(127);
}

static int start_child(struct run *run, struct child *child)
{
	int out[2], err[2];
	if (pipe2(out, O_CLOEXEC) < 0)
		return -errno;
	if (pipe2(err, O_CLOEXEC) < 0) {
		int code = -errno;
		close(out[0]);
		close(out[1]);
		return code;
	}
	pid_t pid = fork();
	if (pid == 0)
		exec_child(run, child, out, err);
	int code = pid < 0 ? -errno : 0;
	close(out[1]);
	close(err[1]);
	if (pid < 0) {
		close(out[0]);
		close(err[0]);
		return code;
	}
	setpgid(pid, pid);
	child->pid = pid;
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	fcntl(err[0], F_SETFL, O_NONBLOCK);
	char name[16];
	snprintf(name, sizeof(name), child->daemon ? "fsdpd %u" : "%u", child->rank);
	output_init(&child->out, out[0], 1, name);
	output_init(&child->err, err[0], 2, name);
	return 0;
}

static int start_all(struct run *run)
{
	for (unsigned i = 0; i < run->count; i++) {
		struct child *child = &run->children[i];
		int code = start_child(run, child);
		if (code < 0) {
			fprintf(stderr, "fsdp-run: cannot start %s: %s\n", child->daemon ? "a daemon" : "a command",
				strerror(-code));
			return code;
		}
		if (child->daemon)
			cluster_close_fds(&run->cluster, child->rank);
	}
	return 0;
}

static void signal_children(struct run *run, bool daemons, int number)
{
	for (unsigned i = 0; i < run->count; i++)
		if (run->children[i].pid > 0 && run->children[i].daemon == daemons)
			kill(-run->children[i].pid, number);
}

static unsigned alive(const struct run *run, bool daemons)
{
	unsigned count = 0;
	for (unsigned i = 0; i < run->count; i++)
		count += run->children[i].pid > 0 && run->children[i].daemon == daemons;
	return count;
}

static void end_commands(struct run *run, int number)
{
	if (!run->ending) {
		run->ending = true;
		run->kill_at_ms = now_ms() + GRACE_MS;
	}
	signal_children(run, false, number);
}

static void ended(struct run *run, struct child *child, int status)
{
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	child->pid = 0;
	output_pump(&child->out);
	output_pump(&child->err);
	/* A command may be over before its daemon can take SIGTERM otherwise. */
	bool told = run->draining && (code == 0 || code == 128 + SIGTERM);
	if (child->daemon && !told) {
		fprintf(stderr, "fsdp-run: the daemon of rank %u ended with %d\n", child->rank, code);
		if (run->result == 0)
			run->result = 1;
		end_commands(run, SIGTERM);
	} else if (!child->daemon && code != 0) {
		if (!run->ending)
			fprintf(stderr, "fsdp-run: rank %u ended with %d: ending the others\n", child->rank, code);
		if (run->result == 0)
			run->result = code;
		end_commands(run, SIGTERM);
	}
}

/* Looks before it reaps: while the leader is a zombie its group's number cannot be taken by a stranger. */
static void reap(struct run *run)
{
	siginfo_t info = { 0 };
	while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0) {
		int status;
		kill(-info.si_pid, SIGKILL); /* what a trainer left in its process group ends with it */
		waitpid(info.si_pid, &status, 0);
		for (unsigned i = 0; i < run->count; i++)
			if (run->children[i].pid == info.si_pid)
				ended(run, &run->children[i], status);
		info.si_pid = 0;
	}
}

static void take_signals(struct run *run)
{
	struct signalfd_siginfo info;
	while (read(run->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		int number = (int)info.ssi_signo;
		if (number == SIGCHLD)
			continue;
		if (number == SIGINT || number == SIGTERM || number == SIGHUP) {
			if (run->result == 0)
				run->result = 128 + number;
			end_commands(run, number);
		} else {
			signal_children(run, false, number);
		}
	}
	reap(run);
}

/* Moves the ending on: commands first, then daemons; who does not go is killed. */
static void move_on(struct run *run)
{
	if (!run->draining && alive(run, false) == 0) {
		run->draining = true;
		run->kill_at_ms = now_ms() + GRACE_MS;
		signal_children(run, true, SIGTERM);
	}
	if ((run->ending || run->draining) && now_ms() >= run->kill_at_ms)
		signal_children(run, run->draining, SIGKILL);
}

static void watch(struct run *run)
{
	struct pollfd *fds = calloc(2 * run->count + 1, sizeof(*fds));
	if (!fds)
		abort();
	while (alive(run, false) + alive(run, true) > 0) {
		for (unsigned i = 0; i < run->count; i++) {
			fds[2 * i] = (struct pollfd){ .fd = run->children[i].out.from, .events = POLLIN };
			fds[2 * i + 1] = (struct pollfd){ .fd = run->children[i].err.from, .events = POLLIN };
		}
		fds[2 * run->count] = (struct pollfd){ .fd = run->signals, .events = POLLIN };
		poll(fds, 2 * run->count + 1, run->ending || run->draining ? 100 : -1);
		for (unsigned i = 0; i < run->count; i++) {
			if (fds[2 * i].revents)
				output_pump(&run->children[i].out);
			if (fds[2 * i + 1].revents)
				output_pump(&run->children[i].err);
		}
		take_signals(run);
		move_on(run);
	}
	free(fds);
}

static void block_signals(struct run *run)
{
	static const int numbers[] = { SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH };
	sigset_t set;
	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		sigaddset(&set, numbers[i]);
	sigprocmask(SIG_BLOCK, &set, &run->before);
	run->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	signal(SIGPIPE, SIG_IGN);
}

static int launch(struct run *run, unsigned nodes, const char *level, char **settings, unsigned setting_count)
{
	block_signals(run);
	run->terminal = isatty(STDOUT_FILENO);
	run->count = 2 * nodes;
	run->children = calloc(run->count, sizeof(*run->children));
	if (!run->children || run->signals < 0) {
		fprintf(stderr, "fsdp-run: %s\n", strerror(run->children ? errno : ENOMEM));
		return 1;
	}
	for (unsigned i = 0; i < run->count; i++)
		run->children[i] =
			(struct child){ .daemon = i < nodes, .rank = i % nodes, .out.from = -1, .err.from = -1 };
	if (cluster_make(&run->cluster, nodes, level, settings, setting_count) < 0) {
		run->result = 1;
	} else {
		if (start_all(run) < 0) {
			run->result = 1;
			end_commands(run, SIGTERM);
		}
		watch(run);
	}
	cluster_remove(&run->cluster);
	free(run->children);
	close(run->signals);
	return run->result;
}

static unsigned parse_nodes(const char *text)
{
	char *end;
	errno = 0;
	unsigned long value = strtoul(text, &end, 10);
	if (errno || *end || end == text || value < 1 || value > CLUSTER_NODES_MAX) {
		fprintf(stderr, "fsdp-run: --nodes takes a whole number from 1 to %d, not \"%s\"\n", CLUSTER_NODES_MAX,
			text);
		exit(EXIT_USAGE);
	}
	return (unsigned)value;
}

static void check_setting(const char *text)
{
	static const char *const sections[] = { "group.", "deadlines.", "memory.", "threads." };
	bool known = false;
	for (size_t i = 0; i < sizeof(sections) / sizeof(*sections); i++)
		known = known || strncmp(text, sections[i], strlen(sections[i])) == 0;
	if (!known || !strchr(text, '=') || strchr(text, '\n')) {
		fprintf(stderr,
			"fsdp-run: --set takes SECTION.KEY=VALUE with a section of deadlines, memory, threads or "
			"group, "
			"not \"%s\"\n",
			text);
		exit(EXIT_USAGE);
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "nodes", required_argument, NULL, 'n' },
		{ "set", required_argument, NULL, 's' },
		{ "daemon", required_argument, NULL, 'd' },
		{ "verbose", no_argument, NULL, 'v' },
		{ "version", no_argument, NULL, 'V' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	static struct run run;
	char *settings[CLUSTER_SETTINGS_MAX];
	unsigned nodes = 1, setting_count = 0;
	const char *level = "warning";
	find_daemon(run.daemon, sizeof(run.daemon));
	for (int option; (option = getopt_long(argc, argv, "+n:s:d:vVh", options, NULL)) != -1;) {
		switch (option) {
		case 'n':
			nodes = parse_nodes(optarg);
			break;
		case 's':
			check_setting(optarg);
			if (setting_count == CLUSTER_SETTINGS_MAX) {
				fprintf(stderr, "fsdp-run: more than %d settings\n", CLUSTER_SETTINGS_MAX);
				return EXIT_USAGE;
			}
			settings[setting_count++] = optarg;
			break;
		case 'd':
			snprintf(run.daemon, sizeof(run.daemon), "%s", optarg);
			break;
		case 'v':
			level = "info";
			break;
		case 'V':
			printf("fsdp-run %s\n", FSDP_VERSION);
			return 0;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			fputs("Try fsdp-run --help.\n", stderr);
			return EXIT_USAGE;
		}
	}
	if (optind == argc) {
		fputs("fsdp-run: no command to run\nTry fsdp-run --help.\n", stderr);
		return EXIT_USAGE;
	}
	run.command = argv + optind;
	return launch(&run, nodes, level, settings, setting_count);
}
