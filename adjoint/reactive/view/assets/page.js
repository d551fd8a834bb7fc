"use strict";
// Draws the graph that the page carries. Layers and their order come with the data; coordinates are
// computed here, since they depend on which groups are folded. Text of the graph reaches the page
// through fillText and textContent only.

const $ = id => document.getElementById(id);
let data = JSON.parse($("data").textContent);
const canvas = $("canvas"), pen = canvas.getContext("2d");
const FONT = getComputedStyle(document.body).fontFamily;
const MONO = 'ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace';
const GAP = 22, ROW_GAP = 30, PAD = 16, HEADER = 26, LEGIBLE = 6.5; // LEGIBLE: pixels of a font
const START_ITEMS = 80, START_SCALE = 0.62; // modules are unfolded at the start while that fits
const view = { x: 0, y: 0, scale: 1 }; // screen = world * scale + (x, y)
let nodes, groups, count, inputs, outputs, home, children; // the graph
let open = new Set();     // unfolded groups
let box;                  // item -> {x, y, w, h, item, group}: what is shown, in world coordinates
let boxes = [], lines = []; // in drawing order
let selected = null, over = null, hits = [], hit = -1, colors = {};
const glow = new Map();   // node -> time of its last run

// ---- the graph ---------------------------------------------------------------------------------

function read(fresh) {
  data = fresh;
  ({ nodes, groups } = data);
  count = nodes.length;
  inputs = nodes.map(() => []); outputs = nodes.map(() => []);
  for (const [u, v, position] of data.edges) { inputs[v].push([u, position]); outputs[u].push(v); }
  for (const list of inputs) list.sort((a, b) => a[1] - b[1]);
  home = new Array(count);
  children = groups.map(() => []);
  groups.forEach((group, g) => {
    if (group.parent >= 0) children[group.parent].push(g);
    group.entryOf = new Map(group.entries); group.exitOf = new Map(group.exits);
    group.ports = new Set([...group.entryOf.values(), ...group.exitOf.values()]);
    for (const item of group.layers.flat()) if (item >= 0 && item < count) home[item] = g;
  });
  for (const node of nodes) node.text = searchable(node);
}

const searchable = node => [
  node.op, node.label, node.kind, node.module, node.shape, node.dtype, node.source,
  node.shape?.replace(/[(), ]+/g, "x").replace(/^x|x$/g, ""), // 64x3
].join("\n").toLowerCase();

const isNode = item => item >= 0 && item < count;
const isGroup = item => item >= count;
const isOpen = item => isGroup(item) && open.has(item - count);
const titleOf = item => isNode(item) ? nodes[item].label || nodes[item].op : groups[item - count].name;

const itemsOf = g => groups[g].layers.flat().filter(item => item >= 0);

function* around(item) { // the groups around an item, the innermost first
  for (let g = isNode(item) ? home[item] : groups[item - count].parent; g >= 0; g = groups[g].parent) yield g;
}

function nameIn(item) { // in its module's box, a parameter goes without the module's name
  const name = titleOf(item), dot = name.lastIndexOf(".");
  return isNode(item) && dot > 0 && groups[home[item]].path.endsWith(name.slice(0, dot)) ? name.slice(dot + 1) : name;
}

function startOpen() { // unfold from the outside in, while it stays easy to survey
  open = new Set([0]);
  let tries = 0;
  for (const list = [...children[0]]; list.length && tries < 40; tries++) {
    const g = list.shift();
    open.add(g);
    place(0);
    const shown = [...open].reduce((sum, o) => sum + itemsOf(o).length, 0);
    if (shown > START_ITEMS || fitScale() < START_SCALE) open.delete(g);
    else list.push(...children[g]);
  }
}

// ---- coordinates -------------------------------------------------------------------------------

const widths = new Map();
function textWidth(text, font) {
  const key = font + text;
  if (!widths.has(key)) { pen.font = font; widths.set(key, pen.measureText(text).width); }
  return widths.get(key);
}

function sizeOf(item) {
  if (item < 0) return [6, 0];
  if (isGroup(item)) {
    const group = groups[item - count];
    const wide = Math.max(textWidth(group.name, `600 13px ${FONT}`), textWidth(clip(group.detail), `11px ${FONT}`));
    return [Math.max(110, wide + 28), 50];
  }
  const node = nodes[item];
  const name = textWidth(clip(nameIn(item)), `600 12px ${FONT}`);
  const wide = Math.max(name, textWidth(clip(node.shape || ""), `10px ${MONO}`));
  return [Math.max(56, wide + 22), node.shape ? 38 : 28];
}

const clip = text => text.length > 42 ? text.slice(0, 41) + "…" : text;

// The positions nearest to `wanted` that keep the items of a row apart: isotonic regression.
function settle(row, wanted, weight, size) {
  const offset = [0];
  for (let i = 1; i < row.length; i++) {
    const gap = row[i] < 0 && row[i - 1] < 0 ? 4 : GAP;
    offset[i] = offset[i - 1] + (size(row[i - 1]) + size(row[i])) / 2 + gap;
  }
  const blocks = []; // [sum of weight * target, weight, items]
  row.forEach((item, i) => {
    let block = [weight[i] * (wanted[i] - offset[i]), weight[i], 1];
    while (blocks.length && blocks.at(-1)[0] / blocks.at(-1)[1] > block[0] / block[1]) {
      const last = blocks.pop();
      block = [block[0] + last[0], block[1] + last[1], block[2] + last[2]];
    }
    blocks.push(block);
  });
  const result = [];
  for (const [sum, total, items] of blocks) for (let i = 0; i < items; i++) result.push(sum / total + offset[result.length]);
  return result;
}

