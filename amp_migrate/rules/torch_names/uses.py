"""One use of a deprecated name written with its current one; what cannot be is refused with the reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from amp_migrate.findings import Review
from amp_migrate.reading.program.definitions import dotted, is_none
from amp_migrate.reading.program.module import FUNCTION_NODES
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.deprecated import EXPORTS, Use
from amp_migrate.rules.migration import Output
from amp_migrate.writing.calls import Argument, arguments_of, call_code
from amp_migrate.writing.names import native_name
from amp_migrate.writing.style import Style

CODE = {"autocast": "AMP901", "GradScaler": "AMP902", "custom_fwd": "AMP903", "custom_bwd": "AMP903"}
CURRENT = {
    "": "torch.amp",
    "autocast": "torch.autocast",
    "GradScaler": "torch.amp.GradScaler",
    "custom_fwd": "torch.amp.custom_fwd",
    "custom_bwd": "torch.amp.custom_bwd",
    "_cast": "torch.amp.autocast_mode._cast",
    "OptState": "torch.amp.grad_scaler.OptState",
}
# Parameters of the deprecated forms, in order.
POSITIONS = {
    "autocast": ("enabled", "dtype", "cache_enabled"),
    "GradScaler": ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled"),
    "custom_fwd": ("fwd",),
    "custom_bwd": ("bwd",),
}
# Functions that only look at what they are given.
PROBES = ("isinstance", "issubclass", "hasattr", "getattr", "print", "repr", "str", "type", "id")


@dataclass(frozen=True)
class Refused:
    """A use that stays, where, and why."""

    node: ast.AST
    reason: str
    code: str = "AMP905"


# What Apex's amp has and torch's never had: the import was changed, the calls were not.
OF_APEX = frozenset(
    "initialize scale_loss master_params state_dict load_state_dict init half_function float_function promote_function "
    "register_half_function register_float_function register_promote_function".split()
)


# -- what cannot be converted ----------------------------------------------------------------------------------------


def refuse(project: Project, use: Use) -> Refused | None:
    """Why a use cannot be converted; None where it can."""
    if use.name in OF_APEX:
        reason = (
            f"torch never had {use.construct}, which is Apex's: a run that comes here fails. Import amp from apex again"
        )
        return Refused(use.node, f"{reason}, and run amp-migrate once more", "AMP906")
    if use.name not in CURRENT or (use.name and use.name not in EXPORTS[use.device]):
        return Refused(use.node, f"{use.construct} has no counterpart in torch.amp")
    if not use.name:
        return _refuse_module(use)
    call = _called(project, use)
    if call is not None:
        return _refuse_call(use, call)
    if _beside_module(use):
        reason = f"{use.construct} goes with the module that is passed on beside it: move both, or neither"
        return Refused(use.node, reason)
    parent = use.parent
    if isinstance(parent, ast.Attribute) and parent.attr == "__init__":
        return Refused(use.node, "an __init__ called by name: its arguments move by one in torch.amp; write them out")
    if isinstance(parent, ast.ClassDef):
        return _refuse_base(project, use, parent)
    if use.name == "_cast":
        return Refused(use.node, "_cast is passed on: its callers must pass the device type as the second argument")
    if use.name in POSITIONS and not _is_same_class(use) and _looked_for(use):
        reason = "a value is compared with it: what takes its place is another object; look for both"
        return Refused(use.node, reason)
    if use.name in POSITIONS and not _only_names(use):
        stray = next(_positional_calls(use), None)
        if stray is not None:
            return Refused(
                stray, f"the call at line {stray.lineno} passes arguments by position; give them their names"
            )
    return None


def _refuse_module(use: Use) -> Refused | None:
    parent = use.parent
    if isinstance(parent, ast.Compare) or _probed_name(use) in EXPORTS[use.device]:
        return None
    reason = (
        f"{use.construct} is passed on as a module: what is looked up in it there, or replaced, is not in sight. The name still "
        "works; what is replaced in it does not reach calls that are torch.amp's now"
    )
    return Refused(use.node, reason)


def _beside_module(use: Use) -> bool:
    """Whether a call is given the module, too: `Spec(module=torch.cuda.amp, name="GradScaler", value=...)`."""
    parent = use.parent
    call = use.module.parents.get(parent) if isinstance(parent, ast.keyword) else parent
    if not isinstance(call, ast.Call):
        return False
    given = (*call.args, *(k.value for k in call.keywords))
    return any(a is not use.node and use.module.qualify(a) == f"torch.{use.device}.amp" for a in given)


def _probed_name(use: Use) -> object:
    """`autocast` of `hasattr(torch.cuda.amp, "autocast")`, where the answer is not called."""
    call = use.parent
    if (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("hasattr", "getattr")
        and len(call.args) > 1
        and isinstance(call.args[1], ast.Constant)
    ):
        outer = use.module.parents.get(call)
        if call.func.id == "hasattr" or isinstance(outer, (ast.Compare, ast.If, ast.BoolOp, ast.UnaryOp)):
            return call.args[1].value
    return None


def _refuse_call(use: Use, call: ast.Call) -> Refused | None:
    own = _own_arguments(use, call)
    if any(isinstance(a, ast.Starred) for a in own):
        return Refused(
            use.node, "arguments out of *args: which is the first cannot be told; write the device type before"
        )
    positions = POSITIONS.get(use.name, ("value", "dtype"))
    if sum(not isinstance(a, ast.keyword) for a in own) > len(positions):
        return Refused(use.node, f"more arguments than {use.construct} takes")
    return None


def _refuse_base(project: Project, use: Use, cls: ast.ClassDef) -> Refused | None:
    calls = list(_super_inits(cls))
    for call in calls:
        if any(isinstance(a, ast.Starred) for a in call.args):
            return Refused(call, "a subclass hands *args on: its callers must pass the device type first")
    if use.name == "GradScaler" and use.device == "cuda" and not calls:
        stray = next((c for c in _constructions(project, cls) if c.args), None)
        if stray is None:
            return None
        return Refused(stray, "a subclass constructed by position: give the arguments their names")
    if not calls:
        return Refused(
            use.node, "a subclass without an __init__ of its own: the device type must come from its callers"
        )
    return None


def _super_inits(cls: ast.ClassDef) -> Iterator[ast.Call]:
    for node in walk(cls):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__":
            if isinstance(node.func.value, ast.Call) and dotted(node.func.value.func) == "super":
                yield node


def _constructions(project: Project, cls: ast.ClassDef) -> Iterator[ast.Call]:
    for module in project.modules:
        if cls.name not in module.text:
            continue
        for node in walk(module.tree):
            if isinstance(node, ast.Call):
                found = project.find_class(module, node.func)
                if found is not None and found.node is cls:
                    yield node


def _positional_calls(use: Use) -> Iterator[ast.Call]:
    """Calls by position through a name that the use is assigned to: `context = torch.cuda.amp.autocast`."""
    names: set[str] = set()
    stmt = use.module.statement(use.node)
    if isinstance(stmt, (ast.Assign, ast.AnnAssign)):
        for target in stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]:
            if isinstance(target, (ast.Name, ast.Attribute)):
                names.add(ast.unparse(target))
    for node in walk(use.module.tree) if names else ():
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in names:
            yield node


# -- how it stands ---------------------------------------------------------------------------------------------------


def _called(project: Project, use: Use) -> ast.Call | None:
    """The call of a use, or the `partial` that will call it."""
    parent = use.parent
    if not isinstance(parent, ast.Call):
        return None
    if parent.func is use.node:
        return parent
    partial = project.qualify(use.module, parent.func) == "functools.partial"
    return parent if partial and parent.args and parent.args[0] is use.node else None


def _own_arguments(use: Use, call: ast.Call) -> list[ast.expr | ast.keyword]:
    return [a for a in arguments_of(call) if a is not use.node]


def _is_same_class(use: Use) -> bool:
    """Whether the current name is a class with the same device: only the scaler's is."""
    return use.name == "GradScaler" and use.device == "cuda"


