/* What the page says in plain words: errors, refusals, endings. Pure: codes in, sentences out. */

/* Error code of the wire -> what happened, and what to do about it. */
const ERRORS = {
  bad_json: ["The server could not read something this page sent.", "Reload the page; if it happens again, tell whoever runs this server."],
  unknown_type: ["The server did not know something this page sent.", "Reload the page, it may be older than the server."],
  bad_element: ["The server could not use something this page sent.", "Try it again, perhaps in other words."],
  too_large: ["That was too large to send.", "Send something shorter or smaller."],
  no_session: ["There is no conversation open at the moment.", "Start a new one."],
  unknown_action: ["The server does not know that action.", "The conversation goes on; nothing is lost."],
  unauthorized: ["The server does not know who you are.", "Sign in again, then come back to this page."],
  forbidden: ["You are not allowed to talk to this agent.", "Choose another agent, or ask its owner for access."],
  not_found: ["This agent cannot be found.", "Choose another agent; this one may have been renamed or withdrawn."],
  setup_not_allowed: ["This server does not offer that kind of conversation.", "Choose another agent."],
  quota: ["The time included for this project is used up.", "Ask the project's owner, or come back next month."],
  too_busy: ["All seats are taken: the server is full at the moment.", "Try again in a minute."],
  slow_client: ["Your connection was too slow to keep up with the speech.", "Move closer to your Wi-Fi or use another network, then talk again."],
  taken_over: ["This conversation was opened somewhere else, so it continues there.", "Close the other window if you want to talk here."],
  session_limit: ["This conversation has reached its longest allowed time.", "Start a new one; what was said is kept."],
  provider_unavailable: ["The service that gives this agent its voice does not answer.", "Try again in a moment."],
  provider_auth: ["The service behind this agent refused the server's key.", "Whoever runs this server has to renew it."],
  provider_quota: ["The service behind this agent has no credit left, or is asked too often.", "Try again later, or tell whoever runs this server."],
  model_not_found: ["The model chosen for this agent does not exist.", "Whoever runs this server has to choose another."],
  recognition_failed: ["Your words could not be understood by the machine.", "Say it again, or type it."],
  chat_failed: ["The agent could not think of an answer.", "Say it again, or put it in other words."],
  synthesis_failed: ["The agent's voice failed; its words are still here to read.", "You can go on talking."],
  internal: ["Something broke on the server.", "Try again; if it happens again, tell whoever runs this server."],
};

const UNKNOWN_ERROR = ["Something went wrong.", "Try again in a moment."];

export const ERROR_CODES = Object.keys(ERRORS);

/* -> {code, what, advice, detail}; `detail` is the server's own sentence, when it says more. */
export function explainError({ code, message }) {
  const [what, advice] = ERRORS[code] ?? UNKNOWN_ERROR;
  return { code: code ?? "", what, advice, detail: message && message !== what ? message : "" };
}

const MICROPHONE = {
  refused: ["The microphone is blocked for this page.", "You can type. To speak, allow the microphone beside the address, then press Microphone."],
  missing: ["No microphone was found.", "You can type. Plug one in and press Microphone to speak."],
  busy: ["Another program is using the microphone.", "You can type. Close the other program and press Microphone to speak."],
  insecure: ["Browsers allow the microphone only on secure addresses (https, or this very computer).", "You can type and listen here."],
  lost: ["The microphone went away.", "You can type. Plug it in again and press Microphone to speak."],
  failed: ["The microphone could not be started.", "You can type, or press Microphone to try again."],
};

export function explainMicrophone(reason) {
  const [what, advice] = MICROPHONE[reason] ?? MICROPHONE.failed;
  return { code: `microphone_${reason}`, what, advice, detail: "" };
}

const CLOSINGS = {
  1008: ["The server closed the conversation.", "Start a new one."],
  1009: ["Something this page sent was too large.", "Start a new conversation and send less at once."],
  1011: ["Something broke on the server.", "Start a new conversation; what was said is kept."],
  1013: ["The server is full at the moment.", "Try again in a minute."],
};

/* The reasons of `session-end`, as the server words them, with {agent} for the name. Others are shown as they come. */
const ENDS = {
  "the agent ended the session": ["{agent} ended the conversation.", ""],
  "the client ended the session": ["The conversation is over.", ""],
  "the model has ended": ["{agent} has left the conversation.", ""],
  "the user was silent": ["Nothing was heard from you for a while, so the conversation was closed.", ""],
  "the session reached its longest duration": ERRORS.session_limit,
};

/* Why a conversation is over: {what, advice, again}, where `again` is "new" (start afresh) or "resume" (same session).

   `end` is the `session-end` command's parameters, `error` the last error that was not recoverable, `closed` the
   connection's last word, `byUser` whether the user asked for the end. */
export function explainEnd({ end = null, error = null, closed = null, byUser = false, agent = "The agent" }) {
  if (byUser) return { what: "You ended the conversation.", advice: "", again: "new" };
  if (error !== null) {
    const { what, advice, detail } = explainError(error);
    return { what, advice: [advice, detail].filter(Boolean).join(" "), again: "new" };
  }
  if (end !== null) {
    const [what, advice] = ENDS[end.reason] ?? ["The conversation is over.", plainReason(end.reason)];
    return { what: what.replace("{agent}", agent), advice, again: "new" };
  }
  if (closed === null || closed.code === 1000) return { what: "The conversation is over.", advice: "", again: "new" };
  if (!closed.everOpen) {
    const what = "The server did not accept the conversation.";
    return { what, advice: "It may be full, restarting, or want you to sign in. Try again in a moment.", again: "new" };
  }
  const known = CLOSINGS[closed.code];
  if (known !== undefined) return { what: known[0], advice: known[1], again: "new" };
  const what = "The connection was lost, and could not be restored.";
  return { what, advice: "Check your network, then pick up where you left off.", again: "resume" };
}

function plainReason(reason) {
  const text = String(reason ?? "").trim();
  if (text === "") return "";
  return `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}

export function explainResponse(status) {
  const words = { failed: "The answer failed.", incomplete: "The answer was cut short.", idle: "The agent fell silent." };
  return words[status] ?? "";
}
