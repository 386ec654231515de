// The same load over gRPC. k6 finds the service by reflection.
import grpc from "k6/net/grpc";
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

const client = new grpc.Client();

export default function () {
  if (__ITER === 0) {
    client.connect(__ENV.SERVER, { plaintext: true, reflect: true });
    const health = client.invoke("grpc.health.v1.Health/Check", {});
    odd.add(health.message.status === "SERVING" ? 0 : 1);
  }
  const answer = client.invoke("envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", {
    domain: "shop",
    descriptors: [{ entries: [{ key: "user", value: "alice" }] }],
  });
  const said = answer.message || {};
  const [status] = said.statuses || [{}];
  if (answer.status === grpc.StatusOK && said.overallCode === "OK" && status.code === "OK") {
    admitted.add(1);
  } else if (answer.status === grpc.StatusOK && said.overallCode === "OVER_LIMIT" && status.limitRemaining === 0) {
    refused.add(1);
  } else {
    odd.add(1);
    console.error(JSON.stringify(answer));
  }
  odd.add(0);
}
