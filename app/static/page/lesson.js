// The panel of a lesson: predict, run, look, check. It stays while the lesson runs on another tab. Lessons come as the
// property `lessons`; the value says what is asked of the page, as JSON. How far the open one has come is kept with the
// browser's tab, and a page that is loaded anew opens it there.
const LESSON = "length-lab-lesson", STEPS = ["predict", "run", "look", "check"];
const BEGUN = { predicted: null, reached: "predict", runs: "", verdict: "", answered: false };
// Milliseconds in which a page that is loaded anew takes its run up, if it is still there.
const TAKEN_UP = 10_000;
let openLesson = () => {}, lessonRun = async (value) => value;
const runLesson = (...asked) => lessonRun(...asked);
function lesson(element, props, trigger) {
  const root = element.querySelector(".ll-lesson");
  const body = root.querySelector(".ll-steps"), title = root.querySelector("h2");
  let shown = null, come = BEGUN, asked = 0, opener = null;
  const made = (tag, kind, words = "") => Object.assign(document.createElement(tag), { className: kind, textContent: words });

  function step(number, name, ...parts) {
    const section = made("section", "ll-step");
    section.dataset.step = name.toLowerCase();
    section.append(made("h3", "", `${number} ${name}`), ...parts);
    return section;
  }
  function button(words, press) {
    const one = made("button", "", words);
    one.type = "button";
    one.addEventListener("click", () => press(one));
    return one;
  }
  function keeps(change) {
    come = { ...come, ...change };
    if (!root.hidden) stored("sessionStorage", LESSON, JSON.stringify({ name: shown.name, ...come }));
  }
  const upTo = (name) => STEPS.slice(0, STEPS.indexOf(name) + 1);
  function reach(name) {
    for (const part of upTo(name)) body.querySelector(`[data-step=${part}]`).hidden = false;
    keeps({ reached: upTo(come.reached).includes(name) ? come.reached : name });
  }
  function predict(predicted) {
    keeps({ predicted });
    reach("run");
  }

  function predicting({ question, unit, least, most, choices }) {
    if (choices.length) {
      const options = choices.map((words, index) => {
        const option = made("label", "ll-option"), input = Object.assign(made("input", ""), { type: "radio", name: "predicted", value: index });
        input.checked = come.predicted?.index === index;
        option.append(input, ` ${words}`);
        input.addEventListener("change", () => predict({ index }));
        return option;
      });
      return step(1, "Predict", made("p", "", question), ...options);
    }
    const slider = Object.assign(made("input", ""), { type: "range", min: least, max: most, value: come.predicted?.number ?? Math.round((least + most) / 2) });
    slider.setAttribute("aria-label", question);
    const number = made("output", "", `${slider.value} ${unit}`);
    slider.addEventListener("input", () => { number.textContent = `${slider.value} ${unit}`; });
    const settle = button("That is my guess", () => predict({ number: Number(slider.value) }));
    return step(1, "Predict", made("p", "", question), slider, number, settle);
  }

  // before: how far it had come, of one that is opened again.
  function show(name, before = BEGUN) {
    const found = props.lessons.find((one) => one.name === name);
    if (!found) return;
    [shown, come] = [found, before];
    title.textContent = found.title;
    const verdict = made("p", "ll-verdict", come.verdict);
    verdict.setAttribute("role", "status");
    const next = props.lessons[props.lessons.indexOf(found) + 1];
    body.replaceChildren(
      predicting(found.predict),
      step(2, "Run", made("p", "", found.run.words), button("Run it", () => ask())),
      step(3, "Look", verdict, made("p", "", found.look)),
      step(4, "Check", made("p", "", found.check.question), ...answering(found), ...(next ? [button(`Next: ${next.title}`, () => show(next.name))] : [])),
    );
    for (const part of STEPS) body.querySelector(`[data-step=${part}]`).hidden = true;
    if (root.hidden) opener = document.activeElement;
    root.hidden = false;
    reach(come.reached);
    beside(true);
    if (before === BEGUN) title.focus();
  }
  // The answer behind its button, and what it takes away.
  function answering({ check, misconception }) {
    const answer = made("p", "ll-answer", check.answer), wrong = made("p", "ll-hint", `This takes away: ${misconception}`);
    const shows = button("Show the answer", () => {
      keeps({ answered: true });
      reveal();
      answer.focus();
    });
    answer.tabIndex = -1;
    const reveal = () => { [answer.hidden, wrong.hidden, shows.hidden] = [!come.answered, !come.answered, come.answered]; };
    reveal();
    return [shows, answer, wrong];
  }
  // The page makes room for the panel.
  const beside = (open) => element.closest(".contain > *")?.classList.toggle("ll-learning", open);
  function close() {
    root.hidden = true;
    stored("sessionStorage", LESSON, "");
    beside(false);
    (opener?.offsetParent ? opener : document.querySelector("[role=tab][aria-selected=true]"))?.focus();
  }
  function ask() {
    sweeps(false);
    props.value = JSON.stringify({ run: shown.name, asked: ++asked, number: come.predicted?.number ?? null, choice: come.predicted?.index ?? null });
    trigger("input");
  }

  // Presses the tab's own button once it is there, and goes on to what is to be seen when it rests again.
  lessonRun = async (value, buttons) => {
    const go = buttons[shown.run.tab];
    await presses(go);
    await until(() => document.querySelector(go).disabled);
    keeps({ runs: go });
    reach("look");
    await rests(go);
    return value;
  };
  // Judges the prediction once that button can be pressed again, unless another lesson was opened meanwhile.
  async function rests(go) {
    const { name } = shown;
    await until(() => document.querySelector(go)?.disabled === false);
    if (shown.name !== name) return;
    keeps({ runs: "", verdict: judged() });
    body.querySelector(".ll-verdict").textContent = come.verdict;
    reach("check");
  }
  async function goesOn(go) {
    const busy = until(() => document.querySelector(go)?.disabled);
    await Promise.race([busy, new Promise((resolve) => setTimeout(resolve, TAKEN_UP))]);
    await rests(go);
  }
  function judged() {
    const { predicted } = come, { unit, choices, right } = shown.predict;
    const found = shown.run.result && document.querySelector(shown.run.result)?.textContent.match(/[\d,]+/)?.[0];
    if (predicted?.number != null && found) {
      const number = Number(found.replaceAll(",", ""));
      const away = Math.abs(number - predicted.number).toLocaleString("en");
      return `You said ${predicted.number.toLocaleString("en")}; it is ${number.toLocaleString("en")} ${unit}: ${away} away.`;
    }
    if (predicted?.number != null) return `You said ${predicted.number.toLocaleString("en")} ${unit}.`;
    return predicted.index === right ? "Your guess was right." : `Rather: ${choices[right]}.`;
  }

  root.querySelector("[data-act=close]").addEventListener("click", close);
  root.addEventListener("keydown", (event) => { if (event.key === "Escape") { event.stopPropagation(); close(); } });
  openLesson = (name) => show(name);
  const { name, ...before } = reduced(stored("sessionStorage", LESSON)) ?? {};
  if (name) show(name, { ...BEGUN, ...before });
  if (shown && come.runs) goesOn(come.runs);
}
document.addEventListener("click", (event) => {
  const name = event.target.closest("[data-lesson]")?.dataset.lesson;
  if (name) openLesson(name);
  const part = event.target.closest("[data-print]")?.dataset.print;
  if (!part) return;
  document.body.dataset.printed = part;
  window.addEventListener("afterprint", () => delete document.body.dataset.printed, { once: true });
  window.print();
});
