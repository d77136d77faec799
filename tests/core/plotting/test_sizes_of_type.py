"""Results that are kept beside the tests and can be drawn, in other sizes of type and another font: all can be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from legible import assert_apart, assert_inside

import fedscope
from fedscope.plotting.user_style import style

pytestmark = pytest.mark.same_elsewhere

GOLDEN = Path(__file__).parents[1] / "results" / "golden_tables"
KINDS = {
    "embedding": fedscope.Embedding,
    "parameters": fedscope.Parameters,
    "parameters-tsne": fedscope.ParameterMap,
    "subsets": fedscope.Subsets,
    "theory": fedscope.Theory,
    "wima": fedscope.WindowMeans,
}


@pytest.mark.drawn
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("size", "font"), [(7, "DejaVu Sans"), (10, "DejaVu Serif"), (12, "DejaVu Sans")])
def test_every_figure_is_legible_in_another_style(name: str, size: float, font: str) -> None:
    result = KINDS[name].load(GOLDEN / name)
    with style(size=size, font=font):
        figures = result.figures(title="A title")
    assert figures
    for figure in figures.values():
        assert_apart(assert_inside(figure, 3.5))
