"""Which audit catches which fault: `python -m tests.audit_table` prints the table.

Takes some minutes: every fault is compiled into the programs of every audit. Faults
that are named as arguments are the only rows.
"""

import sys

from tqdm import tqdm

from tests.broken_mechanisms import AUDITS, FAULTS, broken


def rows(faults):
    """(fault, {audit: verdict}) of every fault; None is the product as it is."""
    bar = tqdm(total=len(faults) * len(AUDITS), disable=None, leave=False)
    with bar:
        for fault in faults:
            verdicts = {}
            with broken(fault):
                for audit, run in AUDITS.items():
                    verdicts[audit] = run()
                    bar.update()
            yield fault, verdicts


def main(named) -> int:
    faults = named or (None, *FAULTS)
    print(f"| fault | {' | '.join(AUDITS)} |")
    print(f"|---|{'---|' * len(AUDITS)}")
    right = 0
    for fault, verdicts in rows(faults):
        cells = [each.text if each.is_broken else "" for each in verdicts.values()]
        print(f"| {fault or 'none'} | {' | '.join(cells)} |", flush=True)
        right += any(each.is_broken for each in verdicts.values()) == bool(fault)
    print(f"\nRight: {right} of {len(faults)}")
    return int(right != len(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
