"""A whole program: modules, functions, classes, who calls whom, and where values flow.

Flow is flow-insensitive and directed: `reaches(seeds)` answers which variables, attributes and parameters may hold a
value that a seed holds. A variable is a `Slot`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from amp_migrate.reading.program import computed_keys, given_anew
from amp_migrate.reading.program.definitions import (
    ClassInfo,
    Function,
    argument,
    dotted,
    entries,
    in_rows,
    is_none,
    unpacked_list,
)
from amp_migrate.reading.program.flows import Flows
from amp_migrate.reading.program.given_values import alternatives
from amp_migrate.reading.program.handed_back import (
    SAME_OBJECT_METHODS,
    WRAPPERS,
    HandedBack,
    each_handed_back,
    put_in,
)
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.modules_held import KEPT, functions_held, is_option, only_kept
from amp_migrate.reading.program.modules_passed import Passed
from amp_migrate.reading.program.named_fields import named_fields
from amp_migrate.reading.program.spelled_out import DEEP, OWN, HandedOn, passed_on, spelled_out
from amp_migrate.reading.program.taken_apart import WrittenOut
from amp_migrate.reading.program.tree import reached, walk

FLOWING = (
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension),
    *(ast.Return, ast.Call),
)


class Project(Flows):
    """All modules of one program, read together.

    Without `follow` nothing is said about who calls whom and where values flow, which no program without Apex needs.
    """

    def __init__(self, modules: Iterable[Module], follow: bool = True) -> None:
        super().__init__(modules)
        self.follows = follow
        self.targets: frozenset[Module] = frozenset(self.modules)  # those that may be written
        self.unparsed: Sequence[str] = ()  # the texts of files that could not be understood
        self.resolved: dict[ast.Call, list[Function]] = {}
        self._options: dict[ast.Attribute, bool] = {}  # attributes that are named as one that holds an Apex module
        self._statements = {m: [n for n in walk(m.tree) if isinstance(n, FLOWING)] for m in self.modules if follow}
        self._back = HandedBack()
        for module, nodes in self._statements.items():
            for node in nodes:
                if isinstance(node, ast.Return) and (function := self.functions.get(module.scope_of(node).node)):
                    self._back.read(function, node)
        self.find_partials(self._statements)
        for _ in range(2 if follow else 0):  # the second round sees the classes that the first one found instances of
            self._flow()
            given_anew.link(self)
            self._spread_instances()
        computed_keys.link(self)
        self._settled = True
        passed = Passed(self)
        self.passed_modules = {**passed.held, **dict(functions_held(self))}
        self.module_calls = passed.calls
        self.module_targets = passed.targets

    def is_option(self, module: Module, node: ast.Attribute) -> bool:
        if not self._settled:
            return False
        if node not in self._options:
            self._options[node] = is_option(self, module, node)
        return self._options[node]

    def sources(self, module: Module, node: ast.AST | None, position: int | None = None) -> Iterator[Slot]:
        """Slots whose value an expression may yield; `position` selects an element of a tuple."""
        if node is None:
            return
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            slot = self.slot(module, node)
            if slot is not None:
                yield slot
                if position is not None:
                    yield Slot(slot, f"#{position}")
            elif isinstance(node, ast.Subscript):  # one item of what is held nowhere: `sorted(models)[0]`
                index = getattr(node.slice, "value", None)
                yield from self.sources(module, node.value, index if isinstance(index, int) else None)
        elif isinstance(node, ast.Call):
            yield from self._call_sources(module, node, position)
        elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            if position is not None and position < len(node.elts):
                yield from self.sources(module, node.elts[position])
            elif position is None:
                for element in node.elts:
                    yield from self.sources(module, element)
        elif isinstance(node, ast.Dict):
            for value in node.values:
                yield from self.sources(module, value)
        elif isinstance(node, ast.IfExp):
            yield from self.sources(module, node.body, position)
            yield from self.sources(module, node.orelse, position)
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                yield from self.sources(module, value, position)
        elif isinstance(node, (ast.Await, ast.Starred, ast.NamedExpr)):
            yield from self.sources(module, node.value, position)
        elif isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            yield from self.sources(module, node.elt)

    def _call_sources(self, module: Module, node: ast.Call, position: int | None) -> Iterator[Slot]:
        for function in self.callees(module, node):
            if function.name == "__init__":
                continue
            if function in self._back.more:
                yield Slot(function, "return" if position is None else f"return#{position}")
            # What this call passed comes back to this call alone, not to every other caller.
            back = {
                name for index, name in self._back.places[function] if position is None or index in (None, position)
            } | self._back.each[function]
            whole = self.handed_back(function) | self._back.each[function]
            for name, value in self.arguments(function, node) if back else ():
                if name in back:
                    yield from self.sources(module, value, position if name in whole else None)
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = (self.qualify(module, node.func) or dotted(node.func) or "").rpartition(".")[2] or method
        if name == "initialize" and (self.qualify(module, node.func) or "").startswith("apex.amp"):
            yield from self.sources(module, unpacked_list(module, node), position)
            if position is None or position == 0:
                yield from self.sources(module, argument(node, 0, "models"))
            if position is None or position == 1:
                yield from self.sources(module, argument(node, 1, "optimizers"))
        elif name in WRAPPERS:
            for arg in node.args[:1] if name not in ("zip",) else node.args:
                yield from self.sources(module, arg)
            for keyword in node.keywords:
                if keyword.arg in ("module", "model", "network", "init_optimizer"):
                    yield from self.sources(module, keyword.value)
        elif isinstance(node.func, ast.Attribute) and name in SAME_OBJECT_METHODS | {"values", "items", "get", "pop"}:
            yield from self.sources(module, node.func.value)
        elif isinstance(node.func, ast.Name) and name in ("max", "min", "sorted"):
            for arg in node.args:
                yield from self.sources(module, arg)
        elif name == "getattr" and len(node.args) > 1:
            yield from named_fields(self, module, node)

    def _flow(self) -> None:
        self.calls.clear()
        self.resolved.clear()
        self._written_out = WrittenOut(self)
        self._apart: list[tuple[Module, ast.Tuple | ast.List, ast.expr]] = []
        for module in self.modules:
            for node in self._statements[module]:
                if isinstance(node, ast.Assign):
                    for target in node.targets:
                        self._assign(module, target, node.value)
                elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                    self._assign(module, node.target, node.value)
                elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
                    self._iterate(module, node.target, node.iter)
                elif isinstance(node, ast.Return) and node.value is not None:
                    self._return(module, node)
                elif isinstance(node, ast.Call):
                    self._call(module, node)
                elif isinstance(node, ast.AugAssign):
                    self._put(module, node)
        for module, target, value in self._apart:
            self._take_apart(module, target, value)

    def _take_apart(self, module: Module, target: ast.Tuple | ast.List, value: ast.expr) -> None:
        """What a variable holds goes into several: from each place where all of it is written out, else from any."""
        displays = self._written_out.of(module, value, len(target.elts))
        for index, element in enumerate(target.elts):
            if (slot := self.slot(module, element)) is None:
                continue
            for where, held in displays:
                if isinstance(held, ast.Call):
                    self._item(where, slot, held, index)
                else:
                    self._give(where, slot, held[index])
            if not displays:
                self._into(slot, self.sources(module, value, index))

    def _item(self, module: Module, slot: Slot | None, call: ast.Call, index: int) -> None:
        """One item of a tuple that a call returns goes into a variable."""
        sources = list(self.sources(module, call, index))
        self._into(slot, sources)
        if slot is not None:
            for source in sources:
                self._same[source].add(slot)

    def _iterate(self, module: Module, target: ast.expr, iterable: ast.expr) -> None:
        if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and isinstance(target, ast.Tuple):
            if iterable.func.id == "zip":
                for element, source in zip(target.elts, iterable.args, strict=False):
                    self._iterate(module, element, source)
                return
            if iterable.func.id == "enumerate" and len(target.elts) == 2 and iterable.args:
                self._iterate(module, target.elts[1], iterable.args[0])
                return
        if isinstance(target, (ast.Tuple, ast.List)):
            for index, element in enumerate(target.elts):
                self._into(self.slot(module, element), self._of_rows(module, iterable, index))
        elif isinstance(target, (ast.Name, ast.Attribute)):
            self._into(self.slot(module, target), self.sources(module, iterable))

    def _of_rows(self, module: Module, iterable: ast.expr, index: int) -> Iterator[Slot]:
        """What stands in one place of each tuple that is gone through: `for name, optimizer in [("first", optimizer)]`."""
        if (
            isinstance(iterable, ast.Call)
            and isinstance(iterable.func, ast.Attribute)
            and iterable.func.attr == "items"
        ):
            yield from self.sources(module, iterable.func.value) if index == 1 else ()
        elif isinstance(iterable, (ast.Name, ast.Attribute)):
            slot = self.slot(module, iterable)
            if slot is not None:
                yield Slot(slot, f"[*{index}]")
        for place, value in in_rows(iterable):
            if place == index:
                yield from self.sources(module, value)

    def _assign(self, module: Module, target: ast.AST, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(value, (ast.Name, ast.Attribute)):
                self._apart.append((module, target, value))
                return
            for index, element in enumerate(target.elts):
                if isinstance(value, (ast.Tuple, ast.List)) and index < len(value.elts):
                    self._assign(module, element, value.elts[index])
                    continue
                if isinstance(value, ast.Call):
                    self._item(module, self.slot(module, element), value, index)
                else:
                    self._into(self.slot(module, element), self.sources(module, value, index))
            return
        slot = self.slot(module, target)
        if slot is None:
            return
        if isinstance(target, ast.Attribute) or (isinstance(target, ast.Name) and module.scope_of(target).is_class):
            name = module.qualify(value)
            attribute = target.attr if isinstance(target, ast.Attribute) else target.id
            if name in ("apex.amp", "apex") or (name in KEPT and only_kept(self, attribute, name)):
                self.module_attributes[attribute] = name
        self._give(module, slot, value)

    def _into(self, slot: Slot | None, sources: Iterable[Slot]) -> None:
        if slot is not None:
            self._written_out.changed(slot)
            for source in sources:
                self.flows[source].add(slot)

    def _hand(self, module: Module, slot: Slot, value: ast.expr) -> None:
        held = self.slot(module, value) if isinstance(value, (ast.Name, ast.Attribute)) else None
        if not is_none(value):
            self.foreign[slot].add(held or (isinstance(value, ast.Call) and self._is_foreign(module, value)))
        self._enter(module, slot, value)
        owner = self.class_of(module.scope_of(value))
        for source in self.sources(module, value):
            self.flows[source].add(slot)
            self._same[source].add(slot)
            if isinstance(source.holder, ClassInfo):
                self.read_by[source, slot].add(owner)

    def _enter(self, module: Module, slot: Slot, value: ast.expr) -> None:
        """What is put into a mapping is found there under its key; into a list of tuples, in its place of each; what an
        object from outside of the program is made with, is its attribute: `Namespace(model=model)`."""
        for key, entry in (*entries(value), *((f"*{place}", entry) for place, entry in in_rows(value))):
            self._into(Slot(slot, f"[{key}]"), self.sources(module, entry))
        for keyword in self._made_of(module, value) if isinstance(value, ast.Call) and value.keywords else ():
            if keyword.arg is not None:
                self._into(Slot(slot, keyword.arg), self.sources(module, keyword.value))

    def _made_of(self, module: Module, call: ast.Call) -> Iterator[ast.keyword]:
        """What an object from outside is made with by name, also by a function that makes one of its `**kwargs`."""
        if self._is_foreign(module, call):
            yield from call.keywords
        for function in self.callees(module, call):
            for inner, whole in passed_on(function, call):
                made: ast.AST = inner
                while isinstance(made, ast.Call) and not self.callees(function.module, made):
                    made = function.module.parents[made]
                if isinstance(made, ast.Return):
                    yield from whole.keywords

    def _return(self, module: Module, node: ast.Return) -> None:
        function = self.functions.get(module.scope_of(node).node)
        if function is None:
            return
        value = node.value
        if each_handed_back(function, node) is not None:
            return
        own = {Slot(function.scope, name) for _, name in self._back.places[function]}
        given = Slot(function, "return")
        for candidate in alternatives(value) if value is not None else ():
            if isinstance(candidate, ast.Call):
                self._found(given, self.classes_of(module, candidate))
        for source in self.sources(module, value):
            if source in own:
                continue
            self.flows[source].add(given)
            if isinstance(value, (ast.Name, ast.Attribute, ast.Call)):
                self._same[source].add(given)
            if function.is_property and function.cls is not None:
                self.flows[source].add(Slot(function.cls.family, function.name))
            if not isinstance(value, (ast.Tuple, ast.List)):
                for index in range(4):
                    self.flows[Slot(source, f"#{index}")].add(Slot(function, f"return#{index}"))
        if isinstance(value, (ast.Tuple, ast.List)):
            for index, element in enumerate(value.elts):
                item = Slot(function, f"return#{index}")
                for candidate in alternatives(element):
                    if isinstance(candidate, ast.Call):
                        self._found(item, self.classes_of(module, candidate))
                for source in self.sources(module, element):
                    if source not in own:
                        self.flows[source].add(item)
                        self._same[source].add(item)
        elif isinstance(value, ast.Call):
            for index in range(4):
                for source in self.sources(module, value, index):
                    self.flows[source].add(Slot(function, f"return#{index}"))

    def _call(self, module: Module, call: ast.Call) -> None:
        functions = self.callees(module, call)
        self.resolved[call] = functions
        self._written_out.called(module, call)
        if functions and (spelled := spelled_out(module, call)) is not None:
            self._spelled[call] = spelled
        for function in functions:
            self.calls[function].append((module, call))
            given = list(self.arguments(function, call))
            if call in self.through or not function.lacks(call, {name for name, _ in given}):
                for parameter, value in given:
                    self._give(module, Slot(function.scope, parameter), value)
            for inner, parameter, value in self.passed_on(function, call) if function.unpacking else ():
                self._give(module, Slot(inner.scope, parameter), value)
        if not functions:
            for cls in self.classes_of(module, call):
                for field, value in cls.given(call):
                    self._give(module, Slot(cls.family, field), value)
        self._put(module, call)

    def _put(self, module: Module, node: ast.Call | ast.AugAssign) -> None:
        """What is put into a container is found in it."""
        put = put_in(node)
        container = self.slot(module, put[0]) if put is not None else None
        if put is not None and container is not None:
            for source in self.sources(module, put[1]):
                self.flows[source].add(container)
            self._enter(module, container, put[1])

    def passed_on(self, function: Function, call: ast.Call) -> Iterator[tuple[Function, str, ast.expr]]:
        """What a call gives, where the function hands on its `*args` and `**kwargs`, and where those that it calls do: by
        however many ways one is handed the same, it is given that once."""

        def further(way: HandedOn) -> Iterator[HandedOn]:
            for inner, handed in way.passed_on():
                for target in self.callees(way.function.module, inner) if way.tells(handed) else ():
                    if inner not in self.through:
                        yield handed_to(target, handed, way.longest)

        def handed_to(target: Function, handed: ast.Call, longest: int) -> HandedOn:
            own = self.passes_self(target, handed)
            return HandedOn(target, (*handed.args[own:],), (*handed.keywords,), longest)

        for way in reached(further(handed_to(function, call, len(call.args) + DEEP)), further):
            for parameter, value in super().arguments(way.function, way.call):
                if value is not OWN:
                    yield way.function, parameter, value

    def _give(self, module: Module, slot: Slot, value: ast.expr) -> None:
        for candidate in alternatives(value):
            if isinstance(candidate, ast.Call):
                self._found(slot, self.classes_of(module, candidate))
        self._written_out.given(slot, module, value)
        self._hand(module, slot, value)

    def handed_back(self, function: Function) -> set[str]:
        """Parameters that a function returns as they came, whole."""
        return {name for index, name in self._back.places[function] if index is None}
