// A page that reads an event stream and a WebSocket, and reports what it got. Must not know: that a gateway is in front.
import { createHash } from "node:crypto";
import { createServer } from "node:http";

const PAGE = `<!doctype html><script>
const events = new Promise((done) => {
  const seen = [], source = new EventSource("/events");
  source.onmessage = (event) => {
    seen.push(event.data);
    if (seen.length === 3) { source.close(); done(seen.join(",")); }
  };
});
const echo = new Promise((done) => {
  const socket = new WebSocket("ws://" + location.host + "/echo");
  socket.onopen = () => socket.send("hello");
  socket.onmessage = (event) => { socket.close(); done(event.data); };
});
Promise.all([events, echo]).then(([events, echo]) =>
  fetch("/report", { method: "POST", body: "events " + events + " echo " + echo }));
</script>`;

const server = createServer((request, response) => {
  if (request.url === "/events") {
    response.writeHead(200, { "content-type": "text/event-stream" });
    let number = 0;
    const send = () => {
      number += 1;
      response.write(`data: ${number}\n\n`);
      // The stream stays open: the page must get each event at once.
      if (number < 3) setTimeout(send, 10);
    };
    send();
  } else if (request.url === "/report") {
    request.setEncoding("utf8").on("data", (text) => console.log(`report: ${text}`));
    request.on("end", () => response.end());
  } else {
    response.setHeader("content-type", "text/html");
    response.end(PAGE);
  }
});

// RFC 6455: one masked text frame in, the same text out.
server.on("upgrade", (request, socket) => {
  const key = request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  const accept = createHash("sha1").update(key).digest("base64");
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
  );
  socket.on("error", () => socket.destroy()).on("end", () => socket.end());
  socket.once("data", (frame) => {
    const length = frame[1] & 0x7f;
    const mask = frame.subarray(2, 6);
    const text = frame.subarray(6, 6 + length).map((byte, at) => byte ^ mask[at % 4]);
    socket.write(Buffer.concat([Buffer.from([0x81, length]), text]));
  });
});

server.listen(Number(process.argv[2]), "127.0.0.1", () => console.log("listening"));
