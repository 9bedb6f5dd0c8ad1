"""What does a program look like in which one statement was touched?

Each mutation takes a `Reading` and a source of randomness, changes the tree and says whether it did. The result parses; it
need not mean the same, nor run: what it does is found out by running it.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import random
import re
from collections.abc import Callable

from tests.metamorphic.program import ENTRY, FUNCTION, Reading, statements
from tests.metamorphic.transforms import TRANSFORMS

Mutation = Callable[[Reading, random.Random], bool]
OfStatement = Callable[[Reading, random.Random, list[ast.stmt], int], bool]

# What a migration is about: statements that name one of these are touched more often.
MARKS = re.compile(r"amp\b|apex|optim|loss|backward|scal|zero_grad|clip|\.grad\b|model|net\b|half\(|state_dict")
COMPOUND = (
    ast.For,
    ast.While,
    ast.If,
    ast.With,
    ast.Try,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
)
IMPORTS = (ast.Import, ast.ImportFrom)
# Names that a migration may want for itself.
WANTED = (
    "scaler",
    "autocast",
    "GradScaler",
    "enabled",
    "amp",
    "use_amp",
    "nullcontext",
    "scaled_loss",
    "torch_",
    "naïve",
    "переменная",
    "µ",
)


def blocks(reading: Reading) -> list[list[ast.stmt]]:
    found = []
    for node in ast.walk(reading.tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                found.append(body)
    return found


def pick(
    reading: Reading, chosen: random.Random, kind: type[ast.stmt] | tuple[type[ast.stmt], ...] = ast.stmt
) -> tuple[list[ast.stmt], int] | None:
    """A statement: its block and its place there."""
    places = [(b, i) for b in blocks(reading) for i, s in enumerate(b) if isinstance(s, kind) and not _head(b, i)]
    if not places:
        return None
    weights = [_weight(b[i]) for b, i in places]
    return chosen.choices(places, weights)[0]


def at_statement(kind: type[ast.stmt]) -> Callable[[OfStatement], Mutation]:
    """A mutation of one statement of a kind, which is given its block and its place there; none where there is none."""

    def wrapped(mutate: OfStatement) -> Mutation:
        @functools.wraps(mutate)
        def mutation(reading: Reading, chosen: random.Random) -> bool:
            place = pick(reading, chosen, kind)
            return place is not None and mutate(reading, chosen, *place)

        return mutation

    return wrapped


def _weight(statement: ast.stmt) -> int:
    inner = isinstance(statement, COMPOUND)
    return (5 if MARKS.search(ast.unparse(statement)) else 1) * (1 if inner else 2)


def _head(block: list[ast.stmt], at: int) -> bool:
    """Docstrings and `from __future__` have to stay where they are."""
    statement = block[at]
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return True
    return at == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def stored(*trees: ast.AST) -> set[str]:
    found = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
                found.add(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, IMPORTS):
                found |= {a.asname or a.name.split(".")[0] for a in node.names}
    return found


def leaves(statement: ast.stmt) -> bool:
    """Whether a statement may jump out of where it stands, or cannot be moved into another kind of block."""
    kinds = (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)
    star = isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*"
    return star or any(isinstance(n, kinds) for n in ast.walk(statement))


def _in_loop(reading: Reading, statement: ast.stmt) -> bool:
    for above in reading.above(statement):
        if isinstance(above, (*FUNCTION, ast.ClassDef)):
            return False
        if isinstance(above, (ast.For, ast.While)) and statement not in above.orelse:
            return True
    return False


@at_statement(ast.stmt)
def duplicate(reading: Reading, chosen: random.Random, block: list[ast.stmt], at: int) -> bool:
    block.insert(at + 1, copy.deepcopy(block[at]))
    return True


@at_statement(ast.stmt)
def remove(reading: Reading, chosen: random.Random, block: list[ast.stmt], at: int) -> bool:
    block[at : at + 1] = [] if len(block) > 1 else [ast.Pass()]
    return True


@at_statement(ast.stmt)
def swap(reading: Reading, chosen: random.Random, block: list[ast.stmt], at: int) -> bool:
    if at + 1 >= len(block):
        return False
    block[at], block[at + 1] = block[at + 1], block[at]
    return True


@at_statement(ast.stmt)
def move(reading: Reading, chosen: random.Random, block: list[ast.stmt], at: int) -> bool:
    """To another place of its block, or into the block around."""
    statement = block[at]
    outer = [b for b in blocks(reading) if any(block in (getattr(s, n, None) for n in ("body", "orelse")) for s in b)]
    target = chosen.choice([block, *outer])
    if target is not block and leaves(statement):
        return False
    block[at : at + 1] = [] if len(block) > 1 else [ast.Pass()]
    target.insert(chosen.randint(1 if _head(target, 0) else 0, len(target)), statement)
    return True


def splice(reading: Reading, chosen: random.Random) -> bool:
    """A statement of the program once more, somewhere else."""
    place, target = pick(reading, chosen), pick(reading, chosen)
    if place is None or target is None or leaves(place[0][place[1]]):
        return False
    target[0].insert(target[1], copy.deepcopy(place[0][place[1]]))
    return True


INSERTED = (
    "pass",
    "...",
    "'a string'",
    "assert True",
    "if False:\n    raise RuntimeError('never')",
    "{name} = {name}",
    "_ = {name}",
    "({name})",
    "kept = [{name}]",
    "try:\n    {name}\nexcept NameError:\n    raise",
    "del_me = 1\ndel del_me",
    "def unused():\n    return {name}",
    "unused = lambda value=1: (value, {name})",
    "class Unused:\n    value = 1\n    def step(self):\n        return self.value",
    "print(type({name}).__name__)",
    "{name}: object",
    "import torch.nn.functional as functional_again",
    "from torch import nn as nn_again, optim",
)
IN_LOOP = ("if False:\n    break", "if False:\n    continue", "if {name} is None:\n    continue")
IN_FUNCTION = ("if False:\n    return", "if {name} is None:\n    return None", "nonsense = locals()")


@at_statement(ast.stmt)
def insert(reading: Reading, chosen: random.Random, block: list[ast.stmt], at: int) -> bool:
    """A statement that does nothing, or jumps where nothing ever goes."""
    statement = block[at]
    scope = reading.scope(statement)
    texts = INSERTED + (IN_LOOP * 3 if _in_loop(reading, statement) else ())
    texts += IN_FUNCTION * 2 if isinstance(scope, ast.FunctionDef) else ()
    names = sorted({n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)})
    text = chosen.choice(texts).format(name=chosen.choice(names or ["__name__"]))
    block[at:at] = statements(text)
    return True


@at_statement(ast.If)
def invert(reading: Reading, chosen: random.Random, block: list[ast.stmt], at: int) -> bool:
    """The branches of an `if` the other way round, or an `elif` spelled out as nothing but a test."""
    found = block[at]
    assert isinstance(found, ast.If)
    found.test = ast.UnaryOp(ast.Not(), found.test)
    found.body, found.orelse = found.orelse or [ast.Pass()], found.body
    return True


def rename(reading: Reading, chosen: random.Random) -> bool:
    """A variable or function, everywhere, to a name that a migration might want, or one of another alphabet."""
    names = {n.id for n in reading.all(ast.Name) if isinstance(n.ctx, ast.Store)}
    names |= {n.name for n in reading.all(ast.FunctionDef) if not reading.is_method(n)}
    spoken = {n.arg for n in reading.all(ast.arg)} | {k.arg for k in reading.all(ast.keyword)}
    spoken |= {n.attr for n in reading.all(ast.Attribute)} | set(dir(builtins))
    spoken |= {n.value for n in reading.all(ast.Constant) if isinstance(n.value, str)}
    spoken |= {n for s in reading.all(ast.Global) for n in s.names} | {
        n for s in reading.all(ast.Nonlocal) for n in s.names
    }
    spoken |= {a.asname or a.name for i in [*reading.all(ast.Import), *reading.all(ast.ImportFrom)] for a in i.names}
    known = sorted(names - spoken)
    new = chosen.choice(WANTED)
    everything = {n.id for n in reading.all(ast.Name)} | spoken | names
    if not known or new in everything:
        return False
    old = chosen.choice(known)
    for node in ast.walk(reading.tree):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new
        elif isinstance(node, (ast.FunctionDef, ast.ExceptHandler)) and node.name == old:
            if not reading.is_method(node):
                node.name = new
    return True


def decorate(reading: Reading, chosen: random.Random) -> bool:
    """A decorator that does nothing."""
    found = reading.all(ast.FunctionDef)
    if not found:
        return False
    name = reading.fresh("unchanged")
    text = chosen.choice(
        (
            "def {0}(function):\n    return function",
            "def {0}(function):\n    @functools.wraps(function)\n    def inner(*args, **kwargs):\n"
            "        return function(*args, **kwargs)\n    return inner",
            "{0} = torch.enable_grad()",
        )
    )
    reading.define(*statements(text.format(name)))
    reading.use("import functools")
    chosen.choice(found).decorator_list.append(ast.Name(name, ast.Load()))
    return True


@at_statement(ast.Assign)
def annotate(reading: Reading, chosen: random.Random, block: list[ast.stmt], at: int) -> bool:
    """An assignment with a type, to two targets, or in two steps."""
    found = block[at]
    assert isinstance(found, ast.Assign)
    form = chosen.randrange(4)
    target = found.targets[0]
    if form == 0 and len(found.targets) == 1 and isinstance(target, (ast.Name, ast.Attribute)):
        if any(isinstance(n, (ast.Global, ast.Nonlocal)) for n in ast.walk(reading.scope(found))):
            return False
        block[at] = ast.AnnAssign(target, ast.Constant("object"), found.value, int(isinstance(target, ast.Name)))
    elif form == 1:
        found.targets.append(ast.Name(reading.fresh("kept"), ast.Store()))
    elif form == 2:
        name = reading.fresh("held")
        value, found.value = found.value, ast.Name(name, ast.Load())
        block.insert(at, ast.Assign([ast.Name(name, ast.Store())], value))
    elif isinstance(target, (ast.Tuple, ast.List)) and len(found.targets) == 1:
        name = reading.fresh("pair")
        block[at : at + 1] = [
            ast.Assign([ast.Name(name, ast.Store())], found.value),
            *(
                ast.Assign([t], ast.Subscript(ast.Name(name, ast.Load()), ast.Constant(i), ast.Load()))
                for i, t in enumerate(target.elts)
                if not isinstance(t, ast.Starred)
            ),
        ]
    else:
        return False
    return True


def in_other_words(reading: Reading, chosen: random.Random) -> bool:
    """One of the transformations of tests/metamorphic that leaves the program in one file."""
    project = TRANSFORMS[chosen.choice(list(TRANSFORMS))](reading)
    if project is None or list(project.files) != [ENTRY]:
        return False
    reading.tree.body[:] = ast.parse(project.files[ENTRY]).body
    return True


MUTATIONS: dict[Mutation, int] = {
    duplicate: 4,
    remove: 5,
    swap: 4,
    move: 4,
    splice: 2,
    insert: 5,
    invert: 1,
    rename: 2,
    decorate: 1,
    annotate: 3,
    in_other_words: 4,
}
