-- Asks Tollgate about each request and refuses the request if Tollgate denies it.

local URL = "http://127.0.0.1:8080/auth/haproxy"
-- Timeout of the call to Tollgate, in milliseconds. Add the longest `wait` of the policy.
local TIMEOUT = 1000
-- Whether to admit requests while Tollgate does not answer.
local OPEN = false

-- Header fields of a refusal that are copied to the client.
local SHOWN = { "content-type", "cache-control", "retry-after", "ratelimit", "ratelimit-policy" }

-- Header fields of the client's connection or body. They are not sent to Tollgate.
local DROPPED = {
  ["connection"] = true, ["content-length"] = true, ["expect"] = true, ["host"] = true, ["keep-alive"] = true,
  ["te"] = true, ["trailer"] = true, ["transfer-encoding"] = true, ["upgrade"] = true,
}

-- HAProxy returns the values of a field indexed from 0 and expects them indexed from 1.
local function values(field)
  local list = {}
  for index = 0, #field do
    if field[index] then table.insert(list, field[index]) end
  end
  return list
end

local function first(headers, name)
  return headers and headers[name] and headers[name][0]
end

local function request_headers(txn)
  local headers = {}
  for name, field in pairs(txn.http:req_get_headers()) do
    if not DROPPED[name] then headers[name] = values(field) end
  end
  -- Set, not added, so that a client cannot choose these values.
  headers["x-forwarded-method"] = { txn.f:method() }
  headers["x-forwarded-uri"] = { txn.f:pathq() }
  headers["x-forwarded-host"] = { txn.f:req_hdr("host") or "-" }
  headers["x-forwarded-for"] = { tostring(txn.f:src()) }
  return headers
end

local function refuse(txn, status, headers, body)
  local reply = txn:reply({ status = status, body = body })
  for _, name in ipairs(SHOWN) do
    local value = first(headers, name)
    if value then reply:add_header(name, value) end
  end
  txn:done(reply)
end

core.register_action("tollgate", { "http-req" }, function(txn)
  local answer = core.httpclient():get({ url = URL, headers = request_headers(txn), timeout = TIMEOUT })
  local status = answer and answer.status or 0
  local decision = answer and first(answer.headers, "x-ratelimit-decision")
  if decision == "allow" then
    for variable, name in pairs({ ratelimit = "ratelimit", ratelimit_policy = "ratelimit-policy" }) do
      local value = first(answer.headers, name)
      if value then txn:set_var("txn." .. variable, value) end
    end
  elseif decision == "deny" or (status >= 400 and status < 500) then
    -- A 4xx without a decision means that the call was invalid, for example too many header fields. Admitting it would bypass the limits.
    refuse(txn, status, answer.headers, answer.body)
  elseif not OPEN then
    refuse(txn, 503, nil, "The rate limiter does not answer.\n")
  end
end)
