"""`saute watch`: a film of episodes, with a gauge of the remaining budget."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import errno
import importlib
import os
import pathlib
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np

from saute import budget as B
from saute.cli.main import UserError
from saute.core.gauge import paint
from saute.core.single import SauteWrapper
from saute.runs.pretrained import PREFIX

__all__ = ["Watch", "watch"]

Policy = Callable[[Any], Any]

TASK = "saute.envs.register:single"
"""Entry point of our own tasks: they have a mode, an engine and a budget, and are drawn at any size."""
GIF_FPS = 50.0
"""Browsers slow down GIFs that are faster."""
EXACT_COLOURS = 32
"""Entries of a GIF's palette that are kept for its commonest colours."""


def _as(metavar: str, default: str | None = None) -> Any:
    """How the help shows an option; tyro asks when it reads the annotations, so that this module does without it."""
    import tyro

    return tyro.conf.arg(metavar=metavar, help_behavior_hint=None if default is None else f"(default: {default})")


@dataclasses.dataclass(frozen=True)
class Watch:
    """Write a film of an episode, with a gauge of the remaining budget."""

    env: Annotated[str, _as("ENV")]
    """pendulum, double_pendulum, reacher, point, car, or any Gymnasium id with pictures (module:Id-v0 imports the module)."""
    out: Annotated[pathlib.Path | None, _as("FILE", "ENV.gif")] = None
    """File to write; .gif or .mp4 decides the format."""
    policy: Annotated[str, _as("NAME")] = "random"
    """random, zero, a run folder (RUN or RUN@SEED), pretrained:NAME@SEED, or module:function: observation (with z) → action."""
    budget: Annotated[tuple[float, ...], _as("NUMBER ...", "the task's own; none for other environments")] = ()
    """Safety budget, one number per constraint, by which the environment is sautéed."""
    unsafe_reward: Annotated[float | None, _as("NUMBER", "the task's own")] = None
    """Reward of every step once the budget is overspent."""
    mode: Literal["train", "test"] = "train"
    """Where episodes of the five tasks start."""
    engine: Annotated[str | None, _as("NAME", "the task's first")] = None
    """Physics of the five tasks: jax or mujoco."""
    seed: Annotated[int, _as("N")] = 0
    """Seed of the first episode; the next ones count on."""
    episodes: Annotated[int, _as("N")] = 1
    """Episodes to film, one after the other."""
    steps: Annotated[int, _as("N")] = 1000
    """Length at which an episode is cut."""
    fps: Annotated[float | None, _as("NUMBER", "the environment's own")] = None
    """Frames per second; a GIF has at most 50."""
    size: Annotated[int | None, _as("PIXELS", "the environment's own")] = None
    """Height of the film."""


class Episode(NamedTuple):
    """What an episode came to; None where the environment has no cost, or no budget to violate."""

    seed: int
    steps: int
    task_return: float
    cost: Any
    violated: bool | None


