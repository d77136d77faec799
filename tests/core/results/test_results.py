"""Results at rest: two codecs, several results together, one command at a time, and what interrupted ones leave, and
which software made them."""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import re
import subprocess
import sys
import warnings
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from fedscope.checkpoints import FedscopeError, FedscopeWarning, write_durably
from fedscope.command_line import speaking_flags
from fedscope.results import (
    ArrayResult,
    Collection,
    Serializable,
    Table,
    TableResult,
    along,
    columns_of,
    lock_result,
    pad_cohorts,
    plain,
)
from fedscope.results.base import Result
from fedscope.results.pictures import picture_of, quiet
from fedscope.results.resume import ResumeStore, sweep
from fedscope.results.tables import write_csv
from fedscope.results.versions import versions

pytestmark = pytest.mark.same_elsewhere

FLOATS = st.floats(allow_nan=False, width=64)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), min_size=1, max_size=12)


@dataclass(frozen=True)
class Row(Serializable):
    name: str
    count: int
    whole: bool
    value: float | None


@dataclass(frozen=True)
class Rows(TableResult):
    entries: tuple[Row, ...]
    attrs: dict[str, Any] = field(default_factory=dict)

    command, format, version = "rows", "fedscope-rows", 2
    suffixes = (".rows.csv", ".rows.json")
    tables = (Table(".rows.csv", columns_of(Row)),)

    def rows(self) -> Any:
        return [map(astuple, self.entries)]

    def head(self) -> dict[str, Any]:
        return {"length": len(self.entries)}

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        if head["length"] != len(tables[0]):
            raise ValueError("rows are missing")
        return cls(tuple(Row(**row) for row in tables[0]), head["attrs"])

    def figure(self, width: float = 3.5, title: str | None = None) -> Any:
        from matplotlib.figure import Figure

        return Figure((width, 2))

    def summary(self) -> str:
        return f"{len(self.entries)} rows & more"

    def findings(self) -> dict[str, Any]:
        return {"rows": [asdict(row) for row in self.entries]}


@dataclass(frozen=True, eq=False)
class Curve(ArrayResult):
    loss: np.ndarray
    labels: tuple[str, ...]
    attrs: dict[str, Any] = field(default_factory=dict)

    command = kind = "curve"
    needed = {"loss": "label round", "label": ""}
    optional = {"error": "round"}

    def arrays(self) -> Any:
        return {"label": along("label", self.labels)}, {"loss": along("label round", self.loss, "loss", "nat")}

    @classmethod
    def of_arrays(cls, values: dict[str, Any], attrs: dict[str, Any]) -> Self:
        return cls(values["loss"], tuple(map(str, values["label"])), attrs)

    def figure(self, width: float = 3.5, title: str | None = None) -> Any:
        raise NotImplementedError

    def summary(self) -> str:
        return "a curve"

    def findings(self) -> dict[str, Any]:
        return {"loss": self.loss}


ROWS = Rows((Row("a", 1, True, 0.1), Row("b", 2, False, None)), {"seed": 3})
CURVE = Curve(np.array([[0.1, np.nan], [np.inf, 3.0]]), ("a", "b"), {"seed": 3, "run": {"path": "x"}})


@given(st.lists(st.builds(Row, NAMES, st.integers(), st.booleans(), st.none() | FLOATS), max_size=4))
def test_tables_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> None:
    base = tmp_path_factory.mktemp("tables") / "run.v2"
    made = Rows(tuple(rows), {"seed": 3})
    assert [path.name for path in made.save(base)] == ["run.v2.rows.csv", "run.v2.rows.json"]
    assert Rows.load(base) == made


