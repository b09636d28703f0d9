// The banner: what an operator must not overlook. It says what is wrong, what that means, and what to do.

import { h, replace } from "./dom.js";
import { clock, count, duration, list } from "./format.js";

export function createBanner(root, model) {
  let shown = "";
  return () => {
    const banners = bannersOf(model);
    const key = JSON.stringify(banners.map(({ kind, title, text }) => [kind, title, text]));
    if (key === shown) return;
    shown = key;
    replace(
      root,
      banners.map(({ kind, icon, title, text }) =>
        h(
          "div",
          { class: "banner", "data-kind": kind },
          h("span", { class: "banner-icon", "aria-hidden": "true" }, icon),
          h("p", { class: "banner-title" }, title),
          h("p", { class: "banner-text" }, text),
        ),
      ),
    );
  };
}

function bannersOf(model) {
  const { own, me } = model;
  const { status } = own;
  if (!status) return own.lostAt || model.streams.get(own)?.failures ? [neverHeard()] : [];
  const banners = [];
  if (model.isStale) banners.push(stale(model));
  if (status.disk !== "ok") banners.push({ kind: "no-primary", icon: "!", title: `Node ${me} has left the others`, text: status.disk });
  else if (model.isStale) return banners; // what it was in then says little now
  else if (status.state === "non_primary") banners.push(noPrimary(status));
  else if (status.state !== "primary") banners.push(working(status));
  if (!model.isKnownOrigin) banners.push(otherOrigin(model));
  return banners;
}

const neverHeard = () => ({
  kind: "lost",
  icon: "!",
  title: "This node does not answer",
  text: "The page is here, but the node that served it sends no status. It is tried again and again; see its process and its log.",
});

function stale(model) {
  const { own, me, witness } = model;
  const seconds = Math.floor(own.ageMs / 1_000);
  const others = witness.isFirstHand ? ` What it shows of the others is live, and ${witness.name} tells of ${me}.` : " No other node answers either.";
  return {
    kind: "lost",
    icon: "?",
    title: seconds < 2 ? `Node ${me} does not answer` : `Node ${me} has not answered for ${duration(seconds * 1_000)}`,
    text: `What this page shows of it is as it was at ${clock(own.heardAt)}; it is asked again by itself.${others}`,
  };
}

function noPrimary(status) {
  const { members } = status.view;
  const weight = (names) => names.reduce((sum, name) => sum + (status.weights[name] ?? 0), 0);
  const all = weight(status.roster);
  const needed = Math.floor(all / 2) + 1;
  const missing = status.roster.filter((name) => !members.includes(name));
  const who = missing.length ? `It does not hear ${list(missing)}. ` : "";
  const red = status.red ? ` ${count(status.red)} ${status.red === 1 ? "message waits" : "messages wait"} here for the merge.` : "";
  return {
    kind: "no-primary",
    icon: "!",
    title: `Node ${status.node} is not in a primary component`,
    text:
      `${who}It is connected to ${weight(members)} of ${all} votes, and ${needed} are needed. Writes here are accepted, are durable, ` +
      `and stay red: their order is open until the network heals.${red}`,
  };
}

const working = (status) => ({
  kind: "working",
  icon: "…",
  title: status.state === "recovering" ? `Node ${status.node} is recovering` : `Node ${status.node} is establishing a primary component`,
  text: `Now: ${status.phase}. Members: ${list(status.view.members)}. Writes wait for a moment.`,
});

function otherOrigin(model) {
  const url = model.own.status.nodes.find((node) => node.me)?.url;
  return {
    kind: "hint",
    icon: "i",
    title: "Other nodes are shown second-hand",
    text: `They answer only consoles at addresses that they know, and ${location.origin} is none of them. ${url ? `Open this console at ${url}/ instead.` : "Start the nodes with --urls."}`,
  };
}
