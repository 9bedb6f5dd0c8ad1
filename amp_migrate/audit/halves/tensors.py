"""What is told of a tensor: its dtype under Apex and its dtype now."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module

# "partly": half on one way, something else or unseen on another; "both", of Apex's: half on one, float32 on another; "nothing":
# None, an empty list.
Dtype = Literal["half", "both", "partly", "maybe", "float", "int", "number", "nothing", "?"]
HALVES = ("half", "both", "partly", "maybe")


class Came(str):
    """A forward as it is written, and where that stands: of what it gives as a whole."""

    place: Place

    @classmethod
    def of(cls, module: Module, call: ast.Call) -> Came:
        came = cls(syntax.text(call.func))
        came.place = module, call
        return came


class Value(NamedTuple):
    """A tensor, or a container of such: `items` where it is a tuple or a dictionary whose entries are told apart."""

    was: Dtype
    now: Dtype
    items: tuple[Value, ...] | None = None
    reduced: bool = False  # a sum or mean outside of any region
    host: bool = False  # on the CPU, where Apex cast nothing
    origin: str = ""  # the forward it comes from
    kept: bool = False  # made float32 by the program itself, or computed from what was
    mask: bool = False  # what a comparison of tensors gives
    places: bool = False  # integers along some dimension, as places in another tensor: what `nonzero` gives
    single: bool = False  # one number, in a tensor without dimensions: it widens no other tensor
    narrowed: bool = False  # made half by the program itself, as under Apex: its gradient was half there, too
    double: bool = False  # float64, which autocast leaves alone
    either: bool = False  # float32 on one way, half on another, as computed there
    keys: tuple[str, ...] = ()  # of a dictionary: what its items are called; under any other key is what is not known
    beside: bool = False  # of a dictionary: it may hold the program's data, too
    dictionary: Value | None = None  # what it is on some ways, where others give something else: what has keys is that
    names: Value | None = None  # of a dtype: a tensor that has it

    @property
    def half(self) -> bool:
        return self.now in HALVES

    @property
    def widened(self) -> bool:
        """Whether Apex had it in float32, on some way at least on which it is half now."""
        return self.was == "float" or (self.was == "both" and self.now == "half")

    def under(self, key: str) -> Value:
        """What a dictionary holds under a key."""
        return self.items[self.keys.index(key)] if self.items and key in self.keys else UNKNOWN

    def holding(self, items: tuple[Value, ...] | None) -> Value:
        """The same as a tuple of these, or as one tensor."""
        return self._replace(items=items, keys=())

    def at(self, index: int) -> Value:
        """What stands first, second, ... in what has names for its entries as well."""
        return self.items[index] if self.items and 0 <= index < len(self.items) else UNKNOWN

    def entry(self) -> Value:
        """Any entry: where they differ, one that is half."""
        if self.items:
            halves = [i.entry() for i in self.items if i.half]
            if halves and any(not i.half for i in self.items):
                found, partly = join(halves), any(h.now != "maybe" for h in halves)
                wide = partly and any(i.was == "float" for i in self.items)
                return found._replace(
                    was=_was(found.was, "float") if wide else found.was, now="partly" if partly else "maybe"
                )
            return join(self.items)
        return self

    def turn(self) -> Value:
        """What a turn of a loop has of it: of indices, one number."""
        return self._replace(places=False) if self.places else self.entry()

    def under_name(self, name: str) -> Value:
        """The value, once it has a name: what a program calls a loss was mostly computed in float32, where a model gives it."""
        given = self.now in ("maybe", "partly") and not self.reduced
        return UNKNOWN if given and "loss" in name.lower() else self

    @property
    def followed(self) -> bool:
        """Whether it is half, or holds something that is."""
        return self.now in HALVES or (self.items is not None and any(i.followed for i in self.items))


UNKNOWN = Value("?", "?")
NOTHING = Value("nothing", "nothing")
NUMBER = Value("number", "number")
INTEGER = Value("int", "int")
FLOAT = Value("float", "float")
HALF = Value("half", "half")
Told = Literal[0, 1, 2]  # what is said of what a body computes: nothing, what its products are, all
NOT_TOLD: Final = 0
PRODUCTS: Final = 1
ALL_TOLD: Final = 2
ENCODED = Value("?", "?", (FLOAT, HALF), keys=("last_hidden_state", "pooler_output"))  # and what else it is asked for
MASKED = "a masked assignment"  # what writes so
INDEXED = "an assignment by indices"
PERHAPS_INDEXED = "an assignment by indices, if these are a tensor,"
CAST = ".half()"  # the origin of a value that the program makes half itself

Place = tuple[Module, ast.AST]
Report = Callable[
    [str, Module, ast.AST, Value, str, Place | None], None
]  # kind, place, value, detail, from where reached
Env = dict[str, Value]


def join(values: Iterable[Value]) -> Value:
    found = list(values)
    found = [v for v in found if v != NOTHING] or found
    if not found:
        return UNKNOWN
    result = found[0]
    for value in found[1:]:
        if value == result:
            continue
        items = None
        if result.keys or value.keys:
            result = _by_key(result, value)
            continue
        if result.items and value.items and len(result.items) == len(value.items):
            items = tuple(join(p) for p in zip(result.items, value.items, strict=True))
        elif result.items and value.items:  # with and without the loss in front
            result = Value("?", "?", (*result.items, *value.items)).entry()
            continue
        result = Value(
            _was(result.was, value.was),
            _join(result.now, value.now),
            items,
            result.reduced or value.reduced,
            result.host or value.host,
            came_of((result, value)),
            result.kept or value.kept,
            narrowed=narrowed((result, value)),
            either=result.either or value.either or _computed_apart(result, value),
        )
    return result


def came_of(values: Iterable[Value]) -> str:
    """Where a value comes from that is one of some, or computed from them: a forward, rather than a cast of the program's."""
    origins = [v.origin for v in values if v.origin]
    return next((o for o in origins if o != CAST), origins[0] if origins else "")


