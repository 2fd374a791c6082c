"""Small pictures of points and lines with labelled axes, as SVG text."""

COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#555555"]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 460, 280, 56, 44, 14, 130


def picture(series, x, y, lines=True, x_names=None):
    """`series`: points (x, y) by name; `x_names` stand at 0, 1, 2, ... in place of numbers."""
    points = [point for of_name in series.values() for point in of_name]
    ranges = [spread([point[axis] for point in points]) for axis in (0, 1)]

    def at(point):
        shares = [(value - low) / (high - low) for value, (low, high) in zip(point, ranges)]
        return LEFT + shares[0] * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - shares[1] * (HEIGHT - BOTTOM - TOP)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    (left, bottom), (right, top) = at([low for low, _ in ranges]), at([high for _, high in ranges])
    out.append(f'<path d="M{left:.1f} {top:.1f}V{bottom:.1f}H{right:.1f}" fill="none" stroke="black"/>')
    ticks = list(enumerate(x_names)) if x_names else [(tick, f"{tick:.4g}") for tick in steps(*ranges[0])]
    for value, name in ticks:
        px, _ = at((value, ranges[1][0]))
        out.append(f'<text x="{px:.1f}" y="{bottom + 15:.1f}" text-anchor="middle">{name}</text>')
    for value in steps(*ranges[1]):
        _, py = at((ranges[0][0], value))
        out.append(f'<text x="{left - 5:.1f}" y="{py + 4:.1f}" text-anchor="end">{value:.4g}</text>')
    out.append(f'<text x="{(left + right) / 2:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{x}</text>')
    out.append(f'<text transform="translate(12 {(top + bottom) / 2:.1f}) rotate(-90)" text-anchor="middle">{y}</text>')
    for i, (name, of_name) in enumerate(series.items()):
        colour, places = COLOURS[i % len(COLOURS)], [at(point) for point in of_name]
        if lines:
            out.append(f'<polyline points="{" ".join(f"{px:.1f},{py:.1f}" for px, py in places)}" fill="none" stroke="{colour}"/>')
        out += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>' for px, py in places]
        out.append(f'<text x="{right + 12:.1f}" y="{TOP + 12 + 15 * i}" fill="{colour}">{name}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def spread(values):
    """Least and greatest, with room around them."""
    room = 0.06 * (max(values) - min(values) or 1)
    return min(values) - room, max(values) + room


def steps(low, high):
    """Round numbers between the two."""
    size = 10 ** len(str(int(1e9 * (high - low) / 5))) / 1e10
    size = next(size * factor for factor in (1, 2, 5, 10) if (high - low) / (size * factor) <= 6)
    first = -(-low // size)
    return [round((first + i) * size, 9) for i in range(int((high - first * size) / size + 1e-9) + 1)]
