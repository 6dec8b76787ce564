/* The command line: one table of options, from which getopt's, the help and what each does come. */
#include "daemon/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/config.h"

struct option_row {
	const char *name;
	int letter;
	const char *argument; /* NULL: takes none */
	const char *help;
};

static const struct option_row rows[] = {
	{ "config", 'c', "FILE", "read this configuration instead of " CONFIG_DEFAULT_PATH },
	{ "check-config", 'C', NULL, "read the configuration, say what is wrong with it, and leave" },
	{ "help-config", 'H', NULL, "show every key of the configuration" },
	{ "version", 'V', NULL, "show the version" },
	{ "help", 'h', NULL, "show this" },
};

#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

static void print_help(FILE *out)
{
	fprintf(out, "fsdpd: fully sharded data parallelism as a service; one daemon a node holds its shard of every "
		     "model.\n"
		     "\nusage: fsdpd [options]\n\n");
	for (size_t i = 0; i < ROW_COUNT; i++)
		fprintf(out, "  --%-12s %-5s %s\n", rows[i].name, rows[i].argument ? rows[i].argument : "",
			rows[i].help);
	fprintf(out, "\nexit: 0 ok, 1 failed, 2 usage, 78 the configuration is wrong\n");
}

static struct options leave(int exit_code)
{
	return (struct options){ .action = OPTIONS_LEAVE, .exit_code = exit_code };
}

struct options options_parse(int argc, char **argv)
{
	struct options options = { .action = OPTIONS_RUN, .config_path = CONFIG_DEFAULT_PATH };
	struct option table[ROW_COUNT + 1] = { 0 };
	int letter;

	for (size_t i = 0; i < ROW_COUNT; i++)
		table[i] = (struct option){ .name = rows[i].name,
					    .has_arg = rows[i].argument ? required_argument : no_argument,
					    .val = rows[i].letter };
	while ((letter = getopt_long(argc, argv, "c:h", table, NULL)) != -1) {
		switch (letter) {
		case 'c':
			options.config_path = optarg;
			break;
		case 'C':
			options.action = OPTIONS_CHECK;
			break;
		case 'H':
			config_print_help(stdout);
			return leave(EXIT_SUCCESS);
		case 'V':
			printf("fsdpd %s\n", FSDP_VERSION);
			return leave(EXIT_SUCCESS);
		case 'h':
			print_help(stdout);
			return leave(EXIT_SUCCESS);
		default:
			fprintf(stderr, "fsdpd: --help shows the options\n");
			return leave(OPTIONS_EXIT_USAGE);
		}
	}
	if (optind < argc) {
		fprintf(stderr, "fsdpd: unexpected argument `%s`; --help shows the options\n", argv[optind]);
		return leave(OPTIONS_EXIT_USAGE);
	}
	return options;
}
