#!/usr/bin/env bash
# What is installed works where it is installed: the tools find the daemon, programs in C99 and C++11 compile and run with it.
. "$(dirname "$0")/check.bash"

root=$folder/root
read -r -a flags <<<"${FSDP_TEST_CFLAGS:-}"

check "it installs" gives 0 cmake --install "$FSDP_TEST_BUILD" --prefix "$root"
library=$(find "$root" -name 'libfsdp-client.so.0' -print -quit)
libdir=${library%/*}
check "the daemon is in sbin" test -x "$root/sbin/fsdpd"
for tool in fsdpctl fsdp-run; do check "$tool is in bin" test -x "$root/bin/$tool"; done
check "the library is there by its soname" test -e "$libdir/libfsdp-client.so.0"
check "its link for the compiler points there" test "$(readlink -f "$libdir/libfsdp-client.so")" = "$(readlink -f "$library")"
soname_is() { [[ $(readelf -d "$library") == *"Library soname: [libfsdp-client.so.0]"* ]]; }
check "its soname is libfsdp-client.so.0" soname_is
for header in fsdp dtype error; do check "$header.h is there" test -f "$root/include/fsdp/$header.h"; done
check "the pkg-config file is there" test -f "$libdir/pkgconfig/fsdp-client.pc"
check "nothing of the tests is installed" test -z "$(find "$root" -name '*e2e*' -o -name '*test*')"

nm -D --defined-only "$library" | awk '{ print $3 }' | sed 's/@.*//' >"$folder/symbols"
grep -ohE 'FSDP_API[^(]*\bfsdp_[a-z_]+\(' "$root"/include/fsdp/fsdp.h | grep -oE 'fsdp_[a-z_]+\($' | tr -d '(' | sort -u >"$folder/declared"
grep -v '^$' "$folder/symbols" | grep '^fsdp_' | sort -u >"$folder/exported"
check "only fsdp_ leaves the library" not grep -vE '^(fsdp_|FSDP_|_init$|_fini$|__asan|__ubsan|__lsan|__odr_asan|$)' "$folder/symbols"
check "exactly what the header declares" diff "$folder/declared" "$folder/exported"
check "there are declarations" test "$(wc -l <"$folder/declared")" -gt 20

export PKG_CONFIG_PATH=$libdir/pkgconfig
# built COMPILER STANDARD LANGUAGE FILE: with what pkg-config says, and every warning an error
built() {
  local words
  read -r -a words <<<"$(pkg-config --cflags --libs fsdp-client)"
  "$1" "-std=$2" -Wall -Wextra -pedantic -Werror ${flags[@]+"${flags[@]}"} -x "$3" "$4" -o "$folder/trainer-$3" "${words[@]}"
}
check "pkg-config names the folders of the installation" test "$(pkg-config --variable=libdir fsdp-client | xargs readlink -f)" = "$(readlink -f "$libdir")"
check "a C99 program compiles" built "${FSDP_TEST_CC:-cc}" c99 c "$here/trainer.c"
check "the same in C++11 compiles" built "${FSDP_TEST_CXX:-c++}" c++11 c++ "$here/trainer.c"

export LD_LIBRARY_PATH=$libdir
cd "$folder" || exit 1 # so that no build is near
for language in c c++; do
  check "it runs on the installed daemons: $language" gives 0 env -u FSDP_TEST_DAEMON "$root/bin/fsdp-run" -n 2 -- \
    "$folder/trainer-$language"
  check "it says what it should: $language" answers "[0] 1.5 3.5" "[1] 1.5 3.5"
done
# $PPID of a command is fsdp-run, whose other children are daemons.
check "the installed fsdp-run finds the installed daemon" gives 0 "$root/bin/fsdp-run" -- sh -c \
  'for child in $(ps -o pid= --ppid $PPID); do readlink /proc/$child/exe; done'
check "and no other" answers "$(readlink -f "$root/sbin/fsdpd")"
check "the installed fsdpctl asks it" gives 0 "$root/bin/fsdp-run" -- "$root/bin/fsdpctl" --timeout 5 workers

finish
