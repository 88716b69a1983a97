-- What the static files of the rig cannot answer: lists, metadata, composes.
--
-- Keys are KIND/COUNT/NUMBER, seven digits: `100k/20000/0000123.bin` is one of 20,000 objects
-- of kind `100k`. No name is stored anywhere: a prefix holds as many objects as it says.

local uploads = require("uploads")

local answers = {}
local sizes, etags, crcs = {}, {}, {}
local composed = {}
local PAGE, MODIFIED = 1000, "2026-01-02T03:04:05.000Z"

--- Tell the rig about its files: kind -> size, entity tag, CRC-32C.
function answers.know(kind, size, etag, crc32c)
    sizes[kind], etags[kind], crcs[kind] = size, etag, crc32c
end

local function key(prefix, number)
    return string.format("%s%07d.bin", prefix, number)
end

--- The number of the first key that is not before `text` (or only the ones after it).
local function first(prefix, count, text, strictly)
    local low, high = 0, count
    while low < high do
        local middle = math.floor((low + high) / 2)
        local name = key(prefix, middle)
        if name < text or (strictly and name == text) then low = middle + 1 else high = middle end
    end
    return low
end

--- Some clients want the length told, as the clouds tell it.
local function print(text, content_type)
    ngx.header["Content-Type"] = content_type
    ngx.header["Content-Length"] = #text
    ngx.print(text)
end

local function print_json(text)
    print(text, "application/json; charset=UTF-8")
end

local function listed(arguments)
    local prefix = arguments.prefix or ""
    local kind, count = prefix:match("^([%w-]+)/(%d+)/")
    if not sizes[kind] or (arguments.delimiter or "") ~= "" then
        ngx.log(ngx.ERR, "no such list: ", ngx.var.request_uri)
        return ngx.exit(501)
    end
    local root = string.format("%s/%s/", kind, count)
    count = tonumber(count)
    local start = first(root, count, prefix, false)
    local stop = first(root, count, prefix .. "\255", false)
    return kind, root, start, stop
end

local function by_token(start, token)
    return math.max(start, tonumber(token or "") or start)
end

