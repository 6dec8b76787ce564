#!/usr/bin/env bash
# Builds fsdpd in every form and passes its tests. Installs what is missing. The short form, which is what continuous integration
# runs, takes at most 20 minutes; --full has no limit: more seeds, the end-to-end suite ten times over, the whole demo, fuzzing.
# Closes with "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.."

full=no
case "${1:-}" in
  "") ;;
  --full) full=yes ;;
  *) echo "usage: tests/run.sh [--full]" >&2; exit 2 ;;
esac

logs=build/test-logs
rm -rf "$logs"
mkdir -p "$logs"
passed=0 failed=0 skipped=0 began=$SECONDS
jobs=$(nproc)

# report NAME SECONDS BUDGET PASSED FAILED SKIPPED
report() {
  local over=""
  [ "$full" = no ] && [ "$2" -gt "$3" ] && over="  OVER ITS BUDGET"
  printf '%-22s %4d s of %4s s  %5d passed, %d failed%s%s\n' "$1" "$2" "$([ "$full" = yes ] && echo - || echo "$3")" "$4" "$5" \
    "$([ "$6" -gt 0 ] && echo ", $6 skipped")" "$over"
  passed=$((passed + $4)) failed=$((failed + $5)) skipped=$((skipped + $6))
}

# once NAME BUDGET COMMAND...: a command that passes or fails as one
once() {
  local name=$1 budget=$2 start=$SECONDS log=$logs/$1.log
  shift 2
  if "$@" >"$log" 2>&1; then
    report "$name" $((SECONDS - start)) "$budget" 1 0 0
  else
    tail -n 40 "$log"
    report "$name" $((SECONDS - start)) "$budget" 0 1 0
    return 1
  fi
}

# suite NAME BUDGET PRESET JOBS LABEL: the tests of that label in that build
suite() {
  local name=$1 budget=$2 preset=$3 parallel=$4 label=$5 start=$SECONDS log=$logs/$1.log counts
  ctest --test-dir "build/$preset" -V -j "$parallel" -L "$label" >"$log" 2>&1
  : >"$logs/failures"
  read -r -a counts < <(awk -v failures="$logs/failures" -f tests/count.awk "$log")
  if [ "${counts[0]}" -eq 0 ] && [ "${counts[1]}" -eq 0 ]; then
    counts=(0 1 0)
    echo "$name: no test was found"
  fi
  if [ "${counts[1]}" -gt 0 ]; then
    while read -r test; do
      echo "--- $name: $test failed ---"
      awk -v name="$test" '$0 ~ "Start +[0-9]+: " name "$" { split($0, a, /[^0-9]+/); n = a[2] } n && index($0, n ": ") == 1' \
        "$log" | grep -v 'Test timeout\|Environment' | tail -n 40
    done <"$logs/failures"
  fi
  report "$name" $((SECONDS - start)) "$budget" "${counts[@]}"
}

build() {
  cmake --preset "$1" && cmake --build --preset "$1" -j "$jobs"
}

finish() {
  printf '%-22s %4d s of %4s s\n' "all" $((SECONDS - began)) "$([ "$full" = yes ] && echo - || echo 1200)"
  [ "$skipped" -gt 0 ] && echo "$passed passed, $failed failed, $skipped skipped" || echo "$passed passed, $failed failed"
  exit $((failed > 0))
}

once packages 120 deploy/packages.sh build demo test || finish
once build-dev 120 build dev || finish
once floors 5 tests/floors.sh
suite unit 90 dev "$jobs" '^unit$'
suite e2e 150 dev 1 '^e2e$'
suite sim 120 dev "$jobs" '^sim$'
once build-asan 150 build asan && {
  suite unit-asan 150 asan "$jobs" '^unit$'
  suite e2e-asan 200 asan 1 '^e2e$'
  suite sim-asan 180 asan "$jobs" '^sim$'
}
once build-tsan 120 build tsan && suite threads-tsan 90 tsan 1 '^threads$'
if [ "$full" = no ]; then
  once demo 120 deploy/demo.sh --steps 20
else
  once demo 0 deploy/demo.sh
  once seeds 0 build/dev/tests/sim/sim_cluster --first-seed 100000 --seeds 5000
  once soak 0 ctest --test-dir build/dev -L '^e2e$' --repeat until-fail:10 --output-on-failure
  once build-fuzz 0 build fuzz && suite fuzz 0 fuzz "$jobs" '^fuzz$'
fi
finish
