"""What is read beside rounds: run.json, config.toml, partition.h5, metrics.csv, tables and netCDF files, spoilt."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fedscope.checkpoints import COLUMNS, FedscopeError, Layout, Partition, Run, RunWriter, TensorEntry
from fedscope.checkpoints.io.hdf5_validation import read_array
from fedscope.checkpoints.io.untrusted import read_json, read_text, read_toml
from fedscope.checkpoints.rounds.metrics import append_row, read_table, write_table
from fedscope.results.arrays import read_netcdf, write_netcdf
from fedscope.results.resume import ResumeStore
from fedscope.results.tables import read_csv, read_info

pytestmark = pytest.mark.same_elsewhere

LAYOUT = Layout((TensorEntry("w", (2, 3), "float32", "parameter"), TensorEntry("b", (2,), "float32", "parameter")))
DATA = {"name": "digits", "path": "", "sha256": "ab", "shape": [1, 8, 8], "train": 9, "test": 2}
INFO: dict[str, Any] = {"created": "today", "layout": LAYOUT.to_json(), "clients": 2, "classes": 3, "data": DATA}
PARTITION = Partition(
    (np.array([0, 4, 8]), np.array([2, 3])), (np.array([1]), np.array([5])), np.array([[1, 1, 1], [2, 0, 0]])
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run without rounds."""
    RunWriter.create(tmp_path / "ima", INFO, {"run": {"rounds": 3}}, PARTITION).close()
    return tmp_path / "ima"


def changed(path: Path, **entries: Any) -> None:
    """run.json with other entries."""
    info = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**info, "files": {}, **entries}))


# --- run.json ---


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ({"clients": 0}, "says clients = 0, which should be a whole number from 1 on"),
        ({"clients": True}, "says clients = True, which should be a whole number"),
        ({"classes": 2.0}, "says classes = 2.0, which should be a whole number"),
        ({"created": ["today"]}, r"says created = \['today'\], which should be text"),
        ({"versions": {"torch": 2}}, "says versions = .* which should be an object of texts"),
        ({"layout": {"w": 1}}, "says layout = .* which should be a list"),
        ({"identity": "\ud800"}, "says identity = .* which should be letters and digits, 64 at most"),
        ({"identity": "a" * 65}, "says identity = .* which should be letters and digits, 64 at most"),
        (
            {"branch": {"identities": [[1, "\ud800"]]}},
            r"says branch.identities = .* a list of \[last round, identity\]",
        ),
        ({"adapters": {"lora_alpha": 10**400}}, "says adapters.lora_alpha = 10{39}..., which should be a number"),
        (
            {"data": {**DATA, "channel_means": [10**400]}},
            r"says data.channel_means = \[10{38}..., which should be a list of numbers",
        ),
        ({"branch": {"round": 1}}, "does not say run of what the run branches from"),
        ({"branch": {"run": "a", "created": "b"}}, "does not say round of what the run branches from"),
        ({"data": "digits"}, "says data = 'digits', which should be an object"),
        (
            {"data": {**DATA, "shape": [1, {}]}},
            r"says data.shape = .* which should be a list of whole numbers from 1 on",
        ),
        ({"data": {**DATA, "sha256": None}}, "says data.sha256 = None, which should be text"),
        ({"data": {"name": "digits", "sha256": "ab"}}, "does not say shape of the run's data"),
        ({"branch": {"round": -1}}, "says branch.round = -1, which should be a whole number from 0 on"),
        ({"branch": {"history": [[1]]}}, r"says branch.history = \[\[1\]\], which should be a list of \[last round"),
        ({"created": "x" * 10**4 + "\n", "clients": "y" * 10**4}, "says clients = 'y{39}..., which"),
    ],
)
def test_an_entry_of_another_type_is_named(run: Path, entries: dict[str, Any], sentence: str) -> None:
    changed(run, **entries)
    with pytest.raises(FedscopeError, match=f"run.json {sentence}.*; restore it from a copy$"):
        Run.open(run)


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"name": ""}, "has name '', which is none or another entry's"),
        ({"name": "b"}, "has name 'b', which is none or another entry's"),
        ({"name": ["w"]}, r"has name \['w'\], which is none"),
        ({"shape": [-1]}, r"has shape \[-1\], not a list of whole numbers"),
        ({"shape": [2**40]}, "not a list of whole numbers"),
        ({"shape": 3}, "has shape 3, not a list"),
        ({"dtype": "object"}, "has dtype 'object', which is not a type of numbers"),
        ({"dtype": None}, "has dtype None, which is not a type of numbers"),
        ({"dtype": "f4,f4"}, "has dtype 'f4,f4', which is not a type of numbers"),
        ({"dtype": "(("}, "which is not a type of numbers"),
        ({"kind": ["buffer"]}, r"has kind \['buffer'\]"),
    ],
)
def test_a_layout_of_other_things_is_refused(run: Path, entry: dict[str, Any], sentence: str) -> None:
    first, second = LAYOUT.to_json()
    changed(run, layout=[second, {**first, **entry}])
    with pytest.raises(FedscopeError, match=rf"run.json: layout entry 1 .*{sentence}"):
        Run.open(run)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{" * 10**5, r"is not JSON|nested too deep"),
        (b'{"format": ' + b"[" * 10**5 + b"]" * 10**5 + b"}", "is damaged: its JSON is nested too deep"),
        (b'{"clients": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b"\xff\xfe", "is damaged: byte 0 is not UTF-8"),
        (b"[]", "is not a run of fedscope"),
    ],
)
def test_what_is_no_json_of_ours_is_said(run: Path, content: bytes, sentence: str) -> None:
    (run / "run.json").write_bytes(content)
    with pytest.raises(FedscopeError, match=f"run.json {sentence}"):
        Run.open(run)


