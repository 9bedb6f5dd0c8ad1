"""The plots of the HTML page: matplotlib figures as inline SVG whose text takes the page's colour, light or dark."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

INK = "#010203"  # stands for the page's text colour
BLUE, ORANGE, GREY = "#3b82c4", "#e07b39", "#8a8f98"  # readable on white and on near-black


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

        figure = Figure(figsize=(7, 2.8), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        draw(axes)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, ncols=3, fontsize=9)
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


def losses(name: str, curves: dict[str, Any], factor: float) -> str:
    """Both curves, and the band as wide as the verdict allows."""

    def draw(axes: Any) -> None:
        original, migrated, band = (_finite(curves[key]) for key in ("original", "migrated", "band"))
        steps = range(len(original))
        low = [o - factor * b for o, b in zip(original, band, strict=True)]
        high = [o + factor * b for o, b in zip(original, band, strict=True)]
        axes.fill_between(steps, low, high, color=GREY, alpha=0.3, linewidth=0, label="allowed by rounding")
        axes.plot(steps, original, color=BLUE, linewidth=2.2, label="original")
        axes.plot(range(len(migrated)), migrated, color=ORANGE, linewidth=1.2, linestyle="--", label="migrated")
        axes.set(xlabel="step", ylabel=name)

    return svg(draw, name)


def scales(data: dict[str, Any]) -> str:
    """The loss scale of both programs, skipped steps as ticks."""

    def draw(axes: Any) -> None:
        for side, colour, style in (("original", BLUE, "-"), ("migrated", ORANGE, "--")):
            points = [(i, s) for i, s in enumerate(data[side]["scale"]) if s is not None]
            axes.step(
                *zip(*points, strict=True), where="post", color=colour, linestyle=style, label=side
            ) if points else None
            for step in data[side]["skipped"]:
                axes.axvline(step, color=colour, linewidth=0.8, alpha=0.6, linestyle=style)
        axes.set_yscale("log", base=2)
        axes.set(xlabel="step", ylabel="loss scale")

    return svg(draw, "loss scale")


def lockstep(steps: list[dict[str, Any]]) -> str:
    """Median relative error of the gradient at each compared step, with that of rounding noise alone."""

    def draw(axes: Any) -> None:
        for key, colour, mark, label in (
            ("noise_median_error", GREY, "o", "original under rounding noise"),
            ("median_error", ORANGE, "x", "migrated"),
        ):
            points = [(s["step"], max(s[key], 1e-9)) for s in steps if s[key] is not None]
            if points:
                axes.plot(*zip(*points, strict=True), mark, color=colour, markersize=5, label=label)
        axes.set_yscale("log")
        axes.set(xlabel="step", ylabel="gradient error (1e-9: none)")

    return svg(draw, "lockstep gradient error")


def norms(data: dict[str, Any]) -> str:
    """The gradient norm each optimizer saw."""

    def draw(axes: Any) -> None:
        for side, colour, style in (("original", BLUE, "-"), ("migrated", ORANGE, "--")):
            axes.plot(_finite(data[side]), color=colour, linestyle=style, label=side)
        axes.set(xlabel="step", ylabel="gradient norm")

    return svg(draw, "gradient norm")


def _finite(values: list[Any]) -> list[float]:
    return [float("nan") if v is None else float(v) for v in values]
