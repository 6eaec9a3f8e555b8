#!/usr/bin/env bash
# `auto` under the honest protocol: seven datasets, three horizons, one configuration, nothing tuned on any of them
# (docs/auto.md says what was looked at). Cells that are there already are skipped, so it can be stopped and gone on with.
# Then: natsr table benchmarks/results/auto-honest.jsonl
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
NATSR=${NATSR:-.venv/bin/natsr}
OUT=${OUT:-benchmarks/results/auto-honest.jsonl}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
for horizon in 24 1 48; do
  for dataset in ETTh1 ETTh2 ECL7 Traffic20 ETTm1 ETTm2 WTH; do
    $NATSR bench --methods auto --datasets "$dataset" --horizons "$horizon" --seeds 0 --protocol honest --out "$OUT"
  done
done
