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

    It is made by calling CLASS with a natsr.Task; a function of a task that returns a forecaster will do as well.
    MODULE is looked for in the current folder first. The exit code is 1 if a check failed. docs/extending.md shows a
    forecaster of a few lines.

    Examples:
      natsr checks my_method:MyForecaster --quick
      natsr checks natsr.forecasters.naive:LastValue
    """

    what: Annotated[str, typer.Argument(metavar="MODULE:CLASS", help="Where the forecaster is.")]
    quick: Annotated[bool, typer.Option("--quick", help="Watch the memory for 2,000 steps, not 20,000.")] = False


def checks(settings: Checks) -> None:
    """Do what the settings say."""
    from natsr.checks import CHECKS, run_check

    make = factory(settings.what)
    _try(make, settings.what)
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
    except Exception as error:
        remedy = f"write {module_name[:-3]}:{name}" if module_name.endswith(".py") else "is it in this folder?"
        reason = f"{type(error).__name__}: {error}"
        raise OptionError(f"module {module_name!r} cannot be imported ({reason}); {remedy}") from error
    made: object = getattr(module, name, None)
    if not callable(made):
        public = ", ".join(sorted(key for key in vars(module) if not key.startswith("_"))[:20])
        raise OptionError(f"{module_name} has no class or function {name!r}; it has {public}")
    return made


def _try(make: Callable[[Task], Forecaster], what: str) -> None:
    """Make one forecaster, so that what cannot be made fails once and not in every check."""
    from natsr.forecasters.base import Forecaster
    from natsr.trials import TASK
    from natsr.types import OptionError

    try:
        made = make(TASK)
    except Exception as error:
        raise OptionError(
            f"{what} cannot be called with a task ({type(error).__name__}: {error}); expected one argument, a "
            "natsr.Task. Where there are more, write a function: def make(task): return MyForecaster(task, …)"
        ) from error
    if not isinstance(made, Forecaster):
        raise OptionError(f"{what} made a {type(made).__name__}, expected a natsr.Forecaster; derive from that class")