def _looked_for(use: Use) -> bool:
    """Whether a use is there to be recognised: `context is torch.cuda.amp.autocast`, a list of known contexts."""
    node: ast.AST = use.node
    parent = use.parent
    while isinstance(parent, (ast.Tuple, ast.List, ast.Set)):
        node, parent = parent, use.module.parents[parent]
    if isinstance(parent, ast.Compare):
        return not any(map(is_none, (parent.left, *parent.comparators)))
    return isinstance(node, (ast.List, ast.Set)) or (isinstance(node, ast.Tuple) and not _only_names(use))


def _only_names(use: Use) -> bool:
    """Whether a use only says what something is: an annotation, `isinstance`, a comparison."""
    node: ast.AST = use.node
    parent = use.module.parents.get(node)
    if isinstance(parent, ast.Attribute):
        return True
    while isinstance(parent, (ast.Tuple, ast.Subscript, ast.BinOp)):
        node, parent = parent, use.module.parents.get(parent)
    if isinstance(parent, ast.Call):
        return isinstance(parent.func, ast.Name) and parent.func.id in PROBES
    if isinstance(parent, (ast.arg, ast.AnnAssign)):
        return parent.annotation is node
    if isinstance(parent, FUNCTION_NODES):
        return parent.returns is node
    return isinstance(parent, (ast.Compare, ast.UnaryOp, ast.BoolOp, ast.Expr)) or (
        isinstance(parent, (ast.If, ast.IfExp, ast.While, ast.Assert)) and parent.test is node
    )