// Sets width, height, the items' places and the lines of an unfolded group, relative to its corner.
function place(g) {
  const group = groups[g];
  for (const c of children[g]) if (open.has(c)) place(c);
  const dim = new Map();
  for (const item of group.layers.flat()) {
    const inner = isOpen(item) ? groups[item - count] : null;
    dim.set(item, inner ? [inner.w, inner.h] : sizeOf(item));
  }
  const wide = item => dim.get(item)[0], rowOf = new Map(), rows = group.layers;
  rows.forEach((row, r) => row.forEach(item => rowOf.set(item, r)));
  const heights = rows.map(row => Math.max(0, ...row.map(item => dim.get(item)[1])));
  const columns = cut(group, rows, heights, rowOf, dim), columnOf = [];
  columns.forEach(([from, to], c) => { for (let r = from; r < to; r++) columnOf[r] = c; });
  const near = new Map(rows.flat().map(item => [item, { above: [], below: [] }]));
  for (const [a, b, sources] of group.segments) {
    if (rowOf.get(b) - rowOf.get(a) !== 1 || columnOf[rowOf.get(a)] !== columnOf[rowOf.get(b)]) continue;
    const shift = (wrapped(a) ? 0 : leave(a, sources[0])) - (wrapped(b) ? 0 : enter(b, sources[0]));
    const weight = a < 0 && b < 0 ? 4 : 1; // long lines are to be straight
    near.get(b).above.push([a, shift, weight]);
    near.get(a).below.push([b, -shift, weight]);
  }
  const x = new Map();
  for (const row of rows) settle(row, row.map(() => 0), row.map(() => 1), wide).forEach((at, i) => x.set(row[i], at));
  for (let sweep = 0; sweep < 7; sweep++) {
    const order = sweep % 2 ? [...rows].reverse() : rows;
    for (const row of order) {
      const weight = [], wanted = row.map((item, i) => {
        const { above, below } = near.get(item);
        const [first, second] = sweep % 2 ? [below, above] : [above, below];
        const used = sweep > 4 ? [...above, ...below] : first.length ? first : second;
        let sum = 0, total = 0;
        for (const [n, shift, w] of used) { sum += w * (x.get(n) + shift); total += w; }
        weight[i] = total || 0.1;
        return total ? sum / total : x.get(item);
      });
      settle(row, wanted, weight, wide).forEach((at, i) => x.set(row[i], at));
    }
  }
  group.columns = Math.max(columns.length, ...children[g].map(c => open.has(c) ? groups[c].columns : 1));
  position(group, rows, heights, columns, columnOf, rowOf, x, dim, g > 0);
}

// Whether its entries and exits are so far apart that neighbours stand better above its middle.
const wrapped = item => isOpen(item) && groups[item - count].columns > 1;

// Where lines leave and enter an item, relative to its middle.
const leave = (item, source) => isOpen(item) ? portShift(groups[item - count], "exitOf", source) : 0;
const enter = (item, source) => isOpen(item) ? portShift(groups[item - count], "entryOf", source) : 0;
const portShift = (group, which, source) => (group.at.get(group[which].get(source))?.x ?? group.w / 2) - group.w / 2;

// Ranges of rows that stand side by side as columns, so that a long graph fits a window.
function cut(group, rows, heights, rowOf, dim) {
  const whole = [[0, rows.length]];
  const tall = heights.reduce((sum, h) => sum + h + ROW_GAP, 0);
  const across = rows.map(row => row.reduce((sum, item) => sum + dim.get(item)[0] + GAP, 0));
  const broad = Math.max(60, ...across);
  if (rows.length < 4 || tall < 2.4 * broad || tall < 700) return whole;
  const columns = Math.max(2, Math.round(Math.sqrt(1.5 * tall / (broad + 40))));
  const crossing = rows.map(() => 0); // lines between row r and the next
  for (const [a, b] of group.segments) if (rowOf.get(b) - rowOf.get(a) === 1) crossing[rowOf.get(a)] += 1;
  const found = [];
  let from = 0, height = 0;
  for (let r = 0; r < rows.length; r++) {
    height += heights[r] + ROW_GAP;
    if (found.length + 1 < columns && height > 0.94 * tall / columns && rows.length - r > 1) {
      let at = r; // of the last few rows the one after which the fewest lines must turn
      for (let s = r; s > Math.max(from + 2, r - 5); s--) if (crossing[s] < crossing[at]) at = s;
      if (crossing[at] > 8) continue;
      found.push([from, at + 1]);
      from = at + 1;
      height = heights.slice(from, r + 1).reduce((sum, h) => sum + h + ROW_GAP, 0);
    }
  }
  found.push([from, rows.length]);
  return found;
}

