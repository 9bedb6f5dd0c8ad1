"""Apex and torch imported in other ways."""

from __future__ import annotations

import ast

from tests.metamorphic.program import Project, Reading, expression, statements


def _renamed(reading: Reading, old: str, new: str) -> bool:
    """Give what imports bind as `old` another name; False where something else binds it too."""
    stored = any(n.id == old and isinstance(n.ctx, ast.Store) for n in reading.all(ast.Name))
    arguments = any(n.arg == old for n in reading.all(ast.arg))
    if stored or arguments or any(old in n.names for n in reading.all(ast.Global)):
        return False
    for node in reading.all(ast.Name):
        if node.id == old:
            node.id = new
    return True


def _amp_imports(reading: Reading) -> list[ast.ImportFrom]:
    return [
        s
        for s in reading.all(ast.ImportFrom)
        if s.module == "apex" and len(s.names) == 1 and s.names[0].name == "amp" and not s.level
    ]


def amp_renamed(reading: Reading) -> Project | None:
    """`from apex import amp as mixed`."""
    found = _amp_imports(reading)
    bound = {s.names[0].asname or "amp" for s in found}
    if len(bound) != 1:
        return None
    new = reading.fresh("mixed")
    if not _renamed(reading, bound.pop(), new):
        return None
    for statement in found:
        statement.names[0].asname = new
    return reading.project()


def amp_dotted(reading: Reading) -> Project | None:
    """`import apex.amp as a`."""
    found = _amp_imports(reading)
    bound = {s.names[0].asname or "amp" for s in found}
    if len(bound) != 1:
        return None
    new = reading.fresh("a")
    if not _renamed(reading, bound.pop(), new):
        return None
    for statement in found:
        reading.replace(statement, *statements(f"import apex.amp as {new}"))
    return reading.project()


def apex_whole(reading: Reading) -> Project | None:
    """`import apex` and `apex.amp.scale_loss`."""
    found = _amp_imports(reading)
    bound = {s.names[0].asname or "amp" for s in found}
    if len(bound) != 1 or "apex" in reading.taken:
        return None
    old = bound.pop()
    uses = [n for n in reading.all(ast.Name) if n.id == old]
    if not _renamed(reading, old, old):
        return None
    for use in uses:
        reading.swap(use, expression("apex.amp"))
    for statement in found:
        reading.replace(statement, *statements("import apex.amp"))
    return reading.project()


def functions_imported(reading: Reading) -> Project | None:
    """`from apex.amp import initialize, scale_loss`."""
    found = _amp_imports(reading)
    bound = {s.names[0].asname or "amp" for s in found}
    if len(bound) != 1:
        return None
    old = bound.pop()
    uses = [n for n in reading.all(ast.Name) if n.id == old]
    parents = [reading.parents[n] for n in uses]
    names = sorted({n.attr for n in parents if isinstance(n, ast.Attribute)})
    if not names or not all(isinstance(n, ast.Attribute) for n in parents) or set(names) & reading.taken:
        return None
    if not _renamed(reading, old, old):
        return None
    for parent in parents:
        assert isinstance(parent, ast.Attribute)
        reading.swap(parent, ast.Name(parent.attr, ast.Load()))
    for statement in found:
        reading.replace(statement, *statements(f"from apex.amp import {', '.join(names)}"))
    return reading.project()


def local_import(reading: Reading) -> Project | None:
    """Apex imported in each function that uses it."""
    (found, *more) = _amp_imports(reading) or [None]
    if found is None or more or reading.parents[found] is not reading.tree:
        return None
    name = found.names[0].asname or "amp"
    uses = [n for n in reading.all(ast.Name) if n.id == name]
    outermost = [
        next((a for a in reversed(list(reading.above(use))) if isinstance(a, ast.FunctionDef)), None) for use in uses
    ]
    if not uses or None in outermost or any(use in ast.walk(d) for use in uses for d in _decorators(reading)):
        return None
    for function in dict.fromkeys(outermost):
        assert function is not None
        at = int(ast.get_docstring(function) is not None)
        function.body[at:at] = statements(ast.unparse(found))
    reading.tree.body.remove(found)
    return reading.project()


def _decorators(reading: Reading) -> list[ast.expr]:
    return [d for f in reading.all(ast.FunctionDef) for d in f.decorator_list]


def guarded(reading: Reading) -> Project | None:
    """`try: from apex import amp / except ImportError: amp = None`."""
    (found, *more) = _amp_imports(reading) or [None]
    if found is None or more or reading.parents[found] is not reading.tree:
        return None
    name = found.names[0].asname or "amp"
    text = f"try:\n    {ast.unparse(found)}\nexcept ImportError:\n    {name} = None"
    reading.replace(found, *statements(text))
    return reading.project()


def torch_renamed(reading: Reading) -> Project | None:
    """`import torch as t`."""
    found = [s for s in reading.all(ast.Import) for a in s.names if a.name == "torch" and a.asname is None]
    if len(found) != 1 or len(found[0].names) != 1:
        return None
    new = reading.fresh("t")
    if not _renamed(reading, "torch", new):
        return None
    found[0].names[0].asname = new
    return reading.project()


def amp_assigned(reading: Reading) -> Project | None:
    """`from apex import amp as apex_amp; precision = apex_amp`."""
    (found, *more) = _amp_imports(reading) or [None]
    if found is None or more or reading.parents[found] is not reading.tree:
        return None
    new = reading.fresh("precision")
    name = found.names[0].asname or "amp"
    if not _renamed(reading, name, new):
        return None
    block = reading.tree.body
    at = max(i for i, s in enumerate(block) if isinstance(s, (ast.Import, ast.ImportFrom)) or s is found) + 1
    block[at:at] = statements(f"{new} = {name}")
    return reading.project()


def amp_by_call(reading: Reading) -> Project | None:
    """`amp = importlib.import_module("apex.amp")`."""
    found = _amp_imports(reading)
    if not found or "importlib" in reading.taken:
        return None
    for statement in found:
        name = statement.names[0].asname or "amp"
        reading.replace(statement, *statements(f'import importlib\n{name} = importlib.import_module("apex.amp")'))
    return reading.project()


TRANSFORMS = {
    "amp renamed": amp_renamed,
    "import apex.amp as a": amp_dotted,
    "import apex.amp": apex_whole,
    "functions of amp imported": functions_imported,
    "import in the functions": local_import,
    "import guarded": guarded,
    "torch renamed": torch_renamed,
    "amp assigned": amp_assigned,
    "amp imported by a call": amp_by_call,
}
