"""``fedscope data``: what a federation looks like before anything is trained."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from legible import assert_apart, assert_inside

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run
from fedscope.decomposition.client_data.figure import draw, draw_samples
from fedscope.decomposition.client_data.result import ClientData
from fedscope.training import Config, load_data, train

COMMAND = "data"
DIGITS = {"data": {"name": "digits", "partition": "dirichlet:0.3", "clients": 6, "client_test": 0.25}}
pytestmark = [pytest.mark.same_elsewhere, pytest.mark.usefixtures("few_digits")]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_and_its_configuration_have_the_same_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = train(Config.read({**DIGITS, "run": {"rounds": 1}}), tmp_path / "fma")
    before, after = fedscope.data(DIGITS), fedscope.data(made)
    np.testing.assert_array_equal(before.counts, after.counts)
    np.testing.assert_array_equal(before.test, after.test)
    np.testing.assert_array_equal(after.counts, made.partition.label_counts)
    np.testing.assert_array_equal(before.images, after.images)
    assert fedscope.data(tmp_path / "fma" / "config.toml").numbers() == before.numbers()
    assert after.attrs["run"]["path"] == str(made.path)


def test_counts_are_those_of_the_samples_and_the_images_theirs() -> None:
    result, data = fedscope.data(DIGITS, samples=4), load_data("digits")
    whole = np.bincount(data.y_train, minlength=10)
    np.testing.assert_array_equal(result.counts.sum(0) + result.test.sum(0), whole)
    assert result.shown == (0, 2, 5)
    assert result.images.shape == (3, 4, 1, 8, 8)
    assert 0 <= result.images.min() < result.images.max() <= 1
    raw = np.clip(np.asarray(data.x_train) * np.float32(data.deviations[0]) + np.float32(data.means[0]), 0, 1)
    known = {image.tobytes() for image in raw.astype(np.float32)}
    assert all(image.tobytes() in known for image in result.images.reshape(-1, 1, 8, 8))
    assert result.numbers()["clients"][3]["samples"] == int(result.counts[3].sum())


def test_the_table_has_a_row_a_client_and_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = said("--clients", "6", "--partition", "shards:2", "--out", "f")
    assert "digits, shards:2: 6 clients, each with" in words
    table = rows(tmp_path / "f.counts.csv")
    result = ClientData.load(tmp_path / "f")
    assert [[int(row["client"]), int(row["class"])] for row in table] == np.argwhere(result.counts).tolist()
    assert sum(int(row["samples"]) for row in table) == int(result.sizes.sum())
    assert {row["domain"] for row in table} == {""}


def test_all_that_the_clients_depend_on_tells_results_apart(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["data", "--clients", "6", "--out", "m"]
    assert run(asked) == 0
    for more in (
        ["--set", "data.client_test=0.25"],
        ["--set", "data.seed=1"],
        ["--partition", "iid"],
        ["--clients", "5"],
        ["--samples", "4"],
        ["--shown", "2"],
    ):
        capsys.readouterr()
        assert run([*asked, *more]) == 2, more
        assert "m.nc holds another result" in capsys.readouterr().err
    assert run(asked) == 0


def test_the_name_of_a_result_says_its_data_and_partition() -> None:
    asked = {"data": {"name": "npz:/data/mine.npz", "partition": "domains:5,dirichlet:0.3"}}
    assert fedscope.data.prepare(asked).name == "data-mine-domains-5-dirichlet-0.3"


def held(counts: Any, domains: Any = (), names: tuple[str, ...] = (), **more: Any) -> ClientData:
    counts = np.asarray(counts, np.int64)
    return ClientData(counts, np.zeros_like(counts), np.asarray(domains, np.int64), names, **more)


def test_domains_and_what_is_nobodys_are_said(tmp_path: Path) -> None:
    attrs = {"data": "pacs:/data/PACS", "partition": "domains:2,iid", "samples": 100}
    result = held([[5, 0], [3, 2], [0, 7], [1, 0]], [0, 0, 1, -1], ("art", "photo"), attrs=attrs)
    result.save(tmp_path / "f")
    again = ClientData.load(tmp_path / "f")
    assert result.summary() == (
        "PACS, domains:2,iid: 4 clients in 2 domains, each with 1 to 7 samples (median 5) of 1 to 2 classes "
        "(median 1), of 2; 18 samples in all; 82 of 100 samples are nobody's"
    )
    assert again.summary() == result.summary()
    assert [row["domain"] for row in rows(tmp_path / "f.counts.csv")] == ["art", "art", "art", "photo", ""]
    assert again.numbers() == result.numbers()


@settings(max_examples=6, deadline=None)
@given(
    clients=st.sampled_from([1, 3, 40, 130]),
    classes=st.sampled_from([1, 7, 100]),
    width=st.sampled_from([2.4, 3.5, 7.0]),
    title=st.sampled_from([None, "What clients hold"]),
)
def test_no_label_lies_over_another_or_outside(clients: int, classes: int, width: float, title: str | None) -> None:
    counts = np.random.default_rng(clients).poisson(30, (clients, classes))
    domains = np.arange(clients) * 3 // clients
    images = np.full((2, 8, 3, 6, 6), 0.5, np.float32)
    attrs = {"data": "pacs:/data/PACS", "partition": "domains:2,dirichlet:0.3"}
    result = held(counts, domains, ("one", "two", "three"), shown=(0, clients - 1), images=images, attrs=attrs)
    for figure in result.figures(width, title).values():
        assert_apart(assert_inside(figure, width))


@pytest.mark.parametrize("width", [2.4, 3.5, 7.0])
@pytest.mark.parametrize("domains", [5, 6, 12, 30])
def test_names_of_many_domains_are_shortened_to_their_room(domains: int, width: float) -> None:
    names = tuple(f"a domain's long name {number}" for number in range(domains))
    of = np.arange(2 * domains) // 2
    figure = held(np.full((2 * domains, 3), 4), of, names, attrs={"data": "x", "partition": "y"}).figure(width)
    words = assert_inside(figure, width)
    assert_apart(words)
    shown = sum("…" in word for word, _ in words)
    assert shown == (domains if domains < 7 or (width == 7 and domains < 30) else 0)


def test_areas_are_numbers_of_samples() -> None:
    (bubbles,) = held([[8, 2], [0, 4]]).figure().axes[1].collections
    sizes = dict(zip(map(tuple, bubbles.get_offsets().tolist()), bubbles.get_sizes(), strict=True))
    assert set(sizes) == {(0.0, 0.0), (0.0, 1.0), (1.0, 1.0)}
    assert sizes[0.0, 0.0] == pytest.approx(4 * sizes[0.0, 1.0]) == pytest.approx(2 * sizes[1.0, 1.0])


def test_samples_without_classes_or_pixels_have_sizes_alone(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    np.savez(tmp_path / "w.npz", x_train=x, y_train=x[:, 0], x_test=x[:9], y_test=x[:9, 0])
    tables = {
        "data": {"name": f"npz:{tmp_path / 'w.npz'}", "partition": "iid", "clients": 4},
        "model": {"task": "regression"},
    }
    result = fedscope.data(tables)
    assert result.summary() == "w, iid: 4 clients, each with 10 samples; 40 samples in all"
    assert list(result.figures()) == [""]
    with pytest.raises(FedscopeError, match="are not images, so there is nothing to look at"):
        draw_samples(result)


def test_samples_of_a_text_are_read(tmp_path: Path) -> None:
    write_texts(tmp_path)
    asked = {"data": {"name": f"shakespeare:{tmp_path}", "partition": "natural", "clients": 3}}
    result = fedscope.data(asked, samples=2, shown=2)
    # a snippet of 100 characters is two samples, the first behind the token of its beginning
    assert result.texts == (("0" * 79, "0" * 21), ("a $2 b\nc$", "a $2 b\nc$"))
    assert result.shown == (0, 2)
    assert result.summary().endswith(": 3 clients, each with 1 to 2 samples (median 1); 4 samples in all")
    result.save(tmp_path / "f")
    again = ClientData.load(tmp_path / "f")
    assert (again.texts, again.shown, again.attrs) == (result.texts, result.shown, result.attrs)
    for width in (2.4, 3.5, 7.0):
        figures = again.figures(width)
        sizes = figures[""].axes
        assert [axes.get_ylabel() for axes in sizes] == ["samples"], "nothing by class"
        words = assert_inside(figures[".samples"], width)
        assert_apart(words)
        assert {"a $2 b\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}c$", "client 0", "client 2"} <= {
            text for text, _ in words
        }


def write_texts(folder: Path) -> None:
    for split in ("train", "test"):
        with h5py.File(folder / f"shakespeare_{split}.h5", "w") as file:
            for role, text in (("A", "0" * 100), ("B", "but"), ("C", "a $2 b\nc$")):
                snippets = np.array([text.encode()], dtype=object)
                file.create_dataset(f"examples/{role}/snippets", data=snippets, dtype=h5py.string_dtype("ascii"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("data runs/nowhere", "runs/nowhere"),
        ("data cifar10", "cifar10 is a data set, neither a run nor a configuration; give --data cifar10"),
        ("data mydata:load", "mydata:load is a data set, neither a run nor a configuration; give --data mydata:load"),
        ("data ä_b.npz", "ä_b.npz is a data set, neither a run nor a configuration; give --data 'npz:ä_b.npz'"),
        ("train ä_b.npz", "ä_b.npz is a data set, not a configuration; give --data 'npz:ä_b.npz'"),
        ("train digits", "digits is a data set, not a configuration; give --data digits"),
        ("sweep ä_b.npz --seeds 0", "ä_b.npz is a data set, not a configuration; give --set data.name='npz:ä_b.npz'"),
        ("sweep digits client.lr=0.1,0.2", "digits is a data set, not a configuration; give --set data.name=digits"),
        (
            "sweep mydata:load client.lr=0.1,0.2",
            "mydata:load is a data set, not a configuration; give --set data.name=mydata:load",
        ),
        ("train model.npz", "model.npz is damaged: byte"),
        ("data runs/fma --clients 3", "fma is a run, whose data are what they are; leave --clients out"),
        ("data --partition shard:2", "did you mean"),
        ("data --data mnist:nowhere", "--data mnist: found no train-images-idx3-ubyte.gz"),
        ("data missing.toml", "missing.toml"),
        ("data --clients 5000", "data.clients = 5000 is more than the"),
        ("data runs/fma@2", "names a model, but a whole run is asked for; give runs/fma"),
    ],
)
def test_likely_mistakes_are_one_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    if ".npz" in words:
        np.savez("ä_b.npz", x=np.zeros((4, 2)), y=np.arange(4))
        np.savez("model.npz", weight=np.zeros((4, 2)))
    assert run(words.split()) == 2
    told = capsys.readouterr().err
    assert message in told
    assert len(told.splitlines()) == 1 or told.startswith("Usage")


def test_data_in_the_place_of_a_configuration_are_refused_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("x y.npz", x=np.zeros((4, 2)), y=np.arange(4))
    with pytest.raises(FedscopeError) as caught:
        fedscope.data("x y.npz")
    assert str(caught.value) == "x y.npz is a data set, neither a run nor a configuration; give data='npz:x y.npz'"
    with pytest.raises(FedscopeError) as caught:
        fedscope.sweep({"client.lr": [0.1]}, config="x y.npz", out="sweep")
    assert str(caught.value) == "x y.npz is a data set, not a configuration; give data='npz:x y.npz'"
    for typed, meant in (("x y.npz", "npz:x y.npz"), (Path("x y.npz"), "npz:x y.npz"), ("digits", "digits")):
        with pytest.raises(FedscopeError) as caught:
            fedscope.train(typed, out="run")  # type: ignore[arg-type]
        assert str(caught.value) == f"{typed} is a data set, not a configuration; give data={meant!r}"


def test_a_run_on_data_of_ones_own_is_shown_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run does not say which code is run, and other data are told by their sum."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("held.py").write_text(
        "import numpy as np\n"
        "def load(shift=0.0):\n"
        "    y = np.arange(60) % 3\n"
        "    x = np.random.default_rng(0).normal(size=(60, 4)).astype('float32') + np.float32(shift)\n"
        "    return (x[:40], y[:40]), (x[40:], y[40:])\n"
    )
    train_it = "train --data held:load --method fma --clients 4 --rounds 1 --participation 1 --epochs 1 --out r"
    assert run(train_it.split()) == 0
    assert run(["data", "r", "--data", "held:load", "--out", "m"]) == 0
    counts = ClientData.load("m").counts
    np.testing.assert_array_equal(counts, fedscope.Run.open("r").partition.label_counts)
    import held  # type: ignore[import-not-found]

    np.testing.assert_array_equal(fedscope.data("r", settings={"data": held.load}).counts, counts)
    for words, said in (
        ("", "its data held:load come from your own code, which is never loaded from a run; give --data"),
        ("--data held:load(1)", "gives other data than the run saw"),
        ("--data digits", "--data digits is not the data that r was trained on"),
        ("--data held:load --clients 3", "is a run, whose data are what they are; leave --clients out"),
    ):
        capsys.readouterr()
        assert run(["data", "r", *words.split(), "--out", "n"]) == 2
        assert said in capsys.readouterr().err


IMAGES = np.random.default_rng(0).normal(size=(30, 1, 6, 6)).astype(np.float32)
CLASSES, PARTS = np.arange(30) % 3, {0: [0, 1, 2], 2: [5, 6, 7, 8]}


def recorded(path: Path, **given: Any) -> Path:
    with fedscope.Recorder(path, **given) as recorder:
        recorder.round(clients={k: {"w": np.full(3, k, np.float32)} for k in PARTS})
    return path


def test_a_recorded_run_shows_the_clients_that_its_partition_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[..., str]
) -> None:
    """It was refused for lack of a configuration, which says nothing that is shown."""
    monkeypatch.chdir(tmp_path)
    both = ((IMAGES, CLASSES), (IMAGES, CLASSES))
    np.savez("mine.npz", x_train=IMAGES, y_train=CLASSES, x_test=IMAGES, y_test=CLASSES)
    for name, own in (
        ("kept", {"data": both}),
        ("one", {"data": (IMAGES, CLASSES)}),
        ("file", {"data": "npz:mine.npz", "labels": CLASSES}),
    ):
        made = fedscope.data(recorded(tmp_path / name, **own, partition=PARTS))
        assert made.counts.tolist() == [[1, 1, 1], [0, 0, 0], [1, 1, 2]]
        assert made.shown == (0, 2), "client 1 has nothing to show"
        assert made.images.shape == (2, 8, 1, 6, 6)
        assert (made.images.min(), made.images.max()) == (0, 1)
        assert made.attrs["samples"] == 30
    assert "2 clients, each with 3 to 4 samples" in said(str(tmp_path / "kept"))
    assert (tmp_path / "kept" / "figures" / "data-arrays-recorded.samples.png").exists()


def test_a_recorded_run_whose_data_are_not_here_shows_counts_and_says_so(tmp_path: Path) -> None:
    both = ((IMAGES, CLASSES), (IMAGES, CLASSES))
    for name, own, why in (
        ("sum", {"data": both, "keep_data": False}, "keeps the sum of its data alone"),
        ("none", {"labels": CLASSES}, "the run does not say its data"),
        ("code", {"data": "mydata:load", "labels": CLASSES}, "if you know it, give data='mydata:load'"),
        ("test", {"data": (IMAGES, CLASSES), "labels": CLASSES}, "has no training samples"),
    ):
        path = recorded(tmp_path / name, **own, partition=PARTS)
        with pytest.warns(fedscope.checkpoints.FedscopeWarning, match="only how many there are") as told:
            made = fedscope.data(path)
        assert why in str(told[0].message)
        assert made.counts.tolist() == [[1, 1, 1], [0, 0, 0], [1, 1, 2]]
        assert not made.images.size
    same = fedscope.data(tmp_path / "sum", settings={"data": {"name": both}})
    assert same.images.shape == (2, 8, 1, 6, 6)
    others = ((IMAGES + 1, CLASSES), (IMAGES, CLASSES))
    with pytest.raises(FedscopeError, match=r"is not the data that .* was recorded with .*; give the run's own$"):
        fedscope.data(tmp_path / "sum", settings={"data": {"name": others}})
    with pytest.raises(FedscopeError, match="is a run, whose data are what they are"):
        fedscope.data(tmp_path / "sum", settings={"data": {"clients": 3}})


def test_settings_that_say_nothing_of_a_run_s_data_are_none(tmp_path: Path, recorded: Callable[..., Path]) -> None:
    path = recorded(tmp_path / "fma", "--method", "fma", "--rounds", "1", "--clients", "4")
    made = fedscope.data(path)
    for asked in ({"data": {}}, {"run": {}}, {"data": {"name": "digits"}, "run": {}}, {"data.name": "digits"}):
        assert fedscope.data(path, settings=asked).counts.tolist() == made.counts.tolist()
    for asked in ({"data.clients": 3}, {"data": {"name": "digits"}, "data.clients": 3}):
        with pytest.raises(FedscopeError) as caught:
            fedscope.data(path, settings=asked)
        assert str(caught.value) == f"{path} is a run, whose data are what they are; leave data.clients out"


def test_numbers_that_nobody_has_are_no_clients(tmp_path: Path) -> None:
    """Clients 17 and 105 were 106 clients, with a median of no samples."""
    with fedscope.Recorder(tmp_path / "r", labels=CLASSES, partition={17: [0, 1, 2], 105: [5, 6, 7]}) as recorder:
        recorder.round(clients={k: {"w": np.full(3, k, np.float32)} for k in (17, 105)})
    made = fedscope.data(tmp_path / "r")
    assert made.counts.shape == (106, 3)
    assert "2 clients, each with 3 samples of 3 classes" in made.summary()
    assert [one["client"] for one in made.findings()["clients"]] == [17, 105]
    assert made.attrs["clients"] == 2
    made.save(tmp_path / "d")
    assert ClientData.load(tmp_path / "d").clients.tolist() == [17, 105]
    axes = draw(made).axes
    assert [label.get_text() for label in axes[-1].get_xticklabels()] == ["17", "105"]
    assert len(axes[0].patches) == 2


def test_samples_that_are_held_several_times_are_somebodys_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were counted as often, so that 16 were nobody's, and none where clients had more than there are."""
    both = ((IMAGES, CLASSES), (IMAGES, CLASSES))
    for name, parts, words in (
        ("apart", PARTS, "; 7 samples in all; 23 of 30 samples are nobody's"),
        (
            "shared",
            {0: range(6), 2: range(2, 10)},
            "; 14 samples in all, 10 different ones, as some are held several times; 20 of 30 samples are nobody's",
        ),
        ("all", {0: range(30), 2: range(30)}, "; 60 samples in all, 30 different ones, as some are held several times"),
    ):
        path = recorded(tmp_path / name, data=both, partition={k: list(rows) for k, rows in parts.items()})
        made = fedscope.data(path)
        assert made.summary().endswith(words)
        made.save(tmp_path / f"{name}-saved")
        assert ClientData.load(tmp_path / f"{name}-saved").summary() == made.summary()
    # an earlier version kept nothing of it: such a result is read, and not taken for this one
    old = replace(made, attrs={key: value for key, value in made.attrs.items() if key != "distinct"})
    old.save(tmp_path / "old")
    assert ClientData.load(tmp_path / "old").summary().endswith("60 samples in all")
    assert run(["data", str(path), "--out", str(tmp_path / "old")]) == 2
    said = capsys.readouterr().err
    assert "samples that are held several times counted as often, by an earlier version" in said
    assert run(["data", str(path), "--out", str(tmp_path / "old"), "--force"]) == 0


