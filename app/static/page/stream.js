// What a stream brings, by name: kept until the component of that name is there, then handed to it.
const receivers = new Map(), kept = new Map();
let underway = false;
function deliver(name, value, running = false) {
  const receive = receivers.get(name);
  if (receive) receive(value, running); else kept.set(name, value);
}
function receives(name, receive, props, watch) {
  receivers.set(name, receive);
  const own = () => { const value = reduced(props?.value); if (value) receive(value, false, true); };
  watch?.("value", own);
  if (kept.has(name)) { receive(kept.get(name), false); kept.delete(name); } else own();
}
// Hands out frames: one that Gradio brings, or those of the stream it names, until it brings the last one.
function stream(props, watch) {
  let source = null;
  function hand({ parts, texts, running }) {
    underway = running;
    for (const [name, value] of Object.entries({ ...texts, ...parts })) deliver(name, value, running);
  }
  function receive() {
    const value = reduced(props.value);
    source?.close();
    source = value?.follow ? new EventSource(`lab/frames/${value.follow}`) : null;
    if (source) source.onmessage = (event) => hand(JSON.parse(event.data));
    else if (value) hand(value);
  }
  watch("value", receive);
  receive();
}