class Film:
    """Frames in the order of time; kept compressed, since the pictures of a whole episode are large."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()
        self._frames: list[bytes] = []

    def __len__(self) -> int:
        return len(self._frames)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (np.frombuffer(zlib.decompress(frame), np.uint8).reshape(self.shape) for frame in self._frames)

    def add(self, frame: Any) -> None:
        self.shape = self.shape or np.shape(frame)
        if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
            raise UserError(
                f"the environment renders {_kind(frame)} instead of RGB pictures of type uint8, so it cannot be watched"
            )
        if frame.shape != self.shape:
            raise UserError(f"the pictures change their size from {self.shape} to {frame.shape}; use --size to make them equal")
        self._frames.append(zlib.compress(frame.tobytes(), 1))


def watch(options: Watch) -> None:
    """Play the episodes, write the film, and print what they came to."""
    _check(options)
    spec = _spec(options.env)
    out = options.out or pathlib.Path(f"{spec.kwargs['name'] if spec.entry_point == TASK else spec.name}.gif")
    write = _writer(out)
    with _replacing(out) as partial:
        load = _policy(options.policy)
        with contextlib.closing(_make(options, spec)) as env:
            fps = options.fps or _own_fps(env, out)
            policy, camera, film = load(env), _camera(env, options.size), Film()
            env.action_space.seed(options.seed)
            seeds = range(options.seed, options.seed + options.episodes)
            episodes = [_play(env, policy, camera, film, seed, options.steps) for seed in seeds]
        with _writing(out):
            write(partial, film, fps)
    print(f"wrote {out}: {len(film)} frames of {film.shape[1]}×{film.shape[0]} pixels, {fps:g} per second")
    print(_table(episodes, env.options.low if isinstance(env, SauteWrapper) else None))


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
    writers = {".gif": write_gif, ".mp4": write_mp4}
    if out.suffix.lower() not in writers:
        raise UserError(f"--out {out} has to end in .gif or .mp4, which decides the format")
    return writers[out.suffix.lower()]


@contextlib.contextmanager
def _replacing(out: pathlib.Path) -> Iterator[pathlib.Path]:
    """A new file next to the wanted one, which it replaces in the end, so that there is never half a film."""
    partial = out.with_name(f".{out.stem}.{os.getpid()}{out.suffix}")
    try:
        with _writing(out):
            if out.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            partial.touch()
        yield partial
        with _writing(out):
            partial.replace(out)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _writing(out: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror or error}; choose another place with --out") from error
    except RuntimeError as error:
        raise UserError(f"cannot write {out}: {error}") from error


def write_gif(path: pathlib.Path, film: Film, fps: float) -> None:
    """Write an endless GIF; one palette for all of its frames, so that nothing flickers."""
    from PIL import Image

    every = max(1, len(film) // 16)
    sample = np.concatenate([frame for i, frame in enumerate(film) if i % every == 0])
    # Pillow rounds on its way into a palette, which would tint the background: the commonest colours are kept exactly.
    codes, counts = np.unique(_code(sample), return_counts=True)
    exact = codes[np.argsort(-counts, kind="stable")[:EXACT_COLOURS]]
    rest = Image.fromarray(sample).quantize(256 - EXACT_COLOURS, Image.Quantize.FASTOCTREE).getpalette() or []
    rest += rest[:3] * (256 - EXACT_COLOURS - len(rest) // 3)
    palette = Image.new("P", (1, 1))
    palette.putpalette(rest + [int(code) >> shift & 255 for code in exact for shift in (16, 8, 0)])

    def indexed(frame: np.ndarray) -> Image.Image:
        pixels = np.array(Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE))
        code = _code(frame)
        for index, colour in enumerate(exact, start=256 - EXACT_COLOURS):
            pixels[code == colour] = index
        image = Image.fromarray(pixels)
        image.putpalette(palette.getpalette() or [])
        return image

    first, *others = map(indexed, film)
    first.save(path, save_all=True, append_images=others, duration=1000 / fps, loop=0)


def _code(frame: np.ndarray) -> np.ndarray:
    """One number per pixel, 0xRRGGBB."""
    return frame @ np.array([65536, 256, 1], np.uint32)


def write_mp4(path: pathlib.Path, film: Film, fps: float) -> None:
    """Write H.264 that every player knows; the format wants even sizes."""
    import imageio_ffmpeg

    height, width = (side + side % 2 for side in film.shape[:2])
    sink = imageio_ffmpeg.write_frames(str(path), (width, height), fps=fps, quality=8, macro_block_size=2)
    with warnings.catch_warnings():
        # JAX warns of every fork, but this one goes straight on to ffmpeg.
        warnings.filterwarnings("ignore", message="os.fork", category=RuntimeWarning)
        sink.send(None)
    for frame in film:
        padding = ((0, height - frame.shape[0]), (0, width - frame.shape[1]), (0, 0))
        sink.send(np.ascontiguousarray(np.pad(frame, padding, mode="edge")))
    sink.close()


def _spec(name: str) -> gym.envs.registration.EnvSpec:
    """The registered environment of a short name or an id, whose module is imported if it is given."""
    tasks = {spec.kwargs["name"]: id for id, spec in gym.registry.items() if spec.entry_point == TASK}
    module, _, id = name.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
    except Exception as error:
        raise UserError(f"the module of environment {name!r} cannot be imported: {type(error).__name__}: {error}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return gym.spec(tasks.get(id.lower().replace("-", "_"), id))
    except gym.error.Error as error:
        known = {known.lower(): known for known in [*gym.registry, *tasks]}
        similar = difflib.get_close_matches(id.lower(), known, n=1)
        hint = f"; did you mean {known[similar[0]]!r}?" if similar else "."
        raise UserError(f"unknown environment {name!r}{hint} Use {', '.join(tasks)}, or any Gymnasium id") from error


def _make(options: Watch, spec: gym.envs.registration.EnvSpec) -> Any:
    """The environment with RGB pictures, sautéed if there is a budget."""
    own = spec.entry_point == TASK
    chosen: dict[str, Any] = {"mode": options.mode, "engine": options.engine} if own else {}
    if not own and (options.mode != "train" or options.engine):
        raise UserError(f"--mode and --engine are options of the five tasks; {spec.id} does not have them")
    try:
        with warnings.catch_warnings():
            # That it has no pictures is our error to report.
            warnings.simplefilter("ignore")
            env = gym.make(spec, render_mode="rgb_array", disable_env_checker=True, **chosen)
    except Exception as error:
        raise UserError(f"{options.env} cannot be made: {error}") from error
    if "rgb_array" not in env.metadata.get("render_modes", ()):
        raise UserError(f"{options.env} has no pictures: its render_modes {env.metadata.get('render_modes')} lack 'rgb_array'")
    task = env.unwrapped.env.task if own else None  # type: ignore[attr-defined]
    budget: Any = options.budget[0] if len(options.budget) == 1 else options.budget or getattr(task, "budget", None)
    unsafe_reward = getattr(task, "unsafe_reward", 0.0) if options.unsafe_reward is None else options.unsafe_reward
    if budget is None:
        if options.unsafe_reward is not None:
            raise UserError(f"--unsafe-reward needs a --budget; {options.env} has none of its own")
        return env
    try:
        return SauteWrapper(env, budget, unsafe_reward=unsafe_reward)
    except ValueError as error:
        raise UserError(str(error)) from error


def _policy(name: str) -> Callable[[Any], Policy]:
    """What makes a policy for an environment."""
    if name == "random":
        return lambda env: lambda obs: env.action_space.sample()
    if name == "zero":
        return lambda env: _resting(env.action_space)
    run, _, seed = name.partition("@")
    if run.startswith(PREFIX) or pathlib.Path(run).exists():
        return _trained(run, seed)
    module, colon, path = name.partition(":")
    if not colon:
        raise UserError(
            f"unknown policy {name!r}; use random, zero, or module:function, for example policies:act, or a run folder"
        )
    try:
        function = importlib.import_module(module)
        for attribute in path.split("."):
            function = getattr(function, attribute)
    except Exception as error:
        raise UserError(f"policy {name!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise UserError(f"policy {name!r} is {_kind(function)}, not a function from observation to action")
    return lambda env: lambda obs: _admissible(name, function, obs, env.action_space)


def _trained(run: str, seed: str) -> Callable[[Any], Policy]:
    """The deterministic policy of a run folder, which is told the remaining budget if it was trained to see it."""
    from saute.runs.policy import load_policy

    if seed and not seed.isdigit():
        raise UserError(f"seed {seed!r} of policy {run}@{seed} is not a whole number ≥ 0")
    try:
        policy = load_policy(run, int(seed or 0))
    except ValueError as problem:
        raise UserError(str(problem)) from problem

    def load(env: Any) -> Policy:
        budgeted = isinstance(env, SauteWrapper)
        if policy.reference is not None and not budgeted:
            raise UserError(f"the policy of {run} needs a budget; pass --budget")

        def act(obs: Any) -> Any:
            bare = obs[: -env.options.constraints] if budgeted else obs
            return policy(bare, None if policy.reference is None else env.remaining)

        return lambda obs: _admissible(run, act, obs, env.action_space)

    return load


def _resting(space: gym.Space) -> Policy:
    action = _zero(space)
    return lambda obs: action


def _zero(space: gym.Space) -> Any:
    """The admissible action nearest to zero."""
    if isinstance(space, gym.spaces.Box):
        return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    if isinstance(space, gym.spaces.Discrete):
        return space.start
    if isinstance(space, gym.spaces.MultiDiscrete | gym.spaces.MultiBinary):
        return np.zeros(space.shape, space.dtype)
    raise UserError(f"there is no zero action in {space}; use --policy random or module:function")


def _admissible(name: str, function: Policy, obs: Any, space: gym.Space) -> Any:
    """The function's action, within the bounds of a box; numbers of the wrong shape, and NaN, are refused."""
    try:
        action = function(obs)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.relpath(where.filename)}:{where.lineno}"
        raise UserError(f"policy {name!r} failed at {place}: {type(error).__name__}: {error}") from error
    checked = action[()] if isinstance(action, np.ndarray) and action.ndim == 0 else action
    if isinstance(space, gym.spaces.Box):
        # NumPy would stretch one number over a whole action.
        with contextlib.suppress(TypeError, ValueError):
            checked = np.clip(np.asarray(action, space.dtype).reshape(space.shape), space.low, space.high)
    if (isinstance(space, gym.spaces.Box) and not isinstance(checked, np.ndarray)) or not space.contains(checked):
        raise UserError(f"policy {name!r} returned {action!r}, which is not an action; the action space is {space}")
    return checked


