#!/usr/bin/env bash
# The paper's grids on one machine with a GPU: many cells beside each other, many learners to a step, and nothing of a step
# on the host. Each part goes on from what its file has, and from what is in benchmarks/results; the files are then put
# together there (see the end). More words narrow a part, as `natsr bench` has it: --methods fsnet, --seeds 0.
#
#   NATSR_DATA=<folder> bash benchmarks/paper/h200.sh OUT complete [...]    all nine methods on the five datasets
#   NATSR_DATA=<folder> bash benchmarks/paper/h200.sh OUT subsets [...]     the same on ECL7 and Traffic20
#   NATSR_DATA=<folder> bash benchmarks/paper/h200.sh OUT ablation
#   NATSR_DATA=<folder> bash benchmarks/paper/h200.sh OUT sensitivity
#   NATSR_DATA=<folder> bash benchmarks/paper/h200.sh OUT sensitivity-box   both studies as the algorithm box has the method
#   NATSR_DATA=<folder> bash benchmarks/paper/h200.sh OUT ablation-box-0.06 (0.05, 0.07)
#   NATSR_DATA=<folder> bash benchmarks/paper/h200.sh OUT tuning METHOD [--over rate,average,curvature_average]
#                                                                           on the stream of ETTh1, as published
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$1 part=$2
shift 2
run() {
    echo "$(date +%T) natsr $*"
    python3 -m natsr "$@"
    echo "$(date +%T) done"
}
case $part in
complete | subsets | ablation* | sensitivity*)
    run bench "benchmarks/paper/$part.toml" --device cuda --out "$out/$part-gpu.jsonl" "$@"
    ;;
tuning)
    method=$1
    shift
    run tune --method "$method" --dataset ETTh1 --horizons 1,24,48 --tuned-on test --trials 30 --workers 15 --device cuda \
        --out "$out/tuning-$method.jsonl" "$@"
    ;;
*) echo "$part is no part, expected complete, subsets, ablation, sensitivity (or one of their other files) or tuning" >&2 && exit 2 ;;
esac
# cat OUT/complete-gpu.jsonl >> benchmarks/results/paper-complete.jsonl, and so on for the others.
