"use strict";
// Draws every chart from the data in the page, one after the other, so that the page answers while it is drawing.
const data = JSON.parse(document.getElementById("data").textContent);

function rowsOf(name) {
  const { fields, rows } = data.tables[name];
  return rows.map((row) => Object.fromEntries(fields.map((field, i) => [field, row[i]])));
}

async function draw(element) {
  const rows = rowsOf(element.dataset.table).concat(element.dataset.also ? rowsOf(element.dataset.also) : []);
  const spec = { ...data.specs[element.dataset.spec], datasets: { rows } };
  // ast: expressions are interpreted, so that the page needs no right to make code from text
  const options = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, tooltip: { theme: "page" } };
  await vegaEmbed(element, spec, options);
}

async function drawAll() {
  for (const element of document.querySelectorAll(".chart")) {
    await draw(element);
    await new Promise((resolve) => setTimeout(resolve));
  }
  document.documentElement.dataset.drawn = "yes";
}

function fillPairs(details) {
  const body = details.querySelector("tbody");
  if (body.rows.length) return;
  for (const p of rowsOf("pairs").slice(Number(details.dataset.shown))) {
    const row = body.insertRow();
    const figure = (value) => (value === null ? "–" : Number(value.toPrecision(3)).toString());
    const association = (value) => (value === null ? "–" : value.toFixed(2));
    const both = (p) => association(p.real) + " → " + association(p.synthetic);
    for (const text of [p.a, p.b, p.cells.toLocaleString("en"), figure(p.l1), figure(p.consistent), both(p), p.cause]) {
      row.insertCell().textContent = text;
    }
    row.cells[0].className = row.cells[1].className = "name";
    for (const i of [2, 3, 4, 5]) row.cells[i].className = "num";
    const cause = document.createElement("span");
    cause.className = "cause " + p.cause.replace(" ", "-");
    cause.textContent = p.cause;
    row.cells[6].replaceChildren(cause);
  }
}

document.getElementById("more-pairs")?.addEventListener("toggle", (event) => fillPairs(event.target));
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
drawAll();
