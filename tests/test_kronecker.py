"""One block against the dense matrix that it stands for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from natsr.kronecker import DampingRule, Kronecker

RULES: tuple[DampingRule, ...] = ("exact", "pi")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def positive(size: int, rank: int, seed: int = 0) -> Tensor:
    rows = normal(rank, size, seed=seed)
    return rows.T @ rows / rank


def damped(block: Kronecker, outputs: int, damping: float, rule: DampingRule) -> Tensor:
    """The damped block as a dense matrix, by the rule's own formula."""
    if rule == "exact":
        return block.dense(outputs) + damping * torch.eye(len(block.a) * outputs, dtype=block.a.dtype)
    g = block.g if block.g.ndim else block.g * torch.eye(outputs, dtype=block.a.dtype)
    pi = ((block.a.trace() / len(block.a)) / (g.trace() / len(g))).sqrt()
    root = damping**0.5
    eye_a, eye_g = torch.eye(len(block.a), dtype=g.dtype), torch.eye(outputs, dtype=g.dtype)
    return torch.kron(block.a + pi * root * eye_a, g + root / pi * eye_g)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("damping", [1e-6, 0.14, 30.0])
@pytest.mark.parametrize("rank", [1, 3, 20])
def test_solve_equals_the_dense_solve(rule: DampingRule, damping: float, rank: int) -> None:
    block, grad = Kronecker(positive(5, rank), 3 * positive(4, rank, seed=1)), normal(5, 4, seed=2)
    truth = torch.linalg.solve(damped(block, 4, damping, rule), grad.flatten())
    assert_close(block.eigen().solve(grad, damping, rule).flatten(), truth, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("rule", RULES)
def test_a_number_for_g_is_that_multiple_of_the_identity(rule: DampingRule) -> None:
    a, grad = positive(5, 9), normal(5, 4)
    number, full = Kronecker(a, torch.tensor(0.7, dtype=a.dtype)), Kronecker(a, 0.7 * torch.eye(4, dtype=a.dtype))
    assert_close(number.dense(4), full.dense(4))
    assert_close(number.eigen().solve(grad, 0.1, rule), full.eigen().solve(grad, 0.1, rule), rtol=1e-12, atol=1e-12)


def test_dense_is_the_matrix_of_row_major_vec() -> None:
    a, g, w = positive(3, 5), positive(2, 5, seed=1), normal(3, 2, seed=2)
    assert_close(Kronecker(a, g).dense(2) @ w.flatten(), (a @ w @ g).flatten())


def test_blend() -> None:
    old = Kronecker(positive(3, 5), positive(2, 5))
    new = Kronecker(positive(3, 5, seed=1), positive(2, 5, seed=1))
    for found, expected in ((old.blend(new, 0.0), old), (old.blend(new, 1.0), new)):
        assert torch.equal(found.a, expected.a) and torch.equal(found.g, expected.g)
    assert_close(old.blend(new, 0.25).a, 0.75 * old.a + 0.25 * new.a)
    assert_close(old.blend(new, 0.25).g, 0.75 * old.g + 0.25 * new.g)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_degenerate_and_huge_blocks_never_turn_the_gradient_round(rule: DampingRule, dtype: torch.dtype) -> None:
    grad = normal(6, 4).to(dtype)
    for scale_a in (0.0, 1e-12, 1.0, 1e12):
        for scale_g in (0.0, 1e-12, 1.0, 1e12):
            block = Kronecker((scale_a * positive(6, 1)).to(dtype), (scale_g * positive(4, 2)).to(dtype))
            found = block.eigen().solve(grad, 1e-3, rule)
            assert found.isfinite().all()
            assert float((found * grad).sum()) > 0
            if rule == "exact":  # no eigenvalue of the damped block is below the damping
                assert float(found.norm()) <= float(grad.norm()) / 1e-3 * (1 + 1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_is_finite(bad: float) -> None:
    a, g = positive(3, 5), positive(2, 5)
    assert Kronecker(a, g).is_finite()
    worse = a.clone()
    worse[1, 2] = bad
    assert not Kronecker(worse, g).is_finite()
    assert not Kronecker(g, worse).is_finite()
    assert not Kronecker(a, torch.tensor(bad)).is_finite()


def test_a_decomposition_that_fails_in_single_precision_is_done_in_double(monkeypatch: pytest.MonkeyPatch) -> None:
    eigh = torch.linalg.eigh

    def fussy(matrix: Tensor) -> tuple[Tensor, Tensor]:
        if matrix.dtype == torch.float32:
            raise RuntimeError("linalg.eigh: failed to converge")
        values, basis = eigh(matrix)
        return values, basis

    block, grad = Kronecker(positive(5, 9).float(), positive(4, 9).float()), normal(5, 4).float()
    expected = block.eigen().solve(grad, 0.1, "exact")
    monkeypatch.setattr(torch.linalg, "eigh", fussy)
    found = block.eigen().solve(grad, 0.1, "exact")
    assert found.dtype == torch.float32
    assert_close(found, expected)


@pytest.mark.parametrize("scalar", [False, True])
@pytest.mark.parametrize("rank", [1, 20])
def test_inverses_equal_the_dense_solve(scalar: bool, rank: int) -> None:
    g = torch.tensor(0.7, dtype=torch.float64) if scalar else positive(4, rank, seed=1)
    block, grad = Kronecker(positive(5, rank), g), normal(5, 4, seed=2)
    dense = torch.linalg.solve(damped(block, 4, 0.14, "pi"), grad.flatten()).view(5, 4)
    inverse = block.inverse(0.14)
    assert_close(inverse.solve(grad), dense)
    x, y = inverse.solve_rows(torch.eye(5, dtype=torch.float64), grad)
    assert_close(x.T @ y, dense)


def test_what_float32_cannot_invert_is_inverted_in_float64() -> None:
    rows = torch.randn(2, 30, generator=torch.Generator().manual_seed(0)) * 3e4
    block = Kronecker(rows.T @ rows, torch.tensor(1e-6))
    inverse = block.inverse(1e-12)
    assert inverse.a.isfinite().all() and (inverse.a.diagonal() > 0).all()
    spoilt = Kronecker(block.a * torch.nan, block.g).inverse(0.1)
    assert not spoilt.a.isfinite().any()
