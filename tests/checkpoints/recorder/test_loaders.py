"""Data sets and loaders of torch: their order, chance in their samples, and that reading them draws nothing."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)

import fedscope
from fedscope import Recorder
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.checkpoints.recorder.coerce_arrays import coerce_arrays

pytestmark = pytest.mark.same_elsewhere
DRAW = np.random.default_rng(0)
X, Y = torch.from_numpy(DRAW.normal(size=(90, 2, 4)).astype(np.float32)), torch.arange(90) % 3
TRAIN, TEST = TensorDataset(X[:60], Y[:60]), TensorDataset(X[60:], Y[60:])
ROWS = {k: np.arange(60)[k::3] for k in range(3)}


class Uneven(Dataset[Any]):
    """Items whose second one is longer, in its inputs, its targets or a part of its tokens."""

    def __init__(self, part: str) -> None:
        self.part = part

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        x, y = torch.zeros(8 + (i if self.part == "x" else 0)), torch.zeros(8 + (i if self.part == "y" else 0)).long()
        if self.part in ("x", "y"):
            return x, y
        return {"input_ids": y, "labels": torch.zeros(8 + i).long() if self.part == "labels" else y}


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ("x", "data with items of shapes [8] and [9]; give all one shape"),
        ("y", "data with y of shapes [8] (item 0) and [9] (item 1); give all one shape"),
        ("labels", "data with labels of shapes [8] (item 0) and [9] (item 1); give all one shape"),
    ],
)
def test_items_of_several_shapes_are_refused(tmp_path: Path, part: str, sentence: str) -> None:
    with pytest.raises(FedscopeError) as refused:
        Recorder(tmp_path / "run", data=Uneven(part))
    assert str(refused.value) == f"data was given as Uneven, and gave {sentence}"


def test_batches_may_differ_in_their_number_and_not_in_their_shapes() -> None:
    items: Any = [(torch.zeros(8), torch.zeros(long).long()) for long in (8, 8, 8, 9)]
    assert coerce_arrays("data:", DataLoader(items[:3], batch_size=2))["y_test"].shape == (3, 8)
    with pytest.raises(FedscopeError) as refused:
        coerce_arrays("data:", DataLoader([*items[:2], items[3]], batch_size=2))
    assert str(refused.value) == "data: data with y of shapes [2, 8] (item 0) and [1, 9] (item 1); give all one shape"


def squeezed(part: str) -> Callable[[Any], Any]:
    """Collate with a batch of one that loses its only dimension."""

    def collate(items: Any) -> Any:
        x, y = torch.stack([x[0, 0] for x, _ in items]), torch.stack([y for _, y in items])
        if part == "labels":
            return {"input_ids": torch.ones(len(items), 3).long(), "labels": y.squeeze()}
        return (x.squeeze(), y) if part == "x" else (x, y.squeeze())

    return collate


@pytest.mark.parametrize("part", ["x", "y", "labels"])
@pytest.mark.parametrize(("size", "item"), [(59, 1), (1, 0)])
def test_a_squeezed_batch_of_one_is_refused(part: str, size: int, item: int) -> None:
    with pytest.raises(FedscopeError) as refused:
        coerce_arrays("data:", DataLoader(TRAIN, size, collate_fn=squeezed(part)))
    assert str(refused.value) == (
        f"data: data whose {part} of item {item} is one number, though items are batches; give a row a sample, as "
        f"{part}.reshape(-1) does where squeeze() takes the only one away"
    )


def test_a_loader_that_batches_nothing_gives_samples() -> None:
    made = coerce_arrays("data:", DataLoader(TRAIN, batch_size=None))
    np.testing.assert_array_equal(made["x_test"], TRAIN.tensors[0].numpy())
    np.testing.assert_array_equal(made["y_test"], TRAIN.tensors[1].numpy())
    texts: Any = [{"input_ids": torch.arange(1, 5) + i, "labels": torch.tensor(i % 2)} for i in range(6)]
    plain = coerce_arrays("data:", DataLoader(texts, batch_size=2))
    for name, array in coerce_arrays("data:", DataLoader(texts, batch_size=None)).items():
        np.testing.assert_array_equal(array, plain[name])


class Fixed(Sampler[int]):
    """An order of its own, which is always the same; whoever reads it cannot know."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(60))

    def __len__(self) -> int:
        return 60


class Pairs(Sampler[list[int]]):
    """Batches of its own."""

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[i, 59 - i] for i in range(30)])

    def __len__(self) -> int:
        return 30


