// Many concurrent users on one key. k6 counts the admissions independently of the server.
import http from "k6/http";
import { Counter } from "k6/metrics";

const admitted = new Counter("admitted");
const refused = new Counter("refused");
const odd = new Counter("odd");

export const options = {
  scenarios: { crowd: { executor: "shared-iterations", vus: 20, iterations: 2000, maxDuration: "2m" } },
  // A run that breaks one of these ends with an error.
  thresholds: {
    admitted: [`count==${__ENV.LIMIT}`],
    refused: [`count==${2000 - __ENV.LIMIT}`],
    odd: ["count==0"],
  },
};

export default function () {
  const question = JSON.stringify({ attributes: { ip: "192.0.2.7" }, cost: 1 });
  const answer = http.post(`http://${__ENV.SERVER}/v1/check`, question);
  const said = answer.json();
  const policy = answer.headers["Ratelimit-Policy"] || "";
  if (answer.status === 200 && said.allowed && policy.includes('"per-address"')) {
    admitted.add(1);
  } else if (answer.status === 429 && !said.allowed && Number(answer.headers["Retry-After"]) > 0) {
    refused.add(1);
  } else {
    odd.add(1);
    console.error(`${answer.status} ${answer.body}`);
  }
  odd.add(0);
}
