#!/usr/bin/env bash
# fsdpctl's answers and exit codes, with workers in the middle of something.
. "$(dirname "$0")/check.bash"

ask() { local code=$1 name=$2; shift 2; gives "$code" "$fsdpctl" --socket "$folder/$name/control.sock" "$@"; }
# shows FILTER WORDS...: the JSON answer of daemon 0, with exit code 0, makes the filter true
shows() {
  local filter=$1
  shift
  ask 0 0 --json "$@" || return 1
  answers_lines 1 && json "$filter" "$answer"
}

# A trainer on each daemon, led by lines to its stdin.
# puppet NAME: starts it; its answers are in $folder/NAME.says
declare -A strings=()
puppet() {
  local string
  mkfifo "$folder/$1.string"
  FSDP_SOCKET=$folder/$1/client.sock "$FSDP_TEST_PUPPET" <"$folder/$1.string" >"$folder/$1.says" 2>"$folder/puppet$1.log" &
  pids[puppet$1]=$!
  exec {string}>"$folder/$1.string"
  strings[$1]=$string
  : >"$folder/$1.said"
}
# tell NAME COMMAND: does not wait for it
tell() {
  echo "$2" >&"${strings[$1]}"
  echo "$2" >>"$folder/$1.said"
}
has_done() { [ "$(wc -l <"$folder/$1.says")" -eq "$(wc -l <"$folder/$1.said")" ] || { cat "$folder/$1.says"; return 1; }; }
# did NAME CODE [TEXT]: its last command ends with this code
did() {
  wait_until has_done "$1" || return 1
  case $(tail -n 1 "$folder/$1.says") in
    *" $2 "*"${3:-}"*) ;;
    *) tail -n 1 "$folder/$1.says"; return 1 ;;
  esac
}
# both COMMAND: both trainers do it
both() {
  tell 0 "$1" && tell 1 "$1" && did 0 0 && did 1 0
}
release() {
  echo quit >&"${strings[$1]}"
  ends "puppet$1" 0
}

# ---- without a daemon ----
check "--help" gives 0 "$fsdpctl" --help
check "it names every command" answers status peers models "units MODEL" workers "model drop MODEL" "step abort MODEL" --json
check "--version" gives 0 "$fsdpctl" --version
check "no command is wrong usage" gives 2 "$fsdpctl"
check "an unknown command is wrong usage" gives 2 "$fsdpctl" frobnicate
check "it is named" answers frobnicate
check "an unknown option is wrong usage" gives 2 "$fsdpctl" --frobnicate
check "units without a name is wrong usage" gives 2 "$fsdpctl" units
check "model without a verb is wrong usage" gives 2 "$fsdpctl" model
check "a word too many is wrong usage" gives 2 "$fsdpctl" status more
check "a timeout that is none is wrong usage" gives 2 "$fsdpctl" --timeout soon status
check "nobody there is 4" gives 4 "$fsdpctl" --socket "$folder/nobody.sock" status
check "the path is named" answers "$folder/nobody.sock"

# ---- one daemon of two ----
choose_ports 2
configure 0 a 0 2
configure 1 a 1 2
start 0
check "a missing peer is 3" wait_until ask 3 0 status
check "with --json too" ask 3 0 status --json
check "which says why" json '.degraded and .joined == 1 and (.phase | contains("rank 1"))' "$answer"
check "an unknown model is 1" ask 1 0 units nothing
check "it is named" answers nothing
check "with --json too" ask 1 0 --json units nothing
check "which has the code and the text" json '.code < 0 and (.text | contains("nothing"))' "$answer"

# ---- both, and a trainer on each ----
start 1
check "with both it is 0" wait_until all_well 0 1
puppet 0
puppet 1
both open
both seal
check "both load" both load
check "both unshard" both unshard

check "status has its fields" shows '.code == 0 and .cluster == "a" and .rank == 0 and .world_size == 2 and .joined == 2
  and (.generation | test("^[0-9a-f]{16}$")) and (.incarnation | length == 16) and .uptime_ms >= 0 and .degraded == false
  and ([.version, .phase | type == "string"] | all)
  and ([.bytes_in, .bytes_out, .gather_bytes, .served_bytes, .pushed_bytes, .added_bytes, .resent_bytes, .malformed, .refused,
    .stale, .duplicates, .violations | type == "number"] | all)
  and (.models | length == 1) and (.waits | type == "array")' status
