"""Safe pendulum: swing up and balance; angles around δ = 25° cost (Sootla et al. 2022, appendix A4)."""

from __future__ import annotations

import dataclasses
import math

from saute.envs.formula import Source, Truth, clip, maximum, never, uniform, vector, whole
from saute.envs.rigid import sin_cos
from saute.envs.task import Action, Observation, Scalar, Sensors, State

__all__ = ["Pendulum", "angle_cost", "wrap_angle"]


def wrap_angle(θ: Scalar) -> Scalar:
    """The same angle in [−π, π]."""
    return θ - 2 * math.pi * whole(θ / (2 * math.pi))


def angle_cost(θ: Scalar, centre: float, width: float) -> Scalar:
    """l = (w − |θ° − δ|) / w where that is positive, else 0; θ in radians, δ and w in degrees."""
    return maximum(0.0, (width - abs(wrap_angle(θ) * (180 / math.pi) - centre)) / width)


@dataclasses.dataclass(frozen=True)
class Pendulum:
    """A rod of mass 1 and length 1 with the state x = (θ, θ̇), θ = 0 upright, and the torque u = clip(2a, ±2)."""

    mode: str = "train"
    horizon: int = 200
    budget: float = 30.0
    unsafe_reward: float = 0.0
    reward_scale: float = 17.0
    """Scale and offset of the reward; the paper prints π² + 6.404 ≈ 16.274, with which a safe reward can be 0."""
    unsafe_angle: float = 25.0
    unsafe_width: float = 50.0
    gravity: float = 10.0
    timestep: float = 0.05
    max_speed: float = 8.0

    state_size = 2
    observation_size = 3
    action_size = 1
    substeps = 1

    def start(self, source: Source) -> State:
        θ, speed = uniform(source, 2, -1.0, 1.0)
        return vector(math.pi + 0.2 * θ, 0.1 * speed) if self.mode == "test" else vector(math.pi * θ, speed)

    def advance(self, x: State, action: Action) -> State:
        """θ̇' = θ̇ + (3g/2 sin θ + 3u) dt; θ' = θ + θ̇' dt, and only then θ̇' is clipped to ±8."""
        θ, speed = x
        speed = speed + (1.5 * self.gravity * sin_cos(θ)[0] + 3.0 * _torque(action)) * self.timestep
        return vector(θ + speed * self.timestep, clip(speed, -self.max_speed, self.max_speed))

    def sense(self, x: State, action: Action) -> Sensors:
        return x[:0]

    def observe(self, x: State, sensors: Sensors) -> Observation:
        sin, cos = sin_cos(x[0])
        return vector(cos, sin, x[1])

    def reward(self, x: State, action: Action, x_next: State) -> Scalar:
        """r = 1 − (θ² + 0.1 θ̇² + 0.001 u²) / 17, before the step."""
        loss = wrap_angle(x[0]) ** 2 + 0.1 * x[1] ** 2 + 0.001 * _torque(action) ** 2
        return (self.reward_scale - loss) / self.reward_scale

    def cost(self, x: State, action: Action, x_next: State) -> Scalar:
        return angle_cost(x[0], self.unsafe_angle, self.unsafe_width)

    def terminated(self, x_next: State) -> Truth:
        return never(x_next)


def _torque(action: Action) -> Scalar:
    return clip(2.0 * action[0], -2.0, 2.0)
