"""Adapters: that their tensors are factors of a product is said wherever they are averaged or compared, and ranks or
scales that differ are refused by name.

peft is not there; names, shapes and ``adapter_config.json`` are those that it writes.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.checkpoints.models.adapters import about_adapters, factors_in, rank_of, scale_in
from fedscope.cli.main import run as command

pytestmark = pytest.mark.same_elsewhere

KINDS = {
    "lora": ("lora_A.weight", "lora_B.weight"),
    "lora in a module": ("lora_A.default.weight", "lora_B.default.weight"),
    "loralib": ("lora_A", "lora_B"),
    "torchtune": ("lora_a.weight", "lora_b.weight"),
    "embedding": ("lora_embedding_A", "lora_embedding_B"),
    "kohya": ("lora_down.weight", "lora_up.weight"),
    "loha": ("hada_w1_b", "hada_w1_a"),
    "lokr": ("lokr_w2_b", "lokr_w2_a"),
    "hira": ("hira_A", "hira_B"),
    "lily": ("lily_A.weight", "lily_B.weight"),
    "peanut": ("peanut_A.weight", "peanut_B.weight"),
    "glora": ("glora_A.Xu", "glora_A.Xd"),
    "deft": ("deft_R", "deft_P"),
    "adamss": ("adamss_A.0", "adamss_B.0"),
    "poly": ("poly_lora_A", "poly_lora_B"),
}


def factors(kind: str, seed: int, rank: int = 2, width: int = 6, **more: Tensor) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    a, b = KINDS[kind]
    name = "base_model.model.layers.0.q_proj."
    return {
        f"{name}{a}": torch.randn(rank, width, generator=draw),
        f"{name}{b}": torch.randn(width, rank, generator=draw),
        **more,
    }


class Adapted(nn.Module):
    """Two classes of four numbers: (W + B A) x, of which W is fixed."""

    def __init__(self, seed: int, rank: int = 2) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.lora_A, self.lora_B = nn.Linear(4, rank, bias=False), nn.Linear(rank, 2, bias=False)
        torch.manual_seed(0)
        self.register_buffer("base", torch.randn(2, 4), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x @ self.base.T + self.lora_B(self.lora_A(x))
        return made


X, Y = torch.randn(30, 4, generator=torch.Generator().manual_seed(1)), torch.arange(30) % 2
DATA: dict[str, Any] = {"data": (X, Y)}
ABOUT = r"the models are adapters, whose tensors are factors of a product \(lora_A, lora_B\): the mean of A"


def said(question: Callable[[], Any]) -> tuple[Any, list[str]]:
    """An answer, and the warnings about adapters that came with it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answer = question()
    return answer, [str(one.message) for one in caught if "the models are adapters" in str(one.message)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rounds of two adapters, recorded."""
    path = tmp_path_factory.mktemp("adapters") / "run"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with fedscope.Recorder(path) as recorder:
            for t in range(2):
                recorder.round(start=Adapted(7), clients=[Adapted(8 + t), Adapted(10 + t)], global_=Adapted(12 + t))
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_an_import_of_adapters_says_what_its_mean_is_not(tmp_path: Path, kind: str) -> None:
    for k in range(2):
        save_file(factors(kind, k), tmp_path / f"{k}.safetensors")
    files = [tmp_path / f"{k}.safetensors" for k in range(2)]
    made, notes = said(lambda: fedscope.import_models(files, tmp_path / "run"))
    assert len(notes) == 1
    assert "the mean of A and the mean of B are not the mean of B·A" in notes[0]
    arrays = made.round(1).read("global").arrays()
    a, b = (next(value for name, value in arrays.items() if name.endswith(end)) for end in KINDS[kind])
    products = [y @ x for x, y in (factors(kind, k).values() for k in range(2))]
    off = np.linalg.norm(b @ a - sum(products).numpy() / 2) / np.linalg.norm(sum(products) / 2)
    assert off > 0.1  # it is indeed another thing


def test_a_recorder_says_it_once(tmp_path: Path) -> None:
    def recorded() -> None:
        with fedscope.Recorder(tmp_path / "run") as recorder:
            for _ in range(3):
                recorder.round(start=Adapted(0), clients=[Adapted(1), Adapted(2)])

    _, notes = said(recorded)
    assert len(notes) == 1


QUESTIONS: dict[str, Callable[[Path], Any]] = {
    "line": lambda run: fedscope.line([Adapted(1), Adapted(2)], **DATA, points=3),
    "line of a run": lambda run: fedscope.line(f"{run}@1", clients=True, model=Adapted(0), **DATA, points=3),
    "plane": lambda run: fedscope.plane([Adapted(1), Adapted(2), Adapted(3)], **DATA, grid=3),
    "subsets": lambda run: fedscope.subsets(run, model=Adapted(0), **DATA, split="test"),
    "disperse": lambda run: fedscope.disperse(run),
    "decompose": lambda run: fedscope.decompose(run, model=Adapted(0), **DATA, split="test", draws="none"),
    "synergy": lambda run: fedscope.synergy(f"{run}@1"),
    "parameters": lambda run: fedscope.parameters(run, parameters=["lora_A.weight[0,0]"]),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_about_the_numbers_of_adapters_says_it_once(name: str, run: Path) -> None:
    answer, notes = said(lambda: QUESTIONS[name](run))
    assert len(notes) == 1, notes
    assert "factors of a product (lora_A, lora_B)" in notes[0]
    if name in ("line", "plane", "line of a run"):
        assert answer.attrs["models_read"]["adapters"] in notes[0]


@pytest.mark.parametrize(
    "question",
    [
        lambda: fedscope.sharpness([Adapted(1)], **DATA, split="test", hessian=False, draws=2),
        lambda: fedscope.cka([Adapted(1), Adapted(2)], **DATA),
        lambda: fedscope.plane([Adapted(1)], random=True, **DATA, grid=3),
        lambda: fedscope.line([nn.Linear(4, 2), nn.Linear(4, 2)], **DATA, points=3),
    ],
)
def test_where_nothing_is_averaged_or_compared_nothing_is_said(question: Callable[[], Any]) -> None:
    assert said(question)[1] == []


def test_the_command_line_says_it_once(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command(["disperse", str(run), "--out", str(tmp_path / "u")]) == 0
    assert capsys.readouterr().err.count("factors of a product") == 1


CONFIG = {
    "peft_type": "LORA",
    "r": 2,
    "lora_alpha": 8,
    "use_rslora": False,
    "rank_pattern": {},
    "target_modules": ["q"],
}


def put(folder: Path, seed: int, rank: int = 2, **config: Any) -> Path:
    folder.mkdir()
    save_file(factors("lora", seed, rank), folder / "adapter_model.safetensors")
    if config:
        (folder / "adapter_config.json").write_text(json.dumps({**CONFIG, **config}))
    return folder


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (
            {"lora_alpha": 64},
            r"is an adapter with lora_alpha 8, .*one with 64: their products are scaled by alpha / rank",
        ),
        ({"use_rslora": True}, r"with use_rslora none, .*one with True"),
        ({"use_dora": True}, r"with use_dora none, .*one with True"),
        ({"rank_pattern": {"q": 4}}, r"with rank_pattern none"),
        ({"alpha_pattern": {"q": 4}}, r"with alpha_pattern none"),
        ({"r": 4}, r"is an adapter with rank 2, .*one with 4"),
        ({"lora_alpha": 8, "alora_invocation_tokens": [3, 4]}, r"no alora_invocation_tokens, .*one with .* \[3, 4\]: "),
        (
            {"lora_alpha": 8, "trainable_token_indices": {"embed": [1]}},
            r"one with trainable_token_indices .*: their te",
        ),
    ],
)
def test_adapters_of_other_scales_are_refused_by_name(tmp_path: Path, other: dict[str, Any], sentence: str) -> None:
    one = put(tmp_path / "one", 0, lora_alpha=8)
    two = put(tmp_path / "two", 1, rank=other.get("r", 2), **other)
    for given in ([one, two], [one / "adapter_model.safetensors", two / "adapter_model.safetensors"]):
        with pytest.raises(FedscopeError, match=sentence):
            fedscope.import_models(given, tmp_path / "run")
        with pytest.raises(FedscopeError, match=sentence):
            fedscope.line(given, model=nn.Linear(1, 1), data=(torch.ones(4, 1), torch.zeros(4).long()))


def test_configurations_that_say_the_same_go_together(tmp_path: Path) -> None:
    one = put(tmp_path / "one", 0, lora_alpha=8)
    two = put(tmp_path / "two", 1, lora_alpha=8, target_modules=["q", "v"], use_dora=False, bias="none")
    with pytest.warns(FedscopeWarning, match=r"factors of a product"):
        assert (
            len(fedscope.import_models([one, two, put(tmp_path / "three", 2)], tmp_path / "run").round(1).client_ids)
            == 3
        )


def test_ranks_that_differ_without_a_configuration_are_named(tmp_path: Path) -> None:
    one, two = put(tmp_path / "one", 0), put(tmp_path / "two", 1, rank=4)
    sentence = r"of shape \[4, 6\].*; these are adapters of rank 4 and of rank 2: merge them into their base"
    with pytest.raises(FedscopeError, match=sentence):
        fedscope.import_models([one, two], tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with fedscope.Recorder(tmp_path / "recorded") as recorder, pytest.raises(FedscopeError, match=sentence):
            recorder.round(clients=[factors("lora", 0), factors("lora", 1, 4)])
        with pytest.raises(FedscopeError, match=r"adapters of rank 3 and of rank 2"):
            fedscope.line([Adapted(1), Adapted(2, 3)], **DATA, points=3)


def test_alphas_of_kohya_that_differ_are_named(tmp_path: Path) -> None:
    name = "base_model.model.layers.0.q_proj.alpha"
    for k, alpha in enumerate((2.0, 2.0, 16.0)):
        save_file(factors("kohya", k, **{name: torch.tensor(alpha)}), tmp_path / f"{k}.safetensors")
    files = [tmp_path / f"{k}.safetensors" for k in range(3)]
    with pytest.warns(FedscopeWarning, match=r"lora_down, lora_up"):
        fedscope.import_models(files[:2], tmp_path / "run")
    with pytest.raises(FedscopeError, match=r"is an adapter with alpha 2.0 at .*q_proj, .*2.safetensors one with 16.0"):
        fedscope.import_models(files, tmp_path / "run", force=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_alphas_of_kohya_are_read_in_any_precision_by_files_and_by_the_recorder(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    name = "base_model.model.layers.0.q_proj.alpha"

    def model(seed: int, alpha: float) -> dict[str, torch.Tensor]:
        made = factors("kohya", seed, **{name: torch.tensor(alpha)})
        return {key: value.to(dtype) for key, value in made.items()}

    for k in range(3):
        save_file(model(k, 6.0), tmp_path / f"{k}.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        imported = fedscope.import_models([tmp_path / f"{k}.safetensors" for k in range(3)], tmp_path / "imported")
        with fedscope.Recorder(tmp_path / "recorded") as recorder:
            recorder.round(clients=[model(k, 6.0) for k in range(3)], global_=model(4, 5.99))
            with pytest.raises(FedscopeError, match=r"alpha 6.0 at .*q_proj, .*@2: client 1 one with 16.0"):
                recorder.round(clients=[model(0, 6.0), model(1, 16.0)])
        with fedscope.Recorder(tmp_path / "given", lora_alpha=6) as recorder:
            recorder.round(clients=[model(k, 6.0) for k in range(2)])
    recorded = [fedscope.Run.open(tmp_path / folder) for folder in ("recorded", "given")]
    for run in (imported, *recorded):
        assert run.info["adapters"] == {"alpha": {name.removesuffix(".alpha"): 6.0}}


def test_modules_of_peft_that_scale_otherwise_are_refused(tmp_path: Path) -> None:
    models = [Adapted(1), Adapted(2)]
    for model, alpha in zip(models, (8, 64), strict=True):
        model.peft_config = {"default": SimpleNamespace(r=2, lora_alpha=alpha)}  # type: ignore[assignment]
    with pytest.raises(FedscopeError, match=r"Adapted 1 is an adapter with lora_alpha 8, Adapted 2 one with 64"):
        fedscope.line(models, **DATA, points=3)
    with fedscope.Recorder(tmp_path / "run") as recorder, pytest.raises(FedscopeError, match=r"client 1 one with 64"):
        recorder.round(clients=models)


def test_which_names_are_factors() -> None:
    assert factors_in(["flora_A.weight", "lora_Ab", "lora_alpha", "color_B"]) == []
    assert factors_in(["q.lora_magnitude_vector", "q.lora_A.weight"]) == ["lora_A", "lora_magnitude_vector"]
    for before in ("attn.processor.to_q_lora.", "attn.to_q.lora_linear_layer.", "attn.to_q.lora."):  # diffusers
        assert len(factors_in([f"{before}down.weight", f"{before}up.weight"])) == 2
    assert factors_in(["q.lora_A0.weight", "w_lora_B", "q.loraA.weight"]) == ["loraA", "lora_A", "lora_B"]
    assert about_adapters(["q.weight", "block.down.weight", "explorer_lora.weight"]) == ""
    assert rank_of("q.hada_w1_a", (6, 2)) == rank_of("q.hada_w1_b", (2, 6)) == 2
    assert scale_in({"alpha": np.array(1.0), "q.weight": np.ones((2, 2))}) == {}


def put_kind(folder: Path, seed: int, shapes: dict[str, tuple[int, ...]], **config: Any) -> Path:
    """Write an adapter of PEFT's of another kind than LoRA."""
    folder.mkdir()
    draw = torch.Generator().manual_seed(seed)
    tensors = {f"{LAYER}{name}": torch.randn(*shape, generator=draw) for name, shape in shapes.items()}
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "base", **config}))
    return folder