local function list_xml(arguments)
    local kind, root, start, stop = listed(arguments)
    start = by_token(start, arguments["continuation-token"])
    if arguments["start-after"] then
        start = math.max(start, first(root, stop, arguments["start-after"], true))
    end
    local page = tonumber(arguments["max-keys"] or PAGE)
    local last = math.min(stop, start + page)
    local lines = {'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>',
        "<Name>bkt</Name><Prefix>", arguments.prefix, "</Prefix><MaxKeys>", page, "</MaxKeys>"}
    if arguments["encoding-type"] then lines[#lines + 1] = "<EncodingType>url</EncodingType>" end
    for number = start, last - 1 do
        lines[#lines + 1] = string.format(
            "<Contents><Key>%s</Key><LastModified>%s</LastModified><ETag>&quot;%s&quot;</ETag>"
                .. "<Type>Normal</Type><Size>%d</Size><StorageClass>%s</StorageClass></Contents>",
            key(root, number), MODIFIED, etags[kind], sizes[kind],
            ngx.var.cloud == "oss" and "Standard" or "STANDARD")
    end
    lines[#lines + 1] = "<KeyCount>" .. (last - start) .. "</KeyCount>"
    if last < stop then
        lines[#lines + 1] = "<IsTruncated>true</IsTruncated><NextContinuationToken>" .. last
            .. "</NextContinuationToken>"
    else
        lines[#lines + 1] = "<IsTruncated>false</IsTruncated>"
    end
    lines[#lines + 1] = "</ListBucketResult>"
    print(table.concat(lines), "application/xml")
end

local function object_json(name, kind, size)
    return string.format(
        '{"kind":"storage#object","name":"%s","bucket":"bkt","size":"%d","generation":"%s",'
            .. '"metageneration":"1","etag":"%s","crc32c":"%s","storageClass":"STANDARD",'
            .. '"timeCreated":"%s","updated":"%s"}',
        name, size, ngx.var.generation, etags[kind] or "", crcs[kind] or "", MODIFIED, MODIFIED)
end

local function list_json(arguments)
    local kind, root, start, stop = listed(arguments)
    start = by_token(start, arguments.pageToken)
    if arguments.startOffset then
        start = math.max(start, first(root, stop, arguments.startOffset, false))
    end
    if arguments.endOffset and arguments.endOffset ~= "" then
        stop = math.min(stop, first(root, stop, arguments.endOffset, false))
    end
    local last = math.max(start, math.min(stop, start + tonumber(arguments.maxResults or PAGE)))
    local items = {}
    for number = start, last - 1 do
        items[#items + 1] = object_json(key(root, number), kind, sizes[kind])
    end
    local token = last < stop and string.format('"nextPageToken":"%d",', last) or ""
    print_json('{"kind":"storage#objects",' .. token .. '"items":[' .. table.concat(items, ",") .. "]}")
end

--- Sources of one kind, all with the same content: the file of as many copies is the answer.
local function compose(name)
    ngx.req.read_body()
    local body, kind, count = ngx.req.get_body_data() or "", nil, 0
    for source in body:gmatch('"name":%s*"([%w-]+)/') do kind, count = source, count + 1 end
    composed[name] = { kind = kind, count = count }
    print_json(object_json(name, nil, sizes[kind] * count))
end

local function sleep(seconds)
    if seconds > 0 then ngx.sleep(seconds) end
end

function answers.answer()
    local method, path = ngx.req.get_method(), ngx.var.asked
    local arguments = ngx.req.get_uri_args()
    local latency = tonumber(ngx.var.latency)
    local name = path:match("^/download/storage/v1/b/bkt/o/(.+)$")
    if name and composed[name] then
        return ngx.exec(string.format("/files/%s-x%d.bin", composed[name].kind, composed[name].count))
    end
    if method == "GET" and arguments["list-type"] == "2" then
        sleep(3 * latency)
        return list_xml(arguments)
    elseif method == "GET" and path == "/storage/v1/b/bkt/o" then
        sleep(3 * latency)
        return list_json(arguments)
    end
    sleep(latency)
    if ngx.var.cloud == "s3" and uploads.answer(method, path) then return end
    name = path:match("^/storage/v1/b/bkt/o/(.+)/compose$")
    if name and method == "POST" then return compose(name) end
    name = path:match("^/storage/v1/b/bkt/o/(.+)$")
    if name and method == "DELETE" and composed[name] then
        composed[name] = nil
        return ngx.exit(204)
    end
    local kind = name and name:match("^([%w-]+)/")
    if method == "GET" and sizes[kind] then
        return print_json(object_json(name, kind, sizes[kind]))
    end
    if path == "/storage/v1/b/bkt" then
        return print_json('{"kind":"storage#bucket","name":"bkt","location":"US","id":"bkt"}')
    elseif path == "/storage/v1/b/bkt/iam/testPermissions" then
        return print_json('{"permissions":["storage.objects.create","storage.objects.delete"]}')
    end
    ngx.log(ngx.ERR, "the rig has no answer to ", method, " ", ngx.var.request_uri)
    return ngx.exit(501)
end

-- ---- Counters: of the one worker, so plain numbers ------------------------------------------

local requests, bytes, received, connections = 0, 0, 0, 0

function answers.count()
    requests, bytes = requests + 1, bytes + tonumber(ngx.var.bytes_sent)
    received = received + tonumber(ngx.var.request_length)
    if ngx.var.connection_requests == "1" then connections = connections + 1 end
end

function answers.counters()
    print_json(string.format(
        '{"requests":%d,"bytes":%d,"received":%d,"connections":%d,"worker":%d}',
        requests, bytes, received, connections, ngx.worker.pid()))
end

return answers
