"use strict";
// Texts from run folders reach the page as text nodes only, and never a chart.
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"];
const DASHES = [[], [9, 3, 2, 3], [2, 3], [9, 3], [9, 3, 2, 3, 2, 3]];
const LEFT = [[0, [213, 94, 0]], [0.25, [230, 159, 0]], [0.6, [86, 180, 233]], [1, [0, 90, 160]]];
const INK = "#1b1f27", FAINT = "#59616e", RULE = "#e3e6eb";
const SHOWN = { plane: "Episodes of the first seed", time: "What remains of the budget" };
const charts = new Map();
let chosen = null, places = [];

const colour = (run) => COLOURS[run % COLOURS.length];
const dash = (run) => DASHES[run % DASHES.length];
const known = (numbers) => numbers.map((one) => (one === null ? NaN : one));

function make(tag, attributes = {}, ...children) {
  const it = document.createElementNS(tag === "svg" || tag === "line" ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.assign(it.style, value);
    else if (name.startsWith("on")) it.addEventListener(name.slice(2), value);
    else it.setAttribute(name, value);
  }
  it.append(...children.filter((child) => child !== null && child !== undefined));
  return it;
}

// Charts: a list of parts, each with data that can change later.
const PARTS = {
  line: (figure, { source, run, width = 2, alpha = 1 }) =>
    figure.line({ field: "x" }, { field: "y" }, { source, line_color: colour(run), line_dash: dash(run), line_width: width, line_alpha: alpha }),
  dots: (figure, { source, run }) =>
    figure.scatter({ field: "x" }, { field: "y" }, { source, size: 5, fill_color: colour(run), line_color: null }),
  steps: (figure, { source, run }) =>
    figure.step({ field: "x" }, { field: "y" }, "after", { source, line_color: colour(run), line_dash: dash(run), line_width: 2 }),
  area: (figure, { source, run }) =>
    figure.varea({ x: { field: "x" }, y1: { field: "low" }, y2: { field: "high" }, source, fill_color: colour(run), fill_alpha: 0.18 }),
  bars: (figure, { source, run }) =>
    figure.quad({ left: { field: "left" }, right: { field: "right" }, top: { field: "top" }, bottom: { field: "bottom" }, source,
      fill_color: colour(run), fill_alpha: 0.3, line_color: colour(run), line_dash: { value: dash(run) } }),
  zone: (figure, { source }) => figure.patch({ field: "x" }, { field: "y" }, { source, fill_color: "#D55E00", fill_alpha: 0.14, line_color: null }),
  limit: (figure, { source }) =>
    figure.line({ field: "x" }, { field: "y" }, { source, line_color: INK, line_dash: [6, 4], line_width: 1.2 }),
  ends: (figure, { source }) =>
    figure.scatter({ field: "x" }, { field: "y" }, { source, size: 9, fill_color: { field: "colour" }, line_color: INK }),
  paths: (figure, { source }) =>
    figure.segment({ field: "x0" }, { field: "y0" }, { field: "x1" }, { field: "y1" }, { source, line_color: { field: "colour" }, line_width: 2 }),
};

