"""Folders of transformers and peft as architectures, against what these packages themselves compute."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.distributed.torchvision_import import beside_torchvision
from fedscope.training.models.pretrained import PretrainedFolder, folder_as_model, task_of_folder

TOKENS = 48


def _package(name: str) -> Any:
    def both() -> Any:
        __import__("torchvision")
        return pytest.importorskip(name, reason=f"{name} is in the extra language")

    return beside_torchvision(both)


def quietly(question: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return question()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tiny models of each kind; of ``llama-1`` in parts, too, and adapters of the first ones."""
    made = tmp_path_factory.mktemp("folders")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        quietly(lambda: _make(made))
    return made


def _make(made: Path) -> None:
    transformers, peft = _package("transformers"), _package("peft")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    llama = transformers.LlamaConfig(vocab_size=TOKENS, num_key_value_heads=2, initializer_range=0.3, **sizes)
    classes = transformers.LlamaConfig(vocab_size=TOKENS, initializer_range=0.3, num_labels=3, **sizes)
    gpt2 = transformers.GPT2Config(
        vocab_size=TOKENS, n_embd=32, n_layer=2, n_head=4, n_positions=32, bos_token_id=0, eos_token_id=0
    )
    narrow = transformers.LlamaConfig(vocab_size=TOKENS, **{**sizes, "hidden_size": 16})
    for k in range(3):
        model = transformers.AutoModelForCausalLM.from_config(llama)
        model.save_pretrained(made / f"llama-{k}")
        if k == 1:
            model.save_pretrained(made / "parts", max_shard_size="20KB")
        transformers.AutoModelForCausalLM.from_config(gpt2).save_pretrained(made / f"gpt2-{k}")
        transformers.AutoModelForSequenceClassification.from_config(classes).save_pretrained(made / f"classes-{k}")
    transformers.AutoModelForCausalLM.from_config(narrow).save_pretrained(made / "narrow")
    for base, layers in (("llama", ["q_proj", "v_proj"]), ("gpt2", ["c_attn"])):
        for k in range(2):
            model = transformers.AutoModelForCausalLM.from_pretrained(made / f"{base}-0")
            config = peft.LoraConfig(
                r=2, lora_alpha=8, target_modules=layers, task_type="CAUSAL_LM", init_lora_weights=False
            )
            peft.get_peft_model(model, config).save_pretrained(made / f"{base}-adapter-{k}")


