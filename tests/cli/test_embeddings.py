"""Maps of models as `fedscope disperse --embed` asks for them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import click
import pytest

from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import fedscope
from fedscope.decomposition.embedding import analysis as question
from fedscope.decomposition.embedding.analysis import embed
from fedscope.decomposition.embedding.result import Embedding

pytestmark = pytest.mark.usefixtures("few_digits")

TINY = "--method fma --clients 8 --participation 0.5 --rounds 4 --set model.hidden=[16]"
RUNS = {
    "iid": f"{TINY} --partition iid",
    "shards": f"{TINY} --set record.clients=[1,3]",
    "bare": f"{TINY} --set record.clients=none",
    "wide": f"{TINY} --set model.hidden=[20]",
}


def asked(names: str, rounds: str | None, method: str, **how: Any) -> Any:
    return embed.prepare([Path("runs", name) for name in names.split()], method, rounds=rounds, **how)


def said(capsys: pytest.CaptureFixture[str], names: str, rounds: str, method: str, *words: str) -> str:
    capsys.readouterr()
    runs = [f"runs/{name}" for name in names.split()]
    fedscope.main(["disperse", *runs, "--rounds", rounds, "--embed", method, *words], standalone_mode=False)
    return capsys.readouterr().out


def test_two_runs_are_one_map_in_five_files(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--perplexity", "4", "--out", "m"]
    words = said(capsys, "iid shards", "1,3", "tsne", *given)
    lines = words.splitlines()
    assert lines[0].startswith("t-SNE of 20 models of iid, shards, rounds 1, 3: perplexity 4, KL divergence ")
    assert lines[3:] == [f"  m.embedding.{kind}" for kind in ("csv", "json", "pdf", "png", "html")]
    assert all(Path(line.strip()).stat().st_size for line in lines[3:])
    with Path("m.embedding.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["run"] for row in rows} == {"iid", "shards"}
    assert [row["which"] for row in rows[-4:]] == ["global"] * 4
    made = Embedding.load("m")
    assert (made.attrs["seed"], made.attrs["asked_perplexity"], made.attrs["device"]) == (0, 4.0, "cpu")
    assert made.attrs["rounds"] == [["iid", 1], ["iid", 3], ["shards", 1], ["shards", 3]]
    assert "numpy" in made.attrs["versions"]
    assert not list(Path().glob("*.partial"))
    # the same again is read back, another is not overwritten
    png = Path("m.embedding.png").read_bytes()
    assert said(capsys, "iid shards", "1,3", "tsne", *given) == words
    assert said(capsys, "iid shards", "1,3", "tsne", *given, "--redraw") == words
    assert Path("m.embedding.png").read_bytes() == png
    for how in (["--perplexity", "5"], ["--seed", "1"], ["--layer", "fc1.weight"]):
        with pytest.raises(FedscopeError, match=r"m\.embedding\.json holds another result, of .*(perp|seed|lay)"):
            said(capsys, "iid shards", "1,3", "tsne", *given, *how)


def test_json_has_the_numbers_and_layers_change_them(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = json.loads(said(capsys, "iid", "all", "pca", "--json"))
    assert (whole["models"], whole["method"], whole["perplexity"]) == (20, "pca", None)
    assert len(whole["spreads"]) == 4
    assert whole["files"][0] == "runs/iid/figures/embedding-pca-all.embedding.csv"
    part = json.loads(said(capsys, "iid", "all", "pca", "--json", "--layer", "head.weight"))
    assert part["files"][0] == "runs/iid/figures/embedding-pca-all-head.weight.embedding.csv"
    for of_layer, of_all in zip(part["spreads"], whole["spreads"], strict=True):
        assert 0 < of_layer["mean"] < of_all["mean"]


def test_without_rounds_all_that_have_clients_are_shown(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rounds(names: str) -> list[tuple[str, int]]:
        return [(name, t) for name, t in asked(names, None, "pca").parts[0].settings[0]["rounds"]]

    assert rounds("iid shards") == [("iid", 1), ("iid", 2), ("iid", 3), ("iid", 4), ("shards", 1), ("shards", 3)]
    # of four clients and two models of the server a round
    monkeypatch.setattr(question, "MODELS", 18)
    assert rounds("iid") == [("iid", 1), ("iid", 3), ("iid", 4)]
    assert rounds("iid shards") == [("iid", 1), ("iid", 4), ("shards", 1), ("shards", 3)]


def test_an_interrupted_map_goes_on(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedscope.decomposition.embedding import gram, pca_and_tsne

    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pca_and_tsne, "project", stop)
        with pytest.raises(click.Abort):
            said(capsys, "iid", "all", "tsne", "--out", "m")
    assert Path("m.embedding.json.partial").exists()
    with monkeypatch.context() as patched:
        patched.setattr(gram, "read_blocks", stop)  # nothing is left to read
        words = said(capsys, "iid", "all", "tsne", "--out", "m")
        with pytest.raises(click.Abort):
            said(capsys, "iid", "1,2", "tsne", "--out", "other")
    assert words.replace("m.embedding", "n.embedding") == said(capsys, "iid", "all", "tsne", "--out", "n")
    assert Path("m.embedding.csv").read_bytes() == Path("n.embedding.csv").read_bytes()


@pytest.mark.parametrize(
    ("names", "rounds", "method", "how", "message"),
    [
        ("shards", "2", "tsne", {}, r"runs/shards@2: the clients of round 2 were not recorded; rounds 1, 3 have them"),
        ("bare", None, "tsne", {}, r"runs/bare recorded no round's clients; train with record\.clients = 'all'"),
        (
            "iid wide",
            "1",
            "pca",
            {},
            r"runs/iid and runs/wide hold models of different layouts \(fc1\.weight has shape",
        ),
        (
            "iid",
            "1",
            "tsne",
            {"perplexity": 5.0},
            r"perplexity 5 .* each of 5 different models .* less than 5; give 1\.33",
        ),
        ("iid", "1", "pca", {"perplexity": 3.0}, r"^perplexity=3 belongs to t-SNE; leave it out with --embed pca"),
        ("iid", "1", "umap", {}, r"a map by 'umap' is not known; take one of tsne, pca"),
        ("iid", "1", "pca", {"layers": "fc9"}, r"have no parameter 'fc9'; they have fc1\.weight, fc1\.bias"),
    ],
)
def test_mistakes_end_in_one_sentence_before_anything_is_read(
    runs: Path, names: str, rounds: str | None, method: str, how: dict[str, Any], message: str
) -> None:
    with pytest.raises(FedscopeError, match=message):
        asked(names, rounds, method, **how)
