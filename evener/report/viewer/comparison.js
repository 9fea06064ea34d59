// Sorting by a column: once upwards, again downwards.
function keyOf(row, column) {
  const cell = row.cells[column];
  return cell.dataset.key === undefined ? cell.textContent : Number(cell.dataset.key);
}

function sortBy(table, column) {
  const headings = [...table.tHead.rows[0].cells];
  const downwards = headings[column].ariaSort === "ascending";
  for (const heading of headings) heading.removeAttribute("aria-sort");
  headings[column].ariaSort = downwards ? "descending" : "ascending";
  const rows = [...table.tBodies[0].rows];
  rows.sort((one, other) => {
    const [a, b] = [keyOf(one, column), keyOf(other, column)];
    return (a < b ? -1 : a > b ? 1 : 0) * (downwards ? -1 : 1);
  });
  table.tBodies[0].append(...rows);
}

for (const table of document.querySelectorAll("table")) {
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => sortBy(table, column));
  });
}
