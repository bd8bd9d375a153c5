// The page: shows what GET /events says, once a second. It writes text only, never markup.

const $ = (id) => document.getElementById(id);

// ---- text ----

const marks = { fresh: "\u25cf", doubtful: "\u25c6", behind: "\u25b2", starting: "\u25cc", standby: "\u25cb" };

const count = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });

// seconds says a duration with a unit that suits it.
function seconds(s) {
  if (s < 0.001) return (s * 1e6).toFixed(0) + " \u00b5s";
  if (s < 0.0995) return (s * 1e3).toFixed(1) + " ms";
  if (s < 0.9995) return (s * 1e3).toFixed(0) + " ms";
  if (s < 59.95) return s.toFixed(1) + " s";
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => s >= size);
  return parts.slice(first, first + 2)
    .map(([size, unit], i) => Math.floor(i === 0 ? s / size : (s % parts[first][0]) / size) + " " + unit).join(" ");
}

// perSecond says how often, in no more digits than are of use.
function perSecond(n) {
  if (n >= 100) return count.format(n);
  return n >= 1 ? n.toFixed(1) : String(Number(n.toPrecision(2)));
}

// moment says a time of day, with its date when it is not today's, and the offset.
function moment(t) {
  const d = new Date(t), offset = -d.getTimezoneOffset();
  const two = (n) => String(Math.floor(Math.abs(n))).padStart(2, "0");
  const date = d.toDateString() === new Date().toDateString() ? "" : `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} `;
  return `${date}${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())} ${offset < 0 ? "\u2212" : "+"}${two(offset / 60)}:${two(offset % 60)}`;
}

const known = (t) => t && !t.startsWith("0001-");

const several = (n, one, more) => `${count.format(n)} ${n === 1 ? one : more}`;

// ---- elements ----

function element(name, text, className) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

// rows gives a parent as many children as the list has items, and reuses those that are there: nothing flickers, and
// a selection stays.
function rows(parent, list, make, fill) {
  while (parent.children.length > list.length) parent.lastElementChild.remove();
  list.forEach((item, i) => {
    const row = parent.children[i] ?? parent.appendChild(make());
    fill(row, item);
  });
}

function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

function tableRow(cells) {
  return () => {
    const tr = element("tr");
    for (let i = 0; i < cells; i++) tr.append(element("td"));
    return tr;
  };
}

const fillRow = (tr, texts) => texts.forEach((text, i) => setText(tr.children[i], text));

// ---- rates: over the last ten events ----

const history = [];

function rate(field) {
  const first = history[0], last = history[history.length - 1];
  const elapsed = (last.at - first.at) / 1000;
  return elapsed > 0 ? Math.max(0, last.status[field] - first.status[field]) / elapsed : 0;
}

function remember(status) {
  if (history.length && history[history.length - 1].status.started !== status.started) history.length = 0; // it was restarted
  history.push({ at: Date.parse(status.now), status });
  if (history.length > 11) history.shift();
}

// ---- what is shown ----

const stageNames = {
  read: ["Read", "commit \u2192 routed"],
  append: ["Append", "routed \u2192 in the log"],
  fetch: ["Fetch", "log \u2192 invalidator"],
  delete: ["First delete", "fetched \u2192 Redis acknowledged"],
  finish: ["Final delete", "first delete \u2192 finished"],
};

// ownStages are those of a process that runs a part of the path.
const ownStages = { reader: ["read", "append"], invalidator: ["fetch", "delete", "finish"] };