function position(group, rows, heights, columns, columnOf, rowOf, x, dim, framed) {
  const top = framed ? HEADER + 6 : 0, side = framed ? PAD : 0, at = new Map();
  const rowTop = [], rowBottom = [], turns = columns.map(() => []);
  for (const segment of group.segments) {
    const r = rowOf.get(segment[0]), c = columnOf[r];
    if (rowOf.get(segment[1]) - r === 1 && c !== columnOf[r + 1]) turns[c].push(segment);
  }
  const lanes = turns.map(list => new Set(list.map(([a]) => a)).size);
  const most = Math.max(0, ...lanes);
  let left = side, bottom = 0;
  const gutters = [];
  columns.forEach(([from, to], c) => {
    let low = Infinity, high = -Infinity;
    for (let r = from; r < to; r++) for (const item of rows[r]) {
      low = Math.min(low, x.get(item) - dim.get(item)[0] / 2);
      high = Math.max(high, x.get(item) + dim.get(item)[0] / 2);
    }
    let y = top + (columns.length > 1 ? 14 + 7 * most : 0);
    for (let r = from; r < to; r++) {
      rowTop[r] = y; rowBottom[r] = y + heights[r];
      for (const item of rows[r]) {
        const [w, h] = dim.get(item);
        at.set(item, { x: x.get(item) - low + left, y: y + heights[r] / 2, w, h });
      }
      y += heights[r] + (heights[r] ? ROW_GAP : ROW_GAP / 2) + Math.min(40, 1.5 * Math.max(0, rows[r].length - 4));
    }
    bottom = Math.max(bottom, rowBottom[to - 1] ?? 0);
    left += Math.max(high - low, 0);
    gutters[c] = left + 14;
    if (c + 1 < columns.length) left += 28 + 7 * lanes[c];
  });
  if (columns.length > 1) bottom += 14 + 7 * most;
  group.w = Math.max(left + side, framed ? textWidth(group.name, `600 13px ${FONT}`) + 60 : 0);
  group.h = bottom + (framed ? 12 : 0);
  const slack = (group.w - left - side) / 2;
  for (const each of at.values()) each.x += slack;
  group.at = at;
  group.lines = [];
  const lane = new Map();
  turns.forEach(list => [...new Set(list.map(([a]) => a))].forEach((a, i) => lane.set(a, i)));
  for (const [a, b, sources] of group.segments) {
    const split = isOpen(a) || isOpen(b) ? sources : [sources[0]];
    for (const source of split) {
      const from = at.get(a), to = at.get(b), ra = rowOf.get(a), rb = rowOf.get(b), ca = columnOf[ra];
      const x1 = from.x + leave(a, source), x2 = to.x + enter(b, source);
      const y1 = a < 0 ? (group.ports.has(a) ? 0 : rowTop[ra]) : from.y + from.h / 2;
      const y2 = b < 0 ? (group.ports.has(b) ? group.h : rowTop[rb]) : to.y - to.h / 2;
      const points = [[x1, y1], [x1, rowBottom[ra]]];
      const long = rb - ra > 1, turned = ca !== columnOf[rb] && !long;
      if (turned) { // down, right into the gutter, up, right, down
        const shift = 7 * lane.get(a), gutter = gutters[columnOf[rb] - 1] + shift + slack;
        const under = bottom - 6 - shift, over = top + 6 + shift;
        points.push([x1, under], [gutter, under], [gutter, over], [x2, over]);
      }
      points.push([x2, rowTop[rb]], [x2, y2]);
      group.lines.push({ points, turned, long, a, b, source, sources: split.length > 1 ? [source] : sources });
    }
  }
}

// Everything that is shown, in world coordinates.
function arrange() {
  place(0);
  box = new Map(); boxes = []; lines = [];
  const waiting = [[0, 0, 0, 0]];
  while (waiting.length) {
    const [g, left, top, depth] = waiting.pop();
    const group = groups[g];
    for (const [item, at] of group.at) {
      if (item < 0) continue;
      const { w, h } = at;
      const shown = { item, x: left + at.x - w / 2, y: top + at.y - h / 2, w, h, depth, open: isOpen(item) };
      box.set(item, shown); boxes.push(shown);
      if (shown.open) waiting.push([item - count, shown.x, shown.y, depth + 1]);
    }
    for (const line of group.lines) {
      const points = line.points.map(([x, y]) => [x + left, y + top]);
      const xs = points.map(p => p[0]), ys = points.map(p => p[1]);
      const boundary = [line.source, line.b].some(item => isNode(item) && nodes[item].kind === "boundary");
      const extent = { x: Math.min(...xs), y: Math.min(...ys), right: Math.max(...xs), bottom: Math.max(...ys) };
      lines.push({ ...line, ...extent, points, boundary, group: g });
    }
  }
  boxes.sort((a, b) => b.open - a.open || a.depth - b.depth);
}

// ---- drawing -----------------------------------------------------------------------------------

function readColors() {
  const style = getComputedStyle(document.documentElement);
  const kinds = ["group", "folded", "op", "parameter", "frozen", "input", "constant", "boundary"];
  const others = ["paper", "ink", "muted", "card", "edge", "stale", "run", "accent"];
  for (const name of [...kinds, ...kinds.map(kind => kind + "-line"), ...others])
    colors[name] = style.getPropertyValue(`--${name}`).trim();
}

const hue = text => { let h = 7; for (const c of text) h = (h * 31 + c.codePointAt(0)) % 360; return h; };
let asked = false;
function draw() { if (!asked) { asked = true; requestAnimationFrame(paint); } }

function trace(line) { // vertical, a smooth curve between the rows, vertical
  const p = line.points;
  pen.moveTo(...p[0]);
  if (view.scale < 0.25) for (let i = 1; i < p.length; i++) pen.lineTo(...p[i]);
  else if (line.turned) {
    for (let i = 1; i < p.length - 1; i++) pen.arcTo(...p[i], ...p[i + 1], 6);
    pen.lineTo(...p.at(-1));
  } else {
    const middle = (p[1][1] + p[2][1]) / 2;
    pen.lineTo(...p[1]);
    pen.bezierCurveTo(p[1][0], middle, p[2][0], middle, ...p[2]);
    pen.lineTo(...p[3]);
  }
}

