"""Architectures of folders that ``save_pretrained`` wrote, by ``transformers``: from their ``config.json`` alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...checkpoints import FedscopeError, expand_home
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.quiet import without_warnings
from ...checkpoints.io.untrusted import read_json
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.models.adapter_bases import changed_base
from ...checkpoints.models.factor_names import split_factor
from ...checkpoints.models.files import read_tensors
from ...checkpoints.models.peft_names import is_rank
from ..import_string import describe_error
from ..settings.settings import setting
from .custom import Factory

if TYPE_CHECKING:
    from torch import nn

    from ..data.dataset import Dataset

Made = TypeVar("Made")

#: begins the name of a folder as an architecture
PREFIX = "hf:"
CONFIG, ADAPTER = "config.json", "adapter_config.json"
_REMEDY = "copy or save the folder again"
#: kinds of models that are measured: the mapping of names in transformers, and the task
_KINDS = {
    "AutoModelForCausalLM": ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "sequences"),
    "AutoModelForSequenceClassification": (
        "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
        "sequence-classification",
    ),
}
_OF_CLASSES = "AutoModelForSequenceClassification"
#: the same by what PEFT calls tasks
_OF_TASKS = {"CAUSAL_LM": "AutoModelForCausalLM", "SEQ_CLS": _OF_CLASSES}
#: kinds of adapters that are put into their base, and others that PEFT does not merge into it
MEASURED = ("LORA", "ADALORA", "LOHA", "LOKR")
_NEVER_MERGED = frozenset(
    {"PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "ADAPTION_PROMPT", "CPT", "POLY", "LILY"}
    | {"XLORA", "CARTRIDGE", "SHADOW"}
)
#: in place of a token that fills up, where there is none
_NO_TOKEN = -1


@dataclass(frozen=True)
class PretrainedFolder(Factory):
    """``hf:FOLDER``: the network that the folder's ``config.json`` describes, made by ``transformers``.

    Nothing is downloaded, and no code of the folder is run. The module's own weights are zeros that take no memory:
    weights are read as those of any other file. Of the folder of an adapter of PEFT it is the base with the adapter in
    it; ``adapter_config.json`` names the base.

    Attributes:
        base: the base's folder, where an adapter's is another one than its ``adapter_config.json`` names.

    Raises:
        FedscopeError: no such folder.
    """

    base: str = setting("", "folder of an adapter's base")

    def __post_init__(self) -> None:
        super(Factory, self).__post_init__()
        if not self.path.removeprefix(PREFIX):
            raise FedscopeError("--model hf: names no folder; give that of a model, as in hf:models/tiny")

    @property
    def folder(self) -> Path:
        """As it was typed, with the home folder."""
        return expand_home(self.path.removeprefix(PREFIX))

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the module with weights of 0.

        Raises:
            FedscopeError: ``transformers`` or ``peft`` is not installed; no folder of a model; one that asks for code
                of its own; a configuration that ``transformers`` does not take, or of another kind of network.
        """
        import torch

        module = self._adapted() if (self.folder / ADAPTER).is_file() else _network(self.folder)
        for name, parameter in module.named_parameters():
            if is_rank(name):  # AdaLoRA divides by it
                continue
            parameter.requires_grad_(True)
            parameter.data = torch.zeros((), dtype=parameter.dtype).expand(parameter.shape)
        return module

    def _adapted(self) -> nn.Module:
        """The base with the adapter in it."""
        place = Path(self.base) if self.base else None
        kind = _adapted_kind(self.folder, place)
        peft = _package("peft", self.path)
        labels = labels_of_head(self.folder) if kind == _OF_CLASSES else None
        base = _network(base_of(self.folder) if place is None else place, kind, labels)
        with _explained(self.folder / ADAPTER, "peft"):
            config = peft.PeftConfig.from_pretrained(str(self.folder), local_files_only=True)
            if hasattr(config, "init_lora_weights"):
                config.init_lora_weights = True  # others compute with the base's weights, which are not there
            config.inference_mode = False
            adapted: nn.Module = peft.get_peft_model(base, config)
        return adapted


