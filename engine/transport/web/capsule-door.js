/* Asking the server for what only admins may have, and the form that asks for their key. */

import { byId, setText } from "./dom.js";

const KEPT = "souffleur.adminKey";

/* A key in the address, as `#key=…`, which no server is sent: taken from there, and out of sight. */
export function takeKeyFromAddress() {
  const found = new URLSearchParams(location.hash.slice(1));
  const key = found.get("key");
  if (key === null) return;
  keep(key);
  found.delete("key");
  const rest = found.toString();
  history.replaceState(null, "", location.pathname + location.search + (rest === "" ? "" : `#${rest}`));
}

export function knownKey() {
  try {
    return sessionStorage.getItem(KEPT) ?? "";
  } catch {
    return ""; // a browser that keeps nothing: it is asked for each time
  }
}

function keep(key) {
  try {
    if (key === "") sessionStorage.removeItem(KEPT);
    else sessionStorage.setItem(KEPT, key);
  } catch {
    /* it is asked for again */
  }
}

/* -> {status, body}: the JSON that came, or a problem document; status 0 when nothing came. Without `credentials` a refusal does not
   make the browser ask for a password. */
export async function ask(path, { method = "GET", body = undefined, key = knownKey() } = {}) {
  const headers = { Accept: "application/json", "X-API-Key": key };
  if (body !== undefined) headers["Content-Type"] = "application/octet-stream";
  try {
    const answer = await fetch(path, { method, body, headers, credentials: "omit", cache: "no-store" });
    return { status: answer.status, body: await answer.json().catch(() => ({})) };
  } catch {
    return { status: 0, body: {} };
  }
}

const TROUBLE = {
  0: ["The server does not answer.", "It may have been stopped. Start it again, then reload this page."],
  401: ["That key is not right.", "Look at the file of the server you are asking, this very one."],
  403: ["Capsules hold conversations, so only an admin may open them.", "Use the admin key."],
  413: ["That file is too large to be shown.", ""],
};

/* Shows why there is nothing to be seen. */
export function explain({ status, body }) {
  const [what, advice] = TROUBLE[status] ?? [status === 404 ? "There is nothing here." : "That cannot be shown.", ""];
  const own = typeof body.detail === "string" && status !== 401 && status !== 403 ? body.detail : "";
  show(what, [own, advice].filter(Boolean).join(" "), status === 401 || status === 403);
}

export function show(title, words, asksForKey = false) {
  byId("door").hidden = false;
  setText(byId("door-title"), title);
  setText(byId("door-words"), words);
  byId("key-form").hidden = !asksForKey;
  if (asksForKey) byId("key").focus();
}

export function close() {
  byId("door").hidden = true;
}

/* Calls `open()` once there is a key: at once when one is known. `open` gives what `ask` gives; a refusal asks again. */
export function admit(open) {
  const attempt = async () => {
    const answer = await open();
    if (answer.status === 200) return;
    if (answer.status === 401 || answer.status === 403) keep("");
    explain(answer);
  };
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    keep(byId("key").value.trim());
    byId("key").value = "";
    attempt();
  });
  if (knownKey() !== "") return attempt();
  show("Capsules hold conversations.", "So the server asks who you are, once.", true);
  return Promise.resolve();
}