check "peers has its fields" shows '(.peers | length == 2) and ([.peers[] | has("rank", "state", "bulk_up", "incarnation",
  "heard_ms_ago", "endpoint", "refusal")] | all) and .peers[1].rank == 1 and .peers[1].state == "joined" and .peers[1].bulk_up' peers
check "models has its fields" shows '.models[0] | .name == "m" and .state == "ready" and .phase == "idle" and .step == 0
  and .attempt == 0 and .micro_batch == 0 and .units == 1 and .workers == 1 and .applied == 0 and .skipped == 0 and .aborted == 0
  and .parameters == 4 and .shard_bytes > 0 and .gather_used > 0 and .gather_bytes >= .gather_used
  and .grad_bytes >= .grad_used and .trouble == ""' models
check "units has its fields" shows '.units | length == 1 and (.[0] | .name == "u0" and .version == 1 and .full_bytes == 16
  and .shard_elements == 2 and .held == 1 and .gathered and (.reduced | not))' units m
check "workers has its fields" shows ".workers | length == 1 and (.[0] | .pid == ${pids[puppet0]} and .uid == $UID and .model == \"m\"
  and .local_worker == 0 and .call == \"\" and .waiting_ms == 0 and .attached_ms >= 0)" workers
for command in status peers models "units m" workers; do
  # shellcheck disable=SC2086
  check "$command for people" ask 0 0 $command
done
check "the worker's process is shown" answers "${pids[puppet0]}"
check "both reshard" both reshard

check "a drop is refused while a worker is attached" ask 1 0 model drop m
check "it says so" answers m worker
check "on the other daemon too" ask 1 1 --json model drop m
check "in JSON" json '.code < 0 and (.text | contains("worker"))' "$answer"
check "nothing happened" both unshard
check "and all can go on" both reshard

# ---- a step that waits, and is aborted ----
tell 0 reduce
check "one rank reduces" did 0 0
tell 0 step
workers_wait() { ctl 0 workers --json >"$folder/workers.json" && json '.workers[0].call == "step"' "$folder/workers.json"; }
waits_for_1() { ctl 0 status --json >"$folder/status.json" && json '.waits | any(.model == "m" and .ranks == [1])' "$folder/status.json"; }
check "workers shows the call that waits" wait_until workers_wait
check "status shows for whom" wait_until waits_for_1
check "status says it to people" ask 0 0 status
check "in a line" answers "waits     m, " "waiting for rank 1"
check "an operator aborts the step, on the rank that is not the coordinator" ask 0 1 step abort m
check "the call ends" did 0 -1005
tell 1 reduce
check "the other rank is told once" did 1 -1005
check "the attempt is another" shows '.models[0] | .attempt == 1 and .aborted == 1 and .step == 0' models
check "an abort in JSON" ask 0 0 --json step abort m
check "parses" json '.code == 0' "$answer"
for name in 0 1; do
  tell "$name" reduce
  check "rank $name is told of it" did "$name" -1005
done
check "both reduce anew" both reduce
check "both step" both step
check "the step counts" shows '.models[0] | .step == 1 and .applied == 1 and .aborted == 2 and .attempt == 0' models
check "an abort of an unknown model is 1" ask 1 0 step abort nothing
check "a drop of an unknown model is 1" ask 1 0 model drop nothing

# ---- the drop ----
check "both keep it and go" both keep
check "the model stays" shows '.models[0] | .name == "m" and .workers == 0 and .step == 1' models
check "no worker has it" shows '[.workers[] | .model] | all(. == "")' workers
# What the coordinator knows of another rank's workers is as old as that rank's last heartbeat.
check "now it is dropped" wait_until ask 0 1 model drop m
no_model() { shows '.models == []' models; }
check "on both" wait_until no_model
for name in 0 1; do check "the trainer of rank $name leaves" release "$name"; done

kill -STOP "${pids[1]}"
check "a daemon that does not answer is 4" gives 4 "$fsdpctl" --timeout 0.3 --socket "$folder/1/control.sock" status
kill -CONT "${pids[1]}"
check "both are well" wait_until all_well 0 1
check "both leave cleanly" stop 0 1

finish
