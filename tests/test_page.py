"""The page of the reproduction: from files of numbers only, the same every time, and in step with what is committed."""

from __future__ import annotations

import json
import pathlib

import pytest
from made_up import row

from saute.cli.main import main
from saute.paper import page as pages
from saute.paper import reproduce
from saute.paper.figures import ARTIFACTS
from saute.paper.measured import Measured
from saute.paper.page import page, read

ROOT = pathlib.Path(__file__).parent.parent


def keep(results: pathlib.Path, name: str, *rows: Measured) -> None:
    (results / "laptop" / name).mkdir(parents=True)
    (results / "laptop" / name / "numbers.json").write_text(json.dumps([row.as_json() for row in rows]))


def test_the_committed_page_is_that_of_the_committed_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    here = pathlib.Path("docs/reproduction.md")
    text = page(pathlib.Path("results"), "laptop", here)
    assert here.read_text() == text, "write it anew with saute reproduce page"
    links = [part.split(")")[0] for part in text.split("](")[1:]]
    for link in (link for link in links if not link.startswith("#")):
        assert (here.parent / link).exists(), link


def test_nothing_is_trained_for_the_page(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(reproduce, "trained", lambda *_: pytest.fail("trained"))
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "page"]) == 0 and "wrote docs/reproduction.md" in capsys.readouterr().out
    text = pathlib.Path("docs/reproduction.md").read_text()
    claims = sum(len(group) for group in pages.CLAIMS.values())
    assert f"| all | 0 | 0 | 0 | {claims} |" in text and text.count("| not run | – | – | – | – |") == sum(
        len(artifact.rows) for artifact in ARTIFACTS.values()
    )
    assert "Complete: 0 of" in text and "Not run yet: `saute reproduce car --scale laptop`" in text


def test_numbers_stand_beside_the_published_ones_with_a_verdict(tmp_path: pathlib.Path) -> None:
    known = [row("Sauté", value=2.9, cost=5.0), row("TRPO-L", 100), row("CPO", 1)]
    keep(tmp_path, "point", *(one._replace(run=one.label, seconds=90) for one in known))
    text = page(tmp_path, "laptop", tmp_path / "page.md")
    assert text == page(tmp_path, "laptop", tmp_path / "page.md")
    assert "`saute reproduce point --scale laptop`: training took 4 min; 5 × 100 test episodes per method." in text
    assert "| 0 of 500, so ≤ 0.597 % at 95 % | 2.77±.59; .19, 0, 0 | 90 s |" in text
    assert "| Sauté is safe but for a few outliers. | **holds** | violations: Sauté 0 of 500" in text
    assert "| TRPO-L and CPO violate on a regular basis. | **holds partly** | violations: TRPO-L 100 of 500" in text
    assert "| CVaR-L leaves more outliers than Sauté. | **not run** | waits for CVaR-L |" in text
    assert "| Vanilla | 20 | not run |" in text


def test_a_claim_may_need_the_rows_of_two_artifacts(tmp_path: pathlib.Path) -> None:
    keep(tmp_path, "pendulum-trpo", row("Sauté TRPO", value=99.0), row("TRPO-L"))
    assert "| **not run** | waits for PPO-L, Sauté PPO |" in page(tmp_path, "laptop", tmp_path / "page.md")
    keep(tmp_path, "pendulum-ppo", row("Sauté PPO", value=90.0), row("PPO-L"))
    reason = "Sauté TRPO 1.0 % below TRPO-L; Sauté PPO 10.0 % below PPO-L"
    assert f"| **holds** | {reason} |" in page(tmp_path, "laptop", tmp_path / "page.md")


def test_other_numbers_of_episodes_and_interrupted_runs_are_said(tmp_path: pathlib.Path) -> None:
    one = row("Sauté PPO")
    keep(tmp_path, "pendulum-ppo", one._replace(seeds=(one.seeds[0]._replace(episodes=7),)))
    text = page(tmp_path, "laptop", tmp_path / "page.md")
    assert "--scale laptop --episodes 7`: training took 0 s and an unknown time for 1 interrupted run(s); 1 × 7 test" in text


def test_spoilt_numbers_are_reported(tmp_path, capsys) -> None:
    keep(tmp_path, "car")
    (tmp_path / "laptop/car/numbers.json").write_text('[{"label": "Sauté"}]')
    assert main(["reproduce", "page", "--out", str(tmp_path), "--page", str(tmp_path / "page.md")]) == 2
    assert "write it anew with saute reproduce car --scale laptop" in capsys.readouterr().err
    assert read(tmp_path, "laptop", "point") == {} and not (tmp_path / "page.md").exists()
