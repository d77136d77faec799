"""Names of methods and settings as papers print them: of tables and legends; files keep the names of the settings."""

from __future__ import annotations

from collections.abc import Sequence

#: of each method, as its own file calls it; a test compares. By their order methods get their looks (`looks.py`): a new
#: one goes to the end, so that no other changes its colour
PRINTED = {
    "fma": "FMA (FedAvg)",
    "ima": "IMA",
    "wima": "WIMA",
    "fedswa": "FedSWA",
    "fedprox": "FedProx",
    "scaffold": "SCAFFOLD",
    "fedmoswa": "FedMoSWA",
    "fedadam": "FedAdam",
    "fedsam": "FedSAM",
    "swa": "SWA",
    "fedsa": "FedPake (FedSA)",
    "feddyn": "FedDyn",
    "fedavgm": "FedAvgM",
    "moon": "MOON",
    "mofedsam": "MoFedSAM",
    "fedasam": "FedASAM",
    "fedcm": "FedCM",
    "fedacg": "FedACG",
    "fednova": "FedNova",
    "fedyogi": "FedYogi",
    "fedntd": "FedNTD",
    "fedadagrad": "FedAdagrad",
    "adabest": "AdaBest",
    "ditto": "Ditto",
    "fedbabu": "FedBABU",
    "fedala": "FedALA",
    "mime": "MIME",
    "diloco": "DiLoCo",
    "fedfa": "FedFA",
    "fedgen": "FedGen",
    "fedgma": "FedGMA",
    "greedy": "Greedy (soup)",
    "mimelite": "MIMELite",
    "lora": "LoRA",
    "sgd": "SGD",
    "slerp": "SLERP",
    "task-arithmetic": "Task arithmetic",
    "ties": "TIES",
    "dare": "DARE",
    "model-stock": "Model Stock",
    "checkpoints": "Weighted checkpoints",
    "fisher": "Fisher merging",
    "regmean": "RegMean",
}


def printed_method(name: str) -> str:
    """Return a method's name as it is printed, with its average over rounds; a name that is none as it is.

    >>> printed_method("fedprox+ima"), printed_method("fma"), printed_method("my rule")
    ('FedProx + IMA', 'FMA (FedAvg)', 'my rule')
    """
    parts = name.split("+")
    return " + ".join(PRINTED[part] for part in parts) if all(part in PRINTED for part in parts) else name


def printed_words(words: str, keys: Sequence[str]) -> str:
    """Return the words of a row or a column in which methods are called as they are printed.

    Args:
        keys: the settings that it is named by; without one of a method nothing is.

    >>> printed_words("ima, participation 0.1", ("method", "average.method", "run.participation"))
    'IMA, participation 0.1'
    >>> printed_words("ima", ("label",))
    'ima'
    """
    if not any(key == "method" or key.endswith(".method") for key in keys):
        return words
    return ", ".join(printed_method(part) for part in words.split(", "))


def printed_setting(key: str) -> str:
    """Return a setting's name as it is printed: its own, without its section.

    >>> printed_setting("run.participation"), printed_setting("client.local_epochs"), printed_setting("average.method")
    ('participation', 'local epochs', 'average')
    """
    section, dot, name = key.rpartition(".")
    return section if dot and name in ("method", "name") else name.replace("_", " ")
