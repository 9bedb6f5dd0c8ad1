"""What was made in which run of a body: two objects of one call are told apart by the calls that came to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module, Scope
from amp_migrate.audit.ways.chains import Chain, Chains


@dataclass(frozen=True)
class Frame:
    """One run of a body; without a call, any run of it."""

    module: Module
    function: Function | None  # None: the file itself
    call: ast.Call | None = None
    above: Frame | None = None

    @property
    def body(self) -> list[ast.stmt]:
        return self.function.node.body if self.function is not None else self.module.tree.body

    @property
    def scope(self) -> Scope:
        return self.function.scope if self.function is not None else self.module.top

    @property
    def whole(self) -> bool:
        """Whether the way is known from the start of a process."""
        return self.function is None or (self.above is not None and self.above.whole)

    def is_apart_from(self, other: Frame) -> bool:
        """Whether different calls began two runs of a body, or runs that led to them."""
        one: Frame | None = self
        two: Frame | None = other
        while one is not None and two is not None and one.call is not None and two.call is not None:
            if one.call is not two.call:
                return True
            one, two = one.above, two.above
        return False

    @property
    def functions(self) -> Iterator[Function]:
        """The functions whose bodies are run, from the inside out."""
        frame: Frame | None = self
        while frame is not None:
            if frame.function is not None:
                yield frame.function
            frame = frame.above


@dataclass(frozen=True)
class Made:
    """What a call made in one run of a body (None: in any), or what a parameter was given that nothing in sight fills."""

    node: ast.AST
    frame: Frame | None

    def surely_not(self, other: Made) -> bool:
        """Whether two are never one object."""
        if not isinstance(self.node, ast.Call) or not isinstance(other.node, ast.Call):
            return False
        if self.node is other.node:
            one, two = self.frame, other.frame
            if one is None or two is None:
                return False
            return one.is_apart_from(two) or (one.whole and two.whole and one != two)
        return syntax.text(self.node.func) != syntax.text(other.node.func) or _makes(self) or _makes(other)


def _makes(made: Made) -> bool:
    """Whether a call is written as one that makes an object anew each time."""
    assert isinstance(made.node, ast.Call)
    last = syntax.last(made.node.func)
    return last[:1].isupper() or last == "deepcopy" or not last


@dataclass(frozen=True)
class Answer:
    """All that it may be; `sure`: each of them comes about, as far as its own tests go."""

    made: frozenset[Made]
    sure: bool = True

    def __or__(self, other: Answer) -> Answer:
        return Answer(self.made | other.made, self.sure and other.sure)


NONE = Answer(frozenset())


def frame_of(chain: Chain) -> Frame:
    """The run of the body that a way comes to."""
    frame: Frame | None = None
    call: ast.Call | None = None
    for step in chain.steps:
        frame = Frame(step.module, step.function, call, frame if call is not None else None)
        call = step.node if isinstance(step.node, ast.Call) and not step.value else None
    assert frame is not None
    return frame


def frames_at(chains: Chains, module: Module, node: ast.AST) -> list[Frame]:
    """The runs of a body in which a node is come to; any run of it, where no way there is seen."""
    ways = chains.to(module, node)
    return list(dict.fromkeys(map(frame_of, ways))) or [Frame(module, module.function_around(node))]
