"""Programs that already have a native branch beside the Apex one: the Apex branch is taken out, nothing is added."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.reading.conditions.chains import Link, head_of, heads, links
from amp_migrate.reading.conditions.tests import availability
from amp_migrate.reading.program.branches import branches_around
from amp_migrate.reading.program.definitions import ClassInfo, dotted
from amp_migrate.reading.program.logic import truth
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.processes import in_process
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.twin.branches import (
    Branch,
    Choice,
    asked_by,
    branch_of,
    choice_of,
    flag_asked,
    residue,
    value_chosen,
)
from amp_migrate.reading.twin.external_scalers import counterpart, sets_autocast
from amp_migrate.reading.twin.flags import native_flags
from amp_migrate.reading.twin.options import option_reads
from amp_migrate.reading.units.unit import Init, Unit
from amp_migrate.reading.units.wrappers import makes_native, scales_natively
from amp_migrate.reading.values.sources import Sources


def _holds_choice(target: ast.expr, holder: str, value: str) -> bool:
    """Whether a target is what a choice compares: by its whole text, or by its attribute for an enumeration's member."""
    text = ast.unparse(target)
    return text == holder or ("." in value and value[0] not in "'\"" and text.rpartition(".")[2] == holder)


class NativeTwin:
    """The switch that chooses Apex in a unit whose every use of Apex has a native alternative, and the classes that only
    serve its Apex side."""

    def __init__(self, unit: Unit, branches: Iterable[Branch], classes: Iterable[ClassInfo] = ()) -> None:
        self.project = unit.project
        self.classes = list(dict.fromkeys(classes))
        self.switches: set[str] = set()
        self.choices: dict[Choice, ast.expr | None] = {}  # with the value that chooses the native branch
        self.flags: dict[str, ast.expr] = {}  # a flag that chooses Apex, with the one that chooses the native branch
        self.joined: dict[ast.If, ast.expr] = {}  # links that are to answer to what chose Apex as well
        self.branches = list(branches)
        self.taken_over: set[ast.Assign] = set()  # what computes a flag of `flags`, and is a part of the native one now
        self.options: dict[ast.Attribute, str] = {}  # reads of settings that choose Apex, and what these are called
        for branch in self.branches:
            flag, on = flag_asked(branch.test)
            self.switches.add(ast.dump(flag if on else branch.test))
            if on and isinstance(flag, ast.Attribute):
                self.options |= dict.fromkeys(option_reads(self.project, flag), flag.attr)
            choice = choice_of(branch.test)
            if choice is not None:
                self.choices[choice] = self.choices.get(choice) or branch.native
            elif branch.flag is not None:
                self.flags[ast.unparse(branch.test)] = branch.flag
            if branch.joined is not None:
                self.joined[branch.joined.node] = branch.test
        # Flags, or holders of `choices`, for which the tests of the native side ask as well now.
        self.answered: set[str] = set()
        self.modules = self._concerned(unit)

    def _concerned(self, unit: Unit) -> list[Module]:
        """Where the switch may be asked: its own files for a plain name or a flag, every file for an object's choice."""
        own = {*unit.modules, *(cls.module for cls in self.classes)}
        if any("." in holder or "." in value for holder, value in self.choices):
            return self.project.modules
        if self.options:
            own |= in_process(self.project, own)
        scopes = [(x.module, x.call) for x in unit.losses] + [(i.module, i.call) for i in unit.inits]
        for module, node in scopes:
            cls = self.project.class_around(module.scope_of(node))
            own |= {c.module for c in cls.family.descendants()} if cls is not None else set()
        return [module for module in self.project.modules if module in own]

    def value(self, test: ast.expr) -> bool | None:
        """What a test is once Apex is never chosen; None where it asks something else."""
        return truth(test, self.told)

    def told(self, test: ast.expr) -> bool | None:
        flag, on = flag_asked(test)
        if flag in self.options or ast.dump(flag) in self.switches:
            return not on
        if isinstance(test, ast.Compare) and choice_of(test) in self.choices:
            return isinstance(test.ops[0], (ast.NotEq, ast.IsNot))
        return None

    def chooses(self, stmt: ast.stmt) -> bool:
        """Whether a statement chooses Apex: `use_amp = "apex"`, `self.use_apex = True`."""
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
            return False
        return value_chosen(stmt.targets[0], stmt.value) in self.choices or (
            ast.unparse(stmt.targets[0]) in self.flags and _is_true(stmt.value)
        )

    def instead(self, stmt: ast.Assign) -> tuple[ast.expr, ast.expr] | None:
        """What a statement that chooses Apex is to set now, and to which value."""
        target = stmt.targets[0]
        flag = self.flags.get(ast.unparse(target))
        if flag is not None:
            return flag, stmt.value
        choice = value_chosen(target, stmt.value)
        native = self.choices[choice] if choice is not None else None
        return (target, native) if native is not None else None

    def chooses_native(self, stmt: ast.stmt) -> bool:
        """Whether a statement chooses the native branch."""
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
            return False
        target = ast.unparse(stmt.targets[0])
        if _is_true(stmt.value) and any(target == ast.unparse(flag) for flag in self.flags.values()):
            return True
        chosen = value_chosen(stmt.targets[0], stmt.value)
        return any(
            native is not None and chosen is not None and chosen == value_chosen(stmt.targets[0], native)
            for (holder, value), native in self.choices.items()
            if _holds_choice(stmt.targets[0], holder, value)
        )

    def closed(self) -> bool:
        """Whether the program makes every choice itself: nothing outside it can still ask for Apex."""
        if self.joined and not self.choices:
            return True
        for name in self.flags.keys() - self.answered:
            given = self.given(name)
            if not given or not all(isinstance(s.value, ast.Constant) or s in self.taken_over for _, s in given):
                return False
        for holder, value in self.choices:
            if holder in self.answered:
                continue
            mine = [(t, v) for t, v in self._given(holder) if _holds_choice(t, holder, value)]
            chosen = [value_chosen(target, v) for target, v in mine]
            if (holder, value) not in chosen or None in chosen or self.choices[holder, value] is None:
                return False
        return bool(self.choices or self.flags)

    def given(self, name: str) -> list[tuple[Module, ast.Assign]]:
        """The assignments of the program to what a flag is called."""
        modules = self.project.modules if "." in name else self.modules
        return [
            (module, node)
            for module in modules
            if name.rpartition(".")[2] in module.text
            for node in module.of(ast.Assign)
            if name in map(ast.unparse, node.targets)
        ]

    def _given(self, holder: str) -> Iterator[tuple[ast.expr, ast.expr]]:
        """The assignments of the program that may give a holder its value."""
        for module in self.project.modules:
            for node in module.of(ast.Assign) if holder.rpartition(".")[2] in module.text else ():
                yield from ((t, node.value) for t in node.targets)

    def only_chooses(self, module: Module, body: Iterable[ast.stmt]) -> bool:
        """Whether statements do nothing but choose Apex, with checks and messages about that."""
        stmts = list(flat(self.project, module, body))
        return any(self.chooses(s) for s in stmts) and all(
            self.chooses(s) or isinstance(s, (ast.Assert, ast.Pass)) or tells(s) for s in stmts
        )