LAYER = "base_model.model.layers.0.q_proj."
RANDLORA = {"randlora_lambda": (4, 4), "randlora_gamma": (4, 16)}
VERA = {"vera_lambda_b": (16,), "vera_lambda_d": (4,)}


@pytest.mark.parametrize(
    ("kind", "shapes", "said_of_it"),
    [
        ("OFT", {"oft_r": (4, 16, 16)}, "tensors say rotations of weights (oft_r): what the mean of such tensors does"),
        ("OFT", {"oft_R.weight": (4, 120)}, "tensors say rotations of weights (oft_R): "),
        ("BOFT", {"boft_R": (2, 4, 8, 8), "boft_s": (64, 1)}, "tensors say rotations of weights (boft_R): "),
        ("PSOFT", {"psoft_R.weight": (120,)}, "tensors say rotations of weights (psoft_R): "),
        ("HRA", {"hra_u": (64, 8)}, "tensors say reflections of weights (hra_u): "),
        ("ROAD", {"road_theta": (64,), "road_alpha": (64,)}, "say rotations of weights (road_alpha, road_theta): "),
        (
            "VBLORA",
            {"vblora_logits_A": (4, 2, 9), "vblora_logits_B": (2, 4, 9)},
            "say coefficients of mixtures of weights (vblora_logits_A, vblora_logits_B): ",
        ),
        ("RANDLORA", RANDLORA, "tensors are factors of a product (randlora_gamma, randlora_lambda): "),
        ("DELORA", {"delora_A": (4, 64), "delora_B": (16, 4), "delora_lambda": (1,)}, "are factors of a product (del"),
        ("IA3", {"ia3_l": (64, 1)}, ""),
        ("PROMPT_TUNING", {"prompt_embeddings": (8, 64)}, ""),
        ("FOURIERFT", {"fourierft_spectrum": (100,)}, ""),
        ("LORA", {"lora_A.weight": (4, 64), "lora_B.weight": (16, 4)}, "tensors are factors of a product (lora_A, lo"),
    ],
)
def test_what_the_mean_of_another_kind_of_adapters_is_not(
    tmp_path: Path, kind: str, shapes: dict[str, tuple[int, ...]], said_of_it: str
) -> None:
    files = [put_kind(tmp_path / f"{k}", k, shapes, peft_type=kind) for k in range(2)]
    _, about = said(lambda: fedscope.import_models(files, tmp_path / "run"))
    assert len(about) == bool(said_of_it)
    assert all(said_of_it in note for note in about)
    numbers, means = (about_adapters([f"{LAYER}{name}" for name in shapes], what) for what in ("numbers", "means"))
    assert bool(numbers) == bool(means) == bool(said_of_it)


