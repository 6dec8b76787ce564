/*
 * fsdpctl: asks one daemon a question, prints the answer, and says by its exit code how things are. One table has the
 * commands; parser, help and printing follow it.
 */
#include "client/ctl/ask.h"
#include "client/ctl/print.h"
#include "fsdp/error.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_DEGRADED = 3, EXIT_UNREACHABLE = 4 };

struct ctl_command {
	const char *words;    /* as typed */
	const char *argument; /* its name, or NULL */
	enum control_op op;
	void (*text)(const struct control_message *answer);
	void (*json)(const struct control_message *answer);
	const char *help;
};

static const struct ctl_command commands[] = {
	{ "status", NULL, CONTROL_STATUS, text_status, json_status,
	  "this daemon, its models, and what waits for whom" },
	{ "peers", NULL, CONTROL_PEERS, text_peers, json_peers, "every rank as this one sees it" },
	{ "models", NULL, CONTROL_MODELS, text_models, json_models, "models, their steps and pools" },
	{ "units", "MODEL", CONTROL_UNITS, text_units, json_units, "the units of a model" },
	{ "workers", NULL, CONTROL_WORKERS, text_workers, json_workers,
	  "attached processes and the calls they wait in" },
	{ "model drop", "MODEL", CONTROL_MODEL_DROP, text_done, json_done,
	  "forget a model on every rank; refused while a worker is attached" },
	{ "step abort", "MODEL", CONTROL_STEP_ABORT, text_done, json_done,
	  "drop the step in progress on every rank; workers begin it again" },
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(*commands))

static void print_usage(FILE *file)
{
	fputs("usage: fsdpctl [OPTION]... COMMAND [ARGUMENT]\n\n", file);
	for (size_t i = 0; i < COMMAND_COUNT; i++) {
		char call[64];
		snprintf(call, sizeof(call), "%s %s", commands[i].words,
			 commands[i].argument ? commands[i].argument : "");
		fprintf(file, "  %-18s %s\n", call, commands[i].help);
	}
	fputs("\n"
	      "  -s, --socket PATH   the daemon's control socket (default $FSDP_CONTROL_SOCKET, else\n"
	      "                      /run/fsdpd/control.sock)\n"
	      "  -j, --json          one JSON object on one line\n"
	      "  -t, --timeout S     give up after so many seconds (default 10; model drop and step abort: 60)\n"
	      "  -V, --version\n"
	      "  -h, --help\n"
	      "\n"
	      "Exit code: 0 all is well; 1 the daemon refused or failed; 2 wrong usage; 3 the answer is there, but a "
	      "peer is\n"
	      "missing or a model lost; 4 the daemon cannot be reached.\n",
	      file);
}

static int wrong_usage(const char *what, const char *which)
{
	fprintf(stderr, "fsdpctl: %s%s\nTry fsdpctl --help.\n", what, which);
	return EXIT_USAGE;
}

/* The command whose words begin the arguments; *ret_words tells how many they are. */
static const struct ctl_command *find_command(int count, char **words, int *ret_words)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++) {
		char typed[64];
		int used = strchr(commands[i].words, ' ') ? 2 : 1;
		if (count < used)
			continue;
		snprintf(typed, sizeof(typed), used == 2 ? "%s %s" : "%s", words[0], used == 2 ? words[1] : "");
		if (strcmp(typed, commands[i].words) == 0) {
			*ret_words = used;
			return &commands[i];
		}
	}
	return NULL;
}

static int run(const struct ctl_command *command, const char *argument, const char *path, int json, int timeout_ms)
{
	struct control_message question = { .op = command->op, .protocol = CONTROL_PROTOCOL }, answer;
	if (argument)
		snprintf(question.name, sizeof(question.name), "%s", argument);
	int code = ask_daemon(path, &question, timeout_ms, &answer);
	if (code == FSDP_E_UNREACHABLE) {
		fprintf(stderr, "fsdpctl: no answer from the daemon at %s: %s\n", path, strerror(errno));
		return EXIT_UNREACHABLE;
	}
	if (code < 0) {
		fprintf(stderr, "fsdpctl: the answer from %s makes no sense (is the daemon of another version?)\n",
			path);
		return EXIT_FAILED;
	}
	if (json)
		command->json(&answer);
	else if (answer.code == 0)
		command->text(&answer);
	else
		fprintf(stderr, "fsdpctl: %s\n", answer.text);
	int result = answer.code < 0                               ? EXIT_FAILED
		     : answer.has_status && answer.status.degraded ? EXIT_DEGRADED
								   : EXIT_OK;
	ask_free(&answer);
	return result;
}

static int parse_timeout(const char *text)
{
	char *end;
	double seconds = strtod(text, &end);
	return end == text || *end || !(seconds > 0.0) || seconds > 86400.0 ? -1 : (int)(seconds * 1000.0);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "socket", required_argument, NULL, 's' },  { "json", no_argument, NULL, 'j' },
		{ "timeout", required_argument, NULL, 't' }, { "version", no_argument, NULL, 'V' },
		{ "help", no_argument, NULL, 'h' },          { 0 },
	};
	const char *path = getenv("FSDP_CONTROL_SOCKET");
	int json = 0, timeout_ms = 0;
	if (!path || !*path)
		path = "/run/fsdpd/control.sock";
	for (int option; (option = getopt_long(argc, argv, "s:jt:Vh", options, NULL)) != -1;) {
		switch (option) {
		case 's':
			path = optarg;
			break;
		case 'j':
			json = 1;
			break;
		case 't':
			timeout_ms = parse_timeout(optarg);
			if (timeout_ms < 0)
				return wrong_usage("--timeout takes seconds, not ", optarg);
			break;
		case 'V':
			printf("fsdpctl %s\n", FSDP_VERSION);
			return EXIT_OK;
		case 'h':
			print_usage(stdout);
			return EXIT_OK;
		default:
			return wrong_usage("unknown option", "");
		}
	}
	int words = 0, rest = argc - optind;
	if (rest == 0)
		return wrong_usage("no command", "");
	const struct ctl_command *command = find_command(rest, argv + optind, &words);
	if (!command)
		return wrong_usage("no such command: ", argv[optind]);
	int wanted = words + (command->argument ? 1 : 0);
	if (rest != wanted)
		return wrong_usage(rest < wanted ? "a name is missing: " : "too many words after ", command->words);
	const char *argument = command->argument ? argv[optind + words] : NULL;
	if (argument && (strlen(argument) == 0 || strlen(argument) > FSDP_NAME_MAX))
		return wrong_usage("a name has 1 to 255 bytes: ", argument);
	if (timeout_ms == 0)
		timeout_ms = command->op >= CONTROL_MODEL_DROP ? 60000 : 10000;
	return run(command, argument, path, json, timeout_ms);
}
