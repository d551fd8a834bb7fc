"""How random programs (`random_programs.py`) grow: from templates (`random_lines.py`), each line
run eagerly at once. `python -m tests.compiler.random_growth SEED` shows a program and its fault.
"""

from __future__ import annotations

import contextlib
import random
import sys
import warnings

import adjoint as ad

from .random_lines import (
    BINARY,
    BLOCKS,
    CHANGES,
    CLEARED,
    HOOKED,
    IN_AD,
    KINDS,
    MODES,
    NARROWED,
    OF_GRADIENTS,
    OF_PARAMETERS,
    PRODUCTS,
    STATEMENTS,
    UNARY,
    VIEWS,
    WEIGHTS,
    WRITES,
)  # fmt: skip
from .random_programs import (
    ALIKE,
    HALF,
    MOST,
    NARROW,
    OPTIMIZERS,
    TOLERANCE,
    Call,
    Program,
    World,
    arguments,
    compared,
    fault_of,
    shortened,
)  # fmt: skip

SINGLE = ("float32", "float()", "world.count", "randint", "world.memo", "world.pair", "model.last",
          "model.running", "model.lstm", "hidden", "tensor(0.02)")  # fmt: skip
OPTIONS = (("mode", "pieces"), ("reassociate", True), ("dynamic", False))


