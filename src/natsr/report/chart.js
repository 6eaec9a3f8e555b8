"use strict";
// What every page of natsr draws with: elements, numbers, times, a chart with a read-out, and the switch of the theme.
const natsr = (() => {
  const announce = document.getElementById("announce");

  // ---- elements; text is always set as text, never parsed as markup
  function make(space, tag, attributes, children) {
    const element = space ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "style") element.style.cssText = value; // a content policy may forbid the attribute, never this
      else if (value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...(children || []));
    return element;
  }
  const svg = (tag, attributes, ...children) => make(true, tag, attributes, children);
  const html = (tag, attributes, ...children) => make(false, tag, attributes, children);

  // ---- numbers and times
  const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
  function show(value, digits) {
    if (!known(value)) return "–";
    if (digits !== undefined) return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
    return value.toLocaleString("en", { maximumSignificantDigits: 4 });
  }
  const pad = (number) => String(number).padStart(2, "0");
  const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
  const SECOND = 1e3, MINUTE = 6e4, HOUR = 36e5, DAY = 864e5;
  // Milliseconds since 1970; those of a time in microseconds have decimals, which a Date does not know.
  function moment(text) {
    const finer = /\.\d{3}(\d{3})$/.exec(text);
    return finer ? Date.parse(text.slice(0, -3) + "Z") + Number(finer[1]) / 1e3 : Date.parse(text + "Z");
  }
  function fraction(at, digits) {
    const parts = Math.round((at - Math.floor(at / SECOND) * SECOND) * 1e3);
    const shown = digits ?? (parts % 1e3 ? 6 : parts ? 3 : 0);
    return shown ? "." + String(parts).padStart(6, "0").slice(0, shown) : "";
  }
  function showTime(at, digits) {
    const d = new Date(at);
    const seconds = at % MINUTE || digits ? ":" + pad(d.getUTCSeconds()) + fraction(at, digits) : "";
    return `${d.getUTCDate()} ${MONTHS[d.getUTCMonth()]} ${d.getUTCFullYear()}, ${pad(d.getUTCHours())}:${pad(d.getUTCMinutes())}${seconds}`;
  }
  // Parts of a second, where rows come that often: within a minute its seconds are enough.
  function fineTicks(low, high, step) {
    const ticks = [], digits = Math.max(1, 3 - Math.floor(Math.log10(step) + 1e-9));
    for (let k = Math.ceil(low / step); k * step <= high; k++) {
      const at = Math.round(k * step * 1e3) / 1e3, d = new Date(at), seconds = pad(d.getUTCSeconds());
      ticks.push([at, at % SECOND ? seconds + fraction(at, digits) : `${pad(d.getUTCHours())}:${pad(d.getUTCMinutes())}:${seconds}`]);
    }
    return ticks;
  }
  const FINE = [-3, -2, -1, 0, 1, 2].flatMap((power) => [1, 2, 5].map((m) => m * 10 ** power)); // milliseconds
  function timeTicks(low, high, count, apart) {
    const fine = FINE.find((s) => s >= apart && (high - low) / s <= count);
    if (fine) return fineTicks(low, high, fine);
    const steps = [SECOND, 5 * SECOND, 15 * SECOND, 30 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 4 * DAY, 7 * DAY, 14 * DAY];
    const step = steps.find((s) => (high - low) / s <= count);
    const ticks = [];
    if (step) {
      const start = step >= 7 * DAY ? Math.ceil((low + 3 * DAY) / step) * step - 3 * DAY : Math.ceil(low / step) * step; // weeks begin on Mondays
      for (let at = start; at <= high; at += step) {
        const d = new Date(at), midnight = at % DAY === 0;
        const clock = `${pad(d.getUTCHours())}:${pad(d.getUTCMinutes())}${step < MINUTE ? ":" + pad(d.getUTCSeconds()) : ""}`;
        ticks.push([at, midnight ? `${d.getUTCDate()} ${MONTHS[d.getUTCMonth()]}` : clock]);
      }
      return ticks;
    }
    const months = [1, 2, 3, 6, 12, 24, 60, 120, 600].find((m) => (high - low) / (30.4 * DAY * m) <= count) || 1200;
    const first = new Date(low);
    for (let month = Math.ceil((first.getUTCFullYear() * 12 + first.getUTCMonth()) / months) * months; ; month += months) {
      const at = Date.UTC(Math.floor(month / 12), month % 12, 1);
      if (at > high) return ticks;
      if (at >= low) ticks.push([at, month % 12 ? MONTHS[month % 12] : String(Math.floor(month / 12))]);
    }
  }
  function ticksBetween(low, high, count) {
    const raw = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((m) => m * power >= raw * 0.999);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const ticks = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) {
      const at = k * step || 0; // never -0
      ticks.push([at, Math.abs(at) >= 1e6 || (step < 1e-3 && at !== 0) ? at.toExponential(1) : show(at, digits)]);
    }
    return ticks;
  }
  function logTicks(low, high) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high) + 1e-9; power++)
      for (const m of high / low > 300 ? [1] : high / low > 12 ? [1, 3] : [1, 2, 3, 5, 7]) {
        const at = m * 10 ** power;
        if (at >= low * 0.999 && at <= high * 1.001) ticks.push([at, show(at)]);
      }
    return ticks;
  }

  // ---- one chart: lines and bands over a common axis, with a read-out
  class Chart {
    constructor(figure) {
      this.plot = figure.querySelector(".plot");
      this.legend = figure.querySelector(".legend");
      this.tip = html("div", { class: "tip", hidden: "", "aria-hidden": "true" });
      this.hidden = new Set();
      this.at = -1;
      this.plot.tabIndex = 0;
      this.plot.setAttribute("role", "group");
      this.plot.addEventListener("pointermove", (event) => this.point(event));
      this.plot.addEventListener("pointerdown", (event) => this.point(event));
      this.plot.addEventListener("pointerleave", () => this.read(-1));
      this.plot.addEventListener("blur", () => this.read(-1));
      this.plot.addEventListener("keydown", (event) => this.key(event));
      new ResizeObserver(() => this.spec && this.plot.clientWidth !== this.width && this.draw()).observe(this.plot);
    }
    set(spec) {
      this.spec = spec;
      this.plot.setAttribute("aria-label", spec.label + ". Arrow keys read the values.");
      this.draw();
      this.drawLegend();
    }
    lines() { return this.spec.lines.filter((line) => !this.hidden.has(line.name)); }
    range() {
      const { spec } = this, all = [];
      for (const line of this.lines()) for (const v of line.values) if (known(v) && (!spec.log || v > 0)) all.push(v);
      for (const band of spec.bands || []) for (const side of [band.low, band.high]) for (const v of side) if (known(v)) all.push(v);
      if (!all.length) return [0, 1, false];
      if (spec.top) return [0, spec.top, false];
      all.sort((a, b) => a - b);
      let low = all[0], high = all[all.length - 1];
      const usual = all[Math.floor(all.length * 0.98)];
      const cut = spec.cut && usual > 0 && high > 2.5 * usual; // one wild line must not flatten the others
      if (cut) high = 1.5 * usual;
      if (spec.log) return [low / 1.15, high * 1.15, cut];
      if (spec.zero) { low = Math.min(0, low); high = Math.max(0, high); }
      const room = (high - low || Math.abs(high) || 1) * 0.06;
      return [spec.zero && low === 0 ? 0 : low - room, high + room, cut];
    }
    draw() {
      const { spec, plot } = this, { xs } = spec;
      const width = (this.width = plot.clientWidth), narrow = width < 520, height = narrow ? 240 : 300;
      if (!width) return;
      const [low, high, cut] = this.range();
      const yTicks = spec.log ? logTicks(low, high) : ticksBetween(low, high, narrow ? 5 : 6);
      const left = 12 + 7.2 * Math.max(2, ...yTicks.map(([, text]) => text.length));
      const named = spec.ends && width > 560 ? this.lines() : [];
      const right = named.length ? 12 + 7.4 * Math.max(...named.map((line) => line.name.length)) : 8;
      const top = 10, bottom = height - (spec.xName ? 42 : 26), first = xs[0], last = xs[xs.length - 1];
      const x = (this.x = (v) => left + ((v - first) / (last - first || 1)) * (width - left - right));
      const y = (this.y = spec.log
        ? (v) => bottom - ((Math.log(v) - Math.log(low)) / (Math.log(high) - Math.log(low))) * (bottom - top)
        : (v) => bottom - ((v - low) / (high - low)) * (bottom - top));
      const clip = "clip" + spec.id;
      const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" }, svg("title", {}, spec.label));
      root.append(svg("clipPath", { id: clip }, svg("rect", { x: left, y: top - 4, width: Math.max(0, width - left - right), height: bottom - top + 8 })));
      for (const [at, text] of yTicks) {
        root.append(svg("line", { class: spec.zero && at === 0 ? "base" : "grid", x1: left, x2: width - right, y1: y(at), y2: y(at) }));
        root.append(svg("text", { x: left - 8, y: y(at) + 4, "text-anchor": "end" }, text));
      }
      const room = Math.max(2, Math.floor((width - left - right) / (spec.time ? 74 : 60)));
      for (const [at, text] of spec.time ? timeTicks(first, last, room, (last - first) / (xs.length - 1 || 1) || SECOND) : ticksBetween(first, last, Math.min(room, 12)).filter(([v]) => Number.isInteger(v)).map(([v]) => [v, String(v)])) {
        root.append(svg("line", { class: "grid", x1: x(at), x2: x(at), y1: bottom, y2: bottom + 5 }));
        const half = 3.4 * text.length; // keep the text inside the picture
        root.append(svg("text", { x: Math.min(x(at), width - half), y: bottom + 19, "text-anchor": "middle" }, text));
      }
      if (spec.xName) root.append(svg("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, spec.xName));
      const inner = svg("g", { "clip-path": `url(#${clip})` });
      for (const band of spec.bands || []) inner.append(svg("path", { d: this.area(band), fill: band.color, "fill-opacity": band.opacity }));
      for (const line of this.lines()) inner.append(svg("path", { class: "line", d: this.path(line.values), style: `stroke:${line.color};stroke-dasharray:${line.dash || "none"};stroke-width:${line.width || 1.8}` }));
      this.cross = svg("g", {});
      for (const mark of spec.marks || []) {
        inner.append(svg("line", { class: "mark", x1: x(mark.at), x2: x(mark.at), y1: top, y2: bottom }));
        root.append(svg("text", { class: "mark", x: Math.min(x(mark.at) + 4, width - 7 * mark.text.length), y: top + 8 }, mark.text));
      }
      root.append(inner, this.cross);
      this.drawEnds(root, named, width - right + 6, top, bottom);
      if (cut) root.append(svg("text", { x: left + 6, y: top + 6 }, "▲ values above are cut off"));
      plot.replaceChildren(root, this.tip);
      if (this.at >= 0) this.read(this.at);
    }
    path(values) {
      let d = "", pen = false;
      values.forEach((v, i) => {
        if (!known(v) || (this.spec.log && v <= 0)) { pen = false; return; }
        const lone = !pen && !known(values[i + 1]); // a point between two gaps would be invisible
        d += `${pen ? "L" : "M"}${this.x(this.spec.xs[i]).toFixed(1)},${this.y(v).toFixed(1)}${lone ? "h.1" : ""}`;
        pen = true;
      });
      return d;
    }
    area({ low, high }) {
      let d = "", run = [];
      const close = () => {
        if (run.length > 1) {
          const point = (i, v) => `${this.x(this.spec.xs[i]).toFixed(1)},${this.y(v).toFixed(1)}`;
          d += "M" + run.map((i) => point(i, high[i])).join("L") + "L" + run.slice().reverse().map((i) => point(i, low[i])).join("L") + "Z";
        }
        run = [];
      };
      low.forEach((v, i) => (known(v) && known(high[i]) ? run.push(i) : close()));
      close();
      return d;
    }
    drawEnds(root, lines, at, top, bottom) {
      const ends = lines.map((line) => ({ line, y: this.y(line.values.findLast(known) ?? 0) }));
      ends.sort((a, b) => a.y - b.y);
      ends.forEach((end, i) => (end.y = Math.max(end.y, i ? ends[i - 1].y + 15 : top)));
      for (let i = ends.length - 1, floor = bottom; i >= 0; floor = ends[i].y - 15, i--) ends[i].y = Math.min(ends[i].y, floor);
      for (const { line, y } of ends) root.append(svg("text", { class: "name", x: at, y: y + 4, style: `fill:${line.color}` }, line.name));
    }
    drawLegend() {
      const { spec, legend } = this;
      const swatch = (line) => svg("svg", { width: 22, height: 10, "aria-hidden": "true" }, svg("line", { x1: 1, x2: 21, y1: 5, y2: 5, style: `stroke:${line.color};stroke-width:2.4;stroke-dasharray:${line.dash || "none"}` }));
      const items = spec.lines.map((line) => {
        if (spec.fixed) return html("li", {}, html("span", {}, swatch(line), line.name));
        const button = html("button", { type: "button", "aria-pressed": String(!this.hidden.has(line.name)) }, swatch(line), line.name);
        button.addEventListener("click", () => {
          if (this.hidden.has(line.name)) this.hidden.delete(line.name);
          else if (this.lines().length > 1) this.hidden.add(line.name);
          button.setAttribute("aria-pressed", String(!this.hidden.has(line.name)));
          this.draw();
        });
        return html("li", {}, button);
      });
      for (const band of (spec.bands || []).filter((b) => b.name)) {
        const block = svg("svg", { width: 22, height: 12, "aria-hidden": "true" }, svg("rect", { width: 22, height: 12, rx: 2, style: `fill:${band.color};fill-opacity:${band.shown}` }));
        items.push(html("li", {}, html("span", {}, block, band.name)));
      }
      legend.replaceChildren(...items);
    }
    point(event) {
      const { xs } = this.spec, at = event.clientX - this.plot.getBoundingClientRect().left;
      let best = 0;
      xs.forEach((v, i) => { if (Math.abs(this.x(v) - at) < Math.abs(this.x(xs[best]) - at)) best = i; });
      this.read(best);
    }
    key(event) {
      const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -24, PageDown: 24, Home: -1e9, End: 1e9 }[event.key];
      if (event.key === "Escape") return this.read(-1);
      if (move === undefined) return undefined;
      event.preventDefault();
      this.read(Math.min(this.spec.xs.length - 1, Math.max(0, this.at + move)));
      announce.textContent = this.tip.innerText;
      return undefined;
    }
    read(index) {
      this.at = index;
      this.tip.hidden = index < 0;
      this.cross.replaceChildren();
      if (index < 0) return;
      const { spec, plot } = this, at = this.x(spec.xs[index]);
      this.cross.append(svg("line", { class: "cross", x1: at, x2: at, y1: 6, y2: plot.firstChild.clientHeight - 26 }));
      for (const line of this.lines()) {
        const v = line.values[index];
        if (known(v) && (!spec.log || v > 0)) this.cross.append(svg("circle", { cx: at, cy: Math.max(2, this.y(v)), r: 3.6, style: `fill:${line.color};stroke:var(--page);stroke-width:1.5` }));
      }
      const rows = spec.rows ? spec.rows(index) : this.lines().map((line) => [line.name, show(line.values[index]), line.color, line.values[index]]);
      if (!spec.rows) rows.sort((a, b) => (a[3] ?? Infinity) - (b[3] ?? Infinity));
      this.tip.replaceChildren(html("strong", {}, spec.heading(index)), ...rows.map(([name, text, tint]) => html("div", {}, html("i", { style: `background:${tint || "transparent"}` }), name, html("b", {}, text))));
      const room = plot.clientWidth - this.tip.offsetWidth;
      const place = at + 14 + this.tip.offsetWidth > plot.clientWidth ? at - 14 - this.tip.offsetWidth : at + 14;
      this.tip.style.transform = `translate(${Math.max(0, Math.min(room, place))}px, 6px)`;
    }
  }

  function segments(holder, options, chosen, onChoose) {
    const buttons = options.map(([value, text]) => {
      const button = html("button", { type: "button", "aria-pressed": String(value === chosen) }, text);
      button.addEventListener("click", () => {
        for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
        onChoose(value);
      });
      return button;
    });
    holder.replaceChildren(...buttons);
  }
  function choices(select, options, onChoose) {
    select.replaceChildren(...options.map((text, i) => html("option", { value: i }, text)));
    select.addEventListener("change", () => onChoose(Number(select.value)));
  }
  const section = (id) => document.getElementById(id);

  // ---- light and dark
  const root = document.documentElement;
  const dark = () => (root.style.colorScheme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const theme = html("button", { type: "button", class: "theme", "aria-label": "Switch between light and dark", title: "Light or dark" }, "◐");
  theme.addEventListener("click", () => { root.style.colorScheme = dark() ? "light" : "dark"; });
  document.body.prepend(theme);

  return { svg, html, known, show, showTime, moment, Chart, segments, choices, section };
})();
