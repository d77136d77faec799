"""Copies of modules that ``deepcopy`` refuses, and of those that it copies wrongly."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize, prune, spectral_norm, weight_norm
from torch.optim.swa_utils import AveragedModel

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning, Layout, Model, Weights
from fedscope.evaluation.device import Compute
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.model_replica import Replica
from fedscope.evaluation.module_copy import copy_module, refuse_borrowed
from fedscope.evaluation.prefix_cache import WatchedModule
from fedscope.evaluation.samples import Samples
from fedscope.landscape.curvature.derivatives import Derivatives
from fedscope.landscape.curvature.second_derivatives import PlainWeightNorm
from fedscope.training.inputs.model_outputs import refuse_other_functions

WIDTH, CLASSES = 16, 4


class Base(nn.Module):
    """One linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.flatten(1))  # type: ignore[no-any-return]


class Locked(Base):
    """Holds what Python cannot copy."""

    def __init__(self) -> None:
        super().__init__()
        self.lock, self.numbers, self.library = threading.Lock(), (i for i in range(3)), np
        self.file = Path(__file__).open()  # noqa: SIM115

    def __del__(self) -> None:
        self.file.close()

    def forward(self, x: Tensor) -> Tensor:
        with self.lock:
            return super().forward(x)


class Cached(nn.Module):
    """Parametrized weights, which are kept for a pass as the module's own code asks for it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = parametrizations.orthogonal(nn.Linear(WIDTH, WIDTH))
        self.fc = parametrizations.weight_norm(nn.Linear(WIDTH, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        with parametrize.cached():
            return self.fc(torch.tanh(self.first(x.flatten(1))))  # type: ignore[no-any-return]


class Sequence(nn.Module):
    """A recurrent network with a weight that a hook computes."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = weight_norm(nn.GRU(4, 8, batch_first=True), "weight_hh_l0")
        self.fc = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.rnn(x[:, 0])[0][:, -1])  # type: ignore[no-any-return]


def deep(last: Callable[[nn.Linear], nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(WIDTH, 8), nn.Tanh(), last(nn.Linear(8, CLASSES)))


def pruned() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    prune.random_unstructured(module[1], "weight", 0.4)
    prune.l1_unstructured(module[3], "bias", 2)
    return module


def convolutional() -> nn.Module:
    return nn.Sequential(
        weight_norm(nn.Conv2d(1, 3, 3)), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), spectral_norm(nn.Linear(12, 4))
    )


def hooked() -> nn.Module:
    module = Base()
    module.fc.register_forward_hook(lambda _, __, output: 2 * output)
    return module


def double() -> nn.Module:
    """Parameters in single precision, and others in double."""
    return nn.Sequential(nn.Flatten(), nn.Linear(WIDTH, CLASSES), nn.BatchNorm1d(CLASSES).double()).double()


MEASURED: dict[str, Callable[[], nn.Module]] = {
    "weight_norm": lambda: deep(weight_norm),
    "spectral_norm": lambda: deep(spectral_norm),
    "pruned": pruned,
    "parametrizations.weight_norm": lambda: deep(parametrizations.weight_norm),
    "parametrizations.orthogonal": lambda: deep(parametrizations.orthogonal),
    "parametrizations.spectral_norm": lambda: deep(parametrizations.spectral_norm),
    "convolutional": convolutional,
    "recurrent": Sequence,
    "cached": Cached,
    "locked": Locked,
    "hooked": hooked,
    "double": double,
}

pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")


def samples(n: int = 24) -> Samples:
    x = torch.randn(n, 1, 4, 4, generator=torch.Generator().manual_seed(5))
    return Samples(x, torch.arange(n) % CLASSES, CLASSES, "toy", "test", np.arange(n))


def made(name: str, count: int) -> list[nn.Module]:
    torch.manual_seed(len(name))
    return [MEASURED[name]() for _ in range(count)]


def weights_of(module: nn.Module) -> Weights:
    state = {key: value.detach().numpy() for key, value in module.state_dict().items()}
    return Layout.of(module).flatten(state)


def torchs_loss(module: nn.Module, part: Samples) -> Tensor:
    x = part.x.to(next(module.parameters()).dtype)
    return functional.cross_entropy(module.eval()(x), part.y)


