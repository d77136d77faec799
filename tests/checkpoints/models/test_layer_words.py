"""Which modules ``--layer`` names."""

from __future__ import annotations

import pytest

from fedscope.checkpoints import FedscopeError, Layout, TensorEntry
from fedscope.checkpoints.models.layer_words import modules_named

pytestmark = pytest.mark.same_elsewhere

LAYOUT = Layout(
    (
        TensorEntry("conv.weight", (4, 2, 3), "float32", "parameter"),
        TensorEntry("conv.bias", (4,), "float32", "parameter"),
        TensorEntry("norm.running_mean", (4,), "float32", "buffer"),
        TensorEntry("scale", (2,), "float32", "parameter"),
        TensorEntry("head.weight", (3, 20), "float32", "parameter"),
    )
)


def test_only_patterns_are_looked_for_among_layers() -> None:
    """A module without tensors is no layer, and may be named all the same; what it is not is said by who has it."""
    assert modules_named(LAYOUT, ["relu", "output"]) == ("relu", "output")
    assert modules_named(LAYOUT, ["head", "*"]) == ("head", "conv", "norm", "scale")
    assert modules_named(LAYOUT, ["head", "head"]) == ("head", "head")
    with pytest.raises(FedscopeError, match=r"^layers 'hed' match none; did you mean \"head\"\?$"):
        modules_named(LAYOUT, ["conv,hed"])
