"""The tables of every result, byte for byte as they were first written, and what their columns accept: other programs
read these files, and files of earlier versions are to open.

``golden_tables/`` beside this file holds what was written before columns and readers came from the classes of the rows.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError
from fedscope.decomposition.dispersion.result import Dispersion, LayerDispersion, RoundDispersion
from fedscope.decomposition.dispersion.skew_maps import Cells, LayerMap, SkewHistogram
from fedscope.decomposition.embedding.result import Embedding
from fedscope.decomposition.embedding.shown_models import Point
from fedscope.decomposition.factors.result import Decomposition, RunFactors
from fedscope.decomposition.factors.rows import ClientRow, FactorRow, RoundFactors
from fedscope.decomposition.parameters.parameter_names import RunValues
from fedscope.decomposition.parameters.result import ParameterMap, Parameters
from fedscope.decomposition.reaggregation.result import ModelRow, Reaggregation
from fedscope.decomposition.subsets.result import RoundSubsets, SizeRow, Subsets
from fedscope.decomposition.theory.lemma1 import Gap
from fedscope.decomposition.theory.result import Theory
from fedscope.decomposition.theory.theorem2 import ClientBound
from fedscope.decomposition.windows.result import Decayed, RoundMeans, WindowMean, WindowMeans
from fedscope.landscape.curvature.result import Curvature, CurvatureMeasure, Sharpness, Spectrum
from fedscope.results import TableResult
from fedscope.results.tables import COUNTS, SUMS, write_csv
from fedscope.training.curves.result import Curves
from fedscope.training.curves.run_curve import Curve
from fedscope.training.tables.comparison import Cell, Comparison

pytestmark = pytest.mark.same_elsewhere

GOLDEN = Path(__file__).parent / "golden_tables"
NAN, INF = float("nan"), float("inf")


def subsets() -> Subsets:
    rows = (
        SizeRow(1, 3, True, 0.25, 0.1, 1 / 3, 0.1 + 0.2, 1e-300, 2.0, 0.125, 0.5),
        SizeRow(3, 1, False, NAN, None, None, INF, None, None, NAN, NAN),
    )
    rounds = RoundSubsets("=1+1", 2, 3, rows), RoundSubsets("b, c", 4, 1, rows[:1], diverged=(2,))
    return Subsets(rounds, "samples", {"split": "test"})


def windows() -> WindowMeans:
    first = WindowMean(1, 1, 0.1 + 0.2, 0.25), WindowMean(5, 1, 0.1 + 0.2, 0.25)
    second = WindowMean(1, 1, 0.1, 1 / 3), WindowMean(5, 2, INF, NAN)
    steps = (Decayed(5, 1, 3.1e-8, True, True),)
    return WindowMeans((RoundMeans("-a", 1, first), RoundMeans("-a", 2, second, steps)), "weights", {"split": "test"})


def factors() -> Decomposition:
    rows = (
        FactorRow("bias", "plugin", 1e-17, None, 0.5),
        FactorRow("locality", "unbiased", None),
        FactorRow("fma_loss", "measured", INF, 0.25, NAN),
        FactorRow("closure_error", "measured", 0.0),
    )
    clients = (
        ClientRow(7, 12, 0.75, 0.1, None, 0.3, 2.5),
        ClientRow(11, None, 0.25, None, 1 / 3, None, INF, trained=3),
    )
    round_ = RoundFactors(4, "local:4", 4, True, "probabilities", 9, 3, True, True, rows, clients)
    runs = RunFactors("ima", "global", (round_,)), RunFactors("ima", "averaged", (round_,))
    return Decomposition(runs, split="train", draws="local:4", attrs={"seed": 0})


def reaggregation() -> Reaggregation:
    attrs = {"run": {"path": "runs/fma"}, "round": 3, "split": "test", "samples": 60, "servers": [], "settings": []}
    rows = (
        ModelRow("recorded", "", "", 0.5, 0.25, 0.0, True),
        ModelRow("fma", "fma", "", 1 / 3, NAN, 1e-9, False),
        ModelRow("@fedadam (lr=0.1)", "fedadam", "fresh", INF, 0.5, None, None),
    )
    return Reaggregation(rows, attrs)


def theory() -> Theory:
    """Too few rounds and clients for fits and correlations, whose last digits are a processor's."""
    gaps = tuple(Gap(t, shrink, 0.125 * t, t * shrink, t / 2, 1.0) for t in (1, 2) for shrink in (1.0, 0.5))
    gaps += (Gap(4, 1.0, 0.5, 0.0, 0.0, 1.0),)
    bounds = (
        ClientBound(2, 5, 7, 0.5, 1.5, 0.25, 3.0, 0.125, 9.0),
        ClientBound(2, 6, 8, *(float(one) for one in range(10))),
    )
    return Theory("fma", gaps, bounds, {"split": "train"})


