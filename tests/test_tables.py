"""Tables that fit the terminal, whatever is in them, and plain text where there is none."""

from __future__ import annotations

import json

import numpy as np
import pytest

from saute.core.tables import as_json, columns, room
from saute.evidence.certificate import certify
from saute.evidence.stats import Interval

ROWS = [("run", "seed", "task return", "cost"), ("long/name", "0", "173.2", "12"), ("long/name", "1", "174.0", "13")]


def test_a_table_that_is_too_wide_is_parted_by_what_its_rows_share() -> None:
    assert columns(ROWS, right=[2, 3], width=40).splitlines()[1] == "long/name  0           173.2    12"
    assert columns(ROWS, right=[2, 3], width=30) == (
        "run long/name\nseed  task return  cost\n0           173.2    12\n1           174.0    13"
    )


def test_one_whose_rows_share_nothing_is_parted_into_fewer_columns() -> None:
    rows = [("seed", "task return", "cost", "worst"), ("0", "173.2", "12", "28"), ("1", "174.0", "13", "29")]
    assert columns(rows, right=[1, 2, 3], width=24) == (
        "seed  task return  cost\n0           173.2    12\n1           174.0    13\n\nseed  worst\n0        28\n1        29"
    )


@pytest.mark.parametrize("width", [60, 80])
def test_a_certificate_fits_the_terminal(width: int) -> None:
    rng = np.random.default_rng(0)
    certificate = certify(rng.uniform(0.0, 29.0, (5, 400)), 30.0, returns=rng.normal(size=(5, 400)))
    text, prose = certificate.text(width), " ".join(certificate.notes).split()
    assert max(map(len, text.splitlines())) <= width and "99 % ≤" in text and text.count("pooled") > 1
    assert text.split()[-len(prose) :] == prose and max(map(len, certificate.text().splitlines())) > width


def test_a_pipe_takes_any_width(capsys: pytest.CaptureFixture[str]) -> None:
    assert room() is None


def test_json_of_what_json_does_not_have() -> None:
    value = {"a": np.float32(0.5), "b": np.arange(2), "c": float("nan"), "d": Interval(1.0, float("inf"), 2.0)}
    assert json.loads(as_json(value)) == {"a": 0.5, "b": [0, 1], "c": None, "d": {"value": 1.0, "low": None, "high": 2.0}}