class LeaveOutPadding:
    """A hook by which a network of ``transformers`` that is called with tokens alone does not attend to padding.

    Attributes:
        token: that fills up; None where nothing does.
    """

    def __init__(self, token: int | None) -> None:
        self.token = token

    def __call__(self, _: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Add the mask; PEFT calls the network with all by name, and None for what it was not given."""
        tokens = given[0] if given else named.get("input_ids")
        if self.token is None or tokens is None or named.get("attention_mask") is not None:
            return given, named
        return given, {**named, "attention_mask": (tokens != self.token).long()}


def converted_tensors(folder: Path) -> dict[str, Any] | None:
    """Return the tensors of a folder by the names that its module has, as ``transformers`` reads them: it saves some
    networks by the names of earlier versions, as those of experts. None where the folder is of none of its classes, or
    lacks tensors.

    Raises:
        FedscopeError: ``transformers`` is not installed, or fails on it.
    """
    try:
        config = _json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    except FedscopeError:
        return None
    named = config.get("architectures")
    if "model_type" not in config or config.get("auto_map") or not isinstance(named, list) or not named:
        return None
    transformers = _package("transformers", f"{PREFIX}{folder}")
    kind: Any = getattr(transformers, str(named[0]), None)
    if not callable(getattr(kind, "from_pretrained", None)):
        return None
    options = {"local_files_only": True, "trust_remote_code": False, "dtype": "auto", "output_loading_info": True}
    with _explained(folder / CONFIG, "transformers"), _without_bars():
        module, said = kind.from_pretrained(str(folder), **options)
    if said.get("missing_keys") or said.get("mismatched_keys"):  # which it would fill with random numbers
        return None
    return {name: value.detach() for name, value in module.state_dict().items()}


@contextmanager
def _without_bars() -> Iterator[None]:
    """Read without the bar of ``transformers``, which it goes on to show afterwards where it did."""
    logging = _package("transformers.utils.logging", "")
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def heed_masks(module: nn.Module, data: Dataset, called: str) -> None:
    """Have a network leave out what an ``attention_mask`` of the data has said is padding, and no other token; without
    a mask its folder's ``pad_token_id``, which is said where it occurs.

    Args:
        module: of :class:`PretrainedFolder`; others are left as they are.
        called: its name, for sentences.
    """
    hooks = [(part, hook) for part in module.modules() for hook in part._forward_pre_hooks.values()]
    for part, hook in hooks:
        if not isinstance(hook, LeaveOutPadding):
            continue
        if data.padding is not None:
            hook.token = next(iter(data.padding), None)
            config: Any = getattr(part, "config", None)
            if hook.token is not None and getattr(config, "pad_token_id", None) == _NO_TOKEN:
                config.pad_token_id = hook.token
        elif hook.token is not None and any(
            bool((np.asarray(x) == hook.token).any()) for x in (data.x_train, data.x_test)
        ):
            warn_user(
                f"{data.name}: the token {hook.token} is left out as padding wherever it stands, because {called} says "
                "so (pad_token_id); give input_ids, attention_mask and labels where it is a token as any other"
            )


def is_pretrained(model: object) -> bool:
    """Check whether a model's name is that of a folder as an architecture."""
    return isinstance(model, str) and model.startswith(PREFIX)


def folder_as_model(path: Path | str) -> str | None:
    """Name the architecture that a model's folder describes; None where it is no folder of a network of
    ``transformers`` or of an adapter."""
    folder = Path(path)
    try:
        if (folder / ADAPTER).is_file() or "model_type" in _json(folder / CONFIG):
            return f"{PREFIX}{folder}"
    except (FedscopeError, OSError):
        pass
    return None


def task_of_folder(model: str, base: Path | str | None = None) -> str:
    """Return the name of the task that a folder's network is for.

    Args:
        base: of an adapter, where it was given.

    Raises:
        FedscopeError: as :meth:`PretrainedFolder.build`, as far as the configuration says it.
    """
    folder = PretrainedFolder(path=model).folder
    if (folder / ADAPTER).is_file():
        return _KINDS[_adapted_kind(folder, None if base is None or not Path(base).is_dir() else Path(base))][1]
    return _KINDS[_kind(folder)][1]


def _adapted_kind(folder: Path, base: Path | None) -> str:
    """Return the name of the class of ``transformers`` that makes the network which an adapter is in.

    Args:
        base: its folder, where it was given.

    Raises:
        FedscopeError: an adapter of a kind that is not measured, for other tasks, or of a changed base; without a task
            as :func:`_kind`.
    """
    config = _json(folder / ADAPTER)
    kind, task = config.get("peft_type", "LORA"), config.get("task_type")
    if kind not in MEASURED:
        remedy = (
            "save its whole state_dict (torch.save(model.state_dict(), FILE)), and with --model FILE.py:NAME give a "
            "class that takes tokens and returns their logits"
            if kind in _NEVER_MERGED
            else "give the folder that PEFT saves of it merged (merge_and_unload)"
        )
        raise FedscopeError(
            f"{folder / ADAPTER} is of an adapter of {kind}, and in a network those of {', '.join(MEASURED)} are "
            f"measured; {remedy}"
        )
    _refuse_changed_base(folder / ADAPTER)
    if task is None:
        return _kind(base_of(folder) if base is None else base)
    if task not in _OF_TASKS:
        raise FedscopeError(
            f"{folder / ADAPTER} is for the task {task}, and adapters for {' and '.join(_OF_TASKS)} are measured; give "
            "the network's class with --model FILE.py:NAME"
        )
    return _OF_TASKS[task]


def labels_of_head(folder: Path) -> int | None:
    """Return how many classes the head tells apart that an adapter's file holds; None where it holds none, or cannot be
    read, which is said when it is."""
    try:
        _, tensors, _ = read_tensors(folder, None)
    except FedscopeError:
        return None
    rows = {
        name: int(value.shape[0])
        for name, value in tensors.items()
        if {"score", "classifier"} & {*name.split(".")} and name.endswith(".weight") and len(value.shape) == 2
        if split_factor(name) is None
    }
    # of a head of several layers, which others call so, the one that gives the classes
    last = [count for name, count in rows.items() if name.endswith((".out_proj.weight", "score.weight"))]
    return min(last or rows.values(), default=None)


def base_of(folder: Path) -> Path:
    """Return the folder of an adapter's base, as its ``adapter_config.json`` names it: from here, or beside the
    adapter's folder.

    Raises:
        FedscopeError: it names none that is here.
    """
    named = _json(folder / ADAPTER).get("base_model_name_or_path")
    if isinstance(named, str) and named:
        for place in (Path(named), folder.parent / named, folder / named):
            if (place / CONFIG).is_file():
                return place
    raise FedscopeError(
        f"{folder / ADAPTER} names the base {named!r}, which is no folder with a {CONFIG} here; give it with --base"
    )


def _refuse_changed_base(place: Path) -> None:
    """Refuse an adapter that does not add to the weights of its base as they are.

    Raises:
        FedscopeError: says how it was begun, and how PEFT makes a plain one of it.
    """
    if how := changed_base(_json(place)):
        what = "kasa_config" if how == "kasa" else f"init_lora_weights {how!r}"
        raise FedscopeError(
            f"{place} says {what}: the adapter adds to changed weights, which its base does not hold; give the folder "
            "that PEFT saves of it merged (merge_and_unload) or converted (path_initial_model_for_weight_conversion)"
        )


def _network(folder: Path, kind: str | None = None, labels: int | None = None) -> nn.Module:
    """Make the network of a folder's configuration, with whatever weights memory holds.

    Args:
        kind: the class that makes it; by default the one that the configuration is of.
        labels: how many classes it tells apart, where the configuration does not say it.
    """
    transformers = _package("transformers", f"{PREFIX}{folder}")
    initialization = _package("transformers.initialization", f"{PREFIX}{folder}")
    import torch

    _known_config(folder)
    kind = kind or _kind(folder)
    with _explained(folder / CONFIG, "transformers"):
        config = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        if labels is not None and config.num_labels != labels:
            config.num_labels = labels
        config.use_cache = False  # keys and values of earlier tokens, which nothing here asks for
        made = getattr(transformers, kind)
        with initialization.no_init_weights():
            network = made.from_config(config, dtype=torch.float32, trust_remote_code=False)
        network.tie_weights()
    if kind == _OF_CLASSES:
        token = getattr(network.config, "pad_token_id", None)
        network.register_forward_pre_hook(LeaveOutPadding(token), with_kwargs=True)
        if token is None:
            network.config.pad_token_id = _NO_TOKEN  # samples have one length, and the last position counts
    made_of: nn.Module = network.eval()
    return made_of


def _kind(folder: Path) -> str:
    """Return the name of the class of ``transformers`` that makes a folder's network.

    Raises:
        FedscopeError: no configuration; one of another network; one that asks for code of its own.
    """
    config = _known_config(folder)
    named = [name for name in config.get("architectures") or () if isinstance(name, str)]
    mappings = _package("transformers.models.auto.modeling_auto", f"{PREFIX}{folder}")
    for kind, (mapping, _) in _KINDS.items():
        known = getattr(mappings, mapping)
        classes = known.values() if named else [known.get(config.get("model_type"))]
        every = {name for one in classes if one for name in ([one] if isinstance(one, str) else one)}
        if every & set(named) or (not named and every):
            return kind
    what = list_few(named) or f"the model_type {config.get('model_type')!r}"
    raise FedscopeError(
        f"{folder / CONFIG} describes {what}, and networks for the next token (...ForCausalLM) and for a class a text "
        "(...ForSequenceClassification) can be measured; give another one's class with --model FILE.py:NAME"
    )


def _known_config(folder: Path) -> dict[str, Any]:
    """Read the configuration of a folder's network.

    Raises:
        FedscopeError: there is none; it asks for code of its own.
    """
    if not (folder / CONFIG).is_file():
        reason = "has no config.json" if folder.is_dir() else "is no folder"
        raise FedscopeError(
            f"--model {PREFIX}{folder}: {folder} {reason}; give a folder that save_pretrained wrote, with its {CONFIG}"
        )
    config = _json(folder / CONFIG)
    if config.get("auto_map"):
        raise FedscopeError(
            f"{folder / CONFIG} asks for code of its own (auto_map), which is never run; if transformers knows its "
            "model_type, take auto_map out of it, else give the network's class with --model FILE.py:NAME"
        )
    return config


def _json(path: Path) -> dict[str, Any]:
    """Read a configuration.

    Raises:
        FedscopeError: it is no JSON, or no mapping.
    """
    found = read_json(path, "a model's configuration", _REMEDY)
    if not isinstance(found, dict):
        raise FedscopeError(f"{path} is no mapping of settings ({json.dumps(found)[:20]}); {_REMEDY}")
    return found


def _package(name: str, model: str) -> Any:
    """Import ``transformers`` or ``peft``, or a part of it.

    Raises:
        FedscopeError: it is not installed, or cannot be imported.
    """
    from importlib import import_module

    whole = name.partition(".")[0]
    try:
        return _beside(lambda: import_module(name))
    except ImportError as error:
        raise FedscopeError(
            f"--model {model} needs {whole}, which could not be imported ({describe_error(error)}); install it: pip "
            "install 'fedscope[language]'"
        ) from error


@contextmanager
def _explained(place: Path, package: str) -> Iterator[None]:
    """Turn whatever a package raises over a configuration into one sentence."""
    from ...evaluation.accelerators import is_out_of_memory

    try:
        with without_warnings():  # what it says to its own developers
            yield
    except FedscopeError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise FedscopeError(
            f"{place} is not taken by {package} ({describe_error(error)}); {_REMEDY}, or update {package}"
        ) from error


def _beside(make: Callable[[], Made]) -> Made:
    """Import what may import torchvision, whose compiled part may not fit torch's build."""
    from ...distributed.torchvision_import import beside_torchvision

    def both() -> Made:
        from importlib.util import find_spec

        if find_spec("torchvision") is not None:
            __import__("torchvision")  # transformers hides behind other errors what it raises
        return make()

    return beside_torchvision(both)
