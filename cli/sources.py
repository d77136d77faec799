"""From what a user typed to models, the module they fit and the samples they are measured on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from .given import refuse_nameless
from .options import Source

if TYPE_CHECKING:
    from torch import nn

    from ..checkpoints import Model, Run, Weights
    from ..landscape import Samples
    from ..training import Dataset


@dataclass(frozen=True)
class Question:
    """What every analysis needs besides its own settings."""

    module: nn.Module
    samples: Samples
    models: tuple[Model, ...]
    settings: dict[str, Any]
    dataset: Dataset
    runs: tuple[Run, ...]


def pose(addresses: Sequence[str], source: Source) -> Question:
    """Load the addressed models, and find the architecture and the data in their run, or in --model and --data.

    Raises:
        FedscopeError: an address that does not exist; plain files without --model and --data; runs with other data.
    """
    from ..checkpoints import FedscopeError, Layout, load_model, parse_address, read_file
    from ..training import build_module, data_of, load_data, model_settings, module_of, resolve_device

    model, data = source.model, source.data
    for address in addresses:
        if parse_address(address).round is None and not Path(address).is_file():
            read_file(address)  # says what there is instead
    runs = _runs(addresses)
    if data is None and not runs:
        raise FedscopeError(f"{addresses[0]} is a plain file, which does not say its data; give --data (and --model)")
    if model is None and not runs:
        raise FedscopeError(f"{addresses[0]} is a plain file, which does not say its architecture; give --model mlp")
    refuse_nameless(runs[:1], source)
    dataset: Dataset = load_data(data) if data else data_of(runs[0])
    if data is None:
        for run in runs[1:]:
            if run.info.get("data", {}).get("sha256") != dataset.sha256:
                raise FedscopeError(
                    f"{runs[0].path} and {run.path} were trained on different data; say with --data on which to measure"
                )
    module = build_module(model_settings(model), dataset.shape, dataset.classes) if model else module_of(runs[0])
    layout = Layout.of(module)
    models = []
    for address in addresses:
        loaded = load_model(address, layout if parse_address(address).round is None else None)
        difference = layout.difference(loaded.weights.layout)
        if difference:
            raise FedscopeError(f"{address} does not fit the architecture of {model or addresses[0]}: {difference}")
        models.append(loaded)
    samples = limited(dataset, replace(source, split="test") if source.split == "both" else source)
    where = resolve_device(source.device)
    read = {loaded.address: loaded.note for loaded in models if loaded.note}
    settings = {
        "addresses": list(addresses),
        "models_sha256": [digest(loaded.weights) for loaded in models],
        "run": [identity(run) for run in runs],
        "architecture": model,
        "behaviour": behaviour(module, samples, models[0].weights) if model and ":" in model else None,
        **describe_samples(samples, source.seed if source.limit else None),
        "precision": source.precision,
        "device": where,
        **({"models_read": read} if read else {}),
        **({} if dataset.means else {"standardised": False}),
    }
    return Question(module, samples, tuple(models), settings, dataset, tuple(runs))


def behaviour(module: nn.Module, samples: Samples, weights: Weights) -> list[float] | None:
    """What a module of the user's own answers: its layers' names stay when its code changes, and so does its address.

    The outputs of a model for four samples; None where it has none, which the evaluator refuses with the reason.
    """
    from ..landscape import Replica

    try:
        replica = Replica(module)
        replica.load(weights.parameters, weights.buffers)
        return [float(value) for value in replica.logits(replica.prepare(samples.x[:4])).flatten().tolist()]
    except Exception:
        return None


def digest(weights: Weights) -> str:
    """What tells a model from another that the same address named before: ``@last`` moves, files are replaced."""
    import hashlib

    import numpy as np

    said = hashlib.sha256(np.ascontiguousarray(weights.parameters).tobytes())
    for name, values in sorted(weights.buffers.items()):
        said.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return said.hexdigest()


def _runs(addresses: Sequence[str]) -> list[Run]:
    from ..checkpoints import Run, parse_address

    paths = {address.path: None for address in map(parse_address, addresses) if address.round is not None}
    return [Run.open(path) for path in paths]


def expand(address: str) -> list[str]:
    """``RUN@all/global`` and ``RUN@1,20,last`` as an address a round; any other address alone.

    Raises:
        FedscopeError: rounds that the run does not have.
    """
    from .options import parse_rounds

    path, at, rest = address.rpartition("@")
    rounds, slash, which = rest.partition("/")
    if not at or not (rounds == "all" or "," in rounds):
        return [address]
    run = open_run(Path(path))
    have = run.rounds
    if rounds == "all" and which in ("start", "global", "averaged"):  # not every round keeps its models
        have = tuple(t for t in have if which in run.round(t).models)
    return [f"{path}@{number}{slash}{which}" for number in parse_rounds(rounds, have, path, option="--show")]


def open_run(path: Path, option: str = "--rounds") -> Run:
    """A run, where a whole one is asked for; ``option`` is what names its rounds.

    Raises:
        FedscopeError: no run; an address of one of its models.
    """
    from ..checkpoints import FedscopeError, Run

    folder, at, rest = str(path).rpartition("@")
    if at and not path.exists() and Path(folder, "run.json").is_file():
        raise FedscopeError(f"{path} names a model, but a whole run is asked for; give {folder} (and {option} {rest})")
    return Run.open(path)


def open_runs(paths: Sequence[Path]) -> list[Run]:
    """Runs that are told apart by their names.

    Raises:
        FedscopeError: as :func:`open_run`; two of one name.
    """
    from ..checkpoints import FedscopeError

    opened = [open_run(path) for path in paths]
    names = [run.name for run in opened]
    for name in names:
        if (count := names.count(name)) > 1:
            same = len({run.path.resolve() for run in opened if run.name == name}) < count
            raise FedscopeError(
                f"{count} of the runs are called {name!r}; rename a folder"
                + (", and give a run only once" if same else "")
            )
    return opened


def identity(run: Run) -> dict[str, Any]:
    """What tells this run from another that has stood in the same folder.

    A run of another program does not say when it was made: its files do.
    """
    import hashlib

    said = {"path": str(run.path), "created": run.info.get("created"), "versions": run.info.get("versions")}
    if said["created"] is not None:
        return said
    files = [file.stat() for file in sorted((run.path / "rounds").glob("*.h5"))]
    told = repr(([(file.st_size, file.st_mtime_ns) for file in files], run.info)).encode()
    return {**said, "files": hashlib.sha256(told).hexdigest()}


def client_rounds(run: Run, rounds: str | None, *, last: bool = False) -> list[int]:
    """The rounds asked for, where their clients are needed: ``all`` are those whose clients were recorded, and without
    a word it is the first and the last of these, or with ``last`` the last.

    Raises:
        FedscopeError: rounds that the run does not have, or of which it did not record the clients.
    """
    from ..checkpoints import recorded_clients, rounds_with_clients
    from .options import parse_rounds

    have = rounds_with_clients(run)
    if rounds is None and have:
        return [have[-1]] if last else sorted({have[0], have[-1]})
    asked = "last" if rounds is None else rounds
    found = parse_rounds(asked, have if have and asked.strip() == "all" else run.rounds, str(run.path))
    for number in found:
        recorded_clients(run, number, start=False)
    return found


def refuse_other_data(runs: Sequence[Run]) -> None:
    """Refuse runs whose numbers would not lie on one axis; of those that do not say their data --data does.

    Raises:
        FedscopeError: they were trained on different data.
    """
    from ..checkpoints import FedscopeError

    said = [(run, seen) for run in runs if (seen := run.info.get("data", {}).get("sha256")) is not None]
    for run, seen in said[1:]:
        if seen != said[0][1]:
            raise FedscopeError(
                f"{said[0][0].path} and {run.path} were trained on different data; ask for one of them at a time"
            )


def limited(dataset: Dataset, source: Source) -> Samples:
    """A split of the data, or the subset that --limit asks for."""
    samples = dataset.samples(cast(Any, source.split))
    return samples if source.limit is None else samples.limit(source.limit, source.seed)


def common_samples(runs: Sequence[Run], dataset: Dataset, source: Source) -> Samples:
    """What whole runs are measured on: the test split, or the training data D of all clients, of --limit a part.

    Raises:
        FedscopeError: runs with other data, so that their numbers would not lie on one axis.
    """
    import numpy as np

    from ..checkpoints import FedscopeError
    from .factors import global_training_data

    samples: Samples | None = None
    for run in runs:
        # what a run does not say, --data has said
        same = run.info.get("data", {}).get("sha256", dataset.sha256) == dataset.sha256
        own = dataset.samples("test")
        if same and source.split == "train":
            if run.partition is None and run.is_foreign:
                raise FedscopeError(
                    f"{run.path} does not say which client holds which samples (no partition.h5), and --split train is "
                    "all clients' data; give --split test"
                )
            run.require("partition.h5")
            assert run.partition is not None, "just required"
            own = global_training_data(dataset, run.partition)
        if not same or (samples is not None and not np.array_equal(own.indices, samples.indices)):
            why = "different data" if not same else "different parts of the data (their clients keep test parts)"
            raise FedscopeError(f"{runs[0].path} and {run.path} were trained on {why}; ask for one of them at a time")
        samples = own
    assert samples is not None, "a command has a run"
    return samples if source.limit is None else samples.limit(source.limit, source.seed)


def calibration_settings(question: Question, source: Source, normalization: str) -> dict[str, Any]:
    """What a result's provenance says of the samples that statistics are re-estimated on."""
    samples = calibration_of(question, source, normalization)
    if samples is None:
        return {}
    return {"calibration_samples": len(samples), "calibration_seed": source.seed if source.limit else None}


def calibration_of(question: Question, source: Source, normalization: str) -> Samples | None:
    """The training samples on which ``--normalization re-estimate`` measures; None for the other policies."""
    if normalization != "re-estimate":
        return None
    return limited(question.dataset, replace(source, split="train"))


def describe_samples(samples: Samples, seed: int | None) -> dict[str, Any]:
    """The data of a result's provenance; the seed where a subset was drawn with one."""
    return {
        "data": samples.name,
        "data_sha256": samples.sha256,
        "split": samples.split,
        "samples": len(samples.y),
        "seed": seed,
    }
