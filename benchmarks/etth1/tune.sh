#!/usr/bin/env bash
# Rates for the honest table, chosen without looking at the test stream: the warm-up trains on the first 80 % of the
# train part, and the validation part (720 rows) plays the stream. Then: natsr table benchmarks/results/etth1-tuning.jsonl
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
NATSR=${NATSR:-.venv/bin/natsr}
OUT=${OUT:-benchmarks/results/etth1-tuning.jsonl}
rehearse() { # METHOD RATE…
  local method=$1 rate
  shift
  for rate in "$@"; do
    $NATSR bench --methods "$method" --datasets ETTh1 --horizons 1,24,48 --seeds 0 --protocol honest \
      --part validation --set "$method.rate=$rate" --on processes --workers "${WORKERS:-2}" --out "$OUT"
  done
}
rehearse natsr 0.0025 0.005 0.01 0.02 0.04
rehearse natsr_fast 3e-5 1e-4 3e-4
rehearse ogd 3e-5 1e-4 3e-4
rehearse er 3e-5 1e-4 3e-4
rehearse derpp 3e-5 1e-4 3e-4
