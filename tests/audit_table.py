"""Which audit catches which fault: `python -m tests.audit_table` prints the table.

Takes some minutes: every fault is compiled into the programs of every audit.
"""

import sys

from tqdm import tqdm

from tests.broken_mechanisms import AUDITS, FAULTS, broken


def rows():
    """(fault, {audit: verdict}) of every fault; the first row has none."""
    bar = tqdm(total=(1 + len(FAULTS)) * len(AUDITS), disable=None, leave=False)
    with bar:
        for fault in (None, *FAULTS):
            verdicts = {}
            with broken(fault):
                for audit, run in AUDITS.items():
                    verdicts[audit] = run()
                    bar.update()
            yield fault, verdicts


def main() -> int:
    print(f"| fault | {' | '.join(AUDITS)} |")
    print(f"|---|{'---|' * len(AUDITS)}")
    caught = 0
    for fault, verdicts in rows():
        cells = [each.text if each.is_broken else "" for each in verdicts.values()]
        print(f"| {fault or 'none'} | {' | '.join(cells)} |", flush=True)
        noticed = any(each.is_broken for each in verdicts.values())
        caught += noticed if fault else -noticed * (1 + len(FAULTS))
    print(f"\nCaught: {caught} of {len(FAULTS)}")
    return int(caught != len(FAULTS))


if __name__ == "__main__":
    sys.exit(main())
