/* Draws a timeline on canvases. What lies still (lanes, overview) is drawn when the view changes; what moves with the pointer (the
   instant, what is chosen) lies on a canvas above it, so that scrubbing draws next to nothing. */

import { clock } from "./capsule-data.js";

const RULER = 24; // px
const GAP = 5; // between lanes
const SHORT = 1.5; // px: the least an item takes
const REACH = 6; // px around an instant that the pointer may be off
const LABEL = 22; // px: a narrower bar has no words
const GLYPH = 6; // px: half a sign of an instant, and air
const GLYPHS = new Set(["whispers", "cancels", "events"]);
const STEPS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200];

export class Drawing {
  gutter = 92; // px: the names of the lanes
  height = 0;

  /* `lanes`, `overlay`, `overview`: canvases; `timeline`: a Timeline. */
  constructor(lanes, overlay, overview, timeline) {
    this.timeline = timeline;
    this.lanes = lanes.getContext("2d", { alpha: false });
    this.overlay = overlay.getContext("2d");
    this.overview = overview.getContext("2d");
    let top = RULER;
    this.places = timeline.lanes.map((lane) => {
      const place = { lane, top, height: lane.height * lane.used + (lane.used - 1) };
      top += place.height + GAP;
      return place;
    });
    this.height = top;
  }

  /* To be called when the window or the light has changed. */
  measure() {
    const width = this.lanes.canvas.parentElement.clientWidth;
    this.gutter = width < 640 ? 64 : 92;
    this.overview.canvas.parentElement.style.marginLeft = `${this.gutter}px`; // so that the whole call stands above itself
    this.width = width;
    this.scale = window.devicePixelRatio || 1;
    for (const context of [this.lanes, this.overlay]) sizeCanvas(context, width, this.height, this.scale);
    sizeCanvas(this.overview, this.overview.canvas.parentElement.clientWidth, 44, this.scale);
    this.colours = readColours();
    this.hatch = makeHatch(this.lanes, this.colours, this.scale);
    this.still = null; // the overview without its window
  }

  x(instant, view) {
    return this.gutter + ((instant - view.from) / (view.until - view.from)) * (this.width - this.gutter);
  }

  instant(x, view) {
    return view.from + ((x - this.gutter) / (this.width - this.gutter)) * (view.until - view.from);
  }

  /* The middle of a lane's first row. */
  middleOf(name) {
    const place = this.places.find(({ lane }) => lane.name === name);
    return place === undefined ? RULER / 2 : place.top + place.lane.height / 2;
  }

  isRuler(y) {
    return y < RULER;
  }

  /* --- the lanes */

  drawLanes(view) {
    const { lanes: context, colours, width, height } = this;
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    context.fillStyle = colours.surface;
    context.fillRect(0, 0, width, height);
    this.#ruler(view);
    for (const place of this.places) {
      context.fillStyle = colours.paper;
      context.fillRect(this.gutter, place.top - 1, width - this.gutter, place.height + 2);
    }
    context.save();
    context.beginPath();
    context.rect(this.gutter, 0, width - this.gutter, height);
    context.clip();
    this.#turnBands(view);
    for (const place of this.places) this.#lane(place, view);
    context.restore();
    this.#names();
  }