def _camera(env: Any, size: int | None) -> Callable[[], Any]:
    """What takes the pictures: the environment itself, unless another size is wanted."""
    if size is None:
        return env.render
    if env.spec.entry_point == TASK:
        from saute.envs.render import draw

        bare = env.unwrapped
        return lambda: paint(draw(bare.env.task, bare.state, size), B.observe(env.remaining, env.options.reference))

    def resized() -> Any:
        from PIL import Image

        frame = env.render()
        if not isinstance(frame, np.ndarray):
            return frame
        width = round(size * frame.shape[1] / frame.shape[0])
        return np.asarray(Image.fromarray(frame).resize((max(1, width), size), Image.Resampling.LANCZOS))

    return resized


def _play(env: Any, policy: Policy, camera: Callable[[], Any], film: Film, seed: int, steps: int) -> Episode:
    """Film one episode, from its first picture to its last."""
    obs, info = env.reset(seed=seed)
    film.add(_picture(camera))
    task_return, cost, done, time = 0.0, None, False, 0
    while not done and time < steps:
        try:
            obs, reward, terminated, truncated, info = env.step(policy(obs))
        except ValueError as error:
            raise UserError(f"step {time} failed: {error}") from error
        task_return += float(info.get("task_reward", reward))
        if "cost" in info:
            cost = info["cost"] + (0.0 if cost is None else cost)
        done, time = terminated or truncated, time + 1
        film.add(_picture(camera))
    return Episode(seed, time, task_return, cost, info.get("violated"))


def _picture(camera: Callable[[], Any]) -> Any:
    try:
        return camera()
    except Exception as error:
        raise UserError(f"the environment cannot be rendered: {type(error).__name__}: {error}") from error


def _table(episodes: list[Episode], budget: Any) -> str:
    """Return, cost and violation of each episode, in columns."""
    rows = [("seed", "steps", "task return", "cost", "budget", "violated")]
    for episode in episodes:
        violated = "–" if episode.violated is None else "yes" if episode.violated else "no"
        numbers = (_format(episode.task_return), _format(episode.cost), _format(budget))
        rows.append((str(episode.seed), str(episode.steps), *numbers, violated))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def _format(value: Any) -> str:
    return "–" if value is None else ", ".join(f"{number:.2f}" for number in np.atleast_1d(value))


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"
