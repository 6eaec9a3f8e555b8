#!/usr/bin/env bash
# The honest grid on one machine with a GPU: networks on the GPU, where processes on the cores make intervals of their
# forecasts; methods without a network, and auto, on the cores. Each part goes on from what its file has, and from what is
# in benchmarks/results; the files are then put together there (see the end). More words narrow a part, as `natsr bench`
# has it: --protocol honest, --datasets WTH, --horizons 24,48, --seeds 0.
#
#   NATSR_DATA=<folder> bash benchmarks/honest/h200.sh OUT gpu [...]              OGD, ER, DER++ and NatSR
#   NATSR_DATA=<folder> bash benchmarks/honest/h200.sh OUT adapted [...]          FSNet and OneNet, on the GPU too
#   NATSR_DATA=<folder> bash benchmarks/honest/h200.sh OUT cheap WORKERS [...]    what costs next to nothing, on the cores
#   NATSR_DATA=<folder> bash benchmarks/honest/h200.sh OUT auto WORKERS [...]     auto, on the cores
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$1 part=$2
shift 2
run() {
    echo "$(date +%T) natsr bench benchmarks/honest/complete.toml $*"
    python3 -m natsr bench benchmarks/honest/complete.toml --out "$out/honest-$part.jsonl" "$@"
    echo "$(date +%T) done"
}
case $part in
gpu) run --methods ogd,er,derpp,natsr,natsr_fast --device cuda "$@" ;;
adapted) run --methods fsnet,fsnet_mae,onenet,onenet_mae --device cuda "$@" ;;
cheap) run --methods last_value,seasonal,rls,rls_mv,frozen --on processes --workers "$@" ;;
auto) run --methods auto --on processes --workers "$@" ;;
*) echo "$part is no part, expected gpu, adapted, cheap or auto" >&2 && exit 2 ;;
esac
# cat OUT/honest-*.jsonl >> benchmarks/results/honest-complete.jsonl
