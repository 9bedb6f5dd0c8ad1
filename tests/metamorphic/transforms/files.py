"""The program in several files, or beside others."""

from __future__ import annotations

import ast
import json

from tests.metamorphic.evaluations import EVALUATIONS
from tests.metamorphic.program import ENTRY, Project, Reading, statements


def reprinted(reading: Reading) -> Project | None:
    """Comments and layout gone, nothing else."""
    return reading.project()


def _imports(reading: Reading) -> list[ast.stmt]:
    """Import statements of the module, guarded ones included, with the flags their guards set."""
    return [s for s in reading.tree.body if isinstance(s, (ast.Import, ast.ImportFrom, ast.Try))]


def _bound(statement: ast.stmt) -> set[str]:
    found = set()
    for node in ast.walk(statement):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {a.asname or a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
    return found


def _read(*trees: ast.AST) -> set[str]:
    return {n.id for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Name)}


def _split(reading: Reading, first: list[ast.stmt], module: str) -> Project | None:
    """Move definitions, with all they need, to a module of their own; None where they read what the script assigns."""
    body = reading.tree.body
    definitions = {s.name: s for s in body if isinstance(s, (ast.FunctionDef, ast.ClassDef))}
    moved: list[ast.stmt] = []
    todo = list(first)
    while todo:
        statement = todo.pop()
        if statement in moved:
            continue
        moved.append(statement)
        todo += [definitions[name] for name in _read(statement) if name in definitions]
    imports = _imports(reading)
    assigned = {n for s in body if s not in moved and s not in imports for n in _bound(s)} - set(definitions)
    if not moved or _read(*moved) & assigned or any(isinstance(n, ast.Global) for s in moved for n in ast.walk(s)):
        return None
    moved.sort(key=body.index)
    rest = [s for s in body if s not in moved]
    names = sorted(
        {n for s in moved for n in _bound(s) if n in definitions} & _read(*[s for s in rest if s not in imports])
    )
    if not names:
        return None
    needed = [s for s in imports if _bound(s) & _read(*moved)]
    other = ast.Module([*needed, *moved], [])
    kept = [
        s
        for s in rest
        if s not in imports or isinstance(s, ast.Try) or _bound(s) & _read(*[r for r in rest if r is not s])
    ]
    at = max((i for i, s in enumerate(kept) if s in imports), default=-1) + 1
    kept[at:at] = statements(f"from {module} import {', '.join(names)}")
    main = ast.Module(kept, [])
    return Project({ENTRY: _unparsed(main), f"{module.strip('.')}.py": _unparsed(other)})


def _unparsed(tree: ast.Module) -> str:
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _functions(reading: Reading) -> list[ast.stmt]:
    """The module's functions and classes that train, but `main`."""
    trained = [f if not reading.is_method(f) else reading.parents[f] for f in reading.trained]
    return [s for s in reading.tree.body if s in trained and getattr(s, "name", "") not in ("main", "run")]


def training_module(reading: Reading) -> Project | None:
    """Functions that train in engine.py."""
    return _split(reading, _functions(reading), "engine")


def only_scaling_module(reading: Reading) -> Project | None:
    """Functions in which the loss is scaled in backprop.py, the rest where it was."""
    inside = {a for s in reading.scaled for a in reading.above(s)}
    first = [s for s in _functions(reading) if s in inside]
    return _split(reading, first, "backprop")


def models_module(reading: Reading) -> Project | None:
    """Models in models.py."""
    models = [
        s
        for s in reading.tree.body
        if isinstance(s, ast.ClassDef) and any("Module" in ast.unparse(base) for base in s.bases)
    ]
    return _split(reading, list(models), "models")


def step_module(reading: Reading) -> Project | None:
    """The step in a helper of another module."""
    if not reading.steps:
        return None
    for step in reading.steps:
        assert isinstance(step.value, ast.Call)
        assert isinstance(step.value.func, ast.Attribute)
        reading.replace(step, *statements(f"advance({ast.unparse(step.value.func.value)})"))
    reading.use("from stepping import advance")
    return Project({ENTRY: reading.text(), "stepping.py": "def advance(optimizer):\n    optimizer.step()\n"})


