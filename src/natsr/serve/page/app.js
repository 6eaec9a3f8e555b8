"use strict";
(() => {
  const { svg, html, known, show, showTime, moment, Chart, segments, choices, section } = natsr;
  const content = section("content"), link = section("link"), gone = section("gone");
  const POLL = 5000, RETRY = 2000, SPARK = 60;

  // ---- asking the server
  class Refused extends Error {
    constructor(status, message) { super(message); this.status = status; }
  }
  const store = { get: () => sessionStorage.getItem("token") || "", set: (value) => sessionStorage.setItem("token", value) };
  const headers = () => (store.get() ? { Authorization: `Bearer ${store.get()}` } : {});
  async function ask(path, signal) {
    const answer = await fetch(path, { headers: headers(), signal, cache: "no-store" });
    if (answer.ok) return answer.json();
    const told = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, [told.error, told.hint].filter(Boolean).join("; ") || `status ${answer.status}`);
  }
  // Server-sent events by fetch: an EventSource cannot send a token.
  async function follow(path, signal, onNews) {
    const answer = await fetch(path, { headers: headers(), signal, cache: "no-store" });
    if (!answer.ok) throw new Refused(answer.status, `status ${answer.status}`);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; ; ) {
      const { value, done } = await reader.read();
      if (done) throw new TypeError("the stream of events has ended");
      const parts = (text + value).split(/\r?\n\r?\n/);
      text = parts.pop();
      if (parts.some((part) => /^data:/m.test(part))) onNews();
    }
  }
  const at = (key) => `/v1/series/${encodeURIComponent(key)}`;

  // ---- whether the server is there
  let seen = null;
  function reached(text) {
    seen = new Date();
    gone.hidden = true;
    link.dataset.state = "live";
    link.textContent = text;
  }
  function lost(error) {
    link.dataset.state = "gone";
    link.textContent = "Not connected";
    const since = seen ? ` What is shown is from ${seen.toLocaleTimeString()}.` : "";
    const why = error instanceof Refused ? `The server refused: ${error.message}.` : "The server does not answer.";
    const text = `${why}${since} Trying again.`;
    if (gone.hidden || gone.textContent !== text) gone.textContent = text;
    gone.hidden = false;
  }
  function needsToken(error) {
    if (!(error instanceof Refused) || (error.status !== 401 && error.status !== 403)) return false;
    section("token").hidden = false;
    section("denied").textContent = store.get() ? `That token does not open this: ${error.message}` : "";
    link.dataset.state = "gone";
    link.textContent = "A token is needed";
    return true;
  }
  section("token").addEventListener("submit", (event) => {
    event.preventDefault();
    store.set(section("secret").value.trim());
    section("secret").value = "";
    section("token").hidden = true;
    route();
  });

  // ---- pieces
  const percent = (value) => (known(value) ? `${(100 * value).toFixed(1)} %` : "–");
  const rest = (ms, signal) => new Promise((wake) => {
    const timer = setTimeout(wake, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); wake(); });
  });
  function against(health) {
    if (!known(health.mase) || !known(health.mase_last_value) || !health.mase_last_value) return "–";
    const gain = 100 * (1 - health.mase / health.mase_last_value);
    if (Math.abs(gain) < 0.5) return "the same";
    return `${Math.abs(gain).toFixed(0)} % ${gain >= 0 ? "lower" : "higher"}`;
  }
  function badges(one) {
    const found = [];
    if (!one.observations) found.push(html("span", { class: "badge cold" }, "no rows yet"));
    else if (one.health.phase !== "warm") found.push(html("span", { class: "badge cold" }, "warming up"));
    if (one.health.drift) found.push(html("span", { class: "badge drift" }, "drift"));
    if (one.failure) found.push(html("span", { class: "badge drift" }, "stopped"));
    return found;
  }
  function facts(pairs) {
    return pairs.map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, value)));
  }
  const UNITS = [[6048e8, "week"], [864e8, "day"], [36e8, "hour"], [6e7, "minute"], [1e6, "second"], [1e3, "millisecond"], [1, "microsecond"]];
  const TICKS = { s: 1e6, ms: 1e3, us: 1 };
  const MONTHS = { 1: "month", 3: "quarter", 12: "year" };
  function every(freq) {
    const count = Number.parseInt(freq, 10);
    if (freq === "B") return "working day";
    if (freq.includes("M")) return MONTHS[count] || `${count} months`;
    const step = count * TICKS[freq.replace(/^\d+/, "")], [size, unit] = UNITS.find(([size]) => step % size === 0) || [1, "microsecond"];
    return step === size ? unit : `${step / size} ${unit}s`;
  }
  // Of rows that are days or more apart the clock says nothing; of those that are less than a second apart seconds do not.
  function when(freq, at) {
    const fine = /[mu]s$/.exec(freq);
    if (fine) return showTime(at, fine[0] === "ms" ? 3 : 6);
    const coarse = /[BM]/.test(freq) || Number.parseInt(freq, 10) % 86400 === 0;
    return coarse ? showTime(at).replace(", 00:00", "") : showTime(at);
  }
  function spark(values) {
    const real = values.filter(known), low = Math.min(...real), span = Math.max(...real) - low || 1;
    let d = "", pen = false;
    values.forEach((v, i) => {
      if (known(v)) d += `${pen ? "L" : "M"}${((100 * i) / Math.max(1, values.length - 1)).toFixed(2)},${(28 - (26 * (v - low)) / span).toFixed(2)}`;
      pen = known(v);
    });
    return svg("svg", { viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("path", { class: "spark", d }));
  }

  // ---- every series
  async function list(signal) {
    section("where").textContent = "";
    document.title = "natsr";
    const search = html("input", { type: "search", id: "search", autocomplete: "off", placeholder: "part of a name" });
    const heading = html("h1", {}, "Series"), cards = html("ul", { class: "cards" }), empty = html("div", { class: "empty" });
    content.replaceChildren(html("div", { class: "find" }, heading, html("label", { for: "search" }, "Find", search)), empty, cards);
    const made = new Map();
    let all = [];
    function card(one) {
      const key = html("a", { href: `#/series/${encodeURIComponent(one.key)}` }, one.key);
      const kept = { title: html("h2", {}, key), link: key, what: html("p", { class: "what" }), plot: html("div", {}), facts: html("dl", {}) };
      kept.item = html("li", { class: "card" }, kept.title, kept.what, kept.plot, kept.facts);
      return kept;
    }
    function paint() {
      const wanted = all.filter((one) => one.key.toLowerCase().includes(search.value.trim().toLowerCase()));
      for (const one of wanted) {
        if (!made.has(one.key)) made.set(one.key, card(one));
        const kept = made.get(one.key), stamp = JSON.stringify(one);
        if (kept.stamp === stamp) continue;
        kept.stamp = stamp;
        kept.title.replaceChildren(kept.link, ...badges(one));
        const columns = one.columns.length === 1 ? one.columns[0] : `${one.columns.length} columns`;
        kept.what.textContent = `${columns} · ${one.horizon} ahead · every ${every(one.freq)} · ${one.method}`;
        kept.plot.replaceChildren(...(one.recent && one.recent.filter(known).length > 1 ? [spark(one.recent)] : []));
        kept.facts.replaceChildren(...facts([["rows", one.observations.toLocaleString("en")], ...(one.last_time ? [["last", when(one.freq, moment(one.last_time))]] : []), ["error vs last value", against(one.health)], ["in 90 %", percent(one.health.coverage_90)], ...(one.pending ? [["pending", String(one.pending)]] : [])]));
      }
      cards.replaceChildren(...wanted.map((one) => made.get(one.key).item));
      const none = !all.length ? [html("h2", {}, "No series yet"), html("p", {}, "Create one, and post rows to it:"), html("pre", {}, `curl -X PUT ${location.origin}/v1/series/load -H 'Content-Type: application/json' \\\n  -d '{"columns": ["load"], "horizon": 24, "freq": "h"}'\ncurl ${location.origin}/v1/series/load/observations -H 'Content-Type: application/json' \\\n  -d '{"rows": [{"time": "2026-01-01T00:00:00", "values": {"load": 1.5}}]}'`)] : !wanted.length ? [html("p", {}, "No series has this in its name.")] : [];
      if (empty.childElementCount !== none.length || none.length) empty.replaceChildren(...none);
    }
    search.addEventListener("input", paint);
    await forever(signal, async () => {
      let page = "", found = [];
      do {
        const part = await ask(`/v1/series?recent=${SPARK}&count=500${page}`, signal);
        found = found.concat(part.series);
        page = part.next ? `&after=${encodeURIComponent(part.next)}` : "";
      } while (page);
      all = found;
      reached(`${all.length} series`);
      paint();
      await rest(POLL, signal);
    });
  }

  // ---- one series
  function figure(id, title, about, ...controls) {
    const frame = html("figure", { id }, html("div", { class: "controls" }, ...controls), html("div", { class: "plot" }), html("ul", { class: "legend" }));
    return { frame, section: html("section", {}, html("h2", {}, title), html("p", { class: "about" }, about), frame) };
  }
  async function one(key, signal) {
    section("where").textContent = `/ ${key}`;
    document.title = `${key} · natsr`;
    const view = { column: 0, rows: 200, step: 1 };
    let kept = null;
    const title = html("h1", {}, key), list = html("dl", { class: "facts" }), failure = html("p", { class: "gone", role: "alert", hidden: "" });
    const column = html("select", {}), rows = html("span", { class: "segments" }), steps = html("span", { class: "segments" });
    const main = figure("forecasts", "Forecast", "What came, what had been expected so many rows before, and what is expected next, with 50 and 90\u00a0% intervals.",
      html("label", { hidden: "" }, "Column", column), html("span", { class: "named" }, "Rows", rows), html("span", { class: "named" }, "Expected", steps, "rows before"));
    const error = figure("errors", "Running error", "MASE over the last thousand rows or so, beside that of the last value: lower is better. Marks show where a drift began, and where a column had left its scale and all began anew.");
    const scale = figure("scale", "Scale", "Variance that the method expects, in standardised units.");
    const weights = html("section", { hidden: "" }, html("h2", {}, "Experts"), html("p", { class: "about" }, "Which experts the forecast is made of, and with what weight."), html("ul", { class: "weights" }));
    const details = html("details", {}, html("summary", {}, "The forecast as a table"), html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The forecast as a table" }));
    content.replaceChildren(html("div", { class: "series" }, title, failure, list, main.section, details, html("div", { class: "pair" }, error.section, scale.section), weights));
    const charts = { main: new Chart(main.frame), error: new Chart(error.frame), scale: new Chart(scale.frame) };
    let wake = () => {};
    const again = () => load().then(paint).catch((problem) => (signal.aborted ? null : lost(problem)));
    async function load() {
      const [series, history, metrics] = await Promise.all([ask(at(key), signal), ask(`${at(key)}/history?count=${view.rows}&step=${view.step}`, signal), ask(`${at(key)}/metrics?count=500`, signal)]);
      const forecast = series.observations ? await ask(`${at(key)}/forecast?levels=0.5,0.9`, signal) : null;
      kept = { series, history, metrics, forecast };
    }
    function controls() {
      choices(column, kept.series.columns, (i) => { view.column = i; paint(); });
      column.closest("label").hidden = kept.series.columns.length < 2; // nothing to choose
      segments(rows, [[50, "50"], [200, "200"], [1000, "1000"]], view.rows, (count) => { view.rows = count; again(); });
      const H = kept.series.horizon, wanted = [...new Set([1, Math.ceil(H / 2), H])];
      segments(steps, wanted.map((step) => [step, String(step)]), view.step, (step) => { view.step = step; again(); });
    }
    function table(forecast, name) {
      const [inner, outer] = ["0.5", "0.9"].map((level) => forecast.intervals[level][name]);
      const between = ([low, high]) => (known(low) ? `${show(low)} … ${show(high)}` : "–");
      const head = ["Time", "Expected", "50 %", "90 %"].map((text) => html("th", { scope: "col" }, text));
      const body = forecast.times.map((time, i) => html("tr", {}, html("th", { scope: "row" }, when(kept.series.freq, moment(time))), ...[show(forecast.mean[name][i]), between(inner[i]), between(outer[i])].map((text) => html("td", {}, text))));
      return html("table", {}, html("thead", {}, html("tr", {}, ...head)), html("tbody", {}, ...body));
    }
    function paintMain(name) {
      const { history, forecast } = kept, past = history.times.map(moment);
      const ahead = forecast && (!past.length || moment(forecast.origin) <= past[past.length - 1]) ? forecast.times.map(moment) : [];
      const skip = past.length ? ahead.filter((time) => time <= past[past.length - 1]).length : 0; // rows that came since
      const xs = past.concat(ahead.slice(skip)), blank = (count) => Array(count).fill(null);
      if (!xs.length) return;
      const next = (values) => (ahead.length ? values.slice(skip) : []);
      const side = (level, k) => blank(past.length).concat(ahead.length ? next(forecast.intervals[level][name]).map((pair) => pair[k]) : []);
      const before = history.intervals["0.9"] ? history.intervals["0.9"][name] : [];
      const was = (k) => past.map((_, i) => (before[i] ? before[i][k] : null)).concat(blank(xs.length - past.length));
      const truth = history.values[name].concat(blank(xs.length - past.length));
      const expected = history.mean[name].concat(blank(xs.length - past.length));
      const mean = blank(past.length).concat(ahead.length ? next(forecast.mean[name]) : []);
      if (ahead.length && !skip && past.length) mean[past.length - 1] = truth[past.length - 1]; // it begins where the truth ends
      const soft = "var(--m3)", strong = "var(--m0)";
      charts.main.set({
        id: "main", xs, time: true, fixed: true, label: `${name}: what came, what had been expected ${view.step} rows before, and what is expected next`,
        bands: [{ low: was(0), high: was(1), color: soft, opacity: 0.13, shown: 0.13, name: "90 % then" }, { low: side("0.9", 0), high: side("0.9", 1), color: strong, opacity: 0.16, shown: 0.16, name: "90 %" }, { low: side("0.5", 0), high: side("0.5", 1), color: strong, opacity: 0.24, shown: 0.38, name: "50 %" }],
        lines: [{ name: "came", values: truth, color: "var(--ink)", width: 1.5 }, { name: `expected ${view.step} before`, values: expected, color: soft, dash: "4 3", width: 1.5 }, { name: "expected next", values: mean, color: strong, width: 2 }],
        heading: (i) => when(kept.series.freq, xs[i]),
      });
    }
    function paint() {
      const { series, forecast, metrics } = kept, name = series.columns[view.column], health = series.health;
      title.replaceChildren(key, ...badges(series));
      failure.hidden = !series.failure;
      failure.textContent = series.failure || "";
      const beside = [...series.exogenous, ...series.known];
      const since = health.drift && health.drift_since ? String(health.drift_since).replace("T", " ") : "none";
      list.replaceChildren(...facts([["Last row", series.last_time ? when(series.freq, moment(series.last_time)) : "none yet"], ["Rows", `${series.observations.toLocaleString("en")}${series.pending ? `, ${series.pending} pending` : ""}`], ["Method", series.method], ...(beside.length ? [["Read beside", beside.join(", ")]] : []), ["MASE", `${show(health.mase)} (last value ${show(health.mase_last_value)})`], ["Inside 90 % intervals", percent(health.coverage_90)], ["Drift since", since], ["Refused steps", show(health.refused ?? 0)], ...(health.rescaled_at ? [["New scale since", showTime(moment(String(health.rescaled_at)))]] : [])]));
      paintMain(name);
      details.hidden = !forecast;
      details.querySelector(".scroll").replaceChildren(...(details.open && forecast ? [table(forecast, name)] : []));
      const xs = metrics.times.map(moment), figures = metrics.figures, line = (field) => figures[field] || xs.map(() => null);
      const times = (field, text) => [...new Set(line(field).filter(Boolean))].map((time) => ({ at: moment(String(time)), text })).filter((mark) => xs.length && mark.at >= xs[0]);
      const marks = times("drift_since", "drift").concat(times("rescaled_at", "new scale"));
      error.section.hidden = !line("mase").some(known);
      if (!error.section.hidden) charts.error.set({ id: "error", xs, time: true, zero: true, fixed: true, label: "Running MASE, and that of the last value", marks, lines: [{ name: series.method, values: line("mase"), color: "var(--m0)" }, { name: "last value", values: line("mase_last_value"), color: "var(--m1)", dash: "8 3" }], heading: (i) => when(kept.series.freq, xs[i]) });
      scale.section.hidden = !line("variance").some(known);
      if (!scale.section.hidden) charts.scale.set({ id: "scale", xs, time: true, log: true, fixed: true, label: "Expected variance over time", marks, lines: [{ name: "variance", values: line("variance"), color: "var(--m2)" }], heading: (i) => when(kept.series.freq, xs[i]) });
      const experts = Object.entries(health).filter(([field, weight]) => field.startsWith("weight_") && known(weight)).map(([field, weight]) => [field.slice(7), weight]).sort((a, b) => b[1] - a[1]).slice(0, 8);
      weights.hidden = !experts.length;
      weights.querySelector("ul").replaceChildren(...experts.map(([expert, weight]) => html("li", {}, html("span", {}, expert), html("span", { class: "bar", "aria-hidden": "true" }, html("i", { style: `width:${(100 * weight).toFixed(1)}%` })), html("b", {}, percent(weight)))));
      reached("Live");
    }
    details.addEventListener("toggle", () => kept && paint());
    await forever(signal, async () => {
      await load();
      if (!column.options.length) controls();
      paint();
      let due = false;
      const watching = new AbortController(), stop = () => watching.abort();
      signal.addEventListener("abort", stop);
      const news = follow(`${at(key)}/events`, watching.signal, () => { due = true; wake(); });
      try {
        while (!signal.aborted) {
          await Promise.race([news, new Promise((go) => { wake = go; if (due) go(); })]);
          due = false;
          await load();
          paint();
          await rest(250, signal); // many rows at once are one picture
        }
      } finally {
        signal.removeEventListener("abort", stop);
        stop();
        news.catch(() => {});
      }
    });
  }

  // ---- going on whatever happens, and from one view to another
  async function forever(signal, body) {
    while (!signal.aborted) {
      try { await body(); } catch (error) {
        if (signal.aborted || needsToken(error)) return;
        if (error instanceof Refused && error.status === 404) return missing(error);
        lost(error);
        await rest(RETRY, signal);
      }
    }
  }
  function missing(error) {
    reached("Live");
    content.replaceChildren(html("div", { class: "empty" }, html("h1", {}, "Not here"), html("p", {}, error.message), html("p", {}, html("a", { href: "#/" }, "All series"))));
  }
  let current = new AbortController();
  function route() {
    current.abort();
    current = new AbortController();
    const match = /^#\/series\/(.+)$/.exec(location.hash);
    if (match) one(decodeURIComponent(match[1]), current.signal);
    else list(current.signal);
  }
  addEventListener("hashchange", () => { route(); content.focus({ preventScroll: true }); scrollTo(0, 0); });
  route();
})();
