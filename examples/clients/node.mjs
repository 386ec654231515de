// Asks Tollgate before some work, waits as Retry-After says, and gives the place back: node node.mjs KEY
import { setTimeout as sleep } from "node:timers/promises";

const tollgate = process.env.TOLLGATE_URL ?? "http://127.0.0.1:8080";
const post = (path, body) =>
  fetch(tollgate + path, { method: "POST", body: JSON.stringify(body), signal: AbortSignal.timeout(2000) });

let answer, verdict;
for (let attempt = 0; attempt < 5; attempt++) {
  answer = await post("/v1/acquire", { key: process.argv[2] });
  verdict = await answer.json();
  const retryAfter = answer.headers.get("retry-after");
  if (answer.status === 200 || retryAfter === null) break; // without Retry-After waiting does not help
  console.log("denied by", verdict.limit, "- waiting", retryAfter, "s");
  await sleep(retryAfter * 1000);
}

if (answer.status !== 200) {
  console.error("denied:", verdict.detail);
  process.exit(1);
}
await sleep(verdict.wait_ms);
try {
  console.log("the work is done");
} finally {
  if (verdict.ticket) await post("/v1/release", { ticket: verdict.ticket }); // limits on work in flight give one
}
