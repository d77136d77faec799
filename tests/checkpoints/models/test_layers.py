"""Layers of a model by name, and how some of them are chosen."""

from __future__ import annotations

import pytest
from torch import nn

from fedscope.checkpoints import FedscopeError, Layout, TensorEntry
from fedscope.checkpoints.models.layers import chosen_layers, layers_of

pytestmark = pytest.mark.same_elsewhere


class Net(nn.Module):
    """Layers of every kind, at several depths, and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(nn.Linear(1, 3).weight.detach()[0])
        self.embed = nn.Embedding(4, 3)
        blocks = [nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)) for _ in range(2)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.GroupNorm(1, 2)
        self.attend = nn.MultiheadAttention(4, 2)
        self.gru = nn.GRU(3, 2)
        self.fc = nn.Linear(2, 3)
        self.fc2 = nn.Linear(3, 3)


LAYOUT = Layout.of(Net())
NAMES = ["token", "embed", "blocks.0.0", "blocks.0.1", "blocks.1.0", "blocks.1.1", "norm", "attend"]
NAMES += ["attend.out_proj", "gru", "fc", "fc2"]


def test_layers_come_in_the_model_s_order_and_hold_every_tensor_once() -> None:
    layers = layers_of(LAYOUT)
    assert [layer.name for layer in layers] == NAMES
    assert [layer.number for layer in layers] == list(range(1, len(NAMES) + 1))
    assert sorted(entry.name for layer in layers for entry in layer.entries) == sorted(LAYOUT.names)
    assert sum(layer.size for layer in layers) == LAYOUT.size
    normalized = layers[3]
    assert normalized.size == 4, "buffers are no parameters"
    assert list(normalized.shapes) == ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]


def test_names_are_those_of_the_submodules() -> None:
    known = dict(Net().named_modules())
    assert [name for name in NAMES if name not in known] == ["token"]


def test_tensors_that_stand_apart_are_one_layer() -> None:
    entries = [TensorEntry(name, (2,), "float32", "parameter") for name in ("a.bias", "b.bias", "a.weight")]
    (a, b) = layers_of(Layout(tuple(entries)))
    assert [entry.name for entry in a.entries] == ["a.bias", "a.weight"]
    assert (b.number, b.name) == (2, "b")


def test_the_kind_is_the_module_s_and_else_that_of_the_shapes() -> None:
    by_shapes = {layer.name: layer.kind for layer in layers_of(LAYOUT)}
    known = {layer.name: layer.kind for layer in layers_of(LAYOUT, Net().named_modules())}
    kinds = {
        **{"token": "other", "embed": "embedding", "blocks.0.0": "convolution", "blocks.0.1": "normalization"},
        **{"norm": "normalization", "attend": "attention", "attend.out_proj": "linear", "gru": "recurrent"},
        **{"fc": "linear"},
    }
    assert {name: known[name] for name in kinds} == kinds
    assert {name: by_shapes[name] for name in kinds} == kinds | {"embed": "linear"}, "of the same shapes"


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("fc", ["fc"]),
        ("fc*", ["fc", "fc2"]),
        ("fc?", ["fc2"]),
        ("fc2, norm,", ["norm", "fc2"]),
        ("blocks.*.1", ["blocks.0.1", "blocks.1.1"]),
        ("blocks.[1-9].*", ["blocks.1.0", "blocks.1.1"]),
        ("fc,f*", ["fc", "fc2"]),
        ("*", NAMES),
        ("/^blocks/", NAMES[2:6]),
        ("/0$/", ["blocks.0.0", "blocks.1.0"]),
        ("/c{1,2}2/", ["fc2"]),
        ("//", NAMES),
    ],
)
def test_a_pattern_chooses_layers_in_the_model_s_order(pattern: str, names: list[str]) -> None:
    assert [layer.name for layer in chosen_layers(LAYOUT, pattern)] == names


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("fcc2", "layers 'fcc2' match none; did you mean \"fc2\"?"),
        ("fc,norn", "layers 'norn' match none; did you mean \"norm\"?"),
        ("blocks", "layers 'blocks' match none; did you mean \"blocks.*\"?"),
        ("blocks.0", "layers 'blocks.0' match none; did you mean \"blocks.0.*\"?"),
        ("att", "layers 'att' match none; did you mean \"att*\"?"),
        ("fc.weight", "layers 'fc.weight' match none; did you mean \"fc\"?"),
        ("FC*", f"layers 'FC*' match none; the model has {', '.join(NAMES)}"),
        ("7", f"layers '7' match none; the model has {', '.join(NAMES)}"),
        (" ,", f"layers ' ,' name none; the model has {', '.join(NAMES)}"),
        ("/^x/", f"layers '/^x/' match none; the model has {', '.join(NAMES)}"),
        (
            "/(/",
            "layers '/(/' are no regular expression (missing ), unterminated subpattern at position 0); write one as "
            "/^blocks/, or names as conv*",
        ),
    ],
)
def test_a_pattern_that_names_nothing_is_refused_with_what_is_near(pattern: str, said: str) -> None:
    with pytest.raises(FedscopeError) as refused:
        chosen_layers(LAYOUT, pattern)
    assert str(refused.value) == said
