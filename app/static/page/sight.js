// What each way of reading has lost of a text: the value is [{name, pieces: [[text, whether it is
// seen], …], lost, read}, …].
function lostOf(lost, read) {
  const number = (count) => count.toLocaleString("en-US");
  return lost ? `${number(lost)} of ${number(read)} tokens lost` : `all ${number(read)} tokens seen`;
}
function sight(element, props, watch) {
  const root = element.querySelector(".ll-sight");
  const made = (tag, ...parts) => { const node = document.createElement(tag); node.append(...parts); return node; };
  function receive(ways) {
    root.hidden = !ways.length;
    root.querySelector("dl").replaceChildren(...ways.map(({ name, pieces, lost, read }) => {
      const text = made("dd", ...pieces.map(([words, seen]) => made(seen ? "mark" : "s", words)));
      text.tabIndex = 0;
      return made("div", made("dt", name, made("b", lostOf(lost, read))), text);
    }));
  }
  receives(root.dataset.name, receive, props, watch);
}