  #names() {
    const { lanes: context, colours } = this;
    context.font = `${this.width < 640 ? 10 : 11}px ${colours.sans}`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.fillStyle = colours.soft;
    for (const { lane, top, height } of this.places) context.fillText(lane.title, this.gutter - 8, top + height / 2 + 0.5);
    context.textAlign = "left";
  }

  #ruler(view) {
    const { lanes: context, colours, width } = this;
    const step = STEPS.find((each) => (each / (view.until - view.from)) * (width - this.gutter) > 76) ?? STEPS.at(-1);
    const digits = step < 0.1 ? 2 : step < 1 ? 1 : 0;
    context.font = `11px ${colours.sans}`;
    context.textBaseline = "alphabetic";
    context.lineWidth = 1;
    for (let tick = Math.ceil(view.from / step) * step; tick <= view.until; tick += step) {
      const x = Math.round(this.x(tick, view)) + 0.5;
      context.strokeStyle = colours.hair;
      context.beginPath();
      context.moveTo(x, 16);
      context.lineTo(x, this.height);
      context.stroke();
      context.fillStyle = colours.soft;
      if (x + 40 < width) context.fillText(clock(tick, digits), x + 4, 15);
    }
  }

  /* Where turns begin, through all lanes: the eye's own grid. */
  #turnBands(view) {
    const { lanes: context, colours } = this;
    const lane = this.timeline.lane("turns");
    context.strokeStyle = colours.hair;
    context.lineWidth = 1;
    context.beginPath();
    let last = -9;
    for (const turn of this.timeline.between(lane, view.from, view.until)) {
      const x = Math.round(this.x(turn.at, view)) + 0.5;
      if (x - last < 24) continue; // denser it would be no grid
      last = x;
      context.moveTo(x, RULER - 6);
      context.lineTo(x, this.height);
    }
    context.stroke();
  }

  #lane(place, view) {
    const { lane } = place;
    if (lane.name === "user") this.#loudness(place, view);
    const reached = new Array(lane.used).fill(-1e9); // per row: how far it is filled; what would be hidden is not drawn
    const isGlyph = GLYPHS.has(lane.name);
    for (const item of this.timeline.between(lane, view.from, view.until)) {
      const from = this.x(item.at, view);
      const until = Math.max(this.x(item.ends, view), from + SHORT);
      if (until - reached[item.row] < 0.5 && lane.name !== "tokens") continue;
      const top = place.top + item.row * (lane.height + 1);
      const mark = this.x(item.told ?? item.at, view);
      if (isGlyph && mark - reached[item.row] < 2) {
        this.#tick(item, lane, mark, top);
        continue;
      }
      reached[item.row] = Math.max(reached[item.row], isGlyph ? mark + GLYPH : until);
      this.#item(item, lane, Math.max(from, this.gutter - 20), Math.min(until, this.width + 20), top, view);
    }
  }

  #item(item, lane, from, until, top, view) {
    switch (lane.name) {
      case "agent":
        return this.#speech(item, lane, from, until, top, view);
      case "tokens":
        return this.#tokens(item, lane, top, view);
      case "whispers":
        return this.#whisper(item, lane, from, until, top, view);
      case "cancels":
      case "events":
        return this.#instant(item, lane, from, top);
      case "user":
        return this.#bar(item, from, until, top + lane.height - 7, 6, this.colours.user, "");
      default:
        return this.#bar(item, from, until, top, lane.height, this.#colour(item), lane.height >= 14 ? item.text : "");
    }
  }

  /* An instant where there is no room for its sign. */
  #tick(item, lane, x, top) {
    const { lanes: context, colours } = this;
    context.fillStyle = lane.name === "whispers" ? colours.brass : isBad(item) ? colours.curtain : colours.soft;
    context.fillRect(x - 0.5, top + lane.height / 2 - 3, 1, 6);
  }

  #colour(item) {
    const { colours } = this;
    if (item.outcome === "cancelled" || item.outcome === "failed") return colours.curtain;
    return { turns: colours.edge, legs: colours.soft, passes: colours.brass, tools: colours.user, outside: colours.soft, words: colours.agent }[item.lane];
  }

  /* A bar with its words. What was cancelled or failed is hatched and ends in a cross-stroke; what was never seen to end fades out. */
  #bar(item, from, until, top, height, colour, words) {
    const { lanes: context, colours } = this;
    const width = until - from;
    context.globalAlpha = 0.22;
    context.fillStyle = colour;
    context.fillRect(from, top, width, height);
    context.globalAlpha = 1;
    context.fillRect(from, top, Math.min(2, width), height);
    if (item.outcome === "cancelled" || item.outcome === "failed") {
      context.globalAlpha = 0.4;
      context.fillStyle = this.hatch.curtain;
      context.fillRect(from, top, width, height);
      context.globalAlpha = 1;
      context.fillStyle = colours.curtain;
      context.fillRect(Math.max(from, until - 2), top, 2, height);
    }
    if (words && width > LABEL) this.#words(words, from + 5, top, width - 7, height, colours.ink);
  }

  #words(words, x, top, width, height, colour) {
    const { lanes: context, colours } = this;
    context.save();
    context.beginPath();
    context.rect(x, top, width, height);
    context.clip();
    context.font = `${Math.min(12, height - 3)}px ${colours.sans}`;
    context.textBaseline = "middle";
    context.fillStyle = colour;
    context.fillText(words.slice(0, 4 + Math.ceil(width / 4)), x, top + height / 2 + 0.5);
    context.restore();
  }

  /* Full where it was heard, hatched where it was sent and not heard any more, empty where it never left. */
  #speech(item, lane, from, until, top, view) {
    const { lanes: context, colours } = this;
    const middle = top + lane.height / 2;
    if (item.kind !== "speech") {
      this.#bar(item, from, until, top + 6, lane.height - 12, colours.agent, item.text);
      return;
    }
    const ghost = lane.height * 0.5;
    const cut = item.cutAt ?? Infinity;
    for (const [start, end] of item.segments) {
      const heard = Math.min(end, cut);
      if (heard > start) {
        context.fillStyle = colours.agent;
        context.globalAlpha = 0.85;
        context.fillRect(this.x(start, view), top + 3, Math.max(SHORT, this.x(heard, view) - this.x(start, view)), lane.height - 6);
        context.globalAlpha = 1;
      }
      if (end > cut) {
        const x = this.x(Math.max(start, cut), view);
        context.fillStyle = this.hatch.agent;
        context.fillRect(x, middle - ghost / 2, this.x(end, view) - x, ghost);
      }
    }
    if (item.unsentSeconds > 0) {
      const x = this.x(Math.max(item.playsUntil, item.at), view);
      context.strokeStyle = colours.curtain;
      context.setLineDash([3, 3]);
      context.strokeRect(x + 0.5, middle - ghost / 2 + 0.5, Math.max(2, this.x(item.playsUntil + item.unsentSeconds, view) - x - 1), ghost - 1);
      context.setLineDash([]);
    }
    if (item.cutAt !== undefined) {
      context.fillStyle = colours.curtain;
      context.fillRect(this.x(item.cutAt, view) - 1, top, 2.5, lane.height);
    }
    const width = Math.min(until, this.x(Math.min(item.until, cut), view)) - from;
    if (width > LABEL) this.#words(item.text ?? "", from + 6, top, width - 8, lane.height, colours.onAgent);
  }

  #tokens(item, lane, top, view) {
    const { lanes: context, colours } = this;
    context.fillStyle = colours.agent;
    let last = -9;
    for (const time of item.times) {
      if (time < view.from || time > view.until) continue;
      const x = Math.round(this.x(time, view));
      if (x === last) continue;
      last = x;
      context.fillRect(x, top, 1, lane.height);
    }
  }

  /* Planned, then told to the model (the diamond), then spoken: a thread from the one to the other. */
  #whisper(item, lane, from, until, top, view) {
    const { lanes: context, colours } = this;
    const middle = top + lane.height / 2;
    const isLost = item.outcome === "superseded" || item.outcome === "unused";
    const colour = isLost ? colours.edge : colours.brass;
    const told = this.x(item.told ?? item.at, view);
    context.strokeStyle = colour;
    context.fillStyle = colour;
    context.lineWidth = 1.5;
    context.setLineDash(item.told === undefined || item.guessed ? [2, 3] : []);
    context.beginPath();
    context.moveTo(from, middle);
    context.lineTo(Math.max(until, told), middle);
    context.stroke();
    context.setLineDash([]);
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(told - 5, middle);
    context.lineTo(told, middle - 5);
    context.lineTo(told + 5, middle);
    context.lineTo(told, middle + 5);
    context.closePath();
    if (item.kind === "context" || isLost) context.stroke();
    else context.fill();
  }

  #instant(item, lane, from, top) {
    const { lanes: context, colours } = this;
    const middle = top + lane.height / 2;
    context.fillStyle = context.strokeStyle = isBad(item) ? colours.curtain : colours.soft;
    if (lane.name === "cancels") {
      context.lineWidth = 2;
      context.beginPath();
      context.moveTo(from - 4, middle - 4);
      context.lineTo(from + 4, middle + 4);
      context.moveTo(from + 4, middle - 4);
      context.lineTo(from - 4, middle + 4);
      context.stroke();
      context.lineWidth = 1;
      return;
    }
    context.beginPath();
    context.arc(from, middle, isBad(item) ? 4 : 2.5, 0, Math.PI * 2);
    context.fill();
  }

  #loudness({ top, lane }, view) {
    const { lanes: context, colours } = this;
    context.fillStyle = colours.user;
    const middle = top + (lane.height - 8) / 2;
    drawPeaks(context, this.timeline, view, this.gutter, this.width, middle, (lane.height - 10) / 2);
  }

  /* --- what moves */

  drawOverlay({ view, instant, chosen, related, hovered }) {
    const { overlay: context, colours } = this;
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.save();
    context.beginPath();
    context.rect(this.gutter, 0, this.width - this.gutter, this.height);
    context.clip();
    if (chosen !== null) {
      context.strokeStyle = colours.brass;
      for (const other of related) this.#thread(chosen, other, view);
      for (const other of related) this.#outline(other, view, 1);
      context.strokeStyle = colours.ink;
      this.#outline(chosen, view, 2);
    }
    if (hovered !== null && hovered !== chosen) {
      context.strokeStyle = colours.edge;
      this.#outline(hovered, view, 1);
    }
    const x = this.x(instant, view);
    context.fillStyle = colours.ink;
    context.fillRect(x - 0.75, 0, 1.5, this.height);
    context.beginPath();
    context.moveTo(x - 5, 0);
    context.lineTo(x + 5, 0);
    context.lineTo(x, 7);
    context.fill();
    context.restore();
  }

  box(item, view) {
    const place = this.places.find(({ lane }) => lane.name === item.lane);
    if (place === undefined) return null;
    const from = this.x(item.at, view);
    const isInstant = item.lane === "cancels" || item.lane === "events";
    const until = isInstant ? from : Math.max(this.x(item.ends, view), from + SHORT);
    const margin = isInstant ? 6 : 1.5;
    const top = place.top + item.row * (place.lane.height + 1);
    return { left: from - margin, top: top - 1, right: until + margin, bottom: top + place.lane.height + 1 };
  }

  #outline(item, view, lineWidth) {
    const box = this.box(item, view);
    if (box === null) return;
    this.overlay.lineWidth = lineWidth;
    this.overlay.strokeRect(Math.max(box.left, this.gutter - 4), box.top, Math.min(box.right, this.width + 4) - Math.max(box.left, this.gutter - 4), box.bottom - box.top);
  }

  #thread(one, other, view) {
    const [from, until] = [this.box(one, view), this.box(other, view)];
    if (from === null || until === null || one.lane === other.lane) return;
    const context = this.overlay;
    const [x, y] = [clamp(from.left + 1, this.gutter, this.width), from.top > until.top ? from.top : from.bottom];
    const [toX, toY] = [clamp(until.left + 1, this.gutter, this.width), from.top > until.top ? until.bottom : until.top];
    context.globalAlpha = 0.6;
    context.lineWidth = 1.25;
    context.beginPath();
    context.moveTo(x, y);
    context.bezierCurveTo(x, (y + toY) / 2, toX, (y + toY) / 2, toX, toY);
    context.stroke();
    context.globalAlpha = 1;
  }

  /* What the pointer is on; of several the one that is nearest, the shorter first. */
  find(x, y, view) {
    const place = this.places.find(({ top, height }) => y >= top - 2 && y <= top + height + 2);
    if (place === undefined || x < this.gutter) return null;
    const { lane } = place;
    const around = (REACH / (this.width - this.gutter)) * (view.until - view.from);
    const instant = this.instant(x, view);
    let best = null;
    let bestScore = Infinity;
    for (const item of this.timeline.between(lane, instant - around, instant + around)) {
      const top = place.top + item.row * (lane.height + 1);
      const off = y < top ? top - y : Math.max(0, y - top - lane.height);
      const away = Math.max(0, item.at - instant, instant - item.ends);
      const score = off * 1e6 + away * 1e3 + (item.ends - item.at);
      if (score < bestScore) [best, bestScore] = [item, score];
    }
    return best;
  }

  /* --- the whole call */

  drawOverview(view, instant) {
    const { overview: context, colours, timeline } = this;
    const width = context.canvas.width / this.scale;
    context.setTransform(1, 0, 0, 1, 0, 0);
    if (this.still === null) this.still = this.#stillOverview(width);
    context.clearRect(0, 0, context.canvas.width, context.canvas.height);
    context.drawImage(this.still, 0, 0);
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    const [from, until] = [(view.from / timeline.length) * width, (view.until / timeline.length) * width];
    context.fillStyle = colours.veil;
    context.fillRect(0, 0, from, 44);
    context.fillRect(until, 0, width - until, 44);
    context.strokeStyle = colours.edge;
    context.strokeRect(from + 0.5, 0.5, Math.max(3, until - from - 1), 43);
    context.fillStyle = colours.ink;
    context.fillRect((instant / timeline.length) * width - 0.75, 0, 1.5, 44);
  }

  #stillOverview(width) {
    const canvas = document.createElement("canvas");
    canvas.width = this.overview.canvas.width;
    canvas.height = this.overview.canvas.height;
    const context = canvas.getContext("2d");
    const { colours, timeline } = this;
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    context.fillStyle = colours.surface;
    context.fillRect(0, 0, width, 44);
    context.fillStyle = colours.user;
    drawPeaks(context, timeline, { from: 0, until: timeline.length }, 0, width, 12, 10);
    for (const said of timeline.lane("user").items) bar(said.at, said.ends, 22, 2, colours.user);
    for (const item of timeline.lane("agent").items) bar(item.at, item.until ?? timeline.length, 26, 8, colours.agent);
    for (const item of timeline.lane("whispers").items) bar(item.told ?? item.at, item.at, 36, 2, colours.brass);
    for (const item of timeline.cancels) bar(item.at, item.at, 39, 5, colours.curtain);
    for (const item of timeline.lane("events").items) if (item.kind === "error") bar(item.at, item.at, 0, 4, colours.curtain);
    return canvas;

    function bar(from, until, top, height, colour) {
      const x = (from / timeline.length) * width;
      context.fillStyle = colour;
      context.fillRect(x, top, Math.max(1, (until / timeline.length) * width - x), height);
    }
  }
}

