"""The plots of the HTML page: matplotlib figures as inline SVG whose text takes the page's colour, light or dark."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amp_migrate.verify.report.ranges import calm

INK = "#010203"  # stands for the page's text colour
BLUE, ORANGE, GREY = "#3b82c4", "#e07b39", "#8a8f98"  # readable on white and on near-black
NONE = 1e-9  # where an error of nothing is drawn on a logarithmic axis


def svg(draw: Callable[[Any], None], label: str) -> str:
    """One figure; `draw` gets the axes. Raises ImportError without matplotlib."""
    import matplotlib  # type: ignore[import-not-found, unused-ignore]

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": label,
        "font.family": "sans-serif",
        "font.size": 10,
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
    }
    with matplotlib.rc_context(settings):
        from matplotlib.backends.backend_svg import (  # type: ignore[import-not-found, unused-ignore]
            FigureCanvasSVG,
        )
        from matplotlib.figure import Figure  # type: ignore[import-not-found, unused-ignore]
        from matplotlib.ticker import MaxNLocator  # type: ignore[import-not-found, unused-ignore]

        figure = Figure(figsize=(7, 2.8), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        draw(axes)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # there is no half step
        stream = io.StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r'<svg ([^>]*?)width="[^"]*" height="[^"]*"|<svg ([^>]*?)height="[^"]*"', r"<svg \1\2", text, count=1)
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    prefix = re.sub(r"\W", "", label)  # ids of several figures share one page
    text = re.sub(r'(id="|href="#|url\(#)', lambda m: m[1] + prefix, text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


@dataclass(frozen=True)
class Plot:
    """A figure, and the keys to it: label and look (classes of the page's style), which the page sets as text."""

    svg: str
    keys: tuple[tuple[str, str], ...]


SIDES = (("original", "blue"), ("migrated", "orange dashed"))


def losses(name: str, curves: dict[str, Any], factor: float) -> Plot:
    """Both curves, and the band as wide as the verdict allows."""

    def draw(axes: Any) -> None:
        original, migrated, band = (_finite(curves[key]) for key in ("original", "migrated", "band"))
        steps = range(len(original))
        low = [o - factor * b for o, b in zip(original, band, strict=False)]
        high = [o + factor * b for o, b in zip(original, band, strict=False)]
        steps = range(len(low))
        axes.fill_between(steps, low, high, color=GREY, alpha=0.35, linewidth=0)
        for edge in (low, high):  # a band thinner than a line is still seen
            axes.plot(steps, edge, color=GREY, linewidth=3.4, alpha=0.55, solid_capstyle="round")
        axes.plot(range(len(original)), original, color=BLUE, linewidth=1.8)
        axes.plot(range(len(migrated)), migrated, color=ORANGE, linewidth=1.4, linestyle=(0, (4, 2)))
        axes.set(xlabel="step", ylabel=name)
        _calm(axes, [*original, *migrated, *low, *high])

    return Plot(svg(draw, name), (*SIDES, ("allowed by rounding", "grey area")))


def scales(data: dict[str, Any]) -> Plot:
    """The loss scale of both programs, skipped steps as ticks."""
    skips = any(data[side]["skipped"] for side, _ in SIDES)

    def draw(axes: Any) -> None:
        from matplotlib.ticker import FixedLocator, FuncFormatter  # type: ignore[import-not-found, unused-ignore]

        seen: list[float] = []
        for (side, _), colour, style in zip(SIDES, (BLUE, ORANGE), ("-", (0, (4, 2))), strict=True):
            points = [(i, s) for i, s in enumerate(data[side]["scale"]) if s is not None]
            if points:
                axes.step(*zip(*points, strict=True), where="post", color=colour, linestyle=style, linewidth=1.8)
                seen += [s for _, s in points]
            for step in data[side]["skipped"]:
                axes.axvline(step, color=colour, linewidth=0.8, alpha=0.6, linestyle=style)
        axes.set_yscale("log", base=2)
        axes.set(xlabel="step", ylabel="loss scale")
        finite = [s for s in seen if s > 0 and math.isfinite(s)] or [1.0]
        low, high = math.floor(math.log2(min(finite))) - 1, math.ceil(math.log2(max(finite))) + 1
        axes.set_ylim(2.0**low, 2.0**high)
        every = -(-(high - low) // 8)
        axes.yaxis.set_major_locator(FixedLocator([2.0**n for n in range(low, high + 1, every)]))
        axes.yaxis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{value:g}" if value < 1e6 else f"2^{math.log2(value):g}")
        )
        axes.yaxis.set_minor_locator(FixedLocator([]))

    return Plot(svg(draw, "loss scale"), (*SIDES, *([("vertical: a skipped step", "grey")] if skips else [])))


def lockstep(steps: list[dict[str, Any]]) -> Plot:
    """Median relative error of the gradient at each compared step, with that of rounding noise alone."""

    def draw(axes: Any) -> None:
        for key, colour, mark in (("noise_median_error", GREY, "o"), ("median_error", ORANGE, "o")):
            points = [(s["step"], max(s[key], NONE)) for s in steps if s[key] is not None]
            if points:
                axes.plot(*zip(*points, strict=True), mark, color=colour, markersize=5)
        axes.set_yscale("log")
        axes.set(xlabel="step", ylabel=f"gradient error ({NONE:.0e}: none)")
        highest = max((s[key] for s in steps for key in ("noise_median_error", "median_error") if s[key]), default=NONE)
        axes.set_ylim(NONE / 3, max(1e-2, 3 * highest))

    return Plot(
        svg(draw, "lockstep gradient error"),
        (("migrated", "orange dot"), ("original under rounding noise", "grey dot")),
    )


def norms(data: dict[str, Any]) -> Plot:
    """The gradient norm each optimizer saw."""

    def draw(axes: Any) -> None:
        for (side, _), colour, style in zip(SIDES, (BLUE, ORANGE), ("-", (0, (4, 2))), strict=True):
            axes.plot(_finite(data[side]), color=colour, linestyle=style, linewidth=1.6)
        axes.set(xlabel="step", ylabel="gradient norm")
        _calm(axes, [*_finite(data["original"]), *_finite(data["migrated"])])

    return Plot(svg(draw, "gradient norm"), SIDES)


def _calm(axes: Any, values: list[float]) -> None:
    """Limits under which a constant looks like one, and tick labels that say the numbers themselves."""
    limits = calm(values)
    if limits is not None:
        margin = 0.05 * (limits[1] - limits[0])
        axes.set_ylim(limits[0] - margin, limits[1] + margin)
    axes.ticklabel_format(axis="y", useOffset=False)


def _finite(values: list[Any]) -> list[float]:
    return [float("nan") if v is None else float(v) for v in values]
