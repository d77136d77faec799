"""One look a method: whatever is drawn beside it, in whatever order, and own methods apart from others."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscope.plotting.looks import looks_of, method_of
from fedscope.plotting.style import COLOURS
from fedscope.training.settings.registry import find, names, presets

pytestmark = pytest.mark.same_elsewhere

SHELVES = ("clients", "servers", "averages")
NAMES = st.text("abcdefgh", min_size=1, max_size=6)


def test_every_method_is_known_by_its_name_and_by_what_it_is_called() -> None:
    for shelf in SHELVES:
        for name in names(shelf):
            if name == "none":
                continue
            known = "fma" if name == "sgd" else name
            assert method_of(name) == method_of(f"runs-{name}-seed3") == known
            assert method_of(find(shelf, name).about.name) == known, name
    assert {method_of(name) for name in presets()} == set(presets())


@pytest.mark.parametrize("order", list(permutations(("fedprox-seed0", "fma", "scaffold"))))
def test_neither_order_nor_company_changes_a_method(order: tuple[str, ...]) -> None:
    looks = dict(zip(order, looks_of(order), strict=True))
    for name, look in looks.items():
        assert looks_of([name]) == [look]
    assert looks["fma"]["color"] == COLOURS[0]
    assert len({look["color"] for look in looks.values()}) == 3


def test_the_first_seven_methods_have_seven_colours() -> None:
    first = ("fma", "ima", "wima", "fedswa", "fedprox", "scaffold", "fedmoswa")
    assert len({look["color"] for look in looks_of(first)}) == len(COLOURS)


@given(st.lists(NAMES, min_size=1, max_size=20, unique=True))
def test_names_are_told_apart_in_whatever_order_they_stand(given_names: list[str]) -> None:
    looks = dict(zip(given_names, looks_of(given_names), strict=True))
    assert len({(look["color"], str(look["linestyle"])) for look in looks.values()}) == len(given_names)
    turned = dict(zip(given_names[::-1], looks_of(given_names[::-1]), strict=True))
    assert turned == looks


def test_seeds_of_a_method_share_its_colour_and_differ_in_dashes() -> None:
    seeds = looks_of([f"scaffold-seed{seed}" for seed in range(4)])
    assert {look["color"] for look in seeds} == {looks_of(["SCAFFOLD"])[0]["color"]}
    assert len({str(look["linestyle"]) for look in seeds}) == 4
    many = looks_of([f"scaffold-seed{seed}" for seed in range(9)])
    assert len({(look["color"], str(look["linestyle"])) for look in many}) == 9


def test_a_colour_of_ones_own_counts_for_the_method_and_its_runs() -> None:
    looks = looks_of(["mine-seed0", "mine-seed1", "fma"], {"mine": "#123456", "FedAvg": "black"})
    assert [look["color"] for look in looks] == ["#123456", "#123456", "black"]
