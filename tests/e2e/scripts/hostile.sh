#!/usr/bin/env bash
# What strangers send is counted and dropped; the daemon lives on, no larger than before, and trains.
. "$(dirname "$0")/check.bash"

hostile() { gives 0 python3 "$here/hostile.py" "$@"; }
descriptors() { local list=(/proc/"${pids[$1]}"/fd/*); echo ${#list[@]}; }
memory_kib() { awk '/^VmRSS:/ { print $2 }' "/proc/${pids[$1]}/status"; }
malformed_above() { [ "$(counter 0 malformed)" -gt "$1" ]; }
descriptors_at_most() { [ "$(descriptors 0)" -le "$1" ] || { ls -l "/proc/${pids[0]}/fd"; return 1; }; }

# counted NAME HOW ENDPOINT COUNT: it is done, and malformed rises by as many at least
counted() {
  local before
  before=$(counter 0 malformed)
  check "$1" hostile "$2" "$3" "$4"
  check "$1: counted" wait_until malformed_above $((before + $4 - 1))
}

# trained: a training step on both daemons
trained() {
  local worker=() rank code=0
  for rank in 0 1; do
    FSDP_SOCKET=$folder/$rank/client.sock timeout "$bound" "$FSDP_TEST_CASES" original_sync_is_a_mean &
    worker+=($!)
  done
  for rank in 0 1; do wait "${worker[rank]}" || code=1; done
  return $code
}

strangers() {
  local plane
  for plane in "${control_ports[0]}" "${bulk_ports[0]}"; do
    check "garbage bytes on a plane" hostile garbage "$plane" 10
    check "half a greeting on a plane" hostile half "$plane" 10
    counted "frames that make no sense on a plane" frames "$plane" 10
    check "a peer with a name of its own choice on a plane" hostile impostor "$plane" 3
    check "a frame of 2^62 bytes on a plane" hostile huge "$plane" 3
    check "200 connects and disconnects on a plane" hostile connects "$plane" 200
  done
  for name in client control; do
    counted "records that make no sense on the $name socket" records "$folder/0/$name.sock" 20
    counted "a record of 200 KiB on the $name socket" large "$folder/0/$name.sock" 2
    check "40 descriptors on the $name socket" hostile descriptors "$folder/0/$name.sock" 3
    check "a descriptor that lingers on the $name socket" hostile lingering "$folder/0/$name.sock"
    check "which holds nobody up" gives 0 "$fsdpctl" --timeout 3 --socket "$folder/0/control.sock" status
    check "200 connects and disconnects on the $name socket" hostile connects "$folder/0/$name.sock" 200
  done
}

choose_ports 2
configure 0 a 0 2
configure 1 a 1 2
start 0
start 1
check "two daemons start" wait_until all_well 0 1
check "they train" trained
strangers # once for what is made at the first time
check "after it the daemon is well" wait_until all_well 0 1
before_memory=$(memory_kib 0) before_descriptors=$(descriptors 0)
strangers
check "after it the daemon is well again" wait_until all_well 0 1
check "no descriptor stays" wait_until descriptors_at_most "$before_descriptors"
check "its memory stays ($before_memory KiB, now $(memory_kib 0))" test "$(memory_kib 0)" -le $((before_memory + 4096))
check "nobody was taken for a peer" peer_is 0 1 '.state == "joined"'
check "they train as before" trained
check "the log tells of it in few lines ($(wc -l <"$folder/0.log"))" test "$(wc -l <"$folder/0.log")" -lt 150
check "both leave cleanly" stop 0 1

finish