function draw(place, { across, along, log = false, height = 230, range = null, square = false }, parts) {
  const before = charts.get(place);
  if (before) {
    parts.forEach((part, i) => {
      if (part.at === undefined) before[i].data = part.data;
      else before[i].location = part.at;
    });
    return;
  }
  const figure = Bokeh.Plotting.figure({
    height, sizing_mode: "stretch_width", tools: "", toolbar_location: null, y_axis_type: log ? "log" : "linear",
    background_fill_color: null, border_fill_color: null, outline_line_color: null, x_axis_label: across, y_axis_label: along,
    min_border_right: 12, match_aspect: square, ...(range && { y_range: range }),
  });
  for (const axis of [...figure.below, ...figure.left]) {
    axis.setv({
      axis_label_text_font_style: "normal", axis_label_text_font_size: "13px", axis_label_text_color: FAINT, axis_label_text_font: "system-ui",
      major_label_text_font_size: "12px", major_label_text_color: FAINT, major_label_text_font: "system-ui",
      axis_line_color: FAINT, major_tick_line_color: FAINT, minor_tick_line_color: null,
    });
  }
  for (const grid of figure.center) grid.setv({ grid_line_color: RULE });
  if (log) figure.left[0].setv({ ticker: new Bokeh.FixedTicker({ ticks: [0.001, 0.01, 0.1, 1, 10, 100] }), formatter: new Bokeh.BasicTickFormatter() });
  charts.set(place, parts.map((part) => {
    if (part.at !== undefined) {
      const span = new Bokeh.Span({
        location: part.at, dimension: part.across ? "width" : "height", line_color: INK, line_width: part.now ? 3 : 1.2,
        line_dash: part.now ? [] : [6, 4], line_alpha: part.now ? 0.25 : 1,
      });
      figure.add_layout(span);
      return span;
    }
    const source = new Bokeh.ColumnDataSource({ data: part.data });
    PARTS[part.kind](figure, { ...part, source });
    return source;
  }));
  Bokeh.Plotting.show(figure, place);
}

function chart(title, note = "") {
  const place = make("div", { role: "img", "aria-label": note ? `${title}. ${note}` : title });
  return [make("figure", { class: "chart" }, make("h3", {}, title), place, note ? make("figcaption", {}, note) : null), place];
}

function swatch(run) {
  const line = make("line", { x1: 0, y1: 6, x2: 30, y2: 6, stroke: colour(run), "stroke-width": 3, "stroke-dasharray": dash(run).join(" ") });
  return make("svg", { class: "swatch", width: 30, height: 12, "aria-hidden": "true" }, line);
}

function legend(facts) {
  if (facts.runs.length < 2) return null;
  return make("ul", { class: "legend" }, ...facts.runs.map((run, i) => make("li", {}, swatch(i), run.name)));
}

