"""The options `rewrite` and `check` share, and how they and the configuration become settings."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from amp_migrate import config
from amp_migrate.cli.completion import codes
from amp_migrate.options import Options

if TYPE_CHECKING:
    from amp_migrate.sources.gitignore import Rules

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Settings:
    """One run: what to read, how to migrate, how to report."""

    paths: tuple[str, ...]
    options: Options
    exclude: tuple[Rules, ...] = ()
    output: str = "text"
    jobs: int = 1
    quiet: bool = False
    check: bool = False
    diff: bool = False
    summary: str | None = None
    force_exclude: bool = False
    within: str = ""  # what progress begins with
    apart: frozenset[str] = frozenset()  # real paths of folders below the paths that are not walked

    @property
    def dry(self) -> bool:
        """Whether nothing is to be written."""
        return self.check or self.diff

    @property
    def stdin(self) -> bool:
        return self.paths == ("-",)


def shared_options(command: F) -> F:
    """PATH... and the options both commands have."""
    for decorate in reversed(
        (
            click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(readable=False)),
            click.option(
                "--format",
                "output",
                type=click.Choice(config.FORMATS),
                default="text",
                show_default=True,
                help="json and sarif for machines, github for annotations on a pull request, html for a page of tables.",
            ),
            click.option(
                "--select",
                multiple=True,
                metavar="CODE",
                shell_complete=codes,
                help="Only these codes; prefixes allowed: AMP2,AMP301.",
            ),
            click.option(
                "--ignore",
                multiple=True,
                metavar="CODE",
                shell_complete=codes,
                help="All but these codes. Wins over --select.",
            ),
            click.option(
                "--exclude",
                multiple=True,
                metavar="PATTERN",
                help="Leave out files and folders, in .gitignore syntax, also when named as PATH. May be repeated.",
            ),
            click.option(
                "--force-exclude",
                is_flag=True,
                help="Leave out what the walk of a folder leaves out also when it is named: vendored code, environments, "
                "what .gitignore names. For pre-commit.",
            ),
            click.option(
                "-j",
                "--jobs",
                type=click.IntRange(min=0),
                default=0,
                metavar="N",
                help="Processes that parse a large project; 0, the default, means one per core.",
            ),
            click.option("--quiet", "-q", is_flag=True, help="Print only what needs a hand, and no progress."),
        )
    ):
        command = decorate(command)
    return command


def resolve(ctx: click.Context, given: dict[str, Any]) -> Settings:
    """Settings from the command line where it says something, else from pyproject.toml, else the defaults."""
    paths = tuple(given["paths"])
    if "-" in paths and len(paths) > 1:
        raise click.UsageError("'-' (standard input) does not go with other paths.", ctx)
    try:
        configured = config.load(() if paths == ("-",) else paths)
    except config.ConfigError as error:
        raise click.UsageError(str(error), ctx) from None

    def value(name: str, key: str | None = None) -> Any:
        key = key or name
        on_command_line = ctx.get_parameter_source(name) not in (
            ParameterSource.DEFAULT,
            ParameterSource.DEFAULT_MAP,
            None,
        )
        return given.get(name) if on_command_line or key not in configured.values else configured.values[key]

    exclude_base = configured.folder if not given["exclude"] else os.path.realpath(os.curdir)
    return Settings(
        paths=paths,
        options=Options(
            dtype=value("dtype") or "float16",
            device=_device(ctx, value("device") or "cuda"),
            eval=value("eval_mode", "eval") or "autocast",
            partial=bool(value("partial")),
            checkpoint_compat=bool(value("checkpoint_compat", "checkpoint-compat")),
            select=_codes(ctx, "--select", value("select")),
            ignore=_codes(ctx, "--ignore", value("ignore")),
        ),
        exclude=_rules(exclude_base, value("exclude")),
        output=value("output", "format"),
        jobs=value("jobs") or _cores(),
        quiet=bool(value("quiet")),
        check=bool(given.get("check")),
        diff=bool(given.get("diff")),
        summary=given.get("summary"),
        force_exclude=bool(given.get("force_exclude")),
    )


def _cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _rules(base: str, patterns: Sequence[str]) -> tuple[Rules, ...]:
    if not patterns:
        return ()

    from amp_migrate.sources.gitignore import Rules

    try:
        return (Rules(base, patterns),)
    except ValueError as error:
        raise click.UsageError(f"--exclude: {error}.") from None


def _codes(ctx: click.Context, option: str, listed: Sequence[str]) -> tuple[str, ...]:
    """Code prefixes, comma separated or repeated. One that selects nothing is a mistake: it would hide everything."""
    prefixes = [prefix for item in listed for prefix in re.split(r"[,\s]+", item) if prefix]
    if not prefixes:
        return ()

    from amp_migrate.registry import matching, normal

    for prefix in prefixes:
        if not matching(prefix):
            raise click.UsageError(f"{option}: no finding code starts with {prefix!r}; see `amp-migrate explain`.", ctx)
    return tuple(normal(prefix) for prefix in prefixes)


def _device(ctx: click.Context, device: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", device):
        raise click.UsageError(f"--device: {device!r} is not a device type such as cuda, cpu or xpu.", ctx)
    return device
