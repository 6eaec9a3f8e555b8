#!/usr/bin/env bash
# Calendar features that cannot leave the range they were learned in: NatSR alone with all seven, standardised, with
# bounded ones (none of which the train part has not seen a whole cycle), and with none; honest. The committed results are of
# a GPU. Then: python -m benchmarks.auto.page
# More words go to `natsr bench`: --device cuda. Cells that are there already are skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PYTHON=${PYTHON:-.venv/bin/python}
OUT=${OUT:-benchmarks/results/auto-calendar.jsonl}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
for calendar in standardised bounded none; do
  "$PYTHON" -m natsr bench --methods natsr --datasets ETTh1,ETTh2,ECL7,Traffic20,ETTm1,ETTm2,WTH --horizons 1,24 --seeds 0-2 \
    --protocol honest --set calendar="$calendar" --out "$OUT" "$@"
done
