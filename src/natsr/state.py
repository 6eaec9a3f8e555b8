"""Save and load a state: safetensors and JSON in a folder, atomic, checked, versioned, and never pickle.

A saved state is three files:

| file                     | what is in it                                                                         |
|--------------------------|---------------------------------------------------------------------------------------|
| `manifest.json`          | format, kind, and the name, size and SHA-256 of the other two; its own SHA-256 as seal |
| `values-N.json`          | everything but the tensors; `{"$tensor": name}` stands where one belongs               |
| `tensors-N.safetensors`  | the tensors, named by their place (a JSON pointer such as `/forecaster/net/weight`)    |

The two data files of a new state get a new number, and the manifest is replaced last. Whoever pulls the plug at any
moment finds the old state or the new one, never half of either. One writer at a time is assumed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import numpy.typing as npt
import torch
from torch import Tensor

from natsr.types import State, StateError

#: Raised when what a state of any kind holds has changed; states of every format since 1 can be loaded.
FORMAT = 13
MANIFEST = "manifest.json"
_DATA = re.compile(r"(values|tensors)-(\d{1,18})\.(json|safetensors)(\.tmp)?")

#: A JSON document. Only this module looks inside.
_Json: TypeAlias = Any


class Saved(NamedTuple):
    """What a folder held."""

    state: State
    meta: dict[str, Any]


#: From what a state of one format held to what the next one holds.
Migration: TypeAlias = Callable[[Saved], Saved]


def save(folder: str | Path, state: State, *, kind: str, meta: Mapping[str, Any] | None = None) -> None:
    """Write a state into a folder, replacing the one that is there, or leaving it whole if anything goes wrong.

    Tensors come back on the CPU, contiguous, each with memory of its own; floats come back with every bit.

    Args:
        folder: Made if missing.
        state: Nested dictionaries and lists of tensors, numbers, text, booleans and `None`.
        kind: What the state belongs to, such as `live`; `load` asks for the same word.
        meta: Plain JSON beside the state, such as the arguments needed to build the object again.

    Raises:
        StateError: The state holds something else, or the folder cannot be written.
    """
    tensors: dict[str, Tensor] = {}
    values = {"meta": _encoded(dict(meta or {}), "/meta", {}), "state": _encoded(state, "", tensors)}
    data = {"values": _text(values), "tensors": _packed(tensors)}
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _replace(folder, kind, data)
    except OSError as error:
        raise StateError(
            f"cannot write the state to {folder}: {error}; expected a writable folder with "
            f"{sum(map(len, data.values())):,} bytes to spare. The state saved there before, if any, still stands"
        ) from error


def load(folder: str | Path, *, kind: str, migrations: Mapping[int, Migration] | None = None) -> Saved:
    """Read the state that `save` wrote last.

    Args:
        folder: Where it was saved.
        kind: The word it was saved with.
        migrations: By format, what turns a state of it into one of the next; a format that is not there needs nothing.

    Raises:
        StateError: There is none, or it is damaged, of another kind, or from a newer natsr.
    """
    folder = Path(folder)
    manifest = _manifest(folder, kind)
    files = manifest["files"]
    values = json.loads(_checked(folder, "values", files))
    tensors = _unpacked(_checked(folder, "tensors", files), folder)
    state = cast(State, _decoded(values["state"], tensors))
    saved = Saved(state, cast(dict[str, Any], _decoded(values["meta"], {})))
    for number in range(manifest["format"], FORMAT):
        if migrations and number in migrations:
            saved = migrations[number](saved)
    return saved


def on_device(state: State, device: torch.device) -> State:
    """The same state with its tensors on a device, as a learner there needs it; `load` gives them on the CPU."""
    return {name: _moved(part, device) for name, part in state.items()}


def _moved(part: _Json, device: torch.device) -> _Json:
    if isinstance(part, Tensor):
        return part.to(device)
    if isinstance(part, list):
        return [_moved(item, device) for item in part]
    return on_device(part, device) if isinstance(part, dict) else part


def of_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> State:
    """Arrays as a part of a state: copies, by name."""
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def tensor_of(state: State, name: str, shape: tuple[int | None, ...]) -> Tensor:
    """A tensor of a state, if it has this shape; `None` stands for any length.

    Raises:
        StateError: It is not there, or of another shape.
    """
    value = state.get(name)
    there = tuple(value.shape) if isinstance(value, Tensor) else ()
    fits = len(there) == len(shape) and all(n in (None, m) for n, m in zip(shape, there, strict=True))
    if not isinstance(value, Tensor) or not fits:
        got = there if isinstance(value, Tensor) else value
        raise StateError(f"{name} is {got}, expected an array of shape {shape}; is it the same task?")
    return value


def into_arrays(state: State, arrays: Mapping[str, npt.NDArray[Any]], whose: str) -> None:
    """Write what `of_arrays` gave back into the arrays; whatever does not fit changes none of them.

    Args:
        state: Holds each by its name, and perhaps more.
        arrays: Where they go.
        whose: What the state belongs to, for the message.

    Raises:
        StateError: One is not there, or of another shape.
    """
    found: list[tuple[npt.NDArray[Any], Tensor]] = []
    for name, array in arrays.items():
        value = state.get(name)
        if not isinstance(value, Tensor) or tuple(value.shape) != array.shape:
            got = tuple(value.shape) if isinstance(value, Tensor) else value
            raise StateError(
                f"{name} of the {whose} is {got}, expected an array of shape {array.shape}; is it the same task?"
            )
        found.append((array, value))
    for array, value in found:
        array[...] = value.numpy()


# What is written, and in which order.


def _replace(folder: Path, kind: str, data: Mapping[str, bytes]) -> None:
    """Write the data files under new names, then point the manifest at them, then drop the old ones."""
    old = [path for path in folder.iterdir() if _DATA.fullmatch(path.name)]
    number = 1 + max((int(path.name.split("-")[1].split(".")[0]) for path in old), default=0)
    names = {"values": f"values-{number:06d}.json", "tensors": f"tensors-{number:06d}.safetensors"}
    for part, content in data.items():
        _write(folder / names[part], content)
    _sync(folder)  # the names must be on the disk before the manifest speaks of them
    files = {part: {"name": names[part], **_fingerprint(content)} for part, content in data.items()}
    body = {"format": FORMAT, "kind": kind, "files": files}
    _write(folder / MANIFEST, _text({**body, "seal": _seal(body)}))
    _sync(folder)
    for path in old:
        path.unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    """Put a file in its place in one stroke."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _sync(folder: Path) -> None:
    """Make the folder's own entries durable, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _text(document: _Json) -> bytes:
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode("ascii")


def _fingerprint(content: bytes) -> dict[str, int | str]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _seal(body: Mapping[str, Any]) -> str:
    """The manifest's checksum of itself: what it says of kind and files is covered too."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


