"""Every method on the shelves is as well-behaved as one's own is asked to be: the same checks, of all of them."""

from __future__ import annotations

from typing import Any

import pytest
from few import few

from fedscope.testing import check_method
from fedscope.training.method_checks.run_checks import check_names
from fedscope.training.settings.registry import find, names

SHELVES: tuple[Any, ...] = ("clients", "servers", "averages")
METHODS = [(shelf, name) for shelf in SHELVES for name in names(shelf)]
#: one of each kind, with a state
ORDINARY = {("clients", "scaffold"), ("servers", "fedavgm"), ("averages", "ima")}
#: checks that train little: the tiny run once, and some rounds in memory
CHEAP = ["arguments", "identical-clients", "order", "weight-0", "columns", "members", "looks-back", "nan"]


@pytest.mark.parametrize("method", few(METHODS, lambda method: method in ORDINARY), ids=" ".join)
def test_a_built_in_method_passes_every_check(method: tuple[Any, str]) -> None:
    # of all pairs of methods, test_combinations.py plays more
    check_method(find(*method), only=[one for one in check_names() if one != "combinations"]).raise_for_failures()


@pytest.mark.slow
@pytest.mark.parametrize(("shelf", "name"), METHODS)
def test_a_built_in_method_passes_with_all_others_on_the_digits_themselves(shelf: Any, name: str) -> None:
    check_method(find(shelf, name)).raise_for_failures()


@pytest.mark.parametrize(("shelf", "name"), METHODS)
def test_what_costs_little_holds_of_every_built_in_method(shelf: Any, name: str) -> None:
    check_method(find(shelf, name), only=CHEAP).raise_for_failures()


def test_servers_that_count_clients_alike_or_by_their_order_are_known() -> None:
    servers = {name: find("servers", name) for name in names("servers")}
    assert {name for name, kind in servers.items() if kind.unweighted} == {"adabest", "feddyn", "fedsa", "model-stock"}
    assert {name for name, kind in servers.items() if kind.ties_by_order} == {"fedsa"}


def test_limits_are_named_where_a_docstring_says_one() -> None:
    named = {(shelf, name) for shelf, name in METHODS if "limits" in vars(find(shelf, name))}
    clients = {"adabest", "ditto", "fedacg", "fedasam", "fedprox", "fedsam", "fedswa", "mofedsam"}
    servers = {"adabest", "diloco", "fedacg", "fedavgm", "fedgma", "fedswa", "lora"}
    servers |= {"checkpoints", "dare", "task-arithmetic"}
    assert named == {
        *(("clients", name) for name in clients),
        *(("servers", name) for name in servers),
        ("averages", "ima"),
    }