class Streamed(IterableDataset):  # type: ignore[type-arg]
    """The same samples one after the other."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(zip(X[:60], Y[:60], strict=True))


def batched(sampler: Any, size: int = 20, drop_last: bool = False, **given: Any) -> Any:
    return DataLoader(TRAIN, batch_sampler=BatchSampler(sampler, size, drop_last), **given)


ORDERED: dict[str, Callable[[], Any]] = {
    "a loader": lambda: DataLoader(TRAIN, 7),
    "batches one after the other": lambda: batched(SequentialSampler(TRAIN)),
    "places of whole batches": lambda: DataLoader(
        TRAIN, sampler=BatchSampler(SequentialSampler(TRAIN), 20, False), batch_size=None
    ),
    "single samples": lambda: DataLoader(TRAIN, 1),
    "a part": lambda: Subset(TRAIN, range(60)),
}
OTHERS: dict[str, Callable[[], Any]] = {
    "shuffle": lambda: DataLoader(TRAIN, 7, shuffle=True),
    "sampler": lambda: DataLoader(TRAIN, 7, sampler=Fixed()),
    "batch_sampler": lambda: batched(RandomSampler(TRAIN)),
    "batches of an own sampler": lambda: batched(Fixed()),
    "own batches": lambda: DataLoader(TRAIN, batch_sampler=Pairs()),
    "places of random batches": lambda: DataLoader(
        TRAIN, sampler=BatchSampler(RandomSampler(TRAIN), 20, False), batch_size=None
    ),
}


@pytest.mark.parametrize("name", ORDERED)
def test_a_loader_in_order_goes_with_a_partition(name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        recorder = Recorder(tmp_path / "run", data=(ORDERED[name](), TEST), partition=ROWS)
        recorder.round(clients=[{"w": np.full(2, k, np.float32)} for k in range(3)])
        recorder.close()
    np.testing.assert_array_equal(np.load(tmp_path / "run/recorded-data.npz")["x_train"], X[:60].numpy())
    partition = fedscope.Run.open(tmp_path / "run").partition
    assert partition is not None
    assert partition.label_counts.tolist() == [[20, 0, 0], [0, 20, 0], [0, 0, 20]]


@pytest.mark.parametrize("name", OTHERS)
def test_a_loader_of_another_order_does_not(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        FedscopeError, match=r"draws samples in another order each time.*give its dataset: loader.dataset"
    ):
        Recorder(tmp_path / "run", data=(OTHERS[name](), TEST), partition=ROWS)
    Recorder(tmp_path / "run", data=(OTHERS[name](), TEST)).close()  # without rows no order is asked


def test_a_stream_of_samples_has_no_places_to_give_and_another_remedy(tmp_path: Path) -> None:
    loader: Any = DataLoader(Streamed(), 7)
    with pytest.raises(FedscopeError, match=r"; give arrays \(x, y\) in the order that it counts"):
        Recorder(tmp_path / "run", data=(loader, TEST), partition=ROWS)
    assert coerce_arrays("data gave", (loader, TEST))["x_train"].shape == (60, 2, 4)


@pytest.mark.parametrize(
    "loader",
    [
        lambda: DataLoader(TRAIN, 25, drop_last=True),
        lambda: batched(SequentialSampler(TRAIN), 25, True),
        lambda: DataLoader(TRAIN, sampler=BatchSampler(SequentialSampler(TRAIN), 25, True), batch_size=None),
    ],
)
def test_what_drop_last_leaves_out_is_said_of_any_sampler(loader: Callable[[], Any]) -> None:
    with pytest.warns(FedscopeWarning, match="test data of 50 samples, as drop_last leaves out the last 10; give a"):
        coerce_arrays("data gave", loader())


class Changed(Dataset):  # type: ignore[type-arg]
    """Samples that a function changes whenever they are read."""

    def __init__(self, change: Callable[[Tensor], Tensor], count: int = 300) -> None:
        self.change, self.count = change, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.change(X[i % 90]), i % 3


class Remembered(Dataset):  # type: ignore[type-arg]
    """Samples with noise that is drawn when they are read first, and kept."""

    def __init__(self) -> None:
        self.kept: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.kept.setdefault(i, X[i] + torch.rand(2, 4)), i % 3


def flip(x: Tensor) -> Tensor:
    return x.flip(-1) if torch.rand(()) < 0.5 else x


def erase(x: Tensor) -> Tensor:
    return torch.zeros_like(x) if random.random() < 0.25 else x


def mix(items: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    """A batch of random mixtures."""
    x = torch.stack([x for x, _ in items])
    return x + torch.rand(()) * x.flip(0), torch.tensor([y for _, y in items])


def mask(items: list[tuple[Tensor, int]]) -> dict[str, Tensor]:
    """A batch of tokens of which random ones are hidden."""
    tokens = torch.arange(8).repeat(len(items), 1)
    return {"input_ids": torch.where(torch.rand(tokens.shape) < 0.15, 9, tokens), "labels": tokens}


class Worn(Dataset):  # type: ignore[type-arg]
    """Samples that are changed where they lie whenever they are read."""

    def __init__(self) -> None:
        self.x = X.clone()

    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.x[i].add_(torch.rand(2, 4)), i % 3


CHANCE: dict[str, Callable[[], Any]] = {
    "flips": lambda: Changed(flip),
    "erased": lambda: Changed(erase),
    "a loader of flips": lambda: DataLoader(Changed(flip), 32),
    "a loader in another order": lambda: DataLoader(Changed(flip), 32, shuffle=True),
    "mixtures": lambda: DataLoader(TRAIN, 20, collate_fn=mix),
    "hidden tokens": lambda: DataLoader(TRAIN, 20, collate_fn=mask),
    "worn": Worn,
    "the second of two": lambda: ConcatDataset([Changed(lambda x: x), Changed(flip)]),
}
SAME: dict[str, Callable[[], Any]] = {
    "scaled": lambda: Changed(lambda x: (x - 0.1) / 0.3),
    "not finite": lambda: Changed(lambda x: torch.where(x > 0, x, torch.nan)),
    "drawn once": Remembered,
    "a loader in another order": lambda: DataLoader(TRAIN, 7, shuffle=True),
    "batches in another order": lambda: batched(RandomSampler(TRAIN)),
    "one sample": lambda: Changed(lambda x: x, 1),
    "collated": lambda: DataLoader(TRAIN, 7, collate_fn=lambda items: torch.utils.data.default_collate(items)),
    "a stream": lambda: DataLoader(Streamed(), 7),
    "of a fixed seed": lambda: Changed(lambda x: x + torch.rand(2, 4, generator=torch.Generator().manual_seed(1))),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CHANCE)
def test_chance_in_samples_is_said(name: str, seed: int) -> None:
    """The rarest, p = 0.25, is not met among 16 items once in 1,800 times; the seeds say which times these are."""
    torch.manual_seed(seed)
    random.seed(seed)
    with pytest.warns(FedscopeWarning, match="gave test data that are others whenever they are read.*of one reading"):
        coerce_arrays("data gave", CHANCE[name]())


@pytest.mark.parametrize("name", SAME)
def test_samples_that_stay_the_same_are_not(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedscopeWarning)
        coerce_arrays("data gave", SAME[name]())


def test_few_items_are_read_again() -> None:
    read = []

    def note(x: Tensor) -> Tensor:
        read.append(x)
        return x

    coerce_arrays("data gave", Changed(note, 5000))
    assert len(read) == 5000 + 2 * 16


OWN = np.random.default_rng(5)


class Noisy(Dataset):  # type: ignore[type-arg]
    """Draws from every stream that there is: the program's, one of its own, and one of its file."""

    def __init__(self) -> None:
        self.own = torch.Generator().manual_seed(3)

    def __len__(self) -> int:
        return 20

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        drawn = random.random() + np.random.rand() + OWN.random()  # noqa: NPY002
        return torch.rand(3) + torch.rand(3, generator=self.own) + drawn, i % 2


