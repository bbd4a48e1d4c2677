"""One style for all plots: labelled axes, colours that everyone can tell apart, and intervals if there are any.

Figures are matplotlib's own, made without pyplot, so that nothing is global and no window is ever opened. The colours
are those of Okabe and Ito; lines differ in their markers and strokes too, so that a print in grey can be read.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.analysis.estimates import Interval
from weft.errors import missing_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#4D4D4D", "#8C6D1F")
MARKERS = "osD^vPX*"
STROKES = ("-", "--", "-.", ":")
DIVERGING = "PuOr"
"""For differences: orange is worse, violet better, white is no difference."""
RISING = "viridis"

_LOOK: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handlelength": 3.2,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "errorbar.capsize": 2.5,
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "svg.hashsalt": "weft",
    "svg.fonttype": "path",
}


@dataclass(frozen=True, eq=False)
class Plot:
    """A drawn figure: PNG and SVG bytes, and what to say about it."""

    name: str
    caption: str
    png: bytes
    svg: bytes


@contextmanager
def drawing(
    name: str,
    caption: str,
    plots: list[Plot],
    *,
    columns: int = 1,
    rows: int = 1,
    size: tuple[float, float] = (6.4, 4.0),
) -> Iterator[NDArray[Any]]:
    """Give axes (rows, columns) to draw on, each of the given size in inches; the plot is put into `plots`."""
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("matplotlib", "eval", "drawing a plot") from None
    look: Any = _LOOK
    with mpl.rc_context(look):
        figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False)
        yield axes
        shown = [ax for ax in axes.ravel() if ax.axison]
        assert all(ax.get_xlabel() and ax.get_ylabel() for ax in shown), f"{name}: an axis without a label"
        _legend(figure, shown)
        plots.append(Plot(name, caption, _bytes(figure, "png"), _bytes(figure, "svg")))


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Name what the axes show: inside a single plot of few lines, else once for all of them, below."""
    named: dict[str, Any] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            named.setdefault(label, handle)
    if not named:
        return
    if len(axes) == 1 and len(named) <= 3 and not axes[0].patches:  # bars leave no space
        axes[0].legend(loc="best")
        return
    room = figure.get_figwidth() * 14  # characters that fit beside each other, about
    columns = int(room / (max(map(len, named)) + 6))
    figure.legend(
        list(named.values()), list(named), loc="outside lower center", ncols=min(max(columns, 1), len(named), 5)
    )


def _bytes(figure: Figure, form: str) -> bytes:
    out = io.BytesIO()
    # No date: the same numbers give the same file.
    metadata = {"Date": None, "Creator": "weft"} if form == "svg" else {"Software": "weft"}
    figure.savefig(out, format=form, metadata=metadata)
    return out.getvalue()


def style(number: int, *, marked: bool = True) -> dict[str, Any]:
    """Return colour, marker and stroke of the number-th line; without markers the strokes tell lines apart."""
    stroke = number // len(COLOURS) if marked else number
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)] if marked else "",
        "linestyle": STROKES[stroke % len(STROKES)],
    }


def lines(
    axes: Axes,
    x: Sequence[float],
    series: Mapping[str, Sequence[Interval | None]],
    *,
    xlabel: str,
    ylabel: str,
    title: str = "",
    log: bool = False,
    marked: bool = True,
    first: int = 0,
    together: int = 1,
) -> None:
    """Draw one line for each series, its interval as a band; None leaves a gap.

    `first` is the number of the first line's style. So many lines `together` share a colour and differ in stroke.
    """
    for number, (name, estimates) in enumerate(series.items()):
        look = style(first + number // together, marked=marked)
        if together > 1:
            look["linestyle"] = STROKES[number % together]
        known = [(at, e) for at, e in zip(x, estimates, strict=True) if e is not None]
        if not known:
            continue
        at, found = [a for a, _ in known], [e for _, e in known]
        axes.plot(at, [e.value for e in found], label=name if len(series) > 1 else None, **look)
        axes.fill_between(
            at, [e.low for e in found], [e.high for e in found], color=look["color"], alpha=0.15, linewidth=0
        )
    if log:
        axes.set_xscale("log")
        plain_ticks(axes, x)
    finish(axes, xlabel, ylabel, title)


def bars(
    axes: Axes,
    groups: Sequence[str],
    series: Mapping[str, Sequence[Interval | None]],
    *,
    ylabel: str,
    title: str = "",
    xlabel: str = "",
) -> None:
    """Draw groups of bars with their intervals."""
    width = 0.8 / max(len(series), 1)
    at = np.arange(len(groups))
    for number, (name, estimates) in enumerate(series.items()):
        place = at + (number - (len(series) - 1) / 2) * width
        known = [(p, e) for p, e in zip(place, estimates, strict=True) if e is not None]
        values = [e.value for _, e in known]
        # At the edge of the possible values, rounding can put a bound on the wrong side of the mean.
        reach = [[max(e.value - e.low, 0) for _, e in known], [max(e.high - e.value, 0) for _, e in known]]
        axes.bar(
            [p for p, _ in known],
            values,
            width * 0.92,
            yerr=reach,
            label=name if len(series) > 1 else None,
            color=COLOURS[number % len(COLOURS)],
            hatch=("", "//", "..", "xx", "\\\\", "--")[number % 6],
            edgecolor="white",
            linewidth=0.5,
            error_kw={"elinewidth": 1.1, "ecolor": "#333333"},
        )
    axes.set_xticks(at, groups)
    if sum(len(group) for group in groups) > 60:
        axes.tick_params(axis="x", labelrotation=35)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")
    axes.grid(axis="x", visible=False)
    finish(axes, xlabel, ylabel, title)


def heatmap(
    axes: Axes,
    values: NDArray[np.floating[Any]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    xlabel: str,
    ylabel: str,
    title: str,
    unit: str,
    difference: bool = False,
    form: str = "{:.2f}",
) -> None:
    """Draw a matrix with its numbers; a difference is white where there is none. NaN is left blank."""
    known = np.abs(values[np.isfinite(values)])
    if difference:
        reach = max(float(known.max(initial=0.0)), 1e-9)
        image = axes.imshow(values, cmap=DIVERGING, vmin=-reach, vmax=reach, aspect="auto")
    else:
        image = axes.imshow(values, cmap=RISING, aspect="auto")
    for r in range(len(rows)):
        for c in range(len(columns)):
            if np.isfinite(values[r, c]):
                red, green, blue, _ = image.cmap(image.norm(values[r, c]))
                dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
                colour = "white" if dark else "black"
                axes.text(c, r, form.format(values[r, c]), ha="center", va="center", fontsize=8.5, color=colour)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure = axes.get_figure()
    assert figure is not None
    figure.colorbar(image, ax=axes, label=unit, fraction=0.045, pad=0.02)
    finish(axes, xlabel, ylabel, title)


def finish(axes: Axes, xlabel: str, ylabel: str, title: str = "") -> None:
    """Label the axes."""
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    if title:
        axes.set_title(title)


def plain_ticks(axes: Axes, x: Sequence[float]) -> None:
    """Write the values of a logarithmic axis in full, as many as there is room for."""
    from matplotlib.ticker import NullLocator

    some: Sequence[float] = list(x)
    if len(some) > 8:
        some = [v for v in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 4000) if min(x) <= v <= max(x)]
    axes.set_xticks(some, [f"{v:,.0f}" if v >= 1 else f"{v:g}" for v in some])
    axes.xaxis.set_minor_locator(NullLocator())