def test_half_a_character_of_a_run_is_written_as_it_is_shown(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", ("method",), [("a\ud800",)])
    assert (tmp_path / "a.csv").read_text(encoding="utf-8") == "method\na\\ud800\n"


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    assert CURVE.save(tmp_path / "a.b") == [tmp_path / "a.b.nc"]
    for base in (tmp_path / "a.b", tmp_path / "a.b.nc"):
        loaded = Curve.load(base)
        assert loaded.loss.tobytes() == CURVE.loss.tobytes()
        assert (loaded.labels, loaded.attrs) == (CURVE.labels, CURVE.attrs)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: f["r.rows.csv"].unlink(), r"r\.rows\.csv does not exist: a result of rows is r\.rows\.csv, r"),
        (lambda f: f["r.rows.json"].unlink(), r"r\.rows\.json does not exist"),
        (
            lambda f: change(f["r.rows.csv"], "b,2,", "b,two,"),
            r"r\.rows\.csv is damaged: count in line 3 is 'two';",
        ),
        (lambda f: change(f["r.rows.csv"], "True", "yes"), r"r\.rows\.csv is damaged: whole in line 2 is 'yes'"),
        (lambda f: change(f["r.rows.csv"], "b,2,False,\n", ""), r"csv has 1 row, and r\.rows\.json says that it had 2"),
        (
            lambda f: change(f["r.rows.csv"], "count", "counts"),
            r"is not a table of `fedscope rows`: its columns",
        ),
        (lambda f: change(f["r.rows.json"], '"length": 2,', ""), r"do not fit each other, so one was changed or cut"),
        (
            lambda f: change(f["r.rows.json"], '"version": 2', '"version": 9'),
            r"has version 9, but this .* version 2;",
        ),
        (lambda f: change(f["r.rows.json"], "fedscope-rows", "other"), r"is not a result of `fedscope rows`"),
    ],
)
def test_damaged_tables_are_one_sentence(tmp_path: Path, spoil: Any, message: str) -> None:
    ROWS.save(tmp_path / "r")
    spoil({path.name: path for path in tmp_path.iterdir()})
    with pytest.raises(FedscopeError, match=message):
        Rows.load(tmp_path / "r")


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda file: file.attrs.modify("format", "fedscope-line"),
            r"holds fedscope-line, not a curve; give a",
        ),
        (lambda file: file.attrs.modify("version", 7), r"was written in version 7 of its format, and this .* up to 1"),
        (lambda file: file.__delitem__("loss"), r"lacks loss; compute the curve again with --force"),
        (lambda file: texts(file), r"is damaged: loss is object along .*, not numbers along label, round"),
    ],
)
def test_damaged_arrays_are_one_sentence(tmp_path: Path, spoil: Any, message: str) -> None:
    (path,) = CURVE.save(tmp_path / "c")
    with h5py.File(path, "r+") as file:
        spoil(file)
    with pytest.raises(FedscopeError, match=message):
        Curve.load(tmp_path / "c")


def texts(file: Any) -> None:
    del file["loss"]
    file["loss"] = np.array(["a", "b"], dtype=object)
    file["loss"].dims[0].attach_scale(file["label"])


def test_numbers_are_plain_and_a_notebook_shows_words_and_figure() -> None:
    assert CURVE.numbers() == {"loss": [[0.1, None], [None, 3.0]]}
    assert plain({"a": (np.float32(2), Path("x"), np.bool_(True))}) == {"a": [2.0, "x", True]}
    html = ROWS._repr_html_()
    assert html.startswith('<p>2 rows &amp; more</p><img src="data:image/png;base64,iVBOR')


def test_a_table_becomes_a_frame_and_arrays_a_data_set() -> None:
    pandas, xarray = pytest.importorskip("pandas"), pytest.importorskip("xarray")
    frame = ROWS.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["count"].tolist() == [1, 2]
    assert np.isnan(frame["value"][1])
    assert Rows((Row("a", 1, True, None),)).to_pandas()["value"].dtype == np.float64
    dataset = CURVE.to_xarray()
    assert isinstance(dataset, xarray.Dataset)
    assert dataset.loss.dims == ("label", "round")
    assert dataset.loss.attrs["units"] == "nat"
    assert float(dataset.loss.sel(label="b")[1]) == 3.0


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real = builtins.__import__
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    assert real is builtins.__import__
    with pytest.raises(FedscopeError, match=r"pandas is not installed; pip install 'fedscope\[frames\]'"):
        ROWS.to_pandas()


