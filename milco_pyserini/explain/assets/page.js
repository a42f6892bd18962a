// A term that is pressed shows where it came from: its marks in both texts of its article are outlined.
for (const article of document.querySelectorAll("article")) {
  const buttons = [...article.querySelectorAll("button.term")];
  const marks = [...article.querySelectorAll("mark")];
  const show = (part) => {
    for (const mark of marks) mark.classList.toggle("on", part !== null && mark.dataset.parts.split(" ").includes(part));
    for (const button of buttons) {
      const on = button.dataset.part === part;
      button.setAttribute("aria-pressed", String(on));
      button.closest("tr").classList.toggle("on", on);
    }
  };
  for (const button of buttons) {
    button.addEventListener("click", () => show(button.getAttribute("aria-pressed") === "true" ? null : button.dataset.part));
  }
  article.addEventListener("keydown", (event) => { if (event.key === "Escape") show(null); });
}
