"""Where a program uses what torch 2.4 deprecated: `torch.cuda.amp` and `torch.cpu.amp`.

A use is either written out from a name for torch (`torch.cuda.amp.autocast`) or goes through a binding: a name that an
import of this file, or of another file of the project, gives to the deprecated module or to something in it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import children

HOMES = {"torch.cuda.amp": "cuda", "torch.cpu.amp": "cpu"}
SUBMODULES = ("autocast_mode", "grad_scaler")
CURRENT = ("torch.amp", "torch.autocast")
STAR = "*"
# What each module exports of what is deprecated.
EXPORTS = {
    "cuda": frozenset(("autocast", "GradScaler", "custom_fwd", "custom_bwd", "_cast", "OptState")),
    "cpu": frozenset(("autocast", "GradScaler")),
}
MENTIONS = ("cuda.amp", "cpu.amp", "cuda import", "cpu import")


class Binding(NamedTuple):
    """A name that an import in `scope` gives to something deprecated; `*` for a star import."""

    scope: Scope
    name: str


@dataclass(eq=False)
class Use:
    """One use. `name` is what is used (`autocast`), empty for the deprecated module itself.

    `binding` is the import it goes through; `torch` the part of the expression that stands for torch, if any.
    """

    module: Module
    node: ast.expr
    device: str
    name: str
    binding: Binding | None
    torch: ast.expr | None

    @property
    def construct(self) -> str:
        """As reports print it: `torch.cuda.amp.autocast`."""
        return ".".join(part for part in (f"torch.{self.device}.amp", self.name) if part)

    @property
    def parent(self) -> ast.AST:
        return self.module.parents[self.node]


def home(name: str) -> str | None:
    """The deprecated module that a dotted name is or lies in."""
    return next((h for h in HOMES if name == h or name.startswith(h + ".")), None)


def below(name: str) -> list[str]:
    """The parts of a dotted name after its deprecated module, submodules left out: `["autocast"]`."""
    base = home(name)
    assert base is not None, f"{name} is not in a deprecated module"
    parts = name[len(base) + 1 :].split(".") if name != base else []
    return parts[1:] if parts and parts[0] in SUBMODULES else parts


def deprecated_uses(project: Project) -> dict[Module, list[Use]]:
    """All uses in a project, file by file in source order; found once."""
    return project.once(_find_uses)


def _find_uses(project: Project) -> dict[Module, list[Use]]:
    given = _given(project)
    return {
        module: _uses(project, module) if any(word in module.text for word in (*MENTIONS, *given)) else []
        for module in project.modules
    }


def _given(project: Project) -> set[str]:
    """Names that files give to something deprecated: other files may import it from them, and rename it again."""
    given: set[str] = set()
    known = -1
    while len(given) > known:
        known = len(given)
        for module in project.modules:
            if any(word in module.text for word in (*MENTIONS, *given)):
                targets = module.root.imports.items()
                given.update(bound for bound, target in targets if home(target) or _provider(project, target))
                if any(base in HOMES for base in module.star_imports):
                    given |= EXPORTS["cuda"]
    return given


def _uses(project: Project, module: Module) -> list[Use]:
    uses: list[Use] = []
    stack: list[ast.AST] = [module.tree]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Load) and node not in module.never:
            name = _resolve(project, module, node)
            if name is not None and home(name):
                use = _use(project, module, node, name)
                if use is not None:
                    uses.append(use)
                continue
        stack.extend(children(node))
    return sorted(uses, key=lambda use: (use.node.lineno, use.node.col_offset))


def _use(project: Project, module: Module, node: ast.expr, name: str) -> Use | None:
    parts = below(name)
    for _ in parts[1:]:  # `GradScaler.state_dict`: the use is GradScaler
        assert isinstance(node, ast.Attribute), "a dotted name is made of attributes"
        node = node.value
    entry: ast.expr = node
    while isinstance(entry, ast.Attribute):
        inner = _resolve(project, module, entry.value)
        if inner is None or not home(inner):
            break
        entry = entry.value
    base = home(name)
    assert base is not None, "the name was found in a deprecated module"
    use = Use(module, node, HOMES[base], parts[0] if parts else "", None, None)
    inside = _resolve(project, module, entry.value) if isinstance(entry, ast.Attribute) else None
    if inside in ("torch", "torch.cuda", "torch.cpu"):
        use.torch = _torch(project, module, entry)
        return use
    use.binding = _binding(project, module, entry)
    return None if use.binding is None or _already_current(use.binding) else use


def _torch(project: Project, module: Module, node: ast.expr) -> ast.expr | None:
    while isinstance(node, ast.Attribute):
        node = node.value
        if _resolve(project, module, node) == "torch":
            return node
    return None


def _resolve(project: Project, module: Module, node: ast.expr) -> str | None:
    """What a name or dotted name stands for, star imports included."""
    name = project.qualify(module, node)
    if name is not None:
        return name
    if isinstance(node, ast.Attribute):
        base = _resolve(project, module, node.value)
        return f"{base}.{node.attr}" if base is not None else None
    if not isinstance(node, ast.Name) or module.scope_of(node).lookup(node.id) is not None:
        return None
    # An import that is forgotten, or out of sight behind a star: whoever adds it must not find something left to do.
    return _starred(project, module, node.id)[0] or ("torch" if node.id == "torch" else None)


def _starred(project: Project, module: Module, name: str, depth: int = 4) -> tuple[str | None, Binding | None]:
    """What a name out of a star import stands for, and the binding behind it."""
    for base in module.star_imports:
        if base in HOMES and name in EXPORTS[HOMES[base]] and not name.startswith("_"):
            return f"{base}.{name}", Binding(module.root, STAR)
        other = project.by_name.get(base)
        if other is None or depth == 0:
            continue
        target = other.root.imports.get(name)
        if target is not None:
            found = _provider(project, f"{base}.{name}")
            return (found[0], found[1]) if found is not None else (None, None)
        if name not in other.root.bindings:
            deeper = _starred(project, other, name, depth - 1)
            if deeper[0] is not None:
                return deeper
    return None, None


def _binding(project: Project, module: Module, entry: ast.expr) -> Binding | None:
    """The import that an expression goes through."""
    if isinstance(entry, ast.Name):
        owner = module.scope_of(entry).lookup(entry.id)
        target = owner.imports.get(entry.id) if owner is not None else None
        if owner is not None and target is not None and home(target):
            return Binding(owner, entry.id)
        if owner is None:
            return _starred(project, module, entry.id)[1]
    name = module.taken(entry) if isinstance(entry, (ast.Name, ast.Attribute)) else None
    found = _provider(project, name) if name is not None else None
    return found[1] if found is not None else None


def _provider(project: Project, name: str) -> tuple[str, Binding] | None:
    """What a name of a project module stands for, and the import that gives it, through re-exports."""
    for _ in range(8):
        head, _, last = name.rpartition(".")
        module = project.by_name.get(head)
        target = module.root.imports.get(last) if module is not None else None
        if module is None or target is None:
            return None
        if home(target):
            return target, Binding(module.root, last)
        name = target
    return None


def _already_current(binding: Binding) -> bool:
    """Whether the same name is also imported from torch.amp: code that already serves both spellings."""
    return any(target.startswith(CURRENT) for target in import_targets(binding))


def import_targets(binding: Binding) -> Iterator[str]:
    """What the imports of a bound name import, all of them."""
    for node in binding.scope.bindings.get(binding.name, ()):
        if isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == binding.name:
                    yield f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if (alias.asname or alias.name.split(".")[0]) == binding.name:
                    yield alias.name
