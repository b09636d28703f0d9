// The console: one model of the cluster, fed by event streams, and the parts of the page that show it.

import { createBanner } from "./banner.js";
import { createCharts } from "./charts.js";
import { append, h, setAttribute, setText } from "./dom.js";
import { createKeys } from "./keys.js";
import { createLab } from "./lab.js";
import { createLog } from "./log.js";
import { createMap } from "./map.js";
import { Conflicts, createMerges, createRecentMerges } from "./merges.js";
import { Model } from "./model.js";
import { createNodes } from "./nodes.js";
import { setUpTheme } from "./theme.js";
import { createTimeline } from "./timeline.js";

const $ = (id) => document.getElementById(id);
const model = new Model();
const conflicts = new Conflicts(model);

function createOverview() {
  const nodes = createNodes(model);
  const map = createMap(model);
  const charts = createCharts(model);
  const merges = createRecentMerges(model, conflicts);
  const timeline = createTimeline(model, merges.root);
  map.root.classList.add("span-4");
  charts.root.classList.add("span-8");
  const middle = h("div", { class: "columns even" }, map.root, charts.root);
  const parts = [nodes, map, charts, timeline, merges];
  return { roots: [nodes.root, middle, timeline.root], update: () => parts.forEach((part) => part.update()) };
}

const one = (part) => ({ roots: [part.root], update: part.update });
const pages = {
  overview: createOverview(),
  keys: one(createKeys(model)),
  log: one(createLog(model)),
  merges: one(createMerges(model, conflicts)),
  lab: one(createLab(model)),
};
for (const [name, page] of Object.entries(pages)) append($(name), page.roots);

const updateBanner = createBanner($("banner"), model);
let page = "overview";

function route() {
  const before = page;
  const wanted = location.hash.replace(/^#\//, "");
  page = wanted in pages ? wanted : "overview";
  for (const name of Object.keys(pages)) $(name).hidden = name !== page;
  for (const link of document.querySelectorAll(".tabs a")) setAttribute(link, "aria-current", link.hash === `#/${page}` ? "page" : null);
  document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  if (page !== before) scrollTo(0, 0);
  draw();
}

function draw() {
  const { own, me } = model;
  if (me) {
    setText($("node-name"), `node ${me}`);
    setText($("cluster-name"), own.status.cluster);
    const label = own.status.state === "primary" ? "" : " (not in a primary)";
    document.title = `${me}${label} · corelkv`;
  }
  const link = own.isFirstHand ? "live" : own.status ? "stale" : "connecting";
  setAttribute($("link"), "data-state", link);
  setText($("link"), { live: "Live", stale: `Stale, ${Math.floor(own.ageMs / 1_000)} s`, connecting: "Connecting" }[link]);
  updateBanner();
  pages[page].update();
}

let isDue = false;
model.addEventListener("change", () => {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    draw();
  });
});

setUpTheme($("theme"));
addEventListener("hashchange", route);
route();
model.start();