// Tables, and what is downloaded of them.
function cell(value) {
  if (value === null || value === undefined) return "";
  // What a spreadsheet would take for a formula is a text.
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csv(records) {
  const heads = [...new Set(records.flatMap(Object.keys))];
  return [heads, ...records.map((one) => heads.map((head) => one[head]))].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function download(name, kind, text) {
  const url = URL.createObjectURL(new Blob([text], { type: kind }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function listed(pairs) {
  return make("dl", {}, ...pairs.filter(([, value]) => value !== "").flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

function table(facts, name) {
  const body = make("table", {},
    make("thead", {}, make("tr", {}, ...facts.heads.map((head) => make("th", { scope: "col" }, head)))),
    make("tbody", {}, ...facts.rows.map((row) => make("tr", {}, ...row.map((one) => make("td", {}, one))))));
  const button = (kind, mime, text) =>
    make("button", { type: "button", "aria-label": `${facts.title} as ${kind}`, onclick: () => download(`${name}.${kind.toLowerCase()}`, mime, text()) }, kind);
  return make("figure", { class: "table" },
    make("figcaption", {}, make("b", {}, facts.title),
      button("CSV", "text/csv", () => csv(facts.records)),
      button("JSON", "application/json", () => JSON.stringify(facts.records, null, 2))),
    make("div", { tabindex: "0", role: "region", "aria-label": facts.title }, body),
    facts.note ? make("p", { class: "note" }, facts.note) : null);
}

// Sections.
function section(id, title, ...children) {
  return make("section", { id }, make("h2", {}, title), ...children);
}

function verdicts(facts) {
  const told = [["return, IQM", "return, IQM"], ["cost, mean", "mean"], ["cost, worst", "worst"], ["budget used, mean", "used"]];
  const cards = facts.runs.map((run, i) => {
    const own = run.certificates?.[0];
    const numbers = own && Object.fromEntries(own.heads.map((head, column) => [head, own.rows.at(-1)[column]]));
    return make("article", { class: run.violations ? "card violated" : "card" },
      facts.runs.length > 1 ? make("h3", {}, swatch(i), " ", run.name) : null,
      facts.live ? make("p", { class: "status", role: "status" }, run.status) : null,
      run.statement ? make("p", { class: "verdict" }, `${run.statement}.`) : null,
      facts.live && own ? make("p", { class: "faint" }, `That is what the policies of epoch ${run.epochs} did in tests.`) : null,
      own ? listed([["budget", facts.budget], ...told.map(([title, head]) => [title, numbers[head]])]) : null);
  });
  return make("div", { class: facts.runs.length > 1 ? "grid" : "grid only", id: "verdict" }, ...cards);
}

function shade(share) {
  if (share < 0) return "#000000";
  const above = Math.max(1, LEFT.findIndex(([at]) => at >= Math.min(share, 1)));
  const [[low, from], [high, to]] = [LEFT[above - 1], LEFT[above]];
  const part = (Math.min(share, 1) - low) / (high - low);
  return `rgb(${from.map((one, i) => Math.round(one + part * (to[i] - one))).join(",")})`;
}

function segments(paths, x, y, jump = Infinity) {
  const data = { x0: [], y0: [], x1: [], y1: [], colour: [] };
  for (const path of paths) {
    const [across, along] = [x(path), y(path)];
    for (let i = 1; i < across.length; i++) {
      if (Math.abs(across[i] - across[i - 1]) > jump) continue;
      data.x0.push(across[i - 1]); data.y0.push(along[i - 1]); data.x1.push(across[i]); data.y1.push(along[i]);
      data.colour.push(shade(path.remaining[i]));
    }
  }
  return data;
}

function ends(paths, x, y) {
  const last = (path, of) => of(path).at(-1);
  return { x: paths.map((path) => last(path, x)), y: paths.map((path) => last(path, y)), colour: paths.map((path) => shade(path.remaining.at(-1))) };
}

function scale(unsafe) {
  const stops = LEFT.map(([at]) => `${shade(at)} ${100 * at}%`).join(", ");
  return make("ul", { class: "legend" },
    make("li", {}, "remaining: 0\u00a0%", make("span", { class: "scale", style: { background: `linear-gradient(to right, ${stops})` } }), "100\u00a0%"),
    make("li", {}, make("span", { class: "scale", style: { background: "#000000", width: "1.5rem" } }), "overspent"), make("li", {}, "dot: end of an episode"),
    unsafe ? make("li", {}, make("span", { class: "scale", style: { background: "rgba(213, 94, 0, 0.25)", width: "1.5rem" } }), "where steps cost") : null);
}

// What every run came to over the budgets: a title, and from a budget to the axes and parts of the chart.
function trends(runs, budgets, x) {
  const records = runs.map((run) => run.slider.records);
  const column = (run, name, factor = 1) => ({ x, y: run.slider.records.map((one) => one[name] * factor) });
  const marked = (name, factor) => runs.flatMap((run) => ["line", "dots"].map((kind) => ({ kind, run: run.i, data: column(run, name, factor) })));
  const costs = Object.keys(records[0][0]).filter((name) => /^cost_mean(_\d+)?$/.test(name));
  const least = Math.min(...records.flat().map((one) => one.bound));
  return [
    ["Return", { along: "mean return" }, marked("task_return_mean")],
    ...costs.map((name, i) => [costs.length > 1 ? `Cost ${i}` : "Cost", { along: "mean, thin: worst" }, [
      { kind: "limit", data: { x, y: budgets.map((one) => Number(one.split(" ")[i])) } },
      ...runs.flatMap((run) => [
        { kind: "line", run: run.i, data: column(run, name) },
        { kind: "line", run: run.i, width: 1, alpha: 0.6, data: column(run, name.replace("mean", "worst")) }])]]),
    ["Probability of a violation", { along: "at most, %, at 95 %", log: true, range: [50 * least, 100] }, marked("bound", 100)],
  ].map(([title, axes, parts]) => ({ place: chart(title), axes: { across: "budget", ...axes }, parts }));
}

// The episodes of a run at one budget, in their plane and over time.
function drawPaths({ run, plane, time }, k) {
  const paths = run.slider.paths[k], [across, along] = run.slider.plane;
  const unsafe = run.slider.unsafe ? [{ kind: "zone", data: run.slider.unsafe }] : [];
  const at = [(path) => path.across, (path) => path.along];
  draw(plane[1], { across, along, height: 300, square: run.slider.square }, [...unsafe,
    { kind: "paths", data: segments(paths, ...at, across.endsWith("°") ? 180 : Infinity) }, { kind: "ends", data: ends(paths, ...at) }]);
  draw(time[1], { across: "step", along: "remaining, %", height: 300 }, [
    { kind: "paths", data: segments(paths, (path) => path.step, (path) => path.remaining.map((one) => 100 * one)) },
    { kind: "limit", data: { x: [0, Math.max(...paths.flatMap((path) => path.step))], y: [0, 0] } }]);
}

function slider(facts) {
  const runs = facts.runs.map((run, i) => ({ ...run, i })).filter((run) => run.slider), title = "One policy, many budgets";
  if (!runs.length) return facts.runs[0].sliderNote ? section("budgets", title, make("p", { class: "faint" }, facts.runs[0].sliderNote)) : null;
  const { budgets, start, heads, unsafe } = runs[0].slider, x = budgets.map((one) => Number(one.split(" ")[0]));
  const output = make("output", { for: "budget" }), note = make("p", { class: "note", "aria-live": "polite" });
  const numbers = make("div", { class: "grid", id: "numbers" });
  const input = make("input", { type: "range", id: "budget", min: 0, max: budgets.length - 1, step: 1, value: chosen ?? start });
  const over = trends(runs, budgets, x), several = runs.length > 1;
  const drawn = runs.map((run) => ({ run, ...Object.fromEntries(Object.entries(SHOWN).map(([one, what]) => [one, chart(several ? `${run.name}: ${what}` : what)])) }));

  function show() {
    const k = (chosen = Number(input.value));
    output.textContent = `budget ${budgets[k]}`;
    input.setAttribute("aria-valuetext", output.textContent);
    note.textContent = runs.every((run) => run.slider.trained[k]) ? "Episodes of the training began with this budget." : "No episode of the training began with this budget.";
    numbers.replaceChildren(...runs.map((run) => make("article", { class: "card" }, several ? make("h3", {}, swatch(run.i), " ", run.name) : null,
      ...run.slider.at[k].map((row) => listed(heads.map((head, i) => [head, row[i]]))))));
    for (const { place, axes, parts } of over) draw(place[1], axes, [{ at: x[k], now: true }, ...parts]);
    for (const one of drawn) drawPaths(one, k);
  }
  input.addEventListener("input", show);
  requestAnimationFrame(show);
  return section("budgets", title,
    make("p", { class: "faint" }, `${facts.sweep} fresh episodes of each seed at each of ${budgets.length} budgets. Move the slider, or use the arrow keys. `
      + "Each bound holds by itself, not all of them at once: a budget that is chosen here has to be certified with other episodes."),
    make("div", { class: "slider" }, make("label", { for: "budget" }, "Budget of an episode", output), input), note, numbers,
    make("div", { class: "grid" }, ...over.map(({ place }) => place[0])),
    scale(unsafe), make("div", { class: "grid wide" }, ...drawn.flatMap(({ plane, time }) => [plane[0], time[0]])),
    ...runs.map((run) => make("details", {}, make("summary", {}, several ? `All budgets: ${run.name}` : "All budgets"), table(run.slider, `budgets-${run.i}`))));
}

function distributions(facts) {
  if (!facts.distributions) return null;
  const figures = facts.distributions.flatMap((one) => {
    const limit = (top) => (one.budget === null ? [] : [{ kind: "limit", data: { x: [one.budget, one.budget], y: [0, top] } }]);
    const [bars, place] = chart(one.title), [below, under] = chart(`${one.title}: this or less`);
    requestAnimationFrame(() => {
      draw(place, { across: one.title.toLowerCase(), along: "share of episodes" }, [
        ...one.runs.map((run, i) => ({ kind: "bars", run: i, data: { left: one.edges.slice(0, -1), right: one.edges.slice(1), top: run.share, bottom: run.share.map(() => 0) } })),
        ...limit(Math.max(...one.runs.flatMap((run) => run.share)))]);
      draw(under, { across: one.title.toLowerCase(), along: "share of episodes" }, [...one.runs.map((run, i) => ({ kind: "steps", run: i, data: { x: run.x, y: run.below } })), ...limit(1)]);
    });
    return [bars, below];
  });
  return section("distributions", "Returns and costs", make("p", { class: "faint" }, "Sums over an episode in the task's own units. Dashed: the budget."),
    legend(facts), make("div", { class: "grid wide" }, ...figures), table(facts.evaluation, "evaluation"), facts.comparison ? table(facts.comparison, "comparison") : null);
}

function curves(facts) {
  facts.curves.forEach((one, i) => draw(places[i], { across: "thousand steps of each seed", along: one.title.toLowerCase() }, [
    ...one.runs.flatMap((run, r) => {
      if (run === null) return [];
      const x = run.step.map((step) => step / 1000);
      return [{ kind: "area", run: r, data: { x, low: known(run.least), high: known(run.greatest) } }, { kind: "line", run: r, data: { x, y: known(run.mean) } }];
    }),
    ...(one.budget === null ? [] : [{ at: one.budget, across: true }])]));
}

function training(facts) {
  const notes = facts.runs.filter((run) => run.curvesNote).map((run) => make("p", { class: "faint" }, run.curvesNote));
  if (!facts.curves.length) return section("training", "Training", ...notes);
  const figures = facts.curves.map((one) => chart(one.title, one.note));
  places = figures.map(([, place]) => place);
  requestAnimationFrame(() => curves(facts));
  return section("training", "Training", make("p", { class: "faint" }, "Lines: mean of the seeds; bands: from the least to the greatest seed. Dashed: the budget."),
    ...notes, legend(facts), make("div", { class: "grid wide" }, ...figures.map(([figure]) => figure)));
}

function films(facts) {
  if (!facts.runs.some((run) => run.film || run.filmNote)) return null;
  return section("films", "Films", make("div", { class: "grid" }, ...facts.runs.map((run) => make("figure", {},
    make("h3", {}, run.name),
    run.film ? make("video", { src: run.film.video, poster: run.film.poster, controls: "", muted: "", loop: "", playsinline: "", "aria-label": run.film.note }) : null,
    run.film ? make("img", { class: "still", src: run.film.still, alt: run.film.note }) : null,
    make("figcaption", {}, run.film ? run.film.note : run.filmNote)))));
}

function certificates(facts) {
  if (!facts.runs.some((run) => run.certificates)) return null;
  return section("certificates", "Certificates", ...facts.runs.map((run, i) => make("article", {}, make("h3", {}, run.name),
    make("p", { class: "verdict" }, `${run.statement}.`),
    ...run.certificates.map((one, k) => table(one, `certificate-${i}-${k}`)),
    listed(run.conditions),
    make("ul", { class: "notes faint" }, ...run.notes.map((note) => make("li", {}, note))))));
}

function render(facts) {
  const focused = document.activeElement?.id;
  charts.clear();
  document.getElementById("report").replaceChildren(
    make("h1", {}, facts.title), make("p", { class: "faint" }, facts.subtitle),
    ...[verdicts, slider, distributions, training, films, certificates].map((one) => one(facts)).filter(Boolean));
  if (focused) document.getElementById(focused)?.focus();
}

// While a training goes on: what it says of itself and its curves move; what was tested anew is shown anew.
async function follow(facts) {
  try {
    const next = await (await fetch("facts.json")).json();
    if (next.tested !== facts.tested || next.curves.length !== facts.curves.length) render(next);
    else curves(next);
    document.querySelectorAll(".status").forEach((one, i) => { if (one.textContent !== next.runs[i].status) one.textContent = next.runs[i].status; });
    facts = next;
  } catch {
    document.querySelectorAll(".status").forEach((one) => { one.textContent = "The server has ended; this is what it showed last."; });
  }
  setTimeout(() => follow(facts), facts.live);
}

const given = JSON.parse(document.getElementById("facts").textContent);
Bokeh.set_log_level("error");
render(given);
if (given.live) setTimeout(() => follow(given), given.live);