def test_a_file_of_another_size_than_its_kind_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big.json"
    path.write_text("{}")
    os.truncate(path, 2**40)  # takes no room
    for read in (read_json, read_toml, read_text):
        with pytest.raises(FedscopeError, match=r"big.json has 1.1 TB, but a thing has at most 17 MB; restore it$"):
            read(path, "a thing", "restore it")


@pytest.mark.parametrize("name", ["run.json", "config.toml", "partition.h5", "metrics.csv"])
def test_a_pipe_in_the_place_of_a_file_is_no_hang(run: Path, name: str) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    reads: dict[str, Callable[[], Any]] = {
        "run.json": lambda: Run.open(run),
        "config.toml": lambda: Run.open(run).config,
        "partition.h5": lambda: Run.open(run).partition,
        "metrics.csv": lambda: Run.open(run).metrics(),
    }
    with pytest.raises(FedscopeError, match=f"{name} is a named pipe, not a"):
        reads[name]()


# --- what is written once ---


def test_the_run_says_the_sha256_of_what_is_written_once(run: Path) -> None:
    said = json.loads((run / "run.json").read_text())["files"]
    assert said.pop("run.json")
    assert said == {n: hashlib.sha256((run / n).read_bytes()).hexdigest() for n in ("config.toml", "partition.h5")}


@pytest.mark.parametrize(
    ("name", "remedy"), [("config.toml", "; for other settings train another run"), ("partition.h5", "$")]
)
def test_one_changed_bit_of_them_is_seen(run: Path, name: str, remedy: str) -> None:
    data = bytearray((run / name).read_bytes())
    data[-2] ^= 1
    (run / name).write_bytes(data)
    with pytest.raises(FedscopeError, match=f"{name} is not the file that was written with the run .*copy{remedy}"):
        getattr(Run.open(run), name.split(".")[0])


def test_every_changed_character_of_run_json_is_seen_or_changes_nothing(run: Path) -> None:
    text = (run / "run.json").read_text()
    said = Run.open(run).info
    believed = 0
    for at in range(len(text)):
        other = text[:at] + ("8" if text[at] != "8" else "9") + text[at + 1 :]
        (run / "run.json").write_text(other)
        try:
            found = Run.open(run).info
        except FedscopeError:
            continue
        believed += 1  # the name of the entry that holds the sha256, and no other
        assert {**found, "files": {}} == {**said, "files": {}} | {
            name: value for name, value in found.items() if name not in said
        }
    assert believed <= len("files") + len("run.json")
    (run / "run.json").write_text(json.dumps(json.loads(text)))  # other spaces say the same
    assert Run.open(run).info == said


def test_an_entry_that_its_owner_changed_is_said_with_the_way_to_keep_it(run: Path) -> None:
    info = json.loads((run / "run.json").read_text())
    info["device"] = "cuda"
    (run / "run.json").write_text(json.dumps(info))
    with pytest.raises(FedscopeError, match=r'copy, or take "run\.json" out of its "files" if you edited it yourself$'):
        Run.open(run)
    del info["files"]["run.json"]
    (run / "run.json").write_text(json.dumps(info))
    assert Run.open(run).info["device"] == "cuda"


def test_a_run_that_says_no_sha256_is_read(run: Path) -> None:
    info = json.loads((run / "run.json").read_text())
    del info["files"]
    (run / "run.json").write_text(json.dumps(info))
    (run / "config.toml").write_text("[run]\nrounds = 4\n")
    assert Run.open(run).config == {"run": {"rounds": 4}}


# --- partition.h5 ---


