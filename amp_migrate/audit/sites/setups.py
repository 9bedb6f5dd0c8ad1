"""Where a program sets Apex up, and what for: the calls after which it runs in mixed precision."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.handing import in_place_of
from amp_migrate.audit.program.module import Module, Scope
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.torch_version import never_met
from amp_migrate.audit.review import calls_of, handed_calls
from amp_migrate.audit.values.origins import Origin
from amp_migrate.audit.values.same import gathered
from amp_migrate.audit.values.values import Values

# Everything that runs later in the process ("patches"), or only what was given to the call ("weights").

INITIALIZE = "apex.amp.initialize"
MASTERS, SCALE = 7, 8  # positions of its master_weights and loss_scale
LEGACY = ("apex.amp.init", "apex.amp.amp.init")  # patches torch like O1
HALF = ("apex.fp16_utils.network_to_half", "apex.fp16_utils.convert_network", "apex.fp16_utils.FP16Model")
FP16_OPTIMIZER = (
    "apex.fp16_utils.FP16_Optimizer",
    "apex.fp16_utils.fp16_optimizer.FP16_Optimizer",
    "apex.optimizers.FP16_Optimizer",
    "apex.contrib.optimizers.FP16_Optimizer",
)
LEVELS = frozenset({"O0", "O1", "O2", "O3"})


@dataclass(frozen=True, eq=False)
class SetUp:
    """One call that switches Apex on; `levels`: the opt levels it may have, as far as they are written down."""

    module: Module
    call: ast.Call
    name: str
    levels: frozenset[str]
    known: bool  # whether `levels` is all there is
    models: tuple[ast.expr, ...]
    enabled: ast.expr | None
    usual: str | None = None  # the level of a run that asks for none on its command line

    @property
    def scope(self) -> Scope:
        return self.module.scope_of(self.call)

    @property
    def prepared(self) -> set[str]:
        """What the models that it gives are called: `net` of `net, optimizer = amp.initialize(model, optimizer)`."""
        stmt = self.module.statement(self.call)
        found = stmt.targets if isinstance(stmt, ast.Assign) and stmt.value is self.call else []
        firsts = (t.elts[0] if isinstance(t, (ast.Tuple, ast.List)) and t.elts else t for t in found)
        return {syntax.text(n) for f in firsts for n in (f.elts if isinstance(f, (ast.Tuple, ast.List)) else [f])}

    @property
    def patches(self) -> bool:
        """Whether it may make all that runs later mixed, not only the models it is given."""
        return "O1" in self.levels or not self.known

    @property
    def usually_patches(self) -> bool:
        """Whether O1 is a level that is written down, or the default of the option that asks for one."""
        return self.usual == "O1" or ("O1" in self.levels and self.usual not in ("O2", "O3"))

    @property
    def surely_patches(self) -> bool:
        return self.known and self.levels <= {"O0", "O1"} and "O1" in self.levels

    @property
    def half_weights(self) -> bool:
        """Whether the models had half weights at every level (O2, O3)."""
        return self.usual in ("O2", "O3") or (self.known and bool(self.levels) and self.levels <= {"O0", "O2", "O3"})

    @property
    def off(self) -> bool:
        """Whether it does nothing: O0 or `enabled=False`."""
        return syntax.is_false(self.enabled) or (self.known and self.levels == {"O0"})


def setups(program: Program, values: Values) -> list[SetUp]:
    """Every set-up that a run on a torch of today comes to, in the order of files and lines."""
    found = []
    for module, call, name in calls_of(program, INITIALIZE, *LEGACY, *HALF):
        if name == INITIALIZE:
            written = in_place_of(program, module, call) or [(module, call)]
            found += [_initialize(values, m, c) for m, c in written]
        elif name in LEGACY:
            enabled = argument(call, "enabled", 0)
            found.append(SetUp(module, call, name, frozenset({"O1"}), True, (), enabled))
        else:
            found.append(SetUp(module, call, name, frozenset({"O3"}), True, tuple(call.args[:1]), None))
    found += [_initialize(values, module, call) for module, call, _ in handed_calls(program, values, INITIALIZE)]
    order = {module: i for i, module in enumerate(program.modules.values())}
    found = [s for s in found if not never_met(s.module, s.call)]
    return sorted(found, key=lambda s: (order[s.module], s.call.lineno, s.call.col_offset))


def _initialize(values: Values, module: Module, call: ast.Call) -> SetUp:
    models = argument(call, "models", 0)
    level = asked_level(values, module, call)
    levels: frozenset[str] = frozenset({"O1"})
    usual: str | None = None
    spread = [k.value for k in call.keywords if k.arg is None]
    known = all(_dictionary(values, module, d) is not None for d in spread)
    listed = _starred(values, module, call)
    known = known and (listed is not None or not any(isinstance(a, ast.Starred) for a in call.args))
    if level is not None:
        constants = [o.node.value if isinstance(o.node, ast.Constant) else None for o in values.of(module, level)]
        levels = frozenset(c for c in constants if isinstance(c, str) and c in LEVELS)
        options = _options(values, level) if not levels else None
        if options is not None:
            usual, choices = options
            levels, constants = choices, list(choices)
        known = known and bool(constants) and all(c in LEVELS for c in constants)
    given = () if models is None else tuple(models.elts) if isinstance(models, (ast.List, ast.Tuple)) else (models,)
    given = given if listed is None else listed
    return SetUp(module, call, INITIALIZE, levels, known, given, argument(call, "enabled", 2), usual)


def _starred(values: Values, module: Module, call: ast.Call) -> tuple[ast.expr, ...] | None:
    """The models of `initialize(*things)`, the first items of the lists that these may be; None where some is not written out,
    or may hold settings, too."""
    star = call.args[0] if len(call.args) == 1 else None
    if not isinstance(star, ast.Starred):
        return None
    lists = [o.node for o in values.of(module, star.value)]
    models: list[ast.expr] = []
    for node in lists:
        if not isinstance(node, (ast.List, ast.Tuple)) or not 0 < len(node.elts) <= 2:
            return None
        first = node.elts[0]
        models += first.elts if isinstance(first, (ast.List, ast.Tuple)) else [first]
    return tuple(models) or None


def _options(values: Values, level: ast.expr) -> tuple[str | None, frozenset[str]] | None:
    """The default and the choices of an option of the command line that a level is read from."""
    name = level.attr if isinstance(level, ast.Attribute) else None
    if name is None:
        return None
    for module in values.program.having("add_argument"):
        if name not in module.words and name.replace("_", "-") not in module.text:
            continue
        for call, _ in module.method_calls("add_argument"):
            flags = [*call.args, *(k.value for k in call.keywords if k.arg == "dest")]
            called = {
                a.value.lstrip("-").replace("-", "_")
                for a in flags
                if isinstance(a, ast.Constant) and isinstance(a.value, str)
            }
            if name not in called:
                continue
            default, choices = argument(call, "default", 99), argument(call, "choices", 99)
            usual = default.value if isinstance(default, ast.Constant) and default.value in LEVELS else None
            among = _listed(values, module, choices) if choices is not None else None
            return usual, frozenset(among) if among is not None and among <= LEVELS else frozenset()
    return None


def _listed(values: Values, module: Module, choices: ast.expr) -> set[str] | None:
    """The texts that a collection holds, which may be written elsewhere: a list, a set, the keys of a mapping, `"O1 O2".split()`;
    None where it may hold anything else."""
    if isinstance(choices, ast.Call):
        if isinstance(choices.func, ast.Attribute) and choices.func.attr == "split" and not choices.args:
            words = choices.func.value.value if isinstance(choices.func.value, ast.Constant) else None
            return set(words.split()) if isinstance(words, str) else None
        if isinstance(choices.func, ast.Attribute) and choices.func.attr == "keys":
            return _listed(values, module, choices.func.value)
        if syntax.text(choices.func) in ("list", "tuple", "set", "frozenset", "sorted") and len(choices.args) == 1:
            return _listed(values, module, choices.args[0])
        return None
    if not isinstance(choices, (ast.List, ast.Tuple, ast.Set, ast.Dict)):
        found = list(values.of(module, choices))
        node = found[0].node if len(found) == 1 and not found[0].path else None
        return _listed(values, found[0].module, node) if isinstance(node, ast.expr) and node is not choices else None
    items = choices.keys if isinstance(choices, ast.Dict) else choices.elts
    texts = {c.value for c in items if isinstance(c, ast.Constant) and isinstance(c.value, str)}
    return texts if len(texts) == len(items) else None


def asked_level(values: Values, module: Module, call: ast.Call) -> ast.expr | None:
    """The opt level that a call of `initialize` is given, also in a dictionary written in sight; None: the default."""
    level = argument(call, "opt_level", 3)
    for keyword in call.keywords:
        if keyword.arg is None and level is None:
            level = (_dictionary(values, module, keyword.value) or {}).get("opt_level")
    return level


def _dictionary(values: Values, module: Module, expr: ast.expr) -> dict[str, ast.expr] | None:
    """The entries of the one dictionary that an expression is, where all of them are written down."""
    found = list(values.of(module, expr))
    if len(found) != 1 or found[0].path:
        return None
    node = found[0].node
    if isinstance(node, ast.Dict):
        named = {k.value: v for k, v in zip(node.keys, node.values, strict=True) if isinstance(k, ast.Constant)}
        return {k: v for k, v in named.items() if isinstance(k, str)} if len(named) == len(node.keys) else None
    if isinstance(node, ast.Call) and syntax.text(node.func) == "dict" and not node.args:
        given = {k.arg: k.value for k in node.keywords if k.arg is not None}
        return given if len(given) == len(node.keywords) else None
    return None


def argument(call: ast.Call, name: str, position: int) -> ast.expr | None:
    """An argument of a call by its name or position, if it is written there."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if len(call.args) > position and not any(isinstance(a, ast.Starred) for a in call.args[: position + 1]):
        return call.args[position]
    return None


