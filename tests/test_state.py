"""A saved state comes back with every bit, survives a crash at any moment, and is not believed when tampered with."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from natsr import state as states
from natsr.types import State, StateError

TENSORS: dict[str, Callable[[], Tensor]] = {
    "generator": lambda: torch.Generator().manual_seed(7).get_state(),
    "bool": lambda: torch.tensor([[True, False], [False, False]]),
    "bfloat16": lambda: torch.tensor([1.5, -2.25, float("nan")], dtype=torch.bfloat16),
    "float16": lambda: torch.tensor([1e-7, 6e4], dtype=torch.float16),
    "float64": lambda: torch.tensor([math.pi, -0.0, 5e-324, float("inf"), float("nan")], dtype=torch.float64),
    "int64": lambda: torch.tensor([2**62, -1]),
    "empty": lambda: torch.empty(0, 3),
    "zero_dim": lambda: torch.tensor(0.1),
    "transposed": lambda: torch.arange(6.0).reshape(2, 3).T,
    "strided": lambda: torch.arange(10)[::3],
    "expanded": lambda: torch.tensor([1.0]).expand(4),
    "slice": lambda: torch.arange(1000.0)[:2],
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
}


def same(a: Tensor, b: Tensor) -> bool:
    """Equal in type, shape and every bit."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    flat = (x.detach().contiguous().reshape(-1).view(torch.uint8) for x in (a, b))
    return torch.equal(*flat)


def round_trip(folder: Path, state: State) -> State:
    states.save(folder, state, kind="test")
    return states.load(folder, kind="test").state


@pytest.mark.parametrize("name", TENSORS)
def test_tensor_comes_back_with_every_bit(name: str, tmp_path: Path) -> None:
    tensor = TENSORS[name]()
    back = round_trip(tmp_path, {"x": tensor})["x"]
    assert isinstance(back, Tensor)
    assert same(back, tensor)
    assert back.is_contiguous() and not back.requires_grad
    assert back.untyped_storage().nbytes() == back.numel() * back.element_size()


