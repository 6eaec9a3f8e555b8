#!/usr/bin/env bash
# What each reading of the paper does to ETTh1 at H = 24 (first 5,000 steps, one seed); docs/decisions/0003-readings.md.
# The first part under the published protocol, where the paper's numbers are; the second under the honest one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
NATSR=${NATSR:-.venv/bin/natsr}
OUT=${OUT:-benchmarks/results}
try() { # PROTOCOL KEY=VALUE…
  local protocol=$1 file=paper setting settings=()
  [[ $protocol == paper ]] || file=honest
  shift
  for setting in "$@"; do settings+=(--set "$setting"); done
  $NATSR bench --methods natsr --datasets ETTh1 --horizons 24 --seeds 0 --max-steps 5000 --protocol "$protocol" \
    --tuned-on test "${settings[@]}" --out "$OUT/etth1-readings-$file.jsonl"
}
published() {
  local rate=rate=0.08
  try paper $rate
  try paper $rate scale_reading=precursor
  try paper $rate scale_rate=0
  try paper $rate memory=0
  try paper $rate law=box beta=1
  try paper $rate law=fixed
  try paper $rate rule=exact
  try paper $rate damped=refresh
  try paper $rate information=stored
  try paper $rate order=before
  try paper $rate average=1
  try paper $rate probes=4
  try paper $rate probes=100 probe=sampled
  try paper $rate dropout=0.1
  try paper rate=0.01 clip=0
  try paper rate=0.093 clip=0 reduction=mean
}
honest() {
  try honest rate=0.01
  try honest rate=0.01 clip=0
  try honest rate=0.01 calendar=bounded
  try honest rate=0.01 calendar=none
  try partial rate=0.01
  try partial rate=0.01 labels=fresh
}
published &
honest &
wait
