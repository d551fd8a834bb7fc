"""Programs that signals interrupt: `python -m tests.signal_storm NAME COUNT SEED`.

Another process sends SIGINT, SIGALRM and SIGUSR1, COUNT in all, while this one repeats the workload
NAME. Half of the handlers raise, at random, the others return. After each interrupt the next call
must work, and all must be as it was, or as it is one step later: parameters, states of optimizers,
buffers, counters of steps and of draws, modes, the collector, the profile hook, the signals' mask.
Prints how many of the signals raised, and ends with status 0 where all was well.
"""

from __future__ import annotations

import faulthandler
import gc
import hashlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import adjoint as ad
from adjoint import nn
from adjoint.core.mode import DEFAULT, MODE

SIGNALS = (signal.SIGINT, signal.SIGALRM, signal.SIGUSR1)
Workload = tuple[Callable[[], Any], Callable[[], str]]  # what is repeated, and what it has changed


class Interrupted(Exception):
    """What a handler raises."""


def _digest(*tensors: Any) -> str:
    made = hashlib.sha256()
    for x in tensors:
        made.update(np.asarray(x.detach().numpy() if hasattr(x, "detach") else x).tobytes())
    return made.hexdigest()


def _state(model: Any, *optimizers: Any) -> str:
    """A digest of all that a training step changes."""
    parts = list(model.state_dict().values())
    for optimizer in optimizers:
        for state in optimizer.state.values():
            parts += [x for x in state.values() if isinstance(x, ad.Tensor)]
    return _digest(*parts, np.array([ad.random.default_generator.draws]))


def product() -> Workload:
    x = ad.rand(500, 500)
    wanted = _digest(x @ x)

    def run() -> None:
        assert _digest(x @ x) == wanted

    return run, lambda: ""


def layers() -> Workload:
    """oneDNN's primitives: convolutions, bfloat16 products, recurrent cells, Newton-Schulz."""
    images, kernel = ad.rand(4, 8, 20, 20), ad.rand(8, 8, 3, 3)
    half = ad.rand(256, 256).bfloat16()
    cell, sequence = nn.LSTM(32, 64), ad.rand(12, 8, 32)
    weight = nn.Parameter(ad.rand(64, 64))
    muon = ad.optim.Muon([weight], lr=0.0)
    weight.grad = ad.rand(64, 64)

    def results() -> str:
        y = nn.functional.conv2d(images, kernel, padding=1)
        out = cell(sequence)[0]
        out.sum().backward()
        muon.step()
        return _digest(y, (half @ half).float(), out, weight)

    wanted = results()

    def run() -> None:
        assert results() == wanted

    return run, lambda: ""


def eager() -> Workload:
    """Small ops, backward, blocks in other modes."""
    w = nn.Parameter(ad.rand(8, 8))
    x = ad.rand(8, 8)

    def run() -> None:
        for _ in range(20):
            with ad.no_grad(), ad.autocast("cpu"):
                x @ w
            with ad.Graph():
                pass
            with ad.enable_grad(), ad.device("cpu"):
                (g,) = ad.autograd.grad((x @ w).tanh().sum(), w)
        assert g.shape == w.shape

    return run, lambda: ""


def _network() -> tuple[Any, Any, Any]:
    ad.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Tanh(), nn.Linear(16, 4)
    )
    return model, ad.optim.Adam(model.parameters(), 1e-3), ad.rand(6, 8)


def _step_of(model: Any, optimizers: Any, x: Any) -> Any:
    def step() -> Any:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss

    return step


def later_calls() -> Workload:
    """A compiled training step."""
    model, optimizer, x = _network()
    step = ad.compile(_step_of(model, [optimizer], x))
    step()
    step()
    return step, lambda: _state(model, optimizer)


def two_optimizers() -> Workload:
    """A compiled training step with Python code between what it writes."""
    model, _, x = _network()
    first = ad.optim.Adam(model[0].parameters(), 1e-3)
    second = ad.optim.SGD(model[4].parameters(), 1e-2, momentum=0.9)
    schedule = ad.optim.lr_scheduler.StepLR(first, 3)
    step = _step_of(model, [first, second], x)

    @ad.compile
    def both() -> Any:
        loss = step()
        schedule.step()
        return loss

    both()
    both()

    def state() -> str:
        lr = first.param_groups[0]["lr"]
        return _state(model, first, second) + f" {schedule.last_epoch} {lr}"

    return both, state