def test_restored_generator_draws_the_same_numbers(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    torch.rand(5, generator=generator)
    back = round_trip(tmp_path, {"g": generator.get_state()})["g"]
    assert isinstance(back, Tensor)
    restored = torch.Generator()
    restored.set_state(back)
    assert torch.equal(torch.rand(9, generator=restored), torch.rand(9, generator=generator))


def test_tensors_that_share_memory_come_back_apart(tmp_path: Path) -> None:
    base = torch.arange(6.0)
    back = round_trip(tmp_path, {"a": base, "b": base, "c": base[2:4]})
    a, b, c = back["a"], back["b"], back["c"]
    assert isinstance(a, Tensor) and isinstance(b, Tensor) and isinstance(c, Tensor)
    assert same(a, base) and same(b, base) and same(c, base[2:4])
    a.zero_()
    assert same(b, base) and same(c, base[2:4])


def test_plain_values_come_back_as_they_were(tmp_path: Path) -> None:
    state: State = {
        "none": None,
        "yes": True,
        "no": False,
        "one": 1,
        "big": 2**80,
        "text": 'é "quoted" \n </script> \ud800',
        "floats": {"pi": math.pi, "tiny": 5e-324, "third": 1 / 3, "minus_zero": -0.0, "inf": -math.inf},
        "empty": {},
        "nothing": [],
        "list": [{"x": torch.ones(2)}, {"deep": [{"y": torch.zeros(1, dtype=torch.int32)}]}],
        "order": {"z": 1, "a": 2},
    }
    back = round_trip(tmp_path, state)
    assert list(back) == list(state)
    for key in ("none", "yes", "no", "one", "big", "text", "floats", "empty", "nothing", "order"):
        assert back[key] == state[key] and type(back[key]) is type(state[key])
    floats, order = back["floats"], back["order"]
    assert isinstance(floats, dict) and math.copysign(1.0, float(str(floats["minus_zero"]))) == -1.0
    assert isinstance(order, dict) and list(order) == ["z", "a"]
    nested = back["list"]
    assert isinstance(nested, list) and isinstance(nested[0]["x"], Tensor)
    deep = nested[1]["deep"]
    assert isinstance(deep, list) and isinstance(deep[0]["y"], Tensor) and deep[0]["y"].dtype == torch.int32


def test_nan_comes_back_and_the_file_is_strict_json(tmp_path: Path) -> None:
    back = round_trip(tmp_path, {"x": math.nan})["x"]
    assert isinstance(back, float) and math.isnan(back)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    for path in tmp_path.glob("*.json"):
        json.loads(path.read_text(), parse_constant=refuse)


def test_awkward_keys_do_not_collide(tmp_path: Path) -> None:
    state: State = {
        "a/b": torch.tensor(1.0),
        "a": {"b": torch.tensor(2.0)},
        "a~1b": torch.tensor(3.0),
        "": torch.tensor(4.0),
        "__metadata__": torch.tensor(5.0),
        "$tensor": "not a tensor",
        "$$float": {"$float": 1.0, "é": torch.tensor(6.0)},
    }
    back = round_trip(tmp_path, state)
    assert [float(str(t.item())) for t in back.values() if isinstance(t, Tensor)] == [1.0, 3.0, 4.0, 5.0]
    assert back["a"] == {"b": torch.tensor(2.0)}
    assert back["$tensor"] == "not a tensor"
    assert back["$$float"] == {"$float": 1.0, "é": torch.tensor(6.0)}


def test_meta_comes_back(tmp_path: Path) -> None:
    meta = {"columns": ["a", "b"], "horizon": 24, "options": {"rate": 0.1}, "nothing": None}
    states.save(tmp_path, {}, kind="test", meta=meta)
    assert states.load(tmp_path, kind="test").meta == meta


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, b"bytes", 1j, lambda: None], ids=lambda value: type(value).__name__
)
def test_what_cannot_be_stored_is_refused_before_anything_is_written(value: Any, tmp_path: Path) -> None:
    states.save(tmp_path, {"x": 1}, kind="test")
    with pytest.raises(StateError, match=r"/deep/0.*expected tensors"):
        states.save(tmp_path, {"deep": [value]}, kind="test")
    assert states.load(tmp_path, kind="test").state == {"x": 1}


def test_keys_that_are_not_text_are_refused(tmp_path: Path) -> None:
    state: Any = {"by_step": {1: 2.0}}
    with pytest.raises(StateError, match=r"key 1 at /by_step, expected text"):
        states.save(tmp_path, state, kind="test")


def test_types_that_safetensors_lacks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="complex128"):
        states.save(tmp_path, {"x": torch.zeros(2, dtype=torch.complex128)}, kind="test")


def test_saving_again_leaves_three_files(tmp_path: Path) -> None:
    for number in range(4):
        states.save(tmp_path, {"x": torch.full((3,), float(number))}, kind="test")
        (back,) = states.load(tmp_path, kind="test").state.values()
        assert isinstance(back, Tensor) and same(back, torch.full((3,), float(number)))
        assert len(list(tmp_path.iterdir())) == 3


class PlugPulled(BaseException):
    """Nothing catches it, as nothing catches a power cut."""


