"""docs/papers.md out of the records: its tables between marks, and its pictures."""

import tomllib

import verdicts
from machine import ROOT
from svg import picture

PAGE, PICTURES = ROOT / "docs/papers.md", ROOT / "docs/papers"
PAPERS = {"PAR": "PAR", "LTS": "LTS", "PLANER": "PLANER"}


def write():
    """Renews what stands between `<!-- NAME -->` and `<!-- end -->`."""
    page = PAGE.read_text()
    for name, text in {**tables(), "pictures": pictures()}.items():
        head, _, rest = page.partition(f"<!-- {name} -->\n")
        _, end, rest = rest.partition("<!-- end -->")
        assert end, f"{PAGE} has no place for {name}"
        page = f"{head}<!-- {name} -->\n{text}{end}{rest}"
    PAGE.write_text(page)


def tables():
    rows = tomllib.loads((ROOT / "bench/papers/list.toml").read_text())["row"]
    said = {row["id"]: said_of(row) for row in rows}
    out = {}
    for paper in PAPERS:
        lines = ["| | shows | the paper | here | verdict |", "|---|---|---|---|---|"]
        for row in rows:
            if row["id"].startswith(paper + " "):
                here, verdict = said[row["id"]]
                lines.append(f"| {row['id']} | {row['shows']} | {row['paper']} | {here} | {verdict} |")
        out[paper] = "\n".join(lines) + "\n"
    against = [f"- {row['id']}, {row['shows']}. The paper: {row['paper']}. Here: {said[row['id']][0]}. {said[row['id']][1]}." for row in rows if verdicts.DISAGREES in said[row["id"]][1]]
    return {"disagreements": "\n".join(against) + "\n", **out, "kinds": kinds()}


def said_of(row):
    """Our figure and the verdict; `not tried yet` where there is no record."""
    if "cannot" in row:
        return row["cannot"], "-"
    if "later" in row:
        return "not run yet", f"not tried yet: {row['later']}"
    found = verdicts.VERDICTS.get(row["id"], lambda: None)()
    return found or ("not run yet", f"not tried yet: {len(verdicts.OWN.get(row['group'], {}))} records of group `{row['group']}` so far")


def kinds():
    """The thesis by kind: mean and deviation over seeds."""
    found = verdicts.by_seed("thesis", "kinds")
    names = ["local", "content", "context_near", "context_far", "total"]
    lines = ["| attention blocks of 12 | seeds | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for name, seeds in found.items():
        of_kind = [[next(row["bits_per_byte"] for row in one if row["kind"] == kind) for one in seeds] for kind in names]
        lines.append(f"| {name} | {len(seeds)} | " + " | ".join(spread(values) for values in of_kind) + " |")
    return "\n".join(lines) + "\n"


def spread(values):
    deviation = f" ± {verdicts.statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{verdicts.statistics.mean(values):.3f}{deviation}"


def pictures():
    """Those of which there are figures, with the paper's axes."""
    PICTURES.mkdir(exist_ok=True)
    drawn = {}
    thirds = verdicts.attention_found()
    drawn["par-figure-3"] = "PAR Figure 3", picture({f"seed {i}": list(enumerate(one)) for i, one in enumerate(thirds)}, "third of the network", "attention blocks", x_names=["first", "second", "last"])
    found = verdicts.planer_targets()
    drawn["planer-figure-5"] = "PLANER Figure 5", picture({"estimated": sorted((t, e) for t, e, *_ in found), "measured": sorted((t, m) for t, _, m, _ in found)}, "target latency", "share of the baseline", lines=False)
    found = verdicts.SEARCH["topology"]
    sizes = {size: [(int(name.split("d_model ")[1].split(",")[0]) / int(name.split()[-2]), one["perplexity"]) for name, one in found.items() if name.startswith(size)] for size in ("0.4 M", "1.2 M")}
    drawn["lts-figure-7a"] = "LTS Figure 7a", picture({size: sorted(points) for size, points in sizes.items()}, "d_model / layers", "perplexity of a byte")
    tables = verdicts.OWN.get("tables", {}).get("proxies")
    if tables:
        tops = {f"{table}, {proxy.split('_')[0]}": sorted((int(k), value) for k, value in verdicts.audit_of(tables, f"random_{table}_wt103", proxy)["spearman_top"].items()) for table in ("TransXL", "GPT2") for proxy in ("decoder_params", "total_params")}
        drawn["lts-figure-6"] = "LTS Figure 6 b, c", picture(tops, "top k %", "Spearman")
    found = {name: seeds for name, seeds in verdicts.by_seed("thesis", "kinds").items() if name.isdigit()}
    if len(found) > 1:
        lines = {kind: [(int(name), verdicts.statistics.mean(next(row["bits_per_byte"] for row in one if row["kind"] == kind) for one in seeds)) for name, seeds in found.items() if name != "0"] for kind in ("local", "content", "context_near", "context_far")}
        drawn["par-thesis"] = "PAR thesis", picture(lines, "attention blocks of 12", "bits per byte")
    found = verdicts.by_seed("coefficient")
    if found.get("5"):
        places = {"baseline": 2}
        drawn["par-figure-4"] = "PAR Figure 4", picture({f"seed {i}": sorted((places.get(name) or int(name), values[i]) for name, values in found.items() if len(values) > i) for i in range(len(found["5"]))}, "p (2: baseline)", "bits per byte")
    for name, (_, text) in drawn.items():
        (PICTURES / f"{name}.svg").write_text(text)
    return "\n".join(f"![{title}](papers/{name}.svg)" for name, (title, _) in drawn.items()) + "\n"