function strokeLines(list, color, width, dash = []) {
  pen.strokeStyle = color; pen.lineWidth = width; pen.setLineDash(dash);
  for (let i = 0; i < list.length; i += 400) {
    pen.beginPath();
    for (const line of list.slice(i, i + 400)) trace(line);
    pen.stroke();
  }
  pen.setLineDash([]);
}

function round(b, radius) { pen.beginPath(); pen.roundRect(b.x, b.y, b.w, b.h, radius); }

// Writes a title as large as it is at this zoom, or larger where the box has room for a legible one.
function write(text, size, least, b, y, s, align = "center") {
  const font = `600 ${size}px ${FONT}`, fitting = size * (b.w - 12) / textWidth(text, font);
  const shown = Math.max(size, LEGIBLE / s, Math.min(least / s, fitting)), grown = shown / size;
  if (shown > b.h * 0.8) return;
  const short = fit(text, font, (b.w - 12) / grown);
  if (short.length < Math.min(3, text.length)) return;
  pen.font = `600 ${shown}px ${FONT}`; pen.textAlign = align;
  pen.fillText(short, align === "center" ? b.x + b.w / 2 : b.x + 10, y);
}

function fit(text, font, most) { // the text, shortened to a width
  if (textWidth(text, font) <= most) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(text.slice(0, middle) + "…", font) <= most) low = middle;
    else high = middle - 1;
  }
  return low ? text.slice(0, low) + "…" : "";
}

function paint(now) {
  asked = false;
  const ratio = devicePixelRatio || 1, W = innerWidth, H = innerHeight, s = view.scale;
  const wide = Math.round(W * ratio), tall = Math.round(H * ratio);
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== tall) canvas.height = tall;
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.fillStyle = colors.paper; pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.setTransform(s * ratio, 0, 0, s * ratio, view.x * ratio, view.y * ratio);
  const left = -view.x / s, top = -view.y / s, right = left + W / s, low = top + H / s;
  const seen = b => b.x < right && b.x + b.w > left && b.y < low && b.y + b.h > top;
  const shown = boxes.filter(seen);
  pen.textBaseline = "middle";
  for (const b of shown) if (b.open) drawOpen(b, s);
  const least = 1.5 / s; // shorter lines could not be seen
  const near = lines.filter(l => l.x < right && l.right > left && l.y < low && l.bottom > top &&
    l.right - l.x + l.bottom - l.y > least);
  const marked = selected === null ? new Set() : pathsOf(selected);
  const thin = Math.max(1.1, 0.6 / s);
  pen.globalAlpha = s < 0.25 ? 0.55 : 0.9;
  strokeLines(near.filter(l => !l.boundary && !l.long), colors.edge, thin);
  strokeLines(near.filter(l => l.boundary && !l.long), colors["boundary-line"], thin, [5, 4]);
  pen.globalAlpha = 1;
  if (s > 0.35) drawStubs(near.filter(l => l.long && !marked.has(l)));
  strokeLines(near.filter(l => marked.has(l)), colors.accent, Math.max(2, 1.4 / s));
  if (s > 0.35) drawHeads(near, marked);
  let glowing = false;
  const found = new Set(hits), plain = new Map(); // boxes too small for details, by kind
  for (const b of shown) {
    if (b.open) continue;
    const kind = isGroup(b.item) ? "folded" : nodes[b.item].kind;
    const marked = found.has(b.item) || b.item === selected || glow.has(b.item) || nodes[b.item]?.state === "stale";
    if (b.h * s >= 6 || marked) glowing = drawBox(b, s, now, found) || glowing;
    else plain.has(kind) ? plain.get(kind).push(b) : plain.set(kind, [b]);
  }
  for (const [kind, list] of plain) {
    pen.beginPath();
    for (const b of list) pen.rect(b.x, b.y, b.w, b.h);
    pen.fillStyle = colors[kind]; pen.fill();
    pen.strokeStyle = colors[kind + "-line"]; pen.lineWidth = 0.5 / s; pen.stroke();
  }
  drawPlates(shown, s, ratio);
  if (glowing) draw();
}

function drawStubs(list) { // the ends of lines that are too long to be drawn: selecting shows them
  pen.strokeStyle = colors.edge; pen.lineWidth = 1.2; pen.setLineDash([2, 2]);
  pen.beginPath();
  for (const { points } of list) {
    const [x1, y1] = points[0], [x2, y2] = points.at(-1);
    pen.moveTo(x1, y1); pen.lineTo(x1 + 9, y1 + 9);
    pen.moveTo(x2 - 14, y2 - 12); pen.lineTo(x2, y2);
  }
  pen.stroke(); pen.setLineDash([]);
}

function drawHeads(list, marked) {
  for (const line of list) {
    if (line.b < 0 || (line.long && !marked.has(line))) continue;
    const [x, y] = line.points.at(-1);
    pen.fillStyle = marked.has(line) ? colors.accent : line.boundary ? colors["boundary-line"] : colors.edge;
    pen.beginPath(); pen.moveTo(x, y); pen.lineTo(x - 3.5, y - 7); pen.lineTo(x + 3.5, y - 7); pen.fill();
  }
}

