"""A page that follows the batches of a sweep; an open browser reloads it."""

import html
import pathlib
from collections.abc import Sequence

from dpsparfl_jax.runner.progress import in_words
from dpsparfl_jax.storage import write_whole

from .status import Status

PAGE = "progress.html"
_RELOAD_S = 5
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --done: #0072B2 }
body { font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; max-width: 1000px;
  margin: 0 auto; padding: 0 16px 32px } h1 { font-size: 22px }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100% }
th, td { padding: 4px 10px; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums }
th:first-child, td:first-child, td:last-child, th:last-child { text-align: left }
progress { width: 100%; height: 18px; accent-color: var(--done) }
td progress { width: 120px; height: 10px }
"""
_RULES = "default-src 'none'; style-src 'unsafe-inline'"  # nothing is fetched


def write(
    out: pathlib.Path,
    sizes: Sequence[int],
    states: Sequence[Status],
    seconds: float,
    *,
    over: bool,
) -> None:
    """Writes the page: how far each batch is, and when all of them may be done."""
    total, done = sum(sizes), sum(one.runs for one in states)
    reload = "" if over else f'<meta http-equiv="refresh" content="{_RELOAD_S}">'
    lines = "".join(
        _line(number, size, one)
        for number, (size, one) in enumerate(zip(sizes, states, strict=True), 1)
    )
    write_whole(
        out / PAGE,
        f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{done:.1f} of {total} runs</title>
<meta http-equiv="Content-Security-Policy" content="{_RULES}">{reload}
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{_STYLE}</style></head><body>
<h1>{done:.1f} of {total} runs</h1>
<progress max="{total}" value="{done:.3f}"></progress>
<p>{_sentence(done, total, states, seconds, over=over)}</p>
<div class="wide"><table><thead><tr><th>batch</th><th>runs</th><th>done</th>
<th></th><th>rounds</th><th>accuracy</th><th>begun</th><th>state</th></tr></thead>
<tbody>{lines}</tbody></table></div></body></html>
""",
    )


def _line(number: int, size: int, one: Status) -> str:
    accuracy = "" if one.accuracy is None else f"{one.accuracy:.1%}"
    where = f" ({one.where})" if one.where else ""
    cells = (
        str(number),
        str(size),
        f"{one.runs:.1f}",
        f'<progress max="{size}" value="{one.runs:.3f}"></progress>',
        f"{one.rounds:,}",
        accuracy,
        f"{one.attempt}x" if one.attempt else "",
        html.escape(f"{one.state}{where}"),
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"


def _sentence(
    done: float, total: int, states: Sequence[Status], seconds: float, *, over: bool
) -> str:
    elapsed = in_words(seconds)
    if over:
        return f"Ended after {elapsed}."
    working = sum(one.state in ("starting", "training") for one in states)
    left = ""
    if done:
        rest = in_words(seconds * (total - done) / done)
        left = f" About {rest} are left, if the other runs are like these."
    return f"{working} batches at work for {elapsed} so far.{left}"
