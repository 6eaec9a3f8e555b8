"""Compiling: once, side by side with others, and not at all where it cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from natsr.native import build

ROOT = Path(__file__).parent.parent.parent
SAY = "from natsr.native import build; print(build.library() is not None)"


def python(code: str, **environment: str) -> subprocess.Popen[str]:
    """A process that uses the sources beside this test."""
    values = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    values = {name: value for name, value in values.items() if value != "unset"}
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=values
    )


def said(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, problem = process.communicate(timeout=300)
    return out.strip(), problem


def test_the_switch_leaves_the_work_to_torch() -> None:
    assert said(python(SAY, NATSR_NATIVE="0"))[0] == "False"


def test_no_compiler_means_torch_and_an_error_only_if_c_was_asked_for(tmp_path: Path) -> None:
    nothing = {"PATH": str(tmp_path), "CC": "unset", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    forecast = (
        "import torch, natsr.recipes as r; from natsr.types import Example, Task; f = r.make('natsr', Task(8, 2, 1), "
        "options={'width': 4, 'depth': 1, 'top': 4}); x = torch.ones(1, 8, 1); f.learn(Example(x, torch.ones(1, 2, 1)))"
        "; print(type(f.net).__name__, tuple(f.forecast(x).mean.shape))"
    )
    assert said(python(forecast, **nothing, NATSR_NATIVE="unset")) == ("ConeTCN (1, 2, 1)", "")
    out, problem = said(python(SAY, **nothing, NATSR_NATIVE="1"))
    assert out == "" and "install a C compiler or unset it" in problem


def test_a_wish_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build.SWITCH, "perhaps")
    with pytest.raises(build.NativeError, match="expected 0"):
        build.library()


def test_a_compiler_that_fails_means_torch(tmp_path: Path) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'no such thing' >&2\nexit 1\n")
    broken.chmod(0o755)
    given = {"PATH": str(tmp_path), "CC": "unset", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert said(python(SAY, **given, NATSR_NATIVE="unset"))[0] == "False"
    _, problem = said(python(SAY, **given, NATSR_NATIVE="1"))
    assert "no such thing" in problem


@pytest.mark.skipif(build.compiler() is None, reason="there is no C compiler here")
def test_two_processes_compile_at_once_and_leave_one_library(tmp_path: Path) -> None:
    given = {"XDG_CACHE_HOME": str(tmp_path), "NATSR_NATIVE": "1"}
    for process in [python(SAY, **given) for _ in range(2)]:
        assert said(process) == ("True", "")
    left = list((tmp_path / "natsr" / "native").iterdir())
    assert len(left) == 1 and left[0].suffix == ".so"
    changed = left[0].stat().st_mtime_ns
    assert said(python(SAY, **given)) == ("True", "")
    assert left[0].stat().st_mtime_ns == changed


@pytest.mark.skipif(build.compiler() is None, reason="there is no C compiler here")
def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "natsr").write_text("a file where the folder should be")
    assert said(python(SAY, XDG_CACHE_HOME=str(tmp_path), NATSR_NATIVE="1")) == ("True", "")


def test_importing_natsr_compiles_nothing() -> None:
    check = "import natsr; from natsr.native import build; print(build._loaded.cache_info().currsize)"
    assert said(python(check))[0] == "0"
