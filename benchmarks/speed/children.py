"""Things that need a process of their own: peak memory, allocations, flatness, and how long a start takes.

Run as `python -m benchmarks.speed.children KIND …`, which prints one JSON object; `ask` does that.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
Found = dict[str, float]


def ask(*words: str | int, timeout: float = 900.0) -> Found:
    """What a child of this module found out."""
    command = [sys.executable, "-m", "benchmarks.speed.children", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[2:])} failed: {done.stderr.strip()[-400:]}")
    found: Found = json.loads(done.stdout.splitlines()[-1])
    return found


def seconds_of(*command: str, repeats: int = 3) -> float:
    """The least processor time that a command takes in a fresh process, the processes it starts included."""
    times = []
    for _ in range(repeats):
        start = sum(os.times()[2:4])  # of children that have ended
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        times.append(sum(os.times()[2:4]) - start)
    return min(times)


def resident(which: str = "VmHWM") -> float:
    """MiB of this process: the most so far (`VmHWM`) or now (`VmRSS`)."""
    status = Path("/proc/self/status")
    for line in status.read_text(encoding="utf-8").splitlines() if status.exists() else []:
        if line.startswith(which):
            return int(line.split()[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def allocations(step: Callable[[], object]) -> tuple[int, float]:
    """How often one step asks torch for memory, and for how many MiB in all."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        step()
    assert watched.profiler is not None and watched.profiler.kineto_results is not None
    sizes = [event.nbytes() for event in watched.profiler.kineto_results.events() if event.name() == "[memory]"]
    taken = [size for size in sizes if size > 0]
    return len(taken), sum(taken) / 2**20


def steady(form: str, name: str, horizon: int, channels: int) -> Found:
    """Peak memory of a few steps and allocations of one, for one case in one form."""
    import torch
    from benchmarks.speed.cases import CASES, fast, shaped, stepper, textbook

    torch.set_num_threads(1)
    task, case = shaped(horizon, channels), next(case for case in CASES if case.name == name)
    before = resident()
    learner = fast(case.method, task, case.options) if form == "fast" else textbook(case, task)
    step = stepper(learner, task, 2 if form == "textbook" or channels > 100 else 20)
    peak = resident()
    count, mib = allocations(step)
    return {
        "peak_mib": round(peak, 1),
        "base_mib": round(before, 1),
        "allocations": count,
        "allocated_mib": round(mib, 3),
    }


def flat(steps: int, looks: int = 5) -> Found:
    """Resident memory of a small NatSR along a long stream: after the first tenth, and at the end."""
    import torch
    from benchmarks.speed.cases import examples, fast, one_by_one, shaped

    torch.set_num_threads(1)
    task = shaped(horizon=4, channels=2)
    learner = fast("natsr", task, {"width": 8, "depth": 3, "top": 16})
    stream = one_by_one(examples(task, 64))
    found: Found = {}
    for done in range(1, steps + 1):
        learner.learn(next(stream))
        if done % (steps // (2 * looks)) == 0:
            found[str(done)] = round(resident("VmRSS"), 2)
    return found


def start() -> Found:
    """Processor seconds of `import natsr`, of its first use and of `natsr --help`; seconds that the compiler takes."""
    clock = "import os, torch; t = sum(os.times()[:4]); "
    told = "; print(sum(os.times()[:4]) - t)"
    beyond = [_printed(f"{clock}import natsr; natsr.Live{told}") for _ in range(3)]
    waiting = "import time; from natsr.native import build; t = time.perf_counter(); found = build.library(); "
    waiting += "print(time.perf_counter() - t if found else -1)"
    waits = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:  # a cache of its own, so that there is something to compile
            waits.append(_printed(waiting, XDG_CACHE_HOME=folder))
    script = Path(sys.executable).with_name("natsr")
    return {
        "import_torch_s": round(seconds_of(sys.executable, "-c", "import torch"), 3),
        "import_natsr_beyond_torch_s": round(min(beyond), 3),
        "compile_s": round(min(waits), 3),
        "help_s": round(seconds_of(str(script), "--help"), 3),
    }


def _printed(code: str, **more: str) -> float:
    """The number that a fresh Python prints."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=os.environ | more)
    return float(done.stdout)


def main(words: list[str]) -> None:
    os.chdir(ROOT)
    kind, *rest = words
    if kind == "steady":
        form, name, horizon, channels = rest
        found = steady(form, name, int(horizon), int(channels))
    elif kind == "flat":
        found = flat(int(rest[0]))
    else:
        found = start()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
