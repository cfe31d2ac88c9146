"""`saute watch`: a film of episodes, with a gauge of the remaining budget and its numbers."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike

from saute.budget import observe
from saute.cli import film as films
from saute.cli.environments import Spec, camera_of, make, pictureless, short_name, spec_of
from saute.cli.film import GIF_FPS, Film
from saute.cli.options import shown_as
from saute.cli.output import replacing, writing
from saute.cli.policies import Act, policy_of
from saute.core.cost import CostSource
from saute.core.errors import UserError
from saute.core.single import SauteWrapper
from saute.core.tables import columns, room
from saute.runs.pretrained import PREFIX, is_named

__all__ = ["Episode", "Watch", "filmed", "watch"]


@dataclasses.dataclass(frozen=True)
class Watch:
    """Write a film of an episode, with a gauge of the remaining budget."""

    env: Annotated[str, shown_as("ENV|RUN")]
    """A run folder or pretrained:NAME, which knows its environment, budget and policy; or pendulum, double_pendulum, reacher,
    point, car, or any Gymnasium id with pictures (module:Id-v0 imports the module)."""
    out: Annotated[pathlib.Path | None, shown_as("FILE", "default: ENV.gif")] = None
    """File to write; .gif or .mp4 decides the format."""
    policy: Annotated[str, shown_as("NAME")] = "random"
    """random, zero, a run folder (RUN or RUN@SEED), pretrained:NAME@SEED, or module:function: observation (with z) → action."""
    budget: Annotated[tuple[float, ...], shown_as("NUMBER ...", "default: the task's own; none for other environments")] = ()
    """Safety budget with which the environment is sautéed, one number per constraint."""
    unsafe_reward: Annotated[float | None, shown_as("NUMBER", "default: the task's own")] = None
    """Reward of every step once the budget is overspent."""
    mode: Literal["train", "test"] = "train"
    """Where episodes of our own tasks start."""
    engine: Annotated[str | None, shown_as("NAME", "default: the task's first")] = None
    """Physics of our own tasks: jax or mujoco."""
    seed: Annotated[int, shown_as("N")] = 0
    """Seed of the first episode; each next episode has the next number."""
    episodes: Annotated[int, shown_as("N")] = 1
    """Episodes to film, one after the other."""
    steps: Annotated[int, shown_as("N")] = 1000
    """Most steps of an episode; a longer one is cut off."""
    fps: Annotated[float | None, shown_as("NUMBER", "default: the environment's own")] = None
    """Frames per second; a GIF has at most 50."""
    size: Annotated[int | None, shown_as("PIXELS", "default: the environment's own")] = None
    """Height of the picture; the numbers stand above it."""
    shield: bool = False
    """Let the shield of the run step in, which is said in the film."""
    trust: bool = False
    """Import the modules that the run folder names, whose code then runs; by default only those that you name are imported."""


class Episode(NamedTuple):
    """The result of an episode; cost is None if the environment reports none, violated if there is no budget."""

    seed: int
    steps: int
    task_return: float
    cost: float | np.ndarray | None
    violated: bool | None


def watch(options: Watch) -> None:
    """Play the episodes, write the film, and print a table of the episodes."""
    _check(options)
    options, cost = _of_run(options)
    spec = spec_of(options.env)
    out = options.out or pathlib.Path(f"{short_name(spec)}.gif")
    write = _writer(out)
    with replacing(out) as partial:
        film, fps, episodes, budget = _filmed(options, spec, cost, out)
        with writing(out):
            write(partial, film, fps)
    print(f"wrote {out}: {len(film)} frames of {film.shape[1]}×{film.shape[0]} pixels, {fps:g} per second")
    print(_table(episodes, budget))


def filmed(options: Watch) -> tuple[Film, float, list[Episode]]:
    """The film of a run, its frames per second, and its episodes; nothing is written or printed."""
    options, cost = _of_run(options)
    return _filmed(options, spec_of(options.env), cost, pathlib.Path("film.mp4"))[:3]


def _filmed(
    options: Watch, spec: Spec, cost: CostSource, out: pathlib.Path
) -> tuple[Film, float, list[Episode], ArrayLike | None]:
    load = policy_of(options.policy, options.shield)
    with contextlib.closing(make(spec, options.mode, options.engine, options.budget, options.unsafe_reward, cost)) as env:
        policy, camera, film = load(env), camera_of(env, options.size), Film()
        env.action_space.seed(options.seed)
        seeds = range(options.seed, options.seed + options.episodes)
        episodes = [_play(env, policy, camera, film, seed, options.steps) for seed in seeds]
        budget = env.options.low if isinstance(env, SauteWrapper) else None
        return film, options.fps or _own_fps(env, out), episodes, budget


def _of_run(options: Watch) -> tuple[Watch, CostSource]:
    """The options with what a run knows, if one is named: its environment, budget, unsafe reward and policy; and its cost."""
    folder = options.env.partition("@")[0]
    if not (is_named(folder) or pathlib.Path(folder, "config.json").is_file()):
        return options, "cost"
    from saute.runs.folder import read_config
    from saute.runs.source import named, refuse_modules

    asked = read_config(pathlib.Path(folder)).experiment
    if not options.trust:
        refuse_modules(folder, asked.env, *asked.costs)
    try:
        cost = named(asked.env, asked.cost).cost
    except ValueError as problem:
        raise UserError(f"{folder}: {problem}") from problem
    budget = () if asked.budget is None else asked.budget if isinstance(asked.budget, tuple) else (asked.budget,)
    film = pathlib.Path(f"{pathlib.Path(folder).name.removeprefix(PREFIX)}.gif")
    known: dict[str, Any] = {"budget": options.budget or budget, "out": options.out or film}
    if options.unsafe_reward is None and isinstance(asked.unsafe_reward, float):
        known["unsafe_reward"] = asked.unsafe_reward
    policy = options.env if options.policy == "random" else options.policy
    return dataclasses.replace(options, env=asked.env, policy=policy, **known), cost


def _check(options: Watch) -> None:
    for name, least in {"episodes": 1, "steps": 1, "seed": 0, "size": 64, "fps": 1}.items():
        value = getattr(options, name)
        if value is not None and not least <= value < float("inf"):
            raise UserError(f"--{name} {value} is out of range; use at least {least}")
    if options.fps and options.fps > GIF_FPS and (options.out is None or options.out.suffix.lower() == ".gif"):
        raise UserError(f"--fps {options.fps:g} is too fast for a GIF; use at most {GIF_FPS:g}, or a file --out NAME.mp4")


def _own_fps(env: gym.Env, out: pathlib.Path) -> float:
    fps = float(env.metadata.get("render_fps") or 30)
    return min(fps, GIF_FPS) if out.suffix.lower() == ".gif" else fps


def _writer(out: pathlib.Path) -> Callable[[pathlib.Path, Film, float], None]:
    writers = {".gif": films.write_gif, ".mp4": films.write_mp4}
    if out.suffix.lower() not in writers:
        raise UserError(f"--out {out} has to end in .gif or .mp4, which decides the format")
    return writers[out.suffix.lower()]


def _play(env: gym.Env, policy: Act, camera: Callable[[], object], film: Film, seed: int, steps: int) -> Episode:
    """Film one episode, from its first picture to its last."""
    obs, info = env.reset(seed=seed)
    task_return, cost, done, time, budget = 0.0, None, False, 0, info.get("remaining")

    def add() -> None:
        numbers = f"step {time}   return {task_return:.1f}"
        if not isinstance(env, SauteWrapper):
            return film.add(_picture(camera), numbers)
        left = f"   budget left {_short(env.remaining)} of {_short(budget)}"
        held = "   SHIELD" if getattr(policy, "stepped_in", False) else ""
        return film.add(_picture(camera), numbers + left + held, observe(env.remaining, env.options.reference))

    add()
    while not done and time < steps:
        try:
            obs, reward, terminated, truncated, info = env.step(policy(obs))
        except ValueError as error:
            raise UserError(f"step {time} failed: {error}") from error
        task_return += float(info.get("task_reward", reward))
        if "cost" in info:
            cost = info["cost"] + (0.0 if cost is None else cost)
        done, time = terminated or truncated, time + 1
        add()
    return Episode(seed, time, task_return, cost, info.get("violated"))


def _short(value: ArrayLike | None) -> str:
    return ", ".join(f"{number:.1f}".removesuffix(".0") for number in np.atleast_1d(np.asarray(value, np.float64)))


def _picture(camera: Callable[[], object]) -> object:
    try:
        return camera()
    except Exception as error:
        raise UserError(f"the environment cannot be rendered: {type(error).__name__}: {error}{pictureless()}") from error


def _table(episodes: Sequence[Episode], budget: ArrayLike | None) -> str:
    """Return, cost and violation of each episode, in columns."""
    rows = [("seed", "steps", "task return", "cost", "budget", "violated")]
    for episode in episodes:
        violated = "–" if episode.violated is None else "yes" if episode.violated else "no"
        numbers = (_format(episode.task_return), _format(episode.cost), _format(budget))
        rows.append((str(episode.seed), str(episode.steps), *numbers, violated))
    return columns(rows, right=range(len(rows[0])), width=room())


def _format(value: ArrayLike | None) -> str:
    return "–" if value is None else ", ".join(f"{number:.2f}" for number in np.atleast_1d(value))
