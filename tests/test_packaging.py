"""What a stranger gets: exact pins, the files in the package, and an import that stays light."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import natsr

ROOT = Path(__file__).parent.parent
PIN = re.compile(r"^[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*$")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, Version]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    names = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return {canonical(name): Version(version) for name, _, version in names}


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def requirements(*groups: str) -> list[Requirement]:
    table = project()["project"]
    assert isinstance(table, dict)
    named = [table["dependencies"], *(table["optional-dependencies"][group] for group in groups)]
    return [Requirement(text) for group in named for text in group]


def run_python(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    return done.stdout.strip()


def test_lock_is_exact_and_names_no_machine() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert [line for line in lines if not PIN.match(line)] == []
    assert len(lines) == len(pins())
    assert pins()["torch"] == Version("2.13.0")


@pytest.mark.parametrize("requirement", requirements("dev"), ids=lambda requirement: requirement.name)
def test_lock_satisfies_what_the_project_asks_for(requirement: Requirement) -> None:
    assert requirement.specifier.contains(pins()[canonical(requirement.name)])


def test_lock_can_build_without_isolation() -> None:
    assert {"setuptools", "wheel"} <= set(pins())


def test_version_is_the_same_everywhere() -> None:
    table = project()["project"]
    assert isinstance(table, dict)
    assert table["version"] == natsr.__version__


@pytest.mark.parametrize("path", ["py.typed", "bench/reported.csv", "data/sample/BeijingPM25.csv"])
def test_package_carries_its_files(path: str) -> None:
    assert resources.files("natsr").joinpath(path).is_file()
    patterns = project()["tool"]
    assert isinstance(patterns, dict)
    declared = patterns["setuptools"]["package-data"]["natsr"]
    assert any(Path(path).match(pattern) for pattern in declared)


def test_ci_is_executable() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_import_stays_light() -> None:
    heavy = ("pandas", "matplotlib", "rich", "typer", "scipy", "ray")
    loaded = run_python(f"import sys, natsr; print([name for name in {heavy} if name in sys.modules])")
    assert loaded == "[]"


def test_command_line_starts_without_torch() -> None:
    heavy = ("torch", "pandas", "matplotlib")
    loaded = run_python(f"import sys, natsr.cli; print([name for name in {heavy} if name in sys.modules])")
    assert loaded == "[]"
