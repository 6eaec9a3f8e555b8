#!/usr/bin/env bash
# The paper's grids on one machine with a GPU: networks on the cone on the GPU, many cells at once and nothing of a step
# on the host; FSNet and OneNet, whose steps are compiled for the CPU, on its cores at the same time. Each part goes on
# from what its file has; the files are then put together in benchmarks/results (see the end).
#
#   NATSR_DATA=<folder> bash benchmarks/paper/h200.sh OUT cores SEEDS WORKERS    FSNet and OneNet, on the cores
#   NATSR_DATA=<folder> bash benchmarks/paper/h200.sh OUT gpu                    the others, on the GPU
#   NATSR_DATA=<folder> bash benchmarks/paper/h200.sh OUT subsets                the same of ECL7 and Traffic20
#   NATSR_DATA=<folder> bash benchmarks/paper/h200.sh OUT studies                ablation and sensitivity
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$1 part=$2
cone=ogd,er,derpp,natsr,natsr_fast
run() {
    echo "$(date +%T) natsr bench $*"
    python3 -m natsr bench "$@"
    echo "$(date +%T) done"
}
case $part in
cores)
    for seed in ${3//,/ }; do
        for grid in complete subsets; do
            run benchmarks/paper/$grid.toml --methods fsnet,fsnet_mae,onenet,onenet_mae --seeds "$seed" \
                --on processes --workers "$4" --out "$out/$grid-cores.jsonl"
        done
    done
    ;;
gpu) run benchmarks/paper/complete.toml --methods $cone --device cuda --out "$out/complete-gpu.jsonl" ;;
subsets) run benchmarks/paper/subsets.toml --methods $cone --device cuda --out "$out/subsets-gpu.jsonl" ;;
studies)
    run benchmarks/paper/ablation.toml --device cuda --out "$out/ablation-gpu.jsonl"
    run benchmarks/paper/sensitivity.toml --device cuda --out "$out/sensitivity-gpu.jsonl"
    ;;
esac
# cat OUT/complete-*.jsonl >> benchmarks/results/paper-complete.jsonl, and so on for subsets, ablation and sensitivity.