# From a tree with tensors to a tree without, and back.


def _encoded(value: object, place: str, tensors: dict[str, Tensor]) -> _Json:
    """The value as strict JSON; its tensors go to `tensors` under their places."""
    match value:
        case Tensor():
            tensors[place] = value
            return {"$tensor": place}
        case None | bool() | str():
            return value
        case int():
            return int(value)
        case float():
            return float(value) if abs(value) < float("inf") else {"$float": str(float(value))}
        case dict():
            return {
                _key(key, place): _encoded(item, f"{place}/{_pointer(key)}", tensors) for key, item in value.items()
            }
        case list() | tuple():
            return [_encoded(item, f"{place}/{index}", tensors) for index, item in enumerate(value)]
    raise StateError(
        f"the state holds {type(value).__name__} at {place or '/'}, expected tensors, numbers, text, booleans, None, "
        "and dictionaries and lists of them; convert it in state_dict()"
    )


def _decoded(value: _Json, tensors: Mapping[str, Tensor]) -> object:
    match value:
        case {"$tensor": str(place)}:
            return tensors[place]
        case {"$float": str(text)}:
            return float(text)
        case dict():
            return {key[1:] if key.startswith("$") else key: _decoded(item, tensors) for key, item in value.items()}
        case list():
            return [_decoded(item, tensors) for item in value]
    return value


