#!/usr/bin/env bash
# ETTh1 under the honest protocol: a label is learned when it is known. Rates come from benchmarks/etth1/tune.sh, which
# never looks at this stream; those that are a method's default are not set again. Cells that are the same under both
# protocols (H = 1 at the same rate, and what learns nothing) are taken from the published table's results, which
# benchmarks/etth1/paper.sh makes.
# Then: natsr table benchmarks/results/etth1-honest.jsonl
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
NATSR=${NATSR:-.venv/bin/natsr}
OUT=${OUT:-benchmarks/results/etth1-honest.jsonl}
common=(--datasets ETTh1 --seeds 0-2 --protocol honest --on processes --workers "${WORKERS:-2}" --out "$OUT"
  --same-as "$(dirname "$OUT")/etth1-paper.jsonl")
$NATSR bench --methods natsr,natsr_fast,er,derpp,ogd --set ogd.rate=3e-5 --horizons 48,24,1 --tuned-on validation "${common[@]}"
$NATSR bench --methods natsr --set anchor=last --horizons 24 --tuned-on validation "${common[@]}"
$NATSR bench --methods frozen,rls_mv,rls,mean,seasonal,last_value --horizons 48,24,1 "${common[@]}"
