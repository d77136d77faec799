"""The plane's axes in float64, against numpy and identities."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedscope.checkpoints import FedscopeError
from fedscope.landscape import Basis
from fedscope.landscape.planes.basis.orthonormal_axes import SMALLEST_ANGLE, half_rounding, principal_components

finite = st.floats(-100, 100, allow_nan=False)


@given(vectors=hnp.arrays(np.float64, (4, 7), elements=finite), a=finite, b=finite)
def test_projection_undoes_a_point(vectors: np.ndarray, a: float, b: float) -> None:
    try:
        basis = Basis.through(*vectors[:3])
    except FedscopeError:
        return
    size = 1 + np.abs(vectors).max() + abs(a) + abs(b)
    np.testing.assert_allclose(basis.project(basis.point(a, b)), (a, b, 0), atol=1e-12 * size)
    # the anchors' own places
    np.testing.assert_allclose(basis.project(vectors[0]), (0, 0, 0), atol=1e-12 * size)
    np.testing.assert_allclose(basis.project(vectors[1]), (basis.u_length, 0, 0), atol=1e-11 * size)
    np.testing.assert_allclose(basis.project(vectors[2])[1:], (basis.v_length, 0), atol=1e-11 * size)
    # off the plane, by Pythagoras
    x, y, off = basis.project(vectors[3])
    distance = np.linalg.norm(vectors[3] - vectors[0])
    assert np.hypot(np.hypot(x, y), off) == pytest.approx(distance, abs=1e-11 * size)


@given(vectors=hnp.arrays(np.float64, (3, 7), elements=finite), a=st.floats(-3, 3), b=st.floats(-3, 3))
def test_coefficients_make_the_same_point(vectors: np.ndarray, a: float, b: float) -> None:
    try:
        basis = Basis.through(*vectors)
    except FedscopeError:
        return
    c = basis.coefficients(a, b)
    assert sum(c) == pytest.approx(1, abs=1e-9 * (1 + max(map(abs, c))))
    size = (1 + np.abs(vectors).max()) * (1 + max(map(abs, c)))
    np.testing.assert_allclose(np.tensordot(c, vectors, 1), basis.point(a, b), atol=1e-12 * size)


def test_axes_are_orthonormal_and_coordinates_l2_distances() -> None:
    draw = np.random.default_rng(0)
    anchors = draw.standard_normal((3, 5000)).astype(np.float32)
    basis = Basis.through(*anchors)
    # independently: QR of the two differences
    differences = anchors[1:].astype(np.float64) - anchors[0]
    q, r = np.linalg.qr(differences.T)
    q, r = q * np.sign(np.diag(r)), r * np.sign(np.diag(r))[:, None]
    np.testing.assert_allclose(basis.u_hat, q[:, 0], atol=1e-13)
    np.testing.assert_allclose(basis.v_hat, q[:, 1], atol=1e-13)
    places = [basis.project(w) for w in anchors]
    np.testing.assert_allclose(places, [(0, 0, 0), (r[0, 0], 0, 0), (r[0, 1], r[1, 1], 0)], atol=1e-10)
    assert abs(basis.cos_uv) < 1e-15
    for i, j in ((0, 1), (0, 2), (1, 2)):
        apart = np.hypot(places[i][0] - places[j][0], places[i][1] - places[j][1])
        assert apart == pytest.approx(np.linalg.norm(anchors[i].astype(float) - anchors[j]), rel=1e-12)
    u, v = differences
    cosine = u @ v / np.linalg.norm(u) / np.linalg.norm(v)
    assert basis.angle == pytest.approx(np.degrees(np.arccos(cosine)), rel=1e-9)


def test_nearly_collinear_anchors_still_give_orthogonal_axes() -> None:
    draw = np.random.default_rng(1)
    w, u, v = draw.standard_normal((3, 2000))
    basis = Basis.through(w, w + u, w + 0.7 * u + 1e-3 * v)
    assert abs(basis.cos_uv) < 1e-15
    assert SMALLEST_ANGLE < basis.angle < 1


def test_degenerate_anchors_are_refused_with_the_angle() -> None:
    draw = np.random.default_rng(2)
    a, b = draw.standard_normal((2, 300)).astype(np.float32)
    with pytest.raises(FedscopeError, match=r"x and z are the same model \(angle 0 degrees, distance 0\)"):
        Basis.through(a, b, a.copy(), ("x", "y", "z"))
    between = ((a.astype(float) + b) / 2).astype(np.float32)
    with pytest.raises(FedscopeError, match=r"x, y and z lie on one line \(angle [\d.e-]+ degrees at x\).*third model"):
        Basis.through(a, b, between, ("x", "y", "z"))
    with pytest.raises(FedscopeError, match=r"one line \(angle 180 degrees at y\)"):
        Basis.through(between, a, b, ("y", "x", "z"))
    with pytest.raises(FedscopeError, match="one line"):  # the far two are next to each other
        Basis.through(a, b, b + 1e-5 * draw.standard_normal(300), ("x", "y", "z"))


def test_anchors_a_rounding_off_a_line_are_refused() -> None:
    # close together but far from the origin: what float32 leaves of a direction is noise with a large angle
    draw = np.random.default_rng(3)
    centre, u = 100 * draw.standard_normal((2, 400))
    a, b, c = ((centre + 1e-6 * t * u).astype(np.float32) for t in (0.0, 1.0, 0.5))
    with pytest.raises(FedscopeError, match="one line"):
        Basis.through(a, b, c)


def test_broken_anchors_are_refused() -> None:
    a, b, c = np.eye(3)
    b[0] = np.nan
    with pytest.raises(FedscopeError, match=r"second has 1 of 3 parameters that are not finite"):
        Basis.through(a, b, c, ("first", "second", "third"))


HALVES = (torch.float16, torch.bfloat16)


def stored(w: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Numbers rounded to a precision, in float32 as models are read."""
    rounded: np.ndarray = torch.from_numpy(w).to(dtype).float().numpy()
    return rounded


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("share", [0.5, 0.25, 2.0, -1.0])
@pytest.mark.parametrize("size", [60, 5000])
def test_models_on_one_line_that_half_a_precision_has_rounded_span_no_plane(
    dtype: torch.dtype, share: float, size: int
) -> None:
    """The second axis was what rounding had left, and the plane was drawn along it."""
    draw = np.random.default_rng(0)
    a, b = draw.standard_normal((2, size))
    vectors = [stored(w, dtype) for w in (a, b, share * a + (1 - share) * b)]
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        with pytest.raises(FedscopeError, match="lie on one line"):
            Basis.through(*(vectors[i] for i in order))
    with pytest.raises(FedscopeError, match="lie on one line"):
        principal_components(vectors, vectors[0])


