// The page can be read without this: Escape, or a click elsewhere, closes the cell that is open.
const close = () => {
  for (const cell of document.querySelectorAll("td details[open]")) {
    const held = cell.contains(document.activeElement);
    cell.open = false;
    if (held) cell.querySelector("summary").focus();
  }
};
document.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
document.addEventListener("click", (event) => { if (!event.target.closest("td details")) close(); });
