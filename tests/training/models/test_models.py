"""Every architecture by name: its published number of parameters, its function against another program's or one written
by hand, its head, and what it refuses."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedscope.checkpoints import FedscopeError, FedscopeWarning, Layout
from fedscope.distributed.torchvision_import import torchvision_part
from fedscope.evaluation.model_replica import Replica
from fedscope.training import Config, build_module, load_data, model_settings, resume, train
from fedscope.training.build import initial_model
from fedscope.training.local.local_training import LocalTask, batches
from fedscope.training.local.worker_model import TrainableModel, features_and_logits
from fedscope.training.methods.base import LocalSchedule
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.models.model_info import ModelInfo, find_head
from fedscope.training.settings.registry import find, names

#: as the papers print them, or as their layers give them; of images and classes
PUBLISHED = [
    ("cnn", (1, 28, 28), 10, 274_026),
    ("cnn", (3, 32, 32), 10, 772_682),
    ("cnn-gn", (3, 28, 28), 10, 13_423_434),
    ("resnet18", (3, 32, 32), 10, 11_173_962),
    ("resnet18", (3, 32, 32), 100, 11_220_132),
    ("resnet18", (3, 64, 64), 200, 11_271_432),
    ("resnet34", (3, 32, 32), 100, 21_328_292),
    ("resnet18-gn", (3, 32, 32), 10, 11_235_786),
    ("resnet18-gn", (3, 32, 32), 100, 11_247_396),
    ("resnet20-gn", (3, 32, 32), 10, 269_722),
    ("resnet20-gn", (3, 32, 32), 100, 275_572),
    ("vgg11-gn", (3, 32, 32), 100, 9_304_548),
    ("alexnet-gn", (3, 224, 224), 7, 59_107_399),
    ("alexnet-gn", (3, 227, 227), 7, 59_107_399),
    ("mobilenetv2-gn", (3, 224, 224), 2_028, 4_821_740),
    ("vit-b16", (3, 224, 224), 200, 85_952_456),
    ("cnn-femnist", (1, 28, 28), 62, 1_206_590),
    ("lstm", (80,), 90, 820_522),
]

#: small samples, and settings that make the largest models small
SMALL: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "alexnet-gn": ((3, 63, 63), {"hidden": [16, 12, 8]}),
    "cnn-femnist": ((1, 8, 8), {}),
    "cnn-gn": ((3, 8, 8), {"hidden": [16, 8]}),
    "mobilenetv2-gn": ((3, 32, 32), {}),
    "resnet18": ((1, 8, 8), {}),
    "resnet18-gn": ((1, 8, 8), {}),
    "resnet20-gn": ((3, 8, 8), {}),
    "resnet34": ((1, 8, 8), {}),
    "vgg11-gn": ((3, 32, 32), {}),
    "vit-b16": ((3, 32, 32), {}),
}
#: what takes seconds in a test that trains or answers one by one
SLOW = ("resnet18", "resnet18-gn", "resnet34", "mobilenetv2-gn", "vit-b16")
EACH = [pytest.param(name, marks=pytest.mark.slow if name in ("resnet34", "vit-b16") else ()) for name in SMALL]
HEADS = {
    "mobilenetv2-gn": "classifier.1",
    "vit-b16": "heads.head",
    **dict.fromkeys(("resnet18", "resnet18-gn", "resnet20-gn", "resnet34"), "fc"),
}


def on_paper(name: str, shape: tuple[int, ...], classes: int, **settings: Any) -> nn.Module:
    """A module without numbers."""
    with torch.device("meta"):
        made: nn.Module = find("models", name)(**settings).build(shape, classes)
        return made


def built(name: str, classes: int = 5, **changes: Any) -> tuple[nn.Module, Tensor]:
    """A small module whose normalisations are no identities, in evaluation mode, and samples for it."""
    shape, settings = SMALL[name]
    module = build_module(find("models", name)(**{**settings, **changes}), shape, classes)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for key, values in module.state_dict().items():
            if key.endswith("running_var"):
                values.uniform_(0.5, 2, generator=draw)
            elif values.dim() <= 1 and values.is_floating_point():
                values.add_(0.3 * torch.randn(values.shape, generator=draw))
        head = module.get_submodule(str(find_head(module)))
        head.weight.copy_(0.1 * torch.randn(head.weight.shape, generator=draw))  # type: ignore[union-attr, operator]
    return module.eval(), torch.randn(6, *shape, generator=draw)


# --- what they compute ---


@pytest.mark.parametrize(("name", "shape", "classes", "parameters"), PUBLISHED)
def test_a_model_has_as_many_parameters_as_published(
    name: str, shape: tuple[int, ...], classes: int, parameters: int
) -> None:
    assert Layout.of(on_paper(name, shape, classes)).size == parameters


def test_every_model_of_the_papers_is_counted_where_the_docs_count_it() -> None:
    known = {(name, shape, classes) for name, shape, classes, _ in PUBLISHED}
    own = {(name, *find("models", name).counted) for name in names("models")} - {
        ("mlp", (1, 8, 8), 10),
        ("gru", (80,), 90),
    }
    assert own <= known


@pytest.mark.parametrize(
    ("name", "settings", "inputs"),
    [
        ("cnn-gn", {"pools": 3, "hidden": [384, 128]}, [1152, 384, 128]),
        ("alexnet-gn", {"groups": 32, "hidden": [1024, 512]}, [9216, 1024, 512]),
        ("resnet18-gn", {"projector": 0}, [512]),
        ("vgg11-gn", {"projector": 0}, [512]),
    ],
)
def test_the_variants_that_the_docstrings_name(name: str, settings: dict[str, Any], inputs: list[int]) -> None:
    shape = (3, 28, 28) if name == "cnn-gn" else (3, 224, 224)
    module = on_paper(name, shape, 10, **settings)
    assert [layer.in_features for layer in module.modules() if isinstance(layer, nn.Linear)] == inputs
    groups = {layer.num_groups for layer in module.modules() if isinstance(layer, nn.GroupNorm)}
    assert groups == {settings.get("groups", 2)}


@pytest.mark.parametrize(("name", "count"), [("cnn-gn", 3), ("resnet18-gn", 20), ("resnet20-gn", 19), ("vgg11-gn", 8),
                                             ("alexnet-gn", 5), ("mobilenetv2-gn", 52)])  # fmt: skip
def test_every_normalisation_is_a_group_norm_of_two_groups(name: str, count: int) -> None:
    module = on_paper(name, SMALL[name][0], 10)
    kinds = (nn.GroupNorm, nn.LayerNorm, nn.modules.batchnorm._BatchNorm)
    norms = [layer for layer in module.modules() if isinstance(layer, kinds)]
    assert [(type(layer), layer.num_groups) for layer in norms] == [(nn.GroupNorm, 2)] * count
    assert not Layout.of(module).buffers
    follow = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d)]
    assert len(follow) == count, "one behind every convolution"


@pytest.mark.parametrize(("name", "count"), [("resnet18", 20), ("resnet34", 36)])
def test_fedsas_networks_keep_statistics_behind_every_convolution(name: str, count: int) -> None:
    module = on_paper(name, (3, 32, 32), 10)
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in module.modules()) == count
    assert len(Layout.of(module).buffers) == 3 * count


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in SMALL]
)
def test_a_model_is_drawn_from_the_seed_and_answers_a_sample_alone_as_among_others(name: str) -> None:
    module, x = built(name)
    with torch.no_grad():
        logits = module(x)
        assert logits.shape == (6, 5)
        assert logits.isfinite().all()
        torch.testing.assert_close(module(x[2:3]), logits[2:3], rtol=1e-4, atol=1e-4)
        replica = Replica(module)
        replica.load(initial_model(module).parameters, initial_model(module).buffers)
        torch.testing.assert_close(replica.logits(replica.prepare(x)), logits, rtol=1e-4, atol=1e-4)
    shape, settings = SMALL[name]
    one, same, other = (build_module(find("models", name)(**settings), shape, 5, seed=seed) for seed in (3, 3, 4))
    vectors = [initial_model(made).parameters for made in (one, same, other)]
    assert vectors[0].tobytes() == vectors[1].tobytes() != vectors[2].tobytes()


@pytest.mark.parametrize("name", EACH)
def test_every_parameter_is_learnt(name: str) -> None:
    module, x = built(name)
    functional.cross_entropy(module(x), torch.arange(6) % 5).backward()
    still = [key for key, value in module.named_parameters() if value.grad is None or not value.grad.any()]
    assert still == []


def by_torchvision(module: nn.Module, x: Tensor, blocks: list[int], norm: Any, large_stem: bool) -> Tensor:
    """The mean over pixels of torchvision's ResNet that holds a module's parameters."""
    resnet = torchvision_part("models.resnet")
    other = resnet.ResNet(resnet.BasicBlock, blocks, norm_layer=norm).eval()
    if not large_stem:
        other.conv1, other.maxpool = nn.Conv2d(x.shape[1], 64, 3, padding=1, bias=False), nn.Identity()
    other.fc = nn.Identity()
    body = {key: value for key, value in module.state_dict().items() if not key.startswith(("fc.", "projector."))}
    other.load_state_dict(body)
    made: Tensor = other(x)
    return made


@pytest.mark.parametrize("stem", ["3x3", "7x7"])
@pytest.mark.parametrize(("name", "blocks"), [("resnet18", [2, 2, 2, 2]), ("resnet34", [3, 4, 6, 3]),
                                              ("resnet18-gn", [2, 2, 2, 2])])  # fmt: skip
def test_resnets_are_torchvisions_with_the_stem_and_the_norm_that_was_asked_for(
    name: str, blocks: list[int], stem: str
) -> None:
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(3, 3, 32, 32, generator=draw)
    module = build_module(find("models", name)(stem=stem), (3, 32, 32), 5).eval()
    norm = nn.BatchNorm2d if name != "resnet18-gn" else lambda channels: nn.GroupNorm(2, channels)
    state = module.state_dict()
    with torch.no_grad():
        expected = by_torchvision(module, x, blocks, norm, stem == "7x7")
        if name == "resnet18-gn":
            expected = expected @ state["projector.weight"].T + state["projector.bias"]
        torch.testing.assert_close(module(x), expected @ state["fc.weight"].T + state["fc.bias"])


def test_the_names_of_a_resnet_with_a_large_stem_are_torchvisions() -> None:
    with torch.device("meta"):
        theirs = torchvision_part("models.resnet").resnet18(num_classes=10)
    assert Layout.of(on_paper("resnet18", (3, 224, 224), 10, stem="7x7")).difference(Layout.of(theirs)) is None


def test_resnet20_by_hand() -> None:
    module, x = built("resnet20-gn")
    s = module.state_dict()

    def norm(h: Tensor, name: str) -> Tensor:
        return functional.group_norm(h, 2, s[f"{name}.weight"], s[f"{name}.bias"])

    h = norm(functional.conv2d(x, s["conv1.weight"], padding=1), "bn1").relu()
    for stage, width in enumerate((16, 32, 64), start=1):
        for block in range(3):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            inner = functional.conv2d(h, s[f"{name}.conv1.weight"], stride=stride, padding=1)
            inner = functional.conv2d(norm(inner, f"{name}.bn1").relu(), s[f"{name}.conv2.weight"], padding=1)
            beside = h[:, :, ::stride, ::stride]
            if stride == 2:
                zeros = torch.zeros(len(h), width // 4, *beside.shape[2:])
                beside = torch.cat([zeros, beside, zeros], dim=1)
            h = (norm(inner, f"{name}.bn2") + beside).relu()
    assert h.shape == (6, 64, 2, 2)
    torch.testing.assert_close(module(x), h.mean((2, 3)) @ s["fc.weight"].T + s["fc.bias"])


def by_hand(
    s: dict[str, Tensor], h: Tensor, plan: list[Any], linear: list[str], dropped_relu: str | None = None
) -> Tensor:
    """Convolutions ``(padding, stride)`` with GroupNorm and ReLU, poolings ``"p2"`` or ``"p3"``, then linear layers."""
    i = 0
    for step in plan:
        if isinstance(step, str):
            h = functional.max_pool2d(h, int(step[1]), 2)
            continue
        i += 1
        h = functional.conv2d(h, s[f"conv{i}.weight"], s[f"conv{i}.bias"], padding=step[0], stride=step[1])
        h = functional.group_norm(h, 2, s[f"norm{i}.weight"], s[f"norm{i}.bias"]).relu()
    h = h.flatten(1)
    for name in linear:
        h = h @ s[f"{name}.weight"].T + s[f"{name}.bias"]
        h = h if name in ("head", dropped_relu) else h.relu()
    return h


@pytest.mark.parametrize(
    ("name", "plan", "linear"),
    [
        ("cnn-gn", [(2, 1), "p2", (2, 1), "p2", (2, 1)], ["fc1", "fc2", "head"]),
        (
            "vgg11-gn",
            [(1, 1), "p2", (1, 1), "p2", *[(1, 1)] * 2, "p2", *[(1, 1)] * 2, "p2", *[(1, 1)] * 2, "p2"],
            ["fc1", "head"],
        ),
        ("alexnet-gn", [(2, 4), "p3", (2, 1), "p3", *[(1, 1)] * 3, "p3"], ["fc1", "fc2", "fc3", "head"]),
    ],
)
def test_plain_convolutional_networks_by_hand(name: str, plan: list[Any], linear: list[str]) -> None:
    """No ReLU before the head."""
    module, x = built(name)
    if name == "alexnet-gn":  # 224 pixels leave the grid of 6 x 6 that the linear layers take
        x = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = by_hand(module.state_dict(), x, plan, linear, dropped_relu=linear[-2])
        torch.testing.assert_close(module(x), expected, rtol=1e-4, atol=1e-5)


def test_femnists_cnn_by_hand() -> None:
    module, x = built("cnn-femnist")
    s = module.state_dict()
    h = functional.conv2d(x, s["conv1.weight"], s["conv1.bias"]).relu()
    h = functional.max_pool2d(functional.conv2d(h, s["conv2.weight"], s["conv2.bias"]).relu(), 2).flatten(1)
    h = (h @ s["fc1.weight"].T + s["fc1.bias"]).relu()
    torch.testing.assert_close(module(x), h @ s["head.weight"].T + s["head.bias"])
    rates = [layer.p for layer in module.modules() if isinstance(layer, nn.Dropout)]
    assert rates == [0.25, 0.5]


def test_mobilenet_is_torchvisions_but_for_the_statistics() -> None:
    with torch.device("meta"):
        theirs = torchvision_part("models.mobilenetv2").mobilenet_v2(num_classes=7)
    ours = on_paper("mobilenetv2-gn", (3, 224, 224), 7)
    assert Layout.of(ours).parameters == Layout.of(theirs).parameters


def test_the_vision_transformer_is_torchvisions() -> None:
    with torch.device("meta"):
        theirs = torchvision_part("models.vision_transformer").vit_b_16(num_classes=7)
    ours = on_paper("vit-b16", (3, 224, 224), 7)
    assert Layout.of(ours).difference(Layout.of(theirs)) is None
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize(("name", "deviation"), [("mobilenetv2-gn", (2 / (32 * 9)) ** 0.5),
                                                 pytest.param("vit-b16", 1 / 16, marks=pytest.mark.slow)])  # fmt: skip
def test_torchvisions_networks_take_grey_images_too(name: str, deviation: float) -> None:
    """With a first layer that is drawn as theirs: by its outputs, or by its inputs."""
    module = build_module(find("models", name)(), (1, 32, 32), 5)
    colour = on_paper(name, (3, 32, 32), 5)
    first = next(layer for layer in module.modules() if isinstance(layer, nn.Conv2d))
    assert Layout.of(module).size == Layout.of(colour).size - 2 * first.weight.numel()
    assert first.weight.std().item() == pytest.approx(deviation, rel=0.15)
    assert module(torch.ones(2, 1, 32, 32)).shape == (2, 5)


# --- tokens ---


def test_an_lstm_with_one_bias_a_gate_is_every_lstm_with_two() -> None:
    from fedscope.training.models.recurrent import OneBiasLSTM

    two, one = nn.LSTM(3, 4, batch_first=True), OneBiasLSTM(3, 4)
    s = two.state_dict()
    sums = {"bias_ih_l0": s["bias_ih_l0"] + s["bias_hh_l0"]}
    one.load_state_dict({**{key: s[key] for key in ("weight_ih_l0", "weight_hh_l0")}, **sums})
    x = torch.randn(5, 7, 3)
    torch.testing.assert_close(one(x)[0], two(x)[0])
    assert sum(value.numel() for value in two.parameters()) - sum(value.numel() for value in one.parameters()) == 16


def test_lstm_by_hand() -> None:
    """Position by position, with the gates written out, and a tanh after each layer; at rest and back."""
    module = build_module(find("models", "lstm")(hidden=6, embedding=3), (5,), 11)
    x = torch.randint(0, 11, (4, 5), generator=torch.Generator().manual_seed(0))
    replica = Replica(build_module(find("models", "lstm")(hidden=6, embedding=3), (5,), 11, seed=1))
    replica.load(initial_model(module).parameters, {})
    s = module.state_dict()
    assert set(s) == {
        "embedding.weight",
        *(f"lstm{i}.{name}_l0" for i in (1, 2) for name in ("weight_ih", "weight_hh", "bias_ih")),
        "head.weight",
        "head.bias",
    }
    sequence = list(s["embedding.weight"][x].unbind(1))
    for layer in ("lstm1", "lstm2"):
        h = c = torch.zeros(4, 6)
        answers = []
        for step in sequence:
            gates = step @ s[f"{layer}.weight_ih_l0"].T + h @ s[f"{layer}.weight_hh_l0"].T + s[f"{layer}.bias_ih_l0"]
            i, f, g, o = gates.chunk(4, dim=1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            answers.append(h.tanh())
        sequence = answers
    expected = torch.stack(sequence, 1) @ s["head.weight"].T + s["head.bias"]
    torch.testing.assert_close(module(x), expected)
    torch.testing.assert_close(replica.logits(x), expected)


# --- the head, and methods that need it ---


@pytest.mark.parametrize("name", EACH)
def test_the_last_linear_layer_is_the_head_and_sees_the_features(name: str) -> None:
    module, x = built(name)
    head = find_head(module)
    assert head == HEADS.get(name, "head")
    with torch.no_grad():
        features, logits = features_and_logits(module, head, x)
        layer = module.get_submodule(str(head))
        assert features.shape == (6, layer.in_features)
        torch.testing.assert_close(layer(features), logits)
        assert torch.equal(module(x), logits)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> str:
    """24 training and 12 test images of 8 x 8 pixels in three colours and four classes."""
    random = np.random.default_rng(0)
    y = np.arange(36) % 4
    x = (40 * y[:, None, None, None] + random.integers(0, 60, (36, 8, 8, 3))).astype(np.uint8)
    path = tmp_path_factory.mktemp("images") / "images.npz"
    np.savez(path, x_train=x[:24], y_train=y[:24], x_test=x[24:], y_test=y[24:])
    return f"npz:{path}"


def settings(images: str, model: str, client: str = "sgd", **own: Any) -> Config:
    return Config.read(
        {
            "data": {"name": images, "clients": 3, "partition": "iid", "client_test": 0.2},
            "model": {"name": model, **SMALL[model][1]},
            "client": {"method": client, "epochs": 1, "batch": 4, "lr": 0.01, **own},
            "server": {"method": "fma"},
            "run": {"rounds": 2, "participation": 1.0, "evaluate_clients": 0},
        }
    )


@pytest.mark.parametrize(
    ("client", "own"),
    [
        ("fedbabu", {"fine_tune_epochs": 1}),
        ("moon", {}),
        ("fedgen", {"generator_steps": 2, "hidden": 8, "noise": 4}),
        ("fedntd", {}),
        ("fedfa", {}),
    ],
)
@pytest.mark.parametrize("model", [pytest.param("resnet20-gn", marks=pytest.mark.slow), "cnn-gn"])
def test_methods_that_look_at_the_head_train_them(
    model: str, client: str, own: dict[str, Any], images: str, tmp_path: Path
) -> None:
    run = train(settings(images, model, client, **own), tmp_path / "run")
    last = run.round("last")
    assert np.isfinite(last.read("global").parameters).all()
    facts = ModelInfo(run.layout, head=HEADS.get(model, "head"))
    frozen = np.array_equal(
        last.clients().parameters[:, facts.head_mask()],
        last.read("start").parameters[None, facts.head_mask()].repeat(3, 0),
    )
    assert frozen == (client == "fedbabu")


# --- statistics, dropout, small batches ---


def local(name: str, samples: int, **changes: Any) -> LocalTask:
    shape, settings = SMALL[name]
    module = build_module(find("models", name)(**settings), shape, 5)
    draw = torch.Generator().manual_seed(5)
    x, y = torch.randn(samples, *shape, generator=draw), torch.randint(0, 5, (samples,), generator=draw)
    start, facts = initial_model(module), ModelInfo(Layout.of(module), classes=5, head=find_head(module))
    task = LocalTask(1, 2, x, y, np.arange(samples), start, LocalSchedule(0.01, 1), seed=0, facts=facts)
    return replace(task, bench=TrainableModel(module), **changes)


def test_a_last_batch_of_one_joins_the_one_before_with_batch_norm() -> None:
    method = SGD(batch=4)
    assert [len(y) for _, y in batches(local("resnet18", 9), method)] == [4, 5]
    assert [len(y) for _, y in batches(local("resnet18-gn", 9), method)] == [4, 4, 1]
    update = method.train(local("resnet18", 9))
    assert update.steps == update.weights.buffers["bn1.num_batches_tracked"] == 2
    with pytest.raises(FedscopeError, match=r"client 2 has batches of one sample, which BatchNorm cannot normalise"):
        method.train(local("resnet18", 1))
    assert method.train(local("resnet18-gn", 1)).steps == 1


@pytest.mark.parametrize("name", ["cnn-femnist", pytest.param("mobilenetv2-gn", marks=pytest.mark.slow), "alexnet-gn"])
def test_dropout_is_drawn_by_address(name: str) -> None:
    method = SGD(batch=4)

    def trained(stream: int, **changes: Any) -> bytes:
        torch.manual_seed(stream)  # torch's own stream must not matter
        return method.train(local(name, 6, **changes)).weights.parameters.tobytes()

    assert trained(1) == trained(2)
    answers = []
    for task in (local(name, 6), local(name, 6, draw=2)):  # of the same samples in the same order
        task.place.begin(task)
        answers.append(task.place.module(task.x).detach())
    assert not torch.equal(*answers)


@pytest.mark.parametrize("model", ["cnn-femnist", "resnet20-gn"])
def test_a_run_that_is_stopped_goes_on_to_the_same_bits(
    model: str, images: str, tmp_path: Path, stop_after: Any
) -> None:
    config = settings(images, model)
    whole = train(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "stopped", watcher=stop_after(1))
    resumed = resume(tmp_path / "stopped")
    assert whole.rounds == resumed.rounds == (1, 2)
    for one, other in zip(whole.round(2).read("global").arrays().values(),
                          resumed.round(2).read("global").arrays().values(), strict=True):  # fmt: skip
        assert one.tobytes() == other.tobytes()


@pytest.mark.slow
def test_statistics_of_clients_are_averaged_as_their_parameters_are(images: str, tmp_path: Path, close: Any) -> None:
    round_ = train(settings(images, "resnet18"), tmp_path / "run").round(1)
    clients, global_ = round_.clients(), round_.read("global")
    for name, rows in clients.buffers.items():
        if name.endswith("num_batches_tracked"):
            assert global_.buffers[name] == rows[round_.client_samples.argmax()] == 2
        else:
            close(global_.buffers[name], np.tensordot(round_.weights, rows.astype(np.float64), 1), 1e-6)


# --- what they refuse ---


@pytest.mark.parametrize(
    ("name", "shape", "own", "sentence"),
    [
        ("resnet18", (64,), {}, r"'resnet18' needs images of at least 8 x 8 pixels, .* shape \[64\]; use --model mlp$"),
        ("resnet18", (3, 8, 7), {}, r"at least 8 x 8 pixels, .* \[3, 8, 7\]; enlarge the images, or use --model mlp$"),
        (
            "cnn",
            (8, 8),
            {},
            r"'cnn' needs images \[c, h, w\], but a sample has shape \[8, 8\]; give x\[:, None\] if these are grey "
            r"images, or use --model mlp$",
        ),
        ("resnet34", (3, 16, 16), {"stem": "7x7"}, r"'resnet34' needs images of at least 32 x 32 pixels"),
        ("resnet20-gn", (3, 3, 3), {}, r"'resnet20-gn' needs images of at least 4 x 4 pixels"),
        ("vgg11-gn", (3, 28, 28), {}, r"'vgg11-gn' needs images of at least 32 x 32 pixels"),
        ("alexnet-gn", (3, 62, 62), {}, r"'alexnet-gn' needs images of at least 63 x 63 pixels"),
        ("mobilenetv2-gn", (3, 28, 28), {}, r"'mobilenetv2-gn' needs images of at least 32 x 32 pixels"),
        (
            "resnet20-gn",
            (16, 16, 3),
            {},
            r"needs images \[c, h, w\], .* \[16, 16, 3\], its channels last; give np\.move",
        ),
        (
            "cnn",
            (28, 20, 1),
            {},
            r"a sample has shape \[28, 20, 1\], its channels last; give np\.moveaxis\(x, 3, 1\), or us",
        ),
        ("vgg11-gn", (32, 32, 4), {}, r"its channels last; give np\.moveaxis\(x, 3, 1\), or use --model mlp$"),
        ("cnn-femnist", (1, 5, 5), {}, r"'cnn-femnist' needs images of at least 6 x 6 pixels"),
        ("cnn-gn", (3, 7, 7), {"pools": 3}, r"'cnn-gn' needs images of at least 8 x 8 pixels"),
        ("cnn", (3, 3, 3), {}, r"'cnn' needs images of at least 4 x 4 pixels"),
        ("vit-b16", (3, 8, 8), {}, r"'vit-b16' needs images of at least 16 x 16 pixels"),
        (
            "vit-b16",
            (3, 32, 48),
            {},
            r"'vit-b16' cuts square images into patches .* \[3, 32, 48\]; have .* model.side=224",
        ),
        (
            "vit-b16",
            (3, 227, 227),
            {},
            r"patches of 16 x 16 pixels, but a sample has shape \[3, 227, 227\]; have them resized",
        ),
        ("lstm", (1, 8, 8), {}, r"'lstm' needs tokens \[n, L\], but a sample has shape \[1, 8, 8\]; use --model mlp"),
        ("gru", (1, 8, 8), {}, r"'gru' needs tokens \[n, L\]"),
        ("cnn-gn", (3, 28, 28), {"groups": 3}, r"model\.groups = 3 does not divide the 64 channels .* of cnn-gn; give"),
        ("resnet20-gn", (3, 32, 32), {"groups": 32}, r"model\.groups = 32 does not divide the 16 channels"),
    ],
)
def test_samples_of_another_kind_are_refused(
    name: str, shape: tuple[int, ...], own: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(FedscopeError, match=sentence):
        find("models", name)(**own).build(shape, 10)


@pytest.mark.parametrize("name", ["cnn", "resnet20-gn"])
def test_images_that_may_have_their_channels_last_are_said(name: str) -> None:
    """Of four channels the last axis is long enough for a network, which took it for the image's width."""
    with pytest.warns(
        FedscopeWarning, match=r"\[32, 32, 4\] as 32 channels of 32 x 4 pixels; if .* np\.moveaxis\(x, 3"
    ):
        find("models", name)().build((32, 32, 4), 10)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (4, 4, 4), (64, 8, 4), (8, 8, 8), (4, 32, 4)])
