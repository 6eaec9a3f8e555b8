#!/usr/bin/env bash
# ETTh1 under the honest protocol: a label is learned when it is known. Rates come from benchmarks/etth1/tune.sh, which
# never looks at this stream; those that are a method's default are not set again.
# Then: natsr table benchmarks/results/etth1-honest.jsonl
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
NATSR=${NATSR:-.venv/bin/natsr}
OUT=${OUT:-benchmarks/results/etth1-honest.jsonl}
common=(--datasets ETTh1 --horizons 48,24,1 --seeds 0-2 --protocol honest --on processes --workers "${WORKERS:-2}" --out "$OUT")
$NATSR bench --methods natsr,natsr_fast,er,derpp,ogd --set ogd.rate=3e-5 --tuned-on validation "${common[@]}"
$NATSR bench --methods frozen,rls_mv,rls,mean,seasonal,last_value "${common[@]}"
