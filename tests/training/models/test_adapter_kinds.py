"""Which network the folder of an adapter is put into, and which adapters are: by its task, its head and its base. The
packages here are stand-ins, whose modules name their tensors as those of transformers and PEFT do."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.cli.main import run as command
from fedscope.training.models import pretrained
from fedscope.training.models.pretrained import PretrainedFolder, labels_of_head, task_of_folder

pytestmark = [
    pytest.mark.same_elsewhere,
    pytest.mark.filterwarnings("ignore::fedscope.checkpoints.FedscopeWarning"),
]

TOKENS, WIDTH, CLASSES = 9, 4, 3


class Network(nn.Module):
    """An embedding, a layer, and a head for tokens or for classes."""

    def __init__(self, config: Any, head: str, outputs: int) -> None:
        super().__init__()
        self.config, self.of_classes = config, head == "score"
        self.embed, self.q = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.add_module(head, nn.Linear(WIDTH, outputs, bias=False))

    def tie_weights(self) -> None:
        """Nothing is tied."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        seen = self.q(self.embed(input_ids)) * mask[..., None]
        outputs: Tensor = self.score(seen.sum(1) / mask.sum(1, keepdim=True)) if self.of_classes else self.lm_head(seen)
        return outputs


class Low(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_A = nn.ModuleDict({"default": nn.Linear(WIDTH, 1, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(1, WIDTH, bias=False)})

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))
        return outputs


class Saved(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.original_module = base
        self.modules_to_save = nn.ModuleDict({"default": nn.Linear(WIDTH, base.out_features, bias=False)})

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.modules_to_save["default"](x)
        return outputs


class Around(nn.Module):
    def __init__(self, name: str, inner: nn.Module) -> None:
        super().__init__()
        self.add_module(name, inner)

    def forward(self, *given: Any, **named: Any) -> Any:
        return next(self.children())(*given, **named)


def adapted(base: Any, config: Any) -> nn.Module:
    base.q = Low(base.q)
    if config.task_type == "SEQ_CLS":
        base.score = Saved(base.score)
    return Around("base_model", Around("model", base))


def read_config(folder: str, **_: Any) -> Any:
    return SimpleNamespace(
        **{"num_labels": 2, "pad_token_id": None, **json.loads(Path(folder, "config.json").read_text())}
    )


def made_by(head: str, outputs: Callable[[Any], int]) -> Any:
    return SimpleNamespace(from_config=lambda config, **_: Network(config, head, outputs(config)))


class NetForCausalLM:
    """Reads folders whose names are those of an earlier version, as transformers converts them."""

    @staticmethod
    def from_pretrained(folder: str, **_: Any) -> tuple[nn.Module, dict[str, set[str]]]:
        from safetensors.torch import load_file

        made = Network(None, "lm_head", TOKENS)
        found = {name.removeprefix("old_"): value for name, value in load_file(f"{folder}/model.safetensors").items()}
        made.load_state_dict(found, strict=False)
        return made, {"missing_keys": made.state_dict().keys() - found, "mismatched_keys": set()}


PACKAGES = {
    "transformers": SimpleNamespace(
        AutoConfig=SimpleNamespace(from_pretrained=read_config),
        NetForCausalLM=NetForCausalLM,
        AutoModelForCausalLM=made_by("lm_head", lambda _: TOKENS),
        AutoModelForSequenceClassification=made_by("score", lambda config: config.num_labels),
    ),
    "transformers.utils.logging": SimpleNamespace(
        is_progress_bar_enabled=lambda: False, disable_progress_bar=lambda: None
    ),
    "transformers.initialization": SimpleNamespace(no_init_weights=nullcontext),
    "transformers.models.auto.modeling_auto": SimpleNamespace(
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES={"net": "NetForCausalLM"},
        MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES={"net": "NetForSequenceClassification"},
    ),
    "peft": SimpleNamespace(
        PeftConfig=SimpleNamespace(
            from_pretrained=lambda folder, **_: SimpleNamespace(
                **json.loads(Path(folder, "adapter_config.json").read_text())
            )
        ),
        get_peft_model=adapted,
    ),
}


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pretrained, "_package", lambda name, _: PACKAGES[name])
    monkeypatch.chdir(tmp_path)


