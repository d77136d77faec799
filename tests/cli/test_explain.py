"""``fedscope explain`` as a user gives it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedscope
import fedscope.decomposition as decomposition
import fedscope.decomposition.cka.pairs as similarity
from fedscope.checkpoints import FedscopeError, Run, weighted_mean
from fedscope.cli.main import run
from fedscope.decomposition import Decomposition
from fedscope.decomposition.cka.result import ClientCKA
from fedscope.decomposition.explanation.context_measures import ModelComparison, compare_models
from fedscope.decomposition.explanation.explain import explain
from fedscope.decomposition.explanation.result import Explanation
from fedscope.training import data_of, module_of

COMMAND = "explain"
pytestmark = pytest.mark.usefixtures("few_digits")

QUICK = ["--rounds", "1,last", "--draws", "local:3"]
FILES = ["html", "md", "explain.json", "factors.csv", "clients.csv", "factors.json", "pdf", "png"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    words = ["--clients", "8", "--participation", "0.5", "--rounds", "4", "--set", "model.hidden=[8]"]
    for name, extra in (
        ("ima", ["--method", "ima", "--set", "average.start=3"]),
        ("fma", ["--method", "fma"]),
        ("seed", ["--method", "fma", "--seed", "1"]),
        ("third", ["--method", "fma", "--seed", "2"]),
        ("few", ["--method", "fma", "--set", "record.clients=every:2"]),
        ("none", ["--method", "fma", "--set", "record.clients=none"]),
    ):
        recorded(folder / "runs" / name, *words, *extra)
    return folder


def by_hand(run: Run, number: int) -> list[ModelComparison]:
    """The models of a round on the test data, as `fedscope explain` compares them."""
    round_, samples = run.round(number), data_of(run).samples("test")
    module, clients = module_of(run), round_.clients()
    others = {f"client-{k}": clients.row(row) for row, k in enumerate(round_.client_ids.tolist())}
    average = weighted_mean(clients, round_.weights)
    made = [compare_models(module, samples, average, others, name="average", number=number)]
    if "averaged" in round_.models:
        models = round_.read("averaged"), {"global": round_.read("global")}
        made.append(compare_models(module, samples, *models, name="averaged", number=number))
    return made


def without_numbers(made: Explanation) -> Explanation:
    return replace(made, statements=tuple(replace(one, readings=()) for one in made.statements))


def numbers(made: Explanation) -> list[float]:
    found = [value for one in made.statements for reading in one.readings for value in astuple(reading)[2:]]
    return [np.nan if value is None else value for value in found]


def test_a_page_is_printed_and_written_with_everything_behind_it(runs: Path, said: Callable[..., str]) -> None:
    words = said("runs/ima", *QUICK, "--out", "page/e")
    made = Explanation.load("page/e")
    assert words == made.as_text() + "\n\n" + "".join(f"  page/e.{kind}\n" for kind in FILES)
    assert all(Path(f"page/e.{kind}").exists() for kind in FILES)
    assert not list(Path("page").glob("*.partial"))
    factors = Decomposition.load("page/e")
    # its similarities are those of `fedscope cka` on the same samples
    assert run(["cka", "runs/ima", "--rounds", "1,last", "--split", "train", "--out", "c"]) == 0
    similar = ClientCKA.load("c.nc")
    alike = [(one.round, one.mean, one.mean_stderr, similar.attrs["batches"]) for one in similar.rounds]
    tested = [one for number in (1, 4) for one in by_hand(Run.open("runs/ima"), number)]
    again = explain(factors, lengths={"ima": 4}, similarity={"ima": alike}, compared={"ima": tested})
    # another pass over the same samples may round otherwise: not every processor's products are alike in every place
    assert without_numbers(again) == without_numbers(made)
    np.testing.assert_allclose(numbers(again), numbers(made), rtol=1e-5, atol=1e-7)
    assert made.of("outputs-differ", "ima") is not None
    # the average of the clients is the global model of this server, and its error the one measured while training
    shown = made.of("better-than-clients").sentence
    assert f"error {100 * Run.open('runs/ima').metrics()['test_error'][3]:.3g} % (" in shown.rpartition(";")[2]
    assert made.attrs["draws"] == "local:3"
    assert Path("page/e.md").read_text() == made.as_markdown("e.png")
    assert Path("page/e.html").read_text() == made.as_html(Path("page/e.png").read_bytes())
    # exactly the numbers of decompose
    assert run(["decompose", "runs/ima", *QUICK, "--out", "d"]) == 0
    assert Decomposition.load("d").runs == factors.runs


def test_the_same_again_is_read_back_and_another_is_not_overwritten(
    runs: Path, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = said("runs/ima", *QUICK, "--out", "e")
    kept = {kind: Path(f"e.{kind}").read_bytes() for kind in FILES}
    with monkeypatch.context() as patched:
        patched.setattr(decomposition, "round_factors", None)
        patched.setattr(similarity, "round_similarity", None)
        assert said("runs/ima", *QUICK, "--out", "e") == words
        Path("e.md").unlink()
        assert said("runs/ima", *QUICK, "--out", "e", "--redraw") == words
    assert {kind: Path(f"e.{kind}").read_bytes() for kind in FILES} == kept
    with pytest.raises(FedscopeError, match=r"e\.factors\.json holds another result, of --draws \w+:\d \(not \w+:\d\)"):
        said("runs/ima", "--rounds", "1,last", "--draws", "local:4", "--out", "e")
    Path("e.explain.json").unlink()
    with pytest.raises(FedscopeError, match=r"e\.explain\.json does not exist"):
        said("runs/ima", *QUICK, "--out", "e", "--redraw")


def test_a_page_is_printed_also_where_its_figure_is_refused(
    runs: Path, said: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("large.mplstyle").write_text("font.size: 16\n")
    assert run([COMMAND, "runs/ima", *QUICK, "--out", "n", "--width", "2in", "--style", "large.mplstyle"]) == 2
    found = capsys.readouterr()
    assert "type of 16 pt; make it 4.1 inches" in found.err
    tables = ("explain.json", "factors.csv", "clients.csv", "factors.json")
    assert found.out == Explanation.load("n").as_text() + "\n\n" + "".join(f"  n.{kind}\n" for kind in tables)
    assert said("runs/ima", "--out", "n", "--redraw").startswith(Explanation.load("n").as_text())


def test_an_interrupted_page_of_a_new_result_is_not_the_old_ones(
    runs: Path, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said("runs/ima", *QUICK, "--out", "e")
    with monkeypatch.context() as patched:
        patched.setattr(similarity, "round_similarity", interrupt)
        assert run(["explain", "runs/ima", *QUICK, "--out", "e", "--force"]) == 130
    with pytest.raises(FedscopeError, match=r"e\.explain\.json does not exist"):
        said("runs/ima", *QUICK, "--out", "e", "--redraw")


def interrupt(*args: Any, **options: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("words", "differ"),
    [
        (["--on", "cohort", "--outputs", "logits"], r"outputs logits \(not probabilities\) and on cohort \(not all\)"),
        (["--of", "averaged"], r"of averaged \(not global\)"),
        (["--loss", "zero-one"], r"loss zero-one \(not squared\)"),
    ],
)
def test_another_question_of_decompose_is_not_taken_for_this_one(
    runs: Path, said: Callable[..., str], words: list[str], differ: str
) -> None:
    asked = ["--rounds", "4", "--draws", "local:3", "--out", "b"]
    assert run(["decompose", "runs/ima", *asked, *words]) == 0
    with pytest.raises(FedscopeError, match=rf"b\.factors\.json holds another result, of {differ};"):
        said("runs/ima", *asked)


def test_the_same_question_of_decompose_is_gone_on_with(
    runs: Path, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["decompose", "runs/ima", *QUICK, "--out", "b"]) == 0
    monkeypatch.setattr(decomposition, "round_factors", None)
    said("runs/ima", *QUICK, "--out", "b")
    assert Explanation.load("b").attrs == Decomposition.load("b").attrs


def test_a_page_of_another_decomposition_is_not_drawn_again(runs: Path, said: Callable[..., str]) -> None:
    said("runs/ima", *QUICK, "--out", "b")
    assert run(["decompose", "runs/ima", *QUICK, "--on", "cohort", "--out", "b", "--force"]) == 0
    with pytest.raises(FedscopeError, match=r"b\.explain\.json explains another result than b\.factors\.json holds"):
        said("runs/ima", *QUICK, "--out", "b", "--redraw")


def test_runs_on_other_data_are_refused_before_anything_is_computed(
    runs: Path, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = json.loads(Path("runs/fma/run.json").read_text())
    words = ["--clients", "8", "--participation", "0.5", "--rounds", "4", "--set", "model.hidden=[8]"]
    assert run(["train", "--out", "runs/kept", *words, "--set", "data.client_test=0.3"]) == 0
    monkeypatch.setattr(decomposition, "round_factors", None)
    with pytest.raises(
        FedscopeError, match=r"runs/ima and runs/kept were trained on .*; ask for one of them at a time"
    ):
        said("runs/ima", "runs/kept", *QUICK, "--out", "e")
    info["data"]["sha256"], info["files"] = "another", {}
    Path("runs/fma/run.json").write_text(json.dumps(info))
    with pytest.raises(FedscopeError, match=r"runs/ima and runs/fma were trained on different data; ask for one"):
        said("runs/ima", "runs/fma", *QUICK, "--out", "e")


def test_replays_of_full_batches_decide_nothing_by_intervals(runs: Path, said: Callable[..., str]) -> None:
    words = ["--clients", "8", "--rounds", "3", "--set", "model.hidden=[8]", "--set", "client.batch=2000"]
    assert run(["train", "--out", "runs/full", *words]) == 0
    said("runs/full", "--rounds", "1,last", "--draws", "local:3", "--out", "f")
    made = Explanation.load("f")
    assert all(one.half is None for one in made.of("locality-adds").readings)
    assert {made.of(claim).verdict for claim in ("greatest-part/late", "locality-adds", "variance-and-clients")} == {
        "undecided"
    }
    assert any(note.startswith("The replays are all alike, as where clients take full batches") for note in made.notes)


def test_several_runs_by_default_at_rounds_with_clients(runs: Path, said: Callable[..., str]) -> None:
    out = json.loads(said("runs/few", "runs/ima", "--draws", "local:3", "--json"))
    assert Path(out["files"][0]) == Path("runs/few/figures/explain-train-local3-ima.html")
    made = Explanation.load("runs/few/figures/explain-train-local3-ima")
    assert made.runs == ("few", "ima")
    assert made.notes[0].startswith("few: decomposed rounds 2 and 4; early is round 1, middle is round 2")
    assert made.notes[1].startswith("ima: decomposed rounds 1, 2, 3 and 4;")
    assert [one["claim"] for one in out["statements"]] == [one.claim for one in made.statements]
    assert made.of("differs-most").run == "few, ima"
    assert {one["verdict"] for one in out["statements"]} <= {"supported", "contradicted", "undecided"}


def test_a_subset_and_test_data_say_so(runs: Path, said: Callable[..., str]) -> None:
    for number, words in enumerate((["--limit", "60"], ["--split", "test"])):
        said("runs/ima", *QUICK, *words, "--out", f"s{number}")
        made = Explanation.load(f"s{number}")
        assert any("with the error over samples added in quadrature" in note for note in made.notes)
        # what is compared on test data is limited as all samples are
        count = "60" if "--limit" in words else "72"
        assert f"On {count} test samples it has" in made.of("better-than-clients").sentence


def test_runs_that_differ_in_their_seed_are_draws(runs: Path, said: Callable[..., str]) -> None:
    words = said("runs/fma", "runs/seed", "runs/third", "--draws", "runs", "--rounds", "1,4", "--out", "r")
    assert "Covariance is small beside heterogeneous bias" in " ".join(words.split())
    assert "It cannot be seen" not in " ".join(words.split())
    assert Explanation.load("r").runs == ("fma+seed+third",)
    assert "early is round 1," in Explanation.load("r").notes[0]
    for claim in ("outputs-differ", "better-than-clients"):
        assert Explanation.load("r").of(claim).sentence.startswith("Of the run fma alone. ")
    assert any("of the first of them (fma)." in note for note in Explanation.load("r").notes)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/none"], r"the clients of round 4 were not recorded; no round of this run has them"),
        (["runs/few", "--rounds", "1,2"], r"the clients of round 1 were not recorded; rounds 2, 4 have them"),
        (["runs/ima", "--draws", "rounds:9"], r"--draws rounds:9: runs/ima has fewer than 9 rounds with their clients"),
        (["runs/ima", "--rounds", "9"], r"--rounds 9: runs/ima has no round 9; it has 1 to 4"),
        (["runs/ima", "--early", "4"], r"--early 4: the run has 4 rounds, so none comes after .*; give less than 4"),
        (["runs/ima", "--early", "2", "--redraw"], r"--early 2 judges again, which --redraw does not; leave out one"),
        (["runs/ima", "--redraw", "--out", "no"], r"no\.factors\.json does not exist, so there is nothing to draw"),
    ],
)
def test_mistakes_end_in_one_sentence(runs: Path, said: Callable[..., str], words: list[str], message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        said(*words)


def test_another_early_phase_makes_the_page_anew_and_not_the_decomposition(
    runs: Path, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said("runs/ima", *QUICK, "--out", "e")
    assert Explanation.load("e").early == {"ima": 1}
    monkeypatch.setattr(decomposition, "round_factors", None)
    words = said("runs/ima", *QUICK, "--out", "e", "--early", "2")
    assert Explanation.load("e").early == {"ima": 2}
    assert "Early (rounds 1 to 2)" in words
    # as it was made, however it is drawn again
    assert said("runs/ima", *QUICK, "--out", "e", "--redraw") == words
    said("runs/ima", *QUICK, "--out", "e")
    assert Explanation.load("e").early == {"ima": 1}


def test_what_is_late_is_late_in_the_whole_run(
    runs: Path, said: Callable[..., str], recorded: Callable[..., Path]
) -> None:
    words = ["--clients", "4", "--rounds", "12", "--until", "4", "--set", "model.hidden=[8]"]
    recorded(Path("part"), *words, "--method", "fma")
    asked = ["part", "--rounds", "1,4", "--draws", "none", "--out", "p"]
    told = " ".join(said(*asked).split())
    assert "Early (rounds 1 to 4)" in told
    assert "Late (rounds 9 to 12): " in told
    assert "The run has 4 rounds so far" in told
    assert "part: this was made when the run had 4 of its 12 rounds" in told
    kept = Explanation.load("p")
    fedscope.resume("part")
    said(*asked)
    assert Explanation.load("p").early == kept.early, "the run that went on has the phases that it had"
    assert fedscope.explain("part", rounds=4, draws="none").early == kept.early
