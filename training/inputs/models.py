"""Models as a user names them, addresses, files, modules or state dicts, with their architecture and data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analysis.rounds import is_range, parse_rounds
from ...analysis.run_identity import identity
from ...analysis.runs import open_run, recorded_pair
from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError, FedscopeWarning, Layout, Model, Round, Run, Weights, parse_address
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.quiet import without_warnings
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.models.adapters import Told, about_adapters, refuse_other_scale, scale_in
from ...checkpoints.models.expected import ExpectedModel
from ...checkpoints.models.files import file_and_key, flatten_arrays, is_file_name, model_path
from ...checkpoints.models.match_names import match_names, refuse_untied
from ...checkpoints.models.state_dicts import as_arrays, find_state_dict, fit, is_tensor
from ...checkpoints.models.stored_weights import RecentWeights, StoredWeights
from ...checkpoints.models.weights import tensors_of
from ...checkpoints.models.wrappers import unwrap
from ...checkpoints.runs.addresses import distinct_labels, read_address
from ...evaluation.calibration_batches import batches_settings
from ...evaluation.device import precision_of
from .adapter_settings import refuse_misfit_adapters, refuse_unlike, told_by
from .behaviour import behaviour_settings, task_settings
from .recorded_data import data_named, dataset_asked, refuse_other_splits
from .recorded_error import compare_recorded
from .samples import (
    NO_SHAPES,
    asked_task,
    describe_samples,
    given_module,
    halves_read,
    is_own_model,
    limit_samples,
    model_named,
    name_of,
    refuse_nameless,
    shapes_of,
)

if TYPE_CHECKING:
    from torch import nn

    from ...evaluation.samples import Samples
    from .. import Dataset

#: ``RUN@ROUND[/WHICH]``, a round, a file, an ``nn.Module``, a state dict, or a model that was loaded
ModelLike = Any

#: bytes of models that are held at once; of more, those of runs are read when they are asked for
HELD = 2**30


@dataclass(frozen=True)
class ResolvedModels:
    """Loaded models, the architecture they fit and what they are measured on.

    Attributes:
        settings: what a result's provenance says of all that.
        runs: that the models are of, each once.
        told: what the models say of their adapters, each with its name; base: the weights that were given for all.
    """

    module: nn.Module
    samples: Samples
    models: tuple[Model, ...]
    settings: dict[str, Any]
    dataset: Dataset
    runs: tuple[Run, ...]
    told: tuple[Told, ...] = ()
    base: Any = None


def resolve_models(
    models: Sequence[ModelLike], source: EvaluationConfig, *, any_split: bool = False, together: bool = True
) -> ResolvedModels:
    """Load the models, and find the architecture and the data in their run, or in --model and --data.

    Args:
        together: whether the models' own numbers are averaged or compared, which of adapters is another thing than it
            seems; what they answer may be compared all the same.
        any_split: whether nobody asked for the split: of data that have test samples alone it is then these.

    Raises:
        FedscopeError: an address that does not exist; plain files without --model and --data; runs with other data;
            models that do not fit the architecture.
    """
    from ..models.pretrained import folder_as_model
    from .base import base_digest, base_named, is_implied
    from .fitting_scale import refuse_misfit
    from .model_outputs import refuse_other_functions

    _refuse_no_models(models)
    for address in (str(model) for model in models if isinstance(model, str | Path)):
        parsed = parse_address(address)
        if parsed.round is None:
            model_path(Path(parsed.path))  # says what there is instead
    runs = runs_of(models)
    first, named = _name(models, 0), source.model is not None
    architecture = source.model if source.model is not None else next(filter(is_module, models), None)
    asked = replace(source, model=architecture)
    source = replace(source, data=data_named(runs, asked))
    if architecture is None and runs:
        architecture = model_named(runs[0], source)
    elif architecture is None and isinstance(models[0], str | Path):
        architecture = folder_as_model(models[0])
        asked = replace(asked, model=architecture)
        source = replace(source, model=architecture)
    base = base_named(architecture, source.base, runs)
    _refuse_unsaid(models[0], runs, architecture, source)
    dataset = dataset_asked(runs, asked, asked_task(runs, source))
    if source.data is None:
        _refuse_other_data(runs, dataset)
    refuse_other_splits(runs, source, dataset, "say with --data on which other samples to measure")
    if any_split and not len(dataset.y_train):
        source = replace(source, split="test")
    implied = is_implied(source.base, runs)
    module = _module_for(models[0], runs, architecture, dataset, base, implied)
    said = compare_recorded(runs, asked, dataset, lambda _: module)
    expected = expected_of(module)
    told = told_by(models, names_of(models))
    refuse_unlike(told, expected.layout, base=source.base)
    refuse_misfit_adapters(told, architecture, module, expected.layout, base, is_given=source.base is not None)
    whose = str(name_of(source.model) or first)
    loaded = _load_all(models, expected, whose)
    adapters = about_adapters(expected.layout.names) if together and len(loaded) > 1 else ""
    if adapters:
        _refuse_other_alphas(loaded[0], loaded[1:])
        warn_user(adapters)
    loaded = _told_apart(loaded)
    samples = limit_samples(dataset, replace(source, split="test") if source.split == "both" else source)
    refuse_other_functions(module, samples, loaded, models, whose, named=named)
    if not runs:  # of runs, what was recorded says it
        refuse_misfit(module, dataset, [(model.address, model.weights) for model in loaded], source)
    read = {model.address: model.note for model in loaded if model.note}
    read |= {str(run.path): clause for run in runs if (clause := halves_read(run))}
    read |= {"adapters": adapters} if adapters else {}
    resolved = ResolvedModels(module, samples, loaded, {}, dataset, tuple(runs), told, source.base)
    about = {**({"models_read": read} if read else {}), **({} if dataset.means else {"standardised": False}), **said}
    sums = {} if base is None else {"base": {"path": str(base), "sha256": base_digest(module, expected.layout.names)}}
    return replace(resolved, settings=_settings_of(resolved, source, architecture, sums, about))


def _settings_of(
    resolved: ResolvedModels,
    source: EvaluationConfig,
    architecture: ModelLike,
    base: Mapping[str, Any],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what a result's provenance says of models and of what they are measured on.

    Args:
        base: what it says of a base that was given; about: of how models and data were read.
    """
    from ...evaluation.resumable import digest

    module, samples, loaded = resolved.module, resolved.samples, resolved.models
    own = is_own_model(architecture)
    return {
        "addresses": [model.address for model in loaded],
        "models_sha256": [digest(model.weights) for model in loaded],
        "run": [identity(run) for run in resolved.runs],
        "architecture": name_of(architecture),
        **(behaviour_settings(module, samples, loaded[0].weights) if own else {"behaviour": None}),
        **describe_samples(samples, source.seed if source.limit else None),
        **base,
        "precision": precision_of(module, source.precision),
        "device": source.compute.name,
        **about,
        **task_settings(module, samples, loaded[0].weights),
    }


