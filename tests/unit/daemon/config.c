/* The configuration: a good file, every kind of error with its line and what was expected, all errors at once. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/config.h"
#include "daemon/runtime/log.h"
#include "fsdp/error.h"

#define GROUP "[group]\ncluster = c\nrank = 0\n"             /* lines 1 to 3 */
#define PEERS "[peers]\n0 = 127.0.0.1:7000 127.0.0.1:7001\n" /* two lines */
#define GOOD GROUP PEERS                                     /* lines 1 to 5 */

struct outcome {
	int code;
	char *errors;
	struct config config;
};

static struct outcome parse_bytes(const char *text, size_t size)
{
	struct outcome outcome = { 0 };
	size_t length;
	FILE *errors = open_memstream(&outcome.errors, &length);

	outcome.code = config_parse("f.conf", text, size, errors, &outcome.config);
	fclose(errors);
	return outcome;
}

static struct outcome parse(const char *text)
{
	return parse_bytes(text, strlen(text));
}

static void end(struct outcome *outcome)
{
	free(outcome->errors);
	config_fini(&outcome->config);
}

/* The file is refused, and one line of what it says begins with `begins` and contains `contains`. */
static void expect_error(const char *text, const char *begins, const char *contains)
{
	struct outcome outcome = parse(text);
	const char *line = strstr(outcome.errors, begins);
	const char *end_of_line = line ? strchr(line, '\n') : NULL;
	const char *found = line ? strstr(line, contains) : NULL;

	cr_assert_eq(outcome.code, FSDP_E_CONFIG);
	cr_assert(line && (line == outcome.errors || line[-1] == '\n'), "no line begins with %s in: %s", begins,
		  outcome.errors);
	cr_assert(found && found < end_of_line, "no %s in: %s", contains, outcome.errors);
	end(&outcome);
}

Test(config, a_small_file_is_good_and_the_rest_has_defaults)
{
	struct outcome o = parse(GOOD);

	cr_assert_eq(o.code, 0, "%s", o.errors);
	cr_assert_str_eq(o.errors, "");
	cr_assert_str_eq(o.config.cluster, "c");
	cr_assert_eq(o.config.rank, 0);
	cr_assert_eq(o.config.world_size, 1);
	cr_assert_str_eq(o.config.peers[0].control, "127.0.0.1:7000");
	cr_assert_str_eq(o.config.peers[0].bulk, "127.0.0.1:7001");
	cr_assert_str_eq(o.config.client_socket, "/run/fsdpd/client.sock");
	cr_assert_str_eq(o.config.control_socket, "/run/fsdpd/control.sock");
	cr_assert_eq(o.config.operation_ms, 600000);
	cr_assert_eq(o.config.grace_ms, 30000);
	cr_assert_eq(o.config.heartbeat_ms, 500);
	cr_assert_eq(o.config.suspicion_ms, 1500);
	cr_assert_eq(o.config.join_ms, 600000);
	cr_assert_eq(o.config.read_drain_ms, 2000);
	cr_assert_eq(o.config.gather_bytes, CONFIG_AUTO);
	cr_assert_eq(o.config.gradient_bytes, CONFIG_AUTO);
	cr_assert_eq(o.config.window_bytes, 8388608);
	cr_assert_eq(o.config.chunk_bytes, 1048576);
	cr_assert_eq(o.config.exec_threads, 2);
	cr_assert_eq(o.config.log_level, LOG_LEVEL_INFO);
	end(&o);
}