def dispersion() -> Dispersion:
    layer = LayerDispersion("fc.weight", 4, 1, 0, 2, 0.5, 0.25, 0.9, 3, 1, -1.0, 1 / 3)
    other = LayerDispersion("fc.bias", 2, 2, 2, 0, None, None, None, 0, 0, None, None)
    whole = LayerDispersion("all", 6, 3, 2, 2, 0.5, 0.2, 0.9, 3, 0, -1.0, 0.25)
    histogram = SkewHistogram(np.array([-1.0, 0.0, 1.0]), np.array([3, 1]), np.array([0.5, 0.5]))
    cells = Cells(0.5, 0.25, np.array([0.1, -0.2]), np.array([1.0, 1e-9]), np.array([3, 1]), np.array([0.25, 0.0]))
    maps = (LayerMap("ima", 2, "fc.weight", 8, histogram, cells),)
    return Dispersion((RoundDispersion("ima", 2, 8, (layer, other), whole),), 0.05, maps, {"runs": ["ima"]})


def embedding() -> Embedding:
    points = Point("ima", 1, "client-3", (0, 2)), Point("ima", 1, "client-4"), Point("ima", 1, "global")
    places = np.array([[0.1, -2.0], [1 / 3, 1e-9], [0.0, -0.0]])
    return Embedding(points, places, "pca", 0.875, 5, (("ima", 1, 2.5),), (0.5, 0.25), attrs={"seed": 0})


def parameters() -> Parameters:
    clients = np.array([[0.1, 1.0], [1 / 3, 1.0], [0.25, 1.0]])
    models = {"fma": np.array([0.2, 1.0]), "global": np.array([NAN, 1.0])}
    run = RunValues("ima", 2, np.array([0, 1, 4]), clients, models)
    return Parameters(("fc.weight[0,1]", "fc.bias[0]"), (run,), None, {"top": None})


def parameter_map() -> ParameterMap:
    at, some = np.array([[0.5, -1.0], [1e9, 0.25]]), np.array([0.5, NAN])
    index = (3, 17), ()
    return ParameterMap(
        "ima", 2, 8, ("fc.weight", "scale"), index, at, some, -some, np.array([True, False]), {"parameters": 9}
    )


def sharpness() -> Sharpness:
    measures = (
        CurvatureMeasure("loss", 0.5),
        CurvatureMeasure("sam", None, 0.05),
        CurvatureMeasure("trace", 9.0, None, 0.1),
    )
    spectrum = Spectrum(np.array([-0.5, 4.0]), np.array([0.25, 1 / 3]))
    models = Curvature("ima", 4, "global", measures, spectrum), Curvature("", None, "+x.safetensors", measures[:1])
    return Sharpness(models, {"split": "train", "samples": 64})


def curves() -> Curves:
    values = {"test_loss": np.array([NAN, 0.25]), "test_error": np.array([0.5, 1 / 3]), "lr": np.array([1.0, NAN])}
    runs = Curve("fma", np.array([1, 2]), values), Curve("b", np.array([2]), {"train_loss": np.array([INF])})
    return Curves(runs, {"versions": {"fedscope": "1"}})


def comparison() -> Comparison:
    cells = (
        Cell("fma", "", "test_accuracy", {"0": 0.5, "1": NAN}, {"0": 12, "1": None}),
        Cell("=ima", "a,b", "test_accuracy", {"0": 1 / 3}, {"0": None}),
    )
    commands = {"fma": ("fedscope train",), "=ima": ()}
    return Comparison(cells, None, 0.9, "fma", ("no ima of seed 1",), commands, {"places": {}})


#: of each table's columns in order: s text, i whole number, f number, t truth; a capital one may also be empty
KINDS = {
    subsets: {"subsets": "s i s i i t f F F f F F f f s"},
    windows: {"wima": "s i s i i f f"},
    factors: {"factors": "s i s s s s s s F F F", "clients": "s i i I F F F f s I"},
    reaggregation: {"reaggregate": "s i s s s s i f f F T I F F F F F F F F"},
    theory: {"theory": "s I F I s F"},
    dispersion: {
        "dispersion": "s i s i i F F F F F F",
        "layers.skewness": "s i s f f i f",
        "layers.map": "s i s f f i f",
    },
    embedding: {"embedding": "s i s f f"},
    parameters: {"parameters": "s i s s f"},
    parameter_map: {"parameters-tsne": "s s f f F F t"},
    sharpness: {"sharpness": "s F s s F s F F F s s", "spectrum": "s F s f f s s"},
    curves: {"curves": "s i" + 14 * " F"},
    comparison: {"table": "s s s s F F"},
}
MAKERS = pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
#: the fields that a column of each kind takes, ``_`` for an empty one, and the values that they are read as
TAKES = {"s": "x 1.5 1 True _", "i": "1", "f": "1.5 1", "t": "True"}
READS = {"s": str, "i": int, "f": float, "t": lambda text: text == "True"}


