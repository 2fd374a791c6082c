// Drawing of the pages: scatter plots with hover, blocks in colour. No library, no network.
"use strict";
const NS = "http://www.w3.org/2000/svg";
function el(name, attributes, parent) {
  const node = document.createElementNS(NS, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (parent) parent.appendChild(node);
  return node;
}
function ticks(low, high, count) {
  const raw = (high - low) / count, power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 2.5, 5, 10].map(f => f * power).find(s => s >= raw) || raw;
  const out = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-9; t += step) out.push(+t.toPrecision(12));
  return out;
}
// A few round numbers a decade; evenly spaced ones within less than that.
function logTicks(low, high) {
  if (high / low < 4) return ticks(low, high, 5);
  const out = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) for (const f of [1, 2, 5]) out.push(+(f * 10 ** power).toPrecision(3));
  return out.filter(t => t >= low && t <= high);
}
// Expands "(sf)x2 f64" and the like into a list of blocks.
function expand(text) {
  let at = 0;
  function group(nested) {
    let out = [];
    while (at < text.length) {
      const c = text[at];
      if (c === " ") { at++; continue; }
      if (c === ")") { if (nested) return out; at++; continue; }
      if (c === "(") {
        at++;
        const inner = group(true);
        at++;
        const times = /^x(\d+)/.exec(text.slice(at));
        if (times) at += times[0].length;
        for (let i = 0; i < (times ? +times[1] : 1); i++) out = out.concat(inner);
        continue;
      }
      const word = /^(-|[a-z_]+\{[^}]*\}|[a-z](?:[a-z]?\d+)*)/.exec(text.slice(at));
      if (!word) { at++; continue; }
      out.push(word[0]);
      at += word[0].length;
    }
    return out;
  }
  return group(false);
}
function stack(layers, labels) {
  const kind = b => ({ s: "s", f: "f", m: "m" })[b[0]] || (b.startsWith("low_rank") ? "f" : "x");
  const label = b => labels ? b : (b === "-" ? "" : b[0]);
  const blocks = expand(layers), many = !labels && blocks.length > 24;
  return `<span class="stack${many ? " many" : ""}">` + blocks.map(b => `<i class="k-${kind(b)}" title="${b}">${many ? "" : label(b)}</i>`).join("") + "</span>";
}
const tip = document.getElementById("tip");
function hover(node, html, focus) {
  const show = () => { tip.innerHTML = html(); tip.style.display = "block"; };
  const hide = () => { tip.style.display = "none"; };
  const place = (x, y) => {
    const wide = tip.offsetWidth, high = tip.offsetHeight;
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - wide - 8)) + "px";
    tip.style.top = Math.max(4, y + 18 + high > innerHeight ? y - high - 12 : y + 18) + "px";
  };
  node.addEventListener("pointerenter", show);
  node.addEventListener("pointermove", e => place(e.clientX, e.clientY));
  node.addEventListener("pointerleave", hide);
  if (!focus) return;
  node.setAttribute("tabindex", 0);
  node.addEventListener("focus", () => { const box = node.getBoundingClientRect(); show(); place(box.right, box.bottom); });
  node.addEventListener("blur", hide);
}
const shapes = {
  dot: (g, x, y, r, fill) => el("circle", { cx: x, cy: y, r: r, fill: fill }, g),
  diamond: (g, x, y, r, fill) => el("path", { d: `M${x} ${y - r * 1.4}L${x + r * 1.4} ${y}L${x} ${y + r * 1.4}L${x - r * 1.4} ${y}Z`, fill: fill }, g),
  ring: (g, x, y, r, fill) => el("circle", { cx: x, cy: y, r: r, fill: "var(--ground)", stroke: fill, "stroke-width": 2.5 }, g),
  triangle: (g, x, y, r, fill) => el("path", { d: `M${x} ${y - r * 1.2}L${x + r * 1.1} ${y + r * .8}L${x - r * 1.1} ${y + r * .8}Z`, fill: fill }, g),
};
// Where the name of a point goes: beside it where no other name and no point is, else above it.
function naming(points, [left, right, top, bottom]) {
  const taken = points.map(([x, y]) => [x - 6, x + 6, y - 6, y + 6]);
  return (x, y, text) => {
    const wide = 6.4 * text.length;
    const places = [[10, 4], [-10 - wide, 4], [-wide / 2, -11], [-wide / 2, 19], [10, -9], [10, 17], [-10 - wide, -9], [-10 - wide, 17]];
    const free = places.map(([dx, dy]) => [x + dx, x + dx + wide, y + dy - 9, y + dy + 3]).find(([a, b, c, d]) => a >= left && b <= right && c >= top && d <= bottom &&
      taken.every(t => b < t[0] || a > t[1] || d < t[2] || c > t[3]));
    if (!free) return [Math.max(left, Math.min(x - wide / 2, right - wide)), y - 11];
    taken.push(free);
    return [free[0], free[3] - 3];
  };
}
// series: [{points: [{x, y, html?, label?}], colour, radius, shape, line?, name}]; points with a label can be focused.
function plot(parent, { xLabel, yLabel, series, zeroY, logX, logY }) {
  // On a phone the drawing is smaller, and not its letters; names of series would not fit there.
  const narrow = parent.clientWidth && parent.clientWidth < 420 && !series.some(s => s.name);
  const W = narrow ? 330 : 460, H = narrow ? 270 : 320, L = 52, R = 12, T = 12, B = 40;
  const svg = el("svg", { viewBox: `0 0 ${W} ${H}`, role: "img" });
  parent.appendChild(svg);
  const all = series.flatMap(s => s.points).filter(p => isFinite(p.x) && isFinite(p.y));
  if (!all.length) return svg;
  const fx = v => logX ? Math.log10(v) : v, fy = v => logY ? Math.log10(v) : v;
  let x0 = Math.min(...all.map(p => fx(p.x))), x1 = Math.max(...all.map(p => fx(p.x)));
  let y0 = zeroY ? Math.min(0, ...all.map(p => p.y)) : Math.min(...all.map(p => fy(p.y))), y1 = Math.max(...all.map(p => fy(p.y)));
  if (x1 === x0) { x1 += 1; x0 -= 1; } if (y1 === y0) { y1 += 1; y0 -= 1; }
  const px = (x1 - x0) * .04, py = (y1 - y0) * .05; x0 -= px; x1 += px; y1 += py; if (!zeroY) y0 -= py;
  const X = v => L + (fx(v) - x0) / (x1 - x0) * (W - L - R), Y = v => H - B - (fy(v) - y0) / (y1 - y0) * (H - T - B);
  for (const t of logY ? logTicks(10 ** y0, 10 ** y1) : ticks(y0, y1, 5)) {
    el("line", { x1: L, x2: W - R, y1: Y(t), y2: Y(t), class: "axis" }, svg);
    el("text", { x: L - 6, y: Y(t) + 4, "text-anchor": "end" }, svg).textContent = +t.toPrecision(4);
  }
  const xt = logX ? [...new Set(all.map(p => p.x))].sort((a, b) => a - b) : ticks(x0, x1, narrow ? 4 : 6);
  for (const t of xt) el("text", { x: X(t), y: H - B + 16, "text-anchor": "middle" }, svg).textContent = +t.toPrecision(4);
  el("text", { x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle" }, svg).textContent = xLabel;
  el("text", { x: 10, y: (T + H - B) / 2, transform: `rotate(-90 10 ${(T + H - B) / 2})`, "text-anchor": "middle" }, svg).textContent = yLabel;
  const named = series.flatMap(s => s.points).filter(p => p.label);
  const name = naming(named.map(p => [X(p.x), Y(p.y)]), [L, W, 0, H - B]);
  for (const s of series) {
    if (s.line && s.points.length > 1)
      el("path", { d: s.points.map((p, i) => (i ? "L" : "M") + X(p.x) + " " + Y(p.y)).join(""), fill: "none", stroke: s.colour, "stroke-width": s.width || 1.8, "stroke-dasharray": s.dash || "", opacity: s.opacity || 1 }, svg);
    if (s.radius)
      for (const p of s.points) {
        const node = shapes[s.shape || "dot"](svg, X(p.x), Y(p.y), s.radius, s.colour);
        node.setAttribute("opacity", s.opacity || 1);
        if (p.html) hover(node, () => typeof p.html === "function" ? p.html() : p.html, p.label);
        const place = p.label && name(X(p.x), Y(p.y), p.label);
        if (place) el("text", { x: place[0], y: place[1], class: p.strong ? "strong" : "" }, svg).textContent = p.label;
      }
  }
  let lx = L + 8;
  for (const s of series.filter(s => s.name)) {
    el("rect", { x: lx, y: T, width: 9, height: 9, rx: 2, fill: s.colour }, svg);
    const t = el("text", { x: lx + 13, y: T + 8.5 }, svg);
    t.textContent = s.name;
    lx += 26 + 6.6 * s.name.length;
  }
  return svg;
}
