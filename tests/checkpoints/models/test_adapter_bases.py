"""Adapters of different weights: refused where it is sure, said where it is not."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as torch_file

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.checkpoints.models.adapter_bases import changed_base, refuse_other_base
from fedscope.checkpoints.models.adapters import scale_beside

pytestmark = pytest.mark.same_elsewhere
CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 8}


def base(folder: Path, value: float, name: str = "model.safetensors") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"q.weight": np.full((4, 4), value, np.float32)}, folder / name)
    return folder


def adapter(folder: Path, seed: int, **config: Any) -> Path:
    folder.mkdir(parents=True)
    draw = np.random.default_rng(seed)
    shapes = {"q.lora_A.weight": (2, 4), "q.lora_B.weight": (4, 2)}
    state = {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(state, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({**CONFIG, **config}))
    return folder


def told(*names: str, sums: tuple[str, str] = ("", "")) -> list[str]:
    """What is said of adapters that name two bases."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pair = [{"base_model_name_or_path": name, "base_sha256": one} for name, one in zip(names, sums, strict=True)]
        refuse_other_base("one", pair[0], "other", pair[1])
    return [str(one.message) for one in caught]


def test_files_of_bases_say_whether_they_are_the_same(tmp_path: Path) -> None:
    one, copy, other = base(tmp_path / "one", 1), base(tmp_path / "copy", 1), base(tmp_path / "other", 2)
    alone = base(tmp_path / "alone", 1, "weights.safetensors")
    assert told(str(one), f"{one}/") == []
    assert told(str(one), str(copy)) == []
    with pytest.raises(FedscopeError, match=r"one is an adapter of .*one, other one of .*other, which hold other weig"):
        told(str(one), str(other))
    assert len(told(str(one), str(alone))) == 1  # other files may hold the same weights


def saved(folder: Path, tensors: dict[str, torch.Tensor], **metadata: str) -> str:
    folder.mkdir()
    own = {name: value.clone() for name, value in tensors.items()}
    torch_file(own, folder / "model.safetensors", metadata=metadata or None)
    return str(folder)


def test_one_base_that_was_saved_twice_is_one_base(tmp_path: Path) -> None:
    """What a file says besides, and the precision of numbers that both can hold, make no other weights."""
    q, k = torch.arange(16.0).view(4, 4), torch.tensor([0.0, 1.0, float("nan")])
    one = saved(tmp_path / "one", {"q": q, "k": k})
    for name, tensors, metadata in (
        ("said", {"q": q, "k": k}, {"format": "pt"}),
        ("half", {"q": q.bfloat16(), "k": k}, {}),
        ("double", {"q": q.double(), "k": k}, {}),
    ):
        assert told(one, saved(tmp_path / name, tensors, **metadata)) == [], name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_base_that_was_rounded_may_be_the_same(tmp_path: Path, dtype: torch.dtype) -> None:
    q = torch.randn(50, 50, generator=torch.Generator().manual_seed(1))
    one, rounded = saved(tmp_path / "one", {"q": q}), saved(tmp_path / "rounded", {"q": q.to(dtype)})
    assert len(told(one, rounded)) == 1
    changed = q.clone()
    changed[49, 49] *= 1 + 4 * torch.finfo(dtype).eps
    with pytest.raises(FedscopeError, match="which hold other weights"):
        told(saved(tmp_path / "changed", {"q": changed.to(dtype)}), one)


def test_what_makes_bases_others(tmp_path: Path) -> None:
    q = torch.ones(4, 4)
    one = saved(tmp_path / "one", {"q": q, "k": q})
    for name, tensors in (("shape", {"q": torch.ones(5, 4), "k": q}), ("value", {"q": q, "k": q + 1e-6})):
        with pytest.raises(FedscopeError, match="which hold other weights"):
            told(one, saved(tmp_path / name, tensors))
    for name, tensors in (("fewer", {"q": q}), ("renamed", {"net.q": q, "net.k": q}), ("int", {"q": q.int(), "k": q})):
        assert len(told(one, saved(tmp_path / name, tensors))) == 1, name
    narrow = q.to(torch.float8_e4m3fn)
    eight = saved(tmp_path / "eight", {"q": narrow, "k": q})
    assert len(told(one, eight)) == 1
    with pytest.raises(FedscopeError, match="which hold other weights"):
        told(eight, saved(tmp_path / "nine", {"q": (q + 1).to(torch.float8_e4m3fn), "k": q}))
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "model.safetensors").write_bytes((tmp_path / "one" / "model.safetensors").read_bytes()[:-3])
    assert len(told(one, str(tmp_path / "cut"))) == 1