def streams(*generators: torch.Generator) -> list[Any]:
    numpys = np.random.get_state()  # noqa: NPY002
    own = [one.get_state().tolist() for one in (torch.default_generator, *generators)]
    return [own, random.getstate(), str(numpys[1]), numpys[2], OWN.bit_generator.state]


@pytest.mark.filterwarnings("ignore:.*others whenever they are read")
@pytest.mark.parametrize("wrap", ["dataset", "loader", "shuffle", "generator", "sampler", "part"])
def test_reading_draws_from_no_stream(wrap: str) -> None:
    items, given = Noisy(), torch.Generator().manual_seed(4)
    wrapped: Any = {
        "dataset": lambda: items,
        "loader": lambda: DataLoader(items, 4),
        "shuffle": lambda: DataLoader(items, 4, shuffle=True),
        "generator": lambda: DataLoader(items, 4, shuffle=True, generator=given),
        "sampler": lambda: DataLoader(
            items, batch_sampler=BatchSampler(RandomSampler(items, generator=given), 4, False)
        ),
        "part": lambda: DataLoader(Subset(items, range(10)), 4),
    }[wrap]()
    before = streams(items.own, given)
    first = coerce_arrays("data gave", wrapped)
    assert streams(items.own, given) == before
    again = coerce_arrays("data gave", wrapped)
    np.testing.assert_array_equal(first["x_test"], again["x_test"])  # so that it reads what the program would
    if wrap == "dataset":
        np.testing.assert_array_equal(first["x_test"][0], items[0][0].numpy().astype(first["x_test"].dtype))


def test_streams_are_put_back_after_a_failure_too() -> None:
    def fail(x: Tensor) -> Tensor:
        raise OSError(f"no sample, {torch.rand(3)}")

    before = streams()
    with pytest.raises(OSError, match="no sample"):
        coerce_arrays("data gave", Changed(fail))
    assert streams() == before