def test_the_advice_of_counts_alone_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    both = ((IMAGES, CLASSES), (IMAGES, CLASSES))
    np.savez("mine.npz", x_train=IMAGES, y_train=CLASSES, x_test=IMAGES, y_test=CLASSES)
    recorded(tmp_path / "r", data=both, keep_data=False, partition=PARTS)
    assert run(["data", "r"]) == 0
    assert "; with --data give --force, too, where these counts were written" in capsys.readouterr().err
    assert run(["data", "r", "--data", "npz:mine.npz", "--force"]) == 0


@pytest.mark.parametrize("kind", ["targets", "batch", "numbers"])
def test_the_data_of_a_file_are_read_as_what_they_are(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """Tokens were refused with advice for a flag that the question does not have."""
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).integers(1, 20, (30, 9))
    y = x[:, 1:]
    x = x[:, :-1]
    if kind == "numbers":
        x, y = np.float32(x), np.float32(y[:, 0]) / 7
    arrays = {"x_train": x, "y_train": y, "x_test": x, "y_test": y}
    np.savez("mine.npz", **({"input_ids": x} if kind == "batch" else arrays))  # type: ignore[arg-type]
    path = recorded(tmp_path / "r", data="npz:mine.npz", labels=np.zeros(30, int), partition=PARTS)
    assert fedscope.data(path).counts.tolist() == [[3], [0], [4]]
    said = [str(one.message) for one in recwarn if "no samples are shown" in str(one.message)]
    # what is named input_ids is of the test split
    assert [one for one in said if "has no training samples" not in one] == []
    assert len(said) == (kind == "batch")


def test_a_recorded_run_without_classes_or_a_partition(tmp_path: Path) -> None:
    tokens = np.random.default_rng(0).integers(1, 20, (30, 8))
    for name, pair in (("numbers", (IMAGES, IMAGES[:, 0, 0, 0])), ("tokens", (tokens[:, :-1], tokens[:, 1:]))):
        path = recorded(tmp_path / name, data=(pair, pair), partition=PARTS, labels=np.zeros(30, int))
        assert fedscope.data(path).counts.tolist() == [[3], [0], [4]]
    path = recorded(tmp_path / "without", data=(IMAGES, CLASSES))
    with pytest.raises(FedscopeError, match=r"has no partition\.h5, which this needs"):
        fedscope.data(path)