class Both(Collection[Rows]):
    command = "rows"

    def figure(self, width: float = 3.5, title: str | None = None) -> Any:
        return self[0].figure(width, title)

    def findings(self) -> dict[str, Any]:
        return {"rows": [row for part in self for row in part.findings()["rows"]]}


def test_several_results_keep_files_of_their_own(tmp_path: Path) -> None:
    both = Both({".ima": ROWS, ".fma": Rows((Row("c", 3, True, 1.0),))})
    written = both.save(tmp_path / "x")
    assert [path.name for path in written] == ["x.ima.rows.csv", "x.ima.rows.json", "x.fma.rows.csv", "x.fma.rows.json"]
    assert Rows.load(tmp_path / "x.fma") == both[".fma"] == both[1]
    assert both.attrs == {"seed": 3}
    assert len(both) == 2
    assert both.summary() == "2 rows & more\n1 rows & more"
    assert [row["name"] for row in both.numbers()["rows"]] == ["a", "b", "c"]
    with pytest.raises(FedscopeError, match="there is no result to put together"):
        Both({})


class Shown(Rows):
    """Two pages each, and two figures, which say what they were asked; a third one has nothing to show."""

    drawn = MappingProxyType({"": "draw", ".more": "draw:more", ".none": "draw:none"})
    paged = MappingProxyType({"": "page", ".more": "page:more"})
    figure = Result.figure

    @classmethod
    def drawing(cls, end: str) -> Any:
        return lambda result, width, title, **asked: None if end == ".none" else (end, width, title, asked)

    @classmethod
    def paging(cls, end: str) -> Any:
        return lambda result, title, **asked: (len(result.entries), end, title, asked)


def test_figures_and_pages_go_by_the_ends_of_their_names_and_those_of_several_results_by_both_ends() -> None:
    one, two = Shown(ROWS.entries), Shown(ROWS.entries[:1])
    assert one.figure() == ("", 3.5, None, {})
    assert one.figures(7.0, "t", cmap="x") == {"": ("", 7.0, "t", {"cmap": "x"}), ".more": (".more", 7.0, "t", {})}
    assert ROWS.pages() == {}
    assert one.pages("t", cmap="x") == {"": (2, "", "t", {"cmap": "x"}), ".more": (2, ".more", "t", {"cmap": "x"})}
    assert Both({".ima": one, ".fma": two}).pages() == {
        ".ima": (2, "", None, {}),
        ".ima.more": (2, ".more", None, {}),
        ".fma": (1, "", None, {}),
        ".fma.more": (1, ".more", None, {}),
    }


def test_a_title_and_a_width_of_another_kind_are_refused_before_anything_is_drawn() -> None:
    shown = Shown(ROWS.entries)
    for refused in (lambda: shown.figure(title=3), lambda: shown.figures(title=3), lambda: shown.pages(title=3)):  # type: ignore[arg-type]
        with pytest.raises(FedscopeError, match=r"^title=3 is not a text; give one$"):
            refused()
    with pytest.raises(FedscopeError, match=r"^width='3in' is not a number; give one, as width=3\.5$"):
        shown.figure("3in")  # type: ignore[arg-type]


@pytest.mark.parametrize("result", [ROWS, CURVE, Both({".ima": ROWS})])
def test_a_place_below_a_file_is_refused_in_one_sentence_and_a_command_says_it_itself(
    result: Any, tmp_path: Path
) -> None:
    file = tmp_path / "good.toml"
    file.write_text("")
    for base in (file / "x", file / "deep" / "x"):
        with pytest.raises(FedscopeError) as refused:
            result.save(base)
        assert str(refused.value) == f"{file} is a file, and nothing can be written below it; write elsewhere"
        with speaking_flags(), pytest.raises(OSError, match=r"File exists|Not a directory"):
            result.save(base)


def test_a_name_that_is_too_long_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """Looking for what is in the way had failed in its place."""
    with pytest.raises(
        FedscopeError, match=r"cannot be written: File name too long; check the path, or write els"
    ) as got:
        CURVE.save(tmp_path / ("a" * 300))
    assert str(got.value).startswith(f"{tmp_path}/aaa")


