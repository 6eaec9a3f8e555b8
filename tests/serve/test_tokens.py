"""Tokens: only hashes are kept, what they allow is exact, and a broken file changes nothing."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from natsr.serve import tokens
from natsr.serve.tokens import Token, Tokens, add, hashed, read
from natsr.types import OptionError


def test_a_token_is_shown_once_and_kept_as_a_hash(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    token = add(path, "plant", ["read", "write"], ["plant-*"])
    assert token not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read(path) == (Token("plant", hashed(token), ("read", "write"), ("plant-*",)),)
    other = add(path, 'a "strange" name', ["admin"], ["*"])
    found = Tokens(path)
    assert [known and known.name for known in map(found.find, (token, other))] == ["plant", 'a "strange" name']
    assert found.find(token + "x") is None
    assert found.find("") is None
    assert found.find("\udcff") is None


@pytest.mark.parametrize(
    ("scope", "key", "allowed"),
    [
        ("read", "plant-7", True),
        ("read", None, True),
        ("write", "plant-7", False),
        ("admin", "plant-7", False),
        ("read", "Plant-7", False),
        ("read", "other", False),
        ("read", "", False),
    ],
)
def test_what_a_token_allows(scope: str, key: str | None, allowed: bool) -> None:
    assert Token("t", "", ("read",), ("plant-*",)).may(scope, key) is allowed


def test_admin_is_everything_for_its_series() -> None:
    token = Token("t", "", ("admin",), ("a",))
    assert token.may("read", "a") and token.may("write", "a") and token.may("admin", "a")
    assert not token.may("admin", "b")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "token = 3",
        "nonsense",
        "[[token]]\nname = 'a'",
        "[[token]]\nname='a'\nsha256='xyz'\nscopes=['read']\nseries=['*']",
        f"[[token]]\nname='a'\nsha256='{'0' * 64}'\nscopes=['reed']\nseries=['*']",
        f"[[token]]\nname='a'\nsha256='{'0' * 64}'\nscopes=[]\nseries=['*']",
        f"[[token]]\nname='a'\nsha256='{'0' * 64}'\nscopes=['read']\nseries='*'",
        f"[[token]]\nname='a'\nsha256='{'0' * 64}'\nscopes=['read']\nseries=['*']\nmore=1",
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(OptionError, match="natsr token|expected"):
        read(path)


def test_a_scope_that_does_not_exist_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="read, write, admin"):
        add(tmp_path / "tokens.toml", "a", ["everything"], ["*"])
    assert not (tmp_path / "tokens.toml").exists()


def test_the_file_is_read_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_EVERY", 0.0)
    path = tmp_path / "tokens.toml"
    first = add(path, "first", ["read"], ["*"])
    known = Tokens(path)
    second = add(path, "second", ["read"], ["*"])
    assert known.find(second) is not None
    path.write_text("broken")
    assert known.find(first) is not None, "a broken file must not lock everyone out"
    path.unlink()
    assert known.find(first) is not None
