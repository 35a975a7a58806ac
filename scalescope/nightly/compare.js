"use strict";
// Fills the table of two nights from the values in this file.
(() => {
  const series = JSON.parse(document.getElementById("values").textContent);
  const [a, b] = ["a", "b"].map((id) => document.getElementById(id));
  const body = document.getElementById("compared");
  const cell = (text) => { const made = document.createElement("td"); made.className = "n"; made.textContent = text; return made; };

  function row({page, name, before, after, change}) {
    const made = document.createElement("tr"), head = document.createElement("th"), link = document.createElement("a");
    head.scope = "row";
    link.href = page;
    link.textContent = name;
    head.append(link);
    const share = change === null ? "–" : `${change < 0 ? "−" : "+"}${Math.abs(100 * change).toFixed(1)}\u00a0%`;
    made.append(head, cell(before ? before[1] : "–"), cell(after ? after[1] : "–"), cell(share));
    return made;
  }
  function show() {
    const rows = series.map(({name, page, values}) => {
      const before = values[a.value], after = values[b.value];
      return {name, page, before, after, change: before && after && before[0] > 0 ? after[0] / before[0] - 1 : null};
    });
    rows.sort((one, other) => Math.abs(other.change ?? 0) - Math.abs(one.change ?? 0));
    body.replaceChildren(...rows.map(row));
  }
  if (b.options.length === 0) return;
  a.selectedIndex = Math.max(0, b.options.length - 2);
  b.selectedIndex = b.options.length - 1;
  for (const each of [a, b]) each.addEventListener("change", show);
  show();
})();