def base(kind: str = "NetForCausalLM", name: str = "net", before: str = "", seed: int = 0) -> nn.Module:
    """The folder of a base for the next token, whose names in the file begin with ``before``; and its network."""
    Path(name).mkdir()
    Path(name, "config.json").write_text(json.dumps({"model_type": "net", "architectures": [kind]}))
    torch.manual_seed(seed)
    made = Network(None, "lm_head", TOKENS)
    save_file({f"{before}{one}": value for one, value in made.state_dict().items()}, f"{name}/model.safetensors")
    return made


def adapter(name: str, **config: Any) -> str:
    """The folder of an adapter of ``net``."""
    Path(name).mkdir()
    told = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "base_model_name_or_path": "net", **config}
    Path(name, "adapter_config.json").write_text(json.dumps(told))
    before = "base_model.model."
    tensors = {"q.lora_A.weight": torch.randn(1, WIDTH), "q.lora_B.weight": torch.randn(WIDTH, 1)}
    tensors |= {"score.weight": torch.randn(CLASSES, WIDTH)} if config.get("task_type") == "SEQ_CLS" else {}
    save_file({f"{before}{one}": value for one, value in tensors.items()}, f"{name}/adapter_model.safetensors")
    return name


def loss_of(name: str, batch: dict[str, np.ndarray]) -> float:
    """The loss of an adapter for classes, by hand."""
    from safetensors.torch import load_file

    net, own = load_file("net/model.safetensors"), load_file(f"{name}/adapter_model.safetensors")
    own = {one.removeprefix("base_model.model."): value for one, value in own.items()}
    weight = net["q.weight"] + own["q.lora_B.weight"] @ own["q.lora_A.weight"]
    ids, mask, y = (torch.from_numpy(one) for one in batch.values())
    seen = (net["embed.weight"][ids] @ weight.T + net["q.bias"]) * mask[..., None]
    return float(cross_entropy(seen.sum(1) / mask.sum(1, keepdim=True) @ own["score.weight"].T, y))


IDS = np.array([[3, 4, 5, 6], [7, 8, 2, 2], [1, 5, 3, 2]])
BATCH = {"input_ids": IDS, "attention_mask": (IDS != 2).astype(int), "labels": np.array([2, 0, 1])}


def test_adapters_for_classes_of_a_base_for_tokens() -> None:
    """The head says how many classes there are; the padding is what the mask says, as the folder names none."""
    base()
    ends = [adapter(name, task_type="SEQ_CLS") for name in ("a", "b")]
    line = fedscope.line(ends, data=BATCH, points=3, range=(0, 1))
    assert line.loss[0, [-1, 0]] == pytest.approx([loss_of(end, BATCH) for end in ends], rel=1e-5)
    assert line.attrs["task"] == "sequence-classification"


def test_an_adapter_without_a_task_is_for_that_of_its_base() -> None:
    base("NetForSequenceClassification")
    one = adapter("a")
    assert task_of_folder(f"hf:{one}") == "sequence-classification"
    Path("net/config.json").write_text('{"model_type": "net", "architectures": ["NetForCausalLM"]}')
    assert task_of_folder(f"hf:{one}") == "sequences"
    Path("net").rename("moved")
    assert task_of_folder(f"hf:{one}", base="moved") == "sequences"


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (
            {"classifier.dense.weight": (8, 8), "classifier.out_proj.weight": (5, 8), "classifier.out_proj.bias": (5,)},
            5,
        ),
        ({"classifier.weight": (3, 8), "classifier.lora_A.weight": (2, 8)}, 3),
        ({"score.weight": (4, 8)}, 4),
        ({"q.lora_A.weight": (2, 8)}, None),
    ],
)
def test_the_head_says_how_many_classes_there_are(names: dict[str, tuple[int, ...]], labels: int | None) -> None:
    Path("a").mkdir()
    save_file(
        {f"base_model.model.{name}": torch.ones(shape) for name, shape in names.items()}, "a/adapter_model.safetensors"
    )
    assert labels_of_head(Path("a")) == labels
    assert labels_of_head(Path("nowhere")) is None


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            {"peft_type": "IA3", "task_type": "CAUSAL_LM"},
            "a/adapter_config.json is of an adapter of IA3, and in a network those of LORA, ADALORA, LOHA, LOKR are "
            "measured; give the folder that PEFT saves of it merged (merge_and_unload)",
        ),
        (
            {"peft_type": "PREFIX_TUNING", "task_type": "CAUSAL_LM"},
            "a/adapter_config.json is of an adapter of PREFIX_TUNING, and in a network those of LORA, ADALORA, LOHA, "
            "LOKR are measured; save its whole state_dict (torch.save(model.state_dict(), FILE)), and with "
            "model='FILE.py:NAME' give a class that takes tokens and returns their logits",
        ),
        (
            {"task_type": "TOKEN_CLS"},
            "a/adapter_config.json is for the task TOKEN_CLS, and adapters for CAUSAL_LM and SEQ_CLS are measured; "
            "give the network's class with model='FILE.py:NAME'",
        ),
    ],
)
@pytest.mark.parametrize("given", [{}, {"base": "net"}], ids=["named", "given"])
def test_adapters_that_are_not_measured_are_named(config: dict[str, str], sentence: str, given: dict[str, str]) -> None:
    base()
    one = adapter("a", **config)
    with pytest.raises(FedscopeError) as refusal:
        fedscope.line([one, one], data=(IDS, IDS), points=3, **given)
    assert str(refusal.value) == sentence


