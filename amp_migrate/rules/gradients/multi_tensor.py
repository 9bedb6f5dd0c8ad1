"""`multi_tensor_applier` over lists of gradients becomes the `torch._foreach` functions that torch's own clipping uses.

Apex: https://github.com/NVIDIA/apex (apex/multi_tensor_apply)
Native: https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html

Operations of a closed set are taken: the norm over a list, a list scaled or copied, two lists added. All uses of one file or
none: an operation it does not know, or an overflow flag that is read, leaves the file to Apex, which still ships the kernels.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from amp_migrate.findings import Code, Example
from amp_migrate.options import Options
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.apex import Site, find_sites
from amp_migrate.rules.migration import Output
from amp_migrate.writing.edits import Edits
from amp_migrate.writing.style import Style

APEX = "https://github.com/NVIDIA/apex"
CLIP = "https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html"
APPLIER = "apex.multi_tensor_apply.multi_tensor_applier"
NORM, SCALE, AXPBY = ("amp_C.multi_tensor_l2norm", "amp_C.multi_tensor_scale", "amp_C.multi_tensor_axpby")
CONSTRUCT = "multi_tensor_apply.multi_tensor_applier"

CODES = (
    Code(
        "AMP642",
        "multi_tensor_applier becomes torch._foreach functions",
        CONSTRUCT,
        apex="Runs one kernel over lists of tensors: multi_tensor_scale, multi_tensor_l2norm, multi_tensor_axpby. A flag "
        "is set where a result is not finite.",
        native="The norm of each tensor in float32 and the norm of those; torch._foreach_mul_, torch._foreach_add_.",
        why="Where the flag is never read, these compute the same: the kernel adds up squares in float32 whatever the tensors "
        "are, and half ends at 65504. The norm is a tensor without dimensions instead of one with a single element. Other "
        "operations, and flags that are read, stay with Apex, which still ships the kernels.",
        links=(APEX, CLIP),
        examples=(
            Example(
                "import torch\nimport amp_C\nfrom apex.multi_tensor_apply import multi_tensor_applier\n\n\n"
                "def clip(grads, max_norm):\n"
                "    buf = torch.cuda.IntTensor([0])\n"
                "    norm, _ = multi_tensor_applier(amp_C.multi_tensor_l2norm, buf, [grads], False)\n"
                "    coef = max_norm / (norm.item() + 1e-6)\n"
                "    if coef < 1:\n"
                "        multi_tensor_applier(amp_C.multi_tensor_scale, buf, [grads, grads], coef)\n",
                "import torch\n\n\n"
                "def clip(grads, max_norm):\n"
                "    norm = torch.stack([t.norm(dtype=torch.float32) for t in grads]).norm()\n"
                "    coef = max_norm / (norm.item() + 1e-6)\n"
                "    if coef < 1:\n"
                "        torch._foreach_mul_(grads, coef)\n",
            ),
        ),
    ),
)


class _Unknown(Exception):
    """A use that has no counterpart here."""


@dataclass
class _Uses:
    """What a file does with the applier, once all of it is understood."""

    replaced: list[tuple[ast.expr | ast.stmt, str]] = field(default_factory=list)
    guards: list[ast.If] = field(default_factory=list)
    holders: dict[ast.stmt, ast.Name | ast.Attribute] = field(default_factory=dict)  # what keeps an operation or a flag


def apply(project: Project, module: Module, options: Options, output: Output) -> None:
    """Replace the applier in one file, if all of its uses are understood."""
    if "multi_tensor_applier" not in module.text:
        return
    sites = [s for s in find_sites(project, module) if s.name == APPLIER or s.name == f"{APPLIER}.available"]
    edits = output.edit(module)
    sites = [s for s in sites if not edits.gone(s.node)]
    if not sites or not all(output.wants_at(module, s.call or s.node, "AMP642") for s in sites):
        return
    try:
        uses = _Reader(project, module, sites).read()
    except _Unknown:
        return  # `no_counterpart` reports each of them
    _write(edits, uses)
    for site in sites:
        output.taken.add(site.node)
        message = "torch functions compute it, the norm in float32 as the kernel did; it is a tensor without dimensions"
        output.done(module, site.call or site.node, "AMP642", CONSTRUCT, message, "look")


class _Reader:
    def __init__(self, project: Project, module: Module, sites: list[Site]) -> None:
        self.project = project
        self.module = module
        self.sites = sites
        self.uses = _Uses()
        self.torch, stmt = Style(module).torch_name(module.root)
        if stmt is not None:
            raise _Unknown

    def read(self) -> _Uses:
        for site in self.sites:
            if site.name != APPLIER:
                self._guard(site)
            elif site.call is None or site.call.keywords:
                raise _Unknown
            else:
                self._call(site.call)
        for held in self.uses.holders.values():
            self._only_held(held)
        return self.uses

    def _guard(self, site: Site) -> None:
        """`if multi_tensor_applier.available: ... else: raise`."""
        parent = self.module.parents[site.node]
        if not isinstance(parent, ast.If) or parent.test is not site.node:
            raise _Unknown
        if parent.orelse and not all(isinstance(s, (ast.Raise, ast.Pass)) for s in parent.orelse):
            raise _Unknown
        self.uses.guards.append(parent)

    def _call(self, call: ast.Call) -> None:
        if len(call.args) < 3:
            raise _Unknown
        operation, flag, lists, *rest = call.args
        if not isinstance(lists, (ast.List, ast.Tuple)):
            raise _Unknown
        name = self._operation(operation)
        self._flag(flag)
        texts = [self.module.source(x) for x in lists.elts]
        if not all(isinstance(x, (ast.Name, ast.Attribute)) for x in lists.elts):
            raise _Unknown
        given = [self.module.source(x) for x in rest]
        if name == NORM and len(texts) == 1 and (not rest or given == ["False"]):
            self._norm(call, f"{self.torch}.stack([t.norm(dtype={self.torch}.float32) for t in {texts[0]}]).norm()")
        elif name == SCALE and len(texts) == 2 and texts[0] == texts[1] and len(rest) == 1:
            self._statement(call, f"{self.torch}._foreach_mul_({texts[0]}, {given[0]})")
        elif name == SCALE and len(texts) == 2 and given in (["1.0"], ["1"]):
            self._statement(call, f"{self.torch}._foreach_copy_({texts[1]}, {texts[0]})")
        elif name == AXPBY and len(texts) == 3 and texts[0] == texts[2] != texts[1] and given[2:] in (["-1"], []):
            self._statement(
                call,
                f"{self.torch}._foreach_mul_({texts[0]}, {given[0]})",
                f"{self.torch}._foreach_add_({texts[0]}, {texts[1]}, alpha={given[1]})",
            )
        else:
            raise _Unknown

    def _norm(self, call: ast.Call, text: str) -> None:
        """`norm, _ = ...` and `...[0]`: the norm over all, where nothing asks for those of the tensors."""
        parent = self.module.parents[call]
        if isinstance(parent, ast.Subscript) and ast.unparse(parent.slice) == "0":
            self.uses.replaced.append((parent, text))
            return
        target = parent.targets[0] if isinstance(parent, ast.Assign) and len(parent.targets) == 1 else None
        if not isinstance(target, ast.Tuple) or len(target.elts) != 2 or not isinstance(parent, ast.Assign):
            raise _Unknown
        first, second = target.elts
        if not isinstance(first, ast.Name) or not isinstance(second, ast.Name) or self._reads(second):
            raise _Unknown
        if any(isinstance(self.module.parents[use], ast.Subscript) for use in self._reads(first)):
            raise _Unknown  # one element of a norm that has a dimension
        self.uses.replaced += [(target, first.id), (call, text)]

    def _reads(self, name: ast.Name) -> list[ast.Name]:
        """Where the variable that a name means is read."""
        owner, loads = self.module.scope_of(name).lookup(name.id), self.module.loads.get(name.id, ())
        return [n for n in loads if self.module.scope_of(n).lookup(name.id) is owner]

    def _statement(self, call: ast.Call, *lines: str) -> None:
        parent = self.module.parents[call]
        if not isinstance(parent, ast.Expr):
            raise _Unknown
        self.uses.replaced.append((parent, "\n".join(lines)))

    # -- what the applier is given ---------------------------------------------------------------------------------

    def _operation(self, node: ast.expr) -> str:
        """The operation of amp_C that an argument is, also through a variable or attribute that only holds it."""
        name = self.project.qualify(self.module, node)
        if name is not None and name.startswith("amp_C."):
            return name
        held = self._holders(node)
        found = self.project.qualify(self.module, held[0].value) or ""
        if len(held) > 1 or not found.startswith("amp_C."):
            raise _Unknown
        return found

    def _flag(self, node: ast.expr) -> None:
        """An overflow flag: a tensor made for it alone."""
        for stmt in self._holders(node):
            made = ast.unparse(stmt.value.func) if isinstance(stmt.value, ast.Call) else ""
            if not made.endswith((".IntTensor", ".tensor", ".zeros")):
                raise _Unknown

    def _holders(self, node: ast.expr) -> list[ast.Assign]:
        """The assignments of a variable of this scope or of an attribute of `self`: one at least."""
        if isinstance(node, ast.Name):
            owner = self.module.scope_of(node).lookup(node.id)
            if owner is None or owner.is_module:
                raise _Unknown
            found = [self.module.statement(b) for b in owner.bindings[node.id] if isinstance(b, ast.Name)]
            if len(found) != len(owner.bindings[node.id]):
                raise _Unknown
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            scope = self.module.scope_of(node)
            if scope.owner_class is None or node.value.id != scope.self_name:
                raise _Unknown
            found = [self.module.statement(n) for n in self._attributes(node.attr) if isinstance(n.ctx, ast.Store)]
        else:
            raise _Unknown
        held = [s for s in found if isinstance(s, ast.Assign) and len(s.targets) == 1]
        if not held or len(held) < len(found) or any(isinstance(s.targets[0], ast.Tuple) for s in held):
            raise _Unknown
        self.uses.holders.update(dict.fromkeys(held, node))
        return held

    def _attributes(self, name: str) -> list[ast.Attribute]:
        """Every use of an attribute of that name in the files that may see it."""
        near = [m for m in self.project.modules if m is self.module or self.module in self.project.imports.get(m, ())]
        found = [
            n
            for m in near
            for n in m.nodes
            if isinstance(n, ast.Attribute) and n.attr == name and not (m.qualify(n) or "").startswith("amp_C.")
        ]
        if any(n not in self.module.parents for n in found):
            raise _Unknown
        return found

    def _only_held(self, node: ast.Name | ast.Attribute) -> None:
        """Raise where a flag or an operation is used for anything but the calls that are replaced."""
        calls = {s.call for s in self.sites}
        uses: Sequence[ast.expr]
        if isinstance(node, ast.Name):
            uses = self._reads(node)
        else:
            uses = [n for n in self._attributes(node.attr) if isinstance(n.ctx, ast.Load)]
        if not all(self.module.parents[n] in calls for n in uses):
            raise _Unknown


def _write(edits: Edits, uses: _Uses) -> None:
    for stmt in uses.holders:
        edits.delete(stmt)
    for node, text in uses.replaced:
        if isinstance(node, ast.stmt):
            edits.replace(node, *text.split("\n"))
        else:
            edits.replace(node, text)
    for guard in uses.guards:
        left = [s for s in guard.body if s not in uses.holders and not _imports_kernels(s)]
        if left:
            edits.splice(guard, "body")
        else:
            edits.delete(guard)


def _imports_kernels(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Import) and all(a.name == "amp_C" for a in stmt.names)
