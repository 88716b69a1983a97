-- Uploads as S3 takes them: bodies are counted and thrown away, sizes and metadata are kept.

local uploads = {}
local saved, open = {}, {}
local last = 0
local PIECE = 256 * 1024

--- Read the body no faster than one connection is allowed; return its size.
local function swallow()
    local length = tonumber(ngx.var.http_content_length or "0")
    if length == 0 then return 0 end
    local socket, rate = assert(ngx.req.socket()), tonumber(ngx.var.upload_rate)
    ngx.update_time()
    local start, taken = ngx.now(), 0
    while taken < length do
        local piece = assert(socket:receive(math.min(PIECE, length - taken)))
        taken = taken + #piece
        if rate > 0 then
            ngx.update_time()
            local early = taken / rate - (ngx.now() - start)
            if early > 0.001 then ngx.sleep(early) end
        end
    end
    -- In chunks with a trailer the body is longer than what it carries.
    return tonumber(ngx.var.http_x_amz_decoded_content_length or length)
end

--- The headers that an answer tells again.
local function sent(beginning)
    local found = {}
    for name, value in pairs(ngx.req.get_headers(0)) do
        if name:sub(1, #beginning) == beginning then found[name] = value end
    end
    return found
end

local function tell(headers)
    for name, value in pairs(headers) do ngx.header[name] = value end
end

local function echo_checksums()
    local told = sent("x-amz-checksum-")
    told["x-amz-checksum-algorithm"] = nil
    tell(told)
    return told
end

local function answer_xml(text)
    ngx.header["Content-Type"], ngx.header["Content-Length"] = "application/xml", #text
    ngx.print(text)
end

local function tag(size)
    last = last + 1
    return string.format('"%032x"', last * 4294967296 + size % 4294967296)
end

local function put(path, arguments)
    local size = swallow()
    local etag, told = tag(size), echo_checksums()
    local upload = arguments.uploadId and open[arguments.uploadId]
    if upload then
        upload.sizes[tonumber(arguments.partNumber)] = size
    else
        saved[path] = { size = size, etag = etag, told = told, metadata = sent("x-amz-meta-") }
    end
    ngx.header["ETag"], ngx.header["Content-Length"] = etag, 0
end

local function begin(path)
    swallow()
    last = last + 1
    open["u" .. last] = { sizes = {}, metadata = sent("x-amz-meta-") }
    tell(sent("x-amz-checksum-"))
    answer_xml(string.format(
        '<?xml version="1.0" encoding="UTF-8"?><InitiateMultipartUploadResult><Bucket>bkt</Bucket>'
            .. "<Key>%s</Key><UploadId>u%d</UploadId></InitiateMultipartUploadResult>",
        path:sub(6), last))
end

local function complete(path, id)
    swallow()
    local size, count = 0, 0
    for _, each in pairs(open[id].sizes) do size, count = size + each, count + 1 end
    local etag = tag(size):gsub('"$', "-" .. count .. '"')
    local told = echo_checksums()
    saved[path] = { size = size, etag = etag, told = told, metadata = open[id].metadata }
    open[id] = nil
    local sums = told["x-amz-checksum-crc32"]
    sums = sums and "<ChecksumCRC32>" .. sums .. "</ChecksumCRC32>" or ""
    answer_xml(string.format(
        '<?xml version="1.0" encoding="UTF-8"?><CompleteMultipartUploadResult><Bucket>bkt</Bucket>'
            .. "<Key>%s</Key><ETag>%s</ETag>%s</CompleteMultipartUploadResult>",
        path:sub(6), (etag:gsub('"', "&quot;")), sums))
end

local function head(path)
    local found = saved[path]
    if not found then return ngx.exit(404) end
    tell(found.told)
    tell(found.metadata)
    ngx.header["ETag"], ngx.header["Content-Length"] = found.etag, found.size
    ngx.header["Last-Modified"] = "Fri, 02 Jan 2026 03:04:05 GMT"
end

--- Answer, if it is about what is saved: whether it was.
function uploads.answer(method, path)
    local arguments = ngx.req.get_uri_args()
    if not path:match("^/bkt/saved/") then return false end
    ngx.header["x-amz-request-id"] = ngx.var.request_id
    if method == "HEAD" then
        head(path)
    elseif method == "PUT" then
        put(path, arguments)
    elseif method == "POST" and arguments.uploads then
        begin(path)
    elseif method == "POST" and open[arguments.uploadId] then
        complete(path, arguments.uploadId)
    elseif method == "DELETE" then
        open[arguments.uploadId or ""], saved[path] = nil, nil
        ngx.status = 204
    else
        return false
    end
    return true
end

return uploads