Test(config, every_key_is_read)
{
	struct outcome o =
		parse("\xef\xbb\xbf# comment\r\n; another\r\n[group]\r\n cluster=a.b_c-1 \r\n\trank\t=\t1\r\n"
		      "[peers]\n1 = [::1]:7002   [::1]:7003\n0 = 127.9.9.9:1 127.0.0.1:65535\n"
		      "[sockets]\nclient = /c\ncontrol = /d\n"
		      "[deadlines]\noperation=2s\ngrace=0\nheartbeat=100ms\nsuspicion=1m\njoin=1h\nread-drain=5min\n"
		      "[memory]\ngather-budget=1G\ngradient-budget=8192\nwindow=64K\nchunk=4K\n"
		      "[threads]\nexec=7\n[log]\nlevel=debug");

	cr_assert_eq(o.code, 0, "%s", o.errors);
	cr_assert_str_eq(o.config.cluster, "a.b_c-1");
	cr_assert_eq(o.config.rank, 1);
	cr_assert_eq(o.config.world_size, 2);
	cr_assert_str_eq(o.config.peers[1].bulk, "[::1]:7003");
	cr_assert_str_eq(o.config.client_socket, "/c");
	cr_assert_eq(o.config.operation_ms, 2000);
	cr_assert_eq(o.config.grace_ms, 0);
	cr_assert_eq(o.config.suspicion_ms, 60000);
	cr_assert_eq(o.config.join_ms, 3600000);
	cr_assert_eq(o.config.read_drain_ms, 300000);
	cr_assert_eq(o.config.gather_bytes, 1073741824);
	cr_assert_eq(o.config.gradient_bytes, 8192);
	cr_assert_eq(o.config.window_bytes, 65536);
	cr_assert_eq(o.config.chunk_bytes, 4096);
	cr_assert_eq(o.config.exec_threads, 7);
	cr_assert_eq(o.config.log_level, LOG_LEVEL_DEBUG);
	end(&o);
}

Test(config, every_error_is_reported_at_once)
{
	struct outcome o =
		parse("[group]\ncluster = a b\nrank = x\n[peers]\n0 = nowhere\n[deadlnes]\n[memory]\nwindo = 1M\n");

	cr_assert_eq(o.code, FSDP_E_CONFIG);
	cr_assert(strstr(o.errors, "f.conf:2: "));
	cr_assert(strstr(o.errors, "f.conf:3: "));
	cr_assert(strstr(o.errors, "f.conf:5: "));
	cr_assert(strstr(o.errors, "f.conf:6: "));
	cr_assert(strstr(o.errors, "f.conf:8: "));
	end(&o);
}

Test(config, unknown_names_get_the_nearest_one)
{
	expect_error(GOOD "[deadlnes]\n", "f.conf:6: ", "did you mean [deadlines]?");
	expect_error(GOOD "[deadlines]\nhartbeat=1s\n", "f.conf:7: ", "did you mean `heartbeat`?");
	expect_error(GOOD "[deadlines]\nzzzzzzzz=1s\n", "f.conf:7: ", "expected one of: operation, grace, heartbeat");
}

Test(config, keys_of_an_unknown_section_add_no_errors)
{
	struct outcome o = parse(GOOD "[what]\na=b\nc=d\n");

	cr_assert_eq(o.code, FSDP_E_CONFIG);
	cr_assert_null(strstr(o.errors, "f.conf:7: "));
	end(&o);
}

Test(config, values_say_what_was_expected)
{
	expect_error(GOOD "[deadlines]\noperation = soon\n",
		     "f.conf:7: ", "expected a duration such as 500ms, 30s, 10m or 1h");
	expect_error(GOOD "[deadlines]\noperation = 30\n", "f.conf:7: ", "got `30`");
	expect_error(GOOD "[deadlines]\nheartbeat = 1ms\n", "f.conf:7: ", "from 10ms to 1m");
	expect_error(GOOD "[deadlines]\nheartbeat = 9223372036854775807h\n", "f.conf:7: ", "expected a duration");
	expect_error(GOOD "[deadlines]\nheartbeat =\n", "f.conf:7: ", "got ``");
	expect_error(GOOD "[memory]\nchunk = 2M\n", "f.conf:7: ", "from 4K to 1M");
	expect_error(GOOD "[memory]\nchunk = 64k\n", "f.conf:7: ", "expected a size such as 64K");
	expect_error(GOOD "[memory]\ngather-budget = 1K\n", "f.conf:7: ", "expected `auto`, or a size");
	expect_error(GOOD "[threads]\nexec = 0\n", "f.conf:7: ", "expected a number from 1 to 256");
	expect_error(GOOD "[threads]\nexec = -1\n", "f.conf:7: ", "got `-1`");
	expect_error(GOOD "[threads]\nexec = 99999999999999999999999\n", "f.conf:7: ", "expected a number");
	expect_error(GOOD "[log]\nlevel = loud\n", "f.conf:7: ", "expected error, warning, notice, info or debug");
	expect_error(GOOD "[sockets]\nclient = relative\n", "f.conf:7: ", "expected an absolute path");
}

