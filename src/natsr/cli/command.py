"""From a frozen dataclass to a command: its fields are the options, its docstring is the help.

So a command is an ordinary function of one value, which tests and other programs can call as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_type_hints

import typer

from natsr.cli.show import fail, note

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")
#: Exit codes: what was asked for makes no sense, or cannot be done; and the user stopped it.
REFUSED, STOPPED = 2, 130


class Command(Generic[S]):
    """A callable with the signature that typer makes options of."""

    def __init__(self, settings: type[S], run: Callable[[S], None]) -> None:
        hints = get_type_hints(settings, include_extras=True)
        self._settings, self._run = settings, run
        self.__doc__ = reflowed(inspect.getdoc(settings) or "")
        self.__annotations__ = hints
        self.__signature__ = inspect.Signature([_parameter(item, hints[item.name]) for item in fields(settings)])

    def __call__(self, **given: Any) -> None:
        with shown_errors():
            self._run(self._settings(**given))


def reflowed(text: str) -> str:
    """Paragraphs as single lines, so that they fit any terminal; examples keep their lines."""
    paragraphs = text.split("\n\n")
    # The mark in front is click's: leave this paragraph as it is.
    return "\n\n".join(f"\b\n{part}" if part.startswith("Example") else part.replace("\n", " ") for part in paragraphs)


def _parameter(item: Field[Any], annotation: object) -> inspect.Parameter:
    default = item.default
    if item.default_factory is not MISSING:
        default = item.default_factory()
    elif default is MISSING:
        default = inspect.Parameter.empty
    return inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


@contextmanager
def shown_errors() -> Iterator[None]:
    """Show an error that natsr raised on purpose as one message; let others, which are mistakes of ours, pass."""
    # Here and not above: torch comes with it, and `--help` must not wait for torch.
    from natsr.types import NatsrError

    try:
        yield
    except NatsrError as error:
        fail(str(error))
        raise typer.Exit(REFUSED) from error
    except KeyboardInterrupt:
        note("stopped; what has been written so far is complete and can be used")
        raise typer.Exit(STOPPED) from None
