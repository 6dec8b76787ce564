/*
 * The texts of failures: what a code means (a constant), and the whole story of the last failure of the calling thread.
 * Owns one buffer a thread, so that no thread can change what another one reads. Logs nothing.
 */
#include "client/lib/fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "fsdp/fsdp.h"

static _Thread_local char fault_text[FAULT_TEXT_MAX];

int fault_set(int code, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(fault_text, sizeof(fault_text), format, arguments);
	va_end(arguments);
	return code;
}

const char *fsdp_last_error(void)
{
	return fault_text;
}

const char *fsdp_strerror(int code)
{
	/* No default: a code that is added to the table cannot be forgotten here. */
	switch ((enum fsdp_error)code) {
	case FSDP_OK:
		return "success";
#define FAULT_CASE(name, number, text) \
	case name:                     \
		return text;
		FSDP_ERRORS(FAULT_CASE)
#undef FAULT_CASE
	}
	/* -INT_MIN does not exist; no errno is as large as our first code. */
	const char *text = code < 0 && code > FSDP_E_INVALID ? strerrordesc_np(-code) : NULL;
	return text ? text : "unknown code";
}
