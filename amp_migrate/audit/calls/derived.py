"""Classes of the program whose base became torch's: whether the calls that construct them fit it, and what it takes for an
argument that they leave out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.calls.torch_signatures import signature
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.review import Review
from amp_migrate.audit.unset.passing import misfit


def misfits(review: Review) -> Iterator[Doubt]:
    """Calls of a class that hands its arguments on to a base which is torch's now, and does not take them."""
    moved = dict(_moved(review))
    if not moved:
        return
    names = {cls.name for cls in moved}
    for module in review.after.modules.values():
        if not any(name in module.text for name in names):
            continue
        for call in module.calls():
            for cls in review.after.definitions(module.scope_of(call), call.func, guess=False):
                base = moved.get(cls) if isinstance(cls, Class) else None
                known = signature(base) if base is not None else None
                if base is None or known is None or not isinstance(cls, Class):
                    continue
                wrong = misfit(known, _handed_on(review.after, cls, call), 0)
                if wrong is not None:
                    yield _doubt(review, module, call, cls, f"{cls.name} derives from {base} now, and {wrong}")


def _moved(review: Review) -> Iterator[tuple[Class, str]]:
    """Classes of the program after whose base outside of it is torch's, and was Apex's."""
    before, after = review.before, review.after
    fused = [c for c in before.classes if any(base.startswith("apex.") for base in before.external_bases(c))]
    for name in {c.name for cls in fused for c in (cls, *before.below(cls))}:
        for cls in (c for m in after.having(name) for c in m.classes if c.name == name):
            bases = [b for b in after.external_bases(cls) if signature(b) is not None]
            # with no `__init__` of its own, or one that takes whatever its base may take
            if len(bases) == 1 and all(a.kwarg is not None for a in _inits(after, cls)):
                yield cls, bases[0]


def _inits(program: Program, cls: Class) -> list[ast.arguments]:
    """The signatures of the nearest `__init__` in the program."""
    for c in program.family_up(cls):
        own = [f.node.args for f in c.module.functions if f.owner is c and f.name == "__init__"]
        if own:
            return own
    return []


def _handed_on(program: Program, cls: Class, call: ast.Call) -> ast.Call:
    """The call as it arrives at the base: without what the class's own `__init__` names, its module aside."""
    for given in _inits(program, cls):
        own = {p.arg for p in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
        keywords = [k for k in call.keywords if k.arg is None or k.arg not in own]
        positional = [] if len(given.args) > 1 else call.args
        filled = positional or [ast.Starred(ast.Name("args", ast.Load()), ast.Load())]
        return ast.copy_location(ast.Call(call.func, list(filled), keywords), call)
    return call


def _doubt(review: Review, module: Module, call: ast.Call, cls: Class, message: str) -> Doubt:
    name = syntax.text(call.func)
    if module.path in review.changes:
        return review.doubt(module, call, "AMP132", name, message)
    return review.doubt(cls.module, cls.node, "AMP132", cls.name, f"{message} ({module.path}:{call.lineno})")


def other_eps(program: Program, old: ast.stmt, native: str) -> str:
    """The constant that a layer has where it is told none, if the class for want of Apex had another."""
    init = next((f for f in getattr(old, "body", ()) if getattr(f, "name", "") == "__init__"), None)
    if native != "torch.nn.LayerNorm" or not isinstance(init, ast.FunctionDef):
        return ""
    names = [a.arg for a in init.args.args]
    own = f"{names[0]}.eps" if names else ""
    stored = (s.value for s in syntax.every(init, ast.Assign) if own in map(syntax.text, s.targets))
    kept = next((v.value for v in stored if isinstance(v, ast.Constant)), None)
    if kept is not None and kept != 1e-5:
        return f", whose eps is 1e-05 where none is given, not {kept!r}"
    eps = dict(zip(reversed(names), reversed(init.args.defaults), strict=False)).get("eps")
    if not isinstance(eps, ast.Constant) or eps.value == 1e-5:
        return ""
    calls = (c for m in program.modules.values() for c in m.calls_named.get(getattr(old, "name", ""), ()))
    bare = any(len(c.args) < names.index("eps") and not {k.arg for k in c.keywords} & {"eps", None} for c in calls)
    return f", whose eps is 1e-05 where none is given, not {eps.value!r}" if bare else ""
