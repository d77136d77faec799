"""``--download``: whole files of the published checksum or none, from a server of the tests' own."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run
from fedscope.command_line import speaking_flags
from fedscope.training.data.formats import download as downloading
from fedscope.training.data.formats.data_folder import Remote
from fedscope.training.data.formats.idx import STEMS
from fedscope.training.data.published import cifar10, mnist, tiny_imagenet
from fedscope.training.settings.registry import names

pytestmark = pytest.mark.same_elsewhere


@contextmanager
def serving(files: dict[str, bytes], cut: int = 0) -> Iterator[str]:
    """A server of these files, which are ``cut`` bytes shorter than it says."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = files.get(self.path.removeprefix("/"))
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) - cut])

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    # by itself it looks twice a second whether it shall end, for which every test would wait
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def idx(values: np.ndarray) -> bytes:
    return gzip.compress(bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes() + values.tobytes())


def mnist_files() -> dict[str, bytes]:
    draw = np.random.default_rng(0)
    made = {}
    for stem in STEMS:
        n = 40 if stem.startswith("train") else 20
        images = draw.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        made[f"{stem}.gz"] = idx(images if "images" in stem else (np.arange(n) % 10).astype(np.uint8))
    return made


def remote(url: str, files: dict[str, bytes], unpacked: str = "") -> tuple[Remote, ...]:
    return tuple(Remote(url + name, hashlib.md5(content).hexdigest(), unpacked) for name, content in files.items())


def packed(name: str, members: dict[str, bytes]) -> bytes:
    stored = io.BytesIO()
    if name.endswith(".zip"):
        with zipfile.ZipFile(stored, "w") as archive:
            for member, content in members.items():
                archive.writestr(member, content)
    else:
        with tarfile.open(fileobj=stored, mode="w:gz") as tar:
            for member, content in members.items():
                about = tarfile.TarInfo(member)
                about.size = len(content)
                tar.addfile(about, io.BytesIO(content))
    return stored.getvalue()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSCOPE_DATA", raising=False)
    return tmp_path


