"use strict";
// Sorts a table by the column whose heading was pressed; missing values stay at the end.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const first = [...body.rows];
  const key = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.value === undefined) return cell.textContent;
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  };
  const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const numeric = head.classList.contains("number");
      const order = { none: numeric ? "descending" : "ascending", ascending: numeric ? "none" : "descending", descending: numeric ? "ascending" : "none" };
      const next = order[head.getAttribute("aria-sort")];
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", next);
      const sign = next === "descending" ? -1 : 1;
      const rows = next === "none" ? first : [...first].sort((x, y) => {
        const a = key(x, column), b = key(y, column);
        if (a === null || b === null) return (a === null) - (b === null);
        return sign * compare(a, b);
      });
      body.append(...rows);
    });
  });
  table.classList.add("ready");
}
// What is folded on the screen is printed.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
// A link to a collapsed section opens it.
const unfold = () => {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folded = target && target.querySelector(":scope > details.empty");
  if (folded) folded.open = true;
};
addEventListener("hashchange", unfold);
unfold();
// A button that copies a command; without clipboard it selects the text, as a click on it does.
for (const block of document.querySelectorAll(".again pre, .about pre")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "copy";
  button.addEventListener("click", async () => {
    const code = block.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "selected";
    }
    setTimeout(() => { button.textContent = "copy"; }, 2000);
  });
  block.prepend(button);
}
