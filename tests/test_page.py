"""The page of the reproduction: from files of numbers only, the same every time, and in step with what is committed."""

from __future__ import annotations

import json
import pathlib

import pytest
from made_up import of_seeds, row

from saute.cli.main import main
from saute.paper import page as pages
from saute.paper import reproduce
from saute.paper.figures import ARTIFACTS
from saute.paper.measured import Measured
from saute.paper.opened import looked_at, open_next, opened
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
    assert f"| all | 0 | 0 | 0 | 0 | {claims} |" in text and text.count("| not run | – | – | – | – | – |") == sum(
        len(artifact.rows) for artifact in ARTIFACTS.values()
    )
    assert "Complete: 0 of" in text and "Not run yet: `saute reproduce car --scale laptop`" in text


def test_numbers_stand_beside_the_published_ones_with_a_verdict(tmp_path: pathlib.Path) -> None:
    known = [row("Sauté", value=2.9, cost=5.0), of_seeds("TRPO-L", bad=(400,) * 5), of_seeds("CPO", bad=(400, 500, 9, 0, 1))]
    keep(tmp_path, "point", *(one._replace(run=one.label, seconds=90) for one in known))
    text = page(tmp_path, "laptop", tmp_path / "page.md")
    assert text == page(tmp_path, "laptop", tmp_path / "page.md")
    assert (
        "`saute reproduce point --scale laptop --episodes 1000`: training took 4 min; 5 × 1000 or 100 test episodes per method."
        in text
    )
    seen = "| 0 of 500, so ≤ 0.597 % at 95 % | 5 of 5 clean, so ≤ 45 % bad | 2.77±.59; .19, 0, 0 | 90 s | 0 | former vintage |"
    assert seen in text and "All rows are of the former vintage." in text
    assert "| Sauté is safe, with only a few outliers that violate. | **holds** † | violations: Sauté 0 of 500" in text
    assert "| TRPO-L and CPO violate on a rather regular basis. | **cannot tell** † | violations: TRPO-L 2000 of 5000" in text
    assert "| CVaR-L still has trajectories that violate. | **not run** | waits for CVaR-L |" in text
    assert "Sauté: as well as we can:" in text and text.count("<details") == text.count("</details>") == 1 + len(ARTIFACTS)
    assert "| Vanilla | 20 | not run |" in text


def test_a_claim_may_need_the_rows_of_two_artifacts(tmp_path: pathlib.Path) -> None:
    keep(tmp_path, "pendulum-trpo", of_seeds("Sauté TRPO", 99.0), of_seeds("TRPO-L"))
    assert "| **not run** | waits for PPO-L; Sauté PPO |" in page(tmp_path, "laptop", tmp_path / "page.md")
    keep(tmp_path, "pendulum-ppo", of_seeds("Sauté PPO", 90.57), of_seeds("PPO-L"))
    reason = "Sauté TRPO 1.1 % below TRPO-L; Sauté PPO 10.0 % below PPO-L"
    assert f"| **holds** † | {reason} |" in page(tmp_path, "laptop", tmp_path / "page.md")


def test_one_epoch_has_no_verdicts(tmp_path: pathlib.Path) -> None:
    keep(tmp_path, "pendulum-ppo", row("Sauté PPO"), row("PPO-L"))
    (tmp_path / "laptop").rename(tmp_path / "smoke")
    text = page(tmp_path, "smoke", tmp_path / "page.md")
    assert "so there are no verdicts" in text and "| Sauté PPO | 30 | 100.00" in text
    assert not any(word in text for word in ("## Claims", "**holds", "**does not", "**cannot", "**not run"))


def test_a_row_says_where_its_numbers_come_from(tmp_path: pathlib.Path) -> None:
    fresh = open_next(tmp_path, "laptop pendulum-ppo, 1000 episodes per seed", 5000)
    keep(tmp_path, "pendulum-ppo", of_seeds("Sauté PPO")._replace(made=fresh.made(2_004_999)), row("PPO-L"))
    text = page(tmp_path, "laptop", tmp_path / "page.md")
    assert f"{fresh.date}, {fresh.commit}, seeds from 2,000,000 |" in text and "Of the former vintage: PPO-L." in text
    assert f"| 2 | 2,000,000 | laptop pendulum-ppo, 1000 episodes per seed | {fresh.date} | {fresh.commit} |" in text
    assert "Sauté PPO is safe in all trajectories. | **holds** | " in text, "† is for rows of the former vintage"


def test_a_block_of_test_seeds_is_opened_once(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [open_next(tmp_path, f"result {i}", 10).block for i in range(6)]
    assert blocks == [2, 3, 4, 5, 6, 8] and [one.block for one in opened(tmp_path)] == blocks, "1 and 7 are not fresh"
    assert looked_at().first == 1_000_000 and opened(tmp_path / "none") == ()
    with pytest.raises(ValueError, match="needs 1,000,001 test seeds, and a block has 1,000,000; ask for fewer --episodes"):
        open_next(tmp_path, "too many", 1_000_001)
    file = tmp_path / "opened.json"
    file.write_text(file.read_text().replace("result 0", "result 9"))
    with pytest.raises(ValueError, match="was changed or damaged after it was written"):
        opened(tmp_path)


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
