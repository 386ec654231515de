-- Asks Tollgate about the request that HAProxy holds, and refuses it if Tollgate does.

local URL = "http://127.0.0.1:8080/auth/haproxy"
-- How long Tollgate may be silent, in milliseconds. Add the longest `wait` of the policy.
local TIMEOUT = 1000
-- Whether requests go on while Tollgate does not answer.
local OPEN = false

-- Fields of a refusal that the client is shown.
local SHOWN = { "content-type", "cache-control", "retry-after", "ratelimit", "ratelimit-policy" }

-- Fields that belong to the client's connection or body and not to the question.
local DROPPED = {
  ["connection"] = true, ["content-length"] = true, ["expect"] = true, ["host"] = true, ["keep-alive"] = true,
  ["te"] = true, ["trailer"] = true, ["transfer-encoding"] = true, ["upgrade"] = true,
}

-- HAProxy counts the values of a field from 0, and takes them counted from 1.
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

local function question(txn)
  local headers = {}
  for name, field in pairs(txn.http:req_get_headers()) do
    if not DROPPED[name] then headers[name] = values(field) end
  end
  -- Set, not added: what the client wrote in these fields is not asked about.
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
  local answer = core.httpclient():get({ url = URL, headers = question(txn), timeout = TIMEOUT })
  local status = answer and answer.status or 0
  local decision = answer and first(answer.headers, "x-ratelimit-decision")
  if decision == "allow" then
    for variable, name in pairs({ ratelimit = "ratelimit", ratelimit_policy = "ratelimit-policy" }) do
      local value = first(answer.headers, name)
      if value then txn:set_var("txn." .. variable, value) end
    end
  elseif decision == "deny" or (status >= 400 and status < 500) then
    -- Without a decision it is about the question, such as too many fields. That must not be a way around the limits.
    refuse(txn, status, answer.headers, answer.body)
  elseif not OPEN then
    refuse(txn, 503, nil, "The rate limiter does not answer.\n")
  end
end)
