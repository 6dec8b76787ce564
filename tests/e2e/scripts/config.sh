#!/usr/bin/env bash
# What a configuration that is wrong gets: exit code 78, and for every error the file, the line and what was expected.
. "$(dirname "$0")/check.bash"

file=$folder/bad.conf

# written LINE...: the file has these lines
written() { printf '%s\n' "$@" >"$file"; }
refused() { gives 78 "$fsdpd" --config "$file"; }
good=("[group]" "cluster = a" "rank = 0" "[peers]" "0 = 127.0.0.1:7000 127.0.0.1:7001" "1 = 127.0.0.1:7002 127.0.0.1:7003"
  "[sockets]" "client = $folder/client.sock" "control = $folder/control.sock")

written "${good[@]}"
check "a good file passes --check-config" gives 0 "$fsdpd" --config "$file" --check-config
check "--check-config starts nothing" test ! -e "$folder/control.sock"
written "[group]" "cluster = a" "rank = 0" "[peers]" "0 = [::1]:7000 [::1]:7001"
check "IPv6 loopback is loopback" gives 0 "$fsdpd" --check-config --config "$file"

written "${good[@]}" "[deadlines]" "hartbeat = 1s"
check "a wrong key ends with 78" refused
check "it is told with file, line and the nearest key" answers "$file:11: " "unknown key \`hartbeat\`" "did you mean \`heartbeat\`" \
  "expected one of: operation, grace, heartbeat"
check "--check-config says the same" gives 78 "$fsdpd" --config "$file" --check-config
check "--check-config says the same text" answers "$file:11: " "did you mean \`heartbeat\`"

written "${good[@]}" "[deadline]" "operation = 1s"
check "a wrong section ends with 78" refused
check "it is told with the nearest section" answers "$file:10: " "[deadline]" "did you mean [deadlines]"

written "${good[@]}" "[deadlines]" "heartbeat = fast"
check "a wrong value ends with 78" refused
check "it is told what was expected" answers "$file:11: " "heartbeat: expected a duration such as 500ms" "got \`fast\`"
written "${good[@]}" "[memory]" "chunk = 1G"
check "a value out of its range ends with 78" refused
check "it is told the range" answers "$file:11: " "from 4K to 1M" "got \`1G\`"
written "${good[@]}" "[deadlines]" "heartbeat = 2s" "suspicion = 1s"
check "values that do not fit each other end with 78" refused
check "they are told" answers "$file:12: " "expected more than heartbeat, which is 2s"

check "a missing file ends with 78" gives 78 "$fsdpd" --config "$folder/none.conf"
check "it is named" answers "$folder/none.conf" "No such file" "expected a configuration file"
check "a folder in place of the file ends with 78" gives 78 "$fsdpd" --config "$folder"

written "${good[@]:0:6}" "1 = 127.0.0.1:7004 127.0.0.1:7005"
check "a rank that is given twice ends with 78" refused
check "both lines are named" answers "$file:7: " "rank 1 was given already in line 6" "expected one line a rank"
written "${good[@]:0:5}" "1 = 127.0.0.1:7000 127.0.0.1:7005"
check "an endpoint of two ranks ends with 78" refused
check "both ranks are named" answers "$file:6: " "rank 1" "127.0.0.1:7000 is rank 0's already (line 5)"
written "[group]" "cluster = a" "rank = 2" "${good[@]:3}"
check "a rank that is none of the peers ends with 78" refused
check "it is told which there are" answers "$file:3: " "rank is 2" "ranks 0 to 1"

written "[group]" "cluster = a" "rank = 0" "[peers]" "0 = 192.0.2.1:7000 127.0.0.1:7001"
check "an own address that is not loopback ends with 78" refused
check "it is told that peers are not authenticated" answers "$file:5: " "rank 0" "192.0.2.1:7000" "not authenticated" "only loopback"
written "[group]" "cluster = a" "rank = 0" "[peers]" "0 = 127.0.0.1:7000 127.0.0.1:7001" "1 = 192.0.2.1:7002 [2001:db8::1]:7003"
check "a peer's address that is not loopback ends with 78" refused
check "it is told for both planes" answers "$file:6: " "rank 1" "192.0.2.1:7002" "[2001:db8::1]:7003" "only loopback"
written "[group]" "cluster = a" "rank = 0" "[peers]" "0 = 0.0.0.0:7000 *:7001"
check "an address that is every address ends with 78" refused
check "a word that is no literal address is told" answers "0.0.0.0:7000" "expected for its bulk endpoint a literal address"

written "[group]" "clster = a" "rank = x" "[peers]" "0 = 10.0.0.1:7000 127.0.0.1:7001" "[sockets]" "client = here.sock"
check "several errors end with 78" refused
check "all of them are told at once" answers "$file:2: " "$file:3: " "$file:5: " "$file:7: " "[group] cluster is missing" \
  "did you mean \`cluster\`" "expected an absolute path"
check "nothing was bound by any of them" test ! -e "$folder/client.sock" -a ! -e "$folder/control.sock"

check "--version" gives 0 "$fsdpd" --version
check "it gives the version" grep -qE '^fsdpd [0-9]+\.[0-9]+\.[0-9]+$' "$answer"
check "--help" gives 0 "$fsdpd" --help
check "it names the options" answers --config --check-config --version --help
check "--help-config" gives 0 "$fsdpd" --help-config
cp "$answer" "$file"
check "what it shows lacks only what has no default" gives 78 "$fsdpd" --check-config --config "$file"
check "and that is two keys" answers_lines 2
check "an unknown option is wrong usage" gives 2 "$fsdpd" --frobnicate
check "an argument too many is wrong usage" gives 2 "$fsdpd" --check-config --config "$file" more

choose_ports 1
configure 0 a 0 1
start 0
check "a daemon of one starts" wait_until all_well 0
configure port b 0 1
check "an endpoint that another daemon has is refused" not gives 0 "$fsdpd" --config "$folder/port/fsdpd.conf"
check "it is named" answers "127.0.0.1:${bulk_ports[0]}" "Address already in use"
taken=$folder/0/client.sock
choose_ports 1
configure other b 0 1
sed -i "s|^client = .*|client = $taken|" "$folder/other/fsdpd.conf"
check "a socket that another daemon has is refused" not gives 0 "$fsdpd" --config "$folder/other/fsdpd.conf"
check "it is named with its path" answers "$taken"
check "the daemon that has it goes on" all_well 0
check "and leaves cleanly" stop 0


# ---- sockets from a service manager ----
choose_ports 1
configure 0 a 0 1
inherited() { not gives 0 python3 "$here/inherit.py" "$1" "$2" "$fsdpd" --config "$folder/0/fsdpd.conf"; }
check "an inherited listener on every address is refused" inherited control-plane 0.0.0.0
check "it is told why" answers control-plane "not authenticated" "only loopback"
check "an inherited socket of another kind is refused" inherited client 127.0.0.1
check "it is told what was expected" answers client "SOCK_SEQPACKET"
check "one of an unknown name is refused" inherited nonsense 127.0.0.1
check "it is told the names" answers nonsense "client, control, control-plane and bulk-plane"

finish