function drawOpen(b, s) {
  round(b, 8);
  pen.fillStyle = colors.group; pen.globalAlpha = 0.75; pen.fill(); pen.globalAlpha = 1;
  pen.strokeStyle = b.item === selected ? colors.accent : colors["group-line"];
  pen.lineWidth = Math.max(1, 0.6 / s);
  pen.stroke();
  if (13 * s < 8.5) return;
  pen.fillStyle = colors.muted;
  write("− " + groups[b.item - count].name, 13, 0, b, b.y + HEADER / 2 + 2, s, "left");
}

function drawBox(b, s, now, hitSet) {
  const group = isGroup(b.item) ? groups[b.item - count] : null, node = group ? null : nodes[b.item];
  const kind = group ? "folded" : node.kind;
  const corner = ["parameter", "frozen", "constant"].includes(kind) ? b.h / 2 : kind === "input" ? 3 : 7;
  const at = group ? group.ran : glow.get(b.item);
  const heat = at === undefined ? 0 : Math.max(0.25, 1 - (now - at) / 1500);
  const stale = node?.state === "stale";
  const tiny = b.h * s < 5;
  if (group && !tiny) { // a second card behind
    pen.beginPath(); pen.roundRect(b.x + 4, b.y + 4, b.w, b.h, 8);
    pen.fillStyle = colors.folded; pen.fill(); pen.strokeStyle = colors["folded-line"]; pen.lineWidth = 1; pen.stroke();
  }
  if (tiny) { pen.beginPath(); pen.rect(b.x, b.y, b.w, b.h); } else round(b, corner);
  pen.fillStyle = colors[kind]; pen.fill();
  if (heat) { pen.globalAlpha = heat * 0.85; pen.fillStyle = colors.run; pen.fill(); pen.globalAlpha = 1; }
  const chosen = b.item === selected, found = hitSet.has(b.item);
  pen.strokeStyle = chosen || found || b.item === over ? colors.accent : stale ? colors.stale : colors[kind + "-line"];
  pen.lineWidth = Math.max(chosen ? 3 : found || stale ? 2 : 1.2, (chosen || found ? 2 : 0.5) / s);
  pen.setLineDash(kind === "boundary" || node?.state === "never" ? [5, 4] : stale ? [7, 3] : []);
  pen.stroke(); pen.setLineDash([]);
  if (tiny) return heat > 0.25;
  if (kind === "op") { pen.fillStyle = `hsl(${hue(node.op)} 55% 55%)`; pen.fillRect(b.x + 1, b.y + 7, 3, b.h - 14); }
  const second = group ? clip(group.detail) : node.shape, small = second && 10 * s >= LEGIBLE;
  pen.fillStyle = kind === "boundary" ? colors.muted : colors.ink;
  write(clip(nameIn(b.item)), group ? 13 : 12, 8.5, b, b.y + b.h / 2 - (small ? 7 : 0), s);
  if (small) {
    const face = group ? `11px ${FONT}` : `10px ${MONO}`;
    pen.font = face; pen.fillStyle = colors.muted; pen.textAlign = "center";
    pen.fillText(fit(second, face, b.w - 10), b.x + b.w / 2, b.y + b.h / 2 + 9);
  }
  if (stale || node?.state === "released") {
    pen.beginPath(); pen.arc(b.x + b.w - 8, b.y + 8, 3, 0, 7);
    pen.fillStyle = pen.strokeStyle = stale ? colors.stale : colors.muted; pen.lineWidth = 1;
    stale ? pen.fill() : pen.stroke();
  }
  return heat > 0.25;
}

// Names of groups whose own text is too small now, as on a map: the outer and larger ones first,
// none over another.
let plates = [];
function drawPlates(shown, s, ratio) {
  plates = [];
  if (13 * s >= 8.5) return;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.textAlign = "center";
  const font = `600 11px ${FONT}`;
  pen.font = font;
  const wanted = shown.filter(b => b.open && b.w * s > 26 && b.h * s > 30);
  wanted.sort((a, b) => a.depth - b.depth || b.w * b.h - a.w * a.h);
  for (const b of wanted) {
    const full = groups[b.item - count].name, room = b.w * s - 8; // shortened: the number tells more
    const short = "…" + (/(\d+)( of \d+)?$/.exec(full)?.[1] ?? "");
    const name = [full, short].find(text => text !== "…" && textWidth(text, font) <= room);
    if (!name) continue;
    const w = textWidth(name, font) + 8;
    const x = (b.x + b.w / 2) * s + view.x, y = b.y * s + view.y + (HEADER * s < 16 ? 0 : HEADER * s / 2);
    const plate = { x: x - w / 2, y: y - 8, w, h: 16 };
    if (plates.some(p => p.x < plate.x + w && p.x + p.w > plate.x && Math.abs(p.y - plate.y) < 16)) continue;
    plates.push(plate);
    pen.globalAlpha = 0.85; pen.fillStyle = colors.card;
    pen.beginPath(); pen.roundRect(plate.x, plate.y, plate.w, plate.h, 4); pen.fill();
    pen.globalAlpha = 1; pen.fillStyle = colors.ink; pen.fillText(name, x, y + 0.5);
  }
}

