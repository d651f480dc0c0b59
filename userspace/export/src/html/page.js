"use strict";
// Sorting by a click on a column's head, and a filter above each table.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const key = (row, at) => {
    const cell = row.cells[at];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  [...table.tHead.rows[0].cells].forEach((head, at) => {
    head.addEventListener("click", () => {
      const down = !head.classList.contains("down");
      for (const other of table.tHead.rows[0].cells) other.className = "";
      head.className = down ? "down" : "up";
      rows.sort((one, two) => compare(key(one, at), key(two, at)) * (down ? -1 : 1));
      body.append(...rows);
    });
  });
  const filter = document.createElement("input");
  filter.className = "filter";
  filter.placeholder = "filter";
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
  table.parentElement.querySelector("h2").append(filter);
}
// The time below the pointer.
const lanes = document.querySelector("#timeline svg");
if (lanes) {
  const line = lanes.querySelector(".cursor");
  const label = lanes.querySelector(".now");
  const left = Number(lanes.dataset.left);
  const width = Number(lanes.dataset.width);
  const [from, to] = [Number(lanes.dataset.from), Number(lanes.dataset.to)];
  lanes.addEventListener("mousemove", (event) => {
    const box = lanes.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * lanes.viewBox.baseVal.width;
    const share = Math.min(1, Math.max(0, (x - left) / width));
    line.setAttribute("x1", left + share * width);
    line.setAttribute("x2", left + share * width);
    label.setAttribute("x", left + share * width + 4);
    label.textContent = (from + share * (to - from)).toFixed(3) + " s";
  });
}
