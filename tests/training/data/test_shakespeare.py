"""``shakespeare``, read from small files in its true layouts, and learnt without a word about the task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import fedscope
from fedscope.checkpoints import FedscopeError, Run
from fedscope.cli.main import run
from fedscope.evaluation.standard_tasks import Regression, Sequences
from fedscope.training import Config, data_of, load_data, partition
from fedscope.training.data.formats import cache
from fedscope.training.data.published import shakespeare
from fedscope.training.data.published.shakespeare import BEGIN, END, LENGTH, TOKENS, UNKNOWN, cut
from fedscope.training.tasks import resolve_task

ROLES = {
    "MACBETH_MACBETH": ["Tomorrow, and tomorrow, and tomorrow,\nCreeps in this petty pace from day to day,", "Out!"],
    "HAMLET_HAMLET": ["To be, or not to be", "Words, words, words.", "x" * 79, "y" * 80, "z" * 200, ""],
    "LEAR_FOOL": ["caf\xe9 ~"],
}
FAST = ["--model", "gru", "--rounds", "1", "--epochs", "1", "--set", "model.hidden=4"]


def write_tff(folder: Path, **roles: dict[str, list[str]]) -> None:
    """As TensorFlow Federated distributes it: texts of any length, in a data set a role."""
    for split in ("train", "test"):
        with h5py.File(folder / f"shakespeare_{split}.h5", "w") as file:
            for role, snippets in roles.get(split, ROLES).items():
                texts = np.array([snippet.encode("latin-1") for snippet in snippets], dtype=object)
                file.create_dataset(f"examples/{role}/snippets", data=texts, dtype=h5py.string_dtype("ascii"))


@pytest.fixture
def tff(tmp_path: Path) -> Path:
    write_tff(tmp_path, test={"LEAR_FOOL": ["Prithee, nuncle"], "LEAR_LEAR": ["Howl, howl, howl!"]})
    return tmp_path


def told(x: np.ndarray, y: np.ndarray) -> str:
    """What stands in samples of one snippet, read off their targets."""
    tokens = y[y != -100].tolist()
    assert (x[0, 0], tokens[-1]) == (BEGIN, END)
    return "".join(TOKENS[token] for token in tokens)


def test_the_vocabulary_is_that_of_tensorflow_federated() -> None:
    assert len(set(shakespeare.CHARACTERS)) == 86
    assert (TOKENS[1], TOKENS[86], len(TOKENS), UNKNOWN, BEGIN, END) == ("d", "\r", 90, 87, 88, 89)


@pytest.mark.parametrize("length", [0, 1, 78, 79, 80, 81, 159, 160, 161, 500])
def test_every_character_of_a_snippet_is_told_once_from_those_before_it(length: int) -> None:
    text = "".join(shakespeare.CHARACTERS[i * 7 % 86] for i in range(length))
    x, y = cut(text.encode())
    assert told(x, y) == text
    assert x.shape == y.shape == (shakespeare.pieces(length), LENGTH)
    assert ((y != -100).sum(axis=1) > 0).all()
    # one after the other: a target is the next input, in the sample or at the beginning of the next one
    counts = y.ravel() != -100
    following = np.append(x.ravel()[1:], END)
    np.testing.assert_array_equal(y.ravel()[counts], np.where(np.append(counts[1:], False), following, END)[counts])
    assert (x.ravel()[~counts] == 0).all()


def test_a_role_is_a_user_and_a_sample_a_snippet_or_a_piece_of_one(tff: Path) -> None:
    data = load_data(f"shakespeare:{tff}")
    assert (data.task.name, data.classes, data.shape, data.tokens) == ("sequences", 90, (80,), TOKENS)
    assert data.x_train.dtype == data.y_train.dtype == np.int64
    user = data.groups["user"]
    assert user.names == ("HAMLET_HAMLET", "LEAR_FOOL", "LEAR_LEAR", "MACBETH_MACBETH")
    x, of = np.asarray(data.x_train), user.train
    for number, role in enumerate(user.names):
        parts = [cut(text.encode("latin-1")) for text in ROLES.get(role, ())]
        np.testing.assert_array_equal(x[of == number], np.concatenate([np.empty((0, 80)), *(x for x, _ in parts)]))
        np.testing.assert_array_equal(
            data.y_train[of == number], np.concatenate([np.empty((0, 80)), *(y for _, y in parts)])
        )
    assert user.test.tolist() == [1, 2]
    assert told(x[of == 1], data.y_train[of == 1]) == "caf\N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER}"
    split = partition("natural", np.zeros(len(of), int), 1, 3, seed=0, groups={"user": of})
    assert [len(part) for part in split.clients] == [1 + 1 + 1 + 2 + 3 + 1, 1, 3]


def test_tokens_are_decoded_once(tff: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSCOPE_CACHE", "off")
    expected = load_data(f"shakespeare:{tff}")
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "cache"))
    first = load_data(f"shakespeare:{tff}")
    monkeypatch.setattr(shakespeare, "read_roles", None)
    again = load_data(f"shakespeare:{tff}")
    for data in (first, again):
        assert (data.sha256, data.classes, data.tokens) == (expected.sha256, 90, TOKENS)
        for name in ("x_train", "y_train", "x_test", "y_test"):
            np.testing.assert_array_equal(getattr(data, name), getattr(expected, name))
        assert data.groups["user"].names == expected.groups["user"].names
        np.testing.assert_array_equal(data.groups["user"].train, expected.groups["user"].train)
    (kept,) = (tmp_path / "cache").iterdir()
    assert np.load(kept / "x_train.npy").dtype == np.uint8
    about = json.loads((kept / "about.json").read_text())
    assert (about["version"], about["classes"]) == (cache.VERSION, 90)


@pytest.mark.parametrize("place", ["examples", "examples/LEAR_FOOL", "examples/LEAR_FOOL/snippets"])
def test_links_into_other_files_are_not_followed(tff: Path, place: str) -> None:
    with h5py.File(tff / "shakespeare_test.h5", "r+") as file:
        if place in file:
            del file[place]
        file[place] = h5py.ExternalLink("shakespeare_train.h5", f"/{place}")
    with pytest.raises(
        FedscopeError, match=rf"shakespeare_test.h5: {place} is a link, but the file must hold its data"
    ):
        load_data(f"shakespeare:{tff}")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ("number", r"shakespeare_test.h5: role LEAR_FOOL has snippets of int64, no texts; copy it again"),
        ("lacks", r"shakespeare_test.h5: role LEAR_FOOL lacks snippets; copy it again"),
        ("loose", r"shakespeare_test.h5: role THEM lacks snippets"),
        ("nobody", r"shakespeare_test.h5 has no roles; copy it again"),
        ("foreign", r"is not a file of Federated Shakespeare: it has no group examples; copy it again"),
        ("name", r"shakespeare_test.h5 is damaged: a role is called b'LEAR\\xff'; copy it again"),
        ("cut", r"shakespeare_test.h5 is truncated .*; it should be a file of Federated Shakespeare: copy it again"),
        ("text", r"shakespeare_test.h5 is not a file of Federated Shakespeare: it is not an HDF5 file"),
    ],
)
def test_damaged_and_foreign_files_are_one_sentence(tff: Path, spoil: str, message: str) -> None:
    path = tff / "shakespeare_test.h5"
    if spoil == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif spoil == "text":
        path.write_text("To be, or not to be")
    else:
        with h5py.File(path, "w") as file:
            if spoil == "number":
                file["examples/LEAR_FOOL/snippets"] = np.arange(3)
            elif spoil == "lacks":
                file["examples/LEAR_FOOL/snippet"] = np.arange(3)
            elif spoil == "loose":
                file["examples/THEM"] = np.arange(3)
            elif spoil == "name":
                file.create_group(b"examples/LEAR\xff")
            elif spoil == "nobody":
                file.create_group("examples")
            else:
                file["examples"] = np.arange(3)
    with pytest.raises(FedscopeError, match=message):
        load_data(f"shakespeare:{tff}")


def test_what_is_missing_is_named_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(
        FedscopeError, match=r"found no shakespeare_train.h5, shakespeare_test.h5, nor .*; looked in .*/d"
    ):
        load_data(f"shakespeare:{tmp_path}")
    write_tff(tmp_path)
    with pytest.raises(FedscopeError, match=r"shakespeare_test.h5 is a file; give its folder, --data sh"):
        load_data(f"shakespeare:{tmp_path}/shakespeare_test.h5")
    (tmp_path / "shakespeare_train.h5").unlink()
    with pytest.raises(
        FedscopeError, match=r"has 1 of the 2 files, but not shakespeare_train.h5; get the rest from ht"
    ):
        load_data(f"shakespeare:{tmp_path}")


# --- what is learnt ---


def test_the_data_say_what_is_learnt_unless_it_is_said(tff: Path) -> None:
    name = f"shakespeare:{tff}"
    config, task = resolve_task(Config.read({"data": {"name": name, "partition": "natural"}}), None)
    assert (config.model.architecture.task, task.name) == ("sequences", "sequences")
    config, task = resolve_task(Config.read({"data": {"partition": "iid"}}), None)
    assert (config.model.architecture.task, task.name) == (None, "classification")
    config, task = resolve_task(Config.read({"data": {"partition": "iid"}, "model": {"task": "regression"}}), None)
    assert (config.model.architecture.task, task.name) == ("regression", "regression")
    assert load_data(name, Sequences()).task.name == "sequences"
    sentence = r"has a character to be told at each of 80 positions, which is the task sequences, and no regression; le"
    with pytest.raises(FedscopeError, match=sentence):
        load_data(name, Regression())


@pytest.fixture
def trained(tff: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tff)
    words = ["--data", "shakespeare:.", "--partition", "natural", "--clients", "3", "--participation", "1", *FAST]
    assert run(["train", "--method", "fma", "--out", "fma", *words]) == 0
    return tff


def test_a_run_knows_its_task_and_so_do_its_analyses(trained: Path) -> None:
    recorded = Run.open("fma")
    assert recorded.config is not None
    assert recorded.config["model"]["task"] == "sequences"
    assert recorded.info["classes"] == 90
    assert data_of(recorded).task.name == "sequences"
    line = fedscope.line(["fma@1/start", "fma@1"], points=3)
    assert line.attrs["task"] == "sequences"
    # models elsewhere, and these data: no run that says what is learnt
    alone = fedscope.line(["fma@1/start", "fma@1"], points=3, data=f"shakespeare:{trained}")
    np.testing.assert_array_equal(alone.loss, line.loss)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "data.partition = 'shards:2' divides the samples by class, and the task sequences has none; give"),
        (["--partition", "natural", "--clients", "4"], "with 4 clients, but the data have 3 users; give --clients 3"),
        (["--data", "shakespear:.", "--partition", "iid"], 'did you mean "shakespeare"?'),
        (["--task", "classification", "--partition", "iid"], "and no classification; leave --task out"),
        (["--partition", "iid", "--clients", "3", "--model", "cnn"], "model.name = 'cnn' needs images"),
        (
            ["--partition", "iid", "--clients", "3", "--model", "mlp"],
            "is 80 tokens, which have to be embedded; give --model gru",
        ),
    ],
)
def test_likely_mistakes_are_one_sentence(
    tff: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    asked: list[Any] = ["train", "--data", f"shakespeare:{tff}", *FAST[:-2], *words, "--out", tff / "fma"]
    assert run([str(word) for word in asked]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.splitlines()) == 1
    assert not (tff / "fma").exists()
