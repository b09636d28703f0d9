// Four charts of the last five minutes: one line for each node that tells its own figures.

import { h, panel, replace, s, setAttribute, setText } from "./dom.js";
import { clock, count, milliseconds, rate } from "./format.js";

const SPAN_MS = 300_000;
const HEIGHT = 118;
const PAD = { top: 10, right: 22, bottom: 18, left: 40 };
const DASHES = ["", "", "", "", "", "", "6 3", "6 3", "6 3", "6 3", "6 3", "6 3"];

const CHARTS = [
  { id: "throughput", title: "Throughput", unit: "writes of all nodes that became green, per second", of: (one) => one.writes_per_s, show: (n) => `${rate(n)} /s`, least: 10 },
  { id: "time-to-green", title: "Time to green", unit: "from acceptance to green, median of 5 s", of: (one) => one.time_to_green_ms, show: milliseconds, least: 2 },
  { id: "red-backlog", title: "Red backlog", unit: "messages whose order is open", of: (one) => one.red, show: count, least: 4 },
  { id: "sync-latency", title: "Sync latency", unit: "of synced writes to disk, median of 5 s", of: (one) => one.sync_ms, show: milliseconds, least: 2 },
];

export function createCharts(model) {
  const charts = CHARTS.map((definition) => createChart(model, definition));
  const key = h("ul", { class: "legend end", "aria-label": "Nodes" });
  const { root, head } = panel("The last five minutes", null, h("div", { class: "charts" }, charts.map((chart) => chart.root)));
  head.append(key);
  let known = "";
  return {
    root,
    update() {
      if (known !== model.names.join()) {
        known = model.names.join();
        replace(key, model.names.map((name, place) => h("li", {}, h("span", { class: "dot", "data-place": place % 6, "aria-hidden": "true" }), name)));
      }
      for (const chart of charts) chart.update();
    },
  };
}

function createChart(model, { id, title, unit, of, show, least }) {
  const value = h("span", { class: "chart-value" });
  const svg = s("svg", { class: "chart", role: "img", height: HEIGHT });
  const tip = h("div", { class: "chart-tip", hidden: true, "aria-hidden": "true" });
  const root = h(
    "figure",
    { class: "chart-box", id: `chart-${id}` },
    h("figcaption", {}, h("span", { class: "chart-title" }, title), value, h("span", { class: "chart-unit" }, unit)),
    h("div", { class: "chart-area" }, svg, tip),
  );
  let hover = null;

  function update() {
    const width = Math.max(200, Math.floor(svg.clientWidth || 300));
    const now = Date.now();
    const series = model.names.map((name, place) => ({ name, place, points: pointsOf(model.get(name), of, now) })).filter(({ points }) => points.length);
    const top = niceTop(Math.max(least, ...series.flatMap(({ points }) => points.map(([, y]) => y))));
    const x = (t) => PAD.left + ((t - now + SPAN_MS) / SPAN_MS) * (width - PAD.left - PAD.right);
    const y = (v) => HEIGHT - PAD.bottom - (v / top) * (HEIGHT - PAD.top - PAD.bottom);
    setAttribute(svg, "viewBox", `0 0 ${width} ${HEIGHT}`);
    const last = lastOf(series.find(({ name }) => name === model.me));
    setText(value, last === null ? "no data" : show(last));
    setAttribute(value, "data-empty", last === null);
    setAttribute(svg, "aria-label", `${title}: ${series.map((one) => `${one.name} ${show(lastOf(one))}`).join(", ") || "no data"}`);
    replace(svg, axes(width, top, y, show), series.map((one) => line(one, x, y, one.name === model.me)), hover && crosshair(hover, x));
    if (hover) showTip(series, x, width);
  }

  function showTip(series, x, width) {
    const at = hover.time;
    const values = series.map((one) => [one, nearest(one.points, at)]).filter(([, point]) => point);
    tip.hidden = !values.length;
    if (!values.length) return;
    replace(tip, h("strong", {}, clock(at)), values.map(([one, point]) => h("span", {}, h("span", { class: "dot", "data-place": one.place % 6 }), `${one.name} ${show(point[1])}`)));
    const left = x(at);
    tip.style.left = `${left > width / 2 ? left - tip.offsetWidth - 8 : left + 8}px`;
  }

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const share = (event.clientX - box.left - PAD.left) / (box.width - PAD.left - PAD.right);
    hover = share >= 0 && share <= 1 ? { time: Date.now() - SPAN_MS * (1 - share) } : null;
    tip.hidden = !hover;
    update();
  });
  svg.addEventListener("pointerleave", () => {
    hover = null;
    tip.hidden = true;
    update();
  });
  new ResizeObserver(() => update()).observe(svg);
  return { root, update };
}

function pointsOf(node, of, now) {
  if (!node) return [];
  return node.samples
    .filter((one) => one.time_ms > now - SPAN_MS && of(one) !== null && of(one) !== undefined)
    .map((one) => [one.time_ms, of(one)]);
}

function lastOf(series) {
  if (!series?.points.length) return null;
  const [time, value] = series.points[series.points.length - 1];
  return Date.now() - time < 15_000 ? value : null;
}

const nearest = (points, at) => {
  const found = points.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best), points[0]);
  return Math.abs(found[0] - at) < 3_000 ? found : null;
};

function niceTop(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 1.5, 2, 3, 4, 6, 8, 10].map((factor) => factor * power).find((top) => top >= most * 0.999);
}

function axes(width, top, y, show) {
  const grid = [0, 0.5, 1].map((share) => [
    s("line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: y(top * share), y2: y(top * share) }),
    s("text", { class: "tick", x: PAD.left - 6, y: y(top * share), dy: "0.32em", "text-anchor": "end" }, show(top * share).replace(" /s", "").replace(" ms", "")),
  ]);
  const times = [
    s("text", { class: "tick", x: PAD.left, y: HEIGHT - 3 }, "−5 min"),
    s("text", { class: "tick", x: width - PAD.right, y: HEIGHT - 3, "text-anchor": "end" }, "now"),
  ];
  return [grid, times];
}

function line({ name, place, points }, x, y, isOwn) {
  const runs = [];
  let previous = 0;
  for (const [time, value] of points) {
    if (time - previous > 2_600) runs.push([]);
    runs[runs.length - 1].push(`${x(time).toFixed(1)},${y(value).toFixed(1)}`);
    previous = time;
  }
  const [time, value] = points[points.length - 1];
  return s(
    "g",
    { class: "series", "data-place": place % 6, "data-own": isOwn },
    runs.map((run) => s("polyline", { points: run.join(" "), "stroke-dasharray": DASHES[place % 12] })),
    s("circle", { cx: x(time), cy: y(value), r: 2.6 }),
    isOwn && s("text", { x: x(time) + 6, y: y(value), dy: "0.32em" }, name.slice(0, 2)),
  );
}

const crosshair = ({ time }, x) => s("line", { class: "crosshair", x1: x(time), x2: x(time), y1: PAD.top, y2: HEIGHT - PAD.bottom });
