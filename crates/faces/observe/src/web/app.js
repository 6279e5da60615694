// The page: asks for /data.json once a second, keeps five minutes, draws. Nothing comes from anywhere else.

import { bar, draw, legend, svg } from "./plots.js";

const EVERY = 1000, SPAN = 300000, SHOWN = 8;
const $ = (id) => document.getElementById(id);

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
function bytes(n) {
  let i = 0;
  while (n >= 1023.95 && i + 1 < UNITS.length) { n /= 1024; i++; }
  return `${i === 0 || n >= 100 ? Math.round(n) : +n.toFixed(1)} ${UNITS[i]}`;
}
function short(n) {
  for (const [at, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (n >= at * 0.99995) return `${+(n / at).toPrecision(3)} ${unit}`;
  return `${+n.toPrecision(3)}`;
}
const callers = (n) => (n > 0 && n < 0.005 ? "<0.005" : `${+n.toFixed(2)}`);
function time(s) {
  const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
  return d ? `${d} d ${h} h` : h ? `${h} h ${m} min` : m ? `${m} min ${s % 60} s` : `${s} s`;
}

// The colour that a thing had first: in all plots the same, as far as it is free there.
const liked = new Map();

// What was seen of one thing: [ms, value] by series; colours stay while it is shown.
class History {
  constructor() { this.all = new Map(); this.slots = new Map(); this.last = new Map(); }
  // A counter becomes a rate; what is not counted on from the last look begins anew.
  rate(key, at, count, scale) {
    const before = this.last.get(key);
    this.last.set(key, [at, count]);
    if (!before || count < before[1] || at <= before[0]) return NaN;
    return ((count - before[1]) * scale * 1000) / (at - before[0]);
  }
  add(key, at, value) {
    let points = this.all.get(key);
    if (!points) this.all.set(key, (points = []));
    points.push([at, value]);
    while (points.length && points[0][0] < at - SPAN - 2000) points.shift();
  }
  forget(at) {
    for (const [key, points] of this.all) if (points[points.length - 1][0] < at - SPAN) { this.all.delete(key); this.slots.delete(key); liked.delete(key); }
    for (const [key, [seen]] of this.last) if (seen < at - SPAN) this.last.delete(key);
  }
  // The largest of those that are there now and do anything, each with a colour of its own.
  largest(keys) {
    const rank = (key) => Math.max(0, ...(this.all.get(key) || []).map((p) => p[1]).filter(Number.isFinite));
    const top = keys.map((key) => [rank(key), key]).filter((p) => p[0] > 0).sort((a, b) => b[0] - a[0]).slice(0, SHOWN).map((p) => p[1]);
    for (const key of this.slots.keys()) if (!top.includes(key)) this.slots.delete(key);
    for (const key of top) {
      if (this.slots.has(key)) continue;
      const taken = new Set(this.slots.values());
      let slot = liked.get(key) ?? 0;
      if (taken.has(slot)) slot = 0;
      while (taken.has(slot)) slot++;
      if (!liked.has(key)) liked.set(key, slot);
      this.slots.set(key, slot);
    }
    return top.map((key) => ({ key, slot: this.slots.get(key), points: this.all.get(key) || [] }));
  }
  now(key) { const p = this.all.get(key); return p && p.length ? p[p.length - 1][1] : NaN; }
}

const granted = new History(), quota = new History(), blocked = new History(), allocs = new History(), messages = new History();

// A table whose rows stay what they are from look to look, sorted by whichever column was clicked.
class Table {
  constructor(target, columns, by) {
    this.columns = columns; this.by = by; this.down = true; this.rows = new Map(); this.items = [];
    const head = document.createElement("tr");
    this.heads = columns.map((c, i) => {
      const th = document.createElement("th");
      th.textContent = c.title; th.scope = "col"; th.tabIndex = 0;
      if (c.value && !c.text) th.className = "n";
      if (c.bar) th.className = "";
      const sort = () => { this.down = this.by === i ? !this.down : !c.text; this.by = i; this.show(); };
      th.addEventListener("click", sort);
      th.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); sort(); } });
      return th;
    });
    head.append(...this.heads);
    const thead = document.createElement("thead");
    thead.append(head);
    this.body = document.createElement("tbody");
    target.replaceChildren(thead, this.body);
  }
  set(items) { this.items = items; this.show(); }
  show() {
    this.heads.forEach((th, i) => th.setAttribute("aria-sort", i !== this.by ? "none" : this.down ? "descending" : "ascending"));
    const c = this.columns[this.by], sign = this.down ? -1 : 1;
    const order = [...this.items].sort((a, b) => {
      const [x, y] = [c.value(a), c.value(b)];
      return sign * (c.text ? String(x).localeCompare(String(y)) : (x || 0) - (y || 0)) || (a.key < b.key ? -1 : 1);
    });
    const seen = new Set();
    order.forEach((item, at) => {
      seen.add(item.key);
      let row = this.rows.get(item.key);
      if (!row) this.rows.set(item.key, (row = this.row()));
      this.fill(row, item);
      if (this.body.children[at] !== row.tr) this.body.insertBefore(row.tr, this.body.children[at] || null);
    });
    for (const [key, row] of this.rows) if (!seen.has(key)) { row.tr.remove(); this.rows.delete(key); }
    if (this.none) this.none.remove();
    if (!order.length) {
      this.none = document.createElement("tr");
      const td = document.createElement("td");
      td.colSpan = this.columns.length; td.className = "none"; td.textContent = "none";
      this.none.append(td);
      this.body.append(this.none);
    }
  }
  row() {
    const tr = document.createElement("tr");
    const cells = this.columns.map((c) => {
      const td = document.createElement("td");
      td.className = c.bar ? "" : c.text ? "text" : "n";
      if (c.bar) { td.bar = svg("svg", { "aria-hidden": "true" }); td.append(td.bar); }
      tr.append(td);
      return td;
    });
    return { tr, cells };
  }
  fill(row, item) {
    row.tr.classList.toggle("gone", !!item.gone);
    this.columns.forEach((c, i) => {
      const td = row.cells[i];
      if (c.bar) return c.bar(td.bar, item);
      const text = (c.format || String)(c.value(item));
      if (td.textContent !== text) { td.textContent = text; if (c.text) td.title = text; }
      if (c.warn) td.classList.toggle("warn", c.warn(item));
    });
  }
}

