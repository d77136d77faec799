"""What lies in a file's place is looked at before it is opened."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from fedscope.checkpoints import FedscopeError
from fedscope.checkpoints.io.untrusted import regular


def test_a_regular_file_and_a_link_to_one_pass(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    (tmp_path / "link").symlink_to("file")
    assert regular(tmp_path / "file") == tmp_path / "file"
    assert regular(tmp_path / "link") == tmp_path / "link"


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("kind", ["a folder", "a named pipe", "a socket", "a device"])
def test_anything_else_is_refused_with_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, linked: bool
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    path = Path("thing")
    with socket.socket(socket.AF_UNIX) as server:
        if kind == "a folder":
            path.mkdir()
        elif kind == "a named pipe":
            os.mkfifo(path)
        elif kind == "a socket":
            server.bind(str(path))
        else:
            path = Path("/dev/zero")
        if linked:
            Path("link").symlink_to(path)
            path = Path("link")
        with pytest.raises(FedscopeError, match=f"^{path} is {kind}, not a round; give a regular file$"):
            regular(path, "a round")


def test_what_cannot_be_looked_at_is_left_to_its_reader(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    for name in ("missing", "circle", "zero\0byte"):
        assert regular(tmp_path / name) == tmp_path / name
