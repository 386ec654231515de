"""grpcio as a plain client: messages by hand, a description by reflection, health, deadlines and many calls at once."""
import sys
import threading

import grpc

ADDRESS = sys.argv[1]
ASK = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(data):
    """A message as a list of (number, value)."""
    found, at = [], 0

    def number():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            found.append((tag >> 3, number()))
        else:
            assert tag & 7 == 2, tag
            length = number()
            found.append((tag >> 3, data[at : at + length]))
            at += length
    return found


def request(user, hits=None):
    entry = field(1, b"user") + field(2, user.encode())
    descriptor = field(1, entry)
    if hits is not None:
        descriptor += field(3, field(1, hits) if hits else b"")
    return field(1, b"edge") + field(2, descriptor)


def overall(response):
    return dict(fields(response))[1]


channel = grpc.insecure_channel(ADDRESS)
ask = channel.unary_unary(ASK)

# Ten an hour for each user.
codes = [overall(ask(request("alice"), timeout=30)) for _ in range(12)]
assert codes == [1] * 10 + [2] * 2, codes
assert overall(ask(request("bob", 0), timeout=30)) == 1
response, call = ask.with_call(request("bob", 4), timeout=30)
status = dict(fields(dict(fields(response))[2]))
assert status[1] == 1 and status[3] == 6, status
assert call.code() == grpc.StatusCode.OK
headers = [dict(fields(value)) for number, value in fields(response) if number == 3]
assert {header[1] for header in headers} >= {b"ratelimit", b"ratelimit-policy"}, headers

# What makes no sense is said so, and the channel goes on.
for wrong in (b"", b"\xff\xff", field(1, b"edge")):
    try:
        ask(wrong, timeout=30)
        raise SystemExit("no error")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
        assert error.details(), error
try:
    ask(b"x" * 70_000, timeout=30)
    raise SystemExit("no error")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
try:
    channel.unary_unary("/no.such.Service/Method")(b"", timeout=30)
    raise SystemExit("no error")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error
# A client that compresses is told to send it as it is.
try:
    compressing = grpc.insecure_channel(ADDRESS, compression=grpc.Compression.Gzip)
    compressing.unary_unary(ASK)(request("carl" * 100), timeout=30)
    raise SystemExit("no error")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error

# Health: checked, and watched until the client has seen enough.
check = channel.unary_unary("/grpc.health.v1.Health/Check")
assert check(field(1, b"ratelimit"), timeout=30) == b"\x08\x01"
watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=30)
assert next(watch) == b"\x08\x01"
watch.cancel()

# Reflection: services by name, and files whose messages are as they should be.
reflect = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
symbol = b"envoy.service.ratelimit.v3.RateLimitService"
answers = [dict(fields(answer)) for answer in reflect(iter([field(7, b""), field(4, symbol)]), timeout=30)]
names = [dict(fields(service))[1] for _, service in fields(answers[0][6])]
assert symbol in names and b"grpc.health.v1.Health" in names, names
files = [dict(fields(file))[1] for _, file in fields(answers[1][4])]
assert files[0] == b"envoy/service/ratelimit/v3/rls.proto" and len(files) == 8, files

# Many at once, over several connections: exactly the limit is admitted.
admitted = []


def crowd():
    mine = grpc.insecure_channel(ADDRESS, options=[("grpc.use_local_subchannel_pool", 1)])
    calls = [mine.unary_unary(ASK).future(request("crowd"), timeout=30) for _ in range(100)]
    admitted.append(sum(overall(call.result()) == 1 for call in calls))


threads = [threading.Thread(target=crowd) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert sum(admitted) == 10, admitted
print("fine")
