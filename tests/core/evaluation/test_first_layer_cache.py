"""A combined first layer against evaluating the combined model, and that it is refused wherever it would be wrong."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from fedscope.checkpoints import Layout, Weights
from fedscope.evaluation import first_layer_cache as first_layer
from fedscope.evaluation.first_layer_cache import GROUP, Entrance, FirstLayer, Spanned, worth
from fedscope.evaluation.model_replica import Replica


class Net(nn.Module):
    """Any parts and any forward."""

    def __init__(self, run: Callable[[Net, Tensor], Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def conv(*args: int, **named: object) -> nn.Conv2d:
    return nn.Conv2d(*args, **named)  # type: ignore[arg-type]


def tail(features: int) -> list[nn.Module]:
    return [nn.Flatten(), nn.Linear(features, 3)]


def tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    module[2].weight = module[0].weight
    return module


IMAGE, VECTOR = (4, 9, 9), (6,)
FOUND: dict[str, tuple[tuple[int, ...], Callable[[], nn.Module], str, tuple[str, ...]]] = {
    "linear": (VECTOR, lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), "0", ()),
    "alone": (VECTOR, lambda: nn.Linear(6, 3), "", ()),
    "flattened": ((2, 3), lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 3, bias=False)), "1", ()),
    "pooled": (IMAGE, lambda: nn.Sequential(conv(4, 5, 2), nn.MaxPool2d(2), nn.ReLU(), *tail(80)), "0", ("1",)),
    "remainder": (IMAGE, lambda: nn.Sequential(conv(4, 5, 3), nn.MaxPool2d(3), *tail(20)), "0", ("1",)),
    "relu first": (
        IMAGE,
        lambda: nn.Sequential(conv(4, 5, 2), nn.ReLU(inplace=True), nn.MaxPool2d(2), *tail(80)),
        "0",
        ("1", "2"),
    ),
    "strided, padded": (IMAGE, lambda: nn.Sequential(conv(4, 5, 3, stride=2, padding=1), *tail(125)), "0", ()),
    "reflected": (IMAGE, lambda: nn.Sequential(conv(4, 5, 3, padding=1, padding_mode="reflect"), *tail(405)), "0", ()),
    "grouped, dilated": (IMAGE, lambda: nn.Sequential(conv(4, 6, 3, groups=2, dilation=2), *tail(150)), "0", ()),
    "no bias, norm": (
        IMAGE,
        lambda: nn.Sequential(conv(4, 5, 3, bias=False), nn.BatchNorm2d(5), nn.MaxPool2d(2), *tail(45)),
        "0",
        (),
    ),
    "overlapping pools": (IMAGE, lambda: nn.Sequential(conv(4, 5, 2), nn.MaxPool2d(3, 2), *tail(45)), "0", ()),
    "prepared inputs": (
        IMAGE,
        lambda: Net(lambda net, x: net.end(net.first((x - 0.5) / 2)), first=conv(4, 2, 9), end=nn.Flatten()),
        "first",
        (),
    ),
    "one pooling for all": (
        IMAGE,
        lambda: Net(
            lambda net, x: net.pool(net.second(net.pool(net.first(x)))).flatten(1),
            first=conv(4, 5, 2),
            second=conv(5, 3, 3),
            pool=nn.MaxPool2d(2),
        ),
        "first",
        (),
    ),
}
BETWEEN: dict[str, Callable[[Net, Tensor], Tensor]] = {  # a layer and a pooling with something between them
    "seen twice": lambda net, x: (h := net.first(x)).flatten(1)[:, :20] + net.pool(h).flatten(1)[:, :20],
    "seen twice, too faintly for the trial": lambda net, x: net.pool(h := net.first(x)).flatten(1) + 1e-40 * h.mean(),
    "a function in between": lambda net, x: net.pool(net.first(x).clamp(max=99)).flatten(1),
}
for name, run in BETWEEN.items():
    FOUND[name] = IMAGE, lambda run=run: Net(run, first=conv(4, 5, 2), pool=nn.MaxPool2d(2)), "first", ()
NONE: dict[str, tuple[tuple[int, ...], Callable[[], nn.Module]]] = {
    "shared weights": (VECTOR, tied),
    "used twice": (
        VECTOR,
        lambda: Net(lambda net, x: net.head(net.one(net.one(x))), one=nn.Linear(6, 6), head=nn.Linear(6, 3)),
    ),
    "used twice, alike in the trial": (
        VECTOR,
        lambda: Net(lambda net, x: net.one(x) + net.one(x.clamp(max=99)), one=nn.Linear(6, 3)),
    ),
    "weight used elsewhere": (
        VECTOR,
        lambda: Net(lambda net, x: functional.linear(net.one(x).relu(), net.one.weight), one=nn.Linear(6, 6)),
    ),
    "penalised": (VECTOR, lambda: Net(lambda net, x: net.one(x) + net.one.bias.exp(), one=nn.Linear(6, 6))),
    "norm first": (IMAGE, lambda: nn.Sequential(nn.BatchNorm2d(4), conv(4, 2, 9), nn.Flatten())),
    "functional first": (
        VECTOR,
        lambda: Net(lambda net, x: net.two(functional.linear(x, net.w.weight)), w=nn.Linear(6, 6), two=nn.Linear(6, 3)),
    ),
    "scaled by a buffer": (VECTOR, lambda: _scaled()),
    "computed weights": (
        VECTOR,
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 5)), nn.Linear(5, 3)),
    ),
    "weights changed by a hook": (VECTOR, lambda: _hooked()),
    "not linear in its weights": (VECTOR, lambda: nn.Sequential(nn.Linear(6, 5), Squared(5, 3))[1:2]),
    "no weights": (VECTOR, lambda: nn.Identity()),
}


class Squared(nn.Linear):
    def __init__(self, _: int, wide: int) -> None:
        super().__init__(6, wide)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight**2)


def _hooked() -> nn.Module:
    def normalize(layer: nn.Linear, _: object) -> None:
        layer.weight.data /= layer.weight.data.norm()

    module = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
    module[0].register_forward_pre_hook(normalize)
    return module


def _scaled() -> nn.Module:
    module = Net(lambda net, x: net.one(x * net.scale), one=nn.Linear(6, 3))
    module.register_buffer("scale", torch.full((6,), 2.0))
    return module


def models(module: nn.Module, count: int, seed: int = 3) -> list[Weights]:
    layout, draw = Layout.of(module), np.random.default_rng(seed)
    return [
        Weights(
            layout,
            draw.standard_normal(layout.size).astype(layout.dtype),
            {entry.name: draw.uniform(0.5, 2, entry.shape).astype(entry.dtype) for entry in layout.buffers},
        )
        for _ in range(count)
    ]


def inputs(shape: tuple[int, ...], n: int = 7, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(1), dtype=dtype)


def both_ways(
    module: nn.Module, x: Tensor, bases: list[Weights], coefficients: np.ndarray
) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs of every point: with its first layer combined, and of the combined model itself."""
    first = first_layer.first_layer(module, x[:3])
    assert first is not None
    spanned, replica = Spanned(module, first, bases), Replica(module)
    x = replica.prepare(x)
    h = spanned.combined(spanned.outputs(x), coefficients)
    entrance, ours, direct = Entrance(replica.module, first), [], []
    for c, given_ in zip(coefficients, h, strict=True):
        replica.combine(bases, c.tolist())
        direct.append(replica.logits(x))
        for parameter in replica.module.get_submodule(first.layer).parameters():
            parameter.fill_(torch.nan)  # nothing of the layer itself is used
        with torch.inference_mode():
            ours.append(entrance(given_, x))
    return ours, direct


