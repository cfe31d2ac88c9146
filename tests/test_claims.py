"""Verdicts are functions of the numbers: each judge is shown seeds for which it holds, seeds that refute it, and too few."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from made_up import of_seeds, row

from saute.core.typed import rebuilt
from saute.paper import judges
from saute.paper.claims import CLAIMS, Claim, verdict
from saute.paper.figures import ARTIFACTS
from saute.paper.measured import Course, Late, Made, Measured, courses_of, late_epochs, measure
from saute.paper.units import UNITS, unit_of
from saute.runs.evaluate import Outcome

UNIT = 50.0
SAFE, ODD, BAD = row("a"), row("a", 3), row("a", 300)
IT, WILD = of_seeds("a"), of_seeds("w", apart=40.0)
"""Seeds that agree, and seeds that tell nothing of each other."""
ALL, ONE, TWO = (400, 500, 300, 450, 380), (0, 0, 3, 0, 0), (0, 9, 3, 0, 0)
CASES = {
    "never_violate": (
        [IT],
        [of_seeds("b", bad=(0, 400, 3, 0, 0))],
        [of_seeds("c", bad=(0,))._replace(seeds=(IT.seeds[0]._replace(episodes=25),))],
    ),
    "hardly_violate": ([of_seeds("b", bad=(2, 0, 1, 3, 0))], [of_seeds("b", bad=ALL)], [of_seeds("b", bad=(2, 0, 60, 3, 0))]),
    "sometimes_violate": ([of_seeds("b", bad=TWO)], [IT], [of_seeds("b", bad=ONE)]),
    "often_violate": ([of_seeds("b", bad=ALL)], [of_seeds("b", bad=TWO)], [of_seeds("b", bad=(400, 300, 0, 0, 0))]),
    "safer": ([IT, of_seeds("b", bad=ALL)], [of_seeds("b", bad=ALL), IT], [IT, of_seeds("b", bad=ONE)]),
    "keep_on_average": ([IT], [of_seeds("b", cost=60.0)], [of_seeds("b", cost=31.0, apart=20.0)]),
    "spend_less": ([of_seeds("b", cost=20.0), IT], [IT, of_seeds("b", cost=20.0)], [WILD, IT]),
    "earn_more": ([of_seeds("b", 110.0), IT], [of_seeds("b", 90.0), IT], [WILD, of_seeds("b", 110.0, apart=40.0)]),
    "earn_most": ([of_seeds("b", 110.0), IT, IT], [IT, of_seeds("b", 110.0), IT], [WILD, IT, of_seeds("b", 90.0, apart=40.0)]),
    "earn_alike": ([of_seeds("b", 101.0), IT], [of_seeds("b", 110.0), IT], [WILD, IT]),
    "earn_as_much_in_most": ([of_seeds("b", 101.0), IT], [of_seeds("b", 110.0), IT], [WILD, IT]),
    "come_to_the_same": ([of_seeds("b", 101.0, 12.0), IT], [of_seeds("b", 110.0, 25.0), IT], [WILD, IT]),
    "differ_little": ([of_seeds("b", 101.0), IT], [of_seeds("b", 150.0), IT], [WILD, IT]),
    "best_of_the_safe": (
        [IT, of_seeds("b", 120.0, bad=ALL)],
        [IT, of_seeds("b", 120.0)],
        [IT, of_seeds("w", 101.0, apart=40.0)],
    ),
    "spread_wider": ([IT, of_seeds("b", std=9.0)], [IT, of_seeds("b", std=1.0)], [IT, of_seeds("b", std=2.0, apart=9.0)]),
    "earn_in_a_wider_range": (
        [IT, of_seeds("b", std=9.0)],
        [IT, of_seeds("b", std=1.0)],
        [IT, of_seeds("b", std=2.0, apart=9.0)],
    ),
    "spread_as_wide": ([IT, of_seeds("b", std=1.1)], [IT, of_seeds("b", std=0.5)], [IT, of_seeds("b", std=0.9, apart=9.0)]),
    "reach_its_costs": (
        [of_seeds("v", cost=30.0), of_seeds("b", cost=30.0)],
        [of_seeds("v", cost=30.0), IT],
        [of_seeds("v", cost=30.0), IT._replace(seeds=(IT.seeds[0]._replace(worst=31.0), *IT.seeds[1:]))],
    ),
    "loses_return_and_spends_less": ([of_seeds("b", 50.0, 2.0), IT], [IT, of_seeds("b", 50.0, 2.0)], [WILD, IT]),
    "smaller_gap": (
        [IT, of_seeds("b", 99.0), IT, of_seeds("c", 90.0)],
        [IT, of_seeds("b", 90.0), IT, of_seeds("c", 99.0)],
        [IT, WILD, IT, of_seeds("c", 99.0)],
    ),
    "fewer_outliers": ([IT, of_seeds("b", outliers=0.1)], [of_seeds("b", outliers=0.1), IT], [IT, of_seeds("b")]),
    "steadier": ([IT, of_seeds("b", sway=5.0)], [of_seeds("b", sway=5.0), IT], [IT, of_seeds("b")]),
    "safe_soon": (
        [IT],
        [of_seeds("b", safe_after=(900, None, 900, 800, None))],
        [of_seeds("b", safe_after=(100, 100, 100, 900, None))],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_judge_can_be_refuted_and_can_be_without_an_answer(name: str) -> None:
    for rows, word in zip(CASES[name], ("holds", "does not hold", "cannot tell"), strict=True):
        judged = getattr(judges, name)(rows, UNIT)
        assert judged.word == word, judged
        assert all(row.label in judged.reason for row in rows) and re.search(r"\d", judged.reason)


def test_every_judge_is_tested() -> None:
    used = {claim.judge.__name__ for group in CLAIMS.values() for claim in group}
    assert used == CASES.keys()


def test_the_words_between() -> None:
    rare, near = of_seeds("b", bad=TWO), of_seeds("b", cost=31.0)
    assert judges.never_violate([rare], UNIT).word == "holds partly", "12 of 5000 are rare, but not none"
    assert judges.keep_on_average([near], UNIT).word == "holds partly", "above the budget, by less than a tenth"
    assert judges.earn_more([of_seeds("b", 100.5), IT], UNIT).word == "holds partly", "more, by less than 2 % of the unit"
    assert judges.sometimes_violate([rare, IT], UNIT).word == "holds partly", "one row does, the other does not"
    assert judges.sometimes_violate([rare, of_seeds("c", bad=ONE)], UNIT).word == "cannot tell"


def test_a_few_violations_of_one_seed_say_nothing_of_the_method() -> None:
    assert judges.sometimes_violate([of_seeds("b", bad=ONE)], UNIT).word == "cannot tell"
    assert judges.safer([IT, of_seeds("b", bad=ONE)], UNIT).word == "cannot tell"


def test_a_mean_above_the_budget_by_nothing_is_not_above_it() -> None:
    """What 40.04 of 40 says: seeds from 3.7 to 88 have a mean that could be anything."""
    seeds = tuple(IT.seeds[0]._replace(cost=cost) for cost in (55.7, 46.4, 3.7, 88.3, 6.1))
    spread = IT._replace(budget=40.0, seeds=seeds)
    assert judges.keep_on_average([spread], UNIT).word == "cannot tell"


def test_one_seed_never_decides_what_is_said_of_a_method() -> None:
    alone = {row.label: row._replace(seeds=row.seeds[:1], courses=row.courses and row.courses[:1]) for row in (IT, WILD)}
    for name, judge in ((name, getattr(judges, name)) for name in CASES if name not in {"never_violate", "differ_little"}):
        if name in {"smaller_gap", "reach_its_costs", "sometimes_violate", "safer", "best_of_the_safe"}:
            continue  # the first takes an interval, which one seed does not have; safe rows refute the others
        rows = [alone["a"], alone["w"]][: len(CASES[name][0])]
        assert judge(rows, UNIT).word == "cannot tell", name


def test_one_bad_seed_is_not_many() -> None:
    alone = of_seeds("b", cost=30.0, bad=(900,))
    assert judges.sometimes_violate([alone], UNIT).word == judges.reach_its_costs([alone, alone], UNIT).word == "cannot tell"


LATER = (
    "earn_as_much_in_most",
    "spread_wider",
    "spread_as_wide",
    "earn_in_a_wider_range",
    "fewer_outliers",
    "steadier",
    "safe_soon",
)
"""Judges of what former versions did not keep."""


def test_numbers_of_former_versions_lack_what_some_judges_need() -> None:
    former = {**IT.as_json(), "courses": None}
    former["seeds"] = [
        {k: v for k, v in seed.items() if k in ("episodes", "violations", "task_return", "cost", "worst")}
        for seed in former["seeds"]
    ]
    del former["courses"], former["made"], former["task_return"]["iqm"]
    old = rebuilt(Measured, former)
    assert old.made is None and old.courses is None and old.task_return.iqm is None
    for name in LATER:
        judged = getattr(judges, name)([old, old._replace(label="b")], UNIT)
        assert judged.word == "cannot tell" and "of single seeds are known of a; b" in judged.reason


def test_units_of_all_tasks() -> None:
    assert {artifact.rows[0].experiment.env for artifact in ARTIFACTS.values()} == UNITS.keys()
    assert unit_of("pendulum", 30.0) == pytest.approx(94.3) and unit_of("double_pendulum", 40.0) == pytest.approx(70.4)
    assert unit_of("reacher", 10.0) == pytest.approx(3.51) and unit_of("car", 20.0) == 2.94


def test_what_was_seen_in_training_is_told_but_does_not_count() -> None:
    rows = [of_seeds("a")._replace(late=Late(0.195, 31.0))]
    often, kept = judges.often_violate(rows, UNIT), judges.keep_on_average(rows, UNIT)
    assert (often.word, kept.word) == ("does not hold", "holds")
    assert often.reason.endswith("; in the second half of training: a 19.5 %")
    assert kept.reason.endswith("; in the second half of training: a 31.00")


def test_the_course_of_a_training() -> None:
    costs, tests = (9.0, 9.0, 2.0, 4.0), (3.0, math.nan, 0.0, 0.0)
    epochs = [[{"episodes": 10.0, "cost": c, "evaluated_violations": v}] for c, v in zip(costs, tests, strict=True)]
    assert courses_of(epochs) == (Course(1.0, True, 30),)
    epochs[-1][0]["evaluated_violations"] = 1.0
    assert courses_of(epochs)[0].safe_after is None
    epochs[0][0]["evaluated_violations"] = epochs[-1][0]["evaluated_violations"] = 0.0
    assert courses_of(epochs)[0].safe_after == 10, "clean from the first test on"
    bare = [[{"episodes": 0.0, "cost": None}]] * 4
    assert courses_of(bare) == (Course(None, False, None),)


def test_outliers_are_those_of_the_box_plot_of_all_seeds() -> None:
    """Quartiles of 1 … 100 are 25.75 and 75.25, so whiskers end at 149.5."""
    common = np.arange(1.0, 101.0)
    odd = common.copy()
    odd[-2:] = 400.0
    seeds = [Outcome(paid, paid, np.full(100, 200), paid, paid > 1e3) for paid in (common, common, common, odd)]
    assert [seed.outliers for seed in measure("a", 30.0, seeds).seeds] == [0.0, 0.0, 0.0, 0.02]


def test_the_end_of_training_is_the_mean_over_the_whole_episodes_of_its_second_half() -> None:
    numbers = ((10.0, 1.0, 9.0), (10.0, 0.5, 2.0), (30.0, 0.2, 5.0), (0.0, math.nan, math.nan), (0.0, None, None))
    early, late, more, none, null = ({"episodes": n, "violation_rate": rate, "cost": cost} for n, rate, cost in numbers)
    # 5 + 6 + 5 of 10 + 30 + 10 episodes violated, and they cost 20 + 150 + 20.
    assert late_epochs([[early, none], [early, early], [late, more], [late, none]]) == pytest.approx((0.32, 3.8))
    assert late_epochs([[early], [null], [late], [null]]) == (0.5, 2.0)
    assert late_epochs([[early], [none], [null]]) is late_epochs([[{"episodes": 0.0}]]) is late_epochs([[{}]]) is None


def test_numbers_with_the_end_of_training_survives_its_file() -> None:
    made = Made("2024-05-01", "0123456789ab", (2_000_000, 2_004_999))
    kept = SAFE._replace(late=Late(0.195, 31.0), courses=(Course(1.0, True, None),), made=made)
    assert rebuilt(Measured, json.loads(json.dumps(kept.as_json()))) == kept


def test_the_reason_has_the_count_and_the_bound() -> None:
    assert judges.never_violate([SAFE], UNIT).reason == (
        "violations: a 0 of 500, so ≤ 0.597 % at 95 %, 5 of 5 seeds clean, so at most 45 % of seeds are bad at 95 %"
    )
    assert judges.never_violate([ODD], UNIT).reason.startswith(
        "violations: a 3 of 500, so ≤ 1.54 % at 95 %, 4 of 5 seeds clean"
    )


def test_a_claim_waits_for_its_rows() -> None:
    claim = Claim("All is well.", ("a", "b"), judges.never_violate)
    assert verdict(claim, {"a": SAFE}, UNIT) == ("not run", "waits for b")
    assert verdict(claim, {"a": SAFE, "b": BAD, "c": BAD}, UNIT).word == "does not hold"


def test_every_artifact_has_claims_about_rows_that_exist() -> None:
    assert CLAIMS.keys() == ARTIFACTS.keys()
    for name, group in CLAIMS.items():
        assert group
        for claim in group:
            sources = [name, *claim.sources]
            known = {row.label for source in sources for row in ARTIFACTS[source].rows}
            assert set(claim.labels) <= known, (name, claim.sentence)


def test_numbers_survive_their_file() -> None:
    whole = row("Sauté", 3)
    assert rebuilt(Measured, json.loads(json.dumps(whole.as_json()))) == whole
    assert (whole.episodes, whole.violations, len(whole.seeds)) == (500, 3, 5) and whole.seeds[-1].worst == 31.0
    assert whole.task_return.low <= whole.task_return.mean <= whole.task_return.high
    assert whole == row("Sauté", 3), "the interval has a seed"
