# What the scripts of this folder share: checks that are counted, a folder of their own, daemons on free loopback ports, and waiting
# with a bound. Sourced first; a script ends with `finish`. The binaries come from the environment (see CMakeLists.txt). Ends only
# processes that it started.
set -uo pipefail
shopt -s nullglob

: "${FSDP_TEST_DAEMON:?}" "${FSDP_TEST_RUN:?}" "${FSDP_TEST_CTL:?}"
fsdpd=$FSDP_TEST_DAEMON fsdp_run=$FSDP_TEST_RUN fsdpctl=$FSDP_TEST_CTL

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d /tmp/fsdp-test.XXXXXX)
passed=0 failed=0
bound=20               # seconds that anything may take on a slow machine
declare -A pids=()     # what runs, by name
declare -A ports_taken=()
control_ports=() bulk_ports=()
answer=$folder/answer  # what the last command of `gives` wrote

# Memory is looked at, so the address sanitizer must not keep what was freed; a leak at the end is an exit code.
export ASAN_OPTIONS="quarantine_size_mb=1:detect_leaks=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
unset NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID LISTEN_FDS LISTEN_PID FSDP_SOCKET FSDP_CONTROL_SOCKET

clean_up() {
  local name
  for name in "${!pids[@]}"; do
    kill -CONT "${pids[$name]}" 2>/dev/null
    kill -KILL "${pids[$name]}" 2>/dev/null
  done
  wait 2>/dev/null
  rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# check NAME COMMAND...: the command says that NAME is true
check() {
  local name=$1
  shift
  if "$@" >"$folder/check" 2>&1; then
    passed=$((passed + 1))
    return 0
  fi
  failed=$((failed + 1))
  echo "FAILED: $name"
  printf '  %s\n' "$*"
  sed 's/^/  | /' "$folder/check" | tail -n 20
  return 1
}

finish() {
  local log
  if [ "$failed" -gt 0 ]; then
    for log in "$folder"/*.log; do
      echo "--- ${log##*/} ---"
      tail -n 30 "$log"
    done
  fi
  echo "$passed passed, $failed failed"
  exit $((failed > 0))
}

# gives CODE COMMAND...: it ends with this exit code; what it wrote is in $answer
gives() {
  local wanted=$1 got=0
  shift
  timeout -k 1 "$bound" "$@" >"$answer" 2>&1 || got=$?
  [ "$got" -eq "$wanted" ] && return 0
  echo "exit code $got, not $wanted:"
  cat "$answer"
  return 1
}

# says FILE TEXT...: each of the texts is in the file
says() {
  local file=$1 text
  shift
  for text in "$@"; do
    grep -qF -- "$text" "$file" && continue
    echo "${file##*/} does not say: $text"
    tail -n 20 "$file"
    return 1
  done
}

answers() { says "$answer" "$@"; }

# answers_lines COUNT: the last command wrote so many lines
answers_lines() {
  [ "$(wc -l <"$answer")" -eq "$1" ] || { cat "$answer"; return 1; }
}

not() { ! "$@"; }

# json FILTER FILE: the jq filter is true of it
json() {
  jq -e "$1" "$2" >/dev/null && return 0
  echo "not true of this: $1"
  cat "$2"
  return 1
}

# wait_until COMMAND...: looks until it is true, at most $bound seconds
wait_until() {
  local ends=$((${EPOCHREALTIME/./} + bound * 1000000))
  until "$@" >"$folder/wait" 2>&1; do
    if [ "${EPOCHREALTIME/./}" -gt "$ends" ]; then
      echo "not true within $bound s: $*"
      cat "$folder/wait"
      return 1
    fi
    sleep 0.02
  done
}

# within MILLISECONDS COMMAND...: the same, and how long it took is part of what is checked
within() {
  local began=${EPOCHREALTIME/./} most=$1 took
  shift
  wait_until "$@" || return 1
  took=$(((${EPOCHREALTIME/./} - began) / 1000))
  [ "$took" -le "$most" ] || { echo "took $took ms, not at most $most"; return 1; }
}

