"""One table of answers: complete, whatever asks first, through cycles, containers, objects and names in quotes."""

from __future__ import annotations

import ast
import itertools
import textwrap

import pytest

from amp_migrate.audit.program.program import Program
from amp_migrate.audit.values.values import Values


def sources(values: Values, path: str = "train.py") -> dict[str, set[str]]:
    """What each argument of `use` may be, by the text of the argument; unknowns as "?" with what they end at."""
    module = values.program.modules[path]
    found = {}
    for call in module.calls():
        if isinstance(call.func, ast.Name) and call.func.id == "use":
            for argument in call.args:
                origins = values.of(module, argument)
                found[ast.unparse(argument)] = {
                    ("?" if o.kind == "unknown" else "") + ast.unparse(o.node) for o in origins
                }
    return found


def asked(text: str, **others: str) -> set[str]:
    files = {"train.py": textwrap.dedent(text)} | {f"{n}.py": textwrap.dedent(t) for n, t in others.items()}
    (found,) = sources(Values(Program(files))).values()
    return found


def test_a_value_that_goes_round_a_loop_is_what_went_in() -> None:
    assert asked("""
        def first(x): return second(x)
        def second(x): return first(x) if x else x
        use(first(Net()))
    """) == {"Net()"}


def test_an_answer_is_complete_however_long_the_way() -> None:
    steps = "\n".join(f"def f{i}(x): return f{i + 1}(x)" for i in range(700))
    assert asked(f"{steps}\ndef f700(x): return x\nuse(f0(Net()))\n") == {"Net()"}


def test_no_answer_depends_on_what_was_asked_before() -> None:
    text = textwrap.dedent("""
        class Holder:
            def __init__(self, model): self.model = model
            def get(self): return self.model
            def swap(self, other): self.model = other.model
        a = Holder(A())
        b = Holder(B())
        a.swap(b)
        def pick(h, *rest, best=None, **more): return h.get() if best is None else best
        c = pick(a, **settings)
        d = pick(b, best=c)
        use(a.model); use(c); use(d); use(b.get())
    """)
    module = Program({"train.py": text}).modules["train.py"]
    arguments = [c.args[0] for c in module.calls() if isinstance(c.func, ast.Name) and c.func.id == "use"]
    answers = set()
    for order in itertools.permutations(arguments):
        values = Values(Program({"train.py": text}, {"train.py": module}))
        of = {argument: values.of(module, argument) for argument in order}
        answers.add(tuple(of[argument] for argument in arguments))
    assert len(answers) == 1
    assert all({ast.unparse(o.node) for o in answer} >= {"A()", "B()"} for answer in answers.pop())


def test_of_very_many_origins_the_first_are_known_and_that_there_are_others() -> None:
    found = asked("\n".join(f"x = Net({i:03})".replace("(0", "(1_0") for i in range(300)) + "\nuse(x)\n")
    assert len(found) == 201
    assert len([f for f in found if f.startswith("?")]) == 1


@pytest.mark.parametrize(
    ("filled", "read", "found"),
    [
        ("self.parts = nn.ModuleList(); self.parts.append(Net())", "self.parts[0]", {"Net()"}),
        ("self.parts = nn.ModuleDict(); self.parts['a'] = Net()", "self.parts['a']", {"Net()"}),
        ("self.parts = nn.ModuleDict(); self.parts['b'] = Net()", "self.parts['a']", {"?self.parts"}),
        ("self.parts = nn.Sequential(); self.parts.add_module('a', Net())", "self.parts['a']", {"Net()"}),
        ("self.parts = nn.ModuleList(); self.parts.extend([Net(), Net2()])", "self.parts[0]", {"Net()", "Net2()"}),
        ("self.parts = {'b': Net2()}; self.parts.update({'a': Net()})", "self.parts['a']", {"Net()", "?{'b': Net2()}"}),
        ("self.parts = [Net()]; self.parts += [Net2()]", "self.parts[0]", {"Net()", "Net2()"}),
        ("self.add_module('part', Net())", "self.part", {"Net()"}),
        ("setattr(self, 'part', Net())", "self.part", {"Net()"}),
    ],
)
def test_what_is_put_into_an_object_later(filled: str, read: str, found: set[str]) -> None:
    lines = "\n        ".join(filled.split("; "))
    text = f"""
from torch import nn

class Model(nn.Module):
    def __init__(self):
        {lines}

    def forward(self, x):
        use({read})
"""
    assert asked(text) == found


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("p = Policy(); p.learn(Net()); use(p.get())", {"None", "Net()"}),  # put in by one method, given by another
        ("p = Policy(); use(p.held)", {"None", "net"}),  # the objects that are known, not any that has the name
        ("fs = {'a': make, 'b': other}; use(fs[name]())", {"Net()", "Net2()"}),  # a callee from a dictionary
        ("f = make if name else other; use(f())", {"Net()", "Net2()"}),
        ("f = lambda: Net(); use(f())", {"Net()"}),
        (
            "kind = 'held'; p = Policy(); use(getattr(p, kind))",
            {"None", "net"},
        ),  # names in quotes that are written down
        ("use(getattr(Policy(), name))", {"getattr(Policy(), name)"}),  # and one that is not
        ("use(Policy.default)", {"Net2()"}),
        ("use(made_by(make))", {"Net()"}),
    ],
)
def test_what_objects_and_functions_give(lines: str, found: set[str]) -> None:
    classes = """
from outside import name

class Policy:
    default = Net2()

    def __init__(self):
        self.held = None

    def learn(self, net):
        self.held = net

    def get(self):
        return self.held

class Another:
    def __init__(self):
        self.held = Wrong()

    def get(self):
        return Wrong()

def make():
    return Net()

def other():
    return Net2()

def made_by(maker):
    return maker()

"""
    assert asked(classes + "\n".join(lines.split("; ")) + "\n") == found


def test_names_that_a_star_brings() -> None:
    assert asked("from models import *\nuse(net)\n", models="net = Net()\n") == {"Net()"}


def test_where_the_trail_ends_is_said() -> None:
    assert asked("from outside import build\nuse(build().model)\n") == {"?build().model"}
    assert asked("MODELS = load()\nuse(MODELS[name])\n") == {"load()"}
    assert asked("def run(step): use(step)\n") == {"step"}


def test_items_are_followed_four_deep_where_they_are_written_and_two_deep_through_calls() -> None:
    settings = "settings = {'train': {'amp': {'levels': [1]}}}\n"
    assert asked(f"{settings}use(settings['train']['amp']['levels'][0])") == {"1"}
    assert asked(f"{settings}part = settings['train']['amp']\nuse(part['levels'][0])") == {"1"}
    assert asked(f"{settings}def main(amp): use(amp['levels'][0])\nmain(settings['train']['amp'])") == {"1"}
    (deeper,) = asked(f"{settings}def main(given): use(given['train']['amp']['levels'])\nmain(settings)")
    assert deeper.startswith("?")  # known to be not known
