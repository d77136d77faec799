"""What the pretend device promises, and that common things give the processor's numbers there."""

from __future__ import annotations

import copy
import io
from collections import Counter
from typing import Any

import pytest
import torch
from device.pretend import install, limit, loaded, watch
from torch import nn
from torch.nn import functional

pytestmark = pytest.mark.device


def test_the_device_is_as_it_says() -> None:
    device = install()

    def refused(what: Any, *, word: str) -> None:
        try:
            what()
        except (RuntimeError, TypeError) as error:
            said = str(error)
        else:
            said = "nothing was refused"
        assert word in said, f"{word!r} is not in {said!r}"

    def same(one: Any, other: Any, at: float = 1e-5) -> None:
        assert one.device.type == device, one.device
        torch.testing.assert_close(one.cpu(), other, rtol=at, atol=at)

    torch.manual_seed(0)
    x, y = torch.randn(6, 3, 8, 8), torch.randint(0, 5, (6,))
    there, labels = x.to(device), y.to(device)
    assert str(there.device) == "pretend:0"
    assert torch.accelerator.current_accelerator() == torch.device(device)
    refused(lambda: there + x, word="same device")
    refused(lambda: there + there.to("pretend:1"), word="same device")
    refused(lambda: x[labels], word="same device")
    refused(lambda: x.copy_(x + there.sum()), word="same device")
    refused(lambda: there.numpy(), word="numpy")
    refused(lambda: torch.rand(3, device=device, generator=torch.Generator()), word="generator")
    refused(lambda: there.long().flatten(1) @ there.long().flatten(1).T, word="implemented")
    refused(lambda: nn.Conv2d(3, 4, 3)(there), word="same device")
    refused(lambda: functional.cross_entropy(there.flatten(1), y), word="same device")
    refused(lambda: torch.empty(3, device="pretend:7"), word="ordinal")
    same(there * torch.tensor(2.0), x * 2)  # a number of the processor's
    same(there[y], x[y])  # indices of the processor's
    assert torch.empty(4, device=device).cpu().isnan().all()
    assert not torch.equal(torch.rand(4, device=device, generator=torch.Generator(device).manual_seed(1)).cpu(),
                           torch.rand(4, generator=torch.Generator().manual_seed(1)))  # fmt: skip

    networks = {
        "batch": nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                               nn.Flatten(), nn.Linear(64, 5)),
        "group": nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
                               nn.Flatten(), nn.LayerNorm(4), nn.Linear(4, 5)),
        "perceptron": nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.Tanh(), nn.Linear(16, 5)),
    }  # fmt: skip
    for name, network in networks.items():
        own = copy.deepcopy(network).to(device)
        for model, images, targets in ((network, x, y), (own, there, labels)):
            if name == "group":
                images = images.contiguous(memory_format=torch.channels_last)
            steps = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
            for _ in range(3):
                steps.zero_grad()
                functional.cross_entropy(model(images), targets).backward()
                steps.step()
        for one, other in zip(own.state_dict().values(), network.state_dict().values(), strict=True):
            same(one, other, 1e-4)
        again = copy.deepcopy(own)
        again.load_state_dict(network.state_dict())
        file = io.BytesIO()
        torch.save(own.state_dict(), file)
        file.seek(0)
        network.load_state_dict(torch.load(file, map_location="cpu"))
        with torch.no_grad(), torch.autocast(device, torch.bfloat16):
            assert own.eval()(there).dtype is torch.bfloat16

    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        layer, words = kind(4, 5, 2, batch_first=True), torch.randn(3, 7, 4)
        own = copy.deepcopy(layer).to(device)
        expected = torch.autograd.grad(layer(words)[0].square().sum(), list(layer.parameters()))
        found = torch.autograd.grad(own(words.to(device))[0].square().sum(), list(own.parameters()))
        for one, other in zip(found, expected, strict=True):
            same(one, other)
        output = own.eval()(words.to(device))[0].sum()
        refused(output.backward, word="training mode")

    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    words = torch.randn(2, 5, 8)
    same(copy.deepcopy(attention).to(device)(*[words.to(device)] * 3)[0], attention(words, words, words)[0])

    def loss(w: Any, images: Any, targets: Any) -> Any:
        return functional.cross_entropy(images.flatten(1) @ w, targets)

    w = torch.randn(4, 192, 5)
    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(0, None, None))
    same(gradients(w.to(device), there, labels), gradients(w, x, y))

    pinned = torch.empty(192).pin_memory()
    assert pinned.is_pinned()
    pinned.copy_(there[0].flatten(), non_blocking=True)
    assert pinned.isnan().all()
    torch.accelerator.synchronize()
    torch.testing.assert_close(pinned, x[0].flatten())
    event, stream = torch.Event(device), torch.Stream(device)
    with stream:
        same(there + 1, x + 1)
    event.record(stream)
    event.synchronize()

    limit(loaded().held() + 1000)
    refused(lambda: torch.zeros(1000, device=device), word="out of memory")
    limit(None)
    with watch("no-package") as seen:
        float(there.sum())
        torch.zeros(3, 2, device=device).index_add_(0, labels[:2] % 3, torch.ones(2, 2, device=device))
        there[there > 0].cpu()
    kinds = Counter(kind for kind, _, _ in seen.places.elements())
    assert kinds == {"wait": 2, "from device": 1}, seen.places
    assert list(seen.unordered) == ["aten::index_add"], seen.operators
    install(without_float64=True)
    refused(lambda: there.double(), word="float64")
    install()
    same(there.double(), x.double())
