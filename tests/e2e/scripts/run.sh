#!/usr/bin/env bash
# fsdp-run: one command a daemon, and nothing is left of either.
. "$(dirname "$0")/check.bash"

export XDG_RUNTIME_DIR=$folder/runtime # where it makes its folder, so that only ours are seen
mkdir "$XDG_RUNTIME_DIR"

nothing_left() {
  local left=("$XDG_RUNTIME_DIR"/*)
  [ ${#left[@]} -eq 0 ] || { echo "left: ${left[*]}"; return 1; }
}
# Numbers of processes that the commands wrote down, one a file; none of them runs any more.
all_gone() {
  local file pid stat
  for file in "$folder"/pid.*; do
    pid=$(<"$file")
    [ -n "$pid" ] || continue # ended before it could write
    { read -r stat </proc/"$pid"/stat; } 2>/dev/null || continue
    case ${stat##*) } in Z*) continue ;; esac
    echo "process $pid of ${file##*/} runs: $stat"
    return 1
  done
}
forget_pids() { rm -f "$folder"/pid.*; }
# So many have written theirs.
pids_are() {
  local file count=0
  for file in "$folder"/pid.*; do [ -s "$file" ] && count=$((count + 1)); done
  [ $count -eq "$1" ]
}
export folder

check "every command has a daemon, a rank and the world's size" gives 0 "$fsdp_run" -n 3 -- sh -c \
  'test -S "$FSDP_SOCKET" && test -S "$FSDP_CONTROL_SOCKET" && echo "rank $RANK of $WORLD_SIZE"'
check "lines have their rank before them" answers "[0] rank 0 of 3" "[1] rank 1 of 3" "[2] rank 2 of 3"
check "nothing else is said" answers_lines 3
check "nothing is left" nothing_left
check "one node is the default" gives 0 "$fsdp_run" -- sh -c 'echo "$RANK of $WORLD_SIZE"; cat; printf unfinished'
check "a line without an end gets one, and there is no input" diff - "$answer" <<<$'[0] 0 of 1\n[0] unfinished'
"$fsdp_run" -- sh -c 'echo out; echo err >&2' >"$folder/out" 2>"$folder/err"
check "output stays output" diff - "$folder/out" <<<"[0] out"
check "errors stay errors" diff - "$folder/err" <<<"[0] err"
check "the daemons form a group" gives 0 "$fsdp_run" -n 2 -- sh -c \
  'for i in $(seq 400); do "$FSDP_TEST_CTL" status >/dev/null && exit 0; sleep 0.05; done; exit 1'
check "arguments are passed as they are" gives 0 "$fsdp_run" -- printf '%s|' "a b" "" --help
check "and not split" answers "[0] a b||--help|"

check "--set reaches the configuration" gives 0 "$fsdp_run" --set deadlines.operation=7s -s memory.chunk=64K -- sh -c \
  'cat "${FSDP_SOCKET%/*}/fsdpd.conf"'
check "in its sections" answers "operation=7s" "chunk=64K"
check "a value that the daemon refuses ends it with 1" gives 1 "$fsdp_run" --set deadlines.heartbeat=soon -- sleep 60
check "the reason is there" answers "[fsdpd 0]" "heartbeat: expected a duration" "the daemon of rank 0 ended with 78"
check "nothing is left of that" nothing_left

for usage in "" "-n 0 -- true" "-n 257 -- true" "-n two -- true" "--frobnicate -- true" "--set nonsense -- true" \
  "--set peers.0=1 -- true"; do
  # shellcheck disable=SC2086
  check "wrong usage: $usage" gives 2 "$fsdp_run" $usage
done
check "--help" gives 0 "$fsdp_run" --help
check "--version" gives 0 "$fsdp_run" --version
check "a command that is not there is 127" gives 127 "$fsdp_run" -n 2 -- "$folder/no-such-command"
check "it is named" answers "$folder/no-such-command"
check "a daemon that is not there is 1" gives 1 "$fsdp_run" --daemon "$folder/no-such-daemon" -- sleep 60

