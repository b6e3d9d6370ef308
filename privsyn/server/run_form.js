// Says beside the button of a run form what is missing or wrong: Prefect's page says it beside each field only, pages above.
new MutationObserver(() => {
  for (const footer of document.querySelectorAll("form .p-form__footer")) {
    const failed = [...footer.closest("form").querySelectorAll(".p-label__message--failed")];
    const missing = [], wrong = [];
    for (const message of failed) {
      const label = message.closest(".p-label").querySelector(".p-label__text, .schema-form-property__label");
      const name = label ? label.innerText.replace("(Optional)", "").trim() : "";
      if (message.innerText.includes("is a required property")) missing.push(name);
      else wrong.push(`${name}: ${message.innerText}`);
    }
    const text = [...(missing.length ? [`Missing: ${missing.join(", ")}`] : []), ...wrong].join("; ");
    let line = footer.querySelector(".privsyn-errors");
    if (!line && text) {
      line = document.createElement("button");
      line.type = "button";
      line.className = "privsyn-errors";
      line.style.cssText = "margin-right: auto; text-align: left; color: #f87171; font-size: 0.875rem";
      line.onclick = () =>
        footer.closest("form").querySelector(".p-label__message--failed")?.scrollIntoView({ block: "center" });
      footer.prepend(line);
    }
    if (line && line.textContent !== text) line.textContent = text;
  }
}).observe(document, { childList: true, subtree: true, characterData: true });