// path returns the cards of the strip: the ends with their rates, and the stages between.
function path(s) {
  const cards = [];
  if (s.source) {
    const state = s.source.connected ? "connected" : "not connected";
    cards.push({ end: true, title: `${s.source.flavor || "source"} ${s.source.name}`, lines: [s.source.address, state, `${count.format(rate("rows"))} rows/s`] });
  }
  const own = ownStages[s.role] ?? Object.keys(stageNames);
  const stages = (s.stages ?? []).filter((g) => own.includes(g.stage));
  // The final delete waits for second_delete on purpose: it is no sign of trouble.
  const slowest = stages.filter((g) => g.count > 0 && g.stage !== "finish").reduce((a, b) => (a && a.p50_seconds >= b.p50_seconds ? a : b), null);
  for (const g of stages) {
    const [title, what] = stageNames[g.stage];
    const times = g.count > 0 ? [`p50 ${seconds(g.p50_seconds)}`, `p99 ${seconds(g.p99_seconds)}`] : ["nothing passed", "\u00a0"];
    cards.push({ slowest: g === slowest, title, lines: [what, ...times, g === slowest ? "slowest" : "\u00a0"] });
  }
  if (s.redis) {
    cards.push({ end: true, title: "Redis", lines: [s.redis.address, s.redis.up ? "answers" : "away", `${count.format(rate("keys"))} keys/s`] });
  }
  return cards;
}

function card() {
  const li = element("li");
  li.append(element("b"));
  return li;
}

function fillCard(li, c) {
  li.className = (c.end ? "end" : "") + (c.slowest ? "slowest" : "");
  setText(li.firstElementChild, c.title);
  while (li.children.length > c.lines.length + 1) li.lastElementChild.remove();
  c.lines.forEach((text, i) => setText(li.children[i + 1] ?? li.appendChild(element("span")), text));
}

const seen = new Set();

// waiting returns a figure that most have no use for: it is shown from when there was something to show.
function waiting(field, s, name, note) {
  if (s[field] > 0) seen.add(field);
  return seen.has(field) ? [[name, several(s[field], "key", "keys"), note]] : [];
}

// figures returns the numbers below the strip: name, value, what is to be said about it, and whether it is bad.
function figures(s) {
  const now = Date.parse(s.now), list = [];
  if (s.redis) {
    const measured = s.latency_p99_seconds > 0;
    list.push(["Commit \u2192 deleted", measured ? `p50 ${seconds(s.latency_p50_seconds)}` : "\u2013", measured ? `p99 ${seconds(s.latency_p99_seconds)}, last minute` : "nothing was deleted in the last minute"]);
  }
  list.push(["Fresh as of", known(s.fresh_as_of) ? `${seconds(Math.max(0, (now - Date.parse(s.fresh_as_of)) / 1000))} ago` : "not known yet", known(s.fresh_as_of) ? moment(s.fresh_as_of) : ""]);
  if (s.redis) {
    list.push(
      ["In flight", several(s.in_flight, "key", "keys"), "read, and not yet deleted for the first time"],
      ["Waiting for their final delete", several(s.pending, "key", "keys"), s.pending + s.in_flight > 0 ? `oldest ${seconds(s.oldest_unfinished_seconds)}` : ""],
      ...waiting("rate_limited", s, "Waiting for rate_limit", "of their mapping"),
      ...waiting("rebuild_queue", s, "Waiting for a query", "that rebuilds them"),
      ["Parked", several(s.parked, "key", "keys"), "in trouble, tried again later", s.parked > 0],
      ["Dead letters", several(s.dead_letters, "key", "keys"), s.dead_letters > 0 ? "given up, and may be stale: freshet dlq list" : "given up", s.dead_letters > 0],
    );
  }
  if (s.checkpoint) list.push(["Checkpoint", s.checkpoint.file || "\u2013", known(s.checkpoint.committed) ? `last commit ${moment(s.checkpoint.committed)}` : ""]);
  return list;
}

function figure() {
  const div = element("div"), dd = element("dd");
  dd.append(element("span"), element("small"));
  div.append(element("dt"), dd);
  return div;
}

function fillFigure(div, [name, value, note, bad]) {
  const [dt, dd] = div.children;
  setText(dt, name);
  setText(dd.children[0], value);
  setText(dd.children[1], note || "\u00a0");
  dd.className = bad ? "bad" : "";
}