def _computed_apart(one: Value, other: Value) -> bool:
    """Whether a value is float32 on one way and half on another as computed there: no cast of the program's makes it so."""
    return {one.now, other.now} == {"half", "float"} and not (one.kept or other.kept or narrowed((one, other)))


def narrowed(values: Iterable[Value]) -> bool:
    """Whether all that is half among some values was made so by the program itself."""
    halves = [v for v in values if v.half]
    return bool(halves) and all(v.narrowed for v in halves)


def keyed(entries: dict[str, Value]) -> Value:
    """A dictionary of which these entries are known."""
    return Value("?", "?", tuple(entries.values()), keys=tuple(entries)) if entries else NOTHING


def _by_key(one: Value, other: Value) -> Value:
    """One dictionary or another, or something else."""
    if one.keys and other.keys:
        both = {k: [v.under(k) for v in (one, other) if k in v.keys] for k in dict.fromkeys(one.keys + other.keys)}
        return keyed({k: join(found) for k, found in both.items()})
    if UNKNOWN in (one, other):  # what one branch puts something into, and another does not
        only = one if one.keys else other
        return keyed({k: join([only.under(k), UNKNOWN]) for k in only.keys})
    return join(ways([one, other]))


def ways(values: Iterable[Value]) -> list[Value]:
    """What several ways give: `{"loss": loss}` on one of them, in training, says nothing of what another gives, but under
    its keys."""
    found = list(values)
    keyed = [v for v in found if v.keys]
    if not keyed or all(v.keys or v == NOTHING for v in found):
        return found
    whole = join(v.entry() if v.keys else v for v in found)
    others = join(v for v in found if not v.keys)  # what is taken apart in order is one of these
    return [whole._replace(items=others.items, dictionary=join(keyed))]


def _join(one: Dtype, other: Dtype) -> Dtype:
    if one == other:
        return one
    for start in ("nothing", "number"):  # what a list or a sum starts with
        if start in (one, other):
            return other if one == start else one
    if {one, other} & {"half", "partly"} and {one, other} <= {*HALVES, "?", "float"}:
        return "partly"
    return "maybe" if {one, other} == {"maybe", "?"} else "?"


def _was(one: Dtype, other: Dtype) -> Dtype:
    """What Apex had on one way or another."""
    widest = {one, other} & {"float", "both"}
    certain = {one, other} & {"half", "both", "partly"}
    return "both" if widest and certain and one != other else _join(one, other)


def promoted(one: Dtype, other: Dtype) -> Dtype:
    for dtype in ("float", "?", "both", "half", "partly", "maybe", "int"):
        if dtype in (one, other):
            return dtype
    return "number"
