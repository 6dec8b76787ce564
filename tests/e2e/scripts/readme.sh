#!/usr/bin/env bash
# What README.md shows is right: the minimal trainer is short, compiles without a warning, and trains on two nodes; the daemon takes
# the configuration.
. "$(dirname "$0")/check.bash"

readme=$FSDP_TEST_SOURCE/README.md
program=$folder/readme.c
read -r -a flags <<<"${FSDP_TEST_CFLAGS:-}"

if [ ! -e "$readme" ]; then
  echo "there is no README.md yet"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
fi

# The first block marked as C that has a main.
awk '/^```c$/ { inside = 1; text = ""; next }
  inside && /^```$/ { inside = 0; if (text ~ /int main/) { printf "%s", text; exit } }
  inside { text = text $0 "\n" }' "$readme" >"$program"

check "README.md has a trainer" test -s "$program"
check "it is short ($(wc -l <"$program") lines)" test "$(wc -l <"$program")" -le 34
check "it compiles without a warning" "${FSDP_TEST_CC:-cc}" -Wall -Wextra -Werror ${flags[@]+"${flags[@]}"} \
  "-I$FSDP_TEST_SOURCE/include" "$program" -o "$folder/readme" "-L${FSDP_TEST_LIBRARY%/*}" -lfsdp-client -lm \
  "-Wl,-rpath,${FSDP_TEST_LIBRARY%/*}"
check "it trains on two nodes" gives 0 "$fsdp_run" --daemon "$fsdpd" --nodes 2 -- "$folder/readme"
check "both ranks say something" answers "[0] " "[1] "

awk '/^```ini$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$readme" >"$folder/readme.conf"
check "README.md has a configuration" test -s "$folder/readme.conf"
check "it is right" gives 0 "$fsdpd" --check-config --config "$folder/readme.conf"
check "it is of two ranks" answers "rank 0 of 2"

finish
