"""Small training programs put together from the choices that real ones make, for property tests.

Every line is marked: `free` lines hold no Apex and stand in no autocast region, so a rewrite must leave them byte for
byte; the others may go, change or be indented.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

FORMS = ("script", "function", "helpers", "class")
IMPORTS = ("from", "module", "renamed", "names", "guard", "flag", "raise")
SWITCHES = ("", "if", "enabled", "level")
CLIPS = ("", "masters", "parameters", "if")
EVALUATIONS = ("", "loop", "function")
INDENTS = ("    ", "  ", "\t")
NOISE = (
    "",
    "  # beside",
    "# as in the paper",
    "# TODO: tune",
    '"a string on its own"',
    "pass  # nothing yet",
    "count = 0; more = 1",
)


@dataclass(frozen=True)
class Shape:
    """What a program looks like. Without `apex` it is the same program in float32."""

    form: str = "script"
    imports: str = "from"
    switch: str = ""
    level: str = "O1"
    clip: str = ""
    evaluate: str = ""
    accumulate: bool = False
    save: bool = False
    one_line: bool = False
    indent: str = "    "
    quote: str = '"'
    newline: str = "\n"
    final_newline: bool = True
    noise: tuple[tuple[int, str], ...] = ()
    apex: bool = True

    @property
    def amp(self) -> str:
        """How the program names `apex.amp`, with the dot."""
        return {"module": "apex.amp.", "renamed": "mixed.", "names": ""}.get(self.imports, "amp.")


class Program:
    """The text of a program and its free lines, in order."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._lines: list[tuple[str, bool]] = []
        self._depth = 0
        _write(self)
        self._sprinkle()

    @property
    def text(self) -> str:
        text = self.shape.newline.join(line for line, _ in self._lines)
        return text + self.shape.newline if self.shape.final_newline else text

    @property
    def free(self) -> list[str]:
        return [line for line, free in self._lines if free and line.strip()]

    def add(self, text: str, *, free: bool = True) -> None:
        if self.shape.quote == "'":
            text = text.replace('"', "'")
        self._lines.append((self.shape.indent * self._depth + text if text else "", free))

    def change(self, *texts: str) -> None:
        """Lines that a rewrite may change."""
        for text in texts:
            self.add(text, free=False)

    @contextmanager
    def block(self, header: str, *, free: bool = True) -> Iterator[None]:
        self.add(header, free=free)
        self._depth += 1
        yield
        self._depth -= 1

    def _sprinkle(self) -> None:
        """Comments, blank lines and odd statements directly above free lines, comments beside them."""
        for position, text in sorted(self.shape.noise, reverse=True):
            index = position % len(self._lines)
            line, free = self._lines[index]
            if not free or not line.strip():
                continue
            if text.startswith("  #"):
                self._lines[index] = (line + text, True)
            elif not line.lstrip().startswith(("def ", "class ")):
                margin = line[: len(line) - len(line.lstrip())]
                self._lines.insert(index, (margin + text if text else "", True))


def _write(p: Program) -> None:
    _head(p)
    {"script": _script, "function": _function, "helpers": _helpers, "class": _class}[p.shape.form](p)


def _head(p: Program) -> None:
    p.add('"""Trains a small network."""')
    p.add("import argparse")
    p.add("")
    p.add("import torch")
    if p.shape.apex:
        _imports(p)
    p.add("")
    p.add("parser = argparse.ArgumentParser()")
    p.add('parser.add_argument("--fp32", dest="fp16", action="store_false", default=True)')
    p.add('parser.add_argument("--opt-level", type=str, default="O1")')
    p.add('parser.add_argument("--clip", type=float, default=0.1)')
    p.add("args = parser.parse_args()")
    p.add("torch.manual_seed(0)")
    p.add("criterion = torch.nn.CrossEntropyLoss()")
    p.add("batches = [(torch.randn(8, 4).cuda(), torch.randint(0, 2, (8,)).cuda()) for _ in range(4)]")
    p.add("")


def _imports(p: Program) -> None:
    match p.shape.imports:
        case "from":
            p.change("from apex import amp")
        case "module":
            p.change("import apex")
        case "renamed":
            p.change("import apex.amp as mixed")
        case "names":
            used = ["initialize", "scale_loss"]
            used += ["master_params"] * (p.shape.clip == "masters") + ["state_dict"] * p.shape.save
            p.change(f"from apex.amp import {', '.join(sorted(used))}")
        case guard:
            with p.block("try:", free=False):
                p.change("from apex import amp")
                if guard == "flag":
                    p.change("HAS_APEX = True")
            with p.block("except ImportError:", free=False):
                p.change({"guard": "amp = None", "flag": "HAS_APEX = False"}.get(guard, 'raise ImportError("no apex")'))


