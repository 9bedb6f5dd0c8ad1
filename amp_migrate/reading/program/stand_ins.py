"""Names of a file that do what a function of Apex's does: `def initialize(*a, **k): return amp.initialize(*a, **k)`, whatever
stands beside it for a machine without Apex."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from amp_migrate.reading.program.scope import FUNCTION_NODES, FunctionNode
from amp_migrate.reading.program.tree import brings_only_apex

if TYPE_CHECKING:
    from amp_migrate.reading.program.module import Module

# What Apex's functions take, in their order, and what they take it to be where it is left out; `...`: it must be given.
TAKEN: Mapping[str, Mapping[str, object]] = {
    "apex.amp.initialize": {
        "models": ...,
        "optimizers": None,
        "enabled": True,
        "opt_level": "O1",
        "cast_model_type": None,
        "patch_torch_functions": None,
        "keep_batchnorm_fp32": None,
        "master_weights": None,
        "loss_scale": None,
        "cast_model_outputs": None,
        "num_losses": 1,
        "verbosity": 1,
        "min_loss_scale": None,
        "max_loss_scale": 2.0**24,
    },
    "apex.amp.scale_loss": {
        "loss": ...,
        "optimizers": ...,
        "loss_id": 0,
        "model": None,
        "delay_unscale": False,
        "delay_overflow_check": False,
    },
    "apex.amp.master_params": {"optimizer": ...},
    "apex.amp.state_dict": {"destination": None},
    "apex.amp.load_state_dict": {"state_dict": ...},
    "apex.amp.half_function": {"fn": ...},
    "apex.amp.float_function": {"fn": ...},
    "apex.amp.promote_function": {"fn": ...},
}
SAID = ("verbosity",)  # what changes nothing but what is printed
WITHOUT = ("ImportError", "ModuleNotFoundError", "Exception")
MANAGERS = ("contextlib.contextmanager",)


def stand_ins(module: Module, program: Sequence[Module]) -> dict[str, str]:
    """The names that a file of a program gives functions of Apex's, and the full names of these."""
    if not any(name.rpartition(".")[2] in module.text for name in TAKEN):
        return {}
    found = {name: _meaning(module, nodes) for name, nodes in module.root.bindings.items()}
    return {
        name: meaning
        for name, meaning in found.items()
        if meaning is not None and not any(_named(program, p) for p in _renamed(module, name, meaning))
    }


def _meaning(module: Module, nodes: Sequence[ast.AST]) -> str | None:
    """What a name that some statements bind stands for where Apex is installed, if that is a function of it."""
    meanings: set[str] = set()
    for node in nodes:
        stmt = node if isinstance(node, FUNCTION_NODES) else module.parents.get(node)
        if isinstance(stmt, (ast.Import, ast.ImportFrom)) or not isinstance(stmt, ast.stmt):
            return None
        if _without_apex(module, stmt):
            continue
        meaning = _same(module, stmt)
        if meaning is None or not _always(module, stmt):
            return None
        meanings.add(meaning)
    return meanings.pop() if len(meanings) == 1 else None


def _same(module: Module, stmt: ast.stmt) -> str | None:
    """The function of Apex's that a definition does the same as, or that an assignment gives a name to."""
    if isinstance(stmt, ast.FunctionDef):
        name = _hands_over(module, stmt)
        open_ = stmt.args.vararg is not None or stmt.args.kwarg is not None
        # A function that takes a model and an optimizer to prepare them can be read as it is.
        return name if name != "apex.amp.initialize" or open_ or stmt.name == "initialize" else None
    if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], ast.Name):
        name = module.qualify(stmt.value)
        return name if name in TAKEN else None
    return None


def _hands_over(module: Module, function: ast.FunctionDef) -> str | None:
    """The function of Apex's that a function gives all that it is given, and whose result it gives back."""
    body = list(_of_apex(module, function.body))
    decorators = function.decorator_list  # asked what they are at last: one may be what is read here under another name
    match body:
        case [ast.Return(value=ast.expr() as value)] if not decorators:
            return _called(module, function, _chosen(module, value))
        case [
            ast.With(
                items=[ast.withitem(context_expr=call, optional_vars=ast.Name(id=name))], body=[ast.Expr(value=given)]
            )
        ]:
            yields = isinstance(given, ast.Yield) and isinstance(given.value, ast.Name) and given.value.id == name
            meaning = _called(module, function, call) if yields and len(decorators) == 1 else None
            managed = meaning == "apex.amp.scale_loss" and module.qualify(decorators[0]) in MANAGERS
            return meaning if managed else None
        case [ast.Assign(targets=[target], value=call), ast.Return(value=ast.expr() as value)] if not decorators:
            same = ast.unparse(target).strip("()") == ast.unparse(value).strip("()")
            return _called(module, function, call) if same else None
    return None


def _of_apex(module: Module, block: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    """The statements of a block that run where Apex is installed; not its docstring, nor imports of Apex."""
    for stmt in block:
        if isinstance(stmt, ast.If) and (installed := _asks(module, stmt.test)) is not None:
            chosen = list(_of_apex(module, stmt.body if installed else stmt.orelse))
            yield from chosen
            if chosen and isinstance(chosen[-1], (ast.Return, ast.Raise)):
                return
        elif isinstance(stmt, ast.Try) and _looks_for_apex(module, stmt) and not stmt.finalbody:
            yield from _of_apex(module, [*stmt.body, *stmt.orelse])
        elif not brings_only_apex(stmt) and not (isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)):
            yield stmt


def _chosen(module: Module, value: ast.expr) -> ast.expr:
    if isinstance(value, ast.IfExp) and (installed := _asks(module, value.test)) is not None:
        return value.body if installed else value.orelse
    return value


