"""Functions cast by decoration, or by wrapping: `@amp.float_function`, `nms = amp.float_function(_C.nms)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.reading.program.module import FUNCTION_NODES, FunctionNode, Module, Scope
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.sites.casts import DECORATORS, decorated
from amp_migrate.reading.switch.flags import flag_around
from amp_migrate.reading.units.naming import free
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.reading.values.tensors import Kind, is_generator, loads, parameter_kinds
from amp_migrate.rules.casts.text import cast_lines, guarded
from amp_migrate.rules.migration import Migration
from amp_migrate.writing.edits import Code

CODE = {"float": "AMP510", "half": "AMP511", "promote": "AMP512"}
PROMOTED = 4  # more inputs than these are not promoted in one readable line


@dataclass(frozen=True)
class Cast:
    """What a site asks for: `to` is float, half or promote; where it stands, for reports and refusals."""

    to: str
    site: Site

    @property
    def code(self) -> str:
        return CODE[self.to]

    @property
    def construct(self) -> str:
        return self.site.construct

    def refuse(self, message: str) -> Blocked:
        node = self.site.call or self.site.node
        return Blocked(self.site.module, node, "AMP516", self.construct, message)


def convert_function(m: Migration, site: Site) -> None:
    """Convert one decorator or wrapper.

    Raises Blocked where what is wrapped, or what it is given, is not in sight.
    """
    cast = Cast(DECORATORS[site.short], site)
    function = decorated(site)
    if function is not None:
        if not _on_autograd_function(m, cast, site.module, function):
            cast_definition(m, cast, site.module, function, site.node)
        return
    if _names(m, site):
        m.edit(site.module).delete(site.stmt)
        m.output.done(site.module, site.node, cast.code, site.construct, "nothing is called by this name any more")
        return
    call = site.call
    if call is None or len(call.args) != 1 or call.keywords or isinstance(call.args[0], ast.Starred):
        raise cast.refuse(f"{site.construct} is passed on: what it will wrap is not in sight; cast the inputs there")
    _wrapped(m, cast, call, call.args[0])


def _names(m: Migration, site: Site) -> bool:
    """Whether a statement only gives the function another name, under which the program reads it as itself."""
    target = site.stmt.targets[0] if isinstance(site.stmt, ast.Assign) and site.stmt.value is site.node else None
    handed_on, module = m.project.handed_on, site.module
    if not isinstance(target, ast.Name) or handed_on.stand_ins(module).get(target.id) != site.name:
        return False
    return bool(module.loads.get(target.id)) or any(True for _ in handed_on.readers(module, target.id))


def always_on(m: Migration) -> bool:
    """Whether the unit's code always runs under autocast: no switch, and evaluation as well."""
    flags = [flag_around(m.project, init) for init in m.unit.inits]
    always = m.options.eval == "autocast" and bool(flags) and all(flag.always for flag in flags)
    return always and not _runs_without(m)


def _runs_without(m: Migration) -> bool:
    """Whether some run comes to a forward where Apex was never set up, or not yet: Apex's wrappers cast nothing there."""
    return any(
        m.live(module, call) and (m.set_up.never(module.scope_of(call)) or m.set_up.never_at(module, call))
        for function, calls in m.project.calls.items()
        if m.regions.forwards.has_forward(function)
        for module, call in calls
    )


def method_of(m: Migration, to: str) -> str:
    """The tensor method that casts: `float`, or that of the lower precision asked for."""
    return "float" if to == "float" else {"float16": "half", "bfloat16": "bfloat16"}[m.options.dtype]


# -- definitions in sight --------------------------------------------------------------------------------------------


def cast_definition(
    m: Migration, cast: Cast, module: Module, function: FunctionNode, decorator: ast.expr | None
) -> None:
    """Cast the inputs at the top of a function of the program; `decorator` is what asked for it there."""
    if is_generator(function):
        raise cast.refuse(f"{function.name} is a generator: cast its inputs where they are used")
    kinds = parameter_kinds(module, function)
    odd = [n for n, kind in kinds.items() if kind == "odd"]
    if odd:
        raise cast.refuse(f"what {', '.join(odd)} of {function.name} holds cannot be told; cast its tensors by hand")
    first = _first_statement(function)
    lines = _lines(m, cast, module, function, kinds) if first is not None else []
    edits = m.edit(module)
    if lines and first is not None:
        edits.insert_before(first, *lines)
    if decorator is not None:
        if cast.to == "float" and lines:
            edits.replace(decorator, m.off("autocast", module, module.scope_of(function)))
        else:
            edits.undecorate(decorator)
    elif cast.to == "float" and lines and first is not None:
        edits.wrap(first, function.body[-1], m.off("autocast", module, module.scope_of(first)))
    _done(m, cast, function.name, lines, kinds)


