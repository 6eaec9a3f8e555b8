#!/usr/bin/env bash
# The stable NatSR with other averages of its updates and of its curvature, on the validation parts, honestly: the online
# parts are not looked at. Then: natsr table benchmarks/results/honest-averages.jsonl
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
NATSR=${NATSR:-.venv/bin/natsr}
OUT=${OUT:-benchmarks/results/honest-averages.jsonl}
rehearse() { # DATASETS OPTION…
  local datasets=$1 words=()
  shift
  for option in "$@"; do words+=(--set "natsr.$option"); done
  $NATSR bench --methods natsr --datasets "$datasets" --horizons 1,24 --seeds 0 --protocol honest --part validation \
    "${words[@]}" --out "$OUT"
}
all=ETTh1,ETTh2,ETTm1,WTH,ECL7,Traffic20
rehearse $all rate=0.01 curvature_average=0.555
rehearse $all rate=0.01 curvature_average=0.1
rehearse $all rate=0.01 curvature_average=0.02
rehearse $all rate=0.01 curvature_average=0.1 average=1
rehearse $all rate=0.01 curvature_average=0.05 average=1
rehearse $all rate=0.02 curvature_average=0.05 average=1
rehearse ETTh1,ETTh2,ETTm1 rate=0.02 curvature_average=0.555
