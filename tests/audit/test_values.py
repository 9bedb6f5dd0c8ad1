"""Where a value may come from: what a call hands on."""

from __future__ import annotations

import ast
import textwrap

import pytest

from amp_migrate.audit.program.program import Program
from amp_migrate.audit.values.origins import in_order
from amp_migrate.audit.values.values import Values
from tests.audit.helpers import program

USE = """
    def run(model, optimizer=None, *, log=False):
        use(model, optimizer)
"""


def origins(text: str, name: str) -> set[str]:
    """The source of what the argument of `use` may be, unknowns as "?"."""
    module = Program({"train.py": program(text + USE)}).modules["train.py"]
    values = Values(Program({"train.py": module.text}, {"train.py": module}))
    call = next(c for c in module.calls() if isinstance(c.func, ast.Name) and c.func.id == "use")
    argument = next(a for a in call.args if isinstance(a, ast.Name) and a.id == name)
    return {"?" if o.kind == "unknown" else ast.unparse(o.node) for o in values.of(module, argument)}


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("run(Net(), Adam())", {"Net()"}),
        ("run(model=Net(), **settings)", {"Net()"}),
        ("run(Net(), *rest)", {"Net()"}),
        ("run(*rest)", {"?"}),
        ("run(**{'model': Net(), 'log': True})", {"Net()"}),
        ("given = dict(model=Net(), log=True); run(**given)", {"Net()"}),
        ("given = {}; given['model'] = Net(); run(**given)", {"Net()", "?"}),  # what else fills it is not followed
        ("run(**settings)", {"?"}),
    ],
)
def test_what_a_call_gives_a_parameter(call: str, found: set[str]) -> None:
    lines = "\n".join(f"    {line.strip()}" for line in call.split(";"))
    assert origins(f"\n    from outside import rest, settings\n{lines}\n", "model") == found


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("return model", {"Net()"}),
        ("return model if strict else Other()", {"Net()", "Old()", "Other()"}),
        ("model = Other()\n        return model", {"Net()", "Other()"}),  # not by the order of statements
        ("model = Wrapped(model)\n        return model", {"Net()", "Wrapped(model)"}),
        ("model, _ = split(model)\n        return model", {"Net()", "Old()", "split(model)"}),
        ("model = model.cuda()\n        return model", {"Net()"}),
        ("if strict:\n            model = torch.nn.DataParallel(model)\n        return model.train()", {"Net()"}),
        ("if strict: return Other()\n        return model", {"Net()", "Other()"}),
        ("return rebuilt(model)", {"Net()", "Old()"}),
    ],
)
def test_what_a_function_hands_back_is_what_that_call_gave_it(body: str, found: set[str]) -> None:
    helper = f"def load(path, model, strict=True):\n        {body}\n    def rebuilt(net): return net.cuda()"
    calls = "old = load('a', Old())\n    new = load('b', model=Net(), strict=False)\n    run(new)\n"
    text = f"\n    import torch\n    {helper}\n    {calls}"
    assert origins(text, "model") == found


def test_a_default_counts_where_no_call_gives_another() -> None:
    assert origins("\n    run(Net())\n", "optimizer") == {"None"}


@pytest.mark.parametrize(
    ("function", "call", "found"),
    [
        ("def on(**kwargs): run(**kwargs)", "on(model=Net())", {"Net()"}),
        ("def on(*args): run(*args)", "on(Net(), Adam())", {"Net()"}),
        ("def on(log, *args, **kwargs): run(*args, **kwargs)", "on(True, Net())", {"Net()"}),
        ("def on(log, *args, **kwargs): run(*args, **kwargs)", "on(True, model=Net())", {"Net()"}),
        ("def on(first, *args): run(first, *args)", "on(Net(), Adam())", {"Net()"}),
        ("def on(**kwargs): run(**kwargs)\n    def further(**more): on(**more)", "further(model=Net())", {"Net()"}),
    ],
)
def test_what_is_gathered_and_handed_on(function: str, call: str, found: set[str]) -> None:
    assert origins(f"\n    {function}\n    {call}\n", "model") - {"?"} == found