const pools = new Table($("pools"), [
  { title: "Pool", text: true, value: (p) => p.name },
  { title: "Writer", text: true, value: (p) => (p.domain || "(gone)") + (p.writer_alive ? "" : " †") },
  { title: "In use, has; may have", bar: (t, p) => bar(t, [["has", p.granted_bytes], ["live", p.live_bytes], ["stranded", p.stranded_bytes]], p.max_bytes, p.quota_bytes), value: (p) => p.granted_bytes / p.max_bytes },
  { title: "In use", value: (p) => p.live_bytes, format: bytes },
  { title: "Has", value: (p) => p.granted_bytes, format: bytes },
  { title: "May have", value: (p) => p.quota_bytes, format: bytes },
  { title: "Max", value: (p) => p.max_bytes, format: bytes },
  { title: "Stranded", value: (p) => p.stranded_bytes, format: bytes, warn: (p) => p.stranded_bytes > 0 },
  { title: "Waiting", value: (p) => p.waiters, warn: (p) => p.waiters > 0 },
  { title: "Blocked", value: (p) => p.blocked, format: (v) => (Number.isFinite(v) ? callers(v) : "–") },
  { title: "Allocs/s", value: (p) => p.rate, format: (v) => (Number.isFinite(v) ? short(v) : "–") },
  { title: "Readers", value: (p) => p.readers },
], 4);
const channels = new Table($("channels"), [
  { title: "Channel", text: true, value: (c) => c.name },
  { title: "From", text: true, value: (c) => c.from || "(closed)" },
  { title: "To", text: true, value: (c) => c.to || "(closed)" },
  { title: "Messages/s", value: (c) => c.rate, format: (v) => (Number.isFinite(v) ? short(v) : "–") },
  { title: "Taken", value: (c) => c.taken, format: short },
], 3);
const holds = new Table($("holds"), [
  { title: "Holder", text: true, value: (h) => h.name },
  { title: "Of pool", text: true, value: (h) => h.poolName },
  { title: "Buffers", value: (h) => h.buffers, format: short },
  { title: "Bytes", value: (h) => h.bytes, format: bytes },
], 3);
const domains = new Table($("domains"), [
  { title: "Domain", text: true, value: (d) => d.name },
  { title: "Process", value: (d) => d.pid },
  { title: "User", value: (d) => d.uid },
  { title: "Data", value: (d) => d.data_bytes, format: bytes },
  { title: "Tables", value: (d) => d.table_bytes, format: bytes },
  { title: "Stranded", value: (d) => d.stranded_bytes, format: bytes, warn: (d) => d.stranded_bytes > 0 },
], 3);
const heaps = new Table($("heaps"), [
  { title: "Heap", text: true, value: (h) => h.name },
  { title: "Owner", text: true, value: (h) => h.domain },
  { title: "Has; may have", bar: (t, h) => bar(t, [["live", h.admitted_bytes]], h.max_bytes, h.quota_bytes), value: (h) => h.admitted_bytes },
  { title: "Has", value: (h) => h.admitted_bytes, format: bytes },
  { title: "May have", value: (h) => h.quota_bytes, format: bytes },
], 3);