def test_the_rank_of_adalora_is_that_of_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file holds it, and its network divides by it."""
    base()

    def ranked(network: Any, config: Any) -> nn.Module:
        made = adapted(network, config)
        network.q.ranknum = nn.ParameterDict({"default": nn.Parameter(torch.full((1,), 3.0), requires_grad=False)})
        return made

    monkeypatch.setattr(PACKAGES["peft"], "get_peft_model", ranked)
    one = adapter("a", peft_type="ADALORA", task_type="CAUSAL_LM")
    module = PretrainedFolder(path=f"hf:{one}").build((), 0)
    own = module.state_dict()
    assert own["base_model.model.q.ranknum.default"].tolist() == [3.0]
    assert not own["base_model.model.q.lora_A.default.weight"].any()
    line = fedscope.line([one, adapter("b", peft_type="ADALORA", task_type="CAUSAL_LM")], data=(IDS, IDS), points=3)
    assert np.isfinite(line.loss).all()


def test_folders_of_other_names_are_read_as_transformers_reads_them() -> None:
    """Those of some networks have the names of an earlier version; a file that lacks a tensor is refused as it was."""
    nets = [base(name=f"net{k}", before="old_", seed=k) for k in range(2)]
    batch = (IDS[:, :-1], IDS[:, 1:])
    x, y = map(torch.from_numpy, batch)
    expected = [float(cross_entropy(net(x).flatten(0, 1), y.flatten()).detach()) for net in nets]
    with pytest.warns(FedscopeWarning, match=r"net0: it is read as transformers reads it, .* than the file \(embed.w"):
        line = fedscope.line(["net0", "net1"], data=batch, points=3, range=(0, 1))
    assert line.loss[0, [-1, 0]] == pytest.approx(expected, rel=1e-5)
    run = fedscope.import_models(["net0", "net1"], "run", model="hf:net0")
    assert set(run.layout.names) == set(nets[0].state_dict())
    assert np.array_equal(run.round(1).client(1).arrays()["q.weight"], nets[1].state_dict()["q.weight"].numpy())

    state = {f"old_{name}": value for name, value in nets[0].state_dict().items() if name != "q.bias"}
    save_file(state, "net0/model.safetensors")
    with pytest.raises(
        FedscopeError, match=r"net0: these tensors are not the expected model's: embed.weight, .* missing"
    ):
        fedscope.line(["net0", "net1"], data=batch, points=3)


def test_a_base_of_other_names_is_read_as_transformers_reads_it() -> None:
    base(name="plain")
    base(before="old_")
    ends = [adapter(name, task_type="CAUSAL_LM") for name in ("a", "b")]
    data: dict[str, Any] = {"data": (IDS[:, :-1], IDS[:, 1:]), "points": 3}
    with pytest.warns(
        FedscopeWarning, match="the base net is read as transformers reads it, which calls its tensors o"
    ):
        found = fedscope.line(ends, **data)
    assert np.array_equal(found.loss, fedscope.line(ends, base="plain", **data).loss)


def without_transformers(name: str, model: str) -> Any:
    raise FedscopeError(f"--model {model} needs {name}, which could not be imported; install it")


def test_a_folder_s_network_in_one_of_the_user_s_own_is_read_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its names have a prefix more, so that nobody need read it otherwise; nor is it known who could."""
    nets = [base(name=f"net{k}", seed=k) for k in range(2)]
    x, y = (IDS[:, :-1], IDS[:, 1:])
    monkeypatch.setattr(pretrained, "_package", without_transformers)
    whole = Around("inner", Network(None, "lm_head", TOKENS))
    expected = [
        float(cross_entropy(net(torch.from_numpy(x)).flatten(0, 1), torch.from_numpy(y).flatten()).detach())
        for net in nets
    ]
    for ends in (["net0", "net1"], ["net0/model.safetensors", "net1/model.safetensors"]):
        line = fedscope.line(ends, model=whole, data=(x, y), task="sequences", points=3, range=(0, 1))
        assert line.loss[0, [-1, 0]] == pytest.approx(expected, rel=1e-5)


