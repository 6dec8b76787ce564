#!/usr/bin/env bash
# Installs what is missing of the named sets of Debian packages: build, demo, test, bench. Does nothing, and needs neither root
# nor network, where all are there already.
set -euo pipefail

build="cmake ninja-build gcc libc6-dev pkg-config libzmq3-dev libprotobuf-c-dev protobuf-c-compiler libsystemd-dev libxxhash-dev
  libjansson-dev"
demo="libopenblas-pthread-dev bible-kjv bible-kjv-text"
test="libcriterion-dev g++ clang libclang-rt-14-dev jq python3 binutils procps"
bench="make"

missing=()
for set in "$@"; do
  for package in ${!set}; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
