-- Requests for wrk. OP is put, red, get, linearizable, txn or large (ours), or etcd-put, etcd-get, etcd-linearizable,
-- etcd-txn. PORTS are the nodes', in turn for the threads. Values have 100 bytes, keys are 10,000 different ones.
local op = os.getenv("OP") or "put"
local ports = {}
for port in string.gmatch(os.getenv("PORTS") or "8001", "%d+") do ports[#ports + 1] = port end

local threads = 0
function setup(thread)
  threads = threads + 1
  thread.addr = wrk.lookup("127.0.0.1", ports[(threads - 1) % #ports + 1])[1]
  thread:set("seed", threads)
end

local symbols = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local function base64(text)
  local parts = {}
  for first = 1, #text, 3 do
    local a, b, c = text:byte(first, first + 2)
    local bits = a * 65536 + (b or 0) * 256 + (c or 0)
    for place = 1, 4 do
      local shift = 2 ^ (24 - 6 * place)
      local symbol = math.floor(bits / shift) % 64 + 1
      local is_padding = (place == 3 and not b) or (place == 4 and not c)
      parts[#parts + 1] = is_padding and "=" or symbols:sub(symbol, symbol)
    end
  end
  return table.concat(parts)
end

local value = string.rep("x", 100)
local json = {["Content-Type"] = "application/json"}

local function txn()
  local puts = {}
  for _ = 1, 100 do
    local key = "key" .. math.random(0, 9999)
    puts[#puts + 1] = '{"put":{"key":"' .. key .. '","value":"' .. value .. '"}}'
  end
  return wrk.format("POST", "/v1/txn", json, '{"then":[' .. table.concat(puts, ",") .. "]}")
end

local function etcd_txn()
  local puts, keys = {}, {}
  while #puts < 100 do  -- etcd takes a key once
    local key = "key" .. math.random(0, 9999)
    if not keys[key] then
      keys[key] = true
      puts[#puts + 1] = '{"requestPut":{"key":"' .. base64(key) .. '","value":"' .. base64(value) .. '"}}'
    end
  end
  return wrk.format("POST", "/v3/kv/txn", json, '{"success":[' .. table.concat(puts, ",") .. "]}")
end

local function make(number)
  local key = "key" .. number
  local path = "/v1/kv/" .. key
  if op == "put" then return wrk.format("PUT", path, {}, value) end
  if op == "red" then return wrk.format("PUT", path .. "?ack=red", {}, value) end
  if op == "get" then return wrk.format("GET", path) end
  if op == "linearizable" then return wrk.format("GET", path .. "?read=linearizable") end
  local name = '{"key":"' .. base64(key) .. '"'
  if op == "etcd-put" then
    return wrk.format("POST", "/v3/kv/put", json, name .. ',"value":"' .. base64(value) .. '"}')
  end
  if op == "etcd-get" then return wrk.format("POST", "/v3/kv/range", json, name .. ',"serializable":true}') end
  return wrk.format("POST", "/v3/kv/range", json, name .. "}")
end

local requests = {}
function init()
  math.randomseed(os.time() * 10 + seed)
  if op == "txn" then for place = 1, 200 do requests[place] = txn() end
  elseif op == "etcd-txn" then for place = 1, 200 do requests[place] = etcd_txn() end
  elseif op == "large" then
    local large = string.rep("x", 1048576)
    for place = 1, 8 do requests[place] = wrk.format("PUT", "/v1/kv/large" .. place, {}, large) end
  else for place = 1, 10000 do requests[place] = make(place - 1) end end
end

function request() return requests[math.random(1, #requests)] end