def _build(p: Program, owner: str = "") -> None:
    """Create and initialize model and optimizer, as names or as attributes of `owner`."""
    p.add(f"{owner}model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).cuda()")
    p.add(f"{owner}optimizer = torch.optim.SGD({owner}model.parameters(), lr=0.1)")
    if not p.shape.apex:
        return
    if p.shape.imports == "flag":
        p.change('assert HAS_APEX, "install apex"')
    level = "args.opt_level" if p.shape.switch == "level" else f'"{p.shape.level}"'
    enabled = ", enabled=args.fp16" if p.shape.switch == "enabled" else ""
    both = f"{owner}model, {owner}optimizer"
    call = f"{both} = {p.shape.amp}initialize({both}, opt_level={level}{enabled})"
    if p.shape.switch == "if":
        with p.block("if args.fp16:", free=False):
            p.change(call)
    else:
        p.change(call)


def _loop(p: Program, owner: str = "") -> None:
    """One pass over the batches."""
    optimizer = f"{owner}optimizer"
    with p.block("for step, (x, y) in enumerate(batches):"):
        p.add("x = x.float()")
        p.change(f"output = {owner}model(x)", "loss = criterion(output, y)")
        if p.shape.accumulate:
            p.change("loss = loss / 2")
        else:
            p.add(f"{optimizer}.zero_grad()")
        _backward(p, optimizer)
        if p.shape.accumulate:
            with p.block("if (step + 1) % 2 == 0:"):
                _step(p, owner)
                p.add(f"{optimizer}.zero_grad()")
        else:
            _step(p, owner)
        p.add('print("loss", loss.item())')


def _backward(p: Program, optimizer: str) -> None:
    if not p.shape.apex:
        p.add("loss.backward()")
        return

    def scaled() -> None:
        header = f"with {p.shape.amp}scale_loss(loss, {optimizer}) as scaled_loss:"
        if p.shape.one_line:
            p.change(f"{header} scaled_loss.backward()")
        else:
            with p.block(header, free=False):
                p.change("scaled_loss.backward()")

    if p.shape.switch == "if":
        with p.block("if args.fp16:", free=False):
            scaled()
        with p.block("else:", free=False):
            p.change("loss.backward()")
    else:
        scaled()


def _step(p: Program, owner: str) -> None:
    parameters = f"{owner}model.parameters()"
    clip = "torch.nn.utils.clip_grad_norm_({}, args.clip)"
    match p.shape.clip:
        case "masters" if p.shape.apex and p.shape.switch == "if":
            with p.block("if args.fp16:", free=False):
                p.change(clip.format(f"{p.shape.amp}master_params({owner}optimizer)"))
            with p.block("else:", free=False):
                p.change(clip.format(parameters))
        case "masters" if p.shape.apex:
            p.change(clip.format(f"{p.shape.amp}master_params({owner}optimizer)"))
        case "masters" | "parameters":
            p.add(clip.format(parameters))
        case "if":
            with p.block("if args.clip:"):
                p.add(clip.format(parameters))
    p.add(f"{owner}optimizer.step()", free=not p.shape.apex)


def _evaluation(p: Program, owner: str = "") -> None:
    with p.block("with torch.no_grad():", free=False), p.block("for x, y in batches:", free=False):
        p.change(f"output = {owner}model(x)", "hits = (output.argmax(1) == y).sum().item()", "print(hits)")


def _finish(p: Program, owner: str = "") -> None:
    if p.shape.save and p.shape.apex:
        p.change(f'state = {{"model": {owner}model.state_dict(), "amp": {p.shape.amp}state_dict()}}')
        p.add("print(len(state))")


def _script(p: Program) -> None:
    _build(p)
    p.add("")
    with p.block("for epoch in range(2):"):
        _loop(p)
    if p.shape.evaluate:
        p.add("model.eval()")
        _evaluation(p)
    _finish(p)


def _function(p: Program) -> None:
    with p.block("def main():"):
        _build(p)
        with p.block("for epoch in range(2):"):
            _loop(p)
        if p.shape.evaluate:
            p.add("model.eval()")
            _evaluation(p)
        _finish(p)
    p.add("")
    p.add("")
    p.add("main()")


def _helpers(p: Program) -> None:
    with p.block("def train_epoch(model, optimizer):", free=False):
        _loop(p)
    p.add("")
    p.add("")
    if p.shape.evaluate:
        with p.block("def evaluate(model):", free=False):
            _evaluation(p)
        p.add("")
        p.add("")
    with p.block("def main():"):
        _build(p)
        with p.block("for epoch in range(2):"):
            p.change("train_epoch(model, optimizer)")
        if p.shape.evaluate:
            p.change("evaluate(model)")
        _finish(p)
    p.add("")
    p.add("")
    p.add("main()")


def _class(p: Program) -> None:
    with p.block("class Trainer:"):
        with p.block("def __init__(self):"):
            _build(p, "self.")
        p.add("")
        with p.block("def train(self):"):
            _loop(p, "self.")
        p.add("")
        with p.block("def evaluate(self):"):
            if p.shape.evaluate:
                _evaluation(p, "self.")
            else:
                p.add("print(len(batches))")
        p.add("")
        with p.block("def finish(self):"):
            p.add("self.epochs = 2")
            _finish(p, "self.")
    p.add("")
    p.add("")
    p.add("trainer = Trainer()")
    with p.block("for epoch in range(2):"):
        p.add("trainer.train()")
    p.add("trainer.evaluate()")
    p.add("trainer.finish()")
