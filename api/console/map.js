// The partition map: each component is an island, with its members connected to each other.

import { h, panel, replace, s, setAttribute, setText } from "./dom.js";
import { STATES, duration } from "./format.js";

const HEIGHT_MIN = 250;

export function createMap(model) {
  const islands = s("g");
  const links = s("g", { class: "map-links" });
  const dots = s("g");
  const svg = s("svg", { role: "img" }, islands, links, dots);
  const { root } = panel("Partition map", "who hears whom", h("div", { class: "map" }, svg));
  const nodes = new Map();
  let drawn = "";

  function update() {
    const width = Math.max(260, Math.floor(svg.clientWidth || 480));
    const height = Math.max(HEIGHT_MIN, Math.floor(svg.clientHeight || 0));
    const components = model.components();
    const key = JSON.stringify([width, height, components.map(({ members, state }) => [members, state]), labels(model, components)]);
    if (key === drawn || !components.length) return;
    drawn = key;
    setAttribute(svg, "viewBox", `0 0 ${width} ${height}`);
    setAttribute(svg, "aria-label", `Partition map: ${components.map((one) => `${one.members.join(", ")}: ${STATES[one.state].label.toLowerCase()}`).join("; ")}`);
    const places = placesOf(components, width, height);
    replace(islands, components.map((component, index) => island(model, component, places[index])));
    const at = positions(components, places);
    replace(links, components.map((component) => pairs(component.members).map(([one, other]) => link(at[one], at[other]))));
    for (const [place, name] of model.names.entries()) {
      if (!nodes.has(name)) {
        nodes.set(name, createDot(name, place));
        dots.append(nodes.get(name));
      }
      const dot = nodes.get(name);
      dot.style.transform = `translate(${at[name].x}px, ${at[name].y}px)`;
      const { state, source } = model.stateOf(name);
      setAttribute(dot, "data-state", state);
      setAttribute(dot, "data-source", source);
      setAttribute(dot, "data-me", name === model.me);
    }
  }
  new ResizeObserver(() => update()).observe(svg);
  return { root, update };
}

const labels = (model, components) => components.map((component) => labelOf(model, component));

function labelOf(model, { state, members, view }) {
  if (view) {
    const committed = members.map((name) => model.get(name)?.status?.last_committed_primary).find((number) => number !== undefined);
    return state === "primary" && committed ? `Primary ${committed}` : STATES[state].label;
  }
  const last = model.hearsay(members[0])?.last_heard_ms;
  return last ? `Not heard for ${duration(Math.floor((Date.now() - last) / 1_000) * 1_000)}` : "Not heard";
}

function placesOf(components, width, height) {
  const middle = height / 2 - 12;
  const total = components.length;
  const biggest = Math.max(...components.map(({ members }) => members.length));
  if (total === 1) return [{ x: width / 2, y: middle, r: biggest === 1 ? 62 : Math.min(126, width / 3, middle - 12) }];
  const radii = components.map(({ members }) => (members.length === 1 ? 46 : 54 + 11 * Math.min(members.length, 5)));
  if (total <= Math.max(2, Math.floor(width / 170))) {
    const sum = radii.reduce((all, r) => all + 2 * r, 0);
    const shrink = Math.min(1, (width - 12 * (total + 1)) / sum);
    const gap = (width - shrink * sum) / (total + 1);
    let x = 0;
    return radii.map((r) => {
      x += gap + 2 * r * shrink;
      return { x: x - r * shrink, y: middle, r: r * shrink };
    });
  }
  const columns = Math.ceil(total / 2);
  return radii.map((r, index) => {
    const row = Math.floor(index / columns);
    const inRow = row ? total - columns : columns;
    const cell = width / inRow;
    return { x: cell * ((index % columns) + 0.5), y: row ? middle + height / 4 : middle - height / 4 + 6, r: Math.min(r, cell / 2 - 8, height / 4 - 26) };
  });
}

function positions(components, places) {
  const at = {};
  components.forEach(({ members }, index) => {
    const { x, y, r } = places[index];
    members.forEach((name, place) => {
      const angle = (2 * Math.PI * place) / members.length - Math.PI / 2;
      const distance = members.length === 1 ? 0 : r * 0.54;
      at[name] = { x: x + distance * Math.cos(angle), y: y + distance * Math.sin(angle) };
    });
  });
  return at;
}

function island(model, component, { x, y, r }) {
  const label = labelOf(model, component);
  return s(
    "g",
    { class: "island", "data-state": component.state },
    s("circle", { cx: x, cy: y, r }),
    s("text", { x, y: y + r + 20, "text-anchor": "middle" }, label),
  );
}

const link = (one, other) => s("line", { x1: one.x, y1: one.y, x2: other.x, y2: other.y });

const pairs = (names) => names.flatMap((one, place) => names.slice(place + 1).map((other) => [one, other]));

function createDot(name, place) {
  const text = s("text", { "text-anchor": "middle", dy: "0.35em" });
  setText(text, name.length > 5 ? `${name.slice(0, 4)}…` : name);
  return s("g", { class: "map-node", "data-place": place % 6, "data-node": name }, s("title", {}, name), s("circle", { class: "ring", r: 23 }), s("circle", { class: "core", r: 18 }), text);
}
