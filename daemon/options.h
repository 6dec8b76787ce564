/* The command line. */
#ifndef FSDPD_OPTIONS_H
#define FSDPD_OPTIONS_H

#define OPTIONS_EXIT_USAGE 2

enum options_action { OPTIONS_RUN, OPTIONS_CHECK, OPTIONS_LEAVE };

struct options {
	enum options_action action;
	int exit_code; /* OPTIONS_LEAVE: everything was said */
	const char *config_path;
};

struct options options_parse(int argc, char **argv);

#endif
