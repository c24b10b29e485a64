"""A page that an open browser follows while it is written anew, until it says no more.

It reloads itself, so it works from a file and without a network. Whoever has clicked
something has a minute to look before the page is drawn anew.
"""

_BEGIN, _END = '<script id="following">', "</script>"
_SCRIPT = """
let touched = -1e9;
for (const kind of ["pointerdown", "keydown", "wheel"])
  addEventListener(kind, () => { touched = performance.now(); });
setInterval(() => {
  if (!document.hidden && performance.now() - touched > 60000) location.reload();
}, MILLISECONDS);
"""


def reloading(page: str, every_s: int) -> str:
    """The same page, which reloads itself every so many seconds; never if 0."""
    if not every_s:
        return page
    script = _SCRIPT.replace("MILLISECONDS", str(1000 * every_s))
    return page.replace("</head>", f"{_BEGIN}{script}{_END}</head>", 1)


def still(page: str) -> str:
    """A page of `reloading` as it was before."""
    before, begins, rest = page.partition(_BEGIN)
    return before + rest.partition(_END)[2] if begins else page


def empty_page(every_s: int) -> str:
    """What there is to see before the first round."""
    page = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Recorded runs</title></head>
<body><p>No round is recorded yet.</p></body></html>
"""
    return reloading(page, every_s)
