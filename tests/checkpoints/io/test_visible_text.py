"""Text of files where it is shown: nothing steers a terminal, ends a row or makes a formula, and none of it is lost."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hostile import TEXTS, steers
from hypothesis import example, given
from hypothesis import strategies as st

from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.checkpoints.io.visible_text import brief, in_markdown, visible
from fedscope.results import make_visible
from fedscope.results.csv_cells import cell, text_of

ANY = st.text(st.characters(), max_size=40)  # surrogates, too, which names of folders may hold


@given(ANY)
@example("\x1b[31m\u202e\x9b\x00\x7f\udcff")
def test_nothing_steers_and_what_is_visible_stays(text: str) -> None:
    seen = visible(text)
    assert not steers(seen, keep="")
    assert visible(seen) == seen
    seen.encode()
    assert steers(visible(text, keep="\n")) == set()
    assert visible(text, keep="\n").count("\n") == text.count("\n")
    if text.isprintable():
        assert seen == text


@given(ANY)
def test_what_is_written_in_its_place_is_pythons(text: str) -> None:
    """Read as Python reads it, it is the text: no two names look alike."""
    plain = text.replace("\\", "/")
    assert visible(plain).encode("latin-1", "backslashreplace").decode("unicode_escape") == plain


@given(ANY, st.integers(1, 50))
def test_a_value_is_no_longer_than_asked(text: str, most: int) -> None:
    said = brief(text, most)
    assert said.startswith(visible(text[:most]))
    assert len(said) <= 10 * most + len("... (1,000,000 characters)")


@pytest.mark.parametrize("kind", [FedscopeError, FedscopeWarning])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_sentence_is_one_line(kind: type[Exception], text: str) -> None:
    said = str(kind(f"runs/{text} is no run; give one"))
    assert not steers(said, keep="")
    assert said == f"runs/{visible(text)} is no run; give one"


def test_a_sentence_keeps_its_remedy_however_much_it_quotes() -> None:
    names = ", ".join(f"a{i}" for i in range(60_000))
    said = str(FedscopeError(f"a.npz lacks x_train; it has {names}, and needs x_train"))
    assert said.startswith("a.npz lacks x_train; it has a0, a1, ")
    assert said.endswith(", a59999, and needs x_train")
    assert len(said) < 8100
    word = str(FedscopeError(f"run.json: {'9' * 10_000} is no date; restore it"))
    assert word == f"run.json: {'9' * 60}... (10,000 letters) is no date; restore it"


@given(ANY)
@example("'=1+1")
@example("''@x")
@example(" -x")
@example("-0.5e3")
def test_no_text_of_a_table_is_a_formula_and_all_read_back(text: str) -> None:
    written = cell(text)
    assert text_of(written) == text
    number = re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|-inf", text)
    assert number or not re.match(r"\s*[=+\-@]", written)
    if number:
        assert written == text


@given(st.lists(ANY.filter(lambda text: "\x00" not in text and not steers(text) & {"\r"}), min_size=1))
def test_rows_of_texts_are_rows(texts: list[str]) -> None:
    room = io.StringIO()
    csv.writer(room, lineterminator="\n").writerow(map(cell, texts))
    assert [text_of(one) for one in next(csv.reader(io.StringIO(room.getvalue(), newline="")))] == texts


@given(ANY)
@example("a\\|b")
@example("<img src=x onerror=y>")
def test_markdown_ends_no_cell_and_makes_no_element(text: str) -> None:
    written = in_markdown(text)
    bare = re.sub(r"\\[!-/:-@\[-`{-~]", "", written)  # what CommonMark takes for signs without a meaning
    assert not set(bare) & set("|<&`*[]~\n")
    assert re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", written) == visible(text)


@dataclass(frozen=True)
class Part:
    run: str
    losses: tuple[float, ...]
    labels: np.ndarray
    attrs: dict[str, Any]


def test_a_result_is_shown_with_all_its_texts_visible() -> None:
    array = np.zeros(2)
    same = Part("ima", (0.5,), array, {"data": "digits", "rounds": [["ima", 1]]})
    assert make_visible(same) is same, "what can be shown stays what it is"
    made = make_visible(Part("i\nma", (0.5,), array, {"da\x1bta": "di\u202egits", "rounds": [["i\nma", 1]]}))
    assert (made.run, made.attrs) == (r"i\nma", {r"da\x1bta": r"di\u202egits", "rounds": [[r"i\nma", 1]]})
    assert made.labels is array
    assert made.losses == (0.5,)
