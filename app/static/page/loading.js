// Gradio's sign that the page is loading goes on asking for pictures after it is gone, sixty a second for as long as
// the page is open, and each costs a layout. Requests are numbered: where for half a second each picture brings one
// besides the one made here, and that is not the charts' own, it is the sign's, and is taken back.
let drawing = 0;
function hush(pictures, number, steady) {
  const next = requestAnimationFrame(() => hush(pictures - 1, next, alone ? steady + 1 : 0));
  const alone = next - number === 2 && drawing !== number + 1;
  const found = alone && steady >= 30;
  if (found) cancelAnimationFrame(number + 1);
  if (found || !pictures) cancelAnimationFrame(next);
}
hush(1800, 0, 0);
