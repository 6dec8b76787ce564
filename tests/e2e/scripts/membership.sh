#!/usr/bin/env bash
# Who belongs to the group: strangers are refused and both sides say why; who is late joins; who is silent is named.
. "$(dirname "$0")/check.bash"

up_for() { [ "$(counter "$1" uptime_ms)" -ge "$2" ]; }

# ---- late, silent, back ----
choose_ports 2
configure 0 a 0 2
configure 1 a 1 2
start 0
check "rank 0 answers while it is alone" wait_until status_is 3 0
check "it says whom it waits for" answers "rank 1" "1 of 2 joined"
check "rank 1 is absent for it" peer_is 0 1 '.state == "absent" and .heard_ms_ago == null'
check "it waits for two seconds" wait_until up_for 0 2000
start 1
check "rank 1 joins late" wait_until all_well 0 1
check "it has joined for rank 0" peer_is 0 1 '.state == "joined"'
check "both planes come up" wait_until peer_is 0 1 .bulk_up
generation=$(ctl 0 status --json | jq -r .generation)
check "both know the same generation" test "$generation" = "$(ctl 1 status --json | jq -r .generation)"

kill -STOP "${pids[1]}"
check "a stopped daemon is missed within the heartbeat budget" within 3000 status_is 3 0
check "it is named" answers "rank 1"
check "it is suspected" peer_is 0 1 '.state == "suspected" and .heard_ms_ago >= 1000'
check "a log says so" wait_until says "$folder/0.log" "rank 1 was not heard"
kill -CONT "${pids[1]}"
check "it is heard again when it goes on" wait_until all_well 0 1
check "in the same generation" test "$generation" = "$(ctl 0 status --json | jq -r .generation)"

kill -KILL "${pids[1]}"
check "a killed daemon is missed within the heartbeat budget" within 3000 status_is 3 0
check "it is named too" answers "rank 1"
check "it is gone" ends 1 137
start 1
check "its successor joins, though it left its sockets behind" wait_until all_well 0 1
check "in another generation" test "$generation" != "$(ctl 0 status --json | jq -r .generation)"

# ---- a second rank 1 ----
first=("${control_ports[@]}" "${bulk_ports[@]}")
choose_ports 2
control_ports[0]=${first[0]} bulk_ports[0]=${first[2]}
configure second a 1 2
start second
check "a second rank 1 lives, but is not in" wait_until status_is 3 second
check "rank 0 says that the rank is taken" wait_until says "$folder/0.log" "rank 1 is taken"
check "the second one says it too" wait_until says "$folder/second.log" "rank 1 is taken"
check "its operator sees it" wait_until peer_is second 0 '.refusal | contains("rank 1 is taken")'
check "the refusal is counted" test "$(counter 0 refused)" -gt 0
check "the first rank 1 stays" all_well 0 1
check "all of them leave cleanly" stop 0 1 second

# ---- another cluster ----
choose_ports 2
configure 0 alpha 0 2
configure 1 beta 1 2
: >"$folder/0.log"
: >"$folder/1.log"
start 0
start 1
check "rank 0 names the other cluster" wait_until says "$folder/0.log" 'beta' 'rank 1'
check "rank 1 does so too" wait_until says "$folder/1.log" 'alpha' 'rank 0'
check "the operator of rank 0 sees why" wait_until peer_is 0 1 '.refusal | contains("cluster \"alpha\" here, \"beta\" there")'
check "the operator of rank 1 sees why" wait_until peer_is 1 0 '.refusal | contains("cluster \"beta\" here, \"alpha\" there")'
check "peers shows it to people" gives 0 "$fsdpctl" --socket "$folder/0/control.sock" peers
check "in a line of its own" answers "refused: " '"beta" there'
check "both live on, degraded: 0" status_is 3 0
check "both live on, degraded: 1" status_is 3 1
check "neither has joined" peer_is 0 1 '.state == "absent"'
check "both leave cleanly" stop 0 1

# ---- another world size ----
choose_ports 3
for name in 0 1; do configure "$name" a "$name" 2; : >"$folder/$name.log"; done
configure 2 a 2 3
for name in 0 1 2; do start "$name"; done
for name in 0 1; do
  check "rank $name names the odd one" wait_until says "$folder/$name.log" "rank 2" "world size 2 here, 3 there"
  check "the odd one says why rank $name refused it" wait_until peer_is 2 "$name" '.refusal | contains("world size 3 here, 2 there")'
done
check "its log says so" says "$folder/2.log" "world size 3 here, 2 there"
check "the two others are a group" wait_until all_well 0 1
check "the odd one lives on" status_is 3 2
check "all three leave cleanly" stop 0 1 2

# ---- who never comes ----
choose_ports 2
configure 0 a 0 2 deadlines.join=2s
: >"$folder/0.log"
start 0
check "who waits in vain answers meanwhile" wait_until status_is 3 0
check "it ends with an error at the deadline" ends 0 bad
check "it names the missing rank" says "$folder/0.log" "rank 1"
check "it removes its sockets" test ! -e "$folder/0/client.sock" -a ! -e "$folder/0/control.sock"

finish
