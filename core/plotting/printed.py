"""Names of methods and settings as papers print them: of tables and legends; files keep the names of the settings."""

from __future__ import annotations

from collections.abc import Sequence

#: of each method, as its own file calls it; a test compares
_PRINTED = {
    "adabest": "AdaBest",
    "diloco": "DiLoCo",
    "ditto": "Ditto",
    "fedacg": "FedACG",
    "fedadagrad": "FedAdagrad",
    "fedadam": "FedAdam",
    "fedala": "FedALA",
    "fedasam": "FedASAM",
    "fedavgm": "FedAvgM",
    "fedbabu": "FedBABU",
    "fedcm": "FedCM",
    "feddyn": "FedDyn",
    "fedfa": "FedFA",
    "fedgen": "FedGen",
    "fedgma": "FedGMA",
    "fedmoswa": "FedMoSWA",
    "fednova": "FedNova",
    "fedntd": "FedNTD",
    "fedprox": "FedProx",
    "fedsa": "FedPake (FedSA)",
    "fedsam": "FedSAM",
    "fedswa": "FedSWA",
    "fedyogi": "FedYogi",
    "fma": "FMA (FedAvg)",
    "greedy": "Greedy (soup)",
    "ima": "IMA",
    "mime": "MIME",
    "mimelite": "MIMELite",
    "mofedsam": "MoFedSAM",
    "moon": "MOON",
    "scaffold": "SCAFFOLD",
    "sgd": "SGD",
    "swa": "SWA",
    "wima": "WIMA",
}


def printed_method(name: str) -> str:
    """Return a method's name as it is printed, with its average over rounds; a name that is none as it is.

    >>> printed_method("fedprox+ima"), printed_method("fma"), printed_method("my rule")
    ('FedProx + IMA', 'FMA (FedAvg)', 'my rule')
    """
    parts = name.split("+")
    return " + ".join(_PRINTED[part] for part in parts) if all(part in _PRINTED for part in parts) else name


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
