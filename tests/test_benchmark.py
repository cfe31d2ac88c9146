"""The field's benchmark: runs can be made, tables are ours beside what was published, the page says what the files say."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from made_up import row

from saute.core.files import write_sealed
from saute.paper.benchmark import compared, published
from saute.paper.durations import expected_seconds
from saute.paper.figures import ARTIFACTS, BENCHMARK, SAFER, artifact_of
from saute.paper.published import COLUMNS, PUBLISHED
from saute.paper.reproduce import Scale, scaled

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize("name", BENCHMARK)
@pytest.mark.parametrize("scale", ["smoke", "laptop", "paper"])
def test_every_run_can_be_made(name: str, scale: Scale) -> None:
    assert not BENCHMARK.keys() & (ARTIFACTS | SAFER).keys()
    for one in artifact_of(name).rows:
        config: Any = scaled(one, scale)
        asked = config.experiment
        assert one.budget == 25.0 or "all budgets" in one.label
        assert (asked.lowest_budget or asked.budget) <= one.budget <= asked.budget and config.settings.steps_per_epoch >= 1000
        assert (expected_seconds(config) or 0) > 0
        if scale == "paper":
            published = 1_000_000 if asked.algo == "sac" else 10_000_000
            assert config.epochs * config.settings.steps_per_epoch == published, "as many steps as were published"


def test_one_policy_for_many_budgets_is_trained_once_and_tested_at_each() -> None:
    rows = {one.label: one for one in all_rows() if one.label.startswith("HalfCheetah, Sauté SAC, all budgets")}
    assert [one.budget for one in rows.values()] == [10.0, 25.0, 50.0]
    (config,) = {scaled(one, "laptop").digest: scaled(one, "laptop") for one in rows.values()}.values()
    settings: Any = config.settings
    assert (config.experiment.lowest_budget, config.experiment.budget, settings.relabel) == (5.0, 100.0, True)
    assert config.validation and config.experiment.envs == 10 and config.experiment.evaluate_every is None


def test_published_numbers_are_those_of_the_documentation() -> None:
    assert len(COLUMNS) == 11 and set(PUBLISHED) == {*(one.label.split(",")[0] for one in all_rows()), "PointGoal2"}
    assert PUBLISHED["HalfCheetah"]["PPO-Sauté"] == "2901±25 / 16.2±.6"
    assert PUBLISHED["PointGoal1"]["TRPO-Sauté"] == "16.2±9.6 / 29.9±26.7"
    assert PUBLISHED["Hopper"]["SAC-Lag"] == "963±292 / 20±28"


def all_rows() -> list[Any]:
    return [one for artifact in BENCHMARK.values() for one in artifact.rows]


def test_ours_stands_beside_the_column_of_the_same_kind(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "laptop" / "navigation"
    place.mkdir(parents=True)
    write_sealed(place / "numbers.json", {"rows": [row("PointGoal1, Sauté PPO", 3, 20.0).as_json()]})
    text = compared("navigation", "laptop", tmp_path)
    lines = {line.split("|")[1].strip(): line for line in text.splitlines()}
    ours = lines["PointGoal1, Sauté PPO"]
    assert "| 20 ± 1 [" in ours and "| 3 of 500, so ≤ " in ours and ours.endswith("| PPO-Sauté: 7.1±5.9 / 20.0±21.9 |")
    assert "| not run |" in lines["PointGoal1, CPO"] and "CPO: 20.5±1.4 / 28.8±7.8" in lines["PointGoal1, CPO"]
    assert (place / "benchmark.md").read_text().rstrip() == text.rstrip()


@pytest.mark.parametrize("name", BENCHMARK)
def test_the_page_has_the_tables_of_the_files(name: str) -> None:
    page = (ROOT / "docs" / "benchmark.md").read_text()
    assert published(artifact_of(name)).strip() in page
    table = ROOT / "results" / "laptop" / name / "benchmark.md"
    assert table.read_text().strip() in page