def flat(project: Project, module: Module, body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements with those in place that stand under nothing but the question whether Apex, or native mixed precision,
    is there."""
    available, native = availability(project, module), native_flags(project, module)
    for stmt in body:
        value = None
        if isinstance(stmt, ast.If):
            value = available.value(stmt.test)
            value = native.value(stmt.test) if value is None else value
        if isinstance(stmt, ast.If) and value is not None:
            yield from flat(project, module, stmt.body if value else stmt.orelse)
        else:
            yield stmt


def find_twin(unit: Unit) -> NativeTwin | None:
    """The native alternative of a unit, where each of its losses stands in a branch of one switch, or in a class whose
    instances are made there; without losses, each of its initialize calls."""
    if not any("GradScaler" in m.text or "autocast" in m.text for m in unit.modules):
        return None
    branches: list[Branch] = []
    classes: list[ClassInfo] = []
    for loss in unit.losses:
        branch = _beside(unit, loss.module, loss.with_stmt)
        if branch is None:
            cls = unit.project.class_of(loss.module.scope_of(loss.call))
            branch = _made_under(unit, cls) if cls is not None else None
            classes += [cls] if cls is not None else []
        if branch is None:
            return None
        branches.append(branch)
    for init in unit.inits if not unit.losses else ():
        branch = _external(unit, init) or (_inference(unit, init) if unit.only_inference else None)
        if branch is None:
            return None
        branches.append(branch)
    twin = NativeTwin(unit, branches, classes) if branches else None
    if twin is not None and any(b.asked is not None and twin.value(b.asked) is False for b in branches):
        return None  # the native side asks for the same flag, and for more: it would go with Apex's
    return twin


def _beside(unit: Unit, module: Module, node: ast.stmt) -> Branch | None:
    """The test of the `if` around a loss whose other branch scales the loss natively, or runs the plain path of a
    program whose native path is chosen elsewhere."""
    for parent in _ifs_around(module, node):
        if scales_natively(parent.orelse):
            return branch_of(unit, module, parent)
        earlier = next((x for x in _others(module, parent) if scales_natively(x.body)), None)
        if earlier is not None:
            return branch_of(unit, module, parent, earlier)
    return None


def _external(unit: Unit, init: Init) -> Branch | None:
    """The test of the `if` around initialize under which an object of a library is made that scales through Apex, where
    another branch makes one that scales natively."""
    module = init.module
    for parent in _ifs_around(module, init.stmt):
        for other in _others(module, parent):
            if counterpart(unit.project, module, parent.body, list(other.body)):
                return branch_of(unit, module, parent, other)
    return None


def _ifs_around(module: Module, node: ast.stmt) -> Iterator[ast.If]:
    """The `if` statements of a function in whose bodies a statement stands, innermost first."""
    around = branches_around(module, node, module.scopes)
    return (b.test for b in around if b.holds and isinstance(b.test, ast.If))


def _others(module: Module, node: ast.If) -> list[Link]:
    """The other branches of the chain that an `if` belongs to."""
    return [x for x in links(head_of(module, node)) if not (x.node is node and x.test is node.test)]


def _made_under(unit: Unit, cls: ClassInfo) -> Branch | None:
    """The test of the `if` under which alone a class is made, where the other branch makes one that scales natively."""
    found: list[Branch] = []
    for module, call in unit.project.once(Sources).made(cls):
        around = (b.test for b in branches_around(module, call) if b.holds and isinstance(b.test, ast.If))
        beside = next((p for p in around if makes_native(unit.project, module, p.orelse)), None)
        branch = branch_of(unit, module, beside) if beside is not None else None
        if branch is None:
            return None
        found.append(branch)
    return found[0] if found and len({ast.dump(branch.test) for branch in found}) == 1 else None


def _inference(unit: Unit, init: Init) -> Branch | None:
    """The test around an initialize call, where autocast is set up when another value, or another flag, is chosen."""
    module = init.module
    for parent in _ifs_around(module, init.stmt):
        test = asked_by(unit, module, parent)
        if isinstance(test, (ast.Name, ast.Attribute)):
            link = _autocast_link(unit, module, test, parent)
            return Branch(test, joined=link) if link is not None else None
        if not isinstance(test, ast.Compare) or not isinstance(test.comparators[0], ast.Constant):
            return None
        for node in module.of(ast.Assign):
            if [ast.unparse(t) for t in node.targets] == [ast.unparse(test.left)]:
                value = node.value
                if isinstance(value, ast.Constant) and value.value and value.value != test.comparators[0].value:
                    if any("autocast" in module.source(s) for s in module.block(node) if s is not node):
                        return Branch(test, value)
    return None


def _autocast_link(unit: Unit, module: Module, flag: ast.expr, init: ast.If) -> Link | None:
    """The branch that sets autocast up under a flag of its own, where `flag` asks for Apex instead: a message in the same
    chain says so, or what is installed decides between the two."""
    mine = ast.dump(flag)
    scope = module.scope_of(init)
    for head in heads(module):
        chain = links(head)
        for link in chain if module.scope_of(head) is scope else ():
            kept = residue(unit.project, module, link.test) if link.test is not None else None
            if not kept or len(kept) != 1 or not isinstance(kept[0], (ast.Name, ast.Attribute)):
                continue
            if not any(sets_autocast(unit.project, module, s) for s in link.body):
                continue
            told = any(x.test is not None and ast.dump(x.test) == mine and all(map(tells, x.body)) for x in chain)
            if (told or _decided_together(unit, module, flag, kept[0])) and _asked_alone(module, flag, head, init):
                return link
    return None


def _decided_together(unit: Unit, module: Module, flag: ast.expr, other: ast.expr) -> bool:
    """Whether a chain of nothing but what is installed sets one of two flags."""
    wanted = {ast.unparse(flag), ast.unparse(other)}
    for head in heads(module):
        tested = [x for x in links(head) if x.test is not None]
        if all(x.test is not None and residue(unit.project, module, x.test) == [] for x in tested):
            given = {ast.unparse(t) for x in tested for s in x.body if isinstance(s, ast.Assign) for t in s.targets}
            if wanted <= given:
                return True
    return False


def _asked_alone(module: Module, flag: ast.expr, head: ast.If, init: ast.If) -> bool:
    """Whether nothing else asks for a flag: around initialize, in the chain, in an assertion."""
    mine = ast.dump(flag)
    tests = {x.test for x in links(head)} | {init.test}
    for node in module.of(type(flag)):
        if ast.dump(node) == mine:
            around = [node, *module.ancestors(node)]
            if not any(n in tests or isinstance(n, ast.Assert) for n in around):
                return False
    return True


def tells(stmt: ast.stmt) -> bool:
    """A statement that only tells somebody something: `logger.info(...)`."""
    if not isinstance(stmt, ast.Expr):
        return False
    call = stmt.value
    name = (dotted(call.func) or "").lower() if isinstance(call, ast.Call) else ""
    return (
        isinstance(call, ast.Constant) or name == "print" or name.split(".")[0].lstrip("_").startswith(("log", "warn"))
    )


def _holds(stmt: ast.stmt, node: ast.AST) -> bool:
    return any(n is node for n in walk(stmt))


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
