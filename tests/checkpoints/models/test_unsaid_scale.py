"""A file of one adapter: what it cannot say is said where it is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedscope
from fedscope import reaggregate
from fedscope.checkpoints import FedscopeWarning
from fedscope.cli.main import run as command

pytestmark = pytest.mark.same_elsewhere

PLAIN = "holds factors of adapters without their scale alpha/r = 16/2; give its import --lora-alpha 16"
OTHER = (
    "holds factors of adapters without their scales, which differ by layer or are not alpha/r; put an "
    "adapter_config.json that says them beside it"
)


def recorded(path: Path, lora: bool = True, **about: Any) -> str:
    """A run of two clients, of adapters or not."""
    names = ("q.lora_A.weight", "q.lora_B.weight") if lora else ("q.weight", "q.bias")
    start = {name: np.ones(shape, np.float32) for name, shape in zip(names, ((2, 4), (3, 2)), strict=True)}
    clients = {k: {name: array + k for name, array in start.items()} for k in (1, 2)}
    with fedscope.Recorder(path, **about) as recorder:
        recorder.round(start=start, clients=clients)
    return str(path)


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_an_exported_client_says_that_its_scale_is_not_in_the_file(
    tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded(tmp_path / "lora", lora_alpha=16)
    capsys.readouterr()
    for client in (1, 2):
        file = tmp_path / "ad" / f"{client}.{suffix}"
        file.parent.mkdir(exist_ok=True)
        assert command(["export", f"{run}@1/client-{client}", str(file)]) == 0
        assert capsys.readouterr().err == f"fedscope: {file} {PLAIN}\n"
    # the remedy works
    assert command(["import", str(tmp_path / "ad"), "--lora-alpha", "16", "--out", str(tmp_path / "again")]) == 0
    assert json.loads((tmp_path / "again" / "run.json").read_text())["adapters"] == {"lora_alpha": 16.0}


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"r": 2, "lora_alpha": 16}, PLAIN),
        ({"r": 2, "lora_alpha": 16, "use_rslora": True}, OTHER),
        ({"r": 2, "lora_alpha": 16, "alpha_pattern": {"q": 4}}, OTHER),
    ],
)
def test_a_file_that_leaves_its_configuration_says_so(
    tmp_path: Path, config: dict[str, Any], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded(tmp_path / "lora")
    for folder in ("ad", "bare"):
        (tmp_path / folder).mkdir()
    (tmp_path / "ad" / "adapter_config.json").write_text(json.dumps(config))
    file, moved = tmp_path / "ad" / "a.safetensors", tmp_path / "bare" / "a.pt"
    capsys.readouterr()
    assert command(["export", f"{run}@1/client-1", str(file)]) == 0  # nobody knows a scale
    assert capsys.readouterr().err == ""
    assert command(["export", str(file), str(moved)]) == 0
    assert capsys.readouterr().err == f"fedscope: {moved} {sentence}\n"
    assert command(["export", str(file), str(tmp_path / "ad" / "b.pt")]) == 0  # its configuration lies beside it
    assert capsys.readouterr().err == ""


def test_other_models_are_exported_without_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = recorded(tmp_path / "plain", lora=False)
    capsys.readouterr()
    assert command(["export", f"{run}@1/client-1", str(tmp_path / "a.safetensors")]) == 0
    assert capsys.readouterr().err == ""


def test_reaggregate_says_so_too(tmp_path: Path) -> None:
    about = {"data": "digits", "seed": 0}
    asked = reaggregate.prepare(recorded(tmp_path / "lora", lora_alpha=16, **about), rounds="1", servers=["fma"])
    assert asked.note == f"the file of a model {PLAIN}"
    other = reaggregate.prepare(recorded(tmp_path / "plain", lora=False, **about), rounds="1", servers=["fma"])
    assert other.note == ""


@pytest.mark.parametrize("without", [0, 1])
@pytest.mark.parametrize("plain", [False, True])
def test_an_adapter_without_its_configuration_takes_anothers_scale_with_a_warning(
    tmp_path: Path, without: int, plain: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded(tmp_path / "lora")
    places = []
    for k in (0, 1):
        folder = tmp_path / f"ad{k}"
        folder.mkdir()
        file = folder / "adapter_model.safetensors"
        assert command(["export", f"{run}@1/client-{k + 1}", str(file)]) == 0
        if k != without:
            (folder / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 8}))
        places.append(file if plain and k == without else folder)
    capsys.readouterr()
    lacks, other = (tmp_path / f"ad{k}" / "adapter_model.safetensors" for k in (without, 1 - without))
    said = (
        f"{lacks}: the scale of this adapter is not known, and taken to be that of {other}; put its own "
        "adapter_config.json beside it"
    )
    assert command(["import", *map(str, places), "--out", str(tmp_path / "one")]) == 0
    assert f"fedscope: {said}\n" in capsys.readouterr().err
    with pytest.warns(FedscopeWarning) as caught:
        fedscope.import_models(places, tmp_path / "two")
    assert said in [str(one.message) for one in caught]
    # the remedy works
    (tmp_path / f"ad{without}" / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 8}))
    assert command(["import", *map(str, places), "--out", str(tmp_path / "three")]) == 0
    assert "is not known" not in capsys.readouterr().err