// pace says how far something is, as far as that is known.
function pace(p) {
  if (!p) return "";
  const words = [];
  if (p.of) words.push(`${Math.floor(100 * p.done / p.of)} % of about ${count.format(p.of)}`);
  if (p.per_second) words.push(`${perSecond(p.per_second)} per second`);
  if (p.left_seconds) words.push(`about ${seconds(Math.round(p.left_seconds))} left`);
  return words.join(", ");
}

function show(s) {
  remember(s);
  const word = s.state[0].toUpperCase() + s.state.slice(1);
  document.title = `${word} \u2013 freshet`;
  $("state").className = s.state;
  setText($("word"), `${marks[s.state] ?? ""} ${word}`);
  setText($("sentence"), s.sentence);
  setText($("who"), [s.source?.name, s.role, s.redis?.address].filter(Boolean).join(" \u00b7 "));
  setText($("since"), `up ${seconds(Math.max(1, Math.round((Date.parse(s.now) - Date.parse(s.started)) / 1000)))} \u00b7 ${s.version}`);
  const doubts = s.doubts ?? [];
  $("doubts").hidden = doubts.length === 0;
  rows($("doubt-rows"), doubts, tableRow(5), (tr, d) => fillRow(tr, [d.id, moment(d.since), count.format(d.count), d.cause.replaceAll("_", " "), [d.message, d.answer, pace(d.progress)].filter(Boolean).join("\n")]));
  const ended = s.ended_doubts ?? [];
  $("ended").hidden = ended.length === 0;
  rows($("ended-rows"), ended, tableRow(5), (tr, d) => fillRow(tr, [d.id, moment(d.since), moment(d.ended), d.cause.replaceAll("_", " "), [d.message, `${d.how}: ${d.answer ?? ""}`.replace(/: $/, "")].join("\n")]));
  const warm = [...(s.warm_ups ?? []), ...(s.ended_warm_ups ?? [])];
  $("warm").hidden = warm.length === 0;
  rows($("warm-rows"), warm, tableRow(6), (tr, w) => fillRow(tr, [
    w.id, w.some ? `${w.table}, some rows` : w.table, moment(w.asked), count.format(w.rows), count.format(w.keys),
    w.ended ? `${w.done ? "done" : "ended early"} ${moment(w.ended)}: ${w.answer}` : [w.answer, pace(w.progress)].filter(Boolean).join("\n"),
  ]));
  rows($("path"), path(s), card, fillCard);
  rows($("figures"), figures(s), figure, fillFigure);

  const nodes = s.redis?.nodes ?? [], unserved = s.redis?.slots_unserved ?? 0;
  $("nodes").hidden = nodes.length === 0;
  $("unserved").hidden = unserved === 0;
  setText($("unserved"), `${several(unserved, "slot has", "slots have")} no node: their keys wait.`);
  rows($("node-rows"), nodes, tableRow(4), (tr, n) => fillRow(tr, [n.address, count.format(n.slots), count.format(n.moving), n.up ? "answers" : n.sentence]));

  const partitions = s.partitions ?? [];
  $("partitions").hidden = partitions.length < 2;
  rows($("partition-rows"), partitions, tableRow(6), (tr, p) => fillRow(tr, [
    String(p.id), seconds(p.lag_seconds), p.records_behind === undefined ? "\u2013" : count.format(p.records_behind),
    count.format(p.in_flight), count.format(p.pending), p.stopped ? "stopped" : p.idle ? "nothing to fetch" : "fetching",
  ]));

  const tables = s.hot?.tables ?? [];
  $("hot").hidden = tables.length === 0;
  if (s.hot) setText($("hot-since"), `over about the last ${seconds(s.hot.window_seconds).replace(/ 0 s$/, "")}, of ${perSecond(s.hot.keys_per_second)} keys per second`);
  rows($("hot-table-rows"), tables, tableRow(3), fillHot);

  const alarms = (s.alarms ?? []).slice().sort((a, b) => Date.parse(b.last) - Date.parse(a.last));
  $("quiet").hidden = alarms.length > 0;
  $("alarms").hidden = alarms.length === 0;
  rows($("alarm-rows"), alarms, tableRow(4), (tr, a) => fillRow(tr, [moment(a.last), count.format(a.count), a.kind.replaceAll("_", " "), a.message]));
  $("main").hidden = false;
}