# ---- ending ----
# Each command leaves a process of its own behind, which must end with it.
family='(sleep 600 & echo $! >"$folder/pid.child$RANK"; wait) & echo $! >"$folder/pid.shell$RANK"; echo $$ >"$folder/pid.$RANK"; '
check "the first that fails gives the exit code" gives 7 "$fsdp_run" -n 3 -- sh -c "$family"'
  until [ -s "$folder/pid.child0" ] && [ -s "$folder/pid.child2" ]; do sleep 0.02; done; [ "$RANK" = 1 ] && exit 7; sleep 600'
check "it is named" answers "rank 1 ended with 7"
check "all others are ended" wait_until all_gone
check "nothing is left of them" nothing_left
forget_pids
check "a signal gives 128 and its number" gives 137 "$fsdp_run" -n 2 -- sh -c "$family"'
  [ "$RANK" = 0 ] && kill -KILL $$; sleep 600'
check "all of it is ended" wait_until all_gone
forget_pids
check "who ignores SIGTERM is killed" gives 9 "$fsdp_run" -n 2 -- sh -c '
  [ "$RANK" = 1 ] && { until [ -e "$folder/pid.deaf" ]; do sleep 0.02; done; exit 9; }
  trap "" TERM; echo $$ >"$folder/pid.deaf"; while :; do sleep 1; done'
check "in the end" wait_until all_gone
check "and nothing is left" nothing_left
forget_pids

# run NAME ARGUMENT...: in the background; its output is $folder/NAME.log
run() {
  local name=$1
  shift
  "$fsdp_run" "$@" >"$folder/$name.log" 2>&1 &
  pids[$name]=$!
}
lines() { [ "$(grep -c -- "$2" "$folder/$1.log")" -eq "$3" ] || { cat "$folder/$1.log"; return 1; }; }
# Its own children, daemons and commands, by the kernel's word.
children() { ps -o pid= --ppid "${pids[$1]}"; }

loop='echo ready; while :; do sleep 0.02; done'
run term -n 2 -- bash -c 'trap "echo got TERM; exit 0" TERM; '"$loop"
check "both commands run" wait_until lines term "ready" 2
kill -TERM "${pids[term]}"
check "SIGTERM ends it with 143" ends term 143
check "both commands had it" lines term "got TERM" 2
run usr1 -n 2 -- bash -c 'trap "echo got USR1; exit 0" USR1; '"$loop"
check "both commands run" wait_until lines usr1 "ready" 2
kill -USR1 "${pids[usr1]}"
check "SIGUSR1 reaches both, and is no failure" ends usr1 0
check "both had it" lines usr1 "got USR1" 2
check "nothing is left" nothing_left

run lost -n 2 -- sh -c "$family"'echo ready; wait'
check "both commands run" wait_until lines lost "ready" 2
for child in $(children lost); do echo "$child" >"$folder/pid.of$child"; done
check "there are two daemons and two commands" test "$(children lost | wc -l)" -eq 4
victim=$(for child in $(children lost); do [ "$(readlink "/proc/$child/exe")" = "$(readlink -f "$fsdpd")" ] && echo "$child"; done | tail -n 1)
kill -KILL "$victim"
check "a daemon that is killed ends all with 1" ends lost 1
check "it is named" says "$folder/lost.log" "the daemon of rank 1 ended with 137"
check "all of it is ended" wait_until all_gone
check "nothing is left" nothing_left
forget_pids

run killed -n 2 -- sh -c 'echo ready; exec sleep 600'
check "both commands run" wait_until lines killed "ready" 2
for child in $(children killed); do echo "$child" >"$folder/pid.of$child"; done
check "four processes" pids_are 4
kill -KILL "${pids[killed]}"
check "its own death ends daemons and commands too" wait_until all_gone
check "by SIGKILL" ends killed 137

finish