def between(name: str, one: nn.Module, other: nn.Module) -> nn.Module:
    """A module of its own, with the state halfway between two."""
    fresh, a, b = made(name, 1)[0], one.state_dict(), other.state_dict()
    middle = {key: ((a[key].double() + b[key].double()) / 2).to(a[key].dtype) for key in a}
    fresh.load_state_dict({key: middle[key] if a[key].is_floating_point() else a[key] for key in a})
    return fresh


@pytest.mark.parametrize("name", MEASURED)
def test_losses_along_a_line_are_those_of_torchs_own_modules(name: str) -> None:
    """At both ends of the modules themselves, in the middle of a fresh one with the mean of their states."""
    one, other = made(name, 2)
    part, models = samples(), [weights_of(one), weights_of(other)]
    shares = [(1.0, 0.0), (0.5, 0.5), (0.0, 1.0)] * 4  # several workers at once, and again with the same replicas

    def form(i: int, replica: Replica) -> None:
        replica.combine(models, shares[i])

    found = {i: float(loss[0]) for i, loss, _ in Evaluator(one, part, compute=Compute(workers=3)).evaluate(12, form)}
    expected = [float(torchs_loss(module, part)) for module in (one, between(name, one, other), other)]
    np.testing.assert_allclose([found[i] for i in range(12)], expected * 4, rtol=2e-6)
    assert len({round(value, 4) for value in expected}) == 3, "a test of equal numbers would show nothing"


@pytest.mark.parametrize("name", MEASURED)
def test_gradients_and_hessians_are_in_the_parameters_that_there_are(name: str) -> None:
    (module,) = made(name, 1)
    part = samples(8)
    derivatives = Derivatives(module, part)
    model = weights_of(module)
    _, gradient = derivatives.gradient(model)
    v = np.random.default_rng(0).normal(size=model.layout.size)
    (product,) = derivatives.products(model, v[None])
    own = dict(module.named_parameters())
    parameters = [own[entry.name] for entry in model.layout.parameters]
    # torch's second derivative of weight normalization is wrong; tests/landscape/curvature has the right one by hand
    with torch.backends.cudnn.flags(enabled=False), PlainWeightNorm():
        wanted = torch.autograd.grad(torchs_loss(module, part), parameters, create_graph=True)
    flat = torch.cat([part.reshape(-1) for part in wanted])
    np.testing.assert_allclose(gradient, flat.detach().numpy(), rtol=1e-4, atol=1e-5 * float(flat.abs().max()))
    hv = torch.autograd.grad(flat @ torch.from_numpy(v).to(flat.dtype), parameters)
    exact = torch.cat([part.reshape(-1) for part in hv]).numpy()
    np.testing.assert_allclose(product, exact, rtol=1e-3, atol=1e-4 * np.abs(exact).max())


@pytest.mark.parametrize("name", MEASURED)
def test_the_original_is_left_alone_and_shares_no_weights(name: str) -> None:
    (module,) = made(name, 1)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    copy = copy_module(module)
    assert type(copy).__name__ == type(module).__name__
    with torch.no_grad():
        for parameter in copy.parameters():
            parameter.fill_(0.5)
    copy.train()(samples(8).x.to(next(copy.parameters()).dtype))
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


def test_a_module_that_was_used_is_copied_like_a_new_one() -> None:
    """A pass leaves tensors with a history, or none, in place of the weights that hooks compute."""
    for use in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        (module,) = made("weight_norm", 1)
        with use():
            module(samples(4).x)
        loss, _ = Evaluator(module, samples()).models([weights_of(module)])
        assert loss[0] == pytest.approx(float(torchs_loss(module, samples())), rel=2e-6)


def test_within_cached_every_point_has_its_own_weights() -> None:
    one, other = made("parametrizations.weight_norm", 2)
    with parametrize.cached():
        kept = one[3].weight  # type: ignore[index]
        loss, _ = Evaluator(one, samples()).models([weights_of(one), weights_of(other)])
        assert one[3].weight is kept, "the original's cache stays"  # type: ignore[index]
    expected = [float(torchs_loss(module, samples())) for module in (one, other)]
    np.testing.assert_allclose(loss, expected, rtol=2e-6)