def test_what_is_handed_round_in_a_circle_ends() -> None:
    """Each round takes the first of what it is given: the places asked for have no end."""
    function = "def on(log, *args): run(*args); on(*args)"
    assert "Net()" in origins(f"\n    {function}\n    on(True, Net())\n", "model")


def test_what_is_gathered_at_another_place_is_another_value() -> None:
    assert origins("\n    def on(*args): run(*args)\n    on(Net(), Adam())\n", "optimizer") - {"?"} == {"Adam()"}


def test_origins_come_as_they_stand_in_the_program() -> None:
    makers = [f"Net{i}()" for i in range(12)]
    text = "".join(f"\n    run({maker}, Adam())" for maker in makers)
    module = Program({"train.py": program(text + USE)}).modules["train.py"]
    values = Values(Program({"train.py": module.text}, {"train.py": module}))
    call = next(c for c in module.calls() if isinstance(c.func, ast.Name) and c.func.id == "use")
    found = in_order(values.of(module, call.args[0]))
    assert [ast.unparse(o.node) for o in found if o.kind == "call"] == makers


def test_the_variable_of_a_comprehension_is_what_that_gives_it() -> None:
    """Other things of the function may have its name: it is not theirs."""
    text = textwrap.dedent("""
        def main(other):
            names = ["a", "b"]
            found = [x for x in names]
            for x in other:
                print(x)
            return found
    """)
    program = Program({"a.py": text})
    module = program.modules["a.py"]
    values = Values(program)
    comprehension = next(n for n in ast.walk(module.tree) if isinstance(n, ast.ListComp))
    assert values.constants(module.scope_of(comprehension), comprehension.elt) == {"a", "b"}
    printed = next(c for c in module.calls() if ast.unparse(c.func) == "print")
    assert values.constants(module.scope_of(printed), printed.args[0]) is None


KEEPER = """
    class Schedule:
        def __init__(self, inner):
            self.inner = inner
    class Node:
        def __init__(self, inner):
            self.inner = inner
    class Trainer:
        def __init__(self, inner):
            self.inner = inner
            self.inner.inner = Other()
        def go(self):
            use(self.inner)
    {made}
"""


@pytest.mark.parametrize(
    ("made", "found"),
    [
        ("Trainer(Schedule(Adam()))", {"Schedule(Adam())"}),  # another object's
        ("Trainer(Trainer(Adam()))", {"Trainer(Adam())", "Adam()", "Other()"}),  # one of its own kind
        ("Trainer(unknown)", {"?", "Other()"}),
        ("Trainer(Schedule(Adam())); Trainer(Node(SGD()))", {"Schedule(Adam())", "Node(SGD())"}),
    ],
)
def test_whose_attribute_is_given_a_value(made: str, found: set[str]) -> None:
    lines = "\n".join(f"    {line.strip()}" for line in made.split(";")).strip()
    text = "\n" + KEEPER.format(made=lines)
    module = Program({"train.py": program(text)}).modules["train.py"]
    values = Values(Program({"train.py": module.text}, {"train.py": module}))
    (call,) = (c for c in module.calls() if isinstance(c.func, ast.Name) and c.func.id == "use")
    assert {"?" if o.kind == "unknown" else ast.unparse(o.node) for o in values.of(module, call.args[0])} == found


def test_what_a_file_is_given_is_no_field_of_an_object() -> None:
    """`engine.scaler = Scaler()` where `engine` is a file, and `self.scaler` of a class."""
    files = {
        "engine.py": "scaler = None\n",
        "keeper.py": "class Keeper:\n    def keep(self, scaler):\n        self.scaler = scaler\n        return self.scaler\n",
        "train.py": (
            "import engine\nfrom keeper import Keeper\n\n"
            "engine.scaler = Wide()\nKeeper().keep(Own())\nsettings().keeper.scaler = Other()\n"
        ),
    }
    whole = Program(files)
    module = whole.modules["keeper.py"]
    read = next(n for n in ast.walk(module.tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load))
    found = {ast.unparse(o.node) for o in Values(whole).origins(module.scope_of(read), read)}
    assert found == {"Own()", "Other()"}
