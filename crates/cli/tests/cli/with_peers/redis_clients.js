// The Redis clients of Node.js: node-redis with RESP2 and RESP3, and ioredis.
"use strict";

const assert = require("node:assert/strict");
const { createClient } = require("redis");
const Redis = require("ioredis");

const port = Number(process.argv[2]);

// 1,000 pipelined commands, of which 100 are admitted.
function count(answers) {
  assert.equal(answers.length, 1000);
  assert.deepEqual(answers[0], [0, 100, 99, -1, 60]);
  assert.equal(answers.filter((answer) => answer[0] === 0).length, 100);
  const refused = answers.filter((answer) => answer[0] === 1);
  assert.equal(refused.length, 900);
  assert.ok(refused.every((answer) => answer[3] > 0), "a wait on every refusal");
}

async function nodeRedis(RESP) {
  const client = createClient({ socket: { host: "127.0.0.1", port }, RESP, name: "test" });
  client.on("error", (error) => { throw error; });
  await client.connect();
  assert.equal(await client.ping(), "PONG");
  assert.equal(await client.clientGetName(), "test");
  const many = Array.from({ length: 1000 }, () => client.sendCommand(["CL.THROTTLE", `node${RESP}`, "99", "1", "60"]));
  count(await Promise.all(many));
  await assert.rejects(client.sendCommand(["CL.THROTTLE", "a", "x", "1", "60"]), /parse as integer: x/);
  await assert.rejects(client.sendCommand(["SET", "a", "b"]), /unknown command/);
  const verdict = await client.sendCommand(["TG.CHECK", "ip", `192.0.2.${RESP}`]);
  const text = JSON.stringify(verdict);
  assert.ok(text.includes("per-address"), text);
  await client.close();
}

async function ioredis() {
  const client = new Redis({ host: "127.0.0.1", port, connectionName: "test", maxRetriesPerRequest: 0 });
  assert.equal(await client.ping(), "PONG");
  const pipeline = client.pipeline();
  for (let index = 0; index < 1000; index += 1) {
    pipeline.call("CL.THROTTLE", "ioredis", "99", "1", "60");
  }
  const answers = await pipeline.exec();
  assert.ok(answers.every(([error]) => error === null));
  count(answers.map(([, answer]) => answer));
  assert.deepEqual(await client.call("GCRA", "ioredis", "1", "1", "0.5"), [0, 2, 1, -1, 1]);
  await assert.rejects(client.call("CL.THROTTLE", "a", "x", "1", "60"), /parse as integer: x/);
  await client.quit();
}

(async () => {
  await nodeRedis(2);
  await nodeRedis(3);
  await ioredis();
  console.log("fine");
})();
