"""`natsr serve` and `natsr token` on the command line: what is refused before anything listens."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from natsr.cli import app
from natsr.serve.run import listening
from natsr.serve.store import Store
from natsr.serve.tokens import hashed, read


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "500", "NO_COLOR": "1"})
    return done.exit_code, done.stdout, done.stderr


def test_a_token_goes_to_standard_output_and_its_hash_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    status, out, _ = run("token", str(path), "--name", "plant", "--scopes", "read,write", "--series", "plant-*,other")
    (token,) = read(path)
    assert status == 0 and hashed(out.strip()) == token.sha256
    assert (token.scopes, token.series) == (("read", "write"), ("plant-*", "other"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "natsr token"),
        (["--tokens", "missing.toml"], "missing.toml"),
        (["--log-level", "loud"], "debug, info, warning or error"),
        (["--state", "mysql://a/b"], "postgresql://"),
    ],
)
def test_what_cannot_be_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, err = run("serve", "--port", "0", *arguments)
    assert status == 2 and words in err


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, _, err = run("serve", "--state", str(tmp_path), "--port", port)
    assert status == 2 and "choose another --port" in err


def test_answers_leave_at_once() -> None:
    """Without TCP_NODELAY the second part of an answer waits 40 ms for the client to confirm the first."""

    async def first_connection() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def look(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            made: socket.socket = writer.get_extra_info("socket")
            found.set_result(made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(look, sock=listening("127.0.0.1", 0)) as server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            answer = await asyncio.wait_for(found, 60)
            writer.close()
            await writer.wait_closed()
            return answer

    assert asyncio.run(first_connection()) != 0


def test_a_backup_on_the_command_line(tmp_path: Path) -> None:
    Store(str(tmp_path / "state")).close()
    status, _, err = run("backup", str(tmp_path / "state"), str(tmp_path / "copy.db"))
    assert status == 0 and "copy.db" in err
    (tmp_path / "again").mkdir()
    (tmp_path / "copy.db").rename(tmp_path / "again" / "natsr.db")
    Store(str(tmp_path / "again")).close()
    for state, file, words in (("none", "copy.db", "natsr serve --state"), ("state", "again/natsr.db", "a new file")):
        status, _, err = run("backup", str(tmp_path / state), str(tmp_path / file))
        assert status == 2 and words in err
    assert not (tmp_path / "none").exists()
