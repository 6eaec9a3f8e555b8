"""The files in `deploy/` name commands, options, paths and limits that are there."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import typer.main

from natsr.cli import app
from natsr.serve.routes import router
from natsr.serve.settings import Limits

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]


def check_command(words: list[str]) -> None:
    """The words are a command line that the program would take."""
    assert words[0] in SCRIPTS
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    command = group.commands[words[1]]
    command.make_context(words[1], words[2:])  # raises what a user would see


def unit() -> dict[str, list[str]]:
    lines = (DEPLOY / "natsr.service").read_text(encoding="utf-8").splitlines()
    found: dict[str, list[str]] = {}
    for line in lines:
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_the_unit_starts_what_there_is() -> None:
    found = unit()
    words = shlex.split(found["ExecStart"][0])
    check_command([Path(words[0]).name, *words[1:]])
    state = Path(words[words.index("--state") + 1])
    assert state == Path("/var/lib") / found["StateDirectory"][0]
    name, _, _ = found["LoadCredential"][0].partition(":")
    assert words[words.index("--tokens") + 1] == "${CREDENTIALS_DIRECTORY}/" + name


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_understands_the_unit() -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", str(DEPLOY / "natsr.service")], capture_output=True, text=True, check=False
    )
    unknown = [line for line in done.stderr.splitlines() if "natsr.service:" in line and "Unknown" in line]
    assert not unknown, unknown


def test_the_container_copies_and_starts_what_there_is() -> None:
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    assert steps[0][0] == "FROM"
    for what, given in steps:
        if what == "COPY":
            assert all((ROOT / name).exists() for name in given.split()[:-1]), given
    said = {what: given for what, given in steps if what in ("ENTRYPOINT", "CMD")}
    check_command([*json.loads(said["ENTRYPOINT"]), *json.loads(said["CMD"])])
    extras = re.findall(r"/src\[([a-z,]+)\]", text)[0].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(extras) <= set(project["optional-dependencies"])


def test_the_proxy_lets_through_what_the_service_takes() -> None:
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    assert int(re.findall(r"client_max_body_size (\d+)m;", text)[0]) * 2**20 >= Limits.body_bytes
    assert int(re.findall(r"location / \{.*?proxy_read_timeout (\d+)s;", text, re.DOTALL)[0]) > 60
    streams = re.compile(re.findall(r"location ~ (\S+) \{", text)[0])
    paths = [str(getattr(route, "path", "")) for route in router.routes]
    assert any(path.endswith("/events") for path in paths)
    for path in paths:
        assert bool(streams.match(path.replace("{key}", "plant-7"))) == path.endswith("/events"), path


@pytest.mark.parametrize("name", ["Containerfile", "natsr.service", "nginx.conf"])
def test_the_page_names_the_file(name: str) -> None:
    assert f"(../deploy/{name})" in (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