def _guard(reading: Reading) -> ast.If | None:
    found = [s for s in reading.tree.body if isinstance(s, ast.If) and "__main__" in ast.unparse(s.test)]
    return found[0] if len(found) == 1 and found[0] is reading.tree.body[-1] else None


def _launch(reading: Reading) -> tuple[str, str] | None:
    """What is imported from train.py to run it, and the call, where the guard is one call of its functions."""
    guard = _guard(reading)
    if guard is None or len(guard.body) != 1 or not isinstance(guard.body[0], ast.Expr):
        return None
    names = sorted(_read(guard.body[0]) - {"range"})
    return ", ".join(names), ast.unparse(guard.body[0])


def test_file(reading: Reading) -> Project | None:
    """A test that trains."""
    launch = _launch(reading)
    if launch is None:
        return None
    names, call = launch
    text = f"from train import {names}\n\n\ndef test_it_trains():\n    {call}\n\n\n"
    text += "if __name__ == '__main__':\n    test_it_trains()\n"
    return Project({ENTRY: reading.text(), "test_train.py": text}, twins=("test_train.py",))


def launcher(reading: Reading) -> Project | None:
    """A second script that trains with the first one's functions."""
    launch = _launch(reading)
    if launch is None:
        return None
    names, call = launch
    text = f"from train import {names}\n\n{call}\n"
    return Project({ENTRY: reading.text(), "launch.py": text}, twins=("launch.py",))


def package(reading: Reading) -> Project | None:
    """The program in a package, with a script that starts it."""
    launch = _launch(reading)
    if launch is None:
        return None
    names, call = launch
    start = f"from project.training import {names}\n\nif __name__ == '__main__':\n    {call}\n"
    return Project({ENTRY: start, "project/__init__.py": "", "project/training.py": reading.text()})


def notebook_copy(reading: Reading) -> Project | None:
    """A notebook that holds the whole program, one statement a cell."""
    cells = [ast.unparse(s) for s in reading.tree.body]
    return Project({ENTRY: reading.text(), "train.ipynb": _notebook(cells)}, twins=("train.ipynb",))


def notebook_import(reading: Reading) -> Project | None:
    """A notebook that imports the program and runs it."""
    launch = _launch(reading)
    if launch is None:
        return None
    names, call = launch
    return Project(
        {ENTRY: reading.text(), "explore.ipynb": _notebook([f"from train import {names}", call])},
        twins=("explore.ipynb",),
    )


def _notebook(cells: list[str]) -> str:
    made = [
        {"cell_type": "code", "execution_count": None, "id": f"cell{i}", "metadata": {}, "outputs": [], "source": text}
        for i, text in enumerate(cells)
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {
        "cells": made,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(book, indent=1) + "\n"


def evaluation(reading: Reading) -> Project | None:
    """A script that evaluates in float32: it never comes by `amp.initialize`."""
    text = EVALUATIONS.get(reading.fixture.name)
    if text is None:
        return None
    return Project({ENTRY: reading.text(), "evaluate.py": text}, also=("evaluate.py",))


def copied(reading: Reading) -> Project | None:
    """A copy of the program under another name: two programs, two units."""
    return Project({ENTRY: reading.text(), "train_again.py": reading.text()}, twins=("train_again.py",))


TRANSFORMS = {
    "reprinted": reprinted,
    "training in a module": training_module,
    "scaling in a module": only_scaling_module,
    "models in a module": models_module,
    "step in a module": step_module,
    "test added": test_file,
    "launcher added": launcher,
    "package": package,
    "notebook of the program": notebook_copy,
    "notebook that imports": notebook_import,
    "evaluation added": evaluation,
    "program copied": copied,
}
