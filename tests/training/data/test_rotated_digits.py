"""``rotated-digits``: the samples of ``digits``, each turned by its domain's angle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedscope.checkpoints import FedscopeError
from fedscope.cli.main import run
from fedscope.training import Config, train
from fedscope.training.data.dataset import Dataset
from fedscope.training.data.published import digits, rotated_digits
from fedscope.training.data.published.rotated_digits import ANGLES, domains_of, rotate

SPLITS = ("train", "test")


@pytest.fixture(scope="module")
def data() -> Dataset:
    return rotated_digits.load("")


def pixels(data: Dataset, split: str) -> np.ndarray:
    """As they were before they were standardised, [n, 8, 8]."""
    x = np.asarray(getattr(data, f"x_{split}"), np.float64)[:, 0]
    return np.asarray(np.round((x * data.deviations[0] + data.means[0]) * 256) / 256)


@pytest.mark.parametrize("split", SPLITS)
def test_the_samples_are_those_of_digits_and_upright_ones_stay_as_they_are(data: Dataset, split: str) -> None:
    plain, domain = digits.split_digits(), getattr(data.groups["domain"], split)
    np.testing.assert_array_equal(getattr(data, f"y_{split}"), plain[f"y_{split}"])
    upright = domain == 0
    np.testing.assert_array_equal(pixels(data, split)[upright], plain[f"x_{split}"][upright])
    for number, angle in enumerate(ANGLES):
        rows = domain == number
        turned = [
            Image.fromarray(x).rotate(angle, Image.Resampling.BILINEAR, fillcolor=0) for x in plain[f"x_{split}"][rows]
        ]
        # within the circle that stays in the image: beyond it, libraries differ in what the edge is
        y, x = np.mgrid[:8, :8] - 3.5
        inside = np.hypot(x, y) <= 3.5
        np.testing.assert_allclose(
            pixels(data, split)[rows][:, inside],
            np.stack([np.asarray(image) for image in turned])[:, inside],
            atol=0.01,
        )


@pytest.mark.parametrize("split", SPLITS)
def test_every_class_is_spread_evenly_over_six_domains(data: Dataset, split: str) -> None:
    domain, y = getattr(data.groups["domain"], split), getattr(data, f"y_{split}")
    assert data.groups["domain"].names == tuple(f"{angle} deg" for angle in (0, 15, 30, 45, 60, 75))
    table = np.zeros((10, 6), int)
    np.add.at(table, (y, domain), 1)
    assert np.ptp(table, axis=1).max() <= 1
    assert np.ptp(table.sum(0)) <= 1
    np.testing.assert_array_equal(domain, domains_of(y))


def test_the_spread_is_shuffled_within_a_class() -> None:
    dealt = domains_of(np.zeros(600, int))
    assert np.bincount(dealt).tolist() == [100] * 6
    # sorted would be 1, in turn would be 0
    assert 0.1 < np.mean(dealt[1:] == dealt[:-1]) < 0.25


def test_quarter_turns_move_pixels_and_four_of_them_nothing() -> None:
    x = (np.random.default_rng(0).integers(0, 17, (5, 8, 8)) / 16).astype(np.float32)
    np.testing.assert_array_equal(rotate(x, 0), x)
    np.testing.assert_array_equal(rotate(x, 90), np.rot90(x, axes=(1, 2)))
    np.testing.assert_array_equal(rotate(x, -90), np.rot90(x, -1, axes=(1, 2)))
    assert rotate(x, 30).dtype == np.float32
    assert not np.array_equal(rotate(x, 30), x)


def test_pixels_keep_their_range_and_are_far_from_where_processors_round_differently(data: Dataset) -> None:
    """A tie would be stored as one or the other, and its data set be another one elsewhere."""
    from scipy.ndimage import rotate

    plain = digits.split_digits()["x_train"].astype(np.float64)
    for angle in ANGLES[1:]:
        steps = rotate(plain, angle, axes=(1, 2), reshape=False, order=1) * 256
        assert np.abs(steps - np.floor(steps) - 0.5).min() > 1e-6
    for split in SPLITS:
        assert pixels(data, split).min() == 0
        assert pixels(data, split).max() == 1


def test_it_is_split_by_domain_and_measured_in_each(tmp_path: Path) -> None:
    federation = {"name": "rotated-digits", "partition": "domains:6", "clients": 36}
    made = train(
        Config.read({"data": federation, "run": {"rounds": 1}, "model": {"hidden": [4]}}), tmp_path / "run", workers=1
    )
    domain = rotated_digits.load("").groups["domain"].train
    assert [np.unique(domain[rows]).tolist() for rows in made.partition.clients] == [[k // 6] for k in range(36)]
    assert {f"test_error_{angle}_deg" for angle in ANGLES} <= made.metrics().keys()


def test_mistakes_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FedscopeError, match="rotated-digits:30 takes no argument; give --data rotated-digits"):
        rotated_digits.load("30")
    for words, sentence in (
        (["--data", "rotated_digits"], "did you mean"),
        (["--data", "rotated-digits", "--partition", "domains:6", "--clients", "20"], "give --clients 36"),
        (["--data", "digits", "--partition", "domains:6"], "which these data do not know"),
    ):
        assert run(["train", *words, "--out", str(tmp_path / "r")]) == 2
        assert sentence in capsys.readouterr().err
