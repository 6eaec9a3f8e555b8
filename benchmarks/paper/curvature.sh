#!/bin/sh
# NatSR under the protocol `paper` with a slower average of its curvature than the grids have (0.555), one seed: the fast
# one on the five datasets, and the stable one with and without its dynamic scale.
set -eu
cd "$(dirname "$0")/../.."
PYTHON="${PYTHON:-python3}"
out=benchmarks/results/paper-curvature.jsonl
run() {
    "$PYTHON" -m natsr bench --seeds 0 --protocol paper --tuned-on test --set average=1 --out "$out" "$@"
}
run --methods natsr_fast --datasets ETTh1,ETTh2,ETTm1,ETTm2,WTH --horizons 1,24,48 --set rate=2e-4 --set curvature_average=0.02
for average in 0.02 0.1 0.3 0.7 0.99; do
    run --methods natsr --datasets ETTh1 --horizons 24 --set rate=0.05 --set curvature_average=$average
done
for average in 0.02 0.1; do
    run --methods natsr --datasets ETTh1 --horizons 24 --set rate=0.05 --set curvature_average=$average --set scale_rate=0
done