@pytest.mark.drawn
def test_mathematics_that_is_none_is_one_sentence_and_another_error_is_itself() -> None:
    figure = Figure((1, 1))
    text = figure.text(0, 0, r"$\frac{1$")
    with pytest.raises(FedscopeError, match=r"^a text of the figure, .* is no mathematics .* write \\\$ for a dollar$"):
        picture_of(figure)
    text.set_text("a plain text")
    assert picture_of(figure).startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="'xyz' is not supported"):
        picture_of(figure, "xyz")


def test_matplotlib_is_quiet_while_a_figure_is_drawn_and_no_longer() -> None:
    """A user's own level of its log comes back, also where the drawing fails."""
    log = logging.getLogger("matplotlib.mathtext")
    before = log.level
    try:
        log.setLevel(logging.INFO)
        with warnings.catch_warnings(record=True) as said, quiet():
            warnings.warn("Glyph 20154 (x) missing from font(s) DejaVu Sans.", UserWarning, stacklevel=1)
            assert not log.isEnabledFor(logging.WARNING)
        assert (said, log.level) == ([], logging.INFO)
        with pytest.raises(ZeroDivisionError), quiet():
            raise ZeroDivisionError
        assert log.level == logging.INFO
    finally:
        log.setLevel(before)


def test_cohorts_of_different_size_are_padded() -> None:
    made = pad_cohorts([np.ones((2, 2)), np.zeros((1, 1))], 3)
    assert made.shape == (2, 3, 3)
    assert np.isnan(made[0, 2]).all()
    assert np.isnan(made[0, :, 2]).all()
    assert (made[0, :2, :2] == 1).all()
    assert made[1, 0, 0] == 0
    assert pad_cohorts([np.array([3, 8]), np.array([4])], 2, -1).tolist() == [[3, 8], [4, -1]]
    assert pad_cohorts([np.array([3, 8])], 2, -1).dtype == np.int64


@dataclass(frozen=True, eq=False)
class Nested(Serializable):
    run: str
    rows: tuple[Row, ...]
    matrix: np.ndarray
    flags: np.ndarray | None = None
    early: tuple[int, ...] = ()


def test_finished_parts_survive_json() -> None:
    made = Nested("ima", (Row("a", 1, True, None),), np.array([[np.nan, 0.1]]), None, (1, 2))
    back = Nested.from_json(json.loads(json.dumps(made.to_json())))
    assert (back.run, back.rows, back.flags, back.early) == (made.run, made.rows, None, (1, 2))
    assert back.matrix.tobytes() == made.matrix.tobytes()
    assert Nested.from_json({"run": "x", "rows": [], "matrix": []}).early == ()


# --- what an interrupted analysis had computed ---


QUESTION = {"grid": 51, "models": ["a", "b"], "limit": None}


def fill(path: Path, keys: str) -> None:
    with ResumeStore(path, QUESTION) as store:
        for key in keys:
            store.add(key, {"loss": float(key), "nan": math.nan})


def test_the_same_question_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "figures/plane.partial"
    fill(path, "12")
    fill(path, "3")
    store = ResumeStore(path, dict(reversed(QUESTION.items())))
    assert list(store.done) == ["1", "2", "3"]
    assert store.done["3"]["loss"] == 3.0
    assert math.isnan(store.done["3"]["nan"])
    store.finish()
    assert not path.exists()


def test_another_question_starts_afresh(tmp_path: Path) -> None:
    fill(tmp_path / "p", "12")
    with pytest.warns(FedscopeWarning, match="p was left by an analysis with other settings, models or versions"):
        other = ResumeStore(tmp_path / "p", {**QUESTION, "grid": 21})
    assert other.done == {}
    with other:
        other.add("7", 1)
    assert ResumeStore(tmp_path / "p", {**QUESTION, "grid": 21}).done == {"7": 1}