def expected_of(module: nn.Module) -> ExpectedModel:
    """Return the model that files are expected to hold, folders of ``transformers`` by whichever names."""
    from ..models.pretrained import converted_tensors

    return replace(ExpectedModel.of(module), converted=converted_tensors)


def load_into_same(resolved: ResolvedModels, models: Sequence[ModelLike]) -> tuple[Model, ...]:
    """Load further models of the same runs, as those that were resolved.

    Raises:
        FedscopeError: models that do not fit the architecture, or whose adapters are not scaled as those.
    """
    expected = expected_of(resolved.module)
    refuse_unlike((*resolved.told, *told_by(models, names_of(models))), expected.layout, base=resolved.base)
    loaded = _load_all(models, expected, resolved.models[0].address)
    _refuse_other_alphas(resolved.models[0], loaded)
    return loaded


def read_into_same(resolved: ResolvedModels, files: Sequence[str]) -> Iterator[Model]:
    """Yield the models of further files as those that were resolved, one after the other.

    What is changed on the way is said once, with the first of the files in which it was.

    Raises:
        FedscopeError: as :func:`load_into_same`; says which file.
    """
    expected = expected_of(resolved.module)
    refuse_unlike((*resolved.told, *told_by(files, files)), expected.layout, base=resolved.base)
    said: dict[str, list[str]] = {}
    for i, file in enumerate(files):
        with without_warnings(FedscopeWarning):  # the model's note
            model = _load(files, i, expected, resolved.models[0].address)
        _refuse_other_alphas(resolved.models[0], [model])
        if model.note:
            said.setdefault(model.note, []).append(file)
        yield model
    for note, own in said.items():
        warn_user(f"{list_few(own, 3)}: {note}")


