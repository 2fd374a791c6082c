"""LTS's Algorithm 1 in plain Python on a toy space, with the random numbers that lathe draws. See README.md.

Writes, into crates/lathe-search/tests/it/fixtures/lts_search, every architecture that is evaluated, in order: with its
iteration, what it costs, and whether it keeps the bound; once with parents from the frontier, once from the lower hull.

The random numbers are those of the Rust crates rand_chacha 0.10 and rand 0.10, written a second time: ChaCha with 8
rounds, seeded from a number by PCG32; integers below a limit by Canon's method; chances as 64-bit thresholds. So each
draw of the Rust search meets the same draw here.
"""

import json
import pathlib
from fractions import Fraction

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "crates/lathe-search/tests/it/fixtures/lts_search"
WORD, LONG = 2**32, 2**64
SEED, POPULATION, ITERATIONS, MUTATION, DRAWS = 7, 20, 8, 0.3, 20
WIDTHS, DEPTHS, OPTIONS = [8, 16, 24, 32], [2, 3, 4, 5], ["s1", "s2", "f8", "f16", "f40"]
MOST_MS = 1.75


class Random:
    def __init__(self, seed):
        self.key = []
        for _ in range(8):
            seed = (seed * 0x5851F42D4C957F2D + 0xA17654E46FBE17F3) % LONG
            word, turn = ((seed >> 18 ^ seed) >> 27) % WORD, seed >> 59
            self.key.append((word >> turn | word << (32 - turn)) % WORD)
        self.block, self.words = 0, []

    def u32(self):
        if not self.words:
            self.words = chacha8(self.key, self.block)
            self.block += 1
        return self.words.pop(0)

    def u64(self):
        return self.u32() + self.u32() * WORD

    def below(self, limit):
        product = self.u32() * limit
        number, rest = divmod(product, WORD)
        if rest > WORD - limit and rest + self.u32() * limit // WORD >= WORD:
            number += 1
        return number

    def chance(self, probability):
        return self.u64() < int(probability * 2.0**64)

    def unit(self):
        return (self.u64() >> 11) * 2.0**-53


def chacha8(key, block):
    start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *key, block % WORD, block // WORD, 0, 0]
    x = list(start)

    def quarter(a, b, c, d):
        for to, by, other, turn in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)]:
            x[to] = (x[to] + x[by]) % WORD
            x[other] ^= x[to]
            x[other] = (x[other] << turn | x[other] >> (32 - turn)) % WORD

    for _ in range(4):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return [(a + b) % WORD for a, b in zip(x, start)]


def choose(rng, wish):
    """An architecture, gene by gene: the width, the depth, and a block for each place. `wish(gene)`, which takes what is
    looked up in a parent and gives a value or None, is granted; without a wish, any value is as likely."""

    def gene(values, of):
        wished = wish(of)
        return values[rng.below(len(values))] if wished is None else wished

    width = gene(WIDTHS, lambda parent: parent[0])
    depth = gene(DEPTHS, lambda parent: len(parent[1]))
    blocks = [gene(OPTIONS, lambda parent: parent[1][i] if i < len(parent[1]) else None) for i in range(depth)]
    return width, tuple(blocks)


def sample(rng):
    return choose(rng, lambda of: None)


def mutate(rng, parent):
    def wish(of):
        old = of(parent)
        return None if old is None or rng.chance(MUTATION) else old

    return choose(rng, wish)


def cross(rng, mother, father):
    def wish(of):
        first, second = of(mother), of(father)
        if not rng.chance(0.5):
            first, second = second, first
        return second if first is None else first

    return choose(rng, wish)


def decoder_params(width, blocks):
    """As docs/costs.md counts a gpt2: LayerNorms are in it."""
    total = 2 * width
    for block in blocks:
        inner = int(block[1:])
        total += 2 * width
        total += 4 * width * width + 4 * width if block[0] == "s" else 2 * width * inner + inner + width
    return total


def latency(width, blocks):
    """Some milliseconds, exact in binary."""
    return 0.25 + sum(int(b[1:]) * 0.25 + width / 128 if b[0] == "s" else int(b[1:]) / 64 for b in blocks)