def test_images_and_maps_of_features_are_built_for_in_silence(shape: tuple[int, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        find("models", "cnn")().build(shape, 10)


def test_a_perceptron_takes_images_in_any_order_of_axes() -> None:
    module = find("models", "mlp")().build((16, 16, 3), 10)
    assert module(torch.zeros(2, 16, 16, 3)).shape == (2, 10)


@pytest.mark.parametrize("name", [name for name in SMALL if name != "vit-b16"])
def test_the_smallest_images_are_taken(name: str) -> None:
    """One pixel more than what is refused, as the sentence promises."""
    least = {"alexnet-gn": 63, "cnn-femnist": 6, "cnn-gn": 4, "mobilenetv2-gn": 32, "resnet20-gn": 4, "vgg11-gn": 32}
    side = least.get(name, 8)
    module = build_module(find("models", name)(**SMALL[name][1]), (3, side, side), 5)
    with torch.no_grad():
        assert module.eval()(torch.ones(1, 3, side, side)).shape == (1, 5)
    with pytest.raises(FedscopeError, match=rf"at least {side} x {side} pixels"):
        build_module(find("models", name)(**SMALL[name][1]), (3, side, side - 1), 5)


def test_a_head_that_is_not_there_is_refused(images: str, tmp_path: Path) -> None:
    config = settings(images, "resnet20-gn", "moon")
    tables = config.tables()
    tables["model"]["head"] = "head"
    with pytest.raises(FedscopeError, match=r"model\.head = 'head' is not a linear layer of the model; it has fc$"):
        train(Config.read(tables), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture
def text(tmp_path: Path) -> Any:
    """``text(x)``: sequences in a file that says that there are five classes."""

    def write(x: np.ndarray) -> str:
        y = np.arange(x.size).reshape(x.shape) % 5
        np.savez(tmp_path / "text.npz", x_train=x[:8], y_train=y[:8], x_test=x[8:], y_test=y[8:], classes=5)
        return f"npz:{tmp_path / 'text.npz'}"

    return write


@pytest.mark.parametrize("model", ["lstm", "gru"])
def test_a_vocabulary_that_does_not_fit_is_refused(model: str, text: Any, tmp_path: Path) -> None:
    x = np.arange(72).reshape(12, 6) % 5
    x[-1, -1] = 9  # in the test split alone
    tables: dict[str, Any] = {
        "data": {"name": text(x), "partition": "iid", "clients": 2},
        "model": {"name": model, "task": "sequences", "hidden": 4},
        "run": {"rounds": 1, "participation": 1.0},
    }
    with pytest.raises(
        FedscopeError,
        match=rf"text\.npz has the token 9, but the vocabulary of {model} has 5, .* {{'vocabulary': 10}}}}$",
    ):
        train(Config.read(tables), tmp_path / "run")
    tables["model"]["vocabulary"] = 10
    run = train(Config.read(tables), tmp_path / "run")
    assert run.round(1).read("global").arrays()["embedding.weight"].shape[0] == 10


def test_numbers_are_no_tokens(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    x, y = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32), np.arange(12) % 3
    np.savez(path, x_train=x[:8], y_train=y[:8], x_test=x[8:], y_test=y[8:])
    config = Config.read({"data": {"name": f"npz:{path}", "partition": "iid", "clients": 2}, "model": {"name": "lstm"}})
    with pytest.raises(FedscopeError, match=r"'lstm' needs tokens, but npz:.*rows\.npz has numbers in float32; give"):
        train(config, tmp_path / "run")


def test_analyses_refuse_a_vocabulary_too(text: Any) -> None:
    from fedscope.training import given_task
    from fedscope.training.inputs.samples import given_module

    x = np.arange(72).reshape(12, 6) % 7
    data = load_data(text(x), given_task("sequences"))
    with pytest.raises(FedscopeError, match=r"has the token 6, but the vocabulary of lstm has 5"):
        given_module("lstm", data)
    assert model_settings("lstm").build(data.shape, 7)(torch.from_numpy(np.asarray(x))).shape == (12, 6, 7)
