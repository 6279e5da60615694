#!/usr/bin/env python3
"""Draws what `tranship-bench NAME --json` or `tranship-lab ... --json` says.

    tranship-bench stream --json | scripts/plot.py stream.svg
    tranship-lab experiment cbuf-fig10 --json --frames | scripts/plot.py fig10.svg

The format follows the file's name: svg, png, pdf, or html, a page with the picture and the orderings. Needs matplotlib.
"""

import html
import io
import json
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("plot.py needs matplotlib: pip install matplotlib (or apt-get install python3-matplotlib)")
matplotlib.use("Agg")
from matplotlib import pyplot

KEYS = ["buffers", "receivers", "threads", "cores", "depth", "trust", "placement"]


def series(rows, across):
    """Curves by name: a point for each row."""
    varies = [key for key in KEYS if key != across and len({str(row.get(key)) for row in rows}) > 1]
    curves = {}
    for row in rows:
        words = [row["system"], *(f"{row[key]} {key}" for key in varies if key in row)]
        curves.setdefault(", ".join(words), []).append((row[across], row["median_ns"]))
    return curves


def bench_panels(report):
    """(title, across, unit, curves, logarithmic) for each mode and operation of a bench."""
    rows = report["rows"]
    rows = [row for row in rows if row.get("median_ns")]
    for group in sorted({(row["mode"], row.get("op", "")) for row in rows}):
        of = [row for row in rows if (row["mode"], row.get("op", "")) == group]
        across = next((key for key in ["payload_bytes", "buffers"] if all(key in row for row in of)), None)
        if across:
            yield " ".join(group).strip(), across, "ns", series(of, across), True


def lab_panels(report):
    """Of an experiment or a simulation: quotas and waiting over time; of cbuf-fig7: costs."""
    if report.get("experiment") == "cbuf-fig9":
        yield from server_panels(report)
        return
    if "points" in report:
        curves = {}
        for point in report["points"]:
            curves.setdefault(f"{point['readers']} readers", []).append((point["pages"], point["ns"]))
        yield "an allocation, collections included", "pages", "ns", curves, True
        return
    for run in report["runs"]:
        frames = run.get("frames") or sys.exit("plot.py: no frames: run it with --json --frames")
        name = run.get("name") or run["policy"]
        apps = [app["name"] for app in run.get("programs") or run["peak"]["programs"]]
        for figure in ["per_second", "share"]:
            curves = {app: [(f["at_ms"], f["apps"][i][figure]) for f in frames] for i, app in enumerate(apps)}
            yield f"{name}: {figure}", "ms", figure, curves, False
        pools = range(len(frames[0]["pools"]))
        curves = {f"pool {i}": [(f["at_ms"], f["pools"][i]["quota_bytes"]) for f in frames] for i in pools}
        yield f"{name}: quotas", "ms", "bytes", curves, False


def server_panels(report):
    """Of cbuf-fig9: answers and bytes by the size of an answer, the paper's number of connections."""
    for client in dict.fromkeys(point["client"] for point in report["points"]):
        for figure, unit in [("per_processor_second", "answers/processor s"), ("bytes_per_second", "bytes/s"), ("server_busy", "processors")]:
            curves = {}
            for point in report["points"]:
                if point["client"] == client and point["connections"] == 22:
                    curves.setdefault(point["system"], []).append((point["payload_bytes"], point[figure]))
            yield f"{client}, 22 connections: {figure}", "payload_bytes", unit, curves, figure != "server_busy"


def page(report, svg):
    """One page of HTML: the picture, the machine, and what held."""
    rows = "".join(
        f"<tr><td>{'held' if o['held'] else '<b>did not hold</b>'}<td>{html.escape(o['what'])}<td>{html.escape(o['measured'])}"
        for o in report.get("orderings", [])
    )
    name = html.escape(report.get("experiment") or report.get("bench") or "report")
    machine = html.escape(json.dumps(report.get("machine", {})))
    return (
        f"<!doctype html><meta charset=utf-8><title>{name}</title>"
        "<style>body{font-family:sans-serif;max-width:60em;margin:auto}td{padding:.2em .6em;vertical-align:top}svg{width:100%;height:auto}</style>"
        f"<h1>{name}</h1><p>{machine}</p>{svg[svg.index('<svg'):]}<table>{rows}</table>"
    )


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    report = json.load(sys.stdin)
    panels = list(bench_panels(report) if "bench" in report else lab_panels(report))
    if not panels:
        sys.exit("plot.py: nothing in it varies with a size")
    figure, places = pyplot.subplots(len(panels), figsize=(9, 4 * len(panels)), squeeze=False)
    for (title, across, unit, curves, logarithmic), place in zip(panels, places[:, 0]):
        for name, points in curves.items():
            place.plot(*zip(*sorted(points)), label=name, marker="." if logarithmic else "")
        place.set(title=title, xlabel=across, ylabel=unit)
        if logarithmic:
            place.set(xscale="symlog" if across == "payload_bytes" else "log", yscale="log")
        place.legend(fontsize="x-small")
    figure.tight_layout()
    if sys.argv[1].endswith(".html"):
        picture = io.StringIO()
        figure.savefig(picture, format="svg")
        with open(sys.argv[1], "w") as out:
            out.write(page(report, picture.getvalue()))
    else:
        figure.savefig(sys.argv[1])


if __name__ == "__main__":
    main()
