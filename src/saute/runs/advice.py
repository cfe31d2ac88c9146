"""The unsafe reward n is easily chosen wrong: which one fits the rewards of a task, and what speaks against the one it has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from saute.core.options import Options

__all__ = ["DWARFS", "Seen", "advice", "cliff", "unsafe_reward_for", "watched"]

MARGIN = 0.25
"""How far below the lowest reward n lies, in ranges of the rewards: episodes to come may hold lower ones."""
DWARFS = 20.0
"""A cliff of more than so many ranges of the task's return drowns it: on Point 26 of them do (n = −1), 7 do not (n = −0.2)."""
ENOUGH = 100
"""Episodes from which on the range of returns is worth judging by."""


def unsafe_reward_for(rewards: npt.ArrayLike, horizon: int | None = None, terminate: bool = False) -> float:
    """The unsafe reward n that fits these rewards of safe steps: n = min r − ¼ (max r − min r), or 0 if none is negative.

    If n is below every safe reward, then each overspent step pays less than any safe one, so that overspending cannot pay. A
    lower n than that teaches nothing more: it only makes the cliff deeper, whose value n T then drowns the task. So n is the
    highest number that is surely low enough, and the margin is for rewards that were not seen yet.

    It is never above 0: where episodes can end early, a long overspent one would be worth more than a short safe one.

    If an episode ends when it overspends, n is paid once, and has to be below T such rewards.

    Example:
        >>> unsafe_reward_for([-3.0, 0.5, 1.0])
        -4.0
        >>> unsafe_reward_for([0.1, 1.0])
        0.0
    """
    seen = np.asarray(rewards, np.float64).ravel()
    if seen.size == 0 or not np.isfinite(seen).all():
        raise ValueError(f"{seen.size} rewards, of which {np.isfinite(seen).sum()} are finite; pass rewards of safe steps")
    lowest, highest = float(seen.min()), float(seen.max())
    if lowest >= 0.0:
        return 0.0
    margin = MARGIN * ((highest - lowest) or -lowest)
    if not terminate:
        return _rounded_down(lowest - margin)
    if horizon is None:
        raise ValueError("an episode that ends when it overspends pays n once, for all steps that it misses: set a time limit")
    return _rounded_down(horizon * (lowest - margin))


def cliff(unsafe_reward: float, lowest: float, highest: float, horizon: int, terminate: bool = False) -> float:
    """How deep the fall is from the lowest return to an episode that overspends at once, n T, in ranges of the return."""
    bottom = unsafe_reward if terminate else unsafe_reward * horizon
    depth = max(0.0, lowest - bottom)
    return depth / (highest - lowest) if highest > lowest else math.nan


class Seen(NamedTuple):
    """What the epochs of a training have seen so far, in all its seeds; NaN where there was nothing to see."""

    lowest_reward: float = math.nan
    worst_return: float = math.nan
    best_return: float = math.nan
    episodes: float = 0.0
    violated: bool = False


def watched(seen: Seen, metrics: Sequence[Mapping[str, float]]) -> Seen:
    """With the numbers of one more epoch, one entry per seed."""

    def known(name: str, before: float) -> list[float]:
        return [value for value in (before, *(seed.get(name, math.nan) for seed in metrics)) if not math.isnan(value)]

    return Seen(
        min(known("lowest_reward", seen.lowest_reward), default=math.nan),
        min(known("worst_return", seen.worst_return), default=math.nan),
        max(known("best_return", seen.best_return), default=math.nan),
        sum(known("episodes", seen.episodes)),
        seen.violated or any(rate > 0.0 for rate in known("violation_rate", 0.0)),
    )


def advice(seen: Seen, options: Options | None, horizon: int | None) -> dict[str, str]:
    """What a training has seen against its unsafe reward, by a name for each kind of advice."""
    if options is None or not options.shape:
        return {}
    told = {"pays": _pays(seen, options), "dwarfs": _dwarfs(seen, options, horizon)}
    return {kind: text for kind, text in told.items() if text is not None}


def _pays(seen: Seen, options: Options) -> str | None:
    n, step, episode = options.unsafe_reward, seen.lowest_reward, seen.worst_return
    whole = options.terminate and episode < step  # the end of an episode is paid for with one n
    least, what = (episode, "an episode had a return") if whole else (step, "a step within the budget had a reward")
    if not least < n - 1e-6 * max(1.0, abs(n)):
        return None
    return (
        f"{what} of {least:.4g}, below the unsafe reward {n:g}, so that overspending can pay; "
        f'pass an unsafe_reward below {least:.4g}, or "auto"'
    )


def _dwarfs(seen: Seen, options: Options, horizon: int | None) -> str | None:
    if horizon is None or seen.episodes < ENOUGH or not seen.violated:
        return None
    n, worst, best = options.unsafe_reward, seen.worst_return, seen.best_return
    depth = cliff(n, worst, best, horizon, options.terminate)
    if not depth > DWARFS:
        return None
    bottom, nearer = n if options.terminate else n * horizon, min(0.0, seen.lowest_reward)
    return (
        f"an episode that overspends at once is worth {bottom:.4g}, while the task was worth {worst:.4g} to {best:.4g}: "
        f"a cliff {depth:.0f} times as deep as that range can drown the task; pass an unsafe_reward nearer to {nearer:.4g}, "
        'just below every safe reward, or "auto"'
    )


def _rounded_down(number: float) -> float:
    """Two digits are enough, the last one rounded away from zero; for negative numbers."""
    short = float(f"{number:.2g}")
    return short if short <= number else float(f"{short - 10.0 ** (math.floor(math.log10(-number)) - 1):.2g}")