Test(config, a_path_longer_than_a_socket_address_is_refused)
{
	char text[512];

	snprintf(text, sizeof(text), GOOD "[sockets]\nclient = /%0107d\n", 0);
	expect_error(text, "f.conf:7: ", "at most 107 bytes");
	snprintf(text, sizeof(text), GOOD "[sockets]\nclient = /%0106d\n", 0);
	struct outcome o = parse(text);
	cr_assert_eq(o.code, 0, "%s", o.errors);
	end(&o);
}

Test(config, lines_must_have_a_form)
{
	expect_error("cluster = c\n" GOOD, "f.conf:1: ", "before the first section");
	expect_error(GOOD "[log\n", "f.conf:6: ", "expected `[NAME]`");
	expect_error(GOOD "hello\n", "f.conf:6: ", "expected `key = value` or `[section]`");
	expect_error(GOOD "[log]\nlevel=info\nlevel=info\n", "f.conf:8: ", "already in line 7");
}

Test(config, what_is_missing_is_named_with_the_line_of_its_section)
{
	expect_error("[group]\ncluster = c\n" PEERS, "f.conf:1: ", "[group] rank is missing");
	expect_error("# nothing\n\n" PEERS, "f.conf:4: ", "[group] cluster is missing");
	expect_error(GROUP, "f.conf:3: ", "[peers] is missing");
	expect_error(GROUP "[peers]\n", "f.conf:4: ", "[peers] is missing");
	expect_error("", "f.conf:1: ", "[group] cluster is missing");
}

Test(config, peers_are_every_rank_from_0_on_once)
{
	expect_error(GOOD "2 = 127.0.0.1:1 127.0.0.1:2\n", "f.conf:6: ", "rank 2 is given, but rank 1 is not");
	expect_error(GOOD "0 = 127.0.0.1:1 127.0.0.1:2\n", "f.conf:6: ", "already in line 5");
	expect_error(GOOD "1024 = 127.0.0.1:1 127.0.0.1:2\n", "f.conf:6: ", "a rank from 0 to 1023");
	expect_error(GOOD "one = 127.0.0.1:1 127.0.0.1:2\n", "f.conf:6: ", "a rank from 0 to 1023");
	expect_error("[group]\ncluster=c\nrank=1\n" PEERS, "f.conf:3: ", "rank is 1, but [peers] has the ranks 0 to 0");
}

Test(config, endpoints_are_two_literal_addresses_of_their_own)
{
	expect_error(GOOD "1 = 127.0.0.1:1\n", "f.conf:6: ", "a control endpoint and a bulk endpoint");
	expect_error(GOOD "1 = 127.0.0.1:1 127.0.0.1:2 x\n", "f.conf:6: ", "a control endpoint and a bulk endpoint");
	expect_error(GOOD "1 = localhost:1 127.0.0.1:2\n", "f.conf:6: ", "got `localhost:1`");
	expect_error(GOOD "1 = 127.0.0.1:1 127.0.0.1:0\n", "f.conf:6: ", "its bulk endpoint");
	expect_error(GOOD "1 = 127.0.0.1:1 127.0.0.1:65536\n", "f.conf:6: ", "got `127.0.0.1:65536`");
	expect_error(GOOD "1 = ::1:1 127.0.0.1:2\n", "f.conf:6: ", "got `::1:1`");
	expect_error(GOOD "1 = []:1 127.0.0.1:2\n", "f.conf:6: ", "got `[]:1`");
	expect_error(GOOD "1 = :1 127.0.0.1:2\n", "f.conf:6: ", "got `:1`");
	expect_error(GOOD "1 = 127.0.0.1:1 127.0.0.1:1\n", "f.conf:6: ", "both endpoints");
	expect_error(GOOD "1 = 127.0.0.1:1 127.0.0.1:7000\n", "f.conf:6: ", "rank 0's already (line 5)");
}

