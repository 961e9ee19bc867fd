/* The list of the capsules a server keeps. */

import { admit, ask, close, show, takeKeyFromAddress } from "./capsule-door.js";
import { byId, make } from "./dom.js";
import { bytes, clock } from "./capsule-data.js";

const STATES = { whole: "", cut: "unfinished", full: "not kept to the end", damaged: "damaged" };

let next = null;

async function read() {
  const answer = await ask(next === null ? "capsules" : `capsules?after=${encodeURIComponent(next)}`);
  if (answer.status !== 200) return answer;
  close();
  const { items } = answer.body;
  byId("capsules").append(...items.map(row));
  next = answer.body.next;
  byId("more").hidden = next === null;
  byId("shelf").hidden = byId("capsules").children.length === 0;
  if (byId("shelf").hidden) show("No capsule yet.", "The next session that begins on this server makes one.");
  return answer;
}

function row({ name, sessionId, agent, began, seconds, bytes: size, state, reason, redacted }) {
  const at = began === "" ? "?" : new Date(began).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const link = make("a", { href: `capsules/${encodeURIComponent(name)}` }, at);
  const marks = [STATES[state] ?? state, redacted ? "without words" : ""].filter(Boolean).join(", ");
  return make(
    "tr",
    { "data-state": state },
    make("th", { scope: "row" }, link),
    make("td", {}, agent.replace(/^agent:/, "")),
    make("td", {}, make("code", {}, sessionId)),
    make("td", { class: "number" }, state === "damaged" ? "" : clock(seconds, 0)),
    make("td", {}, reason, marks === "" ? null : make("em", {}, reason === "" ? marks : ` (${marks})`)),
    make("td", { class: "number" }, bytes(size)),
  );
}

takeKeyFromAddress();
byId("more").addEventListener("click", read);
admit(read);
