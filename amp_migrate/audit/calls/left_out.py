"""What a layer of torch takes for an argument that its calls leave out, where another class stood under that name."""

from __future__ import annotations

import ast

from amp_migrate.audit.program.program import Program


def other_eps(program: Program, old: ast.stmt, native: str) -> str:
    """The constant that a layer has where it is told none, if the class for want of Apex had another."""
    init = next((f for f in getattr(old, "body", ()) if getattr(f, "name", "") == "__init__"), None)
    if native != "torch.nn.LayerNorm" or not isinstance(init, ast.FunctionDef):
        return ""
    names = [a.arg for a in init.args.args]
    eps = dict(zip(reversed(names), reversed(init.args.defaults), strict=False)).get("eps")
    if not isinstance(eps, ast.Constant) or eps.value == 1e-5:
        return ""
    calls = (c for m in program.modules.values() for c in m.calls_named.get(getattr(old, "name", ""), ()))
    bare = any(len(c.args) < names.index("eps") and not {k.arg for k in c.keywords} & {"eps", None} for c in calls)
    return f", whose eps is 1e-05 where none is given, not {eps.value!r}" if bare else ""