// The lines on the ways of a node's inputs and outputs; remembered until something is moved.
let paths = { of: null, lines: null, found: new Set() };
function pathsOf(item) {
  if (paths.of === item && paths.lines === lines) return paths.found;
  const found = new Set();
  paths = { of: item, lines, found };
  if (!isNode(item)) { for (const l of lines) if (l.a === item || l.b === item) found.add(l); return found; }
  const into = new Map();
  for (const line of lines) {
    const key = line.group + "," + line.b;
    if (!into.has(key)) into.set(key, []);
    into.get(key).push(line);
  }
  const back = (source, target) => { // from the target up to the source, through groups and turns
    for (let g = home[target], end = target; g >= 0;) {
      let ends = [end], reached = end;
      while (ends.length) {
        const here = ends.pop();
        for (const line of into.get(g + "," + here) || []) {
          if (!line.sources.includes(source)) continue;
          found.add(line);
          reached = line.a;
          if (line.a < 0) ends.push(line.a);
        }
      }
      if (groups[g].entryOf.get(source) !== reached) return;
      end = count + g; g = groups[g].parent;
    }
  };
  const out = (source, from) => { // to the bottoms of the groups around the source
    for (const g of around(source))
      for (const line of into.get(g + "," + groups[g].exitOf.get(source)) || [])
        if (line.sources.includes(source)) found.add(line);
  };
  for (const [u] of inputs[item]) { back(u, item); out(u); }
  for (const v of outputs[item]) back(item, v);
  out(item);
  return found;
}

// ---- moving about ------------------------------------------------------------------------------

const free = () => innerWidth - ($("panel").hidden ? 0 : 350);
const fitScale = () => Math.min((free() - 50) / groups[0].w, (innerHeight - 110) / groups[0].h, 1.3);

function fitAll() {
  view.scale = fitScale();
  view.x = (free() - groups[0].w * view.scale) / 2;
  view.y = 58 + Math.max(0, (innerHeight - 104 - groups[0].h * view.scale) / 2);
  draw();
}

function zoom(factor, x = innerWidth / 2, y = innerHeight / 2) {
  const scale = Math.min(4, Math.max(0.003, view.scale * factor));
  view.x = x - (x - view.x) * scale / view.scale;
  view.y = y - (y - view.y) * scale / view.scale;
  view.scale = scale;
  draw();
}

function toggle(g) { // the box that was clicked stays where it is
  const before = box.get(count + g);
  open.has(g) ? open.delete(g) : open.add(g);
  arrange();
  const after = box.get(count + g);
  if (before && after) {
    view.x += (before.x + (open.has(g) ? before.w / 2 : 0) - after.x - (open.has(g) ? after.w / 2 : 0)) * view.scale;
    view.y += (before.y - after.y) * view.scale;
  }
  draw();
}

function setOpen(groupsToOpen) { open = new Set([0, ...groupsToOpen]); arrange(); fitAll(); }
const unfoldAll = () => setOpen(groups.keys());

function foldAll() { // one box around everything would say nothing
  const chain = [];
  for (let inside = itemsOf(0); inside.length === 1 && isGroup(inside[0]); inside = itemsOf(chain.at(-1)))
    chain.push(inside[0] - count);
  setOpen(chain);
}

function show(item) { // unfold what is around it, select it, and bring it into view
  const before = open.size;
  for (const g of around(item)) open.add(g);
  if (open.size > before) arrange();
  select(item);
  const b = box.get(item);
  view.scale = Math.max(view.scale, 0.9);
  view.x = free() / 2 - (b.x + b.w / 2) * view.scale;
  view.y = innerHeight / 2 - (b.y + b.h / 2) * view.scale;
  draw();
}

function at(x, y) {
  const wx = (x - view.x) / view.scale, wy = (y - view.y) / view.scale;
  for (let i = boxes.length - 1; i >= 0; i--) {
    const b = boxes[i];
    if (wx >= b.x && wx <= b.x + b.w && wy >= b.y && wy <= b.y + b.h) return b;
  }
  return null;
}

// ---- the panel ---------------------------------------------------------------------------------

function element(tag, text, ...inside) {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  made.append(...inside);
  return made;
}

function number(value) {
  if (typeof value !== "number") return String(value ?? "–");
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  return value.toPrecision(5).replace(/(\.\d*?)0+($|e)/, "$1$2").replace(/\.($|e)/, "$1");
}

function facts(rows) {
  const list = element("dl");
  for (const [name, value] of rows) {
    if (value === undefined || value === null || value === "") continue;
    list.append(element("dt", name), value instanceof Node ? element("dd", "", value) : element("dd", String(value)));
  }
  return list;
}

function histogram(found) {
  const space = "http://www.w3.org/2000/svg", svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 240 84"); svg.setAttribute("preserveAspectRatio", "none");
  const most = Math.max(...found.histogram), w = 240 / found.histogram.length;
  found.histogram.forEach((n, i) => {
    const bar = document.createElementNS(space, "rect"), h = n ? Math.max(1.5, 82 * n / most) : 0;
    const look = { x: i * w + 0.5, y: 84 - h, width: w - 1, height: h, fill: colors.accent };
    for (const [name, value] of Object.entries(look)) bar.setAttribute(name, value);
    svg.append(bar);
  });
  return svg;
}

function links(items) {
  const list = element("ul");
  for (const item of items.slice(0, 60)) {
    const button = element("button", titleOf(item), element("small", " " + (nodes[item].shape || "")));
    button.onclick = () => show(item);
    list.append(element("li", "", button));
  }
  if (items.length > 60) list.append(element("li", `and ${items.length - 60} more`));
  return list;
}

function select(item) {
  selected = item;
  const panel = $("panel");
  panel.hidden = item === null;
  if (item !== null) { fill(panel, item); if (data.live && isNode(item)) refresh(item); }
  draw();
}

function fill(panel, item) {
  const close = element("button", "×");
  close.className = "close";
  close.title = "Close (Esc)";
  close.onclick = () => select(null);
  panel.replaceChildren(close, element("h2", titleOf(item)));
  if (isGroup(item)) fillGroup(panel, item);
  else fillNode(panel, item);
}