def _refuse_no_models(models: Sequence[ModelLike]) -> None:
    """Refuse what cannot be one model, before anything else is asked of it.

    Raises:
        FedscopeError: says what it is, and what to give.
    """
    for i, model in enumerate(models):
        name = _name(models, i)
        weights = model.weights if isinstance(model, Model) else model
        if isinstance(model, type):
            raise FedscopeError(
                f"{name} is the class {model.__name__}, which has no weights yet; make a module of it, "
                f"{model.__name__}(...), and give that"
            )
        if isinstance(weights, Weights):
            # a model that stays where it is stored is one, and is not read for this
            if not isinstance(weights, StoredWeights) and weights.parameters.ndim == 2:
                raise FedscopeError(
                    f"{name} is a matrix of {len(weights)} models, and one is asked for; give a row of it, as .row(0), "
                    "or the address of one, as runs/ima@20/client-0"
                )
        elif not (isinstance(model, str | Path | Mapping) or is_module(model)):
            raise FedscopeError(
                f"{name} is {type(model).__name__}, which is not a model; give RUN@ROUND, a file, an nn.Module or a "
                f"state_dict"
            )


def _refuse_unsaid(first: ModelLike, runs: Sequence[Run], architecture: Any, source: EvaluationConfig) -> None:
    """Refuse models that do not say their data or their architecture, where nobody else does.

    Raises:
        FedscopeError: says which option does.
    """
    is_file = isinstance(first, str | Path)
    name = _name([first], 0)
    if source.data is None and not runs:
        kind = "a plain file" if is_file else "a model"
        raise FedscopeError(f"{name} is {kind}, which does not say its data; give --data (and --model)")
    if architecture is None and not runs:
        kind = "a plain file" if is_file else "a state dict"
        own = "--model mlp" if is_file else "model=, the module or the class that it is of, or a name, as model='mlp'"
        raise FedscopeError(f"{name} is {kind}, which does not say its architecture; give {own}")
    refuse_nameless(runs[:1], replace(source, model=architecture))


def _refuse_other_data(runs: Sequence[Run], dataset: Dataset) -> None:
    """Refuse runs on other data than the first one's.

    Raises:
        FedscopeError: names the runs.
    """
    for run in runs[1:]:
        if run.info.get("data", {}).get("sha256") != dataset.sha256:
            raise FedscopeError(
                f"{runs[0].path} and {run.path} were trained on different data; say with --data on which to measure"
            )


def _module_for(
    first: ModelLike,
    runs: Sequence[Run],
    architecture: Any,
    dataset: Dataset,
    base: Path | str | None,
    implied: bool,
) -> nn.Module:
    """Return the module that all models are read into."""
    from ...evaluation.recorded_precision import in_recorded_precision
    from ...evaluation.rename_module import rename_as_recorded
    from .. import module_of
    from .base import with_base

    shapes = _shapes(first, runs) if dataset.classes_seen and isinstance(architecture, str) else NO_SHAPES
    module = module_of(runs[0]) if architecture is None else given_module(architecture, dataset, shapes, base)
    if architecture is not None:
        names = runs[0].layout.names if runs else _shapes(first, runs)
        module = with_base(module, names, base, str(runs[0].path) if runs else _name([first], 0), implied=implied)
    return rename_as_recorded(in_recorded_precision(module, runs[0].layout), runs[0].layout) if runs else module