def base_of(folder: Path, result: TableResult | type[TableResult]) -> Path:
    """Where the golden files of a result begin, or those in another folder."""
    return folder / result.suffixes[-1].strip(".").removesuffix(".json")


def hold(path: Path) -> None:
    """Compare a file with the golden one; but the modes of densities are computed anew, so their last digits are a
    processor's. A JSON file says besides how many rows its tables have, and their checksums, as those of earlier
    versions do not."""
    written = path.read_bytes()
    if path.suffix == ".json":
        said = json.loads(written)
        assert said.pop(COUNTS)
        assert said.pop(SUMS)
        written = (json.dumps(said, indent=1) + "\n").encode()
    if path.name != "parameters.parameters.json":
        assert written == (GOLDEN / path.name).read_bytes(), path.name


@MAKERS
def test_a_table_that_was_cut_at_the_end_of_a_row_is_refused(make: Any, tmp_path: Path) -> None:
    result = make()
    *tables, info = result.save(base_of(tmp_path, result))
    for path in tables:
        whole = path.read_bytes()
        lines = whole.splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:-1]))
        words = (
            f"{path.name} has {len(lines) - 2} rows?, and {info.name} says that it had {len(lines) - 1}, so one was "
        )
        with pytest.raises(FedscopeError, match=words):
            type(result).load(base_of(tmp_path, result))
        path.unlink()
        with pytest.raises(FedscopeError, match=f"{path.name} does not exist: a result of "):
            type(result).load(base_of(tmp_path, result))
        path.write_bytes(whole)
    type(result).load(base_of(tmp_path, result))


@MAKERS
def test_a_table_whose_lines_end_otherwise_is_the_same_and_an_edited_one_is_refused(make: Any, tmp_path: Path) -> None:
    """As git ends them on Windows."""
    result = make()
    *tables, info = result.save(base_of(tmp_path, result))
    for path in tables:
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    type(result).load(base_of(tmp_path, result))
    for path in tables:
        whole = path.read_bytes()
        path.write_bytes(re.sub(rb"\d(?=\D*\Z)", lambda digit: b"%d" % (1 - (digit[0] > b"0")), whole))
        with pytest.raises(FedscopeError, match=f"{path.name} is not the table that {info.name} was written with"):
            type(result).load(base_of(tmp_path, result))
        path.write_bytes(whole)


@MAKERS
def test_a_result_writes_the_bytes_that_it_always_wrote(make: Any, tmp_path: Path) -> None:
    result = make()
    paths = result.save(base_of(tmp_path, result))
    assert len(paths) == len(KINDS[make]) + 1
    for path in paths:
        hold(path)


@MAKERS
def test_files_of_before_open_and_are_written_as_they_were(make: Any, tmp_path: Path) -> None:
    kind = type(make())
    for path in kind.load(base_of(GOLDEN, kind)).save(base_of(tmp_path, kind)):
        hold(path)


@pytest.mark.parametrize(
    ("make", "stem", "kinds"),
    [(make, stem, kinds) for make, tables in KINDS.items() for stem, kinds in tables.items()],
    ids=lambda one: one if isinstance(one, str) and " " not in one else "",
)
def test_every_column_takes_what_it_always_took(make: Any, stem: str, kinds: str, tmp_path: Path) -> None:
    kind = type(make())
    table = next(table for table in kind.tables if table.suffix == f".{stem}.csv")
    (golden,) = GOLDEN.glob(f"*.{stem}.csv")
    with golden.open(newline="", encoding="utf-8") as file:
        columns, first, *_ = csv.reader(file)
    assert list(table.columns) == columns
    path = tmp_path / golden.name
    for place, (name, letter) in enumerate(zip(columns, kinds.split(), strict=True)):
        for text in ("x", "1.5", "1", "True", ""):
            write_csv(path, columns, [[*first[:place], text, *first[place + 1 :]]])
            if (text or "_") in TAKES[letter.lower()].split() or (not text and letter.isupper()):
                value = table.read(path, "x")[0][name]
                assert repr(value) == repr(READS[letter.lower()](text) if text or letter == "s" else None)
            else:
                with pytest.raises(FedscopeError, match=rf"is damaged: {name} in line 2 is {re.escape(repr(text))}; "):
                    table.read(path, "x")
