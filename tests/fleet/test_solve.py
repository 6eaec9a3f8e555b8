"""Inverses of a stack, in halves where they are too large for what inverts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from natsr.fleet.solve import _in_halves, inverted


def stack_of(size: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(size)
    half = torch.randn(3, size, size, dtype=torch.float64, generator=generator)
    return (half @ half.mT).to(dtype), torch.tensor([0.1, 1.0, 3.0], dtype=dtype)


def library(matrices: Tensor, shift: Tensor, out: Tensor) -> bool:
    assert matrices.shape[-1] <= 8
    out.copy_(torch.linalg.inv(matrices + shift[:, None, None] * torch.eye(matrices.shape[-1]).to(matrices)))
    return True


@pytest.mark.parametrize("size", [3, 8, 9, 17, 33])
def test_halves_give_the_inverse(size: int) -> None:
    stack, shift = stack_of(size)
    out = torch.full_like(stack, torch.nan)
    assert _in_halves(stack, shift, out, library, 8)
    expected = torch.linalg.inv(stack + shift[:, None, None] * torch.eye(size))
    torch.testing.assert_close(out, expected, rtol=1e-8, atol=1e-10)


def test_where_nothing_inverts_halves_say_so() -> None:
    stack, shift = stack_of(20)
    assert not _in_halves(stack, shift, torch.empty_like(stack), lambda *_: False, 8)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("size", [1, 15, 32, 64, 65, 129, 193, 224, 225, 321, 640])
def test_a_shifted_stack_is_inverted(size: int, device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    stack, shift = stack_of(size, torch.float32)
    stack = stack / size
    exact = torch.linalg.inv(stack.double() + shift.double()[:, None, None] * torch.eye(size))
    found = inverted(stack.to(device), shift.to(device)).cpu()
    assert float((found - exact).abs().max() / exact.abs().max()) < 1e-4


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("size", [20, 300])
def test_what_has_no_inverse_is_not_finite_and_the_others_are(size: int, device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    stack, shift = stack_of(size, torch.float32)
    stack[1, -1, -1] = -100.0 * size
    found = inverted(stack.to(device), shift.to(device))
    sums = found.diagonal(dim1=1, dim2=2).sum(-1).isfinite()
    assert sums.tolist() == [True, False, True]
