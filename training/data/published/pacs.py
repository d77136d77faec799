"""``pacs``: Li et al., "Deeper, Broader and Artier Domain Generalization", ICCV 2017: 9,991 images of 7 classes in four
domains: real feature skew."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from ....checkpoints import FedscopeError, real_path
from ....checkpoints.io.errors import list_few
from ....evaluation.standard_tasks import CLASSIFICATION
from ....evaluation.tasks import Task
from ..dataset import Dataset, Groups
from ..formats.cache import Decoded, Room, decoded_once
from ..formats.data_folder import folders_of
from ..formats.images import images_in, read_images, subfolders

SOURCE = "https://github.com/facebookresearch/DomainBed"
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
#: the share of each domain that is the test split: the papers do not say theirs
TEST = 0.1


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """``<domain>/<class>/*.jpg`` in the folder ``argument``; a tenth of each domain, always the same, is for testing.

    Raises:
        FedscopeError: a domain that is missing; domains with other classes; images of two sizes.
    """
    place = f"--data pacs:{argument}" if argument else "--data pacs"
    root = _root(place, argument)
    classes = [path.name for path in subfolders(root / DOMAINS[0])]
    files: list[Path] = []
    labels, domains = [], []
    for number, domain in enumerate(DOMAINS):
        have = [path.name for path in subfolders(root / domain)]
        if have != classes:
            differing = list_few(sorted(set(have) ^ set(classes)))
            raise FedscopeError(f"{place}: {DOMAINS[0]} and {domain} differ in the classes {differing}; copy it again")
        for label, name in enumerate(classes):
            found = images_in(root / domain / name)
            files += found
            labels += [label] * len(found)
            domains += [number] * len(found)
    y, domain_of = np.array(labels), np.array(domains)
    test = np.zeros(len(y), dtype=bool)
    for number in range(len(DOMAINS)):
        rows = np.random.default_rng(number).permutation(np.flatnonzero(domain_of == number))
        test[rows[: round(TEST * len(rows))]] = True

    def decode(room: Room) -> Decoded:
        x_train, x_test = (
            read_images(place, [files[i] for i in np.flatnonzero(rows)], partial(room, which))
            for which, rows in (("x_train", ~test), ("x_test", test))
        )
        groups = {"domain": Groups(DOMAINS, domain_of[~test], domain_of[test])}
        return {"x_train": x_train, "y_train": y[~test], "x_test": x_test, "y_test": y[test]}, groups

    return decoded_once("pacs", root, files, decode, task)


def _root(place: str, argument: str) -> Path:
    looked = folders_of("pacs", argument, ("PACS", "PACS/kfold", "kfold"))
    for folder in looked:
        if all((folder / domain).is_dir() for domain in DOMAINS):
            return real_path(folder)
    raise FedscopeError(
        f"{place}: found no folders {', '.join(DOMAINS)}; looked in {', '.join(map(str, looked))}. Get them from "
        f"{SOURCE} and give the folder as --data pacs:PATH"
    )


PROVIDES = load
