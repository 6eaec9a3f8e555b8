#!/bin/sh
# Every measurement of docs/serve.md at its full length, on the first two cores, one after the other, and the page at the
# end: some two and a half hours of a quiet machine. From the repository's root:
#
#   PYTHON=.venv/bin/python sh benchmarks/serve/long.sh                  everything
#   PYTHON=.venv/bin/python sh benchmarks/serve/long.sh load hour        some of it
#   MINUTES=0.2 … sh benchmarks/serve/long.sh load natsr                 does it run at all? (overwrites results)
#   PACE=40 … sh benchmarks/serve/long.sh hour                           40 rows a second, beside other work
#
# load (auto, 1, 10 and 100 series, 10 minutes each), natsr (the same with the network), hour (10 series for an hour),
# memory (100,000 rows), crash (200 kills on each database; needs PostgreSQL), hostile (100,000 requests; needs
# schemathesis), idle (1,000 series).
set -eu
export OMP_NUM_THREADS=1 PYTHONPATH="src:.${PYTHONPATH:+:$PYTHONPATH}"
PYTHON="${PYTHON:-python3}"
CORES="${CORES:-0,1}"
MINUTES="${MINUTES:-10}"

run() {
    echo "$(date '+%H:%M:%S') python -m benchmarks.serve.$*" >&2
    if command -v taskset > /dev/null; then
        taskset -c "$CORES" "$PYTHON" -m "benchmarks.serve.$@"
    else
        "$PYTHON" -m "benchmarks.serve.$@"
    fi
}

for part in ${*:-load natsr hour memory crash hostile idle}; do
    case "$part" in
        load) run load --minutes "$MINUTES" ;;
        natsr) run load --minutes "$MINUTES" --method natsr --name load-natsr ;;
        hour) run load --minutes 60 --series 10 --name hour ${PACE:+--pace "$PACE"} ;;
        memory) run memory --rows 100000 ;;
        crash) run crash --kills 200 --longest 2 ;;
        hostile) run hostile --count 100000 --raw 5000 --examples 30 ;;
        idle) run idle ;;
        *) echo "$part is not one of load, natsr, hour, memory, crash, hostile, idle" >&2; exit 2 ;;
    esac
done
run page