@pytest.mark.parametrize("torn", [1, 10, 40])
def test_a_torn_last_line_is_left_out_and_written_over(tmp_path: Path, torn: int) -> None:
    fill(tmp_path / "p", "123")
    (tmp_path / "p").write_bytes((tmp_path / "p").read_bytes()[:-torn])
    store = ResumeStore(tmp_path / "p", QUESTION)
    before = set(store.done)
    assert before < {"1", "2", "3"}
    with store:
        store.add("4", 4)
    assert set(ResumeStore(tmp_path / "p", QUESTION).done) == {*before, "4"}


def test_what_was_added_survives_a_kill(tmp_path: Path) -> None:
    code = (
        "import os, sys; from fedscope.results.resume import ResumeStore; s = ResumeStore(sys.argv[1], {'q': 1}); "
        "s.add('1', [0.1, 0.2]); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-P", "-c", code, str(tmp_path / "p")], check=False)
    assert ResumeStore(tmp_path / "p", {"q": 1}).done == {"1": [0.1, 0.2]}


def test_versions_are_said_without_importing_torch() -> None:
    said = versions()
    assert list(said) == ["fedscope", "torch", "python", "numpy"]
    assert said["python"] == platform.python_version()
    assert said["numpy"] == np.__version__
    code = "import sys; from fedscope.checkpoints import versions; versions(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code]).returncode == 0


# --- one command at a time ---


def test_a_result_that_another_command_writes_is_refused_by_name_and_free_afterwards(tmp_path: Path) -> None:
    partial = tmp_path / "s.subsets.json.partial"
    message = rf"another command is writing s\.subsets\.json in {re.escape(str(tmp_path))}; wait until it ends, or give"
    with lock_result(partial, []):
        # a lock belongs to an opened file, so a second one in this process is as foreign as another command's
        with pytest.raises(FedscopeError, match=message), lock_result(partial, []):
            pass
        assert partial.exists()
    assert list(tmp_path.iterdir()) == []
    with lock_result(partial, []):
        assert partial.exists()


def test_a_claim_stays_where_something_was_begun_and_only_there(tmp_path: Path) -> None:
    partial = tmp_path / "a.nc.partial"

    def stop(*, saving: bool = False, text: str = "") -> bool:
        with suppress(KeyboardInterrupt), lock_result(partial, []) as claim:
            claim.saving = saving
            if text:
                partial.write_text(text)
            raise KeyboardInterrupt
        return partial.exists()

    assert not stop()
    assert stop(text="{}\n")
    assert partial.read_text() == "{}\n"
    partial.unlink()
    assert stop(saving=True)


def test_temporaries_of_its_own_names_are_swept_and_no_others(tmp_path: Path) -> None:
    for name in (".a.nc.0123abcd.tmp", ".a.pdf.0123abcd.tmp", ".b.nc.0123abcd.tmp", ".a.nc.x", "a.nc.tmp"):
        (tmp_path / name).touch()
    with lock_result(tmp_path / "a.nc.partial", [tmp_path / "a.nc", tmp_path / "a.pdf"]):
        pass
    assert sorted(os.listdir(tmp_path)) == [".a.nc.x", ".b.nc.0123abcd.tmp", "a.nc.tmp"]  # noqa: PTH208


@pytest.mark.parametrize("sign", ["a", "é", "平", "\U0001f600"])
def test_a_name_of_any_letters_may_be_as_long_as_the_system_lets_it(tmp_path: Path, sign: str) -> None:
    path = tmp_path / (sign * (255 // len(sign.encode())))
    with write_durably(path) as temporary:
        temporary.write_text("whole")
        left = tmp_path / f"{temporary.name[:-12]}01234567.tmp"
        left.write_text("of a killed command")
    sweep([path])
    assert [*tmp_path.iterdir()] == [path]


def test_a_link_in_the_place_of_a_claim_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "a.nc.partial").symlink_to(tmp_path / "victim")
    with (
        pytest.raises(FedscopeError, match=r"a\.nc\.partial is a link, not the store"),
        lock_result(tmp_path / "a.nc.partial", []),
    ):
        pass
    assert (tmp_path / "victim").read_text() == "mine"