def gradients_outside() -> Workload:
    """A compiled model whose gradients come in later, and an eager optimizer."""
    model, _, x = _network()
    compiled = ad.compile(model)
    compiled(x).sum().backward()

    def run() -> None:
        model.zero_grad()
        compiled(x).sum().backward()

    return run, lambda: ""


def first_calls() -> Workload:
    """Functions that are compiled anew."""
    model, _, x = _network()
    values = {name: p.detach().clone() for name, p in model.named_parameters()}
    factors = itertools.count(1)

    def run() -> None:
        factor = next(factors)
        try:
            step = ad.compile(lambda: (model(x) * factor).sum())
            step()
        finally:
            for name, p in model.named_parameters():
                assert _digest(p) == _digest(values[name])

    return run, lambda: ""


def first_steps() -> Workload:
    """First calls of training steps."""
    run_one: list[Any] = []

    def run() -> None:
        model, optimizer, x = _network()
        step = ad.compile(_step_of(model, [optimizer], x))
        run_one[:] = [model, optimizer]
        step()

    def checked() -> None:
        run_one.clear()
        try:
            run()
        finally:
            if run_one:
                model, optimizer = run_one
                assert _state(model, optimizer) in wanted

    fresh_model, fresh_optimizer, _ = _network()
    wanted = _state(fresh_model, fresh_optimizer), _state_after_one_step()
    return checked, lambda: ""


def _state_after_one_step() -> str:
    model, optimizer, x = _network()
    ad.compile(_step_of(model, [optimizer], x))()
    return _state(model, optimizer)


WORKLOADS = {
    f.__name__: f
    for f in (
        product, layers, eager, later_calls, two_optimizers, gradients_outside, first_calls,
        first_steps,
    )
}  # fmt: skip
RATES = {"first_calls": 20, "first_steps": 10, "layers": 50}  # signals a second
SENDER = """
import os, random, sys, time
target, count, seed, rate = map(int, sys.argv[1:5])
names = sys.argv[5:]
random.seed(seed)
for _ in range(count):
    time.sleep(random.expovariate(rate))
    try:
        os.kill(target, int(random.choice(names)))
    except ProcessLookupError:
        break
"""


def storm(name: str, count: int, seed: int) -> int:
    """How many signals raised while a workload ran. Errors: AssertionError where something is not
    as it was, and whatever the workload raises itself.
    """
    rng = random.Random(seed)
    armed = [False]

    def handler(number: int, frame: Any) -> None:
        if armed[0] and rng.random() < 0.5:
            armed[0] = False
            raise Interrupted(signal.Signals(number).name)

    for number in SIGNALS:
        signal.signal(number, handler)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    run, state = WORKLOADS[name]()
    run()
    raised = 0
    numbers = [str(int(each)) for each in SIGNALS]
    command = [sys.executable, "-S", "-c", SENDER, str(os.getpid()), str(count), str(seed)]
    sender = subprocess.Popen([*command, str(RATES.get(name, 100)), *numbers])
    trail: list[str] = [state()]  # what one call after the other leads to
    while sender.poll() is None:
        try:
            armed[0] = True
            run()
            armed[0] = False
            trail.append(state())
        except Interrupted:
            armed[0] = False
            raised += 1
            assert MODE.get() is DEFAULT, "the mode is another"
            assert gc.isenabled(), "the collector is off"
            assert sys.getprofile() is None, "the profile hook is on"
            assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask, "signals are blocked"
            assert signal.getsignal(signal.SIGINT) is handler, "handlers are deferred"
            if state() != trail[-1]:
                trail.append(state())
            run()
            trail.append(state())
        armed[0] = False
    if trail[0]:
        assert trail == calm(name, len(trail)), "a call has happened in part"
    return raised


def calm(name: str, calls: int) -> list[str]:
    """What so many calls without signals lead to, one after the other."""
    run, state = WORKLOADS[name]()
    found = []
    for _ in range(calls):
        run()
        found.append(state())
    return found


def main() -> None:
    """Run one workload."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(540, exit=True)
    name, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    began = time.perf_counter()
    raised = storm(name, count, seed)
    print(name, "raised", raised, f"{time.perf_counter() - began:.1f} s", "END")


if __name__ == "__main__":
    main()
