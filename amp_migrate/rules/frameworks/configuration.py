"""The settings of frameworks in JSON and YAML files: what Python says in a call, these say in a mapping.

Apex: https://nvidia.github.io/apex/amp.html
Native: https://pytorch.org/docs/stable/amp.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from amp_migrate.findings import Code, Finding, Review, Status
from amp_migrate.options import Options
from amp_migrate.reading.program.settings import (
    Entry,
    NotRead,
    Settings,
    TooDeep,
    lines_of,
    read_json,
    read_yaml,
    runs_of,
)
from amp_migrate.rules.frameworks import deepspeed, lightning, mmengine, transformers
from amp_migrate.rules.frameworks.lightning_versions import MIXED, OLD_MIXED, refused

CODES: tuple[Code, ...] = ()

# A key under which the value `apex` chooses a kind of mixed precision.
_ABOUT_PRECISION = re.compile(r"amp|fp16|half|precision|backend|engine|sync_?bn", re.I)
_LEVEL = re.compile(r"O[0-3]")
# Where a file cannot be read as JSON or YAML: the line alone.
_LINE = re.compile(
    r"[\"']?\b(?P<key>amp_backend|half_precision_backend|fp16_backend|\w*opt_level)[\"']?\s*[:=]\s*"
    r"[\"']?(?:apex|native|O[0-3])\b"
)

_SECTION = re.compile(r"(?<![\w\"'])[\"']?amp[\"']?\s*:\s*\{[^}]{0,500}?\benabled[\"']?\s*:(?!\s*false)[^}]{0,500}")


@dataclass(frozen=True)
class Change:
    """A finding, and the spans of the text that change with it."""

    finding: Finding
    spans: tuple[tuple[int, int, str], ...] = ()


class File:
    """One settings file. `named` says whether the project's own code names a setting: it reads it then."""

    def __init__(self, text: str, *, yaml: bool, named: Callable[[str], bool], options: Options) -> None:
        self.text = text
        self.yaml = yaml
        self.named = named
        self.options = options

    def changes(self) -> list[Change]:
        """What becomes of the file, in source order. Raises TooDeep for one that nests too deeply to be read, and whose
        lines speak of Apex."""
        try:
            mappings = read_yaml(self.text) if self.yaml else read_json(self.text)
        except TooDeep:
            if any(self._unread()):
                raise
            return []
        except NotRead:
            return list(self._unread())
        found: list[Change] = []
        inside: set[Settings] = set()  # sections that are dealt with as a whole
        for settings in mappings:
            if settings in inside:
                continue
            own = [*self._lightning(settings), *self._transformers(settings), *self._deepspeed(settings)]
            if any(c.finding.code == "AMP804" for c in own):
                inside |= {e.inner for e in settings.entries if e.key == "amp" and e.inner is not None}
            found += own
            told = {c.finding.construct for c in own}
            found += [c for e in settings.entries if e.key not in told for c in self._others(e)]
        return sorted(found, key=lambda c: c.finding)

    def at(self, entry: Entry, code: str, status: Status, message: str, review: Review = "look") -> Finding:
        before = self.text[: entry.start]
        column = entry.start - (before.rfind("\n") + 1) + 1
        return Finding(before.count("\n") + 1, column, code, entry.key, status, review, message)

    def manual(self, entry: Entry, code: str, message: str) -> Change:
        return Change(self.at(entry, code, "manual", message, "review"))

    def dropped(self, settings: Settings, entries: list[Entry], code: str, why: str) -> Iterator[Change]:
        """Entries that go, or why they have to be taken out by hand."""
        if any(e.alone for e in entries) or (self.yaml and len(entries) == len(settings.entries)):
            yield from (self.manual(e, code, f"delete this entry: {why}") for e in entries)
            return
        read = self._read(entries)
        if read is not None:
            yield from (
                self.manual(e, code, f"delete this entry and what reads {read.key} in the code: {why}") for e in entries
            )
            return
        cuts = {e: (first, last) for e, first, last in runs_of(settings, entries)}
        if self.yaml:
            cuts = {e: lines_of(self.text, e) for e in entries}
        for entry in entries:
            spans = ((*cuts[entry], ""),) if entry in cuts else ()
            yield Change(self.at(entry, code, "done", f"{entry.key} goes: {why}"), spans)

    def _read(self, entries: list[Entry]) -> Entry | None:
        """The first of some entries that code of the program asks for by name: it is not taken out then."""
        return next((e for e in entries if self.named(e.key)), None)

    def _lightning(self, settings: Settings) -> Iterator[Change]:
        entries = [e for e in settings.entries if e.key in lightning.SETTINGS[:2] and isinstance(e.value, str)]
        precision = settings.get("precision")
        if not entries or (precision is None and settings.get("amp_backend") is None):
            return
        old = bool(refused(e.key for e in settings.entries))
        mixed = (OLD_MIXED if old else MIXED)[self.options.dtype]
        level = settings.get("amp_level")
        if level is not None and level.value == "O0":
            yield from (
                self.manual(e, "AMP801", "O0 trained in float32: delete it, and precision with it") for e in entries
            )
            return
        changes = list(self.dropped(settings, entries, "AMP801", "Lightning 2.0 took it away"))
        yield from changes
        if precision is None or str(precision.value) == str(mixed):
            return
        if precision.value in (16, "16") and all(c.finding.status == "done" for c in changes):
            quote = "" if self.yaml and self.text[precision.value_start] not in "\"'" else '"'
            span = (precision.value_start, precision.value_end, f"{quote}{mixed}{quote}")
            yield Change(self.at(precision, "AMP801", "done", f"{mixed} is autocast with a GradScaler"), (span,))

    def _transformers(self, settings: Settings) -> Iterator[Change]:
        entries = [e for e in settings.entries if e.key in transformers.SETTINGS]
        if not any(e.key in transformers.BACKENDS for e in entries):
            if settings.get("output_dir") is None or settings.get("per_device_train_batch_size") is None:
                return
        values = {e.value for e in entries}
        if {e.value for e in entries if e.key in transformers.BACKENDS} == {"amp"} and self._read(entries):
            message = "torch's own, whatever the level says: nothing chose Apex here; Transformers 5 takes neither"
            yield from (Change(self.at(e, "AMP803", "note", message)) for e in entries)
            return
        if "O0" in values or "cpu_amp" in values:
            yield from (
                self.manual(e, "AMP803", "Transformers 5 no longer has it: see `explain AMP803`") for e in entries
            )
            return
        yield from self.dropped(
            settings, entries, "AMP803", "it only chose Apex; fp16 alone is autocast with a GradScaler"
        )

    def _deepspeed(self, settings: Settings) -> Iterator[Change]:
        amp = settings.get("amp")
        if amp is None or amp.inner is None or not deepspeed.SIBLINGS & {e.key for e in settings.entries}:
            return
        enabled = amp.inner.get("enabled")
        if enabled is None or enabled.value is False:
            return
        new = deepspeed.section(amp.inner.plain(), settings.plain(), self.options.dtype)
        if isinstance(new, str) or self.yaml:
            reason = new if isinstance(new, str) else f'use "{new.name}" with {json.dumps(dict(new.entries))}'
            yield self.manual(amp, "AMP804", reason)
            return
        spans = (
            (amp.start, amp.key_end, f'"{new.name}"'),
            (amp.value_start, amp.value_end, self._section(amp.inner, enabled, new)),
        )
        yield Change(self.at(amp, "AMP804", "done", deepspeed.message(new), "review"), spans)

    def _section(self, old: Settings, enabled: Entry, new: deepspeed.Section) -> str:
        """The new section between the braces of the old one, an entry a line where it had that."""
        pairs = [self.text[enabled.start : enabled.value_end]]
        pairs += [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in new.entries.items()]
        first, last = old.entries[0], old.entries[-1]
        lead, tail = self.text[old.start + 1 : first.start], self.text[last.value_end : old.end - 1]
        between = f",{lead}" if "\n" in lead else ", "
        return "{" + lead + between.join(pairs) + tail + "}"

    def _others(self, entry: Entry) -> Iterator[Change]:
        if entry.value == mmengine.OLD:
            yield self.manual(entry, "AMP807", f"use {mmengine.NEW}, without the arguments that only Apex has")
        elif entry.key.lower().endswith("opt_level") and _LEVEL.fullmatch(str(entry.value)):
            if self.named(entry.key):
                message = "the program reads a setting of this name: once migrated, O1, O2 and O3 all mean autocast"
                yield Change(self.at(entry, "AMP853", "note", message, "as-is"))
            elif entry.key not in transformers.SETTINGS:
                yield self.manual(
                    entry,
                    "AMP809",
                    "a level of Apex that a framework reads: replace it by the framework's native setting "
                    "(`explain AMP809` lists them), or drop it",
                )
        elif str(entry.value).lower() == "apex" and _ABOUT_PRECISION.search(entry.key):
            if entry.key not in (*lightning.SETTINGS, *transformers.SETTINGS):
                if self.named(entry.key):
                    message = "the program reads it: see what its migrated code does with this value"
                    yield Change(self.at(entry, "AMP809", "note", message))
                else:
                    yield self.manual(entry, "AMP809", f"{entry.key} chooses Apex: set it to the native kind")

    def _unread(self) -> Iterator[Change]:
        section = _SECTION.search(self.text) if any(key in self.text for key in deepspeed.SIBLINGS) else None
        told = range(0)
        if section is not None:
            above = self.text[: section.start()]
            column = len(above) - (above.rfind("\n") + 1) + 1
            told = range(first := above.count("\n") + 1, first + section[0].count("\n") + 1)
            message = (
                'the file cannot be read: put "torch_autocast" (O1) or "fp16" (O2) in its place (`explain AMP804`)'
            )
            yield Change(Finding(first, column, "AMP804", "amp", "manual", "review", message))
        for number, line in enumerate(re.split(r"\r\n|\r|\n", self.text), 1):
            match = _LINE.search(line) if number not in told else None
            if match is None or line.lstrip().startswith(("#", "//")):
                continue
            if self.named(match["key"]):
                continue
            message = f"{match['key']} chooses Apex: replace it by the framework's native setting (`explain AMP809`)"
            yield Change(Finding(number, match.start() + 1, "AMP809", match["key"], "manual", "review", message))


def carried_out(text: str, changes: list[Change]) -> str:
    """The text with all spans replaced."""
    out, at = [], 0
    for start, end, new in sorted(span for change in changes for span in change.spans):
        out += [text[at:start], new]
        at = end
    return "".join([*out, text[at:]])
