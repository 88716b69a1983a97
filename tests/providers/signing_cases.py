"""Requests to sign, odd ones foremost, and a way to send them as they are."""

import http.client
from collections.abc import Mapping

from hypothesis import settings
from hypothesis import strategies as st

from providers.addresses import BucketAddress, encode_key

REGION = "eu-central-1"
many = settings(deadline=None)
few = settings(deadline=None, max_examples=30)
ODD_KEYS = [
    *["a//b", "a/./b", "a/../b", "./a", "../a", "/a", "//", "a/", ".", ".."],
    *["a?b", "a#b", "a%20b", "a%2Fb", "a+b", "a b", " a ", "a~b", "a=b&c", "a;b", "a:b@c"],
    *["bäume/übung.jpg", "訓練/データ", "a\U0001f600b", "a\u0301", "\x01\x1f\x7f\x80", "a\tb\nc"],
    *["*!'()[]{}|\\^`\"<>$,", "train/n01440764/n01440764_10026.jpg"],
]

keys = st.one_of(
    st.sampled_from(ODD_KEYS),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30),
    st.lists(st.sampled_from("/.?#%+~ =&aZ09ä-_"), min_size=1, max_size=20).map("".join),
)
names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=20)
words = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)
sentences = st.lists(words, min_size=1, max_size=3).map(" ".join)
tokens = st.none() | words
seconds = st.integers(0, 4_102_444_800)
methods = st.sampled_from(["GET", "PUT", "HEAD"])
list_queries = st.fixed_dictionaries(
    {"list-type": st.just("2"), "prefix": st.just("") | keys},
    optional={
        "start-after": keys,
        "continuation-token": words,
        "delimiter": st.just("/"),
        "max-keys": st.just("1000"),
        "encoding-type": st.just("url"),
        "prefix-": words,
    },
)
part_queries = st.fixed_dictionaries({"partNumber": st.just("7"), "uploadId": words})
queries: st.SearchStrategy[dict[str, str]] = st.one_of(
    st.just({}), list_queries, part_queries, st.just({"uploads": ""})
)


def headers_with(own: str) -> st.SearchStrategy[dict[str, str]]:
    """Headers of a read or a write, with some of the vendor's own."""
    return st.fixed_dictionaries(
        {},
        optional={
            "Range": st.just("bytes=0-99") | st.just("bytes=5-"),
            "If-Match": st.just('"9b2cf535f27731c974343645a3985328"'),
            "if-none-match": st.just("*"),
            "Content-Type": st.just("text/plain; charset=utf-8"),
            "Content-MD5": st.just("1B2M2Y8AsgTpgAmY7PhCfg=="),
            "User-Agent": words,
            "Expect": st.just("100-continue"),
            f"{own}copy-source": keys.map(lambda key: f"/source/{encode_key(key)}"),
            f"{own.title()}Meta-Note": sentences,
            f"{own}meta-note-2": sentences,
        },
    )


def lowered(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers with their names in lower case."""
    return {name.lower(): value for name, value in headers.items()}


def ask(
    address: BucketAddress, method: str, path: str, query: str, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    """Send a request as it is and return status and body."""
    connection = http.client.HTTPConnection(address.host, timeout=20)
    try:
        connection.putrequest(
            method, f"{path}?{query}" if query else path, skip_accept_encoding=True
        )
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


LIVE_KEYS = ["plain/key.bin", "a b+c%20~d", "bäume/訓練?x=1#y", "=&;:@!'()*,$"]
