"""Options that a command has not are answered with the option or the setting that was meant."""

from __future__ import annotations

import pytest

from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import commands, run
from fedscope.training import train
from fedscope.training.config.config import Config
from fedscope.training.config.field_names import ALSO, KEYWORDS
from fedscope.training.config.setting_names import places_of


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The last line of a refusal."""
    assert run(words) == 2
    return capsys.readouterr().err.splitlines()[-1].removeprefix("Error: No such option ")


@pytest.mark.parametrize(
    ("typed", "remedy"),
    [
        ("--num-clients", "; did you mean '--clients'?"),
        ("--local-epochs", "; did you mean '--epochs'?"),
        ("--learning-rate", "; did you mean '--lr'?"),
        ("--dataset", "; did you mean '--data'?"),
        ("--cohort", "; did you mean '--participation'?"),
        ("--gpu", "; did you mean '--device'?"),
        ("--output-dir", "; did you mean '--out'?"),
        ("--momentum", "; write --set client.momentum=VALUE"),
        ("--weight-decay", "; write --set client.weight_decay=VALUE"),
        ("--optimizer", "; write --set client.optimiser=VALUE"),
        ("--mu", "; write --set client.mu=VALUE (of adabest, fedprox, moon)"),
        ("--rouns", "; did you mean '--rounds'?"),
        ("--xyzzy", ""),
    ],
)
def test_train_says_where_a_setting_is_written(typed: str, remedy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(["train", typed, "1"], capsys) == f"'{typed}'{remedy}"


def test_a_partition_s_alpha_is_told_from_a_method_s(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(["train", "--alpha", "0.1"], capsys)
    assert said.startswith("'--alpha'; write --partition dirichlet:VALUE, or --set client.alpha=VALUE (of fedcm")
    said = refused(["sweep", "--alpha", "0.1"], capsys)
    assert said.startswith("'--alpha'; write --set data.partition=dirichlet:VALUE, or --set client.alpha=VALUE (of")


def test_a_sweep_says_how_a_setting_is_varied(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(["sweep", "--mu", "0.1"], capsys)
    assert said == "'--mu'; write --set client.mu=VALUE (of adabest, fedprox, moon), or client.mu=A,B,C to vary it"


@pytest.mark.parametrize("name", commands())
def test_no_command_offers_an_option_that_it_has_not(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for typed in ("--gpu", "--learning-rate", "--output", "--momentum", "--n-clients"):
        said = refused([name, typed, "1"], capsys)
        if "did you mean '" in said:
            offered = said.split("'")[-2]
            run([name, "--help"])
            assert offered in capsys.readouterr().out


def test_every_name_of_other_programs_is_of_a_setting_that_there_is() -> None:
    tables = Config.read({"client": {"method": "sgd"}}).tables()
    for place in {*ALSO.values(), *KEYWORDS.values()}:
        section, _, key = place.partition(".")
        assert key in tables[section], place
    assert not set(ALSO) & set(KEYWORDS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_rounds": 3}, r"^num_rounds= is no setting; did you mean rounds\?"),
        ({"dataset": "digits"}, r"^dataset= is no setting; did you mean data\?"),
        (
            {"mu": 0.1},
            r'^mu= is no setting; give \{"client\.mu": \.\.\.\} \(of adabest, fedprox, moon\) in the settings',
        ),
        ({"momentum": 0.1}, r'^momentum= is no setting; give \{"client\.momentum": \.\.\.\} in the settings'),
        ({"config": {"mu": 0.1}}, r'^mu is neither a section .*did you mean \{"client\.mu": 0\.1\} \(of adabest'),
        ({"config": {"client": {"mu": 0.1}}}, r"^client\.mu is not a setting of SGD; it is one of adabest, fedprox"),
        ({"config": {"run": {"lr": 0.1}}}, r"^run\.lr is not a setting; did you mean client\.lr\?"),
    ],
)
def test_python_says_it_in_its_own_words(given: dict[str, object], message: str) -> None:
    with pytest.raises(FedscopeError, match=message):
        train(out="never", **given)  # type: ignore[arg-type]
    assert places_of("xyzzy") == []