class Growing:
    """A program while it is made."""

    def __init__(self, seed, size):
        self.rng = rng = random.Random(seed)
        width = rng.choice([1, 3, 4, 4, 15])
        self.program = Program(seed, width, rng.choice(list(OPTIMIZERS)), (), (), (), TOLERANCE)
        rows = rng.choice([0, 1, 2, 3, 5, 5, 15, 15, 100 if width > 4 else 257])
        self.calls = [Call((), rows, "float64", rng.random() < 0.4, "", 0.75, 3, "plain", "")]
        self.world = World(self.program, False)
        given = arguments(self.program, self.world, self.calls[0], 0, 0.0)
        self.names = {**self.world.names(), **dict(zip("xyisn", given, strict=True))}
        self.lines: list[str] = []
        self.count = 0
        self.kept_gradients: list[str] = []  # names of those that keep theirs
        self.grow(size)

    # One line.

    def tensors(self, **wanted):
        """Names of tensors of floating point that lines may read."""
        own = [f"v{k}" for k in range(self.count)]
        return ["x", "y", "x", "y", *[n for n in own if n in self.names], *own[-4:], *own[-2:]]

    def operand(self, test=None):
        """The name of a tensor, the later ones more often."""
        found = [
            n for n in self.tensors()
            if isinstance(self.names.get(n), ad.Tensor) and self.names[n].is_floating_point()
            and (test is None or test(self.names[n]))
        ]  # fmt: skip
        return self.rng.choice(found) if found else "x"

    def filled(self, template):
        """An expression."""
        name = template.partition("(")[0]
        if name in IN_AD:
            template = "ad." + template
        first = self.operand()
        shape = tuple(self.names[first].shape)

        def fits(t):
            with contextlib.suppress(ad.AdjointError):
                return len(ad.broadcast_shapes(shape, tuple(t.shape))) > -1
            return False

        others = [self.operand(fits if self.rng.random() < 0.9 else None) for _ in range(2)]
        given = [first, *others] if "{0}" in template or "{}" in template else []
        if any(each in template for each in ("@", "mm(", "einsum", "F.linear({0}, {1})")):
            given = [self.operand(lambda t: t.ndim == 2) for _ in range(2)]
        dim = self.rng.choice([0, -1])
        return self.named(template, given, dim)

    @staticmethod
    def named(template, given, dim):
        """Both `{}` and `{0}` in one template: the first `{}` is 0."""
        parts = template.split("{}")
        text = parts[0]
        for k, part in enumerate(parts[1:]):
            text += f"{{{k}}}" + part
        return text.format(*given, d=dim)

    def tried(self, line, mode=None):
        """Run a line; whether it may stay."""
        before = dict(self.names)
        try:
            with warnings.catch_warnings(), mode or contextlib.nullcontext():
                warnings.simplefilter("ignore")
                exec(line, self.names)
        except Exception:  # whatever it is: the line is not valid here
            self.names = before
            return False
        for name, value in self.names.items():
            if isinstance(value, ad.Tensor) and name[0] == "v" and not self.bounded(value):
                self.names = before
                return False
        return True

    @staticmethod
    def bounded(value):
        if value.numel() > MOST or value.ndim > 4:
            return False
        if not value.is_floating_point():
            return False
        return bool((value.detach().abs().nan_to_num() < 1e3).all())

    def local(self):
        """A tensor that may be written: one that was computed, in memory of its own."""
        states = [self.names["x"], self.names["y"], self.world.average, self.world.table]
        states += [*self.world.model.parameters(), *self.world.model.buffers()]

        def own(t):
            return not any(
                t is z or (t._changes is not None and t._changes is z._changes) for z in states
            )

        anything = self.rng.random() < 0.02
        return self.operand(None if anything else own)

    def line(self):
        """A new line, which has run; None where it is not valid."""
        rng = self.rng
        kind = rng.choices(KINDS, WEIGHTS)[0]
        template = rng.choice(kind)
        if kind is WRITES:
            line = self.named(template, [self.local(), self.operand(), self.operand()], 0)
            of_argument = line.startswith(("x ", "y ", "x.", "y.", "x[", "y["))
            if of_argument and rng.random() > 0.1:
                return None
            return line if self.tried(line) else None
        if kind in STATEMENTS:
            line = template.format(self.operand())
            return line if self.tried(line) else None
        if kind is HOOKED:
            name = self.operand(lambda t: t.requires_grad)
            return self.hooked(template, name) if self.names[name].requires_grad else None
        if kind is BLOCKS:
            return self.block(template)
        line = f"v{self.count} = {self.filled(template)}"
        if not self.tried(line):
            return None
        self.count += 1
        return line

    def hooked(self, template, name):
        """A hook; one that is there twice works twice, so it is only tried when it stays."""
        self.kept_gradients += [name] * ("retain_grad" in template)
        line = template.format(name)
        return line if self.tried(line) else None

    def block(self, header):
        """Lines below a header, each of which runs once here."""
        inside = []
        mode = next(
            (made for name, made in MODES.items() if name in header), contextlib.nullcontext
        )
        if header.startswith("grads"):
            return self.inner_gradient()
        if header in ("try", "handle"):
            return self.undone(header)
        name = f"v{self.count}"
        begin = f"{name} = {self.operand()} * 1.0"
        if header.startswith("for"):
            body = self.rng.choice([f"{name} = {name} * 0.5 + {{}}", f"{name} = {name}.tanh() + s"])
            body = body.format(self.operand())
            line = f"{begin}\n{header}\n    {body}"
            if not self.tried(line):
                return None
            self.count += 1
            return line
        if header.startswith("if"):
            inside = [f"{name} = {name} * {self.rng.choice(['2', 's', 'world.scale'])}"]
            line = "\n    ".join([f"{begin}\n{header}", *inside])
            if not self.tried(line):
                return None
            self.count += 1
            return line
        for _ in range(self.rng.randint(1, 3)):
            kinds = [UNARY, BINARY, VIEWS, PRODUCTS, *[NARROWED] * (3 * ("autocast" in header))]
            template = self.rng.choice(self.rng.choice(kinds))
            line = f"v{self.count} = {self.filled(template)}"
            if self.tried(line, mode()):
                self.count += 1
                inside.append(line)
        return "\n    ".join([header, *inside]) if inside else None

    def undone(self, header):
        """What is there for a few lines only: a hook, an error that is caught."""
        name, given = f"v{self.count}", self.operand(lambda t: t.ndim == 2)
        if header == "try":
            line = f"try:\n    {name} = {given} * 1.5\n    {name}.bad\nexcept AttributeError:\n"
            line += f"    {name} = {name} + s"
        else:
            line = "handle = model.linear.register_forward_hook(lambda m, a, y: y * 2)\n"
            line += f"{name} = model.linear({given})\nhandle.remove()"
        if not self.tried(line):
            return None
        self.count += 1
        return line

    def inner_gradient(self):
        """autograd.grad in the middle."""
        end = self.operand(lambda t: t.requires_grad)
        at = self.rng.choice(
            ["x", "model.weight", "model.linear.weight", self.operand(lambda t: t.requires_grad)]
        )
        create = self.rng.random() < 0.6
        name = f"v{self.count}"
        options = f"create_graph={create}, retain_graph=True, allow_unused=True"
        line = f"{name} = ad.autograd.grad({end}.sin().sum(), {at}, {options})[0]\n"
        line += f"if {name} is None:\n    {name} = ad.zeros_like({at})"
        if not self.tried(line):
            return None
        self.count += 1
        return line

    def more(self, count):
        """Some lines."""
        for _ in range(count):
            line = self.line()
            if line is not None:
                self.lines.append(line)

    def grow(self, size):
        """The whole program."""
        rng = self.rng
        trains = rng.random() < 0.6
        if trains:
            self.add(rng.choice(CLEARED))
        self.more(rng.randint(2, size))
        for _ in range(rng.choice([1, 1, 1, 2]) if trains else 0):
            self.train(size)
        if trains and rng.random() < 0.3:
            self.add(rng.choice(OF_PARAMETERS))
        if trains and rng.random() < 0.1:
            self.add("world.schedule.step()")
        own = [f"v{k}" for k in range(self.count) if f"v{k}" in self.names]
        returned = rng.sample(own, min(len(own), rng.randint(1, 4)))
        if trains and "loss" in self.names:
            returned.append("loss")
        if any("count" in line for line in self.lines):
            returned.append("count")
        if rng.random() < 0.05:
            returned.append(rng.choice(["x", "s"]))
        self.change(trains)
        text = "\n".join((*self.lines, *(change for c in self.calls for change in c.changes)))
        tolerance = TOLERANCE
        if any(each in text for each in SINGLE) or any(c.dtype == "float32" for c in self.calls):
            tolerance = NARROW
        if "float16" in text or "half()" in text:
            tolerance = HALF
        options = (rng.choice(OPTIONS),) if rng.random() < 0.1 else ()
        self.program = self.program._replace(
            lines=tuple(self.lines), returned=tuple(returned), calls=tuple(self.calls),
            tolerance=tolerance, options=options,
        )  # fmt: skip

    def add(self, line):
        if line and self.tried(line):
            self.lines.append(line)
            return True
        return False

    def train(self, size):
        """A loss, its gradients, what is done with them, a step of the optimizer."""
        rng = self.rng
        ends = [self.operand(lambda t: t.requires_grad) for _ in range(rng.randint(1, 3))]
        parts = [f"({n} * {n}).mean()" if rng.random() < 0.7 else f"{n}.sin().sum()" for n in ends]
        if not self.add("loss = " + " + ".join(dict.fromkeys(parts))):
            return
        if rng.random() < 0.1:
            at = rng.choice(["x", "model.weight", "model.linear.weight"])
            self.add(
                f"g = ad.autograd.grad(loss, {at}, create_graph=True, allow_unused=True)[0]\n"
                "loss = loss + (0 if g is None else 0.1 * g.square().sum())"
            )
        retain = "retain_graph=True" if rng.random() < 0.2 else ""
        scaled = rng.random() < 0.12
        if not self.add(f"world.scaler.scale(loss).backward({retain})" if scaled
                        else f"loss.backward({retain})"):  # fmt: skip
            return
        if scaled and rng.random() < 0.3:
            self.add("world.scaler.unscale_(optimizer)")
        if rng.random() < 0.4:
            self.add(rng.choice(OF_GRADIENTS))
        if rng.random() < 0.8:
            self.add("world.scaler.step(optimizer)\nworld.scaler.update()" if scaled
                     else "optimizer.step()")  # fmt: skip
        for name in self.kept_gradients:
            if self.add(f"v{self.count} = {name}.grad * 1.0"):
                self.count += 1
        self.kept_gradients.clear()
        if rng.random() < 0.1:
            self.add("world.second.step()\nworld.second.zero_grad()")
        if rng.random() < 0.3:
            self.more(rng.randint(1, 3))

    def change(self, trains):
        """The other calls."""
        rng = self.rng
        late = rng.choice(["now", "now", "now", "late"])
        if any("checkpoint" in line for line in self.lines):
            late = "now"  # it would compute again with what has changed meanwhile
        whether = not trains or rng.random() < 0.05
        self.calls[0] = call = self.calls[0]._replace(backward=late if whether else "")
        for _ in range(rng.choice([2, 2, 3, 4])):
            changes = rng.sample(CHANGES, rng.choice([0, 1, 1, 2]))
            call = call._replace(changes=tuple(changes))
            if rng.random() < 0.15:
                call = call._replace(rows=rng.choice([0, 1, 2, 3, 5, 15]))
            if rng.random() < 0.06:
                call = call._replace(wants=not call.wants)
            if rng.random() < 0.05:
                call = call._replace(mode=rng.choice(["", "no_grad", "inference"]))
            if rng.random() < 0.05:
                call = call._replace(dtype=rng.choice(["float32", "float64"]))
            if rng.random() < 0.08:
                call = call._replace(s=rng.choice([0.75, -0.5, 2.0]), n=rng.choice([2, 3]))
            if rng.random() < 0.1:
                call = call._replace(layout=rng.choice(["plain", "turned", "strided"]))
            if rng.random() < 0.1:
                call = call._replace(alike=rng.choice(["", *ALIKE]))
            self.calls.append(call)


def made(seed, size=14):
    """The program of a seed."""
    state = ad.get_rng_state()
    try:
        return Growing(seed, size).program
    finally:
        ad.set_rng_state(state)


def main():
    """Show the programs of seeds."""
    for seed in map(int, sys.argv[1:]):
        program = made(seed)
        fault = fault_of(program)
        print(program.described())
        print(fault or f"refused: {compared(program)!r}")
        if fault:
            short = shortened(program)
            print("---- shortest ----")
            print(short.described())
            print(fault_of(short).partition("def make")[0])


if __name__ == "__main__":
    main()