function fillGroup(panel, item) {
  const group = groups[item - count];
  const inside = nodes.filter((_, i) => [...around(i)].includes(item - count));
  const time = inside.reduce((sum, node) => sum + (node.time || 0), 0);
  panel.append(facts([
    ["module", group.path.replace(/#\d+/g, "")],
    ["holds", group.detail],
    ["time", time ? number(time) + " µs" : ""],
    ["stale", inside.filter(node => node.state === "stale").length || ""],
  ]));
  const button = element("button", isOpen(item) ? "Fold" : "Unfold");
  button.onclick = () => { toggle(item - count); select(item); };
  panel.append(button);
}

function fillNode(panel, item) {
  const node = nodes[item], state = element("span", node.state); state.className = "state " + node.state;
  panel.append(facts([
    ["op", node.label && node.kind === "op" ? node.op : ""],
    ["kind", node.kind],
    ["module", node.module],
    ["shape", node.shape],
    ["dtype", node.dtype],
    ["state", node.state === "none" ? "" : state],
    ["version", node.version],
    ["runs", node.runs],
    ["time", node.time === undefined ? "" : number(node.time) + " µs"],
    ["gradient norm", node.gradient === undefined ? "" : number(node.gradient)],
  ]));
  if (node.source) panel.append(element("h3", "Source"), element("pre", node.source));
  if (node.statistics) {
    const found = node.statistics, sampled = found.sampled.toLocaleString("en");
    panel.append(element("h3", "Values"), facts([
      ["elements", found.count.toLocaleString("en") + (found.sampled < found.count ? ` (a sample of ${sampled} read)` : "")],
      ["mean", number(found.mean)],
      ["std", number(found.std)],
      ["range", found.low === null ? "" : `${number(found.low)} to ${number(found.high)}`],
      ["NaN", found.nan || ""],
      ["infinite", found.infinite || ""],
    ]));
    if (found.histogram.length) panel.append(histogram(found));
  }
  if (node.attributes) panel.append(element("h3", "Attributes"), facts(Object.entries(node.attributes)));
  if (inputs[item].length) panel.append(element("h3", "Inputs"), links(inputs[item].map(([u]) => u)));
  if (outputs[item].length) panel.append(element("h3", "Outputs"), links([...new Set(outputs[item])]));
}

// ---- search ------------------------------------------------------------------------------------

function search(text) {
  const words = text.toLowerCase().trim().replace(/(\d)\s*[x×]\s*(?=\d)/g, "$1x").split(/\s+/).filter(Boolean);
  hits = words.length ? nodes.map((_, i) => i).filter(i => words.every(word => nodes[i].text.includes(word))) : [];
  hit = -1;
  $("count").textContent = words.length ? `${hits.length} found` : "";
  const list = $("hits");
  list.hidden = !hits.length;
  list.replaceChildren(...hits.slice(0, 40).map((item, i) => {
    const { shape, module } = nodes[item];
    const button = element("button", titleOf(item), element("small", `  ${shape || ""}  ${module || ""}`));
    button.onclick = () => jump(i);
    return element("li", "", button);
  }));
  draw();
}

function jump(to) {
  if (!hits.length) return;
  hit = (to + hits.length) % hits.length;
  $("count").textContent = `${hit + 1} of ${hits.length}`;
  [...$("hits").querySelectorAll("button")].forEach((b, i) => b.classList.toggle("current", i === hit));
  show(hits[hit]);
}

// ---- a running graph ---------------------------------------------------------------------------

let index = new Map(), stream = null;
async function refresh(item) {
  const answer = await fetch(`node/${nodes[item].id}`);
  if (!answer.ok) return;
  Object.assign(nodes[item], await answer.json());
  if (selected === item) fill($("panel"), item);
  draw();
}

async function reload() {
  const answer = await fetch("graph");
  if (!answer.ok) return;
  const chosen = selected !== null && isNode(selected) ? nodes[selected].id : null;
  const opened = new Set([...open].map(g => groups[g].path)), first = !count;
  read(await answer.json());
  index = new Map(nodes.map((node, i) => [node.id, i]));
  glow.clear();
  if (first) startOpen(); else open = new Set([0, ...groups.keys()].filter(g => g === 0 || opened.has(groups[g].path)));
  arrange();
  select(index.get(chosen) ?? null);
  if (first) fitAll();
}

function follow() {
  index = new Map(nodes.map((node, i) => [node.id, i]));
  stream = new EventSource("events");
  stream.onmessage = event => {
    const news = JSON.parse(event.data), now = performance.now();
    if (news.update) { glow.clear(); groups.forEach(group => group.ran = undefined); }
    for (const [id, state, time] of news.nodes || []) {
      const i = index.get(id);
      if (i === undefined) continue;
      nodes[i].state = state;
      if (state !== "fresh") continue;
      if (time !== null) { nodes[i].time = time; glow.set(i, now); for (const g of around(i)) groups[g].ran = now; }
    }
    if (news.text) $("progress").textContent = news.text;
    if (news.changed) reload();
    draw();
  };
  stream.onerror = () => { $("progress").textContent = "the program has ended"; };
}

// ---- stages ------------------------------------------------------------------------------------

const stages = data.stages || [];
function chooseStage(to) {
  if (to < 0 || to >= stages.length) return;
  $("stage").selectedIndex = to;
  const opened = new Set([...open].map(g => groups[g].path));
  select(null);
  search($("query").value = "");
  widths.clear();
  read(stages[to]);
  startOpen();
  groups.forEach((group, g) => { if (opened.has(group.path)) open.add(g); });
  arrange();
  legend();
  fitAll();
}

function offerStages() {
  if (!stages.length) return;
  $("stage").hidden = false;
  $("stage").replaceChildren(...stages.map(stage => element("option", `${stage.title} (${stage.nodes.length})`)));
  $("stage").selectedIndex = stages.length - 1;
  $("stage").onchange = () => { chooseStage($("stage").selectedIndex); $("stage").blur(); };
}

// ---- start -------------------------------------------------------------------------------------

const pointers = new Map();
let moved = 0, spread = 0;
canvas.addEventListener("pointerdown", event => {
  pointers.set(event.pointerId, event);
  canvas.setPointerCapture(event.pointerId);
  moved = 0;
  $("hits").hidden = true;
});
canvas.addEventListener("pointermove", event => {
  const before = pointers.get(event.pointerId);
  if (!before) {
    const item = at(event.clientX, event.clientY)?.item ?? null;
    canvas.classList.toggle("over", item !== null);
    if (over !== item) { over = item; draw(); }
    return;
  }
  const dx = event.clientX - before.clientX, dy = event.clientY - before.clientY;
  pointers.set(event.pointerId, event);
  moved += Math.abs(dx) + Math.abs(dy);
  view.x += dx / pointers.size; view.y += dy / pointers.size;
  if (pointers.size === 2) { // two fingers
    const [p, q] = [...pointers.values()], apart = Math.hypot(p.clientX - q.clientX, p.clientY - q.clientY);
    if (spread) zoom(apart / spread, (p.clientX + q.clientX) / 2, (p.clientY + q.clientY) / 2);
    spread = apart;
  }
  draw();
});
for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, event => {
  pointers.delete(event.pointerId); spread = 0;
  if (name === "pointercancel" || moved > 6) return;
  const b = at(event.clientX, event.clientY);
  if (!b) select(null);
  else {
    const onHeader = (event.clientY - view.y) / view.scale < b.y + HEADER + 2;
    if (isGroup(b.item) && (!b.open || onHeader)) toggle(b.item - count);
    select(b.item);
  }
});
canvas.addEventListener("wheel", event => {
  event.preventDefault();
  const step = event.deltaMode ? 16 : 1;
  if (event.shiftKey) { view.x -= (event.deltaX + event.deltaY) * step; draw(); }
  else zoom(Math.exp(-event.deltaY * step / 400), event.clientX, event.clientY);
}, { passive: false });
const KEYS = {
  ArrowLeft: () => { view.x += 80; draw(); }, ArrowRight: () => { view.x -= 80; draw(); },
  ArrowUp: () => { view.y += 80; draw(); }, ArrowDown: () => { view.y -= 80; draw(); },
  "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), f: fitAll, 0: fitAll, e: unfoldAll, c: foldAll,
  "[": () => chooseStage($("stage").selectedIndex - 1), "]": () => chooseStage($("stage").selectedIndex + 1),
  "/": () => $("query").focus(), Escape: () => select(null), n: () => jump(hit + 1), N: () => jump(hit - 1),
};
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target === $("query") || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});
$("query").addEventListener("input", event => search(event.target.value));
$("query").addEventListener("focus", () => { $("hits").hidden = !hits.length; });
$("query").addEventListener("keydown", event => {
  if (event.key === "Enter") jump(hit + (event.shiftKey ? -1 : 1));
  if (event.key === "Escape") { event.target.value = ""; search(""); canvas.focus(); }
});
$("fit").onclick = fitAll; $("in").onclick = () => zoom(1.25); $("out").onclick = () => zoom(0.8);
$("unfold").onclick = unfoldAll; $("fold").onclick = foldAll;
addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColors(); legend(); draw(); });

