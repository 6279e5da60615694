// Curves over time, and bars. Names are untrusted input: they are only ever text.

const NS = "http://www.w3.org/2000/svg";
const LEFT = 64, RIGHT = 8, TOP = 10, BOTTOM = 20;

export function svg(kind, attributes, text) {
  const e = document.createElementNS(NS, kind);
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  return e;
}

// A round number at or above; so that the axis does not move with every sample.
function roof(value, binary) {
  if (!(value > 0)) return binary ? 1048576 : 1;
  if (binary) {
    const unit = 1024 ** Math.floor(Math.log(value) / Math.log(1024));
    for (const step of [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]) if (step * unit >= value) return step * unit;
  }
  const unit = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 2, 4, 5, 8, 10]) if (step * unit >= value * 0.9999) return step * unit;
  return 10 * unit;
}

// Draws `curves` ([{slot, dashed, points: [[ms, value]]}]) for the `span` milliseconds up to `now`.
export function draw(target, curves, now, span, format, binary) {
  const width = target.clientWidth || 600, height = target.clientHeight || 210;
  target.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const begin = now - span;
  let most = 0;
  for (const c of curves) for (const [t, v] of c.points) if (t >= begin && v > most) most = v;
  const top = roof(most, binary);
  const x = (t) => LEFT + ((t - begin) / span) * (width - LEFT - RIGHT);
  const y = (v) => height - BOTTOM - (v / top) * (height - TOP - BOTTOM);
  const parts = [];
  for (let i = 0; i <= 4; i++) {
    const v = (top * i) / 4, at = Math.round(y(v)) + 0.5;
    parts.push(svg("path", { class: "grid", d: `M${LEFT} ${at}H${width - RIGHT}` }));
    parts.push(svg("text", { x: LEFT - 8, y: at + 4, "text-anchor": "end" }, format(v)));
  }
  for (let i = 0; i <= 4; i++) {
    const ago = Math.round((span * (4 - i)) / 4 / 1000);
    const anchor = i === 4 ? "end" : i === 0 ? "start" : "middle";
    const label = ago === 0 ? "now" : ago < 60 ? `${ago} s ago` : `${+(ago / 60).toFixed(1)} min ago`;
    parts.push(svg("text", { x: x(begin + (span * i) / 4), y: height - 5, "text-anchor": anchor }, label));
  }
  for (const c of curves) {
    let d = "", pen = false;
    for (const [t, v] of c.points) {
      if (t < begin) continue;
      if (!Number.isFinite(v)) { pen = false; continue; }
      d += `${pen ? "L" : "M"}${x(t).toFixed(1)} ${y(v).toFixed(1)}`;
      pen = true;
    }
    if (d) parts.push(svg("path", { class: `curve s${c.slot}${c.dashed ? " dashed" : ""}`, d }));
  }
  if (!curves.length) parts.push(svg("text", { class: "note", x: (LEFT + width) / 2, y: y(top * 0.625) + 4, "text-anchor": "middle" }, "nothing so far"));
  target.replaceChildren(...parts);
}

// What belongs to which colour, and where it is now.
export function legend(target, items) {
  target.replaceChildren(...items.map(({ slot, name, value }) => {
    const li = document.createElement("li");
    const key = svg("svg", { viewBox: "0 0 16 8", "aria-hidden": "true" });
    key.append(svg("path", { class: `curve s${slot}`, d: "M0 4H16" }));
    const text = document.createElement("span"), now = document.createElement("span");
    text.className = "name"; text.textContent = name; text.title = name;
    now.className = "value"; now.textContent = value;
    li.append(key, text, now);
    return li;
  }));
}

// A bar of parts ([[class, value]], each from 0) within `most`, with a mark.
export function bar(target, parts, most, mark) {
  const w = (v) => Math.max(0, Math.min(170, (v / Math.max(most, 1)) * 170));
  const all = [svg("rect", { class: "track", width: 170, height: 10, rx: 2 })];
  for (const [kind, v] of parts) if (v > 0) all.push(svg("rect", { class: kind, width: w(v), height: 10, rx: 2 }));
  if (mark !== undefined) all.push(svg("path", { class: "mark", d: `M${Math.max(1, w(mark) - 1)} 0V10` }));
  target.setAttribute("viewBox", "0 0 170 10");
  target.setAttribute("preserveAspectRatio", "none");
  target.replaceChildren(...all);
}
