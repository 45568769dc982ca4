// Named figures in a strip: the value is {field: text, …, state, message}.
function figures(element, props, watch) {
  const root = element.querySelector(".ll-figures");
  const message = root.querySelector(".ll-message");
  const fields = [...root.querySelectorAll("[data-field]")];
  const bar = root.querySelector(".ll-progress > i");
  const write = (node, words) => { if (node.textContent !== words) node.textContent = words; };
  function receive(value) {
    for (const field of fields) write(field, value[field.dataset.field] ?? "–");
    root.dataset.state = value.state ?? "";
    bar.style.transform = `scaleX(${Math.min(1, value.progress ?? 0)})`;
    write(message, value.message ?? "");
  }
  receives(root.dataset.name, receive, props, watch);
}

// What several ways to read wrote: the value is [[name, text, verdict], …].
function answers(element, props, watch) {
  const root = element.querySelector(".ll-answers");
  const made = (tag, words) => Object.assign(document.createElement(tag), { textContent: words });
  function receive(rows) {
    root.querySelector(".ll-hint").hidden = rows.length > 0;
    root.querySelector("dl").replaceChildren(...rows.map(([name, words, verdict]) => {
      const title = made("dt", name);
      if (verdict) title.append(made("b", verdict));
      const answer = made("div", "");
      answer.append(title, made("dd", words));
      return answer;
    }));
  }
  receives(root.dataset.name, receive, props, watch);
}