class Closing(Base):
    """Computes with the module that its function closes over, whichever asks it."""

    def __init__(self) -> None:
        super().__init__()
        self.compute = lambda x: self.fc(x.flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(x)  # type: ignore[no-any-return]


class Referring(Base):
    """Reaches itself by a weak reference, which is copied as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.itself = weakref.ref(self)

    def forward(self, x: Tensor) -> Tensor:
        itself = self.itself()
        assert itself is not None
        return itself.fc(x.flatten(1))  # type: ignore[no-any-return]


class Stale(Base):
    """Keeps a tensor that was computed from its weights once."""

    def __init__(self, *, tracked: bool = True) -> None:
        super().__init__()
        self.scaled = 2 * self.fc.weight if tracked else self.fc.weight.data

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x.flatten(1), self.scaled)


class Attending(nn.Module):
    """Attention uses the weight of its projection without calling the layer, whose hook would compute it."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        weight_norm(self.attention.out_proj)
        self.fc = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, 0]
        return self.fc(self.attention(x, x, x, need_weights=False)[0].flatten(1))  # type: ignore[no-any-return]


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(WIDTH, CLASSES, dtype=torch.complex64))


class Counting(Base):
    def __init__(self) -> None:
        super().__init__()
        self.order = nn.Parameter(torch.arange(3), requires_grad=False)


class Sparse(Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.eye(3).to_sparse())


class TwoInputs(Base):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x * mask)


