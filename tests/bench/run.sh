#!/usr/bin/env bash
# Times fsdpd beside a prototype over the same ZeroMQ that has no daemon and no failure handling (zmqcoll of --peers DIR), in turn,
# so that the machine's moods hit both. Prints a table; a ratio above 1 means that we are faster. Then times fsdpctl while
# bulk data moves at full speed.
#
#   tests/bench/run.sh [--json FILE] [--peers DIR] [--rounds N] [--seconds S]
set -uo pipefail
cd "$(dirname "$0")/../.."

json="" peers=../shared/peers rounds=5 seconds=1
while [ $# -gt 0 ]; do
  case "$1" in
    --json) json=${2:?} ;;
    --peers) peers=${2:?} ;;
    --rounds) rounds=${2:?} ;;
    --seconds) seconds=${2:?} ;;
    *) sed -n '2,7p' "$0"; exit 2 ;;
  esac
  shift 2
done

deploy/packages.sh build demo test bench || exit 1
out=$(mktemp -d)
clocks=$(mktemp -d /dev/shm/fsdp-bench.XXXXXX)
trap 'rm -rf "$out" "$clocks"' EXIT
{ cmake --preset release && cmake --build --preset release --target fsdpd fsdp-run fsdpctl bench-collectives; } >"$out/build.log" 2>&1 ||
  { tail -n 30 "$out/build.log"; exit 1; }
build=build/release
sizes=(1048576 67108864)

zmqcoll=""
if [ -f "$peers/src/zmqcoll.c" ]; then
  cp -r "$peers/src" "$out/src" && mkdir -p "$out/bin" && chmod -R u+w "$out/src" &&
    make -s -C "$out/src" ../bin/zmqcoll >>"$out/build.log" 2>&1 && zmqcoll=$out/bin/zmqcoll
  [ -n "$zmqcoll" ] || { tail -n 30 "$out/build.log"; exit 1; }
fi

ours() { # world round
  "$build/client/run/fsdp-run" --nodes "$1" -- "$build/tests/bench/bench-collectives" "$clocks/$1.$2" "$seconds" "${sizes[@]}" |
    sed -n 's/^\[0\] RES \([a-z-]*\) \([0-9]*\) \([0-9]*\) [0-9]* \([0-9.]*\)$/ours \1 \2 \3 \4/p'
}
peer() { # world
  local list
  list=$(IFS=,; echo "${sizes[*]}")
  "$zmqcoll" label=zmqcoll alg=direct W="$1" sizes="$list" tcap="$seconds" chunk=1M rhwm=4 |
    awk -F, '/^RES/ { print "peer", $3 == "ag" ? "all-gather" : "reduce-scatter", $4, $5, $7 }'
}

for ((round = 1; round <= rounds; round++)); do
  for world in 2 4; do
    ours $world $round >>"$out/rows" || { echo "bench: our run with $world nodes failed"; exit 1; }
    [ -n "$zmqcoll" ] && peer $world >>"$out/rows"
  done
done
[ -s "$out/rows" ] || { echo "bench: nothing was measured"; exit 1; }

# The control socket while two nodes move 64 MiB units as fast as they can.
"$build/client/run/fsdp-run" --nodes 2 -- sh -c "echo \$FSDP_CONTROL_SOCKET >$out/control.\$RANK; exec $build/tests/bench/bench-collectives \
  $clocks/control 4 67108864" >"$out/bulk" 2>&1 &
bulk=$!
for ((i = 0; i < 200; i++)); do [ -s "$out/control.0" ] && break; sleep 0.05; done
socket=$(cat "$out/control.0")
sleep 1
asked=0
while kill -0 $bulk 2>/dev/null && [ $asked -lt 500 ]; do
  before=${EPOCHREALTIME/./}
  "$build/client/ctl/fsdpctl" --socket "$socket" --json status >/dev/null || break
  echo $((${EPOCHREALTIME/./} - before)) >>"$out/control"
  asked=$((asked + 1))
done
wait $bulk || { cat "$out/bulk"; echo "bench: the bulk run failed"; exit 1; }

python3 - "$out/rows" "$out/control" "$json" "${zmqcoll:+yes}" <<'PYTHON'
import json, statistics, sys

rows, control, path, has_peer = sys.argv[1:5]
samples = {}
for line in open(rows):
    who, op, world, size, us = line.split()
    samples.setdefault((op, int(world), int(size)), {}).setdefault(who, []).append(float(us))
table = []
for (op, world, size), by in sorted(samples.items(), key=lambda item: (item[0][0], item[0][1], item[0][2])):
    ours, peer = by["ours"], by.get("peer", [])
    pairs = [p / o for o, p in zip(ours, peer)]
    table.append({"case": "two-planes-tcp", "op": op, "world": world, "workers": world, "bytes": size,
                  "ours_us": round(statistics.median(ours), 1), "peer": "zmqcoll" if peer else "skipped",
                  "peer_us": round(statistics.median(peer), 1) if peer else None,
                  "ratio": round(statistics.median(pairs), 3) if pairs else None})
times = sorted(float(line) for line in open(control))
p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
table.append({"case": "control-under-load", "op": "status", "world": 2, "workers": 2, "bytes": 67108864, "ours_us": p99,
              "peer": "limit", "peer_us": 100000.0, "ratio": round(100000.0 / p99, 3)})
print(f"{'case':<20} {'op':<15} {'world':>5} {'bytes':>10} {'ours us':>10} {'peer':>10} {'peer us':>10} {'ratio':>7}")
for row in table:
    shown = {k: "-" if v is None else v for k, v in row.items()}
    print(f"{row['case']:<20} {row['op']:<15} {row['world']:>5} {row['bytes']:>10} {row['ours_us']:>10} "
          f"{row['peer']:>10} {shown['peer_us']:>10} {shown['ratio']:>7}")
print(f"control: {len(times)} questions while bulk data moved, p50 {times[len(times) // 2] / 1e3:.1f} ms, "
      f"p99 {p99 / 1e3:.1f} ms, worst {times[-1] / 1e3:.1f} ms")
if path:
    json.dump(table, open(path, "w"), indent=1)
PYTHON