def test_where_transformers_does_not_read_a_folder_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    base()
    state = Network(None, "lm_head", TOKENS).state_dict()
    del state["embed.weight"]
    save_file(state, "net/model.safetensors")
    data: dict[str, Any] = {"data": (IDS[:, :-1], IDS[:, 1:]), "points": 3}
    ends = [adapter(name, task_type="CAUSAL_LM") for name in ("a", "b")]
    module = PretrainedFolder(path="hf:a").build((), 0)
    monkeypatch.setattr(pretrained, "_package", without_transformers)
    with pytest.raises(FedscopeError) as refusal:
        fedscope.line(ends, model=module, base="net", task="sequences", **data)
    assert str(refusal.value) == (
        "the base net has no base_model.model.embed.weight, which the architecture has beside the adapters; it has "
        "lm_head.weight, q.bias, q.weight; give the base that they adapt"
    )
    with pytest.raises(FedscopeError) as refusal:
        fedscope.line(["net", "net"], model=Network(None, "lm_head", TOKENS), task="sequences", **data)
    assert str(refusal.value) == (
        "net: these tensors are not the expected model's: embed.weight missing; give the whole model.state_dict(), "
        "or the architecture that these are of (model=)"
    )


def test_adapters_are_written_as_peft_reads_them() -> None:
    from safetensors.torch import load_file

    base()
    ends = [adapter(name, task_type="SEQ_CLS") for name in ("a", "b")]
    fedscope.import_models(ends, "run", model="hf:a")
    own = load_file("a/adapter_model.safetensors")
    for ending in ("safetensors", "pt"):
        Path(ending).mkdir()
        (Path(ending) / "adapter_config.json").write_text(Path("a/adapter_config.json").read_text())
        assert command(["export", "run@1/client-0", f"{ending}/adapter_model.{ending}"]) == 0
    written = load_file("safetensors/adapter_model.safetensors")
    assert written.keys() == own.keys()
    assert all(torch.equal(written[name], own[name]) for name in own)
    assert torch.load("pt/adapter_model.pt").keys() == own.keys()
    line = fedscope.line(["safetensors", "b"], data=BATCH, points=3, range=(0, 1))
    assert line.loss[0, [-1, 0]] == pytest.approx([loss_of(end, BATCH) for end in ends], rel=1e-5)
    made = fedscope.reaggregate("run@1", ["fma"], model="hf:a", data=BATCH)
    made.save("made")
    assert load_file("made.safetensors").keys() == own.keys()


def test_a_whole_model_whose_layers_are_all_adapted_is_written_by_its_own_names() -> None:
    module = Around("base_model", Around("model", Around("q", Low(nn.Linear(WIDTH, WIDTH)))))
    data = (np.eye(WIDTH, dtype=np.float32), np.arange(WIDTH))
    with fedscope.Recorder("run", model=module, data=data) as recorder:
        recorder.round(start=module, clients=[module, module], global_=module)
    assert command(["export", "run@1/global", "whole.pt"]) == 0
    written = torch.load("whole.pt")
    assert written.keys() == module.state_dict().keys()
    module.load_state_dict(written)


def test_adapters_with_biases_of_the_base_are_written_as_peft_reads_them() -> None:
    names = {
        "q.lora_A.default.weight": (1, WIDTH),
        "q.lora_B.default.weight": (WIDTH, 1),
        "q.base_layer.bias": (WIDTH,),
        "norm.bias": (WIDTH,),
    }
    files = ["a.safetensors", "b.safetensors"]
    for file in files:
        save_file({f"base_model.model.{name}": torch.rand(shape) for name, shape in names.items()}, file)
    fedscope.import_models(files, "run")
    assert command(["export", "run@1/client-0", "b.pt"]) == 0
    assert {*torch.load("b.pt")} == {
        "base_model.model.q.lora_A.weight",
        "base_model.model.q.lora_B.weight",
        "base_model.model.q.base_layer.bias",
        "base_model.model.norm.bias",
    }
