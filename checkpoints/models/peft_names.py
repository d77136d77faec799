"""Names of tensors as PEFT keeps them: in a module with the adapter's name in them, in its files without."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

#: what a module has one of for each adapter, by the adapter's name: layers, whose tensors have a name behind that
_LAYERS = (
    *("lora_A", "lora_B", "lora_magnitude_vector", "modules_to_save"),
    *("lily_A", "lily_B", "lily_router", "peanut_A", "peanut_B", "psoft_R", "adamss_A", "adamss_B"),
    *(f"glora_{letter}" for letter in "ABCDE"),
)
#: or the tensors themselves
_TENSORS = (
    *("lora_A", "lora_B", "ranknum"),  # of AdaLoRA
    *("lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector", "lora_E", "trainable_tokens_delta"),
    *("hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b", "hada_t1", "hada_t2"),
    *("lokr_w1", "lokr_w1_a", "lokr_w1_b", "lokr_w2", "lokr_w2_a", "lokr_w2_b", "lokr_t2"),
    *("vera_lambda_b", "vera_lambda_d", "hira_A", "hira_B", "hira_embedding_A", "hira_embedding_B"),
    *("deft_P", "deft_R", "poly_lora_A", "poly_lora_B", "ia3_l"),
)
_IN_LAYER = re.compile(rf"(?:^|\.)(?:{'|'.join(_LAYERS)})\.([^.]+)\.")
_IN_TENSOR = re.compile(rf"(?:^|\.)(?:{'|'.join(_TENSORS)})\.([^.]+)$")
_INSIDE = (_IN_LAYER, _IN_TENSOR)
#: what says of a module that it is an embedding, or trained whole, whose weights PEFT may save besides
_BESIDE = re.compile(r"(?:^|\.)(?:\w+_embedding_[AB]|modules_to_save|trainable_tokens_delta)\.")
#: what most networks call the layers of tokens, which PEFT saves with their weights where they are adapted
_EMBEDDINGS = frozenset({"embed_tokens", "lm_head"})
#: levels that PEFT puts round what an adapter changes, where the base has none
LEVELS = frozenset({"base_layer", "original_module", "token_adapter"})


def adapter_names(names: Iterable[str]) -> set[str]:
    """Return the names of the adapters that are in the names of a module's tensors.

    >>> adapter_names(["q.lora_A.default.weight", "q.lora_B.weight", "head.modules_to_save.default.bias"])
    {'default'}
    """
    found = (match for name in names for pattern in _INSIDE if (match := pattern.search(name)))
    return {match[1] for match in found} - {"weight", "bias"}


def file_names(names: Collection[str]) -> dict[str, str]:
    """Return what PEFT calls tensors in a file, by the names that they have; those of a file stay as they are.

    Without the adapter's name, of several without ``default``; DoRA's magnitudes without ``.weight``, and a layer that
    is trained whole by the name that it has in the base.

    >>> list(file_names(["q.lora_A.mine.weight", "head.modules_to_save.mine.bias"]).values())
    ['q.lora_A.weight', 'head.bias']
    >>> list(file_names(["q.lora_magnitude_vector.mine.weight", "q.lora_B.weight"]).values())
    ['q.lora_magnitude_vector', 'q.lora_B.weight']
    >>> list(file_names(["head.modules_to_save.default.out.weight", "head.modules_to_save.old.out.weight"]).values())
    ['head.out.weight', 'head.modules_to_save.old.out.weight']
    """
    adapters = adapter_names(names)
    own = next(iter(adapters), "") if len(adapters) < 2 else "default"
    return {name: _in_file(name, own) for name in names}


def _in_file(name: str, adapter: str) -> str:
    if adapter:  # of a layer that has layers in it, too
        name = re.sub(rf"(^|\.)modules_to_save\.{re.escape(adapter)}\.", r"\1", name)
    for pattern in _INSIDE:
        match = pattern.search(name)
        if match is not None and match[1] == adapter:
            name = name[: match.start(1) - 1] + name[match.end(1) :]
    name = re.sub(r"(^|\.)modules_to_save\.(?=[^.]+$)", r"\1", name)
    return re.sub(r"((?:^|\.)lora_magnitude_vector)\.weight$", r"\1", name)


def names_to_write(names: Collection[str]) -> dict[str, str]:
    """Return what tensors are called in a file that is written, by the names that they have: adapters alone as PEFT
    calls them, which reads them so; of other models their own names.

    >>> list(names_to_write(["base_model.q.lora_A.default.weight", "base_model.h.modules_to_save.default.b"]).values())
    ['base_model.q.lora_A.weight', 'base_model.h.b']
    >>> list(names_to_write(["base_model.n.weight", "base_model.q.base_layer.b", "base_model.q.lora_A.my.b"]).values())
    ['base_model.n.weight', 'base_model.q.base_layer.b', 'base_model.q.lora_A.my.b']
    >>> list(names_to_write(["base_model.n.bias", "base_model.q.base_layer.bias", "base_model.q.lora_A.my.b"]).values())
    ['base_model.n.bias', 'base_model.q.base_layer.bias', 'base_model.q.lora_A.b']
    >>> list(names_to_write(["base_model.e.base_layer.weight", "base_model.e.lora_embedding_A.mine"]).values())
    ['base_model.e.base_layer.weight', 'base_model.e.lora_embedding_A']
    """
    named = file_names(names)
    of_peft = all(name.startswith("base_model.") for name in names)
    own = not of_peft or len({*named.values()}) < len(named) or _holds_base(names)
    return {name: name for name in names} if own else named


def _holds_base(names: Collection[str]) -> bool:
    """Check whether a model with adapters holds the weights that these adapt: those of all layers with factors.

    Adapters alone may hold biases, and the weights of an embedding that they adapt; where they adapt no other layer, a
    whole model has other layers, too.

    >>> _holds_base(["q.base_layer.weight", "q.lora_A.my.weight"]), _holds_base(["q.base_layer.bias", "q.lora_A.my.b"])
    (True, False)
    >>> _holds_base(["lm_head.base_layer.weight", "lm_head.lora_A.my.weight"])
    False
    """
    weights = [name for name in names if "bias" not in name.rpartition(".")[2]]
    bases = {name.partition(f".{level}.")[0] for level in LEVELS for name in weights if f".{level}." in name}
    found = {name[: match.start()] for name in names for kind in _INSIDE if (match := kind.search(name))}
    beside = {name[: match.start()] for name in names if (match := _BESIDE.search(name))}
    if factors := {module for module in found - beside if module.rpartition(".")[2] not in _EMBEDDINGS}:
        return factors <= bases
    return found <= bases and any(not any(name.startswith(f"{module}.") for module in found) for name in weights)


def is_rank(name: str) -> bool:
    """Check whether a parameter is the rank of an adapter of AdaLoRA, which its settings say and no file holds.

    >>> is_rank("q.ranknum.default"), is_rank("q.lora_E.default")
    (True, False)
    """
    return name.split(".")[-2:-1] == ["ranknum"]


def base_name(name: str) -> str:
    """Return what the base calls a tensor that an adapter's layers lie round.

    >>> base_name("q.base_layer.weight"), base_name("embed.token_adapter.base_layer.weight")
    ('q.weight', 'embed.weight')
    """
    *levels, leaf = name.split(".")
    return ".".join([*(one for one in levels if one not in LEVELS), leaf])
