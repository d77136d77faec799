"""Stores of interrupted analyses with bytes cut or changed anywhere: what is believed is what was written."""

from __future__ import annotations

import resource
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscope.analysis.execution import Execution, Report, WorkUnit
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.checkpoints.io.errors import DiskFullError
from fedscope.results import Serializable
from fedscope.results.resume import ResumeStore, stored_fingerprint

pytestmark = pytest.mark.same_elsewhere

QUESTION = {"grid": 51, "models": ["a", "b"]}
PARTS = {"1": [0.5, 0.25], "2": {"loss": [1e-300, float("inf")]}, "3": "ä", "4": None}
#: what JSON can hold where a list of two numbers should be
VALUES = (
    None,
    True,
    3,
    -1.5,
    "word",
    [],
    [1],
    [[1], [2, 3]],
    [[1.0], ["x"]],
    {},
    {"a": 1},
    [[], []],
    10**400,
    [None, None],
)


def written(path: Path) -> bytes:
    with ResumeStore(path, QUESTION) as store:
        for key, value in PARTS.items():
            store.add(key, value)
    return path.read_bytes()


def test_a_full_disk_names_the_file_and_the_remedy(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk; what was kept is gone on from, in the same process too."""
    whole = written(path := tmp_path / "plane.partial")
    path.unlink()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    store = ResumeStore(path, QUESTION)
    with store:
        store.add("1", PARTS["1"])
        size = path.stat().st_size
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, limits[1]))
            with pytest.raises(DiskFullError) as caught:
                store.add("2", PARTS["2"])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert str(caught.value) == (
            f"{path} cannot be written: the disk is full; make room, and give the same command again, which goes on "
            "from what is kept"
        )
        assert list(ResumeStore(path, QUESTION).done) == list(store.done) == ["1"]
        for key in ("2", "3", "4"):
            store.add(key, PARTS[key])
    assert path.read_bytes() == whole


def believed(path: Path) -> tuple[dict[str, Any], list[str]]:
    """What a store gives, and what it says."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = ResumeStore(path, QUESTION).done
    return found, [str(one.message) for one in said]


def prefix(found: Mapping[str, Any]) -> bool:
    """Whether it is the first parts that were written, as they were."""
    return dict(found) == dict(list(PARTS.items())[: len(found)])


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_what_is_believed_was_written(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("store") / "plane.nc.partial"
    whole = bytearray(written(path))
    place = data.draw(st.integers(0, len(whole) - 1))
    match data.draw(st.sampled_from(["flip", "cut", "drop", "insert", "zero"])):
        case "flip":
            whole[place] ^= 1 << data.draw(st.integers(0, 7))
        case "cut":
            del whole[place:]
        case "drop":
            del whole[place : place + data.draw(st.integers(1, 40))]
        case "insert":
            whole[place:place] = data.draw(st.binary(min_size=1, max_size=20))
        case "zero":
            end = min(len(whole), place + data.draw(st.integers(1, 60)))
            whole[place:end] = bytes(end - place)
    path.write_bytes(whole)
    found, said = believed(path)
    assert prefix(found)
    # and the same question goes on behind what is believed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ResumeStore(path, QUESTION) as store:
            store.add("9", [1.0])
    assert believed(path) == ({**found, "9": [1.0]}, [])
    if any("is damaged" in line for line in said):
        assert path.with_name("plane.nc.partial.damaged").read_bytes() == bytes(whole)


def test_a_damaged_line_is_said_and_the_file_kept(tmp_path: Path) -> None:
    path = tmp_path / "plane.nc.partial"
    path.write_bytes(written(path).replace(b"0.25", b"0.75"))
    with pytest.warns(
        FedscopeWarning,
        match=r"plane.nc.partial is damaged \(line 2 is not what was written\); a copy is kept as plane.nc.partial.dam"
        "aged, and what it held from there on is computed again",
    ):
        assert ResumeStore(path, QUESTION).done == {}
    assert b"0.75" in (tmp_path / "plane.nc.partial.damaged").read_bytes()


def test_another_process_store_is_not_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "points"
    path.write_bytes(written(path).replace(b"0.25", b"0.75"))
    with pytest.warns(FedscopeWarning, match="it is left as it is"):
        ResumeStore(path, QUESTION, aside=False)
    assert [one.name for one in tmp_path.iterdir()] == ["points"]


@pytest.mark.parametrize("head", ["[1]", "3", "null", '"word"', "{", "\x00\x00", "[" * 100_000])
def test_a_head_that_is_no_question_begins_anew(tmp_path: Path, head: str) -> None:
    path = tmp_path / "p"
    path.write_text(f"{head}\n" + '{"key": "1", "value": 1}\n')
    found, said = believed(path)
    assert found == {}
    assert [line for line in said if "line 1 is not what was written" in line]
    assert stored_fingerprint(path) is None


def forge(path: Path, values: Mapping[str, Any]) -> None:
    """Values that nobody computed, with their sums right."""
    with ResumeStore(path, QUESTION) as store:
        for key, value in values.items():
            store.add(key, value)


@dataclass(frozen=True)
class Pair(Serializable):
    name: str
    numbers: tuple[float, float]


@pytest.mark.parametrize("value", VALUES)
def test_a_value_of_no_such_kind_is_computed_again(tmp_path: Path, value: Any) -> None:
    path, computed = tmp_path / "x.partial", []

    def task(key: str) -> WorkUnit[Pair]:
        def compute(report: Report) -> Pair:
            computed.append(key)
            return Pair(key, (1.0, 2.0))

        return WorkUnit(key, Pair, compute)

    work = Execution(path)
    with work.store({}) as store:
        store.add("a", value)
        store.add("b", Pair("b", (3.0, 4.0)).to_json())
    with work.store({}) as store, pytest.warns(FedscopeWarning, match="the value of a is none"):
        found = work.each("pairs", [task("a"), task("b")], store)
    assert found == [Pair("a", (1.0, 2.0)), Pair("b", (3.0, 4.0))]
    assert computed == ["a"]


class Evaluated:
    """What :class:`ResumableEvaluation` asks of an evaluator."""

    parts = (None, None)

    def evaluate(self, count: int, form: Any, left: Any, together: Any) -> Any:
        for i in left:
            yield i, np.full(2, float(i)), np.full(2, i / 10)


@pytest.mark.parametrize("key", ["0", "2", "-1", "x", "1.5", "99", "१"])
@pytest.mark.parametrize("value", [*VALUES, [[1.0, 2.0], [3.0]], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])
def test_points_that_are_none_are_measured_again(tmp_path: Path, key: str, value: Any) -> None:
    from fedscope.evaluation.resumable import ResumableEvaluation

    def visits(path: Path | None) -> ResumableEvaluation:
        measured = ResumableEvaluation(Evaluated(), lambda i, replica: None, 3, fingerprint=QUESTION, partial=path)  # type: ignore[arg-type]
        measured.measure([0, 1, 2])
        return measured

    path = tmp_path / "plane.nc.partial"
    forge(path, {"1": [[1.0, 1.0], [0.1, 0.1]], key: value})
    with pytest.warns(FedscopeWarning, match="is damaged"):
        found = visits(path)
    for one, other in zip(found.arrays, visits(None).arrays, strict=True):
        assert np.array_equal(one, other)


def packed(n: int) -> str:
    """The identity as it is kept."""
    from fedscope.decomposition.embedding.gram import _packed

    return _packed(np.eye(n))


@pytest.mark.parametrize(
    "value",
    [
        *VALUES,
        {"upper": packed(2), "layers": ["b"]},
        *({"upper": upper, "layers": ["a"]} for upper in (1, "", "AAAA", "no base64", packed(1), packed(3))),
    ],
)
def test_a_sum_of_products_that_is_none_is_made_again(tmp_path: Path, value: Any) -> None:
    from fedscope.decomposition.embedding.gram import _kept_products

    forge(tmp_path / "p", {"gram": value})
    store = ResumeStore(tmp_path / "p", QUESTION)
    with pytest.warns(FedscopeWarning, match="the value of gram is none"):
        assert store.take("gram", lambda value: _kept_products(value, 2, ["a"])) is None
    assert "gram" not in store.done
    forge(tmp_path / "q", {"gram": {"upper": packed(2), "layers": ["a"]}})
    kept = ResumeStore(tmp_path / "q", QUESTION).take("gram", lambda value: _kept_products(value, 2, ["a"]))
    assert kept is not None
    assert (kept[0].tolist(), kept[1]) == (np.eye(2).tolist(), ["a"])


def test_a_store_of_an_earlier_version_goes_on_without_what_is_asked_since(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    path = tmp_path / "line.partial"
    before = {"grid": 51, "losses": "aa"}
    with ResumeStore(path, before) as store:
        store.add("7", [0.5])
    for _ in range(2):
        with ResumeStore(path, {**before, "answers": "bb", "task_means_behaviour": [1.0]}) as store:
            store.add("8", [0.25])
        assert ResumeStore(path, {**before, "answers": "bb"}).done == {"7": [0.5], "8": [0.25]}
    assert not recwarn.list
    with pytest.warns(FedscopeWarning, match="starts again"):
        assert not ResumeStore(path, {**before, "losses": "cc", "answers": "bb"}).done
    other = tmp_path / "plane.partial"
    with ResumeStore(other, {**before, "answers": "bb"}) as store:
        store.add("7", [0.5])
    with pytest.warns(FedscopeWarning, match="starts again"):
        assert not ResumeStore(other, {**before, "answers": "cc"}).done


def test_a_store_that_cannot_be_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, why in (
        (tmp_path / ("a" * 300), "{0} cannot be written: File name too long; check the path, or write elsewhere"),
        (
            tmp_path / "file" / "x",
            f"{tmp_path / 'file'} is a file, and nothing can be written below it; write elsewhere",
        ),
    ):
        with pytest.raises(FedscopeError) as caught:
            ResumeStore(path, QUESTION)
        assert str(caught.value) == why.format(path)
