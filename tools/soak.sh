#!/usr/bin/env bash
# tools/soak.sh MINUTES: a quarter of the time the simulation of stores (tests/simulation), a quarter
# the lives of sequences (tests/sequence_lives), the other half all fuzzers (fuzz/*_fuzz.cc), each as
# long as the next. From 10 minutes on, and with clang++, the fuzzers are
# libFuzzer's with the address and undefined behaviour sanitizers (the preset fuzz); else they are
# the release build's with fuzz/standalone_main.cc. One line each; what was found stays in
# build/soak. Exit status 1: something was found.
# SOAK_SEED: where seeds begin (the time, by default). SOAK_FUZZERS: libfuzzer or standalone.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:?usage: tools/soak.sh MINUTES}
if ! [[ $minutes =~ ^[1-9][0-9]*$ ]]; then
  echo "soak: MINUTES is a whole number" >&2
  exit 2
fi
jobs=${JOBS:-$(nproc)}
seed=${SOAK_SEED:-$(date +%s)000}
kind=${SOAK_FUZZERS:-standalone}
if [[ -z ${SOAK_FUZZERS:-} ]] && ((minutes >= 10)) && command -v clang++ > /dev/null; then
  kind=libfuzzer
fi
trap 'echo "soak: stopped" >&2; exit 130' INT TERM
names=()
for source in fuzz/*_fuzz.cc; do names+=("$(basename "$source" .cc)"); done
found=build/soak
mkdir -p "$found"

build() {  # PRESET TARGET...: quiet unless it fails
  local preset=$1 log=$found/build-$1.log
  shift
  # shellcheck disable=SC2086  # CMAKE_ARGS is a list
  { cmake --preset "$preset" ${CMAKE_ARGS:-} &&
    cmake --build "build/$preset" -j "$jobs" --target "$@"; } > "$log" 2>&1 ||
    { tail -n 30 "$log" >&2; exit 1; }
}
if [[ $kind == libfuzzer ]]; then
  build release simulation sequence_lives
  build fuzz "${names[@]}"
else
  build release soak
fi

corpus_of() {  # of chunk_record_fuzz: fuzz/corpus/chunk_record, else fuzz/corpus/chunk
  local name=${1%_fuzz}
  for name in "$name" "${name%%_*}"; do
    if [[ -d fuzz/corpus/$name ]]; then echo "fuzz/corpus/$name" && return; fi
  done
}

with_libfuzzer() {  # NAME SECONDS
  local log=$found/$1.log own=$found/corpus-$1 flags=()
  mkdir -p "$own"
  [[ -f fuzz/${1%_fuzz}.dict ]] && flags+=("-dict=fuzz/${1%_fuzz}.dict")
  # shellcheck disable=SC2046  # no corpus is no argument
  if ! "build/fuzz/$1" -max_total_time="$2" -seed="$((seed % 1000000007))" -print_final_stats=1 \
      -artifact_prefix="$found/$1-" "${flags[@]}" "$own" $(corpus_of "$1") > "$log" 2>&1; then
    echo "$1: found something ($log); again: build/fuzz/$1 INPUT"
    grep -E 'ERROR|SUMMARY|Test unit written' "$log" | head -n 5
    return 1
  fi
  awk -v name="$1" -v s="$2" '/stat::number_of_executed_units/ {n = $2}
    /stat::slowest_unit_time_sec/ {t = $2}
    END {printf "%s: %d runs, %d s, slowest input %d s\n", name, n, s, t}' "$log"
}

status=0
each=$((minutes * 30 / ${#names[@]}))
if [[ $kind == libfuzzer ]]; then
  for name in "${names[@]}"; do with_libfuzzer "$name" "$each" || status=1; done
else
  for name in "${names[@]}"; do
    # shellcheck disable=SC2046
    "build/release/${name}_standalone" --seconds "$each" --seed "$seed" --save "$found" \
      $(corpus_of "$name") || status=1
  done
fi
quarter=$(awk "BEGIN {print $minutes / 4}")
build/release/simulation --minutes "$quarter" --from "$seed" || status=1
build/release/sequence_lives --minutes "$quarter" --from "$seed" || status=1
exit $status
