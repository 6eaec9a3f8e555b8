#!/usr/bin/env bash
# What each reading of the paper does to ETTh1 at H = 24 (first 2,500 steps, one seed); docs/decisions/0003-readings.md.
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
  $NATSR bench --methods natsr --datasets ETTh1 --horizons 24 --seeds 0 --max-steps 2500 --protocol "$protocol" \
    --tuned-on test "${settings[@]}" --out "$OUT/etth1-readings-$file.jsonl"
}
published() {
  local base="rate=0.05 average=1"
  try paper $base
  try paper $base scale_reading=precursor
  try paper $base scale_rate=0
  try paper $base memory=0
  try paper $base law=box beta=1
  try paper $base rule=exact
  try paper $base damped=refresh
  try paper $base information=stored
  try paper $base order=before
  try paper rate=0.05 average=0.555
  try paper $base probes=100 probe=sampled
  try paper $base dropout=0.1
  try paper rate=0.01 clip=0
}
honest() {
  try honest
  try honest clip=0
  try honest calendar=bounded
  try honest anchor=last
  try partial
  try partial labels=fresh
}
published &
honest &
wait
