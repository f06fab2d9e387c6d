-- Sends the requests of a file, one after another: each as it is, signature included, ended by a zero byte.

local requests, sent = {}, 0

function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  for text in file:read("*a"):gmatch("[^%z]+") do
    requests[#requests + 1] = text
  end
  file:close()
end

function request()
  sent = sent % #requests + 1
  return requests[sent]
end

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  local p50, p99 = latency:percentile(50), latency:percentile(99)
  io.write(string.format("figures %d %d %d %d %d\n", summary.requests, summary.duration, failed, p50, p99))
end
