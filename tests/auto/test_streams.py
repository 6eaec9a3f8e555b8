"""Who is back first after a change, by how many rows, and how sure that is."""

from __future__ import annotations

import numpy as np
from benchmarks.auto.streams import AFTER, CHANGE, SINGLES, SMOOTHED, WARM, Array, changed, judged

ROWS = CHANGE + AFTER - WARM


def _off(rows: int) -> Array:
    """An error of 1 that is 3 for so many rows after the change."""
    place = np.arange(ROWS) - (CHANGE - WARM)
    return np.where((place >= 0) & (place < rows), 3.0, 1.0)


def _curves(auto: list[int], rls: list[int]) -> dict[str, Array]:
    found = {method: 4.0 * np.ones((len(auto), ROWS)) for method in SINGLES}
    return found | {
        "auto": np.stack([_off(rows) for rows in auto]),
        "rls": np.stack([_off(rows) for rows in rls]),
    }


def test_rows_behind_are_those_that_the_best_single_method_needs_less() -> None:
    found = judged(_curves([150] * 5, [110] * 5))
    assert found["behind"] == {"rows": 40, "low": 40, "high": 40}
    assert found["auto"]["best"] - found["rls"]["best"] == 40
    assert 110 < found["rls"]["best"] < 110 + SMOOTHED and found["last_value"]["best"] == -1
    assert found["auto"]["later"] == 2.0 and found["last_value"]["later"] == 4.0


def test_who_is_never_back_needs_as_long_as_the_stream_goes_on() -> None:
    found = judged(_curves([ROWS] * 3, [110] * 3))
    assert found["auto"]["best"] == -1
    assert found["behind"]["rows"] == AFTER - found["rls"]["best"]


def test_streams_that_differ_say_how_sure_it_is() -> None:
    found = judged(_curves([60, 60, 60, 60, 400, 400], [150] * 6))["behind"]
    assert found["low"] < 0 < found["high"] and found["low"] <= found["rows"] <= found["high"]


def test_a_changed_stream_is_the_same_up_to_the_change_and_another_after_it() -> None:
    streams = list(changed(3).values())
    for stream in streams[1:]:
        np.testing.assert_array_equal(stream[:CHANGE], streams[0][:CHANGE])
        assert np.abs(stream[CHANGE:] - streams[0][CHANGE:]).mean() > 0.5
