"""Where a program touches Apex: every expression that stands for something of `apex`, and how it is used."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property

from amp_migrate.reading.program.definitions import argument, called_name
from amp_migrate.reading.program.module import FUNCTION_NODES, FunctionNode, Module, Scope
from amp_migrate.reading.program.modules_held import MODULES
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import children, root_of, walk, within_apex


@dataclass(eq=False)
class Site:
    """One use of an Apex name. `node` is the name or dotted name; `name` what it stands for (`apex.amp.scale_loss`)."""

    module: Module
    node: ast.expr
    name: str

    @property
    def short(self) -> str:
        """`scale_loss` of `apex.amp.scale_loss`."""
        return self.name.rpartition(".")[2]

    @property
    def construct(self) -> str:
        """As reports print it: `amp.scale_loss`."""
        return self.name.removeprefix("apex.")

    @cached_property
    def call(self) -> ast.Call | None:
        parent = self.module.parents.get(self.node)
        return parent if isinstance(parent, ast.Call) and parent.func is self.node else None

    @cached_property
    def stmt(self) -> ast.stmt:
        return self.module.statement(self.node)

    @cached_property
    def scope(self) -> Scope:
        return self.module.scope_of(self.node)

    @property
    def at(self) -> tuple[int, int]:
        return self.node.lineno, self.node.col_offset + 1

    def argument(self, position: int, name: str) -> ast.expr | None:
        return argument(self.call, position, name) if self.call is not None else None


def find_sites(project: Project, module: Module) -> list[Site]:
    """All uses of Apex in a module except its import statements, in source order."""
    return list(project.once(_sites, module))


def _sites(project: Project, module: Module) -> list[Site]:
    """The same; see `Project.once`."""
    sites: list[Site] = []
    stack: list[ast.AST] = [module.tree]
    through = {n for nodes in project.once(stand_ins, module).values() for n in nodes}
    while stack:
        node = stack.pop()
        if node in through:
            continue
        named = isinstance(node, (ast.Attribute, ast.Name, ast.Subscript)) and isinstance(node.ctx, ast.Load)
        if isinstance(node, ast.expr) and (named or isinstance(node, ast.Call)) and node not in module.never:
            name = project.qualify(module, node)
            if name is not None and name.split(".")[0] == "apex" and followed(project, module, node):
                sites.append(Site(module, node, public_name(name)))
                continue
        stack.extend(children(node))
    return sorted(sites, key=lambda s: s.at)


def stand_ins(project: Project, module: Module) -> dict[str, list[FunctionNode]]:
    """The functions of a file that do what one of Apex's does, by name, where the program calls them in its place: what
    calls them is what uses Apex. Those for a machine without Apex are among them."""
    found: dict[str, list[FunctionNode]] = {}
    for name, meaning in project.handed_on.stand_ins(module).items():
        functions = [n for n in module.root.bindings[name] if isinstance(n, FUNCTION_NODES)]
        within = {n for function in functions for n in walk(function)}
        own = any(n not in within and module.qualify(n) == meaning for n in module.loads.get(name, ()))
        if functions and (own or any(True for _ in project.handed_on.readers(module, name))):
            found[name] = functions
    return found


def followed(project: Project, module: Module, node: ast.expr) -> bool:
    """Whether it is known what is asked of a module that an expression stands for, where a call imported it."""
    base = root_of(node)
    while isinstance(base, ast.Call) and isinstance(module.parents[node], ast.Attribute):
        node = module.parents[node]  # type: ignore[assignment]
    if not isinstance(base, ast.Call) or base in project.module_calls:
        return True
    if project.qualify(module, node) not in MODULES:
        return node is not base
    parent = module.parents[node]
    target = parent.targets[0] if isinstance(parent, ast.Assign) and len(parent.targets) == 1 else None
    if isinstance(target, ast.Attribute):
        return target.attr in project.module_attributes
    asked = isinstance(target, ast.Name) and bool(module.loads.get(target.id))
    return asked and isinstance(target, ast.Name) and project.slot(module, target) in project.passed_modules


def public_name(name: str) -> str:
    """The documented home of a name: `apex.amp.frontend.initialize` is `apex.amp.initialize`."""
    parts = name.split(".")
    packages = ("amp", "parallel", "optimizers", "normalization", "fp16_utils")
    # A class stands there, not a file of its name: a method of it, or a member of an enumeration.
    member = len(parts) > 3 and parts[2][:1].isupper() and (parts[3][:1].islower() or parts[2] == "ReduceOp")
    if len(parts) > 3 and parts[1] in packages and not member:
        if parts[1] == "amp" and parts[2] in ("_amp_state", "scaler", "compat", "lists"):
            return name
        return ".".join([*parts[:2], *parts[3:]])
    if len(parts) > 4 and parts[1:3] == ["contrib", "optimizers"] and parts[3].islower():
        return ".".join([*parts[:3], *parts[4:]])
    return name


def apex_imports(module: Module) -> list[ast.Import | ast.ImportFrom]:
    """The import statements that bring something of Apex in."""
    found = [n for n in module.imports if imports_apex(n)]
    return [n for n in found if n not in module.never]


def brings_apex(module: Module) -> bool:
    """Whether a file imports something of Apex, by a statement or by a call with its name."""
    return bool(apex_imports(module)) or any(
        within_apex(module.qualify(call)) for call, _ in module.calls if call not in module.never
    )


def imports_apex(node: ast.AST) -> bool:
    """Whether a statement imports something of Apex."""
    if isinstance(node, ast.Import):
        return any(of_apex(a.name) for a in node.names)
    return isinstance(node, ast.ImportFrom) and not node.level and of_apex(node.module or "")


def of_apex(name: str) -> bool:
    """Whether a dotted name is Apex's, or one of the extensions that it builds."""
    return name.split(".")[0] in ("apex", "amp_C", "apex_C")


