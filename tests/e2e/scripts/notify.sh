#!/usr/bin/env bash
# What a service manager hears: READY, STATUS, WATCHDOG, STOPPING; and the same life without one.
. "$(dirname "$0")/check.bash"

ear=$folder/notify.sock heard=$folder/heard
python3 "$here/notify.py" "$ear" "$heard" &
pids[ear]=$!
check "the ear is there" wait_until test -S "$ear" -a -e "$heard"

beats() { grep -cx WATCHDOG=1 "$heard"; }
beats_above() { [ "$(beats)" -gt "$1" ]; }
hears() { grep -qE -- "$1" "$heard" || { cat "$heard"; return 1; }; }

choose_ports 2
configure 0 a 0 2
configure 1 a 1 2
NOTIFY_SOCKET=$ear WATCHDOG_USEC=400000 start 0
check "READY comes while a peer is missing" wait_until hears '^READY=1$'
check "the status says whom it waits for" wait_until hears '^STATUS=rank 0 of 2; waiting for 1 more: rank 1'
check "the sockets are there by then" test -S "$folder/0/client.sock" -a -S "$folder/0/control.sock"
start 1
check "the group forms" wait_until all_well 0 1
check "the status says so" wait_until hears '^STATUS=rank 0 of 2'
before=$(beats)
check "the watchdog is fed, again and again" within 3000 beats_above $((before + 3))
kill -STOP "${pids[0]}"
check "it is not fed while the process is stopped" wait_until status_is 3 1
before=$(beats)
check "not once" test "$(beats)" -eq "$before"
kill -CONT "${pids[0]}"
check "it is fed when it goes on" wait_until beats_above "$before"
check "the group is whole again" wait_until all_well 0 1
stop 1
check "the status names who is not heard" wait_until hears '^STATUS=rank 0 of 2; not heard: rank 1'
check "nothing was said of leaving so far" not hears '^STOPPING=1$'
check "SIGTERM ends it cleanly" stop 0
check "STOPPING is said" hears '^STOPPING=1$'
check "READY was said once" test "$(grep -cx READY=1 "$heard")" -eq 1
check "its sockets are removed" test ! -e "$folder/0/client.sock" -a ! -e "$folder/0/control.sock"

words=$(wc -l <"$heard")
WATCHDOG_USEC=400000 start 0
start 1
check "without a manager a group forms too" wait_until all_well 0 1
kill -INT "${pids[0]}"
check "SIGINT ends it cleanly" ends 0 0
check "SIGTERM does" stop 1
check "their sockets are removed" test ! -e "$folder/0/control.sock" -a ! -e "$folder/1/control.sock"
check "nobody was told" test "$(wc -l <"$heard")" -eq "$words"

NOTIFY_SOCKET=$folder/nobody.sock start 0
check "a manager that is gone does no harm" wait_until status_is 3 0
check "and the daemon leaves as always" stop 0

finish
