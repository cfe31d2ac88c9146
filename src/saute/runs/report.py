"""Where metrics go besides the run folder: TensorBoard, Weights & Biases; and the versions that made them."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import pathlib
import platform
from collections.abc import Callable, Iterator
from typing import Any

from saute.envs import nearest

__all__ = ["LOGGERS", "logger", "versions"]

Log = Callable[[int, list[dict[str, float]]], None]
PACKAGES = ("saute", "gymnasium", "jax", "jaxlib", "mujoco", "numpy", "optax", "scipy")


def versions() -> dict[str, Any]:
    """What a run was made with."""
    packages = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "system": platform.system(), "cores": os.cpu_count(), **packages}


@contextlib.contextmanager
def logger(names: tuple[str, ...], out: pathlib.Path, config: dict[str, Any]) -> Iterator[Log]:
    """A function (epoch, metrics of every seed) → None that passes them to all named loggers."""
    with contextlib.ExitStack() as stack:
        try:
            logs = [stack.enter_context(LOGGERS[nearest(name, LOGGERS, "logger")](out, config)) for name in names]
        except ModuleNotFoundError as missing:
            raise ValueError(f"{missing}; pip install 'saute[log]'") from None

        def log(epoch: int, metrics: list[dict[str, float]]) -> None:
            for one in logs:
                one(epoch, metrics)

        yield log


@contextlib.contextmanager
def _tensorboard(out: pathlib.Path, config: dict[str, Any]) -> Iterator[Log]:
    """Event files in the run folder, one curve per metric and seed."""
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(out / "tensorboard")) as writer:

        def log(epoch: int, metrics: list[dict[str, float]]) -> None:
            for name, value in _flat(metrics).items():
                writer.add_scalar(name, value, epoch)

        yield log


@contextlib.contextmanager
def _wandb(out: pathlib.Path, config: dict[str, Any]) -> Iterator[Log]:
    import wandb

    run = wandb.init(project="saute", name=out.name, dir=str(out), config=config)
    try:
        yield lambda epoch, metrics: run.log(_flat(metrics), step=epoch)
    finally:
        run.finish()


def _flat(metrics: list[dict[str, float]]) -> dict[str, float]:
    return {f"{name}/seed-{seed}": value for seed, values in enumerate(metrics) for name, value in values.items()}


LOGGERS: dict[str, Callable[..., Any]] = {"tensorboard": _tensorboard, "wandb": _wandb}