# -- writing ---------------------------------------------------------------------------------------------------------


def convert(project: Project, use: Use, output: Output) -> None:
    """Write one use with its current name and report it."""
    edits = output.edit(use.module)
    quote = Style(use.module).quote
    device = f"{quote}{use.device}{quote}"
    name = _spelling(use, output)
    code = CODE.get(use.name, "AMP904")
    message = _message(use, name)
    review: Review = "as-is"
    parent = use.parent
    call = _called(project, use)
    if call is not None:
        own = _own_arguments(use, call)
        arguments = _arguments(use, own, device)
        if call.func is use.node:
            edits.replace(call, call_code(use.module, call, name, arguments))
        else:
            edits.replace(use.node, name)
            arguments = [Argument(use.node), *arguments]
            edits.replace(call, call_code(use.module, call, use.module.source(call.func), arguments))
        if use.name in ("autocast", "GradScaler") and any(not isinstance(a, ast.keyword) for a in own):
            message += "; arguments passed by position got their names"
    elif isinstance(parent, FUNCTION_NODES) and use.node in parent.decorator_list:
        first = device if use.name == "autocast" else f"device_type={device}"
        edits.replace(use.node, f"{name}({first})")
    elif isinstance(parent, ast.ClassDef):
        _rename(use, name, output)
        for init in _super_inits(parent):
            own = arguments_of(init)
            edits.replace(init, call_code(use.module, init, use.module.source(init.func), _arguments(use, own, device)))
    elif use.name in POSITIONS and not _only_names(use) and not _is_same_class(use):
        first = device if use.name in ("autocast", "GradScaler") else f"device_type={device}"
        edits.replace(use.node, f"{_partial(use, output)}({name}, {first})")
        review = "look"
    else:
        _rename(use, name, output)
        if use.name in POSITIONS:
            message = f"{name} is its current name"
            if not _only_names(use) and isinstance(parent, (ast.Call, ast.keyword, ast.Return)):
                message += "; whoever calls what is handed on here gives the device type first, or arguments by name"
                review = "look"
    output.done(use.module, use.node, code, use.construct, message, review)


def _message(use: Use, name: str) -> str:
    if use.name in ("autocast", "GradScaler"):
        return f"{name} with the device type first"
    if use.name in ("custom_fwd", "custom_bwd"):
        return f"{name} with device_type"
    return f"{name} has it now"


def _rename(use: Use, name: str, output: Output) -> None:
    if name != use.module.source(use.node):
        output.edit(use.module).replace(use.node, name)


def _arguments(use: Use, own: Sequence[ast.expr | ast.keyword], device: str) -> list[Argument]:
    """The arguments of the current form, given those of the deprecated one."""
    if use.name == "_cast":
        first, *rest = own
        by_name = isinstance(first, ast.keyword)
        return [Argument(first), Argument(None, f"device_type={device}" if by_name else device), *map(Argument, rest)]
    if use.name in ("custom_fwd", "custom_bwd"):
        return [*map(Argument, own), Argument(None, f"device_type={device}")]
    positions = POSITIONS[use.name]
    named = [Argument(a, "" if isinstance(a, ast.keyword) else f"{positions[index]}=") for index, a in enumerate(own)]
    return [Argument(None, device), *named]


def _spelling(use: Use, output: Output) -> str:
    """How the current name is written where the use stands."""
    if use.binding is not None:
        return use.module.source(use.node)
    current = CURRENT[use.name]
    if use.torch is not None:
        return use.module.source(use.torch) + current.removeprefix("torch")
    scope = use.module.scope_of(use.node)
    found = native_name(use.module, current, scope, use.node.lineno)
    return found if found is not None else _import(use, "torch", output) + current.removeprefix("torch")


def _partial(use: Use, output: Output) -> str:
    scope = use.module.scope_of(use.node)
    found = native_name(use.module, "functools.partial", scope, use.node.lineno)
    return found if found is not None else f"{_import(use, 'functools', output)}.partial"


def _import(use: Use, name: str, output: Output) -> str:
    """Import a module at the top of the file, in order where the imports there are in order."""
    body = use.module.tree.body
    imports = [
        s for s in body if isinstance(s, ast.Import) or (isinstance(s, ast.ImportFrom) and s.module != "__future__")
    ]
    first = imports[0] if imports else body[0]
    block = body[body.index(first) :]
    place = next((s for s in block if not isinstance(s, ast.Import) or s.names[0].name > name), first)
    codes = output.edit(use.module).before.setdefault(place, [])
    if f"import {name}" not in codes:
        codes.append(f"import {name}")
    return name