def test_missing_files_are_fetched_into_the_sets_folder_and_what_is_there_is_not(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = mnist_files()
    told: list[tuple[int, int]] = []
    with serving(files) as url:
        monkeypatch.setattr(mnist, "REMOTE", remote(url, files))
        fetched = fedscope.download("mnist", lambda done, of: told.append((done, of)))
        assert [path.relative_to(place.resolve()) for path in map(Path.resolve, fetched)] == [
            Path("data/mnist", name) for name in files
        ]
        for name, content in files.items():
            assert (place / "data/mnist" / name).read_bytes() == content
        assert fedscope.download("mnist") == ()
        (place / "data/mnist/train-labels-idx1-ubyte.gz").unlink()
        (place / "data/mnist/train-labels-idx1-ubyte").write_bytes(b"unpacked by hand")
        (place / "data/mnist/t10k-labels-idx1-ubyte.gz").unlink()
        assert [path.name for path in fedscope.download("mnist")] == ["t10k-labels-idx1-ubyte.gz"]
    assert told
    assert all(done <= of for done, of in told)
    assert list(place.rglob("*.tmp")) == []


def test_a_folder_that_is_typed_gets_the_files(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = mnist_files()
    with serving(files) as url:
        monkeypatch.setattr(mnist, "REMOTE", remote(url, files))
        fedscope.download("mnist:elsewhere/there")
    assert {path.name for path in (place / "elsewhere/there").iterdir()} == set(files)
    assert len(fedscope.training.load_data("mnist:elsewhere/there").y_train) == 40


@pytest.mark.parametrize("archive", ["cifar.tar.gz", "cifar.zip"])
def test_an_archive_leaves_its_folder_alone(place: Path, monkeypatch: pytest.MonkeyPatch, archive: str) -> None:
    files = {archive: packed(archive, {"cifar-10-batches-py/data_batch_1": b"one", "cifar-10-batches-py/readme": b""})}
    with serving(files) as url:
        monkeypatch.setattr(cifar10, "REMOTE", remote(url, files, "cifar-10-batches-py"))
        (found,) = fedscope.download("cifar10")
        assert found.resolve() == (place / "data/cifar-10-batches-py").resolve()
        assert (found / "data_batch_1").read_bytes() == b"one"
        assert fedscope.download("cifar10") == ()
    assert [path.name for path in (place / "data").iterdir()] == ["cifar-10-batches-py"]


def spoilt(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: content[:-1] + b"?" for name, content in files.items()}


@pytest.mark.parametrize(
    ("change", "cut", "sentence"),
    [
        (
            spoilt,
            0,
            r"train-images-idx3-ubyte.gz is not the file that is known \(md5 .*, published .*\).*try again",
        ),
        (dict, 7, r"train-images-idx3-ubyte.gz (is not the file that is known|could not be fetched)"),
        (lambda _: {}, 0, r"train-images-idx3-ubyte.gz could not be fetched \(Not Found\); get the file on a machine"),
    ],
)
def test_what_is_not_the_known_file_is_one_sentence_and_leaves_nothing(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[dict[str, bytes]], dict[str, bytes]],
    cut: int,
    sentence: str,
) -> None:
    files = mnist_files()
    with serving(change(files), cut) as url:
        monkeypatch.setattr(mnist, "REMOTE", remote(url, files))
        with pytest.raises(FedscopeError, match=sentence):
            fedscope.download("mnist")
    assert list((place / "data/mnist").iterdir()) == []


def test_without_a_network_it_is_one_sentence(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving({}) as url:
        pass  # nobody answers there any more
    monkeypatch.setattr(mnist, "REMOTE", remote(url, mnist_files()))
    assert run(["train", "--data", "mnist", "--download", "--out", "r"]) == 2
    said = capsys.readouterr().err
    assert "train-images-idx3-ubyte.gz could not be fetched (" in said
    assert "and put it into data/mnist" in said
    assert not Path("r").exists()


def test_a_server_that_falls_silent_is_given_up(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: Any, **__: Any) -> Any:
        raise TimeoutError("timed out")

    monkeypatch.setattr(downloading, "urlopen", silent)
    with pytest.raises(FedscopeError, match=r"cifar-10-python.tar.gz could not be fetched \(timed out\)"):
        fedscope.download("cifar10")


def test_an_archive_of_something_else_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"cifar.tar.gz": b"no archive at all"}
    with serving(files) as url:
        monkeypatch.setattr(cifar10, "REMOTE", remote(url, files, "cifar-10-batches-py"))
        with pytest.raises(FedscopeError, match=r"cifar.tar.gz is not the archive that is known"):
            fedscope.download("cifar10")
    assert list((place / "data").iterdir()) == []


def linked(name: str) -> bytes:
    """An archive with a link to a file outside it."""
    stored = io.BytesIO()
    if name.endswith(".zip"):
        about = zipfile.ZipInfo("cifar-10-batches-py/link")
        about.external_attr = 0o120777 << 16
        with zipfile.ZipFile(stored, "w") as archive:
            archive.writestr(about, "/etc/passwd")
    else:
        link = tarfile.TarInfo("cifar-10-batches-py/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        with tarfile.open(fileobj=stored, mode="w:gz") as tar:
            tar.addfile(link)
    return stored.getvalue()


@pytest.mark.parametrize("member", ["../../escaped", "/escaped", "a/../../escaped", "link"])
@pytest.mark.parametrize("archive", ["cifar.tar.gz", "cifar.zip"])
def test_an_archive_cannot_write_outside_its_folder(
    place: Path, monkeypatch: pytest.MonkeyPatch, archive: str, member: str
) -> None:
    within = {"cifar-10-batches-py/data_batch_1": b"one"}
    files = {archive: linked(archive) if member == "link" else packed(archive, {**within, member: b"!"})}
    with serving(files) as url:
        monkeypatch.setattr(cifar10, "REMOTE", remote(url, files, "cifar-10-batches-py"))
        # a tar's leading slash is left off, and what lies there is not the set's
        if (archive, member) == ("cifar.tar.gz", "/escaped"):
            fedscope.download("cifar10")
        else:
            with pytest.raises(FedscopeError, match=rf"{archive} is not the archive that is known \(.*(link|outside)"):
                fedscope.download("cifar10")
            assert list((place / "data").iterdir()) == []
    assert list(place.rglob("escaped")) == []
    assert not Path("/escaped").exists()


def test_a_folder_of_an_archive_that_is_typed_itself_is_not_fetched_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloading, "urlopen", None)
    (place / "sets/tiny-imagenet-200/train").mkdir(parents=True)
    assert fedscope.download("tiny-imagenet:sets/tiny-imagenet-200") == ()
    assert fedscope.download("tiny-imagenet:sets") == ()


def test_tiny_imagenet_is_fetched_as_the_zip_that_is_published(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = io.BytesIO()
    Image.fromarray(np.full((64, 64, 3), 90, np.uint8)).save(picture, "jpeg")
    members = {
        "wnids.txt": b"n02\nn01\n",
        "train/n01/images/n01_0.JPEG": picture.getvalue(),
        "train/n02/images/n02_0.JPEG": picture.getvalue(),
        "val/val_annotations.txt": b"val_0.JPEG\tn01\t0\t0\t63\t63\n",
        "val/images/val_0.JPEG": picture.getvalue(),
    }
    name = "tiny-imagenet-200.zip"
    files = {name: packed(name, {f"tiny-imagenet-200/{member}": content for member, content in members.items()})}
    with pytest.raises(
        FedscopeError,
        match=r"Get them from http://\S+tiny-imagenet-200.zip, or by fedscope.download\('tiny-imagenet'\), and",
    ):
        fedscope.training.load_data("tiny-imagenet")
    with serving(files) as url:
        monkeypatch.setattr(tiny_imagenet, "REMOTE", remote(url, files, "tiny-imagenet-200"))
        assert [path.name for path in fedscope.download("tiny-imagenet")] == ["tiny-imagenet-200"]
    data = fedscope.training.load_data("tiny-imagenet")
    assert (data.y_train.tolist(), data.y_test.tolist(), data.shape) == ([0, 1], [1], (3, 64, 64))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "pacs",
            r"pacs cannot be downloaded: it has no files with a .*; get it from https://.*be had for cifar10,",
        ),
        ("digits", r"digits cannot be downloaded: it has no files .*; its files are your own, or come with"),
        ("npz:mine.npz", r"npz cannot be downloaded: it has no files"),
        ("mnits", r"'mnits' is not a data set that fedscope knows; did you mean \"mnist\"\?"),
    ],
)
def test_what_cannot_be_fetched_says_where_it_is(name: str, sentence: str) -> None:
    with pytest.raises(FedscopeError, match=sentence):
        fedscope.download(name)


