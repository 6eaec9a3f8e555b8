"""What all tests share.

One thread: the matrices are small, and on a shared machine more threads only wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from benchmarks.serve.harness import Nursery, Postgres

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Where services are started that may be killed."""
    from benchmarks.serve.harness import Nursery  # a web server: only for tests that want one

    with Nursery() as made:
        yield made


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    """A PostgreSQL server of the module's own."""
    from benchmarks.serve.harness import Postgres, postgres_binaries

    if postgres_binaries() is None:
        pytest.skip("PostgreSQL's initdb is not installed")
    with Postgres() as server:
        yield server
