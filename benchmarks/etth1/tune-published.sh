#!/usr/bin/env bash
# The rate and the average of the fast NatSR, tuned as the published ones were: on the stream of ETTh1 itself, under the
# published protocol (the first 1,500 steps, H = 24). Then: natsr table benchmarks/results/etth1-tuning-published.jsonl
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
NATSR=${NATSR:-.venv/bin/natsr}
OUT=${OUT:-benchmarks/results/etth1-tuning-published.jsonl}
$NATSR tune --method natsr_fast --dataset ETTh1 --tuned-on test --max-steps 1500 --horizons 24 --trials 8 --out "$OUT"
# Few trials do not find the corner of the space; these are the method as it is, and without an average of its updates.
stretch=(--methods natsr_fast --datasets ETTh1 --seeds 0 --max-steps 1500 --protocol paper --tuned-on test --out "$OUT")
for rate in 1e-4 2e-4 3e-4; do
  $NATSR bench "${stretch[@]}" --horizons 24 --set rate=$rate --set average=1
done
$NATSR bench "${stretch[@]}" --horizons 24,48,1 --set rate=1e-4 --set average=0.555
$NATSR bench "${stretch[@]}" --horizons 48,1 --set rate=3e-4 --set average=1