def put(name: str, values: Any) -> Callable[[h5py.File], None]:
    """Another dataset in the place of one."""

    def spoil(file: h5py.File) -> None:
        del file[name]
        file[name] = values

    return spoil


def huge(file: h5py.File) -> None:
    del file["indices"]
    file.create_dataset("indices", (2**40,), "i8")


def huge_zipped(file: h5py.File) -> None:
    del file["indices"]
    file.create_dataset("indices", (2**40,), "i8", chunks=(1024,), compression="gzip")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (put("offsets", [0, 3, 6]), "its offsets do not divide its 5 indices"),
        (put("offsets", [1, 3, 5]), "its offsets do not divide its 5 indices"),
        (put("offsets", [0, 9, 5]), "its offsets do not divide its 5 indices"),
        (put("offsets", np.zeros(0, "i8")), "its offsets do not divide its 5 indices"),
        (put("offsets", [0.0, 3, 5]), r"offsets is float64 of shape \[3\], not whole numbers of 1 dimension;"),
        (put("offsets", 3), r"offsets is int64 of shape \[\], not whole numbers"),
        (put("indices", ["a"] * 5), "indices is object of shape"),
        (put("indices", [0, 4, -8, 2, 3]), "its indices hold -8, which is not a sample"),
        (put("indices", h5py.Empty("i8")), "it has no indices"),
        (put("test_offsets", [0, 2]), "it has 2 clients, but 1 test parts"),
        (put("label_counts", [[1, 1, 1], [1, 0, 0]]), "its label_counts are not those of its clients' samples"),
        (put("label_counts", [[3, 0, 0]]), "its label_counts are not those"),
        (put("label_counts", [[4, -1, 0], [2, 0, 0]]), "its label_counts are not those"),
        (lambda file: file.move("label_counts", "x"), "it has no label_counts"),
        (huge, "/indices declares 8.8 TB, but the file holds 0 B of it"),
        (huge_zipped, "/indices declares 8.8 TB, but the file holds 0 B of it"),
    ],
)
def test_a_partition_that_does_not_fit_itself_is_refused(
    tmp_path: Path, spoil: Callable[[h5py.File], None], sentence: str
) -> None:
    PARTITION.save(tmp_path / "partition.h5")
    with h5py.File(tmp_path / "partition.h5", "r+") as file:
        spoil(file)
    with pytest.raises(FedscopeError, match=f"partition.h5 is damaged: {sentence}.*restore it from a copy$"):
        Partition.load(tmp_path / "partition.h5")


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ({"clients": 3}, "has 2 clients, but run.json says 3; it belongs to another run"),
        ({"classes": 4}, "has 3 classes, but run.json says 4; it belongs to another run"),
        (
            {"data": {**DATA, "train": 8}},
            "gives a client sample 8, but run.json says that there are 8 training samples",
        ),
    ],
)
def test_a_partition_of_another_run_is_refused(run: Path, entries: dict[str, Any], sentence: str) -> None:
    changed(run, **entries)
    with pytest.raises(FedscopeError, match=f"partition.h5 {sentence}"):
        _ = Run.open(run).partition


def test_an_array_in_another_file_is_not_followed(tmp_path: Path) -> None:
    layout = h5py.VirtualLayout((3,), "i8")
    layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "x", (3,))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
        with pytest.raises(FedscopeError, match="keeps /x in another file"):
            read_array(tmp_path / "a.h5", file, "x", "iu", 1)


LINKS = [h5py.SoftLink("/other"), h5py.ExternalLink("other.h5", "/x")]


@pytest.mark.parametrize("link", LINKS)
def test_links_in_place_of_a_partition_are_not_followed(tmp_path: Path, link: Any) -> None:
    PARTITION.save(tmp_path / "partition.h5")
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = [0, 3, 5]
    with h5py.File(tmp_path / "partition.h5", "r+") as file:
        file.move("offsets", "other")
        file["offsets"] = link
    with pytest.raises(FedscopeError, match=r"partition.h5: offsets is a link, but the file must hold its data its"):
        Partition.load(tmp_path / "partition.h5")


@pytest.mark.parametrize("link", LINKS)
def test_links_in_place_of_a_results_values_are_not_followed(tmp_path: Path, link: Any) -> None:
    path = result(tmp_path / "x.nc")
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = np.ones((2, 3))
    with h5py.File(path, "r+") as file:
        file.move("loss", "other")
        file["loss"] = link
    with pytest.raises(FedscopeError, match=r"x.nc: loss is a link, but the file must hold its data itself; give a"):
        read_netcdf(path)


# --- metrics.csv ---


