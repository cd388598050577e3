// A copy button of a console block copies the commands, not the prompt or what they print.
"use strict";
document.addEventListener("click", (event) => {
  const button = event.target.closest(".md-clipboard, [data-clipboard-target]");
  const block = button && button.closest(".language-console");
  if (!block) return;
  const commands = [];
  let continues = false;
  for (const line of block.querySelector("code").textContent.split("\n")) {
    if (continues || line.startsWith("$ ")) {
      commands.push(continues ? line : line.slice(2));
      continues = line.endsWith("\\");
    }
  }
  event.preventDefault();
  event.stopImmediatePropagation();
  navigator.clipboard.writeText(commands.join("\n"));
}, true);
