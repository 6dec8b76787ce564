#!/bin/sh
# Nothing but fsdp_* leaves the library, and it needs nothing but libc, protobuf-c and what they need. Usage: exports.sh LIBRARY
set -eu
library=$1
[ -e "$library" ]
others=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sed 's/@.*//' | grep -v -e '^fsdp_' -e '^FSDP_0$' || true)
if [ -n "$others" ]; then
	echo "exported besides fsdp_*:" $others >&2
	exit 1
fi
nm -D --defined-only "$library" | grep -q ' fsdp_model_step@'
if readelf -d "$library" | grep NEEDED | grep -q -e zmq -e systemd; then
	echo "needs a library of the daemon" >&2
	exit 1
fi
readelf -d "$library" | grep SONAME | grep -q 'libfsdp-client\.so\.0\]'