def texts() -> tuple[np.ndarray, np.ndarray]:
    """Tokens and the next ones."""
    tokens = np.random.default_rng(1).integers(0, TOKENS, (30, 13))
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(module: Any, x: np.ndarray, y: np.ndarray) -> float:
    """What a module of transformers has on next tokens, in float64."""
    with torch.no_grad():
        logits = module.double().eval()(torch.from_numpy(x)).logits
    return float(torch.nn.functional.cross_entropy(logits.flatten(0, -2), torch.from_numpy(y).flatten()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_the_ends_of_a_line_have_the_loss_that_transformers_gives(folders: Path, kind: str) -> None:
    transformers = _package("transformers")
    x, y = texts()
    ends = [str(folders / f"{kind}-{k}") for k in range(2)]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        line = fedscope.line(ends, data=(x, y), points=3, range=(0, 1))
    said = [
        str(one.message) for one in told if one.category is FedscopeWarning and "returns no tensor" in str(one.message)
    ]
    assert len(said) == 1
    own = [transformers.AutoModelForCausalLM.from_pretrained(end) for end in ends]
    expected = [loss_of(module, x, y) for module in own[::-1]]  # beta = 0 is the second
    assert line.loss[0, [0, -1]] == pytest.approx(expected, rel=1e-5)
    mean = {name: (value + own[1].state_dict()[name]) / 2 for name, value in own[0].state_dict().items()}
    own[0].load_state_dict(mean)
    assert line.loss[0, 1] == pytest.approx(loss_of(own[0], x, y), rel=1e-5)
    assert line.attrs["task"] == "sequences"
    assert line.attrs["outputs"].endswith(".logits is taken")


@pytest.mark.slow
def test_parts_are_measured_as_one_file_bit_for_bit(folders: Path) -> None:
    data = texts()
    whole, parts = (
        quietly(lambda other=other: fedscope.line([folders / "llama-0", folders / other], data=data, points=5))
        for other in ("llama-1", "parts")
    )
    assert np.array_equal(whole.loss, parts.loss)
    assert whole.attrs["models_sha256"] == parts.attrs["models_sha256"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_planes_subsets_and_decompositions_need_no_wrapper(
    folders: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    transformers = _package("transformers")
    x, y = texts()
    np.savez("next.npz", x_test=x, y_test=y)
    models = [str(folders / f"{kind}-{k}") for k in range(3)]
    plane = quietly(lambda: fedscope.plane(models, data="npz:next.npz", grid=5))
    own = [loss_of(transformers.AutoModelForCausalLM.from_pretrained(one), x, y) for one in models]
    assert [model.loss for model in plane.models[:3]] == pytest.approx(own, rel=1e-5)

    architecture = f"hf:{models[0]}"
    quietly(lambda: fedscope.import_models(models, "run", model=architecture, data="npz:next.npz"))
    found = quietly(lambda: fedscope.subsets("run", model=architecture))
    assert found.attrs["task"] == "sequences"
    decomposed = quietly(lambda: fedscope.decompose("run", model=architecture, draws="none"))
    assert "closes" in decomposed.summary()


@pytest.mark.slow
def test_classes_of_texts(folders: Path) -> None:
    transformers = _package("transformers")
    x, _ = texts()
    y = np.arange(len(x)) % 3
    ends = [str(folders / f"classes-{k}") for k in range(2)]
    line = quietly(lambda: fedscope.line(ends, data=(x, y), points=3, range=(0, 1)))
    expected = []
    for end in ends[::-1]:
        module = transformers.AutoModelForSequenceClassification.from_pretrained(end).double().eval()
        with torch.no_grad():  # one by one, because the folder names no token that fills up
            logits = torch.cat([module(torch.from_numpy(row[None])).logits for row in x])
        expected.append(float(torch.nn.functional.cross_entropy(logits, torch.from_numpy(y))))
    assert line.loss[0, [0, -1]] == pytest.approx(expected, rel=1e-5)
    assert line.attrs["task"] == "sequence-classification"


@pytest.mark.slow
def test_padding_is_left_out_as_by_a_mask(tmp_path: Path) -> None:
    transformers = _package("transformers")
    config = transformers.BertConfig(
        vocab_size=TOKENS,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        num_labels=3,
    )
    config.initializer_range = 0.5
    for k in range(2):
        torch.manual_seed(k)
        transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / f"bert-{k}")
    ids, y = np.random.default_rng(2).integers(1, TOKENS, (12, 7)), np.arange(12) % 3
    mask = (np.arange(7) < 2 + np.arange(12)[:, None] % 6).astype(int)
    ids[mask == 0] = config.pad_token_id
    ends = [str(tmp_path / f"bert-{k}") for k in range(2)]
    batch = {"input_ids": ids, "attention_mask": mask, "labels": y}
    line = quietly(lambda: fedscope.line(ends, data=batch, points=3, range=(0, 1)))
    expected = []
    for end in ends[::-1]:
        module = transformers.BertForSequenceClassification.from_pretrained(end).double().eval()
        with torch.no_grad():
            expected.append(float(module(**{name: torch.from_numpy(one) for name, one in batch.items()}).loss))
    assert line.loss[0, [0, -1]] == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_adapters_lie_beside_the_base_that_their_folder_names(folders: Path, kind: str) -> None:
    transformers, peft = _package("transformers"), _package("peft")
    x, y = texts()
    ends = [str(folders / f"{kind}-adapter-{k}") for k in range(2)]

    def expected(base: str) -> list[float]:
        own = [transformers.AutoModelForCausalLM.from_pretrained(folders / base) for _ in ends]
        return [
            loss_of(quietly(lambda b=b, e=e: peft.PeftModel.from_pretrained(b, e)), x, y)
            for b, e in zip(own, ends[::-1], strict=True)
        ]

    def losses(**given: Any) -> Any:
        return quietly(lambda: fedscope.line(ends, data=(x, y), points=3, range=(0, 1), **given))

    named = losses()
    assert named.loss[0, [0, -1]] == pytest.approx(expected(f"{kind}-0"), rel=1e-5)
    assert named.attrs["base"]["path"] == str(folders / f"{kind}-0")
    other = losses(base=folders / f"{kind}-1")
    assert other.loss[0, [0, -1]] == pytest.approx(expected(f"{kind}-1"), rel=1e-5)
    assert other.attrs["base"]["sha256"] != named.attrs["base"]["sha256"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["pissa", "olora"])
def test_adapters_that_change_their_base_are_measured_once_peft_has_merged_or_converted_them(
    folders: Path, tmp_path: Path, how: str
) -> None:
    transformers, peft = _package("transformers"), _package("peft")
    x, y = texts()

    def base() -> Any:
        return transformers.AutoModelForCausalLM.from_pretrained(folders / "llama-0")

    def make() -> list[float]:
        config = peft.LoraConfig(
            r=2, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=how
        )
        losses = []
        for k in range(2):
            trained = peft.get_peft_model(base(), config)
            trained.peft_config["default"].init_lora_weights = True
            trained.save_pretrained(tmp_path / "initial")
            trained.peft_config["default"].init_lora_weights = how
            with torch.no_grad():
                for name, value in trained.named_parameters():
                    value += 0.05 * torch.randn_like(value) if "lora_" in name else 0
            trained.save_pretrained(tmp_path / f"own-{k}")
            trained.save_pretrained(
                tmp_path / f"converted-{k}", path_initial_model_for_weight_conversion=str(tmp_path / "initial")
            )
            losses.append(loss_of(peft.PeftModel.from_pretrained(base(), tmp_path / f"own-{k}"), x, y))
            merged = peft.PeftModel.from_pretrained(base(), tmp_path / f"own-{k}").merge_and_unload()
            merged.save_pretrained(tmp_path / f"merged-{k}")
        return losses

    with torch.random.fork_rng():
        torch.manual_seed(3)
        expected = quietly(make)

    def losses_of(kind: str) -> Any:
        ends = [str(tmp_path / f"{kind}-{k}") for k in range(2)]
        return quietly(lambda: fedscope.line(ends, data=(x, y), points=3, range=(0, 1))).loss[0, [-1, 0]]

    with pytest.raises(FedscopeError, match=rf"own-0/adapter_config.json says init_lora_weights '{how}': the adapter"):
        losses_of("own")
    for kind in ("merged", "converted"):
        assert losses_of(kind) == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_products_of_experts_are_those_that_peft_adds(tmp_path: Path) -> None:
    transformers, peft = _package("transformers"), _package("peft")
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    added: list[dict[str, Any]] = []

    def make() -> None:
        config = transformers.MixtralConfig(vocab_size=TOKENS, num_key_value_heads=2, num_local_experts=4, **sizes)
        lora = peft.LoraConfig(
            r=2,
            lora_alpha=8,
            target_modules=["q_proj"],
            target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
            init_lora_weights=False,
        )
        for k in range(2):
            made = peft.get_peft_model(transformers.AutoModelForCausalLM.from_config(config), lora)
            made.save_pretrained(tmp_path / f"{k}")
            own = {name: module for name, module in made.double().named_modules() if hasattr(module, "lora_A")}
            added.append({name: module.get_delta_weight("default").detach() for name, module in own.items()})

    with torch.random.fork_rng():
        torch.manual_seed(3)
        quietly(make)
    run = quietly(lambda: fedscope.import_models([tmp_path / "0", tmp_path / "1"], tmp_path / "run"))
    found = {cell.layer: cell.norm for cell in fedscope.adapters(run).cells}
    assert len(added[0]) == 3
    for name in added[0]:
        mean = (added[0][name] + added[1][name]) / 2
        each = {name: mean} if mean.ndim == 2 else {f"{name}[{e}]": one for e, one in enumerate(mean)}
        for layer, product in each.items():
            assert found.pop(layer) == pytest.approx(float(product.norm()), rel=1e-6)
    assert list(found) == ["all layers"]


@pytest.mark.slow
def test_what_is_refused_is_named(folders: Path, tmp_path: Path) -> None:
    def refused(*models: Path, **given: Any) -> str:
        with pytest.raises(FedscopeError) as refusal:
            quietly(lambda: fedscope.line(list(models), data=texts(), points=3, **given))
        return str(refusal.value)

    first = folders / "llama-0"
    assert "narrow: model.embed_tokens.weight has shape (48, 16), but the expected" in refused(
        first, folders / "narrow"
    )
    torn = tmp_path / "torn"
    shutil.copytree(folders / "parts", torn)
    lost = sorted(torn.glob("*.safetensors"))[2]
    lost.unlink()
    assert f"{lost.name} is not there; copy it again" in refused(torn, first)

    def told(**config: Any) -> str:
        folder = tmp_path / "told"
        shutil.copytree(first, folder, dirs_exist_ok=True)
        known = json.loads((first / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**known, **config}))
        return refused(folder, first)

    assert "(auto_map), which is never run" in told(auto_map={"AutoModel": "m.X"})
    assert "describes LlamaModel, and networks for the next token" in told(architectures=["LlamaModel"])
    assert "config.json is not taken by transformers (" in told(hidden_size="wide")
    lone = tmp_path / "lone-adapter"
    shutil.copytree(folders / "llama-adapter-0", lone)
    known = json.loads((lone / "adapter_config.json").read_text())
    (lone / "adapter_config.json").write_text(json.dumps({**known, "base_model_name_or_path": "org/name"}))
    assert "names the base 'org/name', which is no folder with a config.json here; give it" in refused(lone, lone)


def test_names_of_folders(tmp_path: Path) -> None:
    assert folder_as_model(tmp_path) is None
    (tmp_path / "config.json").write_text("{}")
    assert folder_as_model(tmp_path) is None
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert folder_as_model(tmp_path) == f"hf:{tmp_path}"
    with pytest.raises(FedscopeError, match="--model hf: names no folder; give that of a model"):
        PretrainedFolder(path="hf:")
    with pytest.raises(
        FedscopeError, match=r"nowhere is no folder; give a folder that save_pretrained wrote, with its"
    ):
        task_of_folder(f"hf:{tmp_path}/nowhere")
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(
        FedscopeError, match=r"config.json is no mapping of settings \(\[1\]\); copy or save the folder"
    ):
        task_of_folder(f"hf:{tmp_path}")


def test_code_of_a_folder_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "x", "auto_map": {"AutoConfig": "evil.Config"}}')
    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath(__file__).with_name('ran').touch()\n")
    with pytest.raises(
        FedscopeError, match=r"config.json asks for code of its own \(auto_map\), which is never run; if"
    ):
        fedscope.line([tmp_path, tmp_path], data=texts())
    assert not (tmp_path / "ran").exists()


def test_a_package_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    monkeypatch.setitem(__import__("sys").modules, "transformers.models.auto.modeling_auto", None)
    (tmp_path / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    sentence = r"needs transformers, which could not be imported \(.*\); install it: pip install 'fedscope\[language\]'"
    with pytest.raises(FedscopeError, match=sentence):
        PretrainedFolder(path=f"hf:{tmp_path}").build((8,), 5)


def test_a_folder_is_not_trained(tmp_path: Path) -> None:
    with pytest.raises(FedscopeError, match=r"is a folder to measure, and a run could not be resumed without it; to"):
        fedscope.train(model=f"hf:{tmp_path}", data="digits", out=tmp_path / "run")
