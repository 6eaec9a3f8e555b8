#!/usr/bin/env bash
# The intervals of `auto` beside plain alternatives, on all that is asked for: seven datasets and three horizons, and BeijingPM25 at
# H = 24. Forecasts are kept in $FORECASTS; those that are there already are not made again. Then the interval figures of
# benchmarks/results/auto-honest.jsonl are brought up to date, if the forecasts are the same, and the pages are written.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PYTHON=${PYTHON:-.venv/bin/python}
FORECASTS=${FORECASTS:-out/forecasts}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} PYTHONPATH=src:.
run() { "$PYTHON" -m benchmarks.intervals.run --method auto --forecasts "$FORECASTS" "$@"; }
run --datasets BeijingPM25 --horizons 24
for horizon in 48 24 1; do
  run --datasets ETTh1,ETTh2,ETTm1,ETTm2,WTH,ECL7,Traffic20 --horizons "$horizon"
done
"$PYTHON" -m benchmarks.intervals.rescore --forecasts "$FORECASTS" --results benchmarks/results/auto-honest.jsonl
"$PYTHON" -m benchmarks.intervals.page
"$PYTHON" -m benchmarks.auto.page
