"""The public names: all there, imported when used, and nothing heavy with them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import natsr


def test_every_public_name_is_there_and_typed() -> None:
    source = Path(natsr.__file__).read_text()
    typed = {alias.asname for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)
             for alias in node.names if alias.asname}  # fmt: skip
    assert set(natsr.__all__) == typed
    for name in natsr.__all__:
        assert getattr(natsr, name) is not None


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(AttributeError, match="NaturalGradient"):
        natsr.__getattr__("Lives")


def test_the_core_needs_torch_and_numpy_only() -> None:
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('pandas', 'typer', 'rich', 'matplotlib', 'scipy', 'safetensors', 'ray'):\n"
        "            raise ImportError(f'{name} is not for the core')\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import natsr\n"
        "[getattr(natsr, name) for name in natsr.__all__]\n"
        "import natsr.evaluate, natsr.bench.cells, natsr.checks\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