def test_the_mean_of_cayleys_parameters_is_not_the_mean_of_the_rotations() -> None:
    """What the sentence on OFT says: R = (I - S)^-1 (I + S) is not linear in S."""

    def rotation(parameters: np.ndarray) -> np.ndarray:
        skew = (parameters - parameters.T) / 2
        return np.linalg.solve(np.eye(8) - skew, np.eye(8) + skew)

    draw = np.random.default_rng(0)
    one, other = draw.normal(size=(2, 8, 8))
    mean = (rotation(one) + rotation(other)) / 2
    assert np.linalg.norm(rotation((one + other) / 2) - mean) > 0.1 * np.linalg.norm(mean)


@pytest.mark.parametrize(
    ("shapes", "same", "other", "sentence"),
    [
        (
            RANDLORA,
            {"r": 4, "randlora_alpha": 8},
            {"randlora_alpha": 64},
            r"with randlora_alpha 8, .*one with 64: their products are scaled",
        ),
        (
            VERA,
            {"r": 4, "projection_prng_key": 0},
            {"projection_prng_key": 1},
            r"with projection_prng_key 0, .*one with 1: their tensors make what they add in other ways, so they ",
        ),
        (
            {"fourierft_spectrum": (9,)},
            {"random_loc_seed": 777, "scaling": 150.0},
            {"random_loc_seed": 1},
            r"seed 777, ",
        ),
        (
            {"fourierft_spectrum": (9,)},
            {"random_loc_seed": 777, "scaling": 150.0},
            {"scaling": 300.0},
            r"scaling 150, ",
        ),
        ({"boft_R": (2, 4, 8, 8)}, {"boft_block_size": 8, "boft_block_num": 0}, {"boft_block_num": 2}, r"num 0, .* 2:"),
        ({"hra_u": (64, 8)}, {"r": 8, "apply_GS": False}, {"apply_GS": True}, r"apply_GS False, .*one with True:"),
    ],
)
def test_adapters_of_one_kind_that_add_otherwise_are_refused(
    tmp_path: Path, shapes: dict[str, tuple[int, ...]], same: dict[str, Any], other: dict[str, Any], sentence: str
) -> None:
    files = [put_kind(tmp_path / f"{k}", k, shapes, **same) for k in range(2)]
    said(lambda: fedscope.import_models(files, tmp_path / "run"))
    unsaid = put_kind(tmp_path / "unsaid", 2, shapes, r=same.get("r", 0))  # another version of PEFT's may not say it
    if "randlora_alpha" not in same:
        said(lambda: fedscope.import_models([files[0], unsaid], tmp_path / "unsaid run"))
    another = put_kind(tmp_path / "another", 1, shapes, **{**same, **other})
    with pytest.raises(FedscopeError, match=sentence):
        fedscope.import_models([files[0], another], tmp_path / "refused")


