"""Fits the one number of the proxy `bottleneck_params` on tables of trained models, and judges it by leaving one table
out at a time.

    python3 bench/proxies/fit.py lts_trained_models.csv

The proxy is ln P - c * D / E: decoder parameters P, width of the model D, width of the embedding E. Per table, -ln of
the validation perplexity is centred and scaled to a deviation of 1 (tables differ in text and vocabulary), and so are
ln P and D / E centred; all tables weigh the same; least squares gives a ln P + b D / E, and c = -b / a, for a factor
does not change ranks. Only the standard library is needed.
"""

import csv
import math
import sys


def read(path):
    tables = {}
    for row in csv.DictReader(open(path, newline="")):
        width = int(row["d_model"])
        embed = int(row["d_embed"])
        tables.setdefault(row["table"], []).append({
            "params": float(row["params_nonembedding"]),
            "ratio": width / (embed if embed > 0 else width),
            "width": width,
            "quality": -float(row["valid_ppl"]),
        })
    return tables


def mean(values):
    return sum(values) / len(values)


def fit(tables):
    aa = ab = bb = ay = by = 0.0
    for rows in tables:
        a = [math.log(row["params"]) for row in rows]
        b = [row["ratio"] for row in rows]
        y = [-math.log(-row["quality"]) for row in rows]
        a, b, y = ([x - mean(values) for x in values] for values in (a, b, y))
        deviation = math.sqrt(mean([x * x for x in y]))
        for a, b, y in zip(a, b, y):
            y /= deviation
            aa, ab, bb = aa + a * a / len(rows), ab + a * b / len(rows), bb + b * b / len(rows)
            ay, by = ay + a * y / len(rows), by + b * y / len(rows)
    determinant = aa * bb - ab * ab
    if determinant == 0:  # no table has an embedding of another width
        return 0.0
    return -(aa * by - ab * ay) / (bb * ay - ab * by)


def score(c):
    return lambda row: math.log(row["params"]) - c * row["ratio"]


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    result = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for i in order[first:last + 1]:
            result[i] = (first + last) / 2 + 1
        first = last + 1
    return result


def spearman(a, b):
    a, b = ranks(a), ranks(b)
    ma, mb = mean(a), mean(b)
    ab = sum((x - ma) * (y - mb) for x, y in zip(a, b))
    norm = math.sqrt(sum((x - ma) ** 2 for x in a) * sum((y - mb) ** 2 for y in b))
    return ab / norm if norm else float("nan")


def of(rows, proxy):
    return spearman([proxy(row) for row in rows], [row["quality"] for row in rows])


def best(rows, percent, key):
    count = math.floor(len(rows) * percent / 100 + 0.5)
    return sorted(rows, key=key, reverse=True)[:count]


def judge(rows, proxy):
    top = lambda percent: best(rows, percent, lambda row: row["quality"])
    common = lambda percent: sum(row in best(rows, percent, proxy) for row in top(percent)) / len(top(percent))
    widths = [[row for row in rows if row["width"] == width] for width in sorted({row["width"] for row in rows})]
    widths = [group for group in widths if len(group) >= 5]
    within = sum(len(group) * of(group, proxy) for group in widths) / sum(map(len, widths))
    by_size = sorted(rows, key=lambda row: row["params"])
    bins = [by_size[i * len(rows) // 4:(i + 1) * len(rows) // 4] for i in range(4)]
    return [of(rows, proxy), of(top(10), proxy), of(top(20), proxy), common(10), common(20), within,
            mean([of(group, proxy) for group in bins])]


def main():
    tables = read(sys.argv[1])
    print(f"{'':44}c       all  top 10  top 20   CR 10   CR 20  within width  size bins")
    for name, rows in tables.items():
        others = [other for other_name, other in tables.items() if other_name != name]
        c = fit(others)
        print(name)
        for label, value in [("decoder_params", 0.0), ("bottleneck_params without this table", c)]:
            found = judge(rows, score(value))
            numbers = "  ".join(f"{x:6.3f}" for x in found[:5]) + f"  {found[5]:12.3f}  {found[6]:9.3f}"
            print(f"  {label:38}{value:6.3f}  {numbers}")
    print(f"\nfrom all tables: c = {fit(list(tables.values())):.4f}")


main()
