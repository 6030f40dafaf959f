"""The launch-overhead probe: what starting an almost empty kernel costs.

Three different numbers: wall seconds per launch on a plain queue (what a program pays), on a
profiling queue (what measuring adds), and the kernel's own event window (what a sample of a real
kernel contains of it).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from time import perf_counter

import numpy as np
from rooftune.device.client import Client

LABEL = "LaunchOverhead"


@dataclass(frozen=True)
class LaunchMethod:
    """When to stop: `agreeing` samples in a row within `tolerance` (a share), or `most` launches in all.

    A sample is `per_sample` launches.
    """

    per_sample: int = 100
    tolerance: float = 0.03
    agreeing: int = 3
    most: int = 5000

    def __post_init__(self) -> None:
        if not 1 <= self.per_sample <= (self.most - 1) // 2 or self.agreeing < 1:
            raise ValueError(f"{self} leaves no sample for each of the two queues")


@dataclass(frozen=True)
class LaunchMeasured:
    """Seconds per launch.

    A spread is (slowest - best) / best of the last samples, those that should agree.
    """

    wall_s: float
    profiled_s: float
    window_s: float
    spread: float
    window_spread: float
    samples: int
    launches: int


def empty_window_s(client: Client, samples: int = 5, repeats: int = 20) -> float:
    """The event window of an almost empty kernel: the best of a few samples, seconds."""
    enqueue = _almost_empty(client)
    client.sample(enqueue)
    return min(client.sample(enqueue, repeats) for _ in range(samples))


def _almost_empty(client: Client) -> Callable[[], None]:
    text = resources.files(__package__).joinpath("kernels/launch.cl").read_text()
    kernel = client.kernel(text, "almost_empty")
    counter = client.upload(np.zeros(1, np.uint32))
    kernel.set_args(counter)

    def enqueue(_alive: object = counter) -> None:  # the kernel does not keep its buffer alive
        client.enqueue(kernel, (1,), (1,), label=LABEL)

    return enqueue


def probe_launch(client: Client, method: LaunchMethod) -> LaunchMeasured:
    """Measure all three, sharing the budget of launches between the two queues."""
    launch = _almost_empty(client)
    launches = 0

    def enqueue() -> None:
        nonlocal launches
        launches += 1
        launch()

    windows: list[float] = []

    def plain() -> float:
        began = perf_counter()
        for _ in range(method.per_sample):
            enqueue()
        client.queue.finish()
        return (perf_counter() - began) / method.per_sample

    def profiled() -> float:
        began = perf_counter()
        windows.append(client.sample(enqueue, method.per_sample))
        return (perf_counter() - began) / method.per_sample

    with client.exclusive():
        enqueue()
        client.sync()
        most = (method.most - 1) // method.per_sample // 2
        walls = _until_steady(plain, method, most)
        both = _until_steady(profiled, method, most)
    last = walls[-method.agreeing :]
    return LaunchMeasured(
        min(walls),
        min(both),
        min(windows),
        _spread(last),
        _spread(windows[-method.agreeing :]),
        len(walls) + len(both),
        launches,
    )


def _until_steady(sample: Callable[[], float], method: LaunchMethod, most: int) -> list[float]:
    samples: list[float] = []
    while len(samples) < most:
        samples.append(sample())
        last = samples[-method.agreeing :]
        if len(last) == method.agreeing and _spread(last) <= method.tolerance:
            break
    return samples


def _spread(samples: list[float]) -> float:
    return (max(samples) - min(samples)) / min(samples)