function tiles(d) {
  const m = d.manager, waiting = d.pools.reduce((n, p) => n + p.waiters, 0);
  const all = [
    ["Granted", bytes(m.granted_bytes), `of ${bytes(m.total_bytes)}`, [[["live", m.granted_bytes]], m.total_bytes]],
    ["Shared memory", bytes(m.data_bytes + m.stranded_bytes + m.table_bytes + m.ring_bytes + m.control_page_bytes), `${bytes(m.data_bytes)} in buffers`],
    ["Stranded", bytes(m.stranded_bytes), "still mapped"],
    ["Callers waiting", String(waiting), "for memory, now"],
    ["Pools", short(d.counts.pools), `${short(d.counts.heaps)} heaps`],
    ["Channels", short(d.counts.channels), `${short(d.counts.domains)} domains`],
    ["Descriptors", short(m.descriptors), `of ${short(m.max_descriptors)}`, [[["live", m.descriptors]], m.max_descriptors]],
  ];
  $("tiles").replaceChildren(...all.map(([title, value, note, filled]) => {
    const tile = document.createElement("div"), big = document.createElement("b"), what = document.createElement("span"), small = document.createElement("small");
    tile.className = "tile";
    what.textContent = title; big.textContent = value; small.textContent = note;
    tile.append(what, big, small);
    if (filled) { const b = svg("svg", { "aria-hidden": "true" }); bar(b, ...filled); tile.append(b); }
    return tile;
  }));
}

let lastAt = 0, view = null;

function take(d) {
  const at = d.at_ms, names = new Map(d.pools.map((p) => [p.pool, p.name]));
  const count = (p) => `${d.manager.instance}/${p}`;
  for (const p of d.pools) {
    p.key = count(p.pool);
    p.gone = !p.writer_alive;
    p.blocked = blocked.rate(p.key, at, p.blocked_ns, 1e-9);
    p.rate = allocs.rate(p.key, at, p.allocs, 1);
    granted.add(p.key, at, p.granted_bytes);
    quota.add(p.key, at, p.quota_bytes);
    blocked.add(p.key, at, p.blocked);
    allocs.add(p.key, at, p.rate);
  }
  for (const c of d.channels) {
    c.key = count(`${c.sink || c.source}/${c.channel}`);
    c.rate = messages.rate(c.key, at, c.taken, 1);
    messages.add(c.key, at, c.rate);
  }
  for (const h of d.holds) { h.key = `${h.domain}/${h.pool}`; h.poolName = names.get(h.pool) || ""; }
  for (const x of d.domains) { x.key = count(x.domain); x.gone = !x.connected; }
  for (const h of d.heaps) h.key = count(h.heap);
  for (const h of [granted, quota, blocked, allocs, messages]) h.forget(at);
  view = d;
  show();
}

