"use strict";
// Draws the charts from the data in this page, in the style sheet's colours, and shows in words what is under the cursor.
(async () => {
  const data = JSON.parse(document.getElementById("charts").textContent);
  if (data.items.length === 0) return;
  await Bokeh.embed.embed_items(data.documents, data.items);
  const page = Bokeh.documents[Bokeh.documents.length - 1];
  const model = (id) => page.get_model_by_id(id), named = (name) => page.get_model_by_name(name);

  // The keyboard skips the parts of a chart: controls, tables and texts tell what it shows.
  function unreachable(root) {
    for (const element of root.querySelectorAll("*")) {
      if (element.tabIndex >= 0) element.tabIndex = -1;
      if (element.shadowRoot) unreachable(element.shadowRoot);
    }
  }
  document.querySelectorAll(".chart").forEach(unreachable);

  // ---- colours
  const rgb = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
  const hex = (parts) => "#" + parts.map((part) => Math.round(part).toString(16).padStart(2, "0")).join("");
  const between = (low, high, steps) => {
    const [a, b] = [rgb(low), rgb(high)];
    return Array.from({length: steps}, (_, i) => hex(a.map((part, c) => part + (b[c] - part) * i / (steps - 1))));
  };
  function paint() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue("--" + name).trim();
    for (const [id, property, name] of data.paints) {
      const value = !Array.isArray(name) ? colour(name)
        : name.length === 2 ? between(colour(name[0]), colour(name[1]), 64) : name.map(colour);
      const glyph = model(id);
      glyph.setv({[property]: property.endsWith("color") && glyph.type !== undefined && glyph[property] !== null
        && typeof glyph[property] === "object" && "value" in glyph[property] ? {value} : value});
    }
  }
  paint();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);

  // ---- one trial: time axis and cursor
  const reading = data.reading;
  if (reading.figures === undefined) return;
  const range = named("time"), first = reading.begin, whole = reading.end - first;
  const controls = document.getElementById("controls"), slider = document.getElementById("cursor");
  const output = document.getElementById("reading");
  const cursors = reading.figures.map((name) => named(`cursor-${name}`));
  const columns = (name) => named(name).data;
  const number = (value) => value.toLocaleString("en", {maximumSignificantDigits: 4});
  const count = (value, noun) => `${value.toLocaleString("en")} ${noun}${value === 1 ? "" : "s"}`;

  function show(begin, end) {
    const width = Math.min(Math.max(end - begin, whole / 1e6), whole);
    const from = Math.min(Math.max(begin, first), reading.end - width);
    range.setv({start: from, end: from + width});
  }
  const zooms = {
    in: (a, b, w) => show(a + w / 4, b - w / 4),
    out: (a, b, w) => show(a - w / 2, b + w / 2),
    back: (a, b, w) => show(a - w / 2, b - w / 2),
    on: (a, b, w) => show(a + w / 2, b + w / 2),
    all: () => show(first, reading.end),
  };
  controls.addEventListener("click", (event) => {
    const how = event.target.dataset.zoom;
    if (how) { zooms[how](range.start, range.end, range.end - range.start); place(); }
  });

  // Index of the last of the elements `from` to `to` that is at most `value`; these elements ascend.
  function last(values, value, from = 0, to = values.length) {
    while (from < to) { const middle = (from + to) >> 1; if (values[middle] <= value) from = middle + 1; else to = middle; }
    return from - 1;
  }
  function at(time) {
    if (time < 0 || time > reading.makespan) return `At ${number(time)} s: no task runs.`;
    const level = (name) => { const it = columns(name); return it.level[Math.max(last(it.time, time), 0)]; };
    let text = `At ${number(time)} s: ${count(level("provisioned"), "thread")} there, `
      + `${count(level("runnable"), "task")} runnable, ${level("running").toLocaleString("en")} running`;
    if (named("memory")) {
      const it = columns("memory"), i = Math.max(last(it.time, time), 0);
      text += `; ${number(it.rss[i])} GiB resident, ${number(it.spilled[i])} GiB spilled`;
    }
    return text + ".";
  }
  function worker(row) {
    const each = reading.workers_per_row, top = row * each, end = Math.min(top + each, reading.workers.length);
    return each === 1 ? reading.workers[top] : `${end - top} workers from ${reading.workers[top]} on`;
  }
  function busy(time, row) {
    const image = columns("heat").image[0], [height, width] = image.shape;
    if (row < 0 || row >= height || time < 0 || time > reading.makespan) return "";
    const column = Math.min(Math.floor(time / reading.makespan * width), width - 1);
    return `${worker(row)}: ${Math.round(image[row * width + column] / 2.55)} % busy.`;
  }
  function charged(time, threads) {
    const it = columns("blame"), i = Math.min(last(it.time, time), it.time.length - 2);
    const found = reading.charges.findIndex((_, n) => threads < it[`top${n + 1}`][i]);
    if (threads < 0 || found < 0) return "";
    const [what, seconds, share] = reading.charges[found], here = it[`top${found + 1}`][i] - it[`top${found}`][i];
    return `${what}: ${number(here)} threads; in all ${number(seconds)} thread-seconds, ${share} of the worker time.`;
  }
  function bar(time, row) {
    if (row < 0 || row >= reading.rows.length) return "";
    const it = columns("bars"), name = reading.workers[reading.rows[row]];
    const from = last(it.row, row - 1) + 1, to = last(it.row, row) + 1, i = last(it.left, time, from, to);
    if (i < from || it.right[i] < time) return `${name}: no task.`;
    const many = it.count && it.count[i] > 1 ? `${count(it.count[i], "task")}, mostly of ` : "";
    return `${name}: ${many}${reading.stages[it.stage[i]]}, ${number(it.left[i])} to ${number(it.right[i])} s.`;
  }
  function point(time, more) {
    for (const cursor of cursors) cursor.setv({location: time, visible: true});
    output.textContent = at(time) + (more ? "\n" + more : "");
  }
  function place() { slider.value = String(Math.round(1000 * (cursors[0].location - range.start) / (range.end - range.start))); }
  slider.addEventListener("input", () => point(range.start + (range.end - range.start) * slider.value / 1000, ""));
  for (const name of reading.figures) {
    const figure = named(`figure-${name}`);
    figure.on_event("mousemove", (event) => {
      if (event.x < first || event.x > reading.end) return;
      const row = Math.round(event.y), say = {heat: busy, gantt: bar, blame: (time) => charged(time, event.y)}[name];
      point(event.x, say ? say(event.x, row) : "");
      place();
    });
    figure.on_event("doubletap", () => show(first, reading.end));
  }
  controls.hidden = false;
})();
