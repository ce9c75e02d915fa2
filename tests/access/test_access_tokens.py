"""Tokens of the broker: issued once, kept as a hash, refused in one way whatever is wrong."""

from __future__ import annotations

import hashlib
import math

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tamis.access import Authenticator, Principal, TokenRecord, issue_token
from tamis.errors import AccessError

ISSUED = issue_token("ann", ["trader", "feed"], now=100.0, lifetime=50.0, note="laptop")
KEPT = {ISSUED.record.hash: ISSUED.record}


def authenticate(text: str, *, now: float = 120.0) -> Principal:
    return Authenticator(KEPT.get, clock=lambda: now).authenticate(text)


def refusal(text: str, *, now: float = 120.0) -> AccessError:
    with pytest.raises(AccessError) as caught:
        authenticate(text, now=now)
    assert str(caught.value) == "the token is not valid"
    assert caught.value.code == "unauthenticated"
    return caught.value


def test_a_token_authenticates_its_principal_until_it_expires() -> None:
    assert authenticate(ISSUED.text) == Principal(
        "ann", ("trader", "feed"), 150.0, ISSUED.record.id
    )
    assert "has expired" in refusal(ISSUED.text, now=150.0).reason


def test_a_token_that_was_revoked_is_none() -> None:
    with pytest.raises(AccessError):
        Authenticator(lambda _: None, clock=lambda: 120.0).authenticate(ISSUED.text)


def test_only_a_hash_is_kept() -> None:
    record = ISSUED.record
    assert record.hash == hashlib.sha256(ISSUED.text.encode()).digest()
    kept = msgspec.json.encode(record).decode()
    assert ISSUED.text not in kept
    assert ISSUED.text.removeprefix("tamis_") not in kept
    assert ISSUED.text not in repr(ISSUED)
    assert msgspec.json.decode(kept, type=TokenRecord) == record


def test_tokens_are_long_random_and_easy_to_find() -> None:
    texts = {issue_token("ann", now=0.0).text for _ in range(1000)}
    assert len(texts) == 1000
    assert all(text.startswith("tamis_") and len(text) == 49 for text in texts)
    assert issue_token("ann", now=0.0).record.expires_at == math.inf


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 201, "\x00"])
def test_a_token_needs_a_name_that_can_be_shown(name: str) -> None:
    with pytest.raises(AccessError, match="printable"):
        issue_token(name, now=0.0)


@pytest.mark.parametrize("role", ["", "a,b", "a b", "a\nb", "x" * 101])
def test_a_token_needs_roles_with_plain_names(role: str) -> None:
    with pytest.raises(AccessError, match="a role's name"):
        issue_token("ann", ["trader", role], now=0.0)


def changed(text: str, at: int) -> str:
    return text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]


def test_a_token_with_another_character_is_none() -> None:
    for at in range(len(ISSUED.text)):
        refusal(changed(ISSUED.text, at))


@given(st.text() | st.text().map("tamis_".__add__) | st.text(alphabet="aZ0_-.", max_size=60))
@example("")
@example("tamis_")
@example(ISSUED.text + "\n")
@example(ISSUED.text + "=")
@example(" " + ISSUED.text)
@example(ISSUED.text.upper())
@example(ISSUED.text[:-1])
@example("tamis_" + "é" * 43)
@example("tamis_" + "\ud800" * 43)
@example("tamis_" + "０" * 43)
@example("tamis_" + "A" * 1_000_000)
@example(ISSUED.record.hash.hex())
@example(ISSUED.record.id)
def test_garbage_is_refused_in_the_same_words(text: str) -> None:
    refusal(text)


def test_a_record_of_another_token_is_not_taken() -> None:
    other = issue_token("root", ["admin"], now=0.0)
    with pytest.raises(AccessError):
        Authenticator(lambda _: other.record, clock=lambda: 1.0).authenticate(ISSUED.text)