def _load_all(models: Sequence[ModelLike], expected: ExpectedModel, whose: str) -> tuple[Model, ...]:
    """All models, which fit the layout.

    Raises:
        FedscopeError: tensors that cannot be read, or do not fit.
    """
    from ...evaluation.validation import refuse_numberless, refuse_unreadable

    for i, model in enumerate(models):
        clause = f"the tensors of {_name(models, i)} cannot be read: "
        if is_module(model):
            refuse_unreadable(model, clause)
        elif isinstance(model, Mapping):
            refuse_numberless(model.items(), clause)
    recent = RecentWeights(HELD // 2)
    size = expected.layout.size * expected.layout.dtype.itemsize
    stored = size * len(models) > HELD

    def load(i: int) -> Model:
        loaded = _load(models, i, expected, whose)
        if not (stored and loaded.run is not None and isinstance(models[i], str | Path)):
            return loaded
        again = partial(_read_again, models, i, expected, whose)
        return replace(loaded, weights=StoredWeights(loaded.weights.layout, again, recent))

    return tuple(map(load, range(len(models))))


def _read_again(models: Sequence[ModelLike], i: int, expected: ExpectedModel, whose: str) -> Weights:
    """Return the numbers of the i-th model, of which all has been said."""
    with without_warnings(FedscopeWarning):
        return _load(models, i, expected, whose).weights


def _load(models: Sequence[ModelLike], i: int, expected: ExpectedModel, whose: str) -> Model:
    """Return the i-th model, which fits the layout."""
    model, name, layout = models[i], _name(models, i), expected.layout
    if isinstance(model, str | Path):
        loaded = read_address(name, expected if parse_address(name).round is None else None)
    elif isinstance(model, Model):
        loaded = model
    elif isinstance(model, Weights):
        loaded = Model(name, name, model)
    else:
        loaded = _in_memory(model, name, expected, whose)
    own = loaded.weights.layout.as_in(layout)
    if own is not loaded.weights.layout:
        loaded = replace(loaded, weights=own.flatten(loaded.weights.arrays()))
    if set(own.names) != set(layout.names):  # of a run, or read before: by the names of a wrapper, perhaps
        loaded = _rename_tensors(loaded, name, expected)
        own = loaded.weights.layout
    refuse_untied(name, loaded.weights.arrays(), expected)
    difference = layout.difference(own)
    if difference:
        raise FedscopeError(f"{name} does not fit the architecture of {whose}: {difference}")
    return loaded


def _in_memory(model: Any, name: str, expected: ExpectedModel, whose: str) -> Model:
    """A module or a state dict, by the rules of files."""
    tensors = tensors_of(unwrap(model)) if is_module(model) else model
    if not tensors or not any(is_tensor(value) or isinstance(value, Mapping) for value in tensors.values()):
        raise FedscopeError(f"{name} holds other things than tensors; give model.state_dict()")
    found, place = find_state_dict(name, tensors, expected)
    try:
        arrays, stored = as_arrays(name, found)
        arrays, changes = fit(name, arrays, stored, expected)
        weights = flatten_arrays(name, arrays, expected)
    except FedscopeError as error:
        reason = str(error).removeprefix(f"{name}: ")
        raise FedscopeError(f"{name} does not fit the architecture of {whose}: {reason}") from None
    return _add_note(Model(name, name, weights), [*([place] if place else []), *changes])


def _rename_tensors(model: Model, name: str, expected: ExpectedModel) -> Model:
    """A model that was read before, by the names of the expected one; as it is where these are not in it."""
    arrays = model.weights.arrays()
    found = match_names(name, arrays, {entry.name: entry.dtype for entry in model.weights.layout.entries}, expected)
    if not found.whole:
        return model
    named = {want: arrays[given] for want, given in found.names.items()} | found.supplied
    kinds = {entry.name: entry for entry in model.weights.layout.entries}
    layout = Layout(
        tuple(
            replace(kinds[found.names[entry.name]], name=entry.name, kind=entry.kind)
            if entry.name in found.names
            else entry
            for entry in expected.layout.entries
        )
    )
    return _add_note(replace(model, weights=layout.flatten(named)), found.notes)


def _add_note(model: Model, notes: Sequence[str]) -> Model:
    """A model with what was changed, which is said."""
    if not notes:
        return model
    note = ", ".join(notes)
    warn_user(f"{model.address}: {note}")
    return replace(model, note=", ".join(filter(None, (model.note, note))))


def _told_apart(models: tuple[Model, ...]) -> tuple[Model, ...]:
    """Models whose labels differ: files of one name are called as their folders."""
    files = [
        model.address if model.run is None and is_file_name(file_and_key(model.address)[0]) else "" for model in models
    ]
    labels = distinct_labels([model.label for model in models], files)
    return tuple(replace(model, label=label) for model, label in zip(models, labels, strict=True))


def _refuse_other_alphas(first: Model, others: Sequence[Model]) -> None:
    """Refuse kohya's adapters, whose tensors say their scale, with another one than the first.

    Raises:
        FedscopeError: names both alphas.
    """
    own = scale_in(first.weights.arrays())
    for model in others if own else ():
        refuse_other_scale(first.address, own, model.address, scale_in(model.weights.arrays()))


def _shapes(model: ModelLike, runs: Sequence[Run]) -> Mapping[str, Sequence[int]]:
    """Return the shapes of a model's tensors by name, as far as they can be seen before its architecture is known."""
    if isinstance(model, str | Path):
        return shapes_in(Path(model)) if parse_address(str(model)).round is None else shapes_of(runs[0].layout)
    if isinstance(model, Model | Weights):
        return shapes_of((model.weights if isinstance(model, Model) else model).layout)
    tensors = model.state_dict() if is_module(model) else model
    if not isinstance(tensors, Mapping):
        return NO_SHAPES
    return {name: tuple(value.shape) for name, value in tensors.items() if hasattr(value, "shape")}


def shapes_in(path: Path) -> Mapping[str, Sequence[int]]:
    """Return the shapes of the tensors in a model's file; none where it cannot be read, which is said when it is."""
    from ...checkpoints.models.files import read_arrays, safetensors_shapes

    try:
        if (shapes := safetensors_shapes(path)) is not None:
            return shapes
        arrays, _ = read_arrays(path, None)
    except FedscopeError:
        return NO_SHAPES
    return {name: array.shape for name, array in arrays.items()}


def as_list(models: ModelLike | Sequence[ModelLike]) -> list[ModelLike]:
    """One model or several, pairs of them too, as a list; runs and paths by their folders' names, rounds by their
    addresses.

    >>> as_list("a@1"), as_list([("a@1", "b@2"), Path("c.pt")])
    (['a@1'], ['a@1', 'b@2', 'c.pt'])
    """
    if isinstance(models, list | tuple):
        return [model for part in models for model in as_list(part)]
    if isinstance(models, Round):
        return [models.label]
    return [str(models.path) if isinstance(models, Run) else str(models) if isinstance(models, Path) else models]


def names_of(models: Sequence[ModelLike]) -> list[str]:
    """Name models: addresses as they were given, objects by their class and place."""
    return [_name(models, i) for i in range(len(models))]


def clients_of(models: Sequence[ModelLike]) -> list[str]:
    """Return the addresses of all clients of the one round that is named.

    Raises:
        FedscopeError: not one round; one that did not record its clients; a cohort of one.
    """
    names = names_of(models)
    address = parse_address(names[0]) if names else None
    if address is None or len(names) != 1 or address.round is None or address.which is not None:
        raise FedscopeError(f"--clients takes one round, RUN@ROUND, but got {' '.join(names)}; as in runs/ima@20")
    run = Run.open(address.path)
    round_ = recorded_pair(run, run.round(address.round).number, names[0])
    return [f"{address.path}@{round_.number}/client-{k}" for k in round_.client_ids.tolist()]


def _name(models: Sequence[ModelLike], i: int) -> str:
    """An address as it was given; of objects ``Net 1``, by their place."""
    model = models[i]
    if isinstance(model, str | Path):
        return str(model)
    if isinstance(model, Model):
        return model.address
    kind = type(model).__name__ if is_module(model) else "model"
    return f"{kind} {i + 1}"


def is_module(model: ModelLike) -> bool:
    import sys

    torch = sys.modules.get("torch")  # who has a module has loaded it
    return torch is not None and isinstance(model, torch.nn.Module)


def runs_of(models: Sequence[ModelLike]) -> list[Run]:
    """Return the runs that models are of, each once.

    Raises:
        FedscopeError: an address of no run.
    """
    found: dict[Path, Run] = {}
    for model in models:
        if isinstance(model, Model) and model.run is not None:
            found.setdefault(model.run.path, model.run)
        elif isinstance(model, str | Path) and parse_address(str(model)).round is not None:
            path = Path(parse_address(str(model)).path)
            if path not in found:
                found[path] = Run.open(path)
    return list(found.values())


def expand(address: str, option: str = "--show") -> list[str]:
    """``RUN@all/global``, ``RUN@1,20,last`` and ``RUN@1-5`` as an address a round; any other address alone.

    Raises:
        FedscopeError: rounds that the run does not have.
    """
    path, at, rest = address.rpartition("@")
    rounds, slash, which = rest.partition("/")
    if not at or not (rounds == "all" or "," in rounds or is_range(rounds)):
        return [address]
    run = open_run(path)
    numbers = parse_rounds(rounds, run.rounds, path, option=option)
    if (rounds == "all" or is_range(rounds)) and which in ("start", "global", "averaged"):
        # not every round keeps its models
        numbers = [t for t in numbers if which in run.round(t).models] or (numbers if is_range(rounds) else [])
    return [f"{path}@{number}{slash}{which}" for number in numbers]


def expand_all(models: Sequence[ModelLike], option: str = "--show") -> list[ModelLike]:
    """All of them, addresses of several rounds as one a round."""
    each = (expand(model, option) if isinstance(model, str) else [model] for model in models)
    return [model for some in each for model in some]


def calibration_of(resolved: ResolvedModels, source: EvaluationConfig, normalization: str) -> Samples | None:
    """Return the training samples on which ``--normalization re-estimate`` measures; None for the other policies."""
    if normalization != "re-estimate":
        return None
    return limit_samples(resolved.dataset, replace(source, split="train"))


def calibration_settings(resolved: ResolvedModels, source: EvaluationConfig, normalization: str) -> dict[str, Any]:
    """Describe the samples that statistics are re-estimated on, for a result's provenance."""
    samples = calibration_of(resolved, source, normalization)
    if samples is None:
        return {}
    from ...evaluation.normalization import statistics_of

    seed = source.seed if source.limit else None
    batches = batches_settings(len(samples)) if statistics_of(resolved.module) else {}
    return {"calibration_samples": len(samples), "calibration_seed": seed, **batches}