def memory(width, blocks):
    return float(64 * width + 16 * max(int(block[1:]) for block in blocks))


def frontier(points):
    """What no other beats in every objective, as the authors' code has it."""
    return [i for i, p in enumerate(points) if not any(all(a < b for a, b in zip(q, p)) for q in points)]


def hull(points):
    """Of two objectives, what is the best for some weights w and 1 - w; dominated and equal points are none."""
    kept = []
    for i, p in enumerate(points):
        better = [q for q in points if q != p and all(a <= b for a, b in zip(q, p))]
        if better or p in points[:i]:
            continue
        low, high = Fraction(0), Fraction(1)
        for q in points:
            # w (q0 - p0) + (1 - w) (q1 - p1) >= 0
            slope, offset = Fraction(q[0]) - Fraction(p[0]) - Fraction(q[1]) + Fraction(p[1]), Fraction(q[1]) - Fraction(p[1])
            if slope > 0:
                low = max(low, -offset / slope)
            elif slope < 0:
                high = min(high, -offset / slope)
            elif offset < 0:
                low, high = Fraction(1), Fraction(0)
        if low <= high:
            kept.append(i)
    return kept


def search(objectives, of_hull):
    rng = Random(SEED)
    steps, evaluated, used, seen = [], [], {}, set()

    def draw_until(wanted, draw, iteration):
        found = 0
        for _ in range(DRAWS * wanted):
            if found == wanted:
                break
            one = draw()
            if one in seen:
                continue
            seen.add(one)
            ms, peak = latency(*one), memory(*one)
            kept = ms <= MOST_MS
            steps.append({"iteration": iteration, "d_model": one[0], "layers": " ".join(one[1]), "latency_ms": ms,
                          "peak_bytes": peak, "decoder_params": decoder_params(*one), "kept": kept})  # fmt: skip
            if kept:
                found += 1
                born.append((one, [-decoder_params(*one), ms, peak][:objectives]))

    born = []
    draw_until(POPULATION, lambda: sample(rng), 0)
    for iteration in range(1, ITERATIONS + 1):
        evaluated += born
        born = []
        points = [costs for _, costs in evaluated]
        best = [evaluated[i][0] for i in (hull(points) if of_hull else frontier(points))]
        counts = [used.get(one, 0) for one in best]
        spread = max(counts) - min(counts) or 1
        weights = [1 / (1 + (count - min(counts)) / spread) for count in counts]
        parents = []
        for _ in range(POPULATION // 5):
            total = 0.0
            for weight in weights:
                total += weight
            left, at = rng.unit() * total, 0
            while at < len(weights) - 1 and left - weights[at] >= 0:
                left -= weights[at]
                at += 1
            parents.append(best[at])
        for parent in parents:
            used[parent] = used.get(parent, 0) + 1

        def mutant():
            return mutate(rng, parents[rng.below(len(parents))])

        def crossover():
            first = rng.below(len(parents))
            second = rng.below(len(parents) - 1)
            return cross(rng, parents[first], parents[second + (second >= first)])

        draw_until(2 * POPULATION // 5, mutant, iteration)
        draw_until(2 * POPULATION // 5, crossover, iteration)
    return steps


FOLDER.mkdir(parents=True, exist_ok=True)
for name, objectives, of_hull in [("frontier", 3, False), ("hull", 2, True)]:
    steps = search(objectives, of_hull)
    document = {"seed": SEED, "population": POPULATION, "iterations": ITERATIONS, "most_ms": MOST_MS,
                "objectives": objectives, "hull": of_hull}  # fmt: skip
    lines = ",\n  ".join(json.dumps(step) for step in steps)
    text = json.dumps(document)[:-1] + ',\n "steps": [\n  ' + lines + "\n ]}\n"
    (FOLDER / f"{name}.json").write_text(text)
    kept = sum(step["kept"] for step in steps)
    print(f"{name}: {len(steps)} evaluated, {kept} within the bound")