@pytest.mark.parametrize("data", ["none", "arrays", "loaders"])
def test_a_loop_ends_where_it_would_without_a_recorder(data: str, tmp_path: Path) -> None:
    def loop(recorded: Any) -> Tensor:
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8, 3))
        if recorded is not None:
            Recorder(tmp_path / "run", model=module, data=recorded).close()
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
        for x, y in DataLoader(TRAIN, 10, shuffle=True):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(module(x), y).backward()
            optimiser.step()
        return torch.nn.utils.parameters_to_vector(module.parameters()).detach()

    loaders = DataLoader(TRAIN, 10, shuffle=True), DataLoader(TEST, 10)
    arrays = tuple(one.tensors for one in (TRAIN, TEST))
    given = {"none": None, "arrays": arrays, "loaders": loaders}[data]
    assert torch.equal(loop(given), loop(None))


def test_a_question_that_is_given_a_loader_draws_nothing() -> None:
    nets = [torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8, 3)) for _ in range(2)]
    before = streams()
    fedscope.line(nets, data=DataLoader(TEST, 10, shuffle=True), points=3)
    assert streams() == before


XS, YS = [[[0.5, 1.0], [2.0, 3.0], [4.0, 5.0]], [[6.0, 7.0], [8.0, 9.0], [1.5, 2.5]]], [[0, 1, 1], [1, 0, 0]]


@pytest.mark.parametrize(
    "given",
    {
        "tuples of lists": ((XS[0], YS[0]), (XS[1], YS[1])),
        "lists of lists": ([XS[0], YS[0]], [XS[1], YS[1]]),
        "labels as lists": ((np.array(XS[0]), YS[0]), (np.array(XS[1]), YS[1])),
        "lists of an array and a list": ([np.array(XS[0]), YS[0]], [np.array(XS[1]), YS[1]]),
        "a tensor in one": ((torch.tensor(XS[0]), YS[0]), (XS[1], torch.tensor(YS[1]))),
    }.items(),
    ids=lambda given: given[0],
)
def test_two_splits_of_lists_are_no_two_samples(given: tuple[str, Any]) -> None:
    """Training and test samples were each one sample, the one the target of the other, without a word."""
    read = coerce_arrays("data gave", given[1])
    wanted = {"x_train": XS[0], "y_train": YS[0], "x_test": XS[1], "y_test": YS[1]}
    assert {name: array.tolist() for name, array in read.items()} == wanted


def test_targets_that_look_like_samples_are_a_split_in_tuples() -> None:
    read = coerce_arrays("data gave", ((XS[0], XS[0]), (XS[1], XS[1])))
    assert [read[name].tolist() for name in ("x_train", "y_train", "x_test", "y_test")] == [XS[0]] * 2 + [XS[1]] * 2


@pytest.mark.parametrize("x", [XS[0][:2], tuple(XS[0][:2]), (torch.ones(2), torch.ones(2))])
@pytest.mark.parametrize("y", [[0, 1], (0, 1), (torch.tensor(0), torch.tensor(1))])
def test_two_samples_stay_two_samples(x: Any, y: Any) -> None:
    read = coerce_arrays("data gave", (x, y))
    assert (read["x_test"].shape, read["y_test"].tolist()) == ((2, 2), [0, 1])


def test_a_dictionary_of_tokens_for_each_split() -> None:
    """It was refused as an x_test that is a dict, though one alone is taken."""
    train, test = ({"input_ids": [[k, 2, 3]], "labels": [1]} for k in (4, 5))
    read = coerce_arrays("data gave", (train, test))
    assert (read["x_train"].tolist(), read["x_test"].tolist()) == ([[4, 2, 3]], [[5, 2, 3]])
    assert (read["y_train"].tolist(), read["y_test"].tolist()) == ([1], [1])


def test_lists_of_several_lengths_are_told() -> None:
    with pytest.raises(FedscopeError) as told:
        coerce_arrays("data gave", ([[1, 2], [3]], [0, 1]))
    assert str(told.value) == (
        "data gave an x_test that is a list of parts of several lengths; fill all up to one, or give tensors or NumPy "
        "arrays"
    )


@pytest.mark.parametrize("both", [False, True])
def test_an_iterable_data_set_is_told_what_takes_it(both: bool) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter([(torch.ones(2), 0), (torch.ones(2), 1)])

    with pytest.raises(FedscopeError) as told:
        coerce_arrays("data gave", (Stream(), Stream()) if both else Stream())
    assert str(told.value) == "data gave an IterableDataset, which has no length; give a DataLoader of it"
    assert coerce_arrays("data gave", DataLoader(Stream()))["x_test"].shape == (2, 2)
