"""The tables and figures of the three papers (list.toml), tried at our scale; docs/papers.md is made of the records.

    python3 bench/papers/run.py --only base large               # latencies: on quiet cores
    python3 bench/papers/run.py --enwik8 enwik8.gz --threads 1 --only coefficient
    python3 bench/papers/run.py --tables lts_trained_models.csv --only tables
    python3 bench/papers/run.py --table                         # the tables and pictures of docs/papers.md

Records are lines of bench/runs/papers.jsonl, each written as it comes; what is recorded is not run again, and whatever
was killed goes on in its folder under --work.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import machine  # noqa: E402
import page  # noqa: E402
import published  # noqa: E402
import timed  # noqa: E402
import trained  # noqa: E402
from record import record  # noqa: E402

GROUPS = {**published.GROUPS, **timed.GROUPS, **trained.GROUPS}
args = machine.flags(__doc__, list(GROUPS))
here = machine.Machine(args)
if args.table:
    page.write()
    sys.exit()
path = here.work / "papers.jsonl" if args.quick else machine.ROOT / "bench/runs/papers.jsonl"
groups = {name: lambda group=group: group(here) for name, group in GROUPS.items()}
record(path, groups, args.only)