def test_a_run_of_adapters_is_not_gone_on_with_in_another_scale_or_for_another_base(tmp_path: Path) -> None:
    def model(k: int) -> dict[str, np.ndarray]:
        draw = np.random.default_rng(k)
        sides = {"lora_A": (2, 3), "lora_B": (3, 2)}
        return {f"q.{side}.weight": draw.normal(size=shape).astype(np.float32) for side, shape in sides.items()}

    bases = [tmp_path / f"{k}.safetensors" for k in range(2)]
    for k, path in enumerate(bases):
        save_file({"q.weight": torch.full((3, 3), float(k))}, path)
    for name, given in (("plain", {}), ("scaled", {"lora_alpha": 8}), ("based", {"base": bases[0]})):
        with fedscope.Recorder(tmp_path / name, **given) as recorder:  # type: ignore[arg-type]
            recorder.round(clients=[model(k) for k in range(2)])
    for name, other, words in (
        ("plain", {"lora_alpha": 16}, r"was recorded without lora_alpha, not lora_alpha = 16; leave lora_alpha= out"),
        ("scaled", {"lora_alpha": 16}, r"was recorded with alpha 8, not lora_alpha = 16; leave"),
        ("plain", {"base": bases[0]}, r"was recorded without a base, not .*0\.safetensors as it is now; leave base="),
        ("based", {"base": bases[1]}, r"was recorded with the base .*0\.safetensors, not .*1\.safetensors as it is"),
    ):
        with pytest.raises(FedscopeError, match=words):
            fedscope.Recorder(tmp_path / name, resume=True, **other)  # type: ignore[arg-type]
    for name, same in (("scaled", {"lora_alpha": 8}), ("based", {"base": bases[0]}), ("scaled", {}), ("based", {})):
        with fedscope.Recorder(tmp_path / name, resume=True, **same) as recorder:  # type: ignore[arg-type]
            recorder.round(clients=[model(k) for k in range(2)])


def test_what_fedscope_adapters_does_not_take_is_not_sent_there() -> None:
    from fedscope.checkpoints.models.factor_names import SUBJECTS

    for subject in SUBJECTS:
        assert "fedscope adapters" in about_adapters(["q.lora_A.weight", "q.lora_B.weight"], subject) or (
            subject == "numbers"
        )
        for name in ("q.vera_lambda_b", "q.randlora_gamma", "q.delora_lambda", "q.lora_magnitude_vector"):
            said = about_adapters(["q.lora_A.weight", "q.lora_B.weight", name], subject)
            assert "merge the adapters into their base" in said
            assert "fedscope adapters" not in said
            assert "fedscope updates" not in said
