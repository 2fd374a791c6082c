"""Results as lines of a file, each written as it comes; what is recorded is not run again."""

import json


def record(path, groups, only):
    """Runs the groups that are asked for: functions that give pairs of a name and what gives its result.

    `GROUP:NAME` asks for those of a group whose names begin so.
    """
    lines = path.read_text().splitlines() if path.exists() else []
    done = {(line["group"], line["name"]) for line in map(json.loads, lines)}
    for asked in only or groups:
        group, _, begins = asked.partition(":")
        for name, run in groups[group]():
            if (group, name) in done or not name.startswith(begins):
                continue
            print(group, name, flush=True)
            result = run()
            with path.open("a") as file:
                file.write(json.dumps({"group": group, "name": name, "result": result}) + "\n")