def test_a_missing_set_offers_it(place: Path) -> None:
    url = "Get them from https://.*cifar-10-python.tar.gz"
    with pytest.raises(FedscopeError, match=rf"{url}, or by fedscope\.download\('cifar10'\), and"):
        fedscope.training.load_data("cifar10")
    with speaking_flags(), pytest.raises(FedscopeError, match=f"{url}, or with --download, and"):
        fedscope.training.load_data("cifar10")
    with pytest.raises(FedscopeError, match=r"Get them from \S+ and give the folder"):
        fedscope.training.load_data("femnist")


def test_commands_fetch_first_and_say_what(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = mnist_files()
    with serving(files) as url:
        monkeypatch.setattr(mnist, "REMOTE", remote(url, files))
        words = ["--data", "mnist", "--clients", "4", "--set", "model.hidden=[4]"]
        assert run(["data", *words, "--download", "--out", "d"]) == 0
        assert "fetched data/mnist/train-images-idx3-ubyte.gz" in capsys.readouterr().err
        assert run(["train", *words, "--download", "--rounds", "1", "--out", "r"]) == 0
        assert "fetched" not in capsys.readouterr().err
    Path("c.toml").write_text('[data]\nname = "pacs"\n')
    assert run(["data", "c.toml", "--download"]) == 2
    assert "pacs cannot be downloaded: it has no files with a published checksum" in capsys.readouterr().err
    assert run(["train", "--resume", "r", "--download"]) == 2
    assert "--resume r goes on with the settings that the run has" in capsys.readouterr().err
    assert run(["train", "--from", "r@1", "--download"]) == 2
    assert "goes on with that run's data; leave --download out" in capsys.readouterr().err


def test_every_address_is_of_the_web_and_every_checksum_an_md5() -> None:
    from importlib import import_module

    seen = 0
    for name in names("data"):
        for file in getattr(import_module(f"fedscope.training.data.published.{name.replace('-', '_')}"), "REMOTE", ()):
            seen += 1
            assert file.url.startswith(("https://", "http://"))
            assert len(file.md5) == 32
            assert int(file.md5, 16)
    assert seen >= 15