def test_each_changed_letter_of_a_row_loses_that_row_alone(tmp_path: Path) -> None:
    """Its numbers are taken from the round's file then."""
    table = tmp_path / "metrics.csv"
    write_table(table, ((t, {"lr": 0.1, "test_loss": 1 / t}) for t in (1, 2, 3)))
    whole = table.read_text()
    rows = read_table(table)
    assert {t: row["test_loss"] for t, row in rows.items()} == {1: 1.0, 2: 0.5, 3: 1 / 3}
    start = whole.index("\n2,") + 1
    for i in range(start, whole.index("\n", start)):
        for letter in "07,x":
            table.write_text(whole[:i] + letter + whole[i + 1 :])
            assert read_table(table).keys() == ({1, 2, 3} if whole[i] == letter else {1, 3})


def test_a_changed_head_loses_all_rows(tmp_path: Path) -> None:
    table = tmp_path / "metrics.csv"
    write_table(table, [(1, {"lr": 0.1})])
    table.write_text(table.read_text().replace("test_loss", "test_lost"))
    assert read_table(table) == {}


def test_a_table_of_another_program_has_no_crc32(tmp_path: Path) -> None:
    table = tmp_path / "metrics.csv"
    table.write_text('round,"test_loss"\n1,0.5\n2,\n3,x\n')
    rows = read_table(table)
    assert rows.keys() == {1, 2}
    assert rows[1]["test_loss"] == 0.5
    append_row(table, 4, dict.fromkeys(COLUMNS, 1))  # of another width
    assert read_table(table).keys() == {1, 2}


# --- results ---


def result(path: Path) -> Path:
    write_netcdf(
        path,
        {"a": (("a",), np.arange(3.0), {}), "name": (("name",), np.array(["x", "y"], object), {})},
        {"loss": (("name", "a"), np.ones((2, 3)), {"units": "nat"})},
        {"kind": "models", "explained": [0.5, 0.2]},
    )
    return path


def make_huge(file: h5py.File) -> None:
    del file["loss"]
    file.create_dataset("loss", (2, 2**40), "f4", chunks=(1, 1024), compression="gzip")


def unscale(file: h5py.File) -> None:
    del file["a"]


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (make_huge, "/loss declares 8.8 TB, but the file holds 0 B of it"),
        (unscale, ""),
        (put("loss", np.ones((2, 3))), "loss has 2 along loss, but loss has no values"),
        (put("loss", h5py.Empty("f4")), "loss holds no values"),
        (put("loss", np.ones((2, 3), complex)), "loss is complex128, neither numbers nor text"),
        (lambda file: file.create_group("more"), "more holds no values"),
        (lambda file: file.attrs.update(kind=np.arange(3)), "its attribute kind is neither text nor a number"),
        (lambda file: file.attrs.update(kind=h5py.Empty("f4")), "its attribute kind is neither text nor a number"),
    ],
)
def test_a_netcdf_file_that_does_not_fit_itself_is_refused(
    tmp_path: Path, spoil: Callable[[h5py.File], None], sentence: str
) -> None:
    path = result(tmp_path / "x.nc")
    with h5py.File(path, "r+") as file:
        spoil(file)
    with pytest.raises(FedscopeError, match=f"x.nc is damaged: {sentence}"):
        read_netcdf(path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("a,b\n1\n", "row 2 has not 2 fields"),
        ("a,b\n1,2,3\n", "row 2 has not 2 fields"),
        ("a,b\n1," + "2" * 200_000 + "\n", "is not CSV"),
        ("a,c\n1,2\n", "its columns must be a, b"),
        (b"a,b\n\xff,2\n", "byte 4 is not UTF-8"),
    ],
)
def test_a_table_of_other_things_is_refused(tmp_path: Path, content: str | bytes, sentence: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(FedscopeError, match=f"x.csv is .*{re.escape(sentence)}.*; compute it again with --force$"):
        read_csv(path, ("a", "b"), "curves")


@pytest.mark.parametrize("content", ["[" * 10**5, '{"format": "x", "version": "1"}', '{"format": "x", "version": [1]}'])
def test_an_info_of_other_things_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(FedscopeError, match=r"x.json is .*; compute it again with --force$"):
        read_info(tmp_path / "x.json", "x", 1, "curves")


@pytest.mark.parametrize("line", ["3\n", "[]\n", '{"key": 3, "value": 1}\n', '{"key": "b"}\n', "[" * 10**5 + "\n"])
def test_a_store_ends_before_what_is_no_part(tmp_path: Path, line: str) -> None:
    path = tmp_path / "x.partial"
    with ResumeStore(path, {"q": 1}) as store:
        store.add("a", 1)
    path.write_text(path.read_text() + line)
    with ResumeStore(path, {"q": 1}) as store:
        assert store.done == {"a": 1}
        store.add("c", 2)
    assert ResumeStore(path, {"q": 1}).done == {"a": 1, "c": 2}
