"""Verdicts are functions of the numbers: each judge, shown episodes that decide it each way."""

from __future__ import annotations

import json
import math
import re

import pytest
from made_up import row

from saute.core.typed import rebuilt
from saute.paper import claims
from saute.paper.claims import CLAIMS, Claim, verdict
from saute.paper.figures import ARTIFACTS
from saute.paper.measured import Late, Measured, late_epochs

SAFE, ODD, BAD = row("a"), row("a", 3), row("a", 300)
CASES = {
    "never_violate": ([SAFE], [ODD], [row("a", 6)]),
    "hardly_violate": ([row("a", 5)], [row("a", 20)], [row("a", 30)]),
    "sometimes_violate": ([ODD, ODD], [ODD, SAFE], [SAFE, SAFE]),
    "often_violate": ([BAD, row("b", 50)], [BAD, ODD], [ODD, SAFE]),
    "mostly_violate": ([BAD], [BAD, ODD], [row("a", 250)]),
    "safer": ([SAFE, ODD, BAD], [SAFE, SAFE], [ODD, SAFE]),
    "keep_on_average": ([row(cost=20.0), SAFE], [SAFE, row(cost=40.0)], [row(cost=40.0)]),
    "earn_more": ([row(value=110.0), SAFE], [row(value=100.01), SAFE], [row(value=90.0), SAFE]),
    "earn_alike": ([row(value=95.0), SAFE], [row(value=95.0), SAFE, row(value=50.0)], [row(value=80.0), SAFE]),
    "earn_as_much_at_best": ([row(value=95.0), SAFE], [SAFE, row(value=50.0), SAFE], [row(value=80.0), SAFE]),
    "come_to_the_same": ([SAFE, row(cost=12.0)], [SAFE, row(cost=20.0)], [SAFE, row(value=50.0, cost=20.0)]),
    "differ_little": ([SAFE, row(value=90.0)], [SAFE, row(value=80.0)], [SAFE, row(value=50.0)]),
    "best_of_the_safe": ([SAFE, row("b", 300, 120.0)], [SAFE, row("b", value=120.0)], [BAD, SAFE]),
    "spread_wider": ([SAFE, row(std=3.0)], [SAFE, row(std=3.0), SAFE], [SAFE, SAFE]),
    "spread_as_wide": ([SAFE, SAFE], [SAFE, SAFE, row(std=0.5)], [SAFE, row(std=0.5)]),
    "reach_its_costs": ([row(cost=30.0), BAD], [row(cost=30.0), BAD, SAFE], [row(cost=30.0), SAFE]),
    "loses_return_and_spends_less": ([row(value=50.0, cost=5.0), SAFE], [row(value=50.0), SAFE], [SAFE, SAFE]),
    "smaller_gap": (
        [SAFE, row(value=99.0), SAFE, row(value=90.0)],
        [SAFE, row(value=95.0), SAFE, row(value=90.0), SAFE, SAFE],
        [SAFE, row(value=90.0), SAFE, row(value=95.0)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_judge_can_say_each_word_and_says_why(name: str) -> None:
    for rows, word in zip(CASES[name], ("holds", "holds partly", "does not hold"), strict=True):
        judged = getattr(claims, name)(rows)
        assert judged.word == word, judged
        assert all(row.label in judged.reason for row in rows) and re.search(r"\d", judged.reason)


def test_every_judge_is_tested() -> None:
    used = {claim.judge.__name__ for group in CLAIMS.values() for claim in group}
    assert used <= CASES.keys()


def test_what_was_seen_in_training_is_told_but_does_not_count() -> None:
    rows = [SAFE._replace(late=Late(0.195, 31.0)), BAD]
    often, kept = claims.often_violate(rows), claims.keep_on_average(rows)
    assert (often.word, kept.word) == ("holds partly", "holds")
    assert often.reason.endswith("; in the second half of training: a 19.5 %")
    assert kept.reason.endswith("; in the second half of training: a 31.00")


def test_the_end_of_training_is_the_mean_over_the_whole_episodes_of_its_second_half() -> None:
    numbers = ((10.0, 1.0, 9.0), (10.0, 0.5, 2.0), (30.0, 0.2, 5.0), (0.0, math.nan, math.nan), (0.0, None, None))
    early, late, more, none, null = ({"episodes": n, "violation_rate": rate, "cost": cost} for n, rate, cost in numbers)
    # 5 + 6 + 5 of 10 + 30 + 10 episodes violated, and they cost 20 + 150 + 20.
    assert late_epochs([[early, none], [early, early], [late, more], [late, none]]) == pytest.approx((0.32, 3.8))
    assert late_epochs([[early], [null], [late], [null]]) == (0.5, 2.0)
    assert late_epochs([[early], [none], [null]]) is late_epochs([[{"episodes": 0.0}]]) is late_epochs([[{}]]) is None


def test_numbers_with_the_end_of_training_survives_its_file() -> None:
    kept = SAFE._replace(late=Late(0.195, 31.0))
    assert rebuilt(Measured, json.loads(json.dumps(kept.as_json()))) == kept


def test_the_reason_has_the_count_and_the_bound() -> None:
    assert claims.never_violate([SAFE]).reason == "violations: a 0 of 500, so ≤ 0.597 % at 95 %"
    assert claims.never_violate([ODD]).reason == "violations: a 3 of 500, so ≤ 1.54 % at 95 %, in 1 of 5 seeds"


def test_a_claim_waits_for_its_rows() -> None:
    claim = Claim("All is well.", ("a", "b"), claims.never_violate)
    assert verdict(claim, {"a": SAFE}) == ("not run", "waits for b")
    assert verdict(claim, {"a": SAFE, "b": BAD, "c": BAD}).word == "does not hold"


def test_every_artifact_has_claims_about_rows_that_exist() -> None:
    assert CLAIMS.keys() == ARTIFACTS.keys()
    for name, group in CLAIMS.items():
        assert group
        for claim in group:
            sources = [name, *([claim.source] if claim.source else [])]
            known = {row.label for source in sources for row in ARTIFACTS[source].rows}
            assert set(claim.labels) <= known, (name, claim.sentence)


def test_numbers_survive_their_file() -> None:
    whole = row("Sauté", 3)
    assert rebuilt(Measured, json.loads(json.dumps(whole.as_json()))) == whole
    assert (whole.episodes, whole.violations, len(whole.seeds)) == (500, 3, 5) and whole.seeds[-1].worst == 31.0
    assert whole.task_return.low <= whole.task_return.mean <= whole.task_return.high
    assert whole == row("Sauté", 3), "the interval has a seed"
