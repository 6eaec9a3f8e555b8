"""`natsr checks`: the contract of a forecaster, run over one that somebody wrote."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from natsr.cli.show import Watch, note

if TYPE_CHECKING:
    from natsr.forecasters.base import Forecaster
    from natsr.types import Task

#: Some check did not pass.
BROKEN = 1


@dataclass(frozen=True)
class Checks:
    """Check that a forecaster of yours keeps the contract: pure forecasts, states that go on bit for bit, and so on.

    It is made by calling CLASS with a natsr.types.Task; any callable that answers a forecaster will do. MODULE is
    looked for in the current folder first.

    Examples:
      natsr checks my_method:MyForecaster
      natsr checks natsr.forecasters.naive:LastValue
    """

    what: Annotated[str, typer.Argument(metavar="MODULE:CLASS", help="Where the forecaster is.")]
    quick: Annotated[bool, typer.Option("--quick", help="Watch the memory for 2,000 steps, not 20,000.")] = False


def checks(settings: Checks) -> None:
    """Do what the settings say."""
    from natsr.checks import CHECKS, run_check

    make = factory(settings.what)
    results = []
    with Watch() as watch:
        for done, name in enumerate(CHECKS):
            watch.update({"checks": name}, done, len(CHECKS))
            results.append(run_check(name, make, quick=settings.quick))
        watch.update({"checks": ""}, len(CHECKS), len(CHECKS))
    for result in results:
        verdict = "skipped" if result.skipped else "passed" if result.passed else "FAILED"
        why = result.error or result.skipped
        typer.echo(f"{verdict:8} {result.name} ({result.seconds:.1f} s){': ' + why if why else ''}")
    failed = sum(not result.passed for result in results)
    note(f"{len(results) - failed} of {len(results)} checks did not fail")
    if failed:
        raise typer.Exit(BROKEN)


def factory(what: str) -> Callable[[Task], Forecaster]:
    """The callable that MODULE:CLASS names.

    Raises:
        OptionError: There is none.
    """
    from natsr.types import OptionError

    module_name, colon, name = what.partition(":")
    if not colon or not module_name or not name:
        raise OptionError(f"got {what!r}, expected MODULE:CLASS such as my_method:MyForecaster")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise OptionError(f"module {module_name!r} cannot be imported ({error}); is it in this folder?") from error
    made: object = getattr(module, name, None)
    if not callable(made):
        public = ", ".join(sorted(key for key in vars(module) if not key.startswith("_"))[:20])
        raise OptionError(f"{module_name} has no class or function {name!r}; it has {public}")
    return made
