"""The verdicts of all machines: printed one by one, and as a table."""

import datetime
import re
import sys
from pathlib import Path

from machines import BACKENDS, MACHINES

BEGIN, END = "<!-- kernels: begin -->\n", "<!-- kernels: end -->"


class Report:
    """What was found."""

    def __init__(self):
        # (machine, case, verdict); the kernel of a machine by its name; the first listing of a case.
        self.rows, self.kernels, self.listings = [], {}, {}

    def add(self, machine, case, verdict, note=""):
        self.rows.append((machine, case, verdict))
        self.say(machine, f"{verdict:<12} {case}{note}")

    @staticmethod
    def say(machine, *lines):
        """Prints what a machine says: several run at a time."""
        sys.stdout.write("".join(f"{machine.name:>12}  {line}\n" for line in lines))

    def add_listing(self, machine, case, digest):
        """All machines must list the same rules."""
        first, expected = self.listings.setdefault(case, (machine.name, digest))
        if digest != expected:
            self.add(machine, case, "FAIL", f": this kernel lists other rules than that of machine {first}")

    def failed(self):
        return any(verdict == "FAIL" for _, _, verdict in self.rows)

    def counts(self):
        verdicts = [verdict for _, _, verdict in self.rows]
        counted = [(verdicts.count(word), word) for word in ("PASS", "FAIL", "NOT CHECKED")]
        return ", ".join(f"{number} {word}" for number, word in counted if number)

    def of_backend(self, machine, backend):
        """What a machine does with a backend, for the table."""
        mine = [(case, verdict) for other, case, verdict in self.rows if other is machine]
        if any(verdict == "NOT CHECKED" for _, verdict in mine):
            return "not checked"
        cases = [(case, verdict) for case, verdict in mine if case.startswith(f"{backend}:")]
        if any(verdict == "FAIL" for _, verdict in cases):
            return "**fails**"
        refused = [case for case, _ in cases if ": exit " in case]
        if refused:
            return "refused: " + refused[0].rpartition(", ")[2].removeprefix("native nftables: ")
        return "yes" if cases else "–"

    def table(self):
        lines = ["| Kernel | Architecture | iptables-nft | iptables-legacy | native nftables |", "|---|---|---|---|---|"]
        tested = {machine.name for machine, _, _ in self.rows}
        for machine in (machine for machine in MACHINES if machine.name in tested):
            release = re.match(r"(\d+\.\d+)?", self.kernels.get(machine.name, "")).group() or machine.name
            what = f"{release}, {machine.described}"
            cells = [self.of_backend(machine, backend) for backend in BACKENDS]
            lines.append(f"| {what} | {machine.arch} | {' | '.join(cells)} |")
        return "\n".join(lines)

    def write(self, page):
        """Puts the table between the markers of a page."""
        text = Path(page).read_text()
        head, _, rest = text.partition(BEGIN)
        _, end, tail = rest.partition(END)
        if not end:
            raise SystemExit(f"kernels: {page} lacks the lines {BEGIN.strip()} and {END}")
        today = datetime.date.today().isoformat()
        Path(page).write_text(f"{head}{BEGIN}\n{self.table()}\n\nLast run of `make kernels`: {today}.\n\n{END}{tail}")
