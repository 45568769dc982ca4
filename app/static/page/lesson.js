// The panel of a lesson: predict, run, look, check. It stays while the lesson runs on another tab. Lessons come as the
// property `lessons`; the value says what is asked of the page, as JSON. How far the open one has come is kept with the
// browser's tab, and a page that is loaded anew opens it there. An address names the lesson that is open.
const OPEN_LESSON = "length-lab-lesson", STEPS = ["predict", "run", "look", "check"];
const BEGUN = { predicted: null, reached: "predict", runs: "", verdict: "", answered: false };
// Milliseconds in which a page that is loaded anew takes its run up, if it is still there.
const TAKEN_UP = 10_000;
// Milliseconds that a run's last frame may come after its button is free.
const LATEST = 3000;
let openLesson = () => {}, lessonRun = async (value) => value;
const runLesson = (answer) => lessonRun(answer);
function lesson(element, props, trigger) {
  const root = element.querySelector(".ll-lesson");
  const body = root.querySelector(".ll-steps"), title = root.querySelector("h2");
  // turn: how often something was asked for, or another lesson opened, or the panel closed.
  let shown = null, come = BEGUN, turn = 0, opener = null, cameTo = {}, forced = false, pressed = {};
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
    if (!root.hidden) stored("sessionStorage", OPEN_LESSON, JSON.stringify({ name: shown.name, ...come }));
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
    [shown, come, forced] = [found, before, false];
    turn += 1;
    points(false);
    addressed(name);
    title.textContent = found.title;
    const verdict = made("p", "ll-verdict", come.verdict);
    verdict.setAttribute("role", "status");
    const next = props.lessons[props.lessons.indexOf(found) + 1];
    body.replaceChildren(
      predicting(found.predict),
      step(2, "Run", made("p", "", found.run.words), button("Run it", () => ask({ live: forced })),
        ...(found.seconds ? [button("Show the recorded run", () => ask({ recorded: true }))] : []), made("p", "ll-hint ll-how")),
      step(3, "Look", verdict, made("p", "", found.look), button("Show me where", () => points(true))),
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
    turn += 1;
    stored("sessionStorage", OPEN_LESSON, "");
    points(false);
    addressed(null);
    beside(false);
    (opener?.offsetParent ? opener : document.querySelector("[role=tab][aria-selected=true]"))?.focus();
  }
  function addressed(name) {
    const url = new URL(location.href);
    if (name) url.searchParams.set(LESSON, name); else url.searchParams.delete(LESSON);
    if (url.href !== location.href) history.replaceState(history.state, "", url);
  }
  // What the lesson speaks of stands out, the first of it in sight.
  function points(at) {
    for (const one of document.querySelectorAll(".ll-looked-at")) one.classList.remove("ll-looked-at");
    const found = at ? shown.at.map((place) => document.querySelector(place)).filter((one) => one?.offsetParent) : [];
    for (const one of found) one.classList.add("ll-looked-at");
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    found[0]?.scrollIntoView({ block: "start", behavior: still ? "auto" : "smooth" });
  }
  // how: live, whatever the wait; or recorded. What still runs there is ended first: its last frame would come after.
  async function ask(how = {}) {
    sweeps(false);
    points(false);
    const since = ++turn, running = () => document.querySelector(shown.go)?.disabled;
    if (running()) document.querySelector(shown.stop).click();
    if (!await still(since, () => !running())) return;
    [cameTo, pressed] = [{}, how];
    const { predicted } = come;
    props.value = JSON.stringify({ run: shown.name, turn, number: predicted?.number ?? null, choice: predicted?.index ?? null, ...how });
    trigger("input");
  }

  // Waits until it holds, or until the turn is over; returns whether the turn goes on.
  async function still(since, holds) {
    await until(() => turn !== since || holds());
    return turn === since;
  }
  // No two tabs name their runs alike.
  receives("outcome", (value) => { cameTo = { ...cameTo, ...value }; });
  // What the run came to, by the lesson's first figure; its last frame may come after the button is free.
  async function figure() {
    const { of, what } = shown.figures[0], late = Date.now() + LATEST;
    await still(turn, () => cameTo[of] || Date.now() > late);
    return cameTo[of]?.[what];
  }

  // Presses the tab's own button once it is there, or finds the recorded run there, and goes on to what is to be seen.
  // A run that shows nothing for too long is taken back, and the recorded one takes its place.
  lessonRun = async (answer) => {
    const { turn: since, run: name, recorded } = JSON.parse(answer);
    const { go, run } = props.lessons.find((one) => one.name === name), button = () => document.querySelector(go);
    if (recorded) {
      await still(since, () => button()?.offsetParent);
      await filled();
      formFits(run.tab);
      if (turn !== since) return;
    } else {
      await presses(go, () => turn === since);
      if (!await still(since, () => button().disabled)) return;
      const late = Date.now() + 1000 * props.patience, spared = shown.seconds && !pressed.live;
      if (!await still(since, () => !button().disabled || begun() || (spared && Date.now() > late))) return;
      if (button().disabled && !begun()) {
        ask({ recorded: true, instead: true });
        return;
      }
    }
    says(recorded);
    keeps({ runs: go });
    reach("look");
    points(true);
    await rests(go);
  };
  const begun = () => (shown.run.tab === "long" ? underway : writes);
  function says(recorded) {
    const chosen = pressed.recorded && !pressed.instead;
    forced = recorded && !chosen;
    const made = `This run was recorded before, on two cores; it took ${shown.seconds} s.`;
    const spared = `A run now would wait for more than ${props.patience} s. Press “Run it” to wait.`;
    body.querySelector(".ll-how").textContent = [recorded && made, forced && spared].filter(Boolean).join(" ");
  }
  // Judges the prediction once that button can be pressed again.
  async function rests(go) {
    const since = turn;
    if (!await still(since, () => document.querySelector(go)?.disabled === false)) return;
    const number = await figure();
    if (turn !== since) return;
    keeps({ runs: "", verdict: judged(number) });
    body.querySelector(".ll-verdict").textContent = come.verdict;
    // Some of it shows only once there is something to show.
    if (document.querySelectorAll(".ll-looked-at").length < shown.at.length) points(true);
    reach("check");
  }
  async function goesOn(go) {
    const late = Date.now() + TAKEN_UP;
    if (!await still(turn, () => document.querySelector(go)?.disabled || Date.now() > late)) return;
    // Of a run that is taken up, and not of the one that the browser kept before it.
    if (document.querySelector(go)?.disabled) cameTo = {};
    await rests(go);
  }
  function judged(number) {
    const { predicted } = come, { unit, choices, right } = shown.predict;
    if (predicted?.number != null && number != null) {
      const away = Math.abs(number - predicted.number).toLocaleString("en");
      return `You said ${predicted.number.toLocaleString("en")}; it is ${number.toLocaleString("en")} ${unit}: ${away} away.`;
    }
    if (predicted?.number != null) return `You said ${predicted.number.toLocaleString("en")} ${unit}.`;
    if (!predicted) return "";
    return predicted.index === right ? "Your guess was right." : `Rather: ${choices[right]}.`;
  }

  root.querySelector("[data-act=close]").addEventListener("click", close);
  root.addEventListener("keydown", (event) => { if (event.key === "Escape") { event.stopPropagation(); close(); } });
  openLesson = (name) => show(name);
  const addressee = () => named().get(LESSON);
  const byAddress = () => { if (addressee() && addressee() !== shown?.name) show(addressee()); };
  addEventListener("popstate", byAddress);
  const { name, ...before } = reduced(stored("sessionStorage", OPEN_LESSON)) ?? {};
  if (name && [name, null].includes(addressee())) show(name, { ...BEGUN, ...before });
  byAddress();
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
