"""Asks Tollgate before some work, waits as Retry-After says, and gives the place back: python3 python.py KEY"""
import json, os, sys, time, urllib.error, urllib.request

def post(path, **body):
    url = os.environ.get("TOLLGATE_URL", "http://127.0.0.1:8080") + path
    try:
        return urllib.request.urlopen(url, json.dumps(body).encode(), timeout=2)
    except urllib.error.HTTPError as denial:  # 429, 403 and 503 are answers too
        return denial

for attempt in range(5):
    answer = post("/v1/acquire", key=sys.argv[1])
    verdict = json.load(answer)
    retry_after = answer.headers["retry-after"]
    if answer.status == 200 or retry_after is None:  # without Retry-After waiting does not help
        break
    print("denied by", verdict["limit"], "- waiting", retry_after, "s")
    time.sleep(int(retry_after))

if answer.status != 200:
    sys.exit("denied: " + verdict["detail"])
time.sleep(verdict["wait_ms"] / 1000)
try:
    print("the work is done")
finally:
    if verdict["ticket"]:  # limits on work in flight give one
        post("/v1/release", ticket=verdict["ticket"])
