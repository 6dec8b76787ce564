#!/usr/bin/env bash
# The main job, from a fresh clone: builds, starts four daemons and four trainers that train a model on real text, then one
# of each for the same arithmetic, and compares the results to the bit.
set -uo pipefail
cd "$(dirname "$0")/.."

steps=600
usage() {
  echo "usage: deploy/demo.sh [--steps N]   (default $steps; fewer than $steps: only the comparison counts)"
}
short=no
while [ $# -gt 0 ]; do
  case "$1" in
    --steps) steps=${2:-}; shift 2 || { usage >&2; exit 2; }; short=yes ;;
    --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done
[[ "$steps" =~ ^[1-9][0-9]{0,6}$ ]] || { usage >&2; exit 2; }
[ "$steps" -ge 600 ] && short=no

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "demo: FAILED $*"
  exit 1
}

deploy/packages.sh build demo || fail "packages cannot be installed"
{
  cmake --preset release -DFSDP_TESTS=OFF -B build/demo >"$work/build.log" 2>&1 &&
    cmake --build build/demo >>"$work/build.log" 2>&1
} || { tail -n 30 "$work/build.log"; fail "the build"; }
run=build/demo/client/run/fsdp-run
ctl=$PWD/build/demo/client/ctl/fsdpctl
charlm=build/demo/client/examples/charlm

# Verse by verse, without the references in front.
bible -f gen1:1-rev22:21 | sed 's/^[^ ]* //' >"$work/text"
[ -s "$work/text" ] || fail "no text: is bible-kjv-text installed?"
export OPENBLAS_NUM_THREADS=1

echo "== four nodes: the model is sharded over four daemons, each with a trainer =="
"$run" --nodes 4 -- "$charlm" --text "$work/text" --steps "$steps" --write "$work/four" --report "$work/report" --sample 300 \
  --halfway "echo; '$ctl' status; echo" || fail "the trainers of four nodes ended with $?"

echo "== one node: one trainer computes the same four batches one after another, adds, and divides by 4 =="
"$run" --nodes 1 -- "$charlm" --text "$work/text" --steps "$steps" --alone 4 --write "$work/one" ||
  fail "the trainer of one node ended with $?"

difference=$("$charlm" --compare "$work/four" "$work/one") || fail "the results cannot be compared"
read -r first last <"$work/report" || fail "no report"
line="nodes=4 steps=$steps bits_first=$first bits_last=$last max_param_diff=$difference"
[ "$short" = yes ] && line="$line short=yes"
[ "$difference" = 0 ] || fail "one node and four nodes differ: $line"
if [ "$short" = no ]; then
  awk -v bits="$last" 'BEGIN { exit !(bits < 3.3) }' || fail "the model learned too little: $line"
fi
echo "demo: ok $line"
