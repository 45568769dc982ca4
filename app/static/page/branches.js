// Answers that branch from one another, as radio buttons in a tree. The value is {answers: [[name, the name of the one that
// it left], …], shown}, as JSON; an empty one stands below an answer that has no branches.
function branches(element, props, trigger, watch) {
  const root = element.querySelector(".ll-branches"), list = root.querySelector("ul");
  const made = (tag, parts) => {
    const node = document.createElement(tag);
    node.append(...parts);
    return node;
  };
  let drawn = "";

  function option(name) {
    const input = Object.assign(document.createElement("input"), { type: "radio", name: "branch", value: name, disabled: underway });
    input.addEventListener("change", () => {
      if (underway) { receive(); return; }
      props.value = JSON.stringify({ ...reduced(props.value), shown: name });
      trigger("input");
    });
    return made("label", [input, made("span", [name])]);
  }
  function below(answers, parent) {
    return answers.filter(([, left]) => left === parent).map(([name]) => {
      const own = below(answers, name);
      return made("li", [option(name), ...(own.length ? [made("ul", own)] : [])]);
    });
  }
  function receive() {
    const { answers = [], shown = "" } = reduced(props.value) ?? {};
    root.hidden = answers.length < 2;
    if (drawn !== JSON.stringify(answers)) list.replaceChildren(...below(answers, null));
    drawn = JSON.stringify(answers);
    for (const input of list.querySelectorAll("input")) input.checked = input.value === shown;
  }
  watch("value", receive);
  receive();
}