@pytest.mark.parametrize("case", FOUND)
def test_the_first_layer_is_found_and_replaced(case: str) -> None:
    torch.manual_seed(0)
    shape, build, layer, behind = FOUND[case]
    module = build().double()
    assert first_layer.first_layer(module, inputs(shape)) == FirstLayer(layer, behind)
    coefficients = np.array([[0.2, 0.3, 0.5], [1.7, -0.4, -0.3], [0.0, 0.0, 1.0], [0.4, 0.1, 0.1]])
    ours, direct = both_ways(module, inputs(shape), models(module, 3), coefficients)
    for a, b in zip(ours, direct, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("case", NONE)
def test_what_is_no_first_layer_is_refused(case: str) -> None:
    torch.manual_seed(0)
    shape, build = NONE[case]
    assert first_layer.first_layer(build(), inputs(shape, dtype=torch.float32)) is None


@settings(max_examples=25, deadline=None)
@given(
    bases=st.integers(1, 5),
    points=st.integers(1, GROUP),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    pool=st.integers(0, 3),
    bias=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_float32_losses_are_those_of_the_combined_model(
    bases: int, points: int, kernel: int, stride: int, padding: int, pool: int, bias: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    layers = [conv(4, 6, kernel, stride=stride, padding=padding, bias=bias), *([nn.MaxPool2d(pool)] if pool else [])]
    x = inputs(IMAGE, 40, torch.float32)
    try:
        features = nn.Sequential(*layers)(x).flatten(1).shape[1]
    except RuntimeError:  # nothing left to pool
        return
    module = nn.Sequential(*layers, nn.ReLU(), *tail(features))
    c = np.random.default_rng(seed).uniform(-1, 1, (points, bases))
    c[:, 0] += 1 - c.sum(axis=1)
    y = torch.arange(40) % 3
    for ours, direct in zip(*both_ways(module, x, models(module, bases), c), strict=True):
        loss, expected = (float(functional.cross_entropy(z.double(), y)) for z in (ours, direct))
        assert loss == pytest.approx(expected, rel=1e-6)


def test_models_nearly_on_a_line_lose_nothing() -> None:
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    w0, step, off = (model.parameters for model in models(module, 3))
    layout = Layout.of(module)
    bases = [Weights(layout, w, {}) for w in (w0, w0 + step, w0 + 2 * step + np.float32(1e-4) * off)]
    # two thousand times the third model against the others, which is half of `off` from w0
    ours, direct = both_ways(module, inputs(VECTOR, dtype=torch.float32), bases, np.array([[5001.0, -1e4, 5000.0]]))
    torch.testing.assert_close(ours[0], direct[0], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("alike", [None, False], ids=["as it is here", "rows that are not alike"])
def test_a_point_depends_neither_on_its_group_nor_on_its_place_in_it(
    monkeypatch: pytest.MonkeyPatch, alike: bool | None
) -> None:
    if alike is not None:
        monkeypatch.setattr(first_layer, "rows_are_alike", lambda *_: alike)
    torch.manual_seed(0)
    module = nn.Sequential(conv(4, 5, 2), nn.MaxPool2d(2), *tail(80))
    x = inputs(IMAGE, 30, torch.float32)
    found = first_layer.first_layer(module, x)
    assert found is not None
    spanned = Spanned(module, found, models(module, 3))
    z, c = spanned.outputs(x), np.random.default_rng(0).standard_normal((GROUP, 3))
    together = spanned.combined(z, c).clone()
    assert together.shape == (GROUP, 30, 5, 4, 4)
    for i in range(GROUP):
        assert torch.equal(spanned.combined(z, c[i : i + 1])[0], together[i])
    assert torch.equal(spanned.combined(z, c[::-1].copy()), together.flip(0))
    monkeypatch.setattr(first_layer, "rows_are_alike", lambda *_: True)
    torch.testing.assert_close(spanned.combined(z, c), together, rtol=1e-5, atol=1e-5)


def test_pieces_that_fit_the_cache_make_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(conv(4, 5, 2), nn.MaxPool2d(2), *tail(80)).double()
    x = inputs(IMAGE, 30)
    found = first_layer.first_layer(module, x)
    assert found is not None
    spanned = Spanned(module, found, models(module, 3))
    z, c = spanned.outputs(x), np.random.default_rng(0).standard_normal((4, 3))
    whole = spanned.combined(z, c).clone()
    for cached in (1, 4 * z[0, 0].nbytes * (GROUP + 3)):  # one sample, four
        monkeypatch.setattr(first_layer, "CACHED", cached)
        torch.testing.assert_close(spanned.combined(z, c), whole, rtol=1e-13, atol=1e-13)


def test_memory_is_what_the_layer_returns_for_every_model() -> None:
    module = nn.Sequential(conv(4, 5, 2), nn.MaxPool2d(2), *tail(80))
    x = inputs(IMAGE, 30, torch.float32)
    spanned = Spanned(module, FirstLayer("0", ("1",)), models(module, 3))
    assert spanned.nbytes(x) == spanned.outputs(x).nbytes == 3 * 30 * 5 * 8 * 8 * 4


def test_a_broken_model_shows() -> None:
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    bases = models(module, 3)
    bases[2].parameters[-1] = np.nan  # the head's: does not concern the layer
    assert np.isfinite(Spanned(module, FirstLayer("0", ()), bases).rows).all()
    bases[1].parameters[3] = np.inf
    with np.errstate(invalid="ignore"):
        assert not np.isfinite(Spanned(module, FirstLayer("0", ()), bases).rows).all()


def test_a_module_with_an_entrance_still_does_what_it_did() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(conv(4, 5, 2), nn.MaxPool2d(2), *tail(80))
    x = inputs(IMAGE, dtype=torch.float32)
    expected = module(x)
    entrance = Entrance(module, FirstLayer("0", ("1",)))
    assert torch.equal(module(x), expected)
    assert not torch.equal(entrance(torch.zeros(7, 5, 4, 4), x), expected)
    with pytest.raises(RuntimeError):
        entrance(torch.zeros(7, 5, 4, 3), x)
    assert torch.equal(module(x), expected)


def test_the_callers_module_is_not_touched() -> None:
    module = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    found = first_layer.first_layer(module, inputs(VECTOR, dtype=torch.float32))
    assert found == FirstLayer("0", ())
    Spanned(module, found, models(module, 2)).outputs(inputs(VECTOR, dtype=torch.float32))
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not module[0]._forward_hooks
    assert not module[0]._forward_pre_hooks


def test_it_is_used_where_it_was_measured_to_pay() -> None:
    pooled, bare = FirstLayer("0", ("1",)), FirstLayer("0", ())
    assert worth(nn.Sequential(conv(3, 64, 5), nn.MaxPool2d(2)), pooled)
    assert not worth(nn.Sequential(conv(3, 64, 5), nn.BatchNorm2d(64)), bare)
    assert not worth(nn.Sequential(conv(1, 8, 3), nn.MaxPool2d(2)), pooled)
    assert worth(nn.Sequential(nn.Linear(784, 200)), bare)
    assert not worth(nn.Sequential(nn.Linear(64, 128)), bare)


def test_threads_do_not_write_into_each_others_results() -> None:
    """The memory of a result is used again, but by the same thread only."""
    module = nn.Sequential(nn.Flatten(), *tail(8))
    x = torch.randn(40, 8)
    found = first_layer.first_layer(module, x)
    assert found is not None
    spanned = Spanned(module, found, models(module, 3))
    z, c = spanned.outputs(x), np.random.default_rng(0).standard_normal((GROUP, 3))
    mine = spanned.combined(z, c)
    before = mine.clone()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(spanned.combined, z, -c).result()
    assert torch.equal(mine, before)
    assert not torch.equal(other, mine)
    assert spanned.combined(z, -c).data_ptr() == mine.data_ptr()