def test_other_kinds_of_files_are_compared_by_their_bytes(tmp_path: Path) -> None:
    for name, value in (("one", 1.0), ("copy", 1.0), ("other", 2.0)):
        (tmp_path / name).mkdir()
        torch.save({"q": torch.full((4, 4), value)}, tmp_path / name / "pytorch_model.bin")
    one, copy, other = (str(tmp_path / name) for name in ("one", "copy", "other"))
    assert told(one, copy) == []
    assert len(told(one, other)) == 1


def test_the_warning_names_the_users_line() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        refuse_other_base("one", {"base_model_name_or_path": "a/b"}, "other", {"base_model_name_or_path": "c/d"})
    assert [one.filename for one in caught] == [__file__]


@pytest.mark.filterwarnings("ignore:.*factors of a product.*")
def test_a_base_that_was_saved_twice_makes_one_run(tmp_path: Path) -> None:
    q = torch.ones(4, 4)
    one, two = saved(tmp_path / "one", {"q.weight": q}), saved(tmp_path / "two", {"q.weight": q.half()}, format="pt")
    folders = [adapter(tmp_path / f"of-{k}", k, base_model_name_or_path=of) for k, of in enumerate((one, two))]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fedscope.import_models(folders, tmp_path / "run")
    assert not [one for one in caught if "as what they adapt" in str(one.message)]


@pytest.mark.parametrize(
    ("names", "is_said"),
    [
        (("org/net", "org/net"), False),
        (("org/net", "/cache/hub/models--org--net/snapshots/0a1b"), False),
        (("/home/a/nets/llama", "/home/b/llama/"), False),
        (("org/net", "org/other"), True),
        (("org/net", "mirror/net"), True),
        (("/home/a/llama", "/home/b/gpt2"), True),
        (("", "org/other"), False),
    ],
)
def test_names_of_bases_that_are_not_here_are_compared(names: tuple[str, str], is_said: bool) -> None:
    assert len(told(*names)) == is_said


def test_a_base_that_a_run_has_seen_is_told_by_its_checksum(tmp_path: Path) -> None:
    from fedscope.checkpoints.recorder.inputs import named_base

    one = base(tmp_path / "one", 1)
    known = named_base(one)["sha256"]
    assert told("/gone/net", str(one), sums=(known, "")) == []
    assert told("/gone/net", "/elsewhere/other", sums=(known, known)) == []
    assert len(told("/gone/net", str(one), sums=("0" * 64, ""))) == 1


def test_a_relative_base_is_looked_for_beside_the_folder(tmp_path: Path) -> None:
    base(tmp_path / "net", 1)
    found = scale_beside(adapter(tmp_path / "one", 1, base_model_name_or_path="net"))
    assert found["base_model_name_or_path"] == str((tmp_path / "net").resolve())
    assert scale_beside(adapter(tmp_path / "two", 1, base_model_name_or_path="org/net"))["base_model_name_or_path"] == (
        "org/net"
    )


@pytest.mark.filterwarnings("ignore:.*factors of a product.*")
def test_adapters_of_two_bases_become_no_run(tmp_path: Path) -> None:
    base(tmp_path / "net", 1), base(tmp_path / "other", 2)
    one, two = (
        adapter(tmp_path / name, 1, base_model_name_or_path=of) for name, of in (("one", "net"), ("two", "other"))
    )
    with pytest.raises(
        FedscopeError, match=r"is an adapter of .*net, .*two/.* one of .*other, which hold other weights"
    ):
        fedscope.import_models([one, two], tmp_path / "run")
    three = adapter(tmp_path / "three", 3, base_model_name_or_path="net")
    run = fedscope.import_models([one, three], tmp_path / "run")
    assert run.info["adapters"]["base_model_name_or_path"] == str((tmp_path / "net").resolve())


def test_factors_that_were_begun_with_a_part_of_the_base_go_with_no_others(tmp_path: Path) -> None:
    for how in ("pissa", "pissa_niter_4", "olora", "corda", "lora_ga", "loftq"):
        assert changed_base({"init_lora_weights": how}) == how
    for plain in (True, False, "gaussian", "eva", "orthogonal", "mica"):
        assert changed_base({"init_lora_weights": plain}) == ""
    assert changed_base({"kasa_config": {"beta": 1e-4}}) == "kasa"
    one, two = adapter(tmp_path / "one", 1), adapter(tmp_path / "two", 2, init_lora_weights="pissa")
    with pytest.raises(FedscopeError, match=r"one/.* adapts the base as it is, .*two/.* the base as pissa leaves it"):
        fedscope.import_models([one, two], tmp_path / "run")