# Below the range from which the kernel takes ports for connections, so none of those gets in between.
free_port() {
  local port
  while :; do
    port=$((15000 + RANDOM % 15000))
    [ -n "${ports_taken[$port]:-}" ] && continue
    ports_taken[$port]=1
    grep -qi ":$(printf '%04x' "$port") " /proc/net/tcp /proc/net/tcp6 2>/dev/null || break
  done
  free_port=$port
}

# choose_ports WORLD: fresh endpoints for so many ranks
choose_ports() {
  local rank
  control_ports=() bulk_ports=()
  for ((rank = 0; rank < $1; rank++)); do
    free_port; control_ports+=("$free_port")
    free_port; bulk_ports+=("$free_port")
  done
}

# configure NAME CLUSTER RANK WORLD [SECTION.KEY=VALUE]...: writes $folder/NAME/fsdpd.conf; later settings win
configure() {
  local name=$1 cluster=$2 rank=$3 world=$4 section key other setting
  declare -A values=([deadlines.heartbeat]=100ms [deadlines.suspicion]=1s [deadlines.operation]=60s [log.level]=info)
  shift 4
  for setting in "$@"; do values[${setting%%=*}]=${setting#*=}; done
  mkdir -p "$folder/$name"
  {
    printf '[group]\ncluster = %s\nrank = %s\n[peers]\n' "$cluster" "$rank"
    for ((other = 0; other < world; other++)); do
      echo "$other = 127.0.0.1:${control_ports[other]} 127.0.0.1:${bulk_ports[other]}"
    done
    printf '[sockets]\nclient = %s/%s/client.sock\ncontrol = %s/%s/control.sock\n' "$folder" "$name" "$folder" "$name"
    for section in deadlines memory threads log; do
      echo "[$section]"
      for key in "${!values[@]}"; do
        [ "${key%%.*}" = "$section" ] && echo "${key#*.} = ${values[$key]}"
      done
    done
  } >"$folder/$name/fsdpd.conf"
}

# start NAME: the daemon of that configuration; its log is $folder/NAME.log
start() {
  "$fsdpd" --config "$folder/$1/fsdpd.conf" >>"$folder/$1.log" 2>&1 &
  pids[$1]=$!
}

is_running() {
  local stat
  { read -r stat </proc/"${pids[$1]}"/stat; } 2>/dev/null || return 1
  stat=${stat##*) }
  [ "${stat%% *}" != Z ]
}

# ends NAME CODE: it ends by itself, with this exit code (CODE "bad": any but 0)
ends() {
  local got=0
  wait_until not is_running "$1" || return 1
  wait "${pids[$1]}" 2>/dev/null || got=$?
  unset "pids[$1]"
  case $2 in
    bad) [ "$got" -ne 0 ] && return 0 ;;
    *) [ "$got" -eq "$2" ] && return 0 ;;
  esac
  echo "$1 ended with $got, not $2"
  return 1
}

# stop NAME...: SIGTERM, and each leaves cleanly
stop() {
  local name
  for name in "$@"; do kill -TERM "${pids[$name]}"; done
  for name in "$@"; do
    ends "$name" 0 || { tail -n 20 "$folder/$name.log"; return 1; }
  done
}

# ctl NAME WORDS...: asks that daemon
ctl() {
  local name=$1
  shift
  "$fsdpctl" --socket "$folder/$name/control.sock" "$@"
}

# status_is CODE NAME: its status has this exit code; the answer is in $answer
status_is() { gives "$1" "$fsdpctl" --socket "$folder/$2/control.sock" status; }

# all_well NAME...: every daemon says that everybody is there
all_well() {
  local name
  for name in "$@"; do status_is 0 "$name" || return 1; done
}

# peer_is NAME RANK FILTER: what that daemon says of a rank
peer_is() {
  ctl "$1" peers --json >"$folder/peers.json" || return 1
  json ".peers[$2] | $3" "$folder/peers.json"
}

# counter NAME FIELD: a number of its status
counter() { ctl "$1" status --json | jq ".$2"; }