Identity = tuple[object, ...]


@kept
def identities(values: Values, scope: Scope, expr: ast.expr) -> frozenset[Identity]:
    """What tells whether two expressions may be one object: where it is made; else its name where the trail ends."""
    origins = values.origins(scope, expr)
    if _gathers(values, origins):
        origins |= values.origins(scope, expr, (None,))
    return _told_apart(values, origins)


@kept
def _gathers(values: Values, origins: frozenset[Origin]) -> bool:
    """Whether some of these hold others: many places may ask it of the same."""
    return any(o.kind == "literal" or (isinstance(o.node, ast.Call) and gathered(o.node, (None,))) for o in origins)


@kept
def _told_apart(values: Values, origins: frozenset[Origin]) -> frozenset[Identity]:
    found: set[Identity] = set()
    for origin in origins:
        node = origin.node
        if origin.kind in ("constant", "literal", "function", "class"):
            continue
        if origin.kind == "unknown":
            if isinstance(node, ast.Attribute):
                owner = values.program.class_around(origin.module.scope_of(node))
                root = node.value
                if owner is not None and isinstance(root, ast.Name) and root.id == "self":
                    found.add(("field", owner, node.attr))
                else:
                    found.add(("written", origin.module, syntax.text(node)))
            continue
        found.add((node, origin.path, origin.module))
    return frozenset(found)