function isBad(item) {
  return item.lane === "cancels" || item.kind === "error" || item.kind === "trouble";
}

/* One column for every pixel: the loudest of what is in it. */
function drawPeaks(context, timeline, view, left, right, middle, height) {
  const { binSeconds } = timeline;
  const perPixel = (view.until - view.from) / (right - left);
  for (const { at, peaks } of timeline.runs) {
    const ends = at + peaks.length * binSeconds;
    if (ends < view.from || at > view.until) continue;
    const first = Math.max(left, Math.floor(left + (at - view.from) / perPixel));
    const last = Math.min(right, Math.ceil(left + (ends - view.from) / perPixel));
    for (let x = first; x < last; x += 1) {
      const from = Math.max(0, Math.floor((view.from + (x - left) * perPixel - at) / binSeconds));
      const until = Math.min(peaks.length, Math.max(from + 1, Math.ceil((view.from + (x + 1 - left) * perPixel - at) / binSeconds)));
      let peak = 0;
      for (let bin = from; bin < until; bin += 1) if (peaks[bin] > peak) peak = peaks[bin];
      const size = Math.max(0.5, (peak / 255) * height);
      context.fillRect(x, middle - size, 1, size * 2);
    }
  }
}

function sizeCanvas(context, width, height, scale) {
  context.canvas.width = Math.round(width * scale);
  context.canvas.height = Math.round(height * scale);
  context.canvas.style.height = `${height}px`;
}

function makeHatch(context, colours, scale) {
  const pattern = (colour) => {
    const tile = document.createElement("canvas");
    tile.width = tile.height = Math.round(6 * scale);
    const brush = tile.getContext("2d");
    brush.scale(scale, scale);
    brush.strokeStyle = colour;
    brush.lineWidth = 1.25;
    brush.beginPath();
    for (const shift of [-6, 0, 6]) {
      brush.moveTo(shift, 6);
      brush.lineTo(shift + 6, 0);
    }
    brush.stroke();
    const made = context.createPattern(tile, "repeat");
    made.setTransform(new DOMMatrix().scale(1 / scale));
    return made;
  };
  return { agent: pattern(colours.agent), curtain: pattern(colours.curtain) };
}

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    paper: read("paper"), surface: read("surface"), ink: read("ink"), soft: read("soft"), hair: read("hair"), edge: read("edge"),
    curtain: read("curtain"), brass: read("brass"), agent: read("agent-light"), user: read("user-light"), onAgent: read("on-agent"),
    veil: read("veil"), sans: read("sans"),
  };
}

function clamp(value, least, most) {
  return Math.min(Math.max(value, least), most);
}