def _called(module: Module, function: FunctionNode, call: ast.expr) -> str | None:
    """The function of Apex's that a call gives all that a function takes, each where Apex takes it."""
    name = module.qualify(call.func) if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or name is None or name not in TAKEN:
        return None
    taken, a = TAKEN[name], function.args
    order, own = list(taken), [*a.posonlyargs, *a.args]
    given: dict[str, ast.expr] = {}
    rest = {arg.arg for arg in (a.vararg, a.kwarg) if arg is not None}
    for place, value in enumerate(call.args):
        if isinstance(value, ast.Starred):
            if a.vararg is None or ast.unparse(value.value) != a.vararg.arg or place != len(own):
                return None
            rest.discard(a.vararg.arg)
        elif place < len(order):
            given[order[place]] = value
    for keyword in call.keywords:
        if keyword.arg is not None:
            given[keyword.arg] = keyword.value
        elif a.kwarg is not None and ast.unparse(keyword.value) == a.kwarg.arg:
            rest.discard(a.kwarg.arg)
        else:
            return None
    defaults = dict(zip([p.arg for p in own][::-1], a.defaults[::-1], strict=False))
    defaults |= {p.arg: d for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None}
    for place, parameter in enumerate((*own, *a.kwonlyargs)):
        keys = [k for k, v in given.items() if isinstance(v, ast.Name) and v.id == parameter.arg]
        positional = place < len(own)
        if len(keys) != 1 or (key := keys[0]) not in order:
            return None
        if order.index(key) != place if positional else key != parameter.arg:
            return None
        if (left_out := defaults.get(parameter.arg)) is not None and not _is(left_out, taken[key]):
            return None
        del given[key]
    if rest or not all(key in SAID or (key in taken and _is(value, taken[key])) for key, value in given.items()):
        return None
    return name


def _renamed(module: Module, name: str, meaning: str) -> list[str]:
    """The parameters of a function that Apex knows by other names."""
    functions = [n for n in module.root.bindings[name] if isinstance(n, ast.FunctionDef)]
    parameters = (p.arg for f in functions for p in (*f.args.posonlyargs, *f.args.args))
    return [p for p in parameters if p not in TAKEN[meaning]]


def _named(program: Iterable[Module], parameter: str) -> bool:
    """Whether a call in the program names a parameter."""
    files = (m for m in program if parameter in m.text)
    return any(k.arg == parameter for m in files for call, _ in m.calls for k in call.keywords)


def _is(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value


def _without_apex(module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement of a file runs only where Apex is not installed."""
    return any(not installed for installed in _around(module, stmt) if installed is not None)


def _always(module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement of a file runs wherever Apex is installed."""
    return all(_around(module, stmt))


def _around(module: Module, stmt: ast.stmt) -> Iterable[bool | None]:
    """What each compound statement around a statement of a file asks: is Apex there, is it not; None: something else."""
    child: ast.AST = stmt
    for parent in module.ancestors(stmt):
        if isinstance(parent, ast.If):
            installed = _asks(module, parent.test)
            yield None if installed is None else installed == (child in parent.body)
        elif isinstance(parent, ast.Try):
            tried = not isinstance(child, ast.ExceptHandler)
            yield tried if _looks_for_apex(module, parent) else None
        elif not isinstance(parent, (ast.ExceptHandler, ast.Module)):
            yield None
        child = parent


def _looks_for_apex(module: Module, guard: ast.Try) -> bool:
    """Whether what a statement tries is to import Apex."""
    caught = [ast.unparse(h.type) if h.type is not None else "Exception" for h in guard.handlers]
    return any(brings_only_apex(s) for s in guard.body) and all(
        any(name in WITHOUT for name in kind.strip("()").split(", ")) for kind in caught
    )


def _asks(module: Module, test: ast.expr) -> bool | None:
    """What a test is where Apex is installed, if that is all it asks."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _asks(module, test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
        constant = test.comparators[0].value
        if constant is None and isinstance(test.ops[0], (ast.Is, ast.IsNot)) and _is_part(module, test.left):
            return isinstance(test.ops[0], ast.IsNot)
        return None
    if _is_part(module, test):
        return True
    return _flag(module, test.id) if isinstance(test, ast.Name) else None


def _is_part(module: Module, node: ast.expr) -> bool:
    """Whether a name is what an import at the top of the file brings of Apex, and None where that fails."""
    if not isinstance(node, ast.Name) or (module.qualify(node) or "").split(".")[0] != "apex":
        return False
    nodes = module.root.bindings.get(node.id, ())
    return all(
        isinstance(n, (ast.Import, ast.ImportFrom)) or _in_handler(module, n) or _is_none(module, n) for n in nodes
    ) and not any(isinstance(a, ast.If) for n in nodes for a in module.ancestors(n))


def _is_none(module: Module, node: ast.AST) -> bool:
    stmt = module.parents.get(node)
    return isinstance(stmt, ast.Assign) and _is(stmt.value, None)


def _flag(module: Module, name: str) -> bool | None:
    """`HAS_APEX`, which nothing but the import at the top of the file decides: what it is with Apex."""
    told: dict[bool, object] = {}
    for node in module.root.bindings.get(name, ()):
        stmt = module.parents.get(node)
        if not isinstance(stmt, ast.Assign) or not isinstance(stmt.value, ast.Constant):
            return None
        guard = next((a for a in module.ancestors(stmt) if isinstance(a, ast.Try)), None)
        if guard is None or not _looks_for_apex(module, guard):
            return None
        told[_in_handler(module, stmt)] = stmt.value.value
    match told:
        case {False: bool() as there, True: bool() as missing} if there != missing:
            return there
    return None


def _in_handler(module: Module, node: ast.AST) -> bool:
    return any(isinstance(a, ast.ExceptHandler) for a in module.ancestors(node))
