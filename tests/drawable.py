"""Results that can be drawn, made of formulas: a surface with its models, several of them, and lines."""

from __future__ import annotations

import numpy as np

from fedscope.landscape import LayerLine, Line, Plane, PlaneModel, barrier_of


def surface(seed: int = 0, shown: int = 1, scale: float = 1.0, floor: float = 0.1) -> Plane:
    draw = np.random.default_rng(seed)
    corners = np.array([[0, 0], [1.3, 0], [0.4, 1.1]]) * (1 + draw.random())
    middle = corners.mean(axis=0)
    a, b = np.linspace(-0.6, 2.8, 21), np.linspace(-0.9, 2.5, 21)

    def loss(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return floor + scale * ((x - middle[0]) ** 2 + 2 * (y - middle[1]) ** 2 + 0.3 * np.sin(3 * x) ** 2)

    grid = loss(*np.meshgrid(a, b))
    places = [*corners, middle, *(middle + 0.3 * draw.standard_normal((shown, 2)))]
    labels = [*(f"ima@40/client-{k}" for k in (3, 8, 11)), "mean", *(f"ima@{60 + i}" for i in range(shown))]
    roles = [*["anchor"] * 3, "mean", *["shown"] * shown]
    models = tuple(
        PlaneModel(label, x, y, 0.2 if i > 3 else 0.0, float(loss(x, y)), 0.05, np.nan, np.nan, role)
        for i, (label, (x, y), role) in enumerate(zip(labels, places, roles, strict=True))
    )
    attrs = {"data": "digits", "split": "test", "samples": 360}
    return Plane(a, b, grid, np.clip(grid / 10, 0, 0.9), models, 0.0, "none", attrs)


def two_pairs() -> Line:
    beta = np.linspace(-0.5, 1.5, 41)
    loss = np.stack([0.1 + 3 * (beta - 0.4) ** 4 + 0.3 * np.exp(-30 * (beta - 0.5) ** 2), 0.2 + (beta - 0.8) ** 2])
    barrier, where = np.transpose([barrier_of(beta, curve) for curve in loss])
    ends = (("ima@60", "fma@60"), ("runs/a-very-long-name@60/client-17", "runs/another@60/averaged"))
    attrs = {"data": "digits", "split": "test", "samples": 360}
    own = loss[:, [30, 10]]
    return Line(("a - b", "c - d"), ends, beta, loss, loss / 10, barrier, where, attrs, own, own / 10)


TITLES = ["Round 1", "Round 20", "Round 60", "Globals 58-60"]


def four() -> list[Plane]:
    return [surface(i, shown=i // 3, scale=2.0 ** (1 - i), floor=1.6 / 2**i) for i in range(4)]


def layers(count: int, points: int = 11, apart: float = 1.0) -> LayerLine:
    """Lines of so many layers with long names, from which the loss rises by so much; and of all of them."""
    beta, rise = np.linspace(0, 1, points), apart * np.linspace(0.3, 1, count + 1)[:, None]
    low = 0.2 + rise * (1 - beta) + 0.4 * rise * beta * (1 - beta)
    loss = np.stack([low, low[:, ::-1]])
    found = np.array([[barrier_of(beta, curve) for curve in curves] for curves in loss])
    names = [f"blocks.{i // 3}.{['convolution', 'norm', 'downsample'][i % 3]}" for i in range(count)]
    attrs = {"data": "digits", "split": "test", "samples": 360, "layers": "each"}
    ends = ("ima@60", "runs/a-very-long-name@60/client-17")
    sizes = np.full(count + 1, 10)
    barrier, where = found[..., 0], found[..., 1]
    return LayerLine(ends, (*names, "all layers"), sizes, beta, loss, loss / 10, barrier, where, attrs, barrier / 10)