class Unwilling(Base):
    def __deepcopy__(self, memo: object) -> nn.Module:
        raise RuntimeError("no copies, please\nreally")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (Closing, r"computes with fc\.weight of the Closing that it was copied from.*make it a method"),
        (Referring, r"computes with fc\.weight of the Referring that it was copied from"),
        (Stale, r"a Stale computes with a tensor that it made of its weights before.*compute it in forward"),
        (lambda: Stale(tracked=False), r"a Stale computes with a tensor that it made of its weights before"),
        (Attending, r"a Attending computes with a tensor.*remove_weight_norm.*torch\.nn\.utils\.parametrizations"),
        (Complex, r"the module's w is complex64, and a loss surface is over real numbers; keep the real and the imag"),
        (Counting, r"the module's order is a parameter of type int64, and only floats can be varied; keep it as a buf"),
        (Sparse, r"the module's mask is a sparse tensor; give it dense"),
        (TwoInputs, r"fails on 1 of .*missing 1 required positional argument: 'mask'\); give data that it takes"),
        (Unwilling, r"a Unwilling cannot be copied \(RuntimeError: no copies, please\), and models are formed in cop"),
        (lambda: Base().to("meta"), r"fc\.weight is on the meta device, which keeps no numbers; make the module on"),
        (lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(4)), r"1\.weight has no shape yet; name its sizes"),
        (lambda: torch.jit.trace(Base(), torch.ones(1, 1, 4, 4)), r"compiled by torch\.jit.*give the module that it"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_cannot_be_measured_is_refused_in_a_sentence(make: Callable[[], Any], sentence: str) -> None:
    part = samples()
    asked: list[Callable[[], object]] = [
        lambda: Evaluator(make(), part),
        lambda: fedscope.line([make(), make()], data=(part.x, part.y), points=3),
        lambda: fedscope.sharpness(make(), data=(part.x, part.y), hessian=False),
        lambda: fedscope.cka([make(), make()], data=(part.x, part.y)),
    ]
    for ask in asked:
        with pytest.raises(FedscopeError, match=sentence) as refusal:
            ask()
        assert "\n" not in str(refusal.value)


class Remembering(Base):
    """Compares what it is given with samples that it keeps, which may be the very ones it is measured on."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.register_buffer("kept", x)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + (x.flatten(1) @ self.kept.flatten(1).T).sum(1, keepdim=True)  # type: ignore[operator]


def test_samples_that_a_module_holds_too_are_no_weights_of_another() -> None:
    part = samples()
    module = Remembering(part.x)
    loss, _ = Evaluator(module, part).models([weights_of(module)])
    assert loss[0] == pytest.approx(float(torchs_loss(module, part).detach()), rel=1e-5)


class Refreshed(Base):
    """Lets go of the weight it had when it makes it anew, so that what comes next may lie where that was."""

    before: list[Tensor | None] = []

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(self.fc.weight.detach().clone())
        del self.fc._parameters["weight"]
        self.fc.weight = self.scale * 2  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        before = weakref.ref(self.fc.weight)
        self.fc.weight = self.scale * 2  # type: ignore[assignment]
        self.before.append(before())
        return super().forward(x)


def test_what_is_made_anew_is_not_taken_for_what_lay_there_before() -> None:
    # whether an address is given again is up to the allocator: it cannot be while the tensor there lives
    module = Refreshed()
    copy, x = copy_module(module), samples().x[:1]
    Refreshed.before.clear()
    refuse_borrowed(module, copy, x)
    assert len(Refreshed.before) == 1
    assert Refreshed.before.pop() is not None


class Tempered(Base):
    """What it computes depends on a number that is in no state."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / self.temperature


def test_a_module_that_is_another_function_of_its_tensors_is_named() -> None:
    part = samples()
    with pytest.raises(FedscopeError, match=r"Tempered 2 answers otherwise than its tensors do in the architecture of"):
        fedscope.line([Tempered(1), Tempered(3)], data=(part.x, part.y), points=3)
    same = [Tempered(3), Tempered(3)]
    loss = np.ravel(fedscope.line(same, data=(part.x, part.y), points=3).loss)
    assert all(np.isclose(loss, float(torchs_loss(module, part)), rtol=2e-6).any() for module in same)


class OptimizedModule(nn.Module):
    """As ``torch.compile`` returns it; that itself takes seconds to import."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._orig_mod = module

    def forward(self, x: Tensor) -> Tensor:
        return self._orig_mod(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("wrap", [lambda module: module, nn.DataParallel, AveragedModel, OptimizedModule])
def test_a_module_that_is_another_function_than_model_says_is_named(wrap: Any) -> None:
    part, temperature = samples(), 3.0
    asked: dict[str, Any] = {"data": (part.x, part.y), "points": 3}
    torch.manual_seed(0)
    given = [wrap(Tempered(1)), wrap(Tempered(temperature))]
    with pytest.raises(FedscopeError) as refusal:
        fedscope.line(given, model=Tempered(1), **asked)
    assert str(refusal.value) == (
        f"{type(given[1]).__name__} 2 answers otherwise than its tensors do in the architecture of Tempered, so it "
        "would be measured as another network than it is; give models of one class and one set of its arguments, keep "
        "what differs in a buffer (register_buffer), or ask one at a time and leave model= out"
    )
    fedscope.line([wrap(Tempered(temperature)) for _ in range(2)], model=Tempered(temperature), **asked)
    states = [module.state_dict() for module in given]
    fedscope.line(states, model=Tempered(1), **asked)  # has no function of its own
    fedscope.sharpness(given[1], data=(part.x, part.y), hessian=False, draws=1)


class Cast(Base):
    """Computes in half precision by casts of its own, which are there in float64, too."""

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.fc.weight.bfloat16(), self.fc.bias.bfloat16()
        return functional.linear(x.flatten(1).bfloat16(), weight, bias).float()


def read(modules: list[Any]) -> list[Model]:
    """What a question reads of modules."""
    found = []
    for k, module in enumerate(modules, 1):
        weights = Layout.of(module).flatten({name: value.numpy() for name, value in module.state_dict().items()})
        found.append(Model((name := f"{type(module).__name__} {k}"), name, weights))
    return found


def warned_of(models: Any, **asked: Any) -> list[str]:
    """What a line between models warns of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", FedscopeWarning)
        fedscope.line(models, points=3, **asked)
    return [str(one.message) for one in told]


def test_a_module_that_is_off_by_what_half_precision_rounds_is_warned_of() -> None:
    part, module = samples(), Cast()
    for one, model in ((Tempered(1.001), Tempered(1)), (module, Base())):
        found = warned_of([one, model], model=model, data=(part.x, part.y))
        with torch.no_grad():
            own, x = one(part.x[:4]), part.x[:4].flatten(1)
            theirs = x @ one.fc.weight.T + one.fc.bias
        off = f"{100 * float((own - theirs).norm() / own.norm()):.2g} %"
        assert found == [
            f"{type(one).__name__} 1 answers {off} otherwise than its tensors do in the architecture of "
            f"{type(model).__name__}, which is what is measured"
        ]


@pytest.mark.parametrize(
    ("count", "named"),
    [
        (2, "Tempered 1 and Tempered 2"),
        (3, "Tempered 1, Tempered 2 and Tempered 3"),
        (5, "Tempered 1, Tempered 2, Tempered 3 and 2 more"),
    ],
)
def test_several_modules_that_are_a_little_off_are_named_in_one_warning(count: int, named: str) -> None:
    given = [Tempered(1 / (1 + k / 500)) for k in range(1, count + 1)]
    with pytest.warns(FedscopeWarning) as told:
        refuse_other_functions(Tempered(1), samples(), read(given), given, "Tempered")
    off = f"{100 * (1 - 1 / (1 + count / 500)):.2g}"
    assert [str(one.message) for one in told] == [
        f"{named} answer up to {off} % otherwise than their tensors do in the architecture of Tempered, "
        "which is what is measured"
    ]


class Masked(Tempered):
    """Has a class that nobody can be."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = super().forward(x)
        return torch.cat([outputs, torch.full_like(outputs[:, :1], -torch.inf)], 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_masked_class_makes_no_two_functions_one(dtype: torch.dtype) -> None:
    """Its infinite output made every tolerance infinite, so that another network was measured with a warning."""
    part = samples()
    with pytest.raises(FedscopeError, match=r"^Masked 2 answers otherwise than its tensors do in the architecture of "):
        fedscope.line([Masked(1).to(dtype), Masked(5).to(dtype)], points=3, data=(part.x, part.y))
    assert warned_of([Masked(1), Masked(1)], data=(part.x, part.y)) == []


class Noisy(Base):
    """Draws a little, or counts its calls."""

    def __init__(self, noise: float, count: float = 0.0) -> None:
        super().__init__()
        self.noise, self.count, self.calls = noise, count, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        answer = super().forward(x)
        return answer + self.noise * torch.randn_like(answer) + self.count * self.calls


@pytest.mark.parametrize("noise", [1e-4, 2e-4, 1e-3, 1e-2])
def test_what_answers_differently_each_time_is_not_taken_for_another_network(noise: float) -> None:
    part = samples()
    torch.manual_seed(0)
    for make in (lambda: Noisy(noise), lambda: Noisy(0, noise)):
        given = [make(), make()]
        for model in (make(), Base()):
            with warnings.catch_warnings():
                warnings.simplefilter("error", FedscopeWarning)
                refuse_other_functions(model, part, read(given), given, "Noisy")
    if noise == 1e-2:
        with pytest.raises(FedscopeError) as refusal:
            fedscope.line([Noisy(noise), Noisy(noise)], model=Noisy(noise), data=(part.x, part.y), points=3)
        assert str(refusal.value) == (
            "the module returns different outputs for the same input, so it has no loss surface; switch its randomness "
            "off in evaluation mode (functional.dropout wants training=self.training)"
        )


def test_a_module_that_overflows_in_half_precision_is_measured_in_float32() -> None:
    class Large(Base):
        def forward(self, x: Tensor) -> Tensor:
            return functional.layer_norm(1e6 * super().forward(x), (CLASSES,))

    part = samples()
    asked: dict[str, Any] = {"data": (part.x, part.y), "points": 3}
    given = [Large().half(), Large().half()]
    assert not given[0](part.x[:4].half()).isfinite().all()
    found = np.ravel(fedscope.line(given, model=Large(), **asked).loss)
    for module in given:
        assert np.isclose(found, float(torchs_loss(copy_module(module).float(), part)), rtol=2e-6).any()


class Frozen(Base):
    """Takes no attribute once it is made."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "training" and "fc" in self.__dict__.get("_modules", {}):
            raise AttributeError(f"{name} is not to be set")
        super().__setattr__(name, value)


@pytest.mark.parametrize("hooked", [False, True])
def test_a_module_that_takes_no_attributes_is_measured(hooked: bool) -> None:
    part, module, calls = samples(), Frozen(), []
    if hooked:
        vars(module)["_is_full_backward_hook"] = True
        module._backward_hooks[0] = lambda *_: calls.append("after")
        module._backward_pre_hooks[0] = lambda *_: calls.append("before")
    found = fedscope.sharpness(module, data=(part.x, part.y), hessian=False, draws=1)
    assert found.models[0].measure("loss").value == pytest.approx(float(torchs_loss(module, part)), rel=2e-6)
    copy = copy_module(module, hooked=False)
    copy(part.x.requires_grad_()).sum().backward()
    assert calls == []
    module(part.x).sum().backward()
    assert calls == (["before", "after"] if hooked else [])


def test_a_module_that_takes_no_attributes_is_watched() -> None:
    part, module = samples(), Frozen()
    watched = WatchedModule(copy_module(module))
    assert torch.equal(watched.record(part.x, ())[0], module(part.x))


def test_a_parametrized_module_that_takes_no_attributes_is_copied() -> None:
    class FrozenLinear(nn.Linear):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "__class__" and parametrize.is_parametrized(self):
                raise AttributeError(f"{name} is not to be set")
            super().__setattr__(name, value)

    module = parametrizations.orthogonal(FrozenLinear(3, 3))
    assert torch.equal(copy_module(module).weight, module.weight)


def test_modules_whose_kernels_round_otherwise_are_no_others() -> None:
    class Deep(nn.Module):
        """With what rounds: layouts of memory, dropout, running statistics, and halves within."""

        def __init__(self, halves: bool = False) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 2))
            self.drop, self.head, self.halves = nn.Dropout(), nn.Linear(8, CLASSES), halves

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.halves):
                return self.head(self.drop(self.body(x).flatten(1))).float()  # type: ignore[no-any-return]

    part = samples()
    asked: dict[str, Any] = {"data": (part.x, part.y), "points": 3, "normalization": "interpolate"}
    torch.manual_seed(0)
    for given in (
        [Deep(), Deep().to(memory_format=torch.channels_last)],
        [Deep().train(), Deep().eval()],
        [Deep(halves=True), Deep()],
    ):
        fedscope.line(given, model=Deep(), **asked)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_modules_in_half_precision_are_taken_in_float32_and_it_is_said(dtype: torch.dtype) -> None:
    part = samples()
    modules = [Base().to(dtype) for _ in range(2)]
    with pytest.warns(FedscopeWarning, match=r"a Base is in \w+, which is taken in float32"):
        loss = np.ravel(fedscope.line(modules, data=(part.x, part.y), points=3).loss)
    expected = [float(torchs_loss(copy_module(module).float(), part)) for module in modules]
    assert all(np.isclose(loss, value, rtol=2e-6).any() for value in expected)
    assert all(parameter.dtype == dtype for module in modules for parameter in module.parameters())


@pytest.mark.parametrize("name", ["weight_norm", "pruned", "parametrizations.orthogonal", "cached"])
def test_questions_on_modules_answer_as_torch(name: str) -> None:
    part, modules = samples(), made(name, 3)
    given = (part.x, part.y)
    if name == "pruned":  # with one mask: nothing lies between two
        with pytest.raises(FedscopeError, match=r"differ in the buffer 1\.weight_mask"):
            fedscope.plane(modules, data=given, grid=3)
        for module in modules[1:]:
            for buffer, first in zip(module.buffers(), modules[0].buffers(), strict=True):
                buffer.copy_(first)
    plane = fedscope.plane(modules, data=given, grid=3)
    sharp = fedscope.sharpness(modules[0], data=given, draws=1, top=1, probes=1)
    expected = [float(torchs_loss(module, part)) for module in modules]
    np.testing.assert_allclose([model.loss for model in plane.models[:3]], expected, rtol=2e-6)
    loss = sharp.models[0].measure("loss")
    assert loss is not None
    assert loss.value == pytest.approx(expected[0], rel=2e-6)
    assert fedscope.cka([modules[0], copy_module(modules[0])], data=given).cka[0, 1] == pytest.approx(1.0)
