// The timelines of a page: canvases that draw the block `timeline-data` and the tiles that it names. What is in them is
// text of somebody's history, and never becomes markup: it is drawn, or set as textContent.
(() => {
  "use strict";
  const holder = document.getElementById("timeline-data");
  const data = JSON.parse(holder.textContent);
  const BINS = 256, FAN = 8, LEVELS = 8;                     // as results/tiles.py has them
  const MOST_BARS = 5000, MOST_TILES = 200, WIDEST_CELL = 6, MIN_BAR = 3, LETTER = 6.2, STRIP = 13, AXIS = 18;
  const RED = "#b00020", INK = "#20272e", QUIET = "#67727d", LINE = "#e6eaee";
  const VIEWS = ["process", "key", "node"];

  const barOf = ([op, begin, lasted, outcome, what, process, node, keys, rows]) => ({
    op, begin, end: lasted === null ? Infinity : begin + lasted, outcome, what,
    rows: { process: [rows[0]], key: rows[2], node: [rows[1]] },
    names: { process: [`process ${process}`], key: keys, node: [node] },
  });
  const own = data.bars.map(barOf);
  const marked = new Set(data.found.flatMap((found) => found.ops));
  const seconds = (ns, digits = 3) => (ns / 1e9).toFixed(digits) + "\u00a0s";
  const lasted = (ns) => !isFinite(ns) ? "never completed"
    : ns >= 1e9 ? (ns / 1e9).toPrecision(3) + " s" : ns >= 1e6 ? (ns / 1e6).toPrecision(3) + " ms" : (ns / 1e3).toPrecision(3) + " µs";

  // ---- tiles ----
  const tiles = new Map(), asked = new Set(), widgets = [], log = { lines: data.logs.lines, loaded: new Map() };
  if (data.density) tiles.set("r", data.density);
  window.assayTile = (name, tile) => {
    if (tile.bars) tile.bars = tile.bars.map(barOf);
    if (tile.lines) log.loaded.set(name, tile.lines); else tiles.set(name, tile);
    asked.delete(name);
    for (const old of tiles.keys()) { if (tiles.size > MOST_TILES && old.length > 2 && old !== name) tiles.delete(old); }
    for (const widget of widgets) widget.later();
  };
  const ask = (name) => {
    if (!data.tiles || asked.has(name)) return;
    asked.add(name);
    const script = document.createElement("script");
    script.setAttribute("src", data.tiles + name + ".js");
    script.onload = () => script.remove();
    document.head.append(script);
  };

  // ---- density: an image of a pixel a cell, made once of each tile and view ----
  const colorOf = (share) => [[47, 111, 171], [178, 58, 107]].reduce((a, b) => a.map((x, i) => x + (b[i] - x) * share));
  const images = new WeakMap();
  const imageOf = (tile, view, rows) => {
    const made = images.get(tile) ?? {};
    images.set(tile, made);
    if (made[view]) return made[view];
    const levels = Uint8Array.from(atob(tile.density[view]), (letter) => letter.charCodeAt(0));
    const number = (level) => level ? 2 ** ((level - 1) / LEVELS) : 0;
    const most = levels.subarray(0, rows * BINS).reduce((a, b) => Math.max(a, b), 1);
    const image = new OffscreenCanvas(BINS, rows), context = image.getContext("2d");
    const pixels = context.createImageData(BINS, rows);
    for (let cell = 0; cell < rows * BINS; cell++) {
      const all = levels[cell], bad = levels[rows * BINS + cell];
      if (!all) continue;
      pixels.data.set([...colorOf(Math.min(number(bad) / number(all), 1)), 40 + 215 * Math.sqrt(number(all) / number(most))], cell * 4);
    }
    context.putImageData(pixels, 0, 0);
    return (made[view] = { image, number, levels });
  };

  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);
  const tell = (event, words) => {
    tip.hidden = !words;
    tip.textContent = words ?? "";
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - 340)) + "px";
    tip.style.top = event.clientY + 16 + "px";
  };

  const widget = (figure) => {
    const canvas = figure.querySelector("canvas"), context = canvas.getContext("2d");
    const cursor = figure.querySelector(".cursor"), panel = figure.querySelector(".cursor-logs");
    const isWhole = "whole" in figure.dataset;
    const whole = isWhole ? [data.begin, data.end] : [Number(figure.dataset.from), Number(figure.dataset.to)];
    const chosen = isWhole ? null : new Set(figure.dataset.ops.split(" ").map(Number));
    const bars = chosen ? own.filter((bar) => chosen.has(bar.op)) : own;
    let [from, to] = whole, view = "process", left = 110, width = 0, rowHeight = 20, top = 0, boxes = [], arrows = [];
    let labels = [], rowsOf = null, held = null, waits = false;

    // Rows: of the whole run as its tiles have them, of a group of anomalies by the names that are in it.
    const arrange = () => {
      if (isWhole) { labels = data.labels[view]; rowsOf = (bar) => bar.rows[view]; return; }
      const order = new Map();
      for (const bar of bars) for (const name of bar.names[view]) if (!order.has(name)) order.set(name, order.size);
      labels = [...order.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
      const place = new Map(labels.map((name, row) => [name, row]));
      rowsOf = (bar) => bar.names[view].map((name) => place.get(name));
    };

    const x = (ns) => left + (ns - from) / (to - from) * width;
    const strips = () => {
      const kinds = [...new Set(data.faults.filter(([, , , spans]) => spans.some(inView)).map(([kind]) => kind))];
      const groups = [...new Set(data.leaders.filter(([, , , a, , b]) => inView([a, b])).map(([name]) => name))];
      return { kinds, groups };
    };
    const inView = ([a, b]) => b >= from && a <= to;

    const text = (words, at, y, color = QUIET, align = "left", room = Infinity) => {
      if (words.length * LETTER > room) return;
      context.fillStyle = color;
      context.textAlign = align;
      context.fillText(words, at, y);
    };
    const clipped = (draw) => {
      context.save();
      context.beginPath();
      context.rect(left, 0, width, canvas.clientHeight);
      context.clip();
      draw();
      context.restore();
    };

    // What there is to draw between `from` and `to`: bars, or tiles that say how many there are.
    const collect = () => {
      const found = { bars: new Map(), cells: [] };
      const take = (each) => { for (const bar of each) if (bar.begin <= to && bar.end >= from) found.bars.set(bar.op, bar); };
      const walk = (name, tile, a, b, above) => {
        if (b < from || a > to) return;
        if (!tile) { ask(name); found.cells.push([above, a, b]); return; }
        if (tile.bars) { take(tile.bars); return; }
        if ((b - a) / BINS / (to - from) * width <= WIDEST_CELL || !data.tiles) { found.cells.push([tile, a, b]); return; }
        for (let part = 0; part < FAN; part++) {
          const child = name + part, c = a + (b - a) * part / FAN, d = a + (b - a) * (part + 1) / FAN;
          walk(child, tiles.get(child), c, d, tile);
        }
      };
      if (isWhole && data.density) walk("r", data.density, data.begin, data.end, null);
      const near = !found.cells.length || (data.end - data.begin) / BINS / (to - from) * width > WIDEST_CELL;
      if (near) take(bars);
      return { bars: [...found.bars.values()], cells: found.cells };
    };

    const drawCells = (cells) => {
      for (const [tile, a, b] of cells) {
        const { image } = imageOf(tile, view, labels.length), span = (tile.end - tile.begin) / BINS;
        const [c, d] = [Math.max(a, from), Math.min(b, to)];
        context.imageSmoothingEnabled = span / (to - from) * width < 1;
        context.drawImage(image, (c - tile.begin) / span, 0, (d - c) / span, labels.length,
          x(c), top, x(d) - x(c), rowHeight * labels.length);
      }
    };
    // Too many bars to be told from each other: how many begin in each cell of three pixels.
    const drawMany = (many) => {
      const counts = new Map();
      for (const bar of many) {
        for (const row of rowsOf(bar)) {
          const cell = Math.floor((Math.max(bar.begin, from) - from) / (to - from) * width / MIN_BAR) * labels.length + row;
          counts.set(cell, (counts.get(cell) ?? 0) + 1);
        }
      }
      const most = Math.log1p(Math.max(...counts.values()));
      context.fillStyle = "rgb(47, 111, 171)";
      for (const [cell, number] of counts) {
        context.globalAlpha = 0.25 + 0.75 * Math.log1p(number) / most;
        context.fillRect(left + Math.floor(cell / labels.length) * MIN_BAR, top + cell % labels.length * rowHeight, MIN_BAR, rowHeight - 1);
      }
      context.globalAlpha = 1;
    };
    const drawBars = (few) => {
      few.sort((a, b) => a.begin - b.begin || a.op - b.op);
      for (const bar of few) {
        const a = Math.max(x(bar.begin), left - 2), b = Math.max(Math.min(x(bar.end), left + width + 2), a + MIN_BAR);
        for (const row of rowsOf(bar)) {
          const y = top + row * rowHeight + 1, height = Math.max(rowHeight - 3, 2);
          context.globalAlpha = !isFinite(bar.end) ? 0.25 : bar.outcome === 0 ? 0.85 : 0.6;
          context.fillStyle = data.outcomes[bar.outcome][1];
          context.fillRect(a, y, b - a, height);
          context.globalAlpha = 1;
          if (marked.has(bar.op)) { context.strokeStyle = RED; context.lineWidth = 2; context.strokeRect(a, y, b - a, height); }
          if (height >= 11) text(bar.what, a + 3, y + height - 3, "#fff", "left", b - a);
          boxes.push({ bar, a, b, y, height });
        }
      }
    };
    const drawEdges = () => {
      const places = new Map();
      for (const box of boxes) if (box.bar && marked.has(box.bar.op) && !places.has(box.bar.op)) places.set(box.bar.op, box);
      for (const found of data.found) {
        for (const [source, target, kind, why] of found.steps) {
          const a = places.get(source), b = places.get(target);
          if (!a || !b || a === b) continue;
          const start = [(a.a + a.b) / 2, a.y + a.height / 2], end = [(b.a + b.b) / 2, b.y + b.height / 2];
          const lift = Math.min(start[1], end[1]) - 14 - Math.abs(end[0] - start[0]) / 12;
          const bend = [(start[0] + end[0]) / 2, Math.max(lift, 4)];
          context.strokeStyle = context.fillStyle = data.edges[kind] ?? RED;
          context.lineWidth = 1.6;
          context.beginPath();
          context.moveTo(...start);
          context.quadraticCurveTo(...bend, ...end);
          context.stroke();
          const angle = Math.atan2(end[1] - bend[1], end[0] - bend[0]);
          context.beginPath();
          context.moveTo(...end);
          for (const turn of [-0.4, 0.4]) context.lineTo(end[0] - 8 * Math.cos(angle + turn), end[1] - 8 * Math.sin(angle + turn));
          context.fill();
          const middle = [(start[0] + 2 * bend[0] + end[0]) / 4, (start[1] + 2 * bend[1] + end[1]) / 4];
          if (Math.hypot(end[0] - start[0], end[1] - start[1]) > 60) text(kind, middle[0], middle[1] - 3, context.strokeStyle, "center");
          arrows.push({ at: middle, words: `T${source} → T${target} (${kind}): ${why}` });
        }
      }
    };

    const drawStrips = ({ kinds, groups }) => {
      for (const [kind, color, name, spans] of data.faults) {
        const lane = AXIS + kinds.indexOf(kind) * STRIP;
        for (const [a, b] of spans.filter(inView)) {
          const c = Math.max(x(a), left), d = Math.max(Math.min(x(b), left + width), c + 1);
          context.fillStyle = color;
          context.globalAlpha = 0.13;
          context.fillRect(c, lane, d - c, top + rowHeight * labels.length - lane);
          context.globalAlpha = 1;
          context.fillRect(c, lane, d - c, STRIP - 3);
          text(name, c + 3, lane + 9, "#fff", "left", d - c);
          boxes.push({ words: `${name}, ${seconds(a)} to ${b >= 2 ** 52 ? "the end" : seconds(b)}`, a: c, b: d, y: lane, height: STRIP - 3 });
        }
      }
      for (const [group, label, color, since, seen, until] of data.leaders) {
        if (!inView([since, until])) continue;
        const lane = AXIS + (kinds.length + groups.indexOf(group)) * STRIP;
        for (const [end, alpha] of [[until, 0.4], [seen, 0.9]]) {
          const c = Math.max(x(since), left), d = Math.min(x(end), left + width);
          context.globalAlpha = alpha;
          context.fillStyle = color;
          context.fillRect(c, lane, Math.max(d - c, 1), STRIP - 3);
          context.globalAlpha = 1;
          if (end === until) boxes.push({ words: `${group} was led by ${label}, ${seconds(since)} to ${seconds(seen)}`, a: c, b: d, y: lane, height: STRIP - 3 });
          if (end === seen) text(label, c + 3, lane + 9, "#fff", "left", d - c);
        }
      }
      for (const found of data.found) {
        if (!inView([found.begin, found.end])) continue;
        const c = x(found.begin), d = Math.max(x(found.end), c + 2);
        context.fillStyle = RED;
        context.globalAlpha = 0.1;
        context.fillRect(c, AXIS, d - c, top + rowHeight * labels.length - AXIS);
        context.globalAlpha = 1;
        context.beginPath();
        context.moveTo((c + d) / 2 - 5, 6);
        context.lineTo((c + d) / 2 + 5, 6);
        context.lineTo((c + d) / 2, AXIS - 2);
        context.fill();
        boxes.push({ words: `${found.kind} at ${seconds(found.begin)}: ${found.message}`, a: (c + d) / 2 - 6, b: (c + d) / 2 + 6, y: 4, height: AXIS });
      }
    };
    const drawLabels = ({ kinds, groups }) => {
      const room = left - 8, short = (words) => words.length * LETTER > room ? words.slice(0, room / LETTER - 1) + "…" : words;
      context.fillStyle = "#fff";
      context.fillRect(0, 0, left, canvas.clientHeight);
      [...kinds, ...groups.map((name) => left < 100 ? name : `leader: ${name}`)].forEach((name, lane) => text(short(name), left - 6, AXIS + lane * STRIP + 9, QUIET, "right"));
      const every = Math.ceil(10 / rowHeight);
      labels.forEach((name, row) => { if (row % every === 0) text(short(name), left - 6, top + row * rowHeight + rowHeight / 2 + 3, INK, "right"); });
      const bottom = top + rowHeight * labels.length + 13, digits = to - from < 1e7 ? 6 : 3;
      text(seconds(from, digits), left, bottom);
      text(seconds((from + to) / 2, digits), left + width / 2, bottom, QUIET, "center");
      text(seconds(to, digits), left + width - 2, bottom, QUIET, "right");
    };

    const draw = () => {
      waits = false;
      const shown = strips(), wide = canvas.clientWidth, ratio = devicePixelRatio || 1;
      left = wide < 640 ? 84 : 150;
      width = Math.max(wide - left, 10);
      rowHeight = Math.min(Math.max(Math.floor(460 / Math.max(labels.length, 1)), 11), 22);
      top = AXIS + (shown.kinds.length + shown.groups.length) * STRIP + 5;
      const height = top + rowHeight * labels.length + 20;
      canvas.style.height = height + "px";
      if (canvas.width !== Math.round(wide * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(wide * ratio);
        canvas.height = Math.round(height * ratio);
      }
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.font = "11px ui-monospace, 'DejaVu Sans Mono', monospace";
      context.fillStyle = "#fff";
      context.fillRect(0, 0, wide, height);
      boxes = [];
      arrows = [];
      context.fillStyle = LINE;
      for (let row = 0; row <= labels.length; row++) context.fillRect(left, top + row * rowHeight - 1, width, 1);
      const found = collect();
      clipped(() => {
        drawStrips(shown);
        drawCells(found.cells);
        if (found.bars.length > MOST_BARS) drawMany(found.bars); else { drawBars(found.bars); drawEdges(); }
      });
      drawLabels(shown);
      Object.assign(canvas.dataset, { bars: found.bars.length, cells: found.cells.length, edges: arrows.length, waits: asked.size });
    };
    const later = () => { if (!waits) { waits = true; requestAnimationFrame(draw); } };

    // ---- looking ----
    const look = (a, b) => {
      const length = Math.min(Math.max(b - a, 1e4), whole[1] - whole[0]);
      from = Math.min(Math.max(a, whole[0]), whole[1] - length);
      to = from + length;
      cursor.hidden = true;
      draw();
    };
    const zoom = (factor, at) => look(at - (at - from) * factor, at + (to - at) * factor);
    const steps = {
      in: () => zoom(0.5, (from + to) / 2), out: () => zoom(2, (from + to) / 2), all: () => look(...whole),
      left: () => look(from - (to - from) / 3, to - (to - from) / 3),
      right: () => look(from + (to - from) / 3, to + (to - from) / 3),
    };
    const keys = { "+": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", "0": "all" };
    for (const button of figure.querySelectorAll("[data-zoom]")) button.addEventListener("click", steps[button.dataset.zoom]);
    canvas.addEventListener("keydown", (event) => {
      if (keys[event.key]) { steps[keys[event.key]](); event.preventDefault(); }
    });
    figure.querySelector("[data-rows]").addEventListener("change", (event) => { view = event.target.value; arrange(); draw(); });
    const places = figure.querySelector("[data-found]");
    if (places) {
      data.found.forEach((found, number) => {
        const option = document.createElement("option");
        option.value = number;
        option.textContent = `${seconds(found.begin)} ${found.kind}`;
        places.append(option);
      });
      places.addEventListener("change", () => {
        const found = data.found[places.value];
        if (found) look(found.begin - Math.max(5e7, found.end - found.begin), found.end + Math.max(5e7, found.end - found.begin));
      });
    }

    // ---- pointing ----
    const moment = (event) => from + (event.clientX - canvas.getBoundingClientRect().left - left) / width * (to - from);
    const under = (event) => {
      const box = canvas.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
      const arrow = arrows.find(({ at }) => Math.hypot(at[0] - px, at[1] - py) < 9);
      if (arrow) return arrow.words;
      const hit = boxes.findLast((each) => px >= each.a && px <= each.b && py >= each.y && py <= each.y + each.height);
      if (hit?.words) return hit.words;
      if (hit) {
        const { bar } = hit, ends = bar.outcome ? "" : " · ok";
        return `T${bar.op}: ${bar.what}${ends} · ${bar.names.node[0]} · ${bar.names.process[0]} · ${seconds(bar.begin, 6)}, ${lasted(bar.end - bar.begin)}`;
      }
      return dense(px, py);
    };
    const dense = (px, py) => {
      const row = Math.floor((py - top) / rowHeight), ns = from + (px - left) / width * (to - from);
      const cell = collect().cells.find(([, a, b]) => ns >= a && ns < b);
      if (!cell || !(row >= 0 && row < labels.length) || px < left) return null;
      const [tile] = cell, { number, levels } = imageOf(tile, view, labels.length), span = (tile.end - tile.begin) / BINS;
      const bin = row * BINS + Math.floor((ns - tile.begin) / span), all = number(levels[bin]);
      if (!all) return null;
      const bad = number(levels[labels.length * BINS + bin]);
      return `${labels[row]}: about ${Math.round(all)} operations in ${lasted(span)}, about ${Math.round(bad)} of which did not succeed`;
    };
    const logsAt = (ns) => {
      if (!data.logs.lines.length && !data.logs.chunks.length) return;
      panel.hidden = false;
      const name = data.logs.chunks.findLast(([begin]) => begin <= ns)?.[2];
      if (name && !log.loaded.has(name)) { ask(name); panel.textContent = "…"; return; }
      const lines = name ? log.loaded.get(name) : log.lines;
      let low = 0, high = lines.length;
      while (low < high) { const middle = (low + high) >> 1; if (lines[middle][0] <= ns) low = middle + 1; else high = middle; }
      const first = Math.max(low - 5, 0);
      panel.replaceChildren(...lines.slice(first, low + 5).map(([at, node, words], place) => {
        const line = document.createElement("div"), who = document.createElement("b");
        who.textContent = `${seconds(at, 6)} ${node}`;
        line.append(who, words);
        line.className = first + place === low - 1 ? "now" : "";
        return line;
      }));
    };
    const point = (event) => {
      const ns = moment(event), inside = ns >= from && ns <= to;
      if (held === null) {
        cursor.hidden = !inside;
        cursor.style.left = x(ns) + "px";
        if (inside) logsAt(ns);
      }
      tell(event, under(event));
    };
    canvas.addEventListener("wheel", (event) => {
      if (event.ctrlKey) { zoom(event.deltaY < 0 ? 0.8 : 1.25, moment(event)); event.preventDefault(); }
    }, { passive: false });
    let dragged = null;
    canvas.addEventListener("pointerdown", (event) => { dragged = { at: moment(event), x: event.clientX, far: false }; });
    canvas.addEventListener("pointermove", (event) => {
      if (dragged && event.buttons && (dragged.far || Math.abs(event.clientX - dragged.x) > 4)) {
        dragged.far = true;
        const by = dragged.at - moment(event);
        look(from + by, to + by);
        return;
      }
      point(event);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (dragged && !dragged.far) { held = held === null ? moment(event) : null; point(event); }
      dragged = null;
    });
    canvas.addEventListener("pointerleave", () => { dragged = null; tip.hidden = true; if (held === null) cursor.hidden = true; });
    new ResizeObserver(later).observe(figure);
    arrange();
    draw();
    return { later };
  };
  for (const figure of document.querySelectorAll("figure.timeline-of")) widgets.push(widget(figure));
})();
