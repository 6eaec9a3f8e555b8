"use strict";
(() => {
  const { html, known, show, showTime, moment, Chart, segments, choices, section } = natsr;
  const data = JSON.parse(document.getElementById("data").textContent);
  const DASHES = ["", "8 3", "3 3", "10 3 2 3", "14 4", "2 4", "6 2 2 2", "1 3"];
  const color = (method) => `var(--m${data.methods.indexOf(method) % 8})`;
  const dash = (method) => DASHES[data.methods.indexOf(method) % DASHES.length];

  // ---- the forecasts
  function forecasts(figure) {
    const { stretch } = data, chart = new Chart(figure), xs = stretch.times.map(moment);
    const view = { column: 0, step: stretch.steps[0], method: stretch.methods[0] };
    const details = figure.querySelector("details");
    const real = (scale, offset) => (k, i) => {
      const whole = k === null || (offset && offset[i] === null) ? null : scale.base + k + (offset ? offset[i] : 0);
      return whole === null ? null : scale.digits >= 0 ? whole / 10 ** scale.digits : whole * 10 ** -scale.digits;
    };
    function curves() {
      const scale = stretch.scales[view.column], fan = stretch.fans[view.method][view.step][view.column];
      const around = (name) => (fan[name] ? fan[name].map(real(scale, fan.mean)) : xs.map(() => null));
      return { digits: Math.max(0, scale.digits), truth: stretch.truth[view.column].map(real(scale)), mean: fan.mean.map(real(scale)), low50: around("low_50"), high50: around("high_50"), low90: around("low_90"), high90: around("high_90") };
    }
    function table(c) {
      const head = ["Time", "Truth", "Forecast", "50 % interval", "90 % interval"];
      const between = (low, high) => (known(low) ? `${show(low, c.digits)} … ${show(high, c.digits)}` : "–");
      const body = xs.map((at, i) => [showTime(at), show(c.truth[i], c.digits), show(c.mean[i], c.digits), between(c.low50[i], c.high50[i]), between(c.low90[i], c.high90[i])]);
      return html("table", {}, html("thead", {}, html("tr", {}, ...head.map((text) => html("th", { scope: "col" }, text)))),
        html("tbody", {}, ...body.map(([time, ...cells]) => html("tr", {}, html("th", { scope: "row" }, time), ...cells.map((text) => html("td", {}, text))))));
    }
    function update() {
      const c = curves(), tint = color(view.method), column = stretch.columns[view.column];
      const between = (low, high) => (known(low) ? `${show(low, c.digits)} … ${show(high, c.digits)}` : "–");
      chart.set({
        id: figure.id, xs, time: true, fixed: true, label: `${column}: truth, and ${view.method} ${view.step} rows ahead with 50 and 90 percent intervals`,
        bands: [{ low: c.low90, high: c.high90, color: tint, opacity: 0.16, shown: 0.16, name: "90 %" }, { low: c.low50, high: c.high50, color: tint, opacity: 0.24, shown: 0.38, name: "50 %" }],
        lines: [{ name: "truth", values: c.truth, color: "var(--ink)", width: 1.5 }, { name: `${view.method}, ${view.step} ahead`, values: c.mean, color: tint, width: 2 }],
        heading: (i) => showTime(xs[i]),
        rows: (i) => [["truth", show(c.truth[i], c.digits), "var(--ink)"], ["forecast", show(c.mean[i], c.digits), tint], ["50 %", between(c.low50[i], c.high50[i])], ["90 %", between(c.low90[i], c.high90[i])]],
      });
      details.querySelector(".scroll").replaceChildren(...(details.open ? [table(c)] : []));
    }
    details.addEventListener("toggle", update);
    choices(figure.querySelector("[data-control=column]"), stretch.columns, (i) => { view.column = i; update(); });
    choices(figure.querySelector("[data-control=method]"), stretch.methods, (i) => { view.method = stretch.methods[i]; update(); });
    segments(figure.querySelector("[data-control=step]"), stretch.steps.map((step) => [step, String(step)]), view.step, (step) => { view.step = step; update(); });
    update();
  }

  // ---- the error over time, in three readings of the same sums
  function methodLines(table) {
    const shown = data.methods.filter((m) => table[m]);
    return shown.map((m) => ({ name: m, values: table[m], color: color(m), dash: shown.length > 1 ? dash(m) : "" }));
  }
  function errors(figure) {
    const { track } = data, chart = new Chart(figure), xs = track.times.map(moment);
    // Sums of errors and of weights up to the end of each piece; any mean over a stretch is a quotient of differences.
    const sums = {}, span = Math.max(1, Math.round(xs.length / 20)), total = track.weights.reduce((a, b) => a + b, 0);
    for (const [method, means] of Object.entries(track.errors)) {
      let error = 0, weight = 0;
      sums[method] = means.map((mean, i) => {
        if (known(mean)) { error += mean * track.weights[i]; weight += track.weights[i]; }
        return { error, weight, known: known(mean) };
      });
    }
    const over = (m, reading) => sums[m].map((now, i) => (now.known ? reading(now, i, sums[m]) : null));
    const recent = (now, i, all) => {
      const before = all[i - span] || { error: 0, weight: 0 };
      return (now.error - before.error) / (now.weight - before.weight);
    };
    const base = sums.last_value ? "last_value" : null;
    const readings = {
      sofar: [(m) => over(m, (now) => now.error / now.weight), `Mean ${track.unit} of all forecasts up to each time`],
      recent: [(m) => over(m, recent), `Mean ${track.unit} of the last ${track.steps[Math.min(span, xs.length) - 1].toLocaleString("en")} forecasts or so`],
      saved: [(m) => over(m, (now, i) => (sums[base][i].error - now.error) / total), `${track.unit} gained on last_value up to each time, ending at the difference over the whole stream; higher is better`],
    };
    function update(name) {
      const [reading, label] = readings[name];
      const table = Object.fromEntries(Object.keys(track.errors).map((m) => [m, reading(m)]));
      chart.set({ id: figure.id, xs, time: true, ends: true, cut: name !== "saved", zero: name === "saved", label, lines: methodLines(table), heading: (i) => `${showTime(xs[i])} · ${track.steps[i].toLocaleString("en")} forecasts` });
      figure.querySelector(".reading").textContent = label + ".";
    }
    const options = [["sofar", "so far"], ["recent", "recent"]].concat(base ? [["saved", "saved"]] : []);
    segments(figure.querySelector("[data-control=reading]"), options, "sofar", update);
    update("sofar");
  }

  // ---- whose forecast it is: shares on top of each other
  function whose(figure) {
    const { kinds, shares, method } = data.whose, xs = data.track.times.map(moment);
    const tint = (k) => `var(--m${k % 8})`, share = (k, i) => (shares[k][i] === null ? null : shares[k][i] / 10);
    const below = xs.map(() => 0), bands = [];
    kinds.forEach((name, k) => {
      const low = xs.map((_, i) => (known(share(k, i)) ? below[i] : null));
      xs.forEach((_, i) => { below[i] += share(k, i) || 0; });
      bands.push({ low, high: low.map((v, i) => (v === null ? null : below[i])), color: tint(k), opacity: 0.8, shown: 0.8, name });
    });
    const rows = (i) => kinds.map((name, k) => [name, `${show(share(k, i), 1)} %`, tint(k)]).reverse(); // as they lie
    new Chart(figure).set({ id: figure.id, xs, time: true, fixed: true, zero: true, top: 100, lines: [], bands, rows, label: `Shares in the forecast of ${method} over time, in percent, by kind of expert`, heading: (i) => showTime(xs[i]) });
  }

  function overTime(figure, table, label) {
    const xs = data.track.times.map(moment);
    new Chart(figure).set({ id: figure.id, xs, time: true, log: true, label, lines: methodLines(table), heading: (i) => showTime(xs[i]) });
  }
  function norms(figure) {
    const { track } = data, xs = track.times.map(moment), lines = [];
    for (const m of data.methods.filter((name) => track.norms[name])) {
      lines.push({ name: `${m}: largest`, values: track.norms[m], color: color(m) });
      if (track.bounds[m]) lines.push({ name: `${m}: bound`, values: track.bounds[m], color: color(m), dash: "3 4", width: 1.4 });
    }
    new Chart(figure).set({ id: figure.id, xs, time: true, log: true, label: "Update norm and its bound over time", lines, heading: (i) => showTime(xs[i]) });
  }
  function horizon(figure) {
    const table = data.by_step, H = Object.values(table)[0].length, xs = Array.from({ length: H }, (_, i) => i + 1);
    new Chart(figure).set({ id: figure.id, xs, ends: true, cut: true, zero: true, xName: "rows ahead", label: `Error for each of ${H} rows ahead`, lines: methodLines(table), heading: (i) => `${i + 1} ahead` });
  }

  const draw = { forecasts, errors, whose, horizon, variance: (f) => overTime(f, data.track.variance, "Variance that each method expects, over time"), norms };
  for (const [id, paint] of Object.entries(draw)) if (section(id)) paint(section(id));

  // ---- copy
  for (const button of document.querySelectorAll(".copy"))
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "Copied";
    });
})();