function plot(name, history, items, label, format, at, binary, under) {
  const by = new Map(items.map((i) => [i.key, i]));
  const top = history.largest([...by.keys()]);
  const curves = top.map(({ slot, points }) => ({ slot, points }));
  if (under) for (const { key, slot } of top) curves.unshift({ slot, dashed: true, points: under.all.get(key) || [] });
  // As much time as there is, up to five minutes.
  const first = Math.min(at, ...curves.map((c) => (c.points.length ? c.points[0][0] : at)));
  const span = [40000, 60000, 120000, 180000, 240000].find((s) => s >= at - first) || SPAN;
  draw($(`plot-${name}`), curves, at, span, format, binary);
  const value = (key) => { const v = history.now(key); return Number.isFinite(v) ? format(v) : ""; };
  legend($(`legend-${name}`), top.map(({ key, slot }) => ({ slot, name: label(by.get(key)), value: value(key) })));
}

function show() {
  const d = view;
  if (!d) return;
  const wanted = $("filter").value.toLowerCase();
  const fits = (p) => !wanted || p.name.toLowerCase().includes(wanted) || p.domain.toLowerCase().includes(wanted);
  const shown = d.pools.filter(fits), named = (p) => `${p.name}#${p.pool}${p.domain ? ` (${p.domain})` : ""}`;
  tiles(d);
  plot("memory", granted, shown, named, bytes, d.at_ms, true, quota);
  plot("blocked", blocked, shown, named, callers, d.at_ms);
  plot("allocs", allocs, shown, named, short, d.at_ms);
  plot("messages", messages, d.channels, (c) => `${c.name}#${c.channel} ${c.from} \u2192 ${c.to}`, short, d.at_ms);
  pools.set(shown); channels.set(d.channels); holds.set(d.holds); domains.set(d.domains); heaps.set(d.heaps);
  $("no-pools").hidden = d.pools.length > 0;
  $("pools").parentElement.hidden = $("filter").hidden = d.pools.length === 0;
  for (const [list, all] of Object.entries({ pools: shown, channels: d.channels, holds: d.holds, domains: d.domains, heaps: d.heaps }))
    $(`count-${list}`).textContent = all.length < d.counts[list] ? `${all.length} of ${d.counts[list]}` : `${d.counts[list]}`;
  $("where").textContent = `manager ${d.manager.pid}, up ${time(d.manager.uptime_s)}`;
}

function trouble(text) {
  $("trouble").hidden = !text;
  $("trouble").textContent = text;
}

async function look() {
  try {
    const answer = await fetch("data.json", { cache: "no-store", signal: AbortSignal.timeout(15000) });
    const d = await answer.json();
    if (!answer.ok || d.schema !== 2) throw new Error(`not what this page understands (${answer.status})`);
    if (!d.up) return trouble(`The manager does not answer: ${d.error}`);
    trouble("");
    $("all").hidden = false;
    if (d.at_ms > lastAt) { lastAt = d.at_ms; take(d); }
  } catch (error) {
    trouble(`No answer from where this page came from: ${error.message}`);
  }
}

let paused = false;
$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", paused);
  $("pause").textContent = paused ? "Go on" : "Pause";
});
$("filter").addEventListener("input", show);
addEventListener("resize", show);
for (;;) {
  if (!paused && !document.hidden) await look();
  await new Promise((r) => setTimeout(r, EVERY));
}
