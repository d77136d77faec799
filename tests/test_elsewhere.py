"""What `make test-elsewhere` leaves out: files that say that no arithmetic, thread or random input decides them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

TESTS = Path(__file__).parent
MAKEFILE = (TESTS.parent / "Makefile").read_text(encoding="utf-8")
MARK = "pytest.mark.same_elsewhere"
#: fixtures, and what is imported, of tests that compare trained numbers with a loop of their own, or two trainings
COMPUTE = {"close", "by_hand", "small", "local_loops", "in_memory.contents"}
#: that make computations repeatable, or not
CALLS = {"set_num_threads", "set_flush_denormal", "use_deterministic_algorithms", "threadpool_limits"}

pytestmark = pytest.mark.same_elsewhere


def computing(text: str) -> set[str]:
    """What of a file, or of its functions that are marked alone, says that it compares what it computes.

    Args:
        text: of the file.
    """
    found: set[str] = set()
    whole = ast.parse(text)
    alone = [
        node
        for node in whole.body
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(one) == MARK for one in node.decorator_list)
    ]
    for node in (inside for part in alone or [whole] for inside in ast.walk(part)):
        if isinstance(node, ast.FunctionDef):
            found |= {argument.arg for argument in node.args.args} & COMPUTE
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{one.name}" for one in node.names)} & COMPUTE
        elif isinstance(node, ast.Attribute):
            found |= {node.attr} & CALLS
    return found


def test_no_file_that_is_left_out_compares_computed_numbers() -> None:
    marked = [path for path in sorted(TESTS.rglob("test_*.py")) if MARK in path.read_text(encoding="utf-8")]
    assert len(marked) > 50
    wrong = {str(path.relative_to(TESTS)): computing(path.read_text(encoding="utf-8")) for path in marked}
    assert {name: found for name, found in wrong.items() if found} == {}


def test_one_that_does_is_seen() -> None:
    for line in (
        "def test(close): ...",
        "from local_loops import sgd",
        "from in_memory import contents",
        "torch.set_num_threads(1)",
    ):
        assert computing(line), line
    both = "def test(close): ...\n@pytest.mark.same_elsewhere\ndef other({}): ..."
    assert computing(both.format("close"))
    assert computing(both.format("tmp_path")) == set(), "of one that is marked alone"
    assert computing("def test(tmp_path): ...") == set()


@given(st.integers())
def test_one_with_random_inputs(number: int) -> None:
    assert isinstance(number, int)


def test_one_with_random_inputs_stays(request: pytest.FixtureRequest) -> None:
    """It is told by the mark that Hypothesis gives it."""
    marked = [item.name for item in request.session.items if item.get_closest_marker("hypothesis")]
    assert test_one_with_random_inputs.__name__ in marked or len(request.session.items) == 1
    assert test_one_with_random_inputs_stays.__name__ not in marked


def test_only_the_second_pass_leaves_them_out() -> None:
    expression = "not slow and not programs and not gpu and not device and not (same_elsewhere and not hypothesis)"
    assert re.findall(r"^ELSEWHERE := -m '(.*)'$", MAKEFILE, re.MULTILINE) == [expression]
    users = re.findall(r"^(\S+):.*\n\t.*\$\(ELSEWHERE\)", MAKEFILE, re.MULTILINE)
    assert users == ["test-elsewhere"]
