"""The HDF5 files of TensorFlow Federated: ``examples/<user>/<what a sample has>``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ....checkpoints import FedscopeError
from ....checkpoints.io.hdf5 import open_hdf5
from ....checkpoints.io.hdf5_validation import refuse_links


@contextmanager
def open_users(path: Path, what: str, user: str, *needed: str) -> Iterator[Mapping[str, Mapping[str, Any]]]:
    """Open the users of a file, by id, in the order of their ids; each has its arrays by name, unread.

    Args:
        what: for sentences, the file: "a file of Federated EMNIST"; ``user``: "writer".
        needed: the arrays that each user has.

    Raises:
        FedscopeError: a damaged or foreign file, no user, a user without one of these, links in place of data.
    """
    import h5py

    with open_hdf5(path, None, 0, what) as file:
        refuse_links(path, file)
        users = file.get("examples")
        if not isinstance(users, h5py.Group):
            raise FedscopeError(f"{path} is not {what}: it has no group examples; copy it again")
        if not len(users):
            raise FedscopeError(f"{path} has no {user}s; copy it again")
        refuse_links(path, users)
        names = list(users)
        if strange := [name for name in names if not isinstance(name, str)]:
            raise FedscopeError(f"{path} is damaged: a {user} is called {strange[0]!r}; copy it again")
        found = {}
        for name in sorted(names):
            own = users[name]
            if isinstance(own, h5py.Group):
                refuse_links(path, own)
            if not isinstance(own, h5py.Group) or not all(isinstance(own.get(key), h5py.Dataset) for key in needed):
                raise FedscopeError(f"{path}: {user} {name} lacks {' or '.join(needed)}; copy it again")
            found[name] = own
        yield found