function fillHot(tr, c) {
  tr.firstElementChild.dir = "auto"; // a name reads from its own side
  fillRow(tr, [c.length ? `${c.name}\u2026 (${several(c.length, "byte", "bytes")})` : c.name, perSecond(c.per_second), c.low === c.high ? "exactly" : `${perSecond(c.low)} and ${perSecond(c.high)}`]);
}

// ---- the connection ----

let token = ""; // in memory only: gone with the tab

const authorized = () => (token ? { Authorization: `Bearer ${token}` } : {});
let heard = null; // when the last event came

const patience = 5000; // how long to wait for the next event

class Refused extends Error {}

// stream reads events until the connection ends, or says nothing for too long.
async function stream() {
  const abort = new AbortController();
  let watchdog = setTimeout(() => abort.abort(), patience);
  try {
    const response = await fetch("/events", { signal: abort.signal, cache: "no-store", headers: authorized() });
    if (response.status === 401) throw new Refused();
    if (!response.ok) throw new Error((await response.json()).error);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
        clearTimeout(watchdog);
        watchdog = setTimeout(() => abort.abort(), patience);
        heard = new Date();
        connected();
        show(JSON.parse(text.slice("data: ".length, end)));
      }
    }
  } finally {
    clearTimeout(watchdog);
    abort.abort();
  }
}

function connected() {
  $("gone").hidden = $("ask").hidden = true;
  $("main").classList.remove("stale");
}

function disconnected(why) {
  const since = heard ? `Disconnected since ${moment(heard)}; the values below are from then.` : "Not connected.";
  setText($("gone"), `${since} Trying again.${why ? ` (${why})` : ""}`);
  $("gone").hidden = false;
  $("main").classList.add("stale");
  document.title = "Disconnected \u2013 freshet";
}

// asked resolves when a token was given in the form that is named.
function asked(form, field, wrong) {
  $(wrong).hidden = token === "";
  $(form).hidden = false;
  $(field).focus();
  return new Promise((resolve) => {
    $(form).addEventListener("submit", (e) => {
      e.preventDefault();
      token = $(field).value;
      $(field).value = "";
      resolve();
    }, { once: true });
  });
}

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// ---- the hottest keys: asked for while somebody looks, and forgotten afterwards ----

const hotEvery = 2000;
let watchingHot = false;

async function watchHot() {
  if (watchingHot) return;
  watchingHot = true;
  while ($("hot-keys").open) {
    const problem = await showHot();
    setText($("hot-problem"), problem);
    $("hot-problem").hidden = problem === "";
    await wait(hotEvery);
  }
  rows($("hot-key-rows"), [], tableRow(3), fillHot);
  watchingHot = false;
}

// showHot shows the keys once, and returns what kept it from doing so.
async function showHot() {
  try {
    const response = await fetch("/hot", { cache: "no-store", headers: authorized() });
    if (response.status === 401) {
      await asked("hot-ask", "hot-token", "hot-wrong");
      return await showHot();
    }
    const answer = await response.json();
    if (!response.ok) return answer.error;
    $("hot-ask").hidden = true;
    rows($("hot-key-rows"), answer.keys ?? [], tableRow(3), fillHot);
    return "";
  } catch (e) {
    return `The keys cannot be loaded: ${e.message}. Trying again.`;
  }
}

$("hot-keys").addEventListener("toggle", watchHot);

for (;;) {
  try {
    await stream();
    disconnected();
  } catch (e) {
    if (e instanceof Refused) {
      $("gone").hidden = true;
      await asked("ask", "token", "wrong");
      continue;
    }
    disconnected(e.name === "AbortError" ? "" : e.message);
  }
  await wait(1000);
}