def _done(m: Migration, cast: Cast, name: str, lines: list[str], kinds: dict[str, Kind]) -> None:
    what = {
        "float": f"{name} runs without autocast on float32 inputs",
        "half": f"the inputs of {name} are cast",
        "promote": f"the inputs of {name} are promoted",
    }[cast.to]
    unsure = [n for n, kind in kinds.items() if kind in ("tensor", "unknown", "list")]
    message = what if lines else f"{name} has no floating point input to cast"
    if unsure and lines:
        message += f"; only if they are floating point tensors: {', '.join(unsure)}"
    call = cast.site.call or cast.site.node
    m.output.done(cast.site.module, call, cast.code, cast.construct, message, "look")


def _first_statement(function: FunctionNode) -> ast.stmt | None:
    """The first statement after the docstring; None for a function that only declares itself."""
    body = function.body
    if ast.get_docstring(function, clean=False) is not None:
        body = body[1:]
    real = [s for s in body if not isinstance(s, (ast.Pass, ast.Raise))]
    real = [s for s in real if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return body[0] if real else None


def _lines(m: Migration, cast: Cast, module: Module, function: FunctionNode, kinds: dict[str, Kind]) -> list[str]:
    """The statements that cast the parameters of a function."""
    scope = module.scopes[function]
    if cast.to == "promote":
        return _promoting(cast, function, kinds, m.torch(module, scope))
    a = function.args
    packed = [p.arg for p in (a.vararg, a.kwarg) if p is not None and loads(function.body, p.arg)]
    tested = packed or any(kind in ("unknown", "list") for kind in kinds.values())
    torch = m.torch(module, scope) if tested else ""
    method = method_of(m, cast.to)
    lines = cast_lines(kinds, method, torch)
    for name in packed:
        if a.kwarg is not None and name == a.kwarg.arg:
            value = guarded("v", method, torch, loose=True)
            lines.append(f"{name} = {{k: {value} for k, v in {name}.items()}}")
        else:
            lines.append(f"{name} = [{guarded('t', method, torch, loose=True)} for t in {name}]")
    if lines and cast.to == "half" and not always_on(m):
        indent = m.style(module).indent
        return [_under_autocast(m, module, scope) + "".join(f"\n{indent}{line}" for line in lines)]
    return lines


def _under_autocast(m: Migration, module: Module, scope: Scope) -> str:
    quote = m.style(module).quote
    return f"if {m.torch(module, scope)}.is_autocast_enabled({quote}{m.options.device}{quote}):"


def _promoting(cast: Cast, function: FunctionNode, kinds: dict[str, Kind], torch: str) -> list[str]:
    names = [n for n, kind in kinds.items() if kind in ("float", "tensor")]
    unsure = [n for n, kind in kinds.items() if kind in ("unknown", "list")]
    if unsure or function.args.vararg or function.args.kwarg or len(names) > PROMOTED:
        raise cast.refuse(f"which inputs of {function.name} are tensors cannot be told; promote them by hand")
    if len(names) < 2:
        return []
    widest = f"{names[0]}.dtype"
    for name in names[1:]:
        widest = f"{torch}.promote_types({widest}, {name}.dtype)"
    return [f"dtype = {widest}", f"{', '.join(names)} = {', '.join(f'{n}.to(dtype)' for n in names)}"]


# -- autograd functions ----------------------------------------------------------------------------------------------


def _on_autograd_function(m: Migration, cast: Cast, module: Module, function: FunctionNode) -> bool:
    """Convert a decorated forward or backward of an autograd function; False where it is none of them."""
    cls = module.parents.get(function)
    if not isinstance(cls, ast.ClassDef) or not is_autograd_function(m, module, cls) or cast.to == "promote":
        return False
    if function.name == "backward" and _forward_cast(m, module, cls) is None:
        return False
    if function.name not in ("forward", "backward"):
        return False
    m.edit(module).replace(cast.site.node, _custom(m, cast, module, function))
    m.output.done(
        module,
        cast.site.node,
        "AMP515",
        cast.construct,
        "casts under autocast only, and runs without it" if function.name == "forward" else "runs as the forward did",
        "look",
    )
    return True


def is_autograd_function(m: Migration, module: Module, cls: ast.ClassDef) -> bool:
    """Whether a class is a `torch.autograd.Function`."""
    names = [m.project.qualify(module, base) or ast.unparse(base) for base in cls.bases]
    return any(n in ("torch.autograd.Function", "torch.autograd.function.Function", "Function") for n in names)


def _forward_cast(m: Migration, module: Module, cls: ast.ClassDef) -> ast.expr | None:
    """The cast decorator on the `forward` of a class."""
    for stmt in cls.body:
        if isinstance(stmt, FUNCTION_NODES) and stmt.name == "forward":
            for decorator in stmt.decorator_list:
                found = m.project.qualify(module, decorator) or ""
                if found.startswith("apex.amp.") and found.rpartition(".")[2] in ("float_function", "half_function"):
                    return decorator
    return None


def _custom(m: Migration, cast: Cast, module: Module, function: FunctionNode) -> str:
    torch = m.torch(module, module.scope_of(function))
    quote = m.style(module).quote
    device = f"device_type={quote}{m.options.device}{quote}"
    if function.name == "backward":
        return f"{torch}.amp.custom_bwd({device})"
    dtype = "float32" if cast.to == "float" else m.options.dtype
    return f"{torch}.amp.custom_fwd(cast_inputs={torch}.{dtype}, {device})"


# -- wrappers --------------------------------------------------------------------------------------------------------


def _wrapped(m: Migration, cast: Cast, call: ast.Call, inner: ast.expr) -> None:
    """`name = amp.float_function(inner)`."""
    module = cast.site.module
    if _applied_function(m, cast, call, inner):
        return
    stmt = module.statement(call)
    if not (
        isinstance(stmt, ast.Assign)
        and stmt.value is call
        and len(stmt.targets) == 1
        and isinstance(stmt.targets[0], (ast.Name, ast.Attribute))
    ):
        raise cast.refuse(
            f"{module.source(inner)} is wrapped in an expression; cast its inputs where it is called, without autocast"
        )
    edits, target = m.edit(module), stmt.targets[0]
    if isinstance(inner, ast.Name) and isinstance(target, ast.Name) and inner.id == target.id:
        named = module.scope_of(stmt).bindings[inner.id]
        definition = next((b for b in named if isinstance(b, FUNCTION_NODES)), None)
        if definition is None:
            raise cast.refuse(f"{inner.id} is wrapped under its own name; cast its inputs where it is called")
        edits.delete(stmt)
        cast_definition(m, cast, module, definition, None)
        return
    if cast.to == "promote":
        raise cast.refuse(f"which inputs of {module.source(inner)} are tensors cannot be told; promote them by hand")
    message = f"{module.source(target)} casts its inputs and calls "
    if isinstance(target, ast.Attribute):
        # `model.roi.forward = amp.half_function(model.roi.forward)`: whoever reads it there calls what casts. That holds
        # what it calls itself, for in a loop another takes its name.
        dtype = "float32" if cast.to == "float" else m.options.dtype
        name = free(m.unit, (f"{target.attr}_in_{dtype}", f"{dtype}_{target.attr}", f"cast_{target.attr}"))
        edits.replace(stmt, _wrapper(m, cast, stmt, name, inner, held=True), (target, f" = {name}"))
        message += (
            f"what {module.source(inner)} was: tensors, also in lists and tuples, but not in dictionaries, as Apex did"
        )
    else:
        name = target.id
        edits.replace(stmt, _wrapper(m, cast, stmt, name, inner))
        _drop_guard(m, module, stmt, name)
        message += module.source(inner)
    m.output.done(module, call, cast.code, cast.construct, message, "look")


def _wrapper(m: Migration, cast: Cast, stmt: ast.stmt, name: str, inner: ast.expr, held: bool = False) -> Code:
    """A function that casts whatever it is given and passes it on; `held`: to what it holds as a default of its own."""
    module = cast.site.module
    torch = m.torch(module, module.scope_of(stmt))
    indent = m.style(module).indent
    method = method_of(m, cast.to)
    keywords = held or _called_with_keywords(m, module, stmt, name)
    one = guarded("t", method, torch, loose=True)
    inputs = "*args, **kwargs" if keywords else "*args"
    casts = [f"args = [{one} for t in args]"]
    helper = ""
    if held:  # whose calls are out of sight
        last = guarded("value", method, torch, loose=True)
        helper = f"{indent}def cast(value):\n{indent}{indent}if type(value) in (list, tuple):\n"
        helper += f"{indent * 3}return type(value)(map(cast, value))\n{indent}{indent}return {last}\n\n"
        casts = ["args = cast(args)", "kwargs = {k: cast(v) for k, v in kwargs.items()}"]
    elif keywords:
        casts.append(f"kwargs = {{k: {guarded('v', method, torch, loose=True)} for k, v in kwargs.items()}}")
    body = "".join(f"{indent}{line}\n" for line in casts)
    above = f"@{m.off('autocast', module, module.scope_of(stmt))}\n" if cast.to == "float" else ""
    if cast.to == "half" and not always_on(m):
        test = _under_autocast(m, module, module.scope_of(stmt))
        body = f"{indent}{test}\n" + "".join(f"{indent}{indent}{line}\n" for line in casts)
    if held:
        body = f"{helper}{body}{indent}return wrapped({inputs})"
        return (f"{above}def {name}(*args, wrapped=", inner, f", **kwargs):\n{body}")
    return (f"{above}def {name}({inputs}):\n{body}{indent}return ", inner, f"({inputs})")


def _called_with_keywords(m: Migration, module: Module, stmt: ast.stmt, name: str) -> bool:
    """Whether a call in sight passes keywords, or no call is in sight that could tell."""
    calls = list(calls_of(m, module, stmt, name))
    return not calls or any(call.keywords for _, call in calls)


def calls_of(m: Migration, module: Module, stmt: ast.stmt, name: str) -> Iterator[tuple[Module, ast.Call]]:
    """Calls of a function through the name it is bound to, in any file of the project."""
    owner = module.scope_of(stmt)
    dotted = f"{module.name}.{name}"
    for other in m.project.modules:
        if name not in other.text:
            continue
        for node in walk(other.tree):
            if not isinstance(node, ast.Call):
                continue
            func = node.func
            if isinstance(func, ast.Name) and other is module and func.id == name:
                if other.scope_of(func).lookup(name) is owner:
                    yield other, node
            elif m.project.qualify(other, func) == dotted:
                yield other, node


def _applied_function(m: Migration, cast: Cast, call: ast.Call, inner: ast.expr) -> bool:
    """`amp.half_function(Function.apply)` of an autograd function in sight: its forward does the casting."""
    module = cast.site.module
    if not (isinstance(inner, ast.Attribute) and inner.attr == "apply") or cast.to == "promote":
        return False
    info = m.project.find_class(module, inner.value)
    if info is None or not is_autograd_function(m, info.module, info.node):
        return False
    methods = {s.name: s for s in info.node.body if isinstance(s, FUNCTION_NODES)}
    if "forward" not in methods or "setup_context" in methods:
        return False
    passes = [methods[name] for name in ("forward", "backward") if name in methods]
    if not all(f.decorator_list for f in passes):
        return False
    for function in passes:
        anchor = function.decorator_list[-1]
        margin = info.module.lines[anchor.lineno - 1].decode().partition("@")[0]
        m.edit(info.module).insert("after", anchor, f"\n{margin}@{_custom(m, cast, info.module, function)}")
    m.edit(module).replace(call, (inner,))
    message = f"the forward of {info.name} casts its inputs, under autocast only"
    m.output.done(module, call, "AMP515", cast.construct, message, "look")
    return True


def _drop_guard(m: Migration, module: Module, stmt: ast.stmt, name: str) -> None:
    """A try that wrapped the function if Apex was there, and left it as it was if not, has nothing left to try."""
    guard = module.parents.get(stmt)
    if not isinstance(guard, ast.Try) or guard.orelse or guard.finalbody:
        return
    others = [s for s in guard.body if s is not stmt]
    if not all(isinstance(s, (ast.Import, ast.ImportFrom)) for s in others):
        return
    for handler in guard.handlers:
        for left in handler.body:
            binds = isinstance(left, ast.Assign) and all(isinstance(t, ast.Name) and t.id == name for t in left.targets)
            if not binds and not isinstance(left, ast.Pass):
                return
    m.edit(module).splice(guard, "body")
