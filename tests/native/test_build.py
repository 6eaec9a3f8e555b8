"""Compiling: once, side by side with others, and not at all where it cannot be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from natsr.native import build

ROOT = Path(__file__).parent.parent.parent
SAY = "from natsr.native import build; print(build.library() is not None)"
#: Stands for a compiler: what comes after `-o` is written, unless the command is a mere question.
PRETENDER = """#!/bin/sh
case "$*" in *" -E "*) exit 0 ;; esac
while [ "$1" != "-o" ]; do shift; done
echo made > "$2"
"""
SPOKEN = build.ABI
SPEAKS = f'__attribute__((visibility("default"))) int natsr_abi(void) {{ return {SPOKEN}; }}'
BROKEN = "#!/bin/sh\necho 'no such thing' >&2\nexit 1\n"


def python(code: str, **environment: str) -> subprocess.Popen[str]:
    """A process that uses the sources beside this test."""
    values = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    values = {name: value for name, value in values.items() if value != "unset"}
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=values
    )


def said(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, problem = process.communicate(timeout=900)
    return out.strip(), problem


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As in a new process, with an empty folder for a PATH and another for a cache."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setattr(build, "_loaded", build._loaded.__wrapped__)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv(build.SWITCH, raising=False)
    return tools


def compiler(tools: Path, text: str) -> list[str]:
    """Put a compiler on the PATH."""
    path = tools / "cc"
    path.write_text(text)
    path.chmod(0o755)
    return [str(path)]


def test_the_switch_leaves_the_work_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build.SWITCH, "0")
    assert build.library() is None


def test_a_wish_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build.SWITCH, "perhaps")
    with pytest.raises(build.NativeError, match="expected 0"):
        build.library()


@pytest.mark.usefixtures("fresh")
def test_no_compiler_is_an_error_only_if_c_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert build.compiler() is None and build.library() is None
    monkeypatch.setenv(build.SWITCH, "1")
    with pytest.raises(build.NativeError, match="no C compiler .* install a C compiler or unset it"):
        build.library()


def test_a_learner_without_a_compiler_learns_in_torch(tmp_path: Path) -> None:
    code = (
        "import torch, natsr.recipes as r; from natsr.types import Example, Task; f = r.make('natsr', Task(8, 2, 1), "
        "options={'width': 4, 'depth': 1, 'top': 4}); x = torch.ones(1, 8, 1); f.learn(Example(x, torch.ones(1, 2, 1)))"
        "; print(type(f.net).__name__, tuple(f.forecast(x).mean.shape))"
    )
    nothing = {"PATH": str(tmp_path), "CC": "unset", "NATSR_NATIVE": "unset", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert said(python(code, **nothing)) == ("ConeTCN (1, 2, 1)", "")


def test_a_compiler_that_fails_means_torch(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(fresh, BROKEN)
    assert build.library() is None
    monkeypatch.setenv(build.SWITCH, "1")
    with pytest.raises(build.NativeError, match="no such thing"):
        build.library()


def test_what_was_compiled_is_found_again_under_a_name_of_its_own(fresh: Path, tmp_path: Path) -> None:
    command = compiler(fresh, PRETENDER)
    place = build._built(command, ["-O3"])
    assert place.parent == tmp_path / "cache" / "natsr" / "native" and place.read_text() == "made\n"
    place.write_text("kept")
    assert build._built(command, ["-O3"]) == place and place.read_text() == "kept"
    other = build._built(command, ["-O2"])
    assert sorted(place.parent.iterdir()) == sorted([place, other])


def test_a_cache_that_cannot_be_written_is_done_without(fresh: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    place = build._built(compiler(fresh, PRETENDER), ["-O3"])
    assert place.exists() and tmp_path not in place.parents


@pytest.mark.skipif(build.compiler() is None, reason="there is no C compiler here")
def test_a_file_that_is_damaged_or_has_another_interface_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_loaded", build._loaded.__wrapped__)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(build.SWITCH, "1")
    monkeypatch.setattr(build, "SOURCES", {"kernels.c": SPEAKS})
    command = build.compiler()
    assert command is not None
    place = build._built(command, [*build.FLAGS, *build._tuning(command)])
    place.write_bytes(b"damaged")
    assert build.library() is not None and place.stat().st_size > 1000
    monkeypatch.setattr(build, "ABI", -1)
    with pytest.raises(build.NativeError, match=f"has interface {SPOKEN}, expected -1"):
        build.library()


@pytest.mark.skipif(build.compiler() is None, reason="there is no C compiler here")
def test_two_processes_compile_at_once_and_leave_one_library(tmp_path: Path) -> None:
    given = {"XDG_CACHE_HOME": str(tmp_path), "NATSR_NATIVE": "1"}
    for process in [python(SAY, **given) for _ in range(2)]:
        assert said(process) == ("True", "")
    left = list((tmp_path / "natsr" / "native").iterdir())
    assert len(left) == 1 and left[0].suffix == ".so"


@pytest.mark.skipif(build.compiler() is None, reason="there is no C compiler here")
def test_a_process_keeps_the_c_that_its_python_was_written_for(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src")
    changed = tmp_path / "src" / "natsr" / "native" / "kernels.h"
    change = f"from pathlib import Path; Path({str(changed)!r}).write_text('#error another version'); "
    given = {"PYTHONPATH": str(tmp_path / "src"), "NATSR_NATIVE": "1"}
    assert said(python("import natsr.native.calls; " + change + SAY, **given)) == ("True", "")
    out, problem = said(python(SAY, **given))  # as this one finds it
    assert not out and "cannot be compiled" in problem


def test_importing_natsr_compiles_nothing() -> None:
    check = "import natsr; from natsr.native import build; print(build._loaded.cache_info().currsize)"
    assert said(python(check))[0] == "0"
