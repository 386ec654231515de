// Many concurrent users of a service behind the gateway. k6 counts the admissions independently of the server.
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
  const answer = http.get(`http://${__ENV.SERVER}/page`);
  if (answer.status === 200 && answer.body.startsWith("GET /page HTTP/1.1")) {
    admitted.add(1);
  } else if (answer.status === 429 && Number(answer.headers["Retry-After"]) > 0) {
    refused.add(1);
  } else {
    odd.add(1);
    console.error(`${answer.status} ${answer.body}`);
  }
  odd.add(0);
}