Test(config, only_loopback_addresses_are_accepted)
{
	static const char why[] =
		"peers are not authenticated yet: only loopback addresses (127.0.0.0/8, ::1) are accepted";

	expect_error(GOOD "1 = 10.0.0.1:1 127.0.0.1:2\n", "f.conf:6: ", why);
	expect_error(GOOD "1 = 127.0.0.1:1 [2001:db8::1]:2\n", "f.conf:6: ", why);
	expect_error(GROUP "[peers]\n0 = 0.0.0.0:1 127.0.0.1:2\n", "f.conf:5: ", why);
	expect_error(GROUP "[peers]\n0 = [::]:1 127.0.0.1:2\n", "f.conf:5: ", why);
	expect_error(GROUP "[peers]\n0 = 128.0.0.1:1 127.0.0.1:2\n", "f.conf:5: ", why);
}

Test(config, values_must_fit_together)
{
	expect_error(GOOD "[deadlines]\nheartbeat=2s\n",
		     "f.conf:6: ", "suspicion: expected more than heartbeat, which is 2s");
	expect_error(GOOD "[sockets]\nclient=/a\ncontrol=/a\n", "f.conf:8: ", "another path than client's");
}

Test(config, nul_bytes_and_long_lines_are_refused_with_their_line)
{
	static const char nul[] = GOOD "[log]\nlev\0el = info\n";
	struct outcome o = parse_bytes(nul, sizeof(nul) - 1);
	char *text = malloc(CONFIG_LINE_MAX + 100);

	cr_assert_eq(o.code, FSDP_E_CONFIG);
	cr_assert(strstr(o.errors, "f.conf:7: the line contains a NUL byte"));
	end(&o);
	snprintf(text, CONFIG_LINE_MAX + 100, GOOD "#%0*d\n", (int)CONFIG_LINE_MAX, 0);
	expect_error(text, "f.conf:6: ", "expected at most 4096");
	free(text);
}

Test(config, errors_beyond_the_limit_are_counted)
{
	char text[4096] = GOOD;

	for (unsigned i = 0; i < CONFIG_ERRORS_MAX + 3; i++)
		strcat(text, "hello\n");
	struct outcome o = parse(text);
	cr_assert(strstr(o.errors, "f.conf:69: "));
	cr_assert_null(strstr(o.errors, "f.conf:70: "));
	cr_assert(strstr(o.errors, "3 more errors"));
	end(&o);
}

Test(config, a_file_that_is_missing_is_an_error_of_configuration)
{
	struct config config;
	char *text = NULL;
	size_t size;
	FILE *errors = open_memstream(&text, &size);

	cr_assert_eq(config_read("/nonexistent/fsdpd.conf", errors, &config), FSDP_E_CONFIG);
	cr_assert_eq(config_read("/", errors, &config), FSDP_E_CONFIG);
	fclose(errors);
	cr_assert(strstr(text, "/nonexistent/fsdpd.conf: cannot be opened: No such file or directory"));
	cr_assert(strstr(text, "/: cannot be read: Is a directory"));
	free(text);
}

Test(config, a_file_that_is_too_large_is_refused)
{
	struct config config;
	char path[] = "/tmp/fsdpd-config-XXXXXX", *text = NULL;
	size_t size;
	FILE *errors = open_memstream(&text, &size);
	int fd = mkstemp(path);

	cr_assert_eq(ftruncate(fd, CONFIG_FILE_MAX + 1), 0);
	cr_assert_eq(config_read(path, errors, &config), FSDP_E_CONFIG);
	fclose(errors);
	close(fd);
	unlink(path);
	cr_assert(strstr(text, "expected a file of at most 1048576 bytes"));
	free(text);
}

Test(config, what_help_config_prints_lacks_only_what_must_be_given)
{
	char *text = NULL, *whole = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	config_print_help(out);
	fclose(out);
	struct outcome o = parse(text);
	cr_assert_eq(o.code, FSDP_E_CONFIG);
	cr_assert(strstr(o.errors, "[group] cluster is missing"));
	cr_assert(strstr(o.errors, "[group] rank is missing"));
	end(&o);
	cr_assert_gt(asprintf(&whole, "%s\n" GROUP, text), 0);
	o = parse(whole);
	cr_assert_eq(o.code, 0, "%s", o.errors);
	end(&o);
	free(text);
	free(whole);
}