# Extensions that Apex's setup builds under names of their own: without Apex they are not there.
COMPILED = frozenset(
    "syncbn fused_layer_norm_cuda fused_adam_cuda fused_lamb_cuda mlp_cuda fused_dense_cuda xentropy_cuda bnp "
    "scaled_masked_softmax_cuda scaled_upper_triang_masked_softmax_cuda generic_scaled_masked_softmax_cuda "
    "fused_weight_gradient_mlp_cuda fast_multihead_attn distributed_adam_cuda distributed_lamb_cuda".split()
)


def compiled_imports(project: Project, module: Module) -> list[ast.Import | ast.ImportFrom]:
    """Imports of Apex's compiled extensions, in a file that speaks of Apex, where the project has no file of that name."""
    if "apex" not in module.text or not any(name in module.text for name in COMPILED):
        return []
    own = {m.name.rpartition(".")[2] for m in project.modules}
    found: list[ast.Import | ast.ImportFrom] = []
    for node in module.imports:
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level and node.module else []
        if any(n in COMPILED and n not in own for n in names):
            found.append(node)
    return found


def compiled_loads(project: Project, module: Module) -> list[tuple[ast.Call, str]]:
    """Calls that import such an extension by its name in quotes, `importlib.import_module("fused_layer_norm_cuda")`, where no
    other place of the project says that name: one that builds it, say."""
    found: list[tuple[ast.Call, str]] = []
    for name in COMPILED if "apex" in module.text and "import" in module.text else ():
        said = [(m, node) for m in project.modules if name in m.text for node in m.named.get(name, ())]
        said = [(m, node) for m, node in said if isinstance(node, ast.Constant)]
        loads = [(m, m.parents.get(node)) for m, node in said]
        if all(
            isinstance(call, ast.Call) and called_name(call) in ("import_module", "__import__") for _, call in loads
        ):
            found += [(call, name) for m, call in loads if m is module and isinstance(call, ast.Call)]
    return found