@pytest.mark.parametrize("dtype", HALVES)
def test_models_near_each_other_in_half_a_precision_span_a_plane(dtype: torch.dtype) -> None:
    """Clients of a round are a hundredth of their length apart: several times what rounding leaves."""
    draw = np.random.default_rng(1)
    middle = draw.standard_normal(5000)
    exact = [middle + 0.01 * draw.standard_normal(5000) for _ in range(3)]
    vectors = [stored(w, dtype) for w in exact]
    found, expected = Basis.through(*vectors), Basis.through(*exact)
    assert found.v_length == pytest.approx(expected.v_length, rel=0.1)
    components = principal_components(vectors, vectors[0])
    assert components.explained == pytest.approx(principal_components(exact, exact[0]).explained, rel=0.1)


@pytest.mark.parametrize("dtype", HALVES)
def test_rounding_is_estimated_from_the_numbers_alone(dtype: torch.dtype) -> None:
    """Against the distance from what was rounded; of numbers that are the same in all, and of exact ones, there is
    none."""
    exact = 0.05 * np.random.default_rng(2).standard_normal((2, 100_000))
    vectors = [stored(w, dtype) for w in exact]
    there = [float(np.linalg.norm(w - v)) for w, v in zip(exact, vectors, strict=True)]
    assert half_rounding(vectors).tolist() == pytest.approx(there, rel=0.05)
    assert half_rounding([vectors[0], vectors[0]]).tolist() == [0, 0]
    assert half_rounding(exact.astype(np.float32)).tolist() == [0, 0]
    # a vector of which a part is exact has the error of the others
    half = np.concatenate([vectors[0], exact[1].astype(np.float32)])
    other = np.concatenate([exact[1], exact[0]]).astype(np.float32)
    assert half_rounding([half, other]).tolist() == pytest.approx([there[0], 0], rel=0.05)