class Plug:
    """Counts the moments at which a save touches the disk, and stops at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, when: str) -> None:
        self.moments = 0
        self.at, self.when = at, when
        for name in ("replace", "fsync", "unlink"):
            monkeypatch.setattr(os, name, self.around(name, getattr(os, name)))

    def around(self, name: str, call: Callable[..., None]) -> Callable[..., None]:
        def counted(*args: Any, **kwargs: Any) -> None:
            self.moments += 1
            due = self.moments == self.at
            if due and name == "fsync" and stat.S_ISREG(os.fstat(args[0]).st_mode):
                os.ftruncate(args[0], os.fstat(args[0]).st_size // 2)  # what was not synced may be there in part
            if due and self.when == "before":
                raise PlugPulled
            call(*args, **kwargs)
            if due:
                raise PlugPulled

        return counted


def whole(folder: Path) -> float:
    """The number that both halves of the state in the folder agree on."""
    state = states.load(folder, kind="test").state
    number, tensor = state["number"], state["tensor"]
    assert isinstance(number, float) and isinstance(tensor, Tensor)
    assert torch.equal(tensor, torch.full((100,), number))
    return number


def numbered(number: float) -> State:
    return {"number": number, "tensor": torch.full((100,), number)}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_moment_leaves_the_old_state_or_the_new(when: str, tmp_path: Path) -> None:
    seen: list[float] = []
    for at in range(1, 100):
        folder = tmp_path / str(at)
        states.save(folder, numbered(1.0), kind="test")
        with pytest.MonkeyPatch.context() as patch:
            plug = Plug(patch, at, when)
            try:
                states.save(folder, numbered(2.0), kind="test")
            except PlugPulled:
                pass
            else:
                break
        seen.append(whole(folder))
        states.save(folder, numbered(3.0), kind="test")  # what the crash left behind is swept away
        assert whole(folder) == 3.0
        assert len(list(folder.iterdir())) == 3
        assert plug.moments == at
    assert len(seen) >= 10  # three files with two moments each, two syncs of the folder, two removals
    assert seen == sorted(seen) and set(seen) == {1.0, 2.0}


def test_a_crash_in_the_first_save_leaves_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Plug(monkeypatch, 3, "before")
    with pytest.raises(PlugPulled):
        states.save(tmp_path, numbered(1.0), kind="test")
    with pytest.raises(StateError, match="no state in"):
        states.load(tmp_path, kind="test")


def test_a_full_disk_is_reported_and_the_old_state_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states.save(tmp_path, numbered(1.0), kind="test")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StateError, match="No space left.*bytes to spare.*still stands"):
            states.save(tmp_path, numbered(2.0), kind="test")
    assert whole(tmp_path) == 1.0


def test_a_file_in_the_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("something else")
    with pytest.raises(StateError, match="expected a writable folder"):
        states.save(path, {}, kind="test")
    with pytest.raises(StateError, match="cannot read"):
        states.load(path, kind="test")
    assert path.read_text() == "something else"


@pytest.mark.parametrize("pattern", ["manifest.json", "values-*.json", "tensors-*.safetensors"])
def test_one_changed_byte_anywhere_is_noticed(pattern: str, tmp_path: Path) -> None:
    states.save(tmp_path, numbered(1.0), kind="test", meta={"a": 1})
    (path,) = tmp_path.glob(pattern)
    content = path.read_bytes()
    for position in range(0, len(content), 7):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        with pytest.raises(StateError):
            states.load(tmp_path, kind="test")
    path.write_bytes(content[:-5])
    with pytest.raises(StateError, match=r"damaged"):
        states.load(tmp_path, kind="test")
    path.write_bytes(content)
    assert whole(tmp_path) == 1.0


@pytest.mark.parametrize("pattern", ["manifest.json", "values-*.json", "tensors-*.safetensors"])
def test_a_lost_file_is_named(pattern: str, tmp_path: Path) -> None:
    states.save(tmp_path, numbered(1.0), kind="test")
    (path,) = tmp_path.glob(pattern)
    path.unlink()
    with pytest.raises(StateError, match=path.name):
        states.load(tmp_path, kind="test")


def resealed(folder: Path, **changes: Any) -> None:
    """Rewrite the manifest as someone would who knows how it is sealed."""
    path = folder / states.MANIFEST
    manifest = json.loads(path.read_text()) | changes
    body = {key: value for key, value in manifest.items() if key != "seal"}
    path.write_text(json.dumps({**body, "seal": states._seal(body)}))


def test_another_kind_is_refused(tmp_path: Path) -> None:
    states.save(tmp_path, {}, kind="forecaster")
    with pytest.raises(StateError, match="of kind 'forecaster', expected 'live'"):
        states.load(tmp_path, kind="live")


def test_a_newer_format_asks_for_an_upgrade(tmp_path: Path) -> None:
    states.save(tmp_path, {}, kind="test")
    resealed(tmp_path, format=states.FORMAT + 1)
    with pytest.raises(
        StateError, match=f"format {states.FORMAT + 1}, this natsr reads formats 1 to {states.FORMAT}; .*upgrade"
    ):
        states.load(tmp_path, kind="test")


@pytest.mark.parametrize("content", ["[]", "{}", '{"format": "one"}', "not json", ""])
def test_a_foreign_manifest_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / states.MANIFEST).write_text(content)
    with pytest.raises(StateError, match=r"not a natsr state|not JSON"):
        states.load(tmp_path, kind="test")


def test_a_manifest_cannot_point_out_of_the_folder(tmp_path: Path) -> None:
    states.save(tmp_path / "state", {}, kind="test")
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    entry = {"name": "../secret.json", **states._fingerprint(b"{}")}
    manifest = json.loads((tmp_path / "state" / states.MANIFEST).read_text())
    resealed(tmp_path / "state", files={**manifest["files"], "values": entry})
    with pytest.raises(StateError, match="names the file"):
        states.load(tmp_path / "state", kind="test")


def test_a_state_moves_to_a_device_with_all_that_is_in_it() -> None:
    state: State = {"a": torch.zeros(2), "b": {"c": torch.zeros(1), "d": 3}, "e": [{"f": torch.zeros(())}], "g": None}
    moved = states.on_device(state, torch.device("meta"))
    assert isinstance(moved["b"], dict) and isinstance(moved["e"], list)
    parts = (moved["a"], moved["b"]["c"], moved["e"][0]["f"])
    assert all(isinstance(part, Tensor) and part.is_meta for part in parts)
    assert moved["b"]["d"] == 3 and moved["g"] is None


def test_an_older_format_is_migrated_where_its_kind_needs_it(tmp_path: Path) -> None:
    states.save(tmp_path, {"count": 1}, kind="toy", meta={"a": 1})
    resealed(tmp_path, format=1)

    def counted(saved: states.Saved) -> states.Saved:
        return states.Saved({**saved.state, "seen": 2}, saved.meta)

    assert states.load(tmp_path, kind="toy").state == {"count": 1}
    assert states.load(tmp_path, kind="toy", migrations={1: counted}) == states.Saved({"count": 1, "seen": 2}, {"a": 1})
    states.save(tmp_path, {"count": 3}, kind="toy")  # written now: nothing to migrate
    assert states.load(tmp_path, kind="toy", migrations={1: counted}).state == {"count": 3}


def test_arrays_that_do_not_all_fit_stay_as_they_are() -> None:
    arrays = {"first": np.zeros(2), "second": np.zeros((1, 3))}
    state = states.of_arrays({"first": np.ones(2), "second": np.ones((1, 3)), "third": np.ones(1)})
    parts: list[State] = [{**state, "second": torch.ones(3)}, {**state, "second": None}]
    for spoilt in parts:
        with pytest.raises(StateError, match=r"second of the clock is .*, expected an array of shape \(1, 3\)"):
            states.into_arrays(spoilt, arrays, "clock")
        assert not any(array.any() for array in arrays.values())
    states.into_arrays(state, arrays, "clock")
    assert all(array.all() for array in arrays.values())
    arrays["first"][0] = 7.0
    assert torch.equal(torch.as_tensor(state["first"]), torch.ones(2, dtype=torch.float64))


def test_a_tensor_of_a_state_has_the_shape_that_is_expected() -> None:
    state: State = {"rows": torch.ones(5, 2), "count": 3}
    assert states.tensor_of(state, "rows", (None, 2)) is state["rows"]
    for name, shape in (("rows", (None, 3)), ("rows", (5,)), ("count", ()), ("other", (None, 2))):
        with pytest.raises(StateError, match=rf"{name} is .*, expected an array of shape .*; is it the same task\?"):
            states.tensor_of(state, name, shape)
