"""Values followed through all functions of a program, and the models they come from."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import cached_property

from amp_migrate.audit import dtypes as known
from amp_migrate.audit.halves.bodies import Body
from amp_migrate.audit.halves.doubles import Loaders
from amp_migrate.audit.halves.given import Given, given_to, told_apart
from amp_migrate.audit.halves.inputs import Inputs
from amp_migrate.audit.halves.layers import Layers
from amp_migrate.audit.halves.tensors import (
    ALL_TOLD,
    ENCODED,
    FLOAT,
    HALF,
    HALVES,
    INTEGER,
    NOT_TOLD,
    UNKNOWN,
    Came,
    Dtype,
    Env,
    Place,
    Report,
    Told,
    Value,
    join,
    ways,
)
from amp_migrate.audit.halves.weights import MAKING, Weights
from amp_migrate.audit.kept import kept, kept_meanwhile
from amp_migrate.audit.mixed import Mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.program.targets import assignments
from amp_migrate.audit.sites.forwards import Forward
from amp_migrate.audit.sites.levels import level_names, truth
from amp_migrate.audit.sites.lookalikes import HEADLESS
from amp_migrate.audit.sites.mentioned import in_runs
from amp_migrate.audit.sites.patched_forwards import is_patched
from amp_migrate.audit.sites.tensors import Tensors
from amp_migrate.audit.values.names import last_name

DEPTH = 5
MOST = 2000  # functions followed for one migration, from whichever call


class Halves:
    """Follows values through the program after a migration; tells `report` of what is computed otherwise now."""

    def __init__(self, both: Mixed, report: Report, other: str = "") -> None:
        """`other`: as what the program does at that level, O1 or O2, which a run may ask for beside the usual one."""
        self.both = both
        self.other = other
        self.report = report
        self.program = both.review.after
        self.values = both.after.values
        self.regions = both.after.regions
        self.names = level_names(both)
        self.asked = any(not s.known and s.models for s in both.removed)  # the opt level is asked for at run time
        self.running = {**self._others(), **both.running}
        self._outputs: dict[tuple[Function, frozenset[tuple[str, str]], frozenset[tuple[str, Value]]], Value] = {}
        self._active: list[Function] = []
        # What is followed for all that is told of it need not be for less.
        self._results: dict[
            tuple[Function, bool, bool, frozenset[tuple[str, Value]], frozenset[tuple[str, str]]],
            tuple[int, Value, set[tuple[Class, str]]],
        ] = {}
        self.entered: set[ast.AST] = set()  # lambdas and functions that are followed in the body that they are made in
        self.returned: dict[ast.Return, Value] = {}  # by what gives something half
        self.at: Place | None = (
            None  # the statement of a changed file that is followed, or that what is followed is reached from
        )
        self.unseen = False  # while networks are followed of which no way from a region is seen
        self.below = False  # while what a forward runs is followed
        self._followed = 0
        self.own_tensors = Weights(self.values)
        self.layers = Layers(self.values, in_runs(both))
        self.loaders = Loaders(self)
        self.inputs = Inputs(self.program)
        self.tensors = Tensors(self.values, self.regions, both.after.forwards)
        self._held: dict[tuple[Class, str], Value] = {}
        self._variables: dict[tuple[Scope, str], Value] = {}
        self._missed: set[tuple[Class, str]] = set()  # attributes that were read before anything was found in them

    def _others(self) -> dict[ast.Call, Forward]:
        """Calls of models that Apex was not given, in regions that the migration wrote."""
        found: dict[ast.Call, Forward] = {}
        for change in self.both.review.changes.values():
            module = change.after
            if not self.regions.has_any(module):
                continue
            for forward in self.both.after.forwards.of(module):
                region = self.regions.nearest(module, forward.call)
                if region is None or region.off or not self.both.written(region):
                    continue
                if last_name(forward.model) in self.both.network_names:
                    found[forward.call] = forward
        return found

    @cached_property
    def running_in(self) -> set[Function | None]:
        """The functions that run a model themselves."""
        return {forward.module.function_around(call) for call, forward in self.running.items()}

    def patches(self, module: Module) -> bool:
        """Whether Apex may have patched torch in the programs of a file."""
        usual = self.both.patches(module) and self.both.other_level(module) != "O1"
        return usual if self._as_usual(module) else self.other == "O1"

    def floats(self, module: Module) -> bool:
        """Whether models had half weights in the programs of a file."""
        return self.both.floats(module) if self._as_usual(module) else self.other == "O2"

    def gave_floats(self, module: Module) -> bool:
        """Whether models gave float32 all the same."""
        return self.both.gave_floats(module) if self._as_usual(module) else self.other == "O2"

    def _as_usual(self, module: Module) -> bool:
        return not self.other or self.both.other_level(module) != self.other

    @kept
    def at_level(self, test: ast.expr) -> bool | None:
        """How a test of the opt level comes out where the program is followed as at O2, or as at O1."""
        return truth(test, self.names, self._level)

    @cached_property
    def _level(self) -> str:
        return self.other or ("O2" if all(s.half_weights for s in self.both.removed if s.models) else "O1")

    # -- bodies ------------------------------------------------------------------------------------------------------

    def run(self, module: Module, function: Function | None) -> Value:
        """Follow the values of one function, called from wherever it is, to what it returns; or of a module's own code."""
        if function is None:
            Body(self, module, {}, False, ALL_TOLD).block(module.tree.body)
            return UNKNOWN
        value = self.call(function, {}, bool(self.inside(function)), ALL_TOLD)
        if value.followed and (self.gave_floats(module) or self.patches(module)) and not self.program.callers(function):
            for where, mention in self.both.after.chains.mentions(function):
                parent = where.parents.get(mention)
                if isinstance(parent, ast.Call) and mention in parent.args:
                    taker = self.program.dotted(where.scope_of(parent), parent.func)
                    if taker not in (None, "functools.partial") and not self.program.callees(where, parent):
                        self._returns(module, function, taker)
        return value

    def _returns(self, module: Module, function: Function, taker: str) -> None:
        """Tell of each statement that gives what is out of sight something that is half."""
        for stmt in syntax.every(function.node, ast.Return):
            value = self.returned.get(stmt, UNKNOWN)
            half = next((v for v in (value, *(value.items or ())) if v.half), None)
            if half is not None:
                self.report("returned", module, stmt, half, taker, None)

    def call(
        self, function: Function, env: Env, inside: bool, told: Told, given: Mapping[str, Given] | None = None
    ) -> Value:
        """What a function returns, given what its parameters are."""
        given = given or {}
        env = {name: value.under_name(name) for name, value in env.items()}
        if function in self._active or len(self._active) > DEPTH:
            return UNKNOWN
        known_of = frozenset((k, v) for k, v in env.items() if v != UNKNOWN)
        asked = (function, inside, self.below, known_of, told_apart(given))
        if asked in self._results and told <= self._results[asked][0]:
            self._missed |= self._results[asked][2]
            return self._results[asked][1]
        self._followed += 1
        if self._followed > MOST:
            return UNKNOWN
        self._active.append(function)
        outer, self._missed = self._missed, set()
        own = self.regions.of_function(function)
        body = Body(self, function.module, dict(env), inside or (own is not None and not own.off), told)
        body.given = given
        body.method = function if function.bound else None
        body.block(function.node.body)
        body.left()
        self._active.pop()
        value = body.result()
        self._results[asked] = told, value, self._missed
        self._missed = outer | self._missed
        return value

    def followed_inside(self) -> set[Function]:
        """The functions that were followed as what a region is seen to run, with what it gives them."""
        return {function for function, inside, _, given, _ in self._results if inside and given}

    @kept_meanwhile(lambda: False)
    def inside(self, function: Function) -> bool | None:
        """Whether a function runs in a region that its callers open; None where some do and some do not."""
        found: set[bool | None] = set()
        for module, call in self.program.callers(function):
            region = self.regions.nearest(module, call)
            caller = module.function_around(call)
            if region is not None:
                found.add(not region.off)
            else:
                found.add(self.inside(caller) if caller is not None else False)
        for module, call in self.both.after.forwards.callers(function):
            region = self.regions.nearest(module, call)
            found.add(region is not None and not region.off)
        return next(iter(found)) if len(found) == 1 else False if not found else None

    # -- what is made elsewhere --------------------------------------------------------------------------------------

    @kept
    def field(self, owner: Class, name: str) -> Value:
        """What an attribute of an object holds: float32 or integers where each tensor that it is given is made so, else not known."""
        given = self.values.own_fields(self.program.family_up(owner), name)
        return self._made_as([(module, value) for module, value, item in given if not item])

    def hold(self, owner: Class, name: str, value: Value) -> None:
        """Note what a method leaves in an attribute of its object, which other methods read: a metric's `update`."""
        if self.unseen or not (value.followed or value.now == "float"):
            return
        if self.program.is_network(owner) and not _certain(value):
            return
        old = self._held.get((owner, name))
        self._held[owner, name] = value if old is None else join([old, value])

    def held(self, owner: Class, name: str) -> Value:
        """What an attribute of an object holds, as far as that was followed."""
        found = [self._held[c, name] for c in self.program.family(owner) if (c, name) in self._held]
        if not found:
            self._missed.add((owner, name))
        return join(found) if any(v.followed for v in found) else UNKNOWN

    def held_by(self, scope: Scope, expr: ast.Attribute) -> Value:
        """The same of another object, where it is seen how that is made: `model.kept`, `meter.seen`."""
        found = [self.held(owner, expr.attr) for owner in self.values.keepers(scope, expr)]
        return join([v for v in found if v != UNKNOWN]) if any(v.followed for v in found) else UNKNOWN

    def holds(self, owner: Class | None) -> bool:
        """Whether some object of a class was given something that is followed."""
        return owner is not None and any(c in self.program.family(owner) for c, _ in self._held)

    def missed(self) -> bool:
        """Whether an attribute was read before it was followed what it holds: then what read it is to be followed again."""
        late = {(c, name) for owner, name in self._held for c in self.program.family(owner)} & self._missed
        if late:
            self._results = {asked: result for asked, result in self._results.items() if late.isdisjoint(result[2])}
            self._outputs.clear()
            self._followed = 0
        return bool(late)

    def hold_variable(self, scope: Scope, name: str, value: Value) -> None:
        """Note what the code of a file, or a function that says `global`, leaves in a variable of the file."""
        binder = scope.binder(name)
        if binder is not None and binder is binder.module.top and not (self.below or self.unseen):
            old = self._variables.get((binder, name))
            self._variables[binder, name] = value if old is None else join([old, value])

    def variable(self, scope: Scope, name: str) -> Value:
        """What a variable of a file holds, where a function reads it: what was followed into it, or made float32."""
        binder = scope.binder(name)
        if binder is None or binder is scope or binder.function is not None or binder.is_class:
            return UNKNOWN
        return self._variables.get((binder, name)) or self._of_variable(binder, name)

    @kept
    def _of_variable(self, binder: Scope, name: str) -> Value:
        module = binder.module
        given = [
            (module, None if path else value)
            for target, value, path in assignments(module)
            if isinstance(target, ast.Name) and target.id == name and module.scope_of(target) is binder
        ]
        return self._made_as(given)

    def _made_as(self, given: list[tuple[Module, ast.expr | None]]) -> Value:
        for module, value in given:
            if value is None or not any(
                self.program.dotted(module.scope_of(n), n.func) in MAKING for n in syntax.every(value, ast.Call)
            ):
                return UNKNOWN
        found = {Body(self, module, {}, False, NOT_TOLD).of(value).now for module, value in given}
        return FLOAT._replace(kept=True) if found == {"float"} else INTEGER if found == {"int"} else UNKNOWN

    def weight(self, scope: Scope, expr: ast.Attribute, owner: Class) -> Value:
        """A parameter or buffer that a network makes itself, with dimensions: float32 now, half under O2. Without, it promotes
        nothing."""
        return self.parameter(owner.module) if self.own_tensors.made(scope, expr, owner) else UNKNOWN

    def parameter(self, module: Module) -> Value:
        """A parameter of a network, in code that runs it."""
        was: Dtype = "half" if self.floats(module) and not self.patches(module) else "float"
        return Value(was, "float")

    def is_stack(self, module: Module, expr: ast.expr) -> bool:
        """Whether an expression holds layers in a row: a loop over them runs."""
        origins = self.values.origins(module.scope_of(expr), expr) if isinstance(expr, ast.Attribute) else ()
        return bool(origins) and all(
            isinstance(o.node, ast.Call)
            and not o.path
            and self.program.dotted(o.module.scope_of(o.node), o.node.func)
            in ("torch.nn.ModuleList", "torch.nn.Sequential")
            for o in origins
        )

    # -- models ------------------------------------------------------------------------------------------------------

    def output(
        self, forward: Forward, given: Sequence[Value] = (), named: Mapping[str | None, Value] | None = None
    ) -> Value:
        """What a forward gives in a region, of what other networks gave where that is handed to it."""
        runs = self.both.after.forwards.runs(forward)
        heavy = self.floats(forward.module) and not self.patches(forward.module)
        found = []
        for f in runs:
            names = [p.arg for p in f.parameters[f.bound :]]
            env = dict(zip(names, given, strict=False)) | {k: v for k, v in (named or {}).items() if k is not None}
            # O2 and O3 made the inputs half of the networks that they were given, and of no others.
            env = {k: v._replace(was="?") if heavy else v for k, v in env.items() if v.followed or v.double}
            found.append(self.run_in_region(f, given_to(self.program, f, forward.scope, forward.call), env))
        if not found and forward.method == "generate":
            return INTEGER  # tokens
        layer = self.layers.one(forward.scope, forward.model) if not found else None
        if layer in known.HALF_LAYERS or (layer in known.ENCODERS and forward.method is None):
            found = [HALF if layer in known.HALF_LAYERS else ENCODED]
        came = Came.of(forward.module, forward.call)
        patched = is_patched(self.both, forward)
        if not found and forward.method in HEADLESS:  # whose normalization O1 ran in float32, and O2 in half
            return Value("half" if heavy and not patched else "float", "?", origin=came)
        value = join(ways(_taken_apart(forward, found))) if found else Value("maybe", "maybe")
        if value.items is None and value.now in ("?", "nothing"):
            value = UNKNOWN
        if (forward.method or "").startswith("generate"):
            value = _tokens(value)
        return self._as_apex(value, came, self.gave_floats(forward.module) and patched)

    def _as_apex(self, value: Value, origin: str, floats: bool) -> Value:
        items = tuple(self._as_apex(i, str(origin), floats) for i in value.items) if value.items is not None else None
        if value == UNKNOWN:
            value = Value("maybe", "maybe")
        # What is a float now was one, whichever: O2 and O3 cast what a model gives.
        cast = value.was in HALVES or (value.was == "?" and value.now in ("float", *HALVES))
        was: Dtype = "float" if floats and cast else value.was
        keyed = self._as_apex(value.dictionary, origin, floats) if value.dictionary is not None else None
        return value._replace(was=was, items=items, origin=origin, dictionary=keyed)

    def run_in_region(
        self, function: Function, given: Mapping[str, Given] | None = None, env: Mapping[str, Value] | None = None
    ) -> Value:
        asked = function, told_apart(given or {}), frozenset((env or {}).items())
        if asked not in self._outputs:
            self._outputs[asked] = UNKNOWN
            outer, self.below = self.below, True
            self._outputs[asked] = self.call(function, dict(env or {}), True, ALL_TOLD, given)
            self.below = outer
        return self._outputs[asked]


def _certain(value: Value) -> bool:
    """Whether a value, or something that it holds, is half for sure."""
    return value.now == "half" or any(map(_certain, value.items or ()))


def _taken_apart(forward: Forward, found: list[Value]) -> list[Value]:
    """Of what several networks give, that of those which may run here: what takes it apart takes so many values."""
    stmt = forward.module.parents.get(forward.call)
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and stmt.value is forward.call else None
    if not isinstance(target, (ast.Tuple, ast.List)) or any(isinstance(e, ast.Starred) for e in target.elts):
        return found
    return [v for v in found if v.keys or v.items is None or len(v.items) == len(target.elts)] or found


def _tokens(value: Value) -> Value:
    """What a method that generates gives: tokens and their number, but for what is seen to be something else."""
    if value == UNKNOWN:
        return INTEGER
    return value._replace(items=tuple(map(_tokens, value.items))) if value.items is not None else value