def _key(key: object, place: str) -> str:
    """A key as it is written: `$` is ours, so a user's is doubled."""
    if not isinstance(key, str):
        raise StateError(f"the state has the key {key!r} at {place or '/'}, expected text; use str(key)")
    return "$" + key if key.startswith("$") else key


def _pointer(key: str) -> str:
    """A key as a part of a JSON pointer (RFC 6901), so that no two places have one name."""
    return key.replace("~", "~0").replace("/", "~1")


def _packed(tensors: Mapping[str, Tensor]) -> bytes:
    # Imported here so that natsr can be imported, and forecast, where safetensors is not installed.
    from safetensors import SafetensorError
    from safetensors.torch import save as pack

    # safetensors refuses views and shared memory; a copy has neither.
    copies = {
        place: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for place, tensor in tensors.items()
    }
    try:
        return pack(copies)
    except (SafetensorError, ValueError, KeyError) as error:
        kinds = ", ".join(sorted({str(tensor.dtype) for tensor in tensors.values()}))
        raise StateError(f"cannot store the tensors of this state ({kinds}): {error}; use plain dense types") from error


def _unpacked(content: bytes, folder: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load as unpack

    try:
        # Cloned for torch's own alignment: the last bit of a product may depend on where its factors lie.
        return {place: tensor.clone() for place, tensor in unpack(content).items()}
    except SafetensorError as error:
        raise StateError(f"the tensors of the state in {folder} cannot be read: {error}; use a backup") from error


# What is believed.


def _manifest(folder: Path, kind: str) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise StateError(f"no state in {folder}: {MANIFEST} is not there; expected a folder written by save") from None
    except OSError as error:
        raise StateError(f"cannot read {path}: {error}; expected a readable file") from error
    except ValueError:
        raise _damaged(path, "it is not JSON") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise StateError(f"{path} is not a natsr state: it has no format number; expected a folder written by save")
    if not 1 <= manifest["format"] <= FORMAT:
        raise StateError(
            f"the state in {folder} has format {manifest['format']}, this natsr reads formats 1 to {FORMAT}; "
            "load it with the version of natsr that wrote it, or upgrade natsr"
        )
    body = {key: value for key, value in manifest.items() if key != "seal"}
    if manifest.get("seal") != _seal(body):
        raise _damaged(path, "its checksum does not match what it says")
    if manifest["kind"] != kind:
        raise StateError(
            f"the state in {folder} is of kind {manifest['kind']!r}, expected {kind!r}; it belongs to something else"
        )
    return body


def _checked(folder: Path, part: str, files: Mapping[str, Any]) -> bytes:
    """The content of one data file, if it is the one that was written."""
    entry = files[part]
    name = str(entry["name"])
    if not _DATA.fullmatch(name):
        raise _damaged(folder / MANIFEST, f"it names the file {name!r}")
    path = folder / name
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StateError(f"the state in {folder} lacks {name}: {error}; expected it beside {MANIFEST}") from error
    if len(content) != entry["bytes"]:
        raise _damaged(path, f"it has {len(content):,} bytes, expected {entry['bytes']:,}")
    if _fingerprint(content)["sha256"] != entry["sha256"]:
        raise _damaged(path, "its SHA-256 differs from the manifest's")
    return content


def _damaged(path: Path, what: str) -> StateError:
    return StateError(
        f"{path} is damaged: {what}; expected the file as natsr wrote it. Restore the folder from a backup"
    )