function legend() {
  const kinds = new Set(nodes.map(node => node.kind)), states = new Set(nodes.map(node => node.state));
  const entry = (text, fill, line, style = "solid") => {
    const mark = element("i"); mark.style.cssText = `background:${fill};border-color:${line};border-style:${style}`;
    return element("span", "", mark, text);
  };
  const made = ["op", "parameter", "frozen", "input", "constant"].filter(kind => kinds.has(kind))
    .map(kind => entry(kind, colors[kind], colors[kind + "-line"]));
  const ends = new Set(nodes.filter(node => node.kind === "boundary").map(node => node.op === "output" ? "output" : "detached"));
  for (const end of ends) made.push(entry(end, colors.boundary, colors["boundary-line"], "dashed"));
  if (states.has("stale") || data.live) made.push(entry("stale", colors.op, colors.stale, "dashed"));
  if (data.live) made.push(entry("computed just now", colors.run, colors.run));
  if (groups.length > 1) made.push(entry("module, click to unfold", colors.folded, colors["folded-line"]));
  $("legend").replaceChildren(...made, element("span", `${count.toLocaleString("en")} node${count === 1 ? "" : "s"}`));
}

read(data);
readColors();
$("title").textContent = data.title;
offerStages();
startOpen();
arrange();
legend();
fitAll();
if (location.hash === "#unfold") unfoldAll(); // for links and pictures: #unfold, #node=12
const linked = location.hash.startsWith("#node=") ? Number(location.hash.slice(6)) : null;
if (nodes.some(node => node.id === linked)) show(nodes.findIndex(node => node.id === linked));
if (data.live) follow();
